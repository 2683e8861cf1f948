//! The recorded programs: real ones, and our own that are hard to trace.

use std::path::{Path, PathBuf};

use crate::{Outcome, workloads};

/// A program to judge.
pub(super) struct Program {
    /// Its name on the command line and in the table.
    pub(super) name: &'static str,
    /// Its purpose.
    pub(super) what: &'static str,
    /// Compiles it and makes its input, in a separate folder.
    pub(super) prepare: fn(&Path) -> Outcome<Ready>,
}

/// A program that is ready to start.
pub(super) struct Ready {
    /// The program and its arguments.
    pub(super) command: Vec<String>,
}

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "ls",
        what: "directories, sorting, printing",
        prepare: |_| typed("ls -lR /usr/lib/x86_64-linux-gnu"),
    },
    Program { name: "find", what: "system calls", prepare: |_| typed("find /usr/share/doc -name *.gz") },
    Program { name: "gzip", what: "tight loops over 5 MB", prepare: gzip },
    Program { name: "sqlite3", what: "an interpreter of queries, on a generated database", prepare: sqlite },
    Program { name: "python3", what: "an interpreter with computed jumps", prepare: python },
    Program { name: "perl", what: "another", prepare: perl },
    Program { name: "awk", what: "and another, with regular expressions", prepare: awk },
    Program { name: "gcc", what: "a driver that starts cc1 and as; a big compiler", prepare: gcc },
    Program { name: "sh", what: "forks, subshells, children that execute other programs", prepare: shell },
    Program { name: "throws", what: "C++ exceptions", prepare: |folder| ours("throws.cpp", &[], folder) },
    Program {
        name: "signals",
        what: "timer, SIGSEGV, siglongjmp",
        prepare: |folder| ours("signals.c", &[], folder),
    },
    Program {
        name: "eight_threads",
        what: "8 threads and their 8 children",
        prepare: |folder| ours("eight_threads.c", &["-pthread"], folder),
    },
    Program {
        name: "static_pie",
        what: "a static-PIE; rep prefixes, a fork",
        prepare: |folder| ours("static_pie.c", &["-static-pie"], folder),
    },
    Program { name: "rusty", what: "a Rust program", prepare: |folder| ours("rusty.rs", &[], folder) },
    Program {
        name: "fib",
        what: "calls and returns, deeply nested",
        prepare: |folder| ours("fib.c", &[], folder),
    },
    Program {
        name: "slowpath",
        what: "the demo's first program",
        prepare: |folder| ours("slowpath.c", &[], folder),
    },
    Program {
        name: "threads",
        what: "the demo's second program",
        prepare: |folder| ours("threads.c", &["-pthread"], folder),
    },
];

/// A command as typed, without quoting.
fn typed(line: &str) -> Outcome<Ready> {
    Ok(Ready { command: line.split(' ').map(str::to_owned).collect() })
}

fn words(words: &[&str]) -> Outcome<Ready> {
    Ok(Ready { command: words.iter().map(|&word| word.to_owned()).collect() })
}

fn ours(source: &str, flags: &[&str], folder: &Path) -> Outcome<Ready> {
    words(&[&text(workloads::compile(source, flags, folder)?)])
}

fn text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

fn gzip(folder: &Path) -> Outcome<Ready> {
    words(&["gzip", "-1", "-c", &text(workloads::generate("text", 5_000_000, folder)?)])
}

fn sqlite(folder: &Path) -> Outcome<Ready> {
    let database = text(workloads::database(2_000, folder)?);
    let query = "SELECT name, count(*), sum(size), avg(size) FROM event GROUP BY name ORDER BY 3 DESC; \
                 SELECT count(*) FROM event a JOIN event b ON a.size = b.size WHERE a.id < b.id;";
    words(&["sqlite3", &database, query])
}

fn python(_folder: &Path) -> Outcome<Ready> {
    let script = "import json; d = {str(i): [i, i * i, {'half': i / 2}] for i in range(500)}; \
                  print(len(json.dumps(json.loads(json.dumps(d)), indent=1, sort_keys=True)))";
    words(&[&workloads::python()?, "-s", "-S", "-c", script])
}

fn perl(_folder: &Path) -> Outcome<Ready> {
    let script = "my %n; for my $i (1..20000) { $n{$i * 7919 % 1009} .= chr(65 + $i % 26) } \
                  my $s = join ',', map { lc $n{$_} } sort { $a <=> $b } keys %n; \
                  print scalar(() = $s =~ /([aeiou])[^aeiou]+\\1/g), \"\\n\"";
    words(&["perl", "-e", script])
}

fn awk(folder: &Path) -> Outcome<Ready> {
    let input = text(workloads::generate("text", 200_000, folder)?);
    words(&[
        "awk",
        "/[a-z]+1[0-9]*5/ { n[substr($1, 1, 3)] += length($0) } END { for (k in n) print k, n[k] }",
        &input,
    ])
}

fn gcc(_folder: &Path) -> Outcome<Ready> {
    words(&["gcc", "-O2", "-c", &text(workloads::source("signals.c")), "-o", "signals.o"])
}

fn shell(_folder: &Path) -> Outcome<Ready> {
    let script =
        "for i in 1 2 3; do n=$(echo $i | sed s/2/two/); echo $n; done; (exit 3); [ $? = 3 ] && /bin/true";
    words(&["sh", "-c", script])
}

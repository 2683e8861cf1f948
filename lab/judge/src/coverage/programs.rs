//! The programs whose coverage is judged.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Outcome, command, workloads};

/// A program.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Sources of `lab/workloads`.
    own: &'static [&'static str],
    /// Whether SQLite's one source file is part of it.
    with_sqlite: bool,
    /// Its language decides the compilers.
    pub(super) is_cpp: bool,
    pub(super) flags: &'static [&'static str],
    pub(super) arguments: &'static [&'static str],
    /// The statements that the program reads, as a file of this name.
    pub(super) input: Option<(&'static str, &'static str)>,
    /// Whether it is judged only if it is named: it takes minutes.
    pub(super) is_long: bool,
    /// Texts of lines that a peer counts differently, and why.
    pub(super) known: &'static [(&'static str, &'static str)],
}

const LONGJMP: &str = "counters of the ways out of a line miss longjmp";
const UNWOUND: &str = "the way out of an exception: counters see the line once, its code runs for the throw and for the unwinding";

const SMALL: Program = Program {
    name: "",
    own: &[],
    with_sqlite: false,
    is_cpp: false,
    flags: &[],
    arguments: &[],
    input: None,
    is_long: false,
    known: &[],
};

/// Every kind of statement once, small enough for a recording in a second.
const STATEMENTS: &str = "\
create table event(id integer primary key, name text, size int);
with recursive c(x) as (select 1 union all select x+1 from c where x<60) insert into event select x, 'n'||(x%7), x*37%101 from c;
create index by_size on event(size);
select name, count(*), sum(size), avg(size) from event group by name order by 3 desc;
select count(*) from event a join event b on a.size = b.size where a.id < b.id;
update event set size = size+1 where name like 'n3%';
delete from event where id % 5 = 0;
";

/// The package that contains SQLite's source.
const SQLITE: &str = "libsqlite3-sys";

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "sqlite",
        own: &["statements.c"],
        with_sqlite: true,
        flags: &["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION", "-lm"],
        arguments: &["statements.sql", ":memory:"],
        input: Some(("statements.sql", STATEMENTS)),
        is_long: true,
        ..SMALL
    },
    Program { name: "paper", own: &["paper.c"], flags: &["-lm"], arguments: &["Sort", "2"], ..SMALL },
    Program { name: "slowpath", own: &["slowpath.c"], ..SMALL },
    Program { name: "threads", own: &["threads.c"], flags: &["-pthread"], ..SMALL },
    Program {
        name: "throws",
        own: &["throws.cpp"],
        is_cpp: true,
        flags: &["-lstdc++"],
        known: &[("}", UNWOUND), ("throw ", UNWOUND)],
        ..SMALL
    },
    Program {
        name: "signals",
        own: &["signals.c"],
        known: &[
            ("sigsetjmp(", LONGJMP),
            ("value = busy(value, 20000)", LONGJMP),
            ("escapes++", LONGJMP),
            ("}", LONGJMP),
        ],
        ..SMALL
    },
];

impl Program {
    /// Its source files.
    pub(super) fn sources(&self) -> Outcome<Vec<PathBuf>> {
        let mut sources = Vec::new();
        for name in self.own {
            sources.push(workloads::source(name).canonicalize()?);
        }
        if self.with_sqlite {
            sources.push(sqlite()?.canonicalize()?);
        }
        Ok(sources)
    }

    /// Writes its input.
    pub(super) fn prepare(&self, folder: &Path) -> Outcome {
        if let Some((name, text)) = self.input {
            fs::write(folder.join(name), text)?;
        }
        Ok(())
    }
}

/// The source of SQLite, in a package that we depend on.
fn sqlite() -> Outcome<PathBuf> {
    let text = command::capture(&mut command::cargo(&["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages
        .filter(|package| package["name"] == SQLITE)
        .find_map(|package| package["manifest_path"].as_str())
        .ok_or("no package contains SQLite")?;
    Ok(Path::new(manifest).with_file_name("sqlite3").join("sqlite3.c"))
}

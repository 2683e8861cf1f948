//! `cargo judge lines`: compares the executions of each line with gcov, on the same run of the same binary.
//!
//! ```text
//! gcc -O0 -g --coverage ──► program ──hodo record──┬─► recording ──► hodo report lines ─┐
//!                                                  └─► counters ──► gcov ───────────────┴─► equal, or each line
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use serde_json::Value;

use crate::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

/// A program of the lab.
struct Program {
    source: &'static str,
    flags: &'static [&'static str],
    arguments: &'static [&'static str],
    /// Texts of lines that gcov is known to count differently, and why.
    known_differences: &'static [(&'static str, &'static str)],
}

const LONGJMP: &str = "gcov infers counts from those that flow into a line; longjmp goes round them";
const EXITS: &str = "_exit in the child writes no counters";
const CATCH: &str = "gcov counts the way out of a handler as a second arrival";

const PROGRAMS: &[Program] = &[
    Program { source: "slowpath.c", flags: &[], arguments: &[], known_differences: &[] },
    Program { source: "threads.c", flags: &["-pthread"], arguments: &[], known_differences: &[] },
    Program { source: "fib.c", flags: &[], arguments: &["20"], known_differences: &[] },
    Program { source: "eight_threads.c", flags: &["-pthread"], arguments: &[], known_differences: &[] },
    Program { source: "generated.c", flags: &[], arguments: &[], known_differences: &[] },
    Program {
        source: "signals.c",
        flags: &[],
        arguments: &[],
        known_differences: &[("sigsetjmp(", LONGJMP), ("value = busy(value, 20000)", LONGJMP)],
    },
    Program {
        source: "static_pie.c",
        flags: &["-static-pie"],
        arguments: &[],
        known_differences: &[("if (child == 0)", EXITS), ("_exit(", EXITS)],
    },
    Program { source: "throws.cpp", flags: &[], arguments: &[], known_differences: &[("}", CATCH)] },
];

/// Judges every program, or those with these sources.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/lines");
    println!(
        "{:16} {:>6} {:>12} {:>6} {:>9}  result",
        "program", "lines", "executions", "equal", "explained"
    );
    let mut failed = Vec::new();
    let (mut lines, mut equal) = (0, 0);
    for program in
        PROGRAMS.iter().filter(|program| names.is_empty() || names.iter().any(|name| name == program.source))
    {
        let counts = Counts::of(program, &folder.join(program.source))?;
        let judged = counts.judge(program)?;
        let result = if judged.different.is_empty() { "equal" } else { "DIFFERENT" };
        let (compared, same, explained) = (judged.lines, judged.equal, judged.explained.len());
        println!(
            "{:16} {compared:>6} {:>12} {same:>6} {explained:>9}  {result}",
            program.source, judged.executions
        );
        judged.explained.iter().chain(&judged.different).for_each(|line| println!("    {line}"));
        (lines, equal) = (lines + compared, equal + same);
        if !judged.different.is_empty() {
            failed.push(program.source);
        }
    }
    println!("\n{equal} of {lines} lines equal to gcov");
    match failed.is_empty() && lines > 0 {
        true => Ok(()),
        false => Err(format!("not equal: {}", failed.join(", ")).into()),
    }
}

/// Executions by source line.
struct Counts {
    ours: BTreeMap<u64, u64>,
    theirs: BTreeMap<u64, u64>,
    /// Lines that declare functions. gcov counts them as run when the function is called; if the function's brace has a
    /// separate line, that is the line of its first instruction.
    declared: BTreeSet<u64>,
}

/// The result of a comparison.
#[derive(Default)]
struct Judged {
    lines: u64,
    equal: u64,
    executions: u64,
    explained: Vec<String>,
    different: Vec<String>,
}

impl Counts {
    /// Compiles, records and counts a program.
    fn of(program: &Program, folder: &Path) -> Outcome<Counts> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        let coverage = ["-O0", "--coverage", "-fprofile-update=atomic"];
        let binary = workloads::compile(program.source, &[&coverage[..], program.flags].concat(), folder)?;
        let recording = folder.join("recording.perf.data");
        let mut record = Command::new(command::hodo());
        record.args(["record", "--engine", "emulate", "-q", "-o"]).arg(&recording).arg("--").arg(&binary);
        command::capture(record.args(program.arguments).current_dir(folder))?;
        let (theirs, declared) = gcov(program.source, folder)?;
        let source = workloads::source(program.source).to_string_lossy().into_owned();
        let mut ours = BTreeMap::new();
        for row in table("lines", &recording)? {
            let location = row["line"].as_str().and_then(|location| location.rsplit_once(':'));
            if let Some((_, line)) = location.filter(|(file, _)| *file == source) {
                *ours.entry(line.parse()?).or_default() += row["executions"].as_u64().unwrap_or(0);
            }
        }
        Ok(Counts { ours, theirs, declared })
    }

    /// The count of the opening brace of a function declared in this line.
    fn brace_of(&self, line: u64) -> Option<&u64> {
        let (next, count) = self.ours.range(line + 1..).next().filter(|_| self.declared.contains(&line))?;
        (!self.theirs.contains_key(next)).then_some(count)
    }

    fn judge(&self, program: &Program) -> Outcome<Judged> {
        let text = fs::read_to_string(workloads::source(program.source))?;
        let mut judged = Judged::default();
        for (&line, &theirs) in &self.theirs {
            let ours = self.ours.get(&line).or_else(|| self.brace_of(line)).copied().unwrap_or(0);
            judged.lines += 1;
            judged.executions += ours;
            let source = text.lines().nth(line as usize - 1).unwrap_or_default().trim();
            let comparison = format!("{}:{line}: hodo {ours}, gcov {theirs}: {source}", program.source);
            let known = program.known_differences.iter().find(|(part, _)| source.contains(part));
            match known {
                _ if ours == theirs => judged.equal += 1,
                Some((_, why)) => judged.explained.push(format!("{comparison}\n      {why}")),
                None => judged.different.push(comparison),
            }
        }
        Ok(judged)
    }
}

/// gcov's counts: executions by line, and the lines that declare functions.
fn gcov(source: &str, folder: &Path) -> Outcome<(BTreeMap<u64, u64>, BTreeSet<u64>)> {
    let counters = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let counters =
        counters.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "gcda"));
    let counters = counters.ok_or("the program wrote no counters")?;
    let text = command::capture(
        Command::new("gcov").args(["--json-format", "--stdout"]).arg(counters).current_dir(folder),
    )?;
    let json: Value = serde_json::from_str(&text)?;
    let (mut lines, mut declared) = (BTreeMap::new(), BTreeSet::new());
    let files = json["files"].as_array().into_iter().flatten();
    let source = format!("/{source}");
    for file in files.filter(|file| file["file"].as_str().is_some_and(|name| name.ends_with(&source))) {
        for line in file["lines"].as_array().into_iter().flatten() {
            let number = line["line_number"].as_u64().unwrap_or(0);
            *lines.entry(number).or_default() += line["count"].as_u64().unwrap_or(0);
        }
        for function in file["functions"].as_array().into_iter().flatten() {
            declared.insert(function["start_line"].as_u64().unwrap_or(0));
        }
    }
    Ok((lines, declared))
}

/// The rows of a report, as objects.
fn table(kind: &str, recording: &Path) -> Outcome<Vec<Value>> {
    let mut report = Command::new(command::hodo());
    let text = command::capture(report.args(["report", kind, "-q", "--format", "jsonl"]).arg(recording))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

//! Checks every case against foreign decoders: `judge-cases LIBIPT FOLDER [NAME]…`, where LIBIPT is
//! `lab/judges/libipt.c`, compiled. `cargo judge cases` runs all of it.
//!
//! The instructions and errors must be the same in the same order, as must the events of libipt, but not the times. A
//! case that a decoder decodes differently must state that and the reason, and no other case may.

mod libipt;
mod perf;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use hodo_cases::{Assembly, Case, Trace, assemble, decode, encode};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [libipt, folder, names @ ..] = &arguments[..] else {
        eprintln!("usage: judge-cases LIBIPT FOLDER [NAME]…");
        return ExitCode::from(2);
    };
    match judge_all(Path::new(libipt), Path::new(folder), names) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            eprintln!("judge-cases: {wrong} cases do not have the stated results");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("judge-cases: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of wrong cases, over both decoders.
fn judge_all(libipt: &Path, folder: &Path, names: &[String]) -> Outcome<usize> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths: Vec<PathBuf> = entries.iter().map(|entry| entry.path()).collect();
    paths.retain(|path| names.is_empty() || names.iter().any(|name| path.file_stem() == Some(name.as_ref())));
    paths.sort();
    let mut tallies = [Tally::new("libipt"), Tally::new("perf")];
    for path in &paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        judge(libipt, &name, &fs::read_to_string(path)?, &mut tallies)
            .map_err(|error| format!("{name}: {error}"))?;
    }
    println!("\n{} cases", paths.len());
    for Tally { decoder, asked, differ, .. } in &tallies {
        println!("{decoder:6} was asked {asked}, sees {} as we do, and {differ} otherwise", asked - differ);
    }
    Ok(tallies.iter().map(|tally| tally.wrong).sum())
}

/// Checks one case against both decoders.
fn judge(libipt: &Path, name: &str, text: &str, tallies: &mut [Tally; 2]) -> Outcome<()> {
    let case = Case::parse(text)?;
    let assembly = assemble(&case.code)?;
    let trace = encode(&case.packets, &assembly)?;
    let ours = ours(&case, assembly.clone(), &trace);
    let our_lines = ours.iter().map(String::as_str);
    let [of_libipt, of_perf] = tallies;
    of_libipt.add(
        name,
        &case,
        without_repetitions(our_lines.clone()),
        libipt::lines(libipt, &case, &assembly, &trace)?,
    );
    if perf::can_read(&assembly) {
        // perf is not asked to print events.
        let instructions =
            without_repetitions(our_lines.filter(|line| *line == "gap" || is_instruction(line)));
        of_perf.add(name, &case, instructions, perf::lines(&case, &assembly, &trace)?);
    }
    Ok(())
}

/// Counts how often a decoder agrees with ours.
struct Tally {
    decoder: &'static str,
    asked: usize,
    differ: usize,
    /// Differences that a case does not state, or states although there is none.
    wrong: usize,
}

impl Tally {
    fn new(decoder: &'static str) -> Tally {
        Tally { decoder, asked: 0, differ: 0, wrong: 0 }
    }

    fn add(&mut self, name: &str, case: &Case<'_>, ours: Vec<String>, theirs: Vec<String>) {
        let decoder = self.decoder;
        let stated = case.differs.iter().find(|differs| differs.decoder == decoder);
        let theirs = without_guesses(&ours, theirs);
        self.asked += 1;
        self.differ += usize::from(ours != theirs);
        match (ours == theirs, stated) {
            (true, None) => {}
            (false, Some(differs)) => println!("{name}: {decoder} {}", differs.reason),
            (false, None) => {
                self.wrong += 1;
                println!("{name}: {decoder} NOT EQUAL\n{}", difference(decoder, &ours, &theirs));
            }
            (true, Some(_)) => {
                self.wrong += 1;
                println!("{name}: {decoder} EQUAL, but the case says that it differs");
            }
        }
    }
}

/// The first lines that differ.
fn difference(decoder: &str, ours: &[String], theirs: &[String]) -> String {
    let same = ours.iter().zip(theirs).take_while(|(our, their)| our == their).count();
    let rest = |who: &str, lines: &[String]| {
        lines[same..].iter().take(12).map(|line| format!("  {who}: {line}\n")).collect::<String>()
    };
    format!("  after {same} lines\n{}{}", rest("hodo", ours), rest(decoder, theirs))
}

fn is_instruction(line: &str) -> bool {
    u64::from_str_radix(line, 16).is_ok()
}

/// Our lines of the kinds that the other decoder reports too, with addresses in place of labels.
fn ours(case: &Case<'_>, assembly: Assembly, trace: &Trace<'_>) -> Vec<String> {
    let lines = decode(&case.config, &Assembly { labels: Default::default(), ..assembly }, trace);
    let reported = lines
        .iter()
        .map(String::as_str)
        .filter(|line| !["time ", "cycles ", "skipped "].iter().any(|start| line.starts_with(start)));
    let lines = reported.map(|line| match line.strip_prefix("    ") {
        Some(instruction) => instruction.split(' ').next().unwrap_or_default(),
        None if line.starts_with("gap ") => "gap",
        None => line,
    });
    lines.map(str::to_owned).collect()
}

/// Removes what decoders report differently: a repeated end of tracing, repeated errors, an unchanged mode, and the order of
/// a mode and the start of tracing.
pub(crate) fn without_repetitions<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut mode = "64-bit code";
    for line in lines {
        let last = kept.last().map(String::as_str);
        let repeated = match (last, line) {
            (None | Some("gap"), "tracing off") | (Some("gap"), "gap") => true,
            (Some(last), "tracing off") => last.starts_with("tracing off"),
            (_, line) if line.ends_with("-bit code") => std::mem::replace(&mut mode, line) == line,
            _ => false,
        };
        if line.starts_with("tracing on") && last.is_some_and(|last| last.ends_with("-bit code")) {
            kept.insert(kept.len() - 1, line.to_owned());
        } else if !repeated {
            kept.push(line.to_owned());
        }
    }
    kept
}

/// Their lines without unproven instructions before an error: at the point where we report a lost flow, they continue
/// through the code to the first branch that they can't resolve.
fn without_guesses(ours: &[String], theirs: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    for (index, line) in theirs.iter().enumerate() {
        let ends_in_error =
            || theirs[index..].iter().find(|line| !is_instruction(line)).is_some_and(|end| end == "gap");
        let we_are_lost = ours.get(kept.len()).is_some_and(|our| our == "gap");
        if !(we_are_lost && is_instruction(line) && ends_in_error()) {
            kept.push(line.clone());
        }
    }
    kept
}

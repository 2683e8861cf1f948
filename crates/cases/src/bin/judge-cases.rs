//! Holds every case against a decoder that we did not write: `judge-cases LIBIPT FOLDER [NAME]…`, where
//! LIBIPT is `lab/judges/libipt.c`, compiled. `cargo xtask judge cases` does it all.
//!
//! Instructions and events must be the same in the same order, but for times, and but for what each
//! decoder says where it lost the flow. A case that differs must say so and why, and no other may.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use hodo_cases::{Assembly, Case, Trace, assemble, decode, encode};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [libipt, folder, names @ ..] = &arguments[..] else {
        eprintln!("usage: judge-cases LIBIPT FOLDER [NAME]…");
        return ExitCode::from(2);
    };
    match judge_all(Path::new(libipt), Path::new(folder), names) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            eprintln!("judge-cases: {wrong} are not as they say");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("judge-cases: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How many cases are not as they say.
fn judge_all(libipt: &Path, folder: &Path, names: &[String]) -> Outcome<usize> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths: Vec<PathBuf> = entries.iter().map(|entry| entry.path()).collect();
    paths.retain(|path| names.is_empty() || names.iter().any(|name| path.file_stem() == Some(name.as_ref())));
    paths.sort();
    let (mut wrong, mut differ) = (0, 0);
    for path in &paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(path)?;
        let case = Case::parse(&text).map_err(|error| format!("{name}: {error}"))?;
        let reason = case.differs.iter().find(|differs| differs.decoder == "libipt");
        let difference = judge(libipt, &case).map_err(|error| format!("{name}: {error}"))?;
        differ += usize::from(difference.is_some());
        match (difference, reason) {
            (None, None) => {}
            (Some(_), Some(reason)) => println!("{name}: libipt differs: {}", reason.reason),
            (Some(difference), None) => {
                wrong += 1;
                println!("{name}: NOT EQUAL\n{difference}");
            }
            (None, Some(_)) => {
                wrong += 1;
                println!("{name}: EQUAL, but the case says that libipt differs");
            }
        }
    }
    println!("{} cases; libipt sees {} as we do, and {differ} otherwise", paths.len(), paths.len() - differ);
    Ok(wrong)
}

/// The first lines that are not the same, if any.
fn judge(libipt: &Path, case: &Case<'_>) -> Outcome<Option<String>> {
    let assembly = assemble(&case.code)?;
    let trace = encode(&case.packets, &assembly)?;
    let (ours, theirs) = (ours(case, assembly.clone(), &trace), theirs(libipt, case, &assembly, &trace)?);
    if ours == theirs {
        return Ok(None);
    }
    let same = ours.iter().zip(&theirs).take_while(|(our, their)| our == their).count();
    let rest = |who: &str, lines: &[String]| {
        lines[same..].iter().take(12).map(|line| format!("  {who}: {line}\n")).collect::<String>()
    };
    Ok(Some(format!("  after {same} lines\n{}{}", rest("hodo", &ours), rest("libipt", &theirs))))
}

/// Our lines, with addresses instead of names, and without what the other decoder does not say.
fn ours(case: &Case<'_>, assembly: Assembly, trace: &Trace<'_>) -> Vec<String> {
    let text = decode(&case.config, &Assembly { labels: Default::default(), ..assembly }, trace);
    let said = text.lines().filter(|line| !line.starts_with("time ") && !line.starts_with("skipped "));
    let lines = said.map(|line| match line.strip_prefix("    ") {
        Some(instruction) => instruction.split(' ').next().unwrap_or_default(),
        None if line.starts_with("gap ") => "gap",
        None => line,
    });
    lines.map(str::to_owned).collect()
}

/// The lines of libipt.
fn theirs(libipt: &Path, case: &Case<'_>, assembly: &Assembly, trace: &Trace<'_>) -> Outcome<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(libipt);
    command.args(["--events", "--limit", "10000"]);
    if let Some(cpu) = case.config.cpu {
        command.args(["--cpu", &format!("{}/{}/{}", cpu.family, cpu.model, cpu.stepping)]);
    }
    for (index, section) in assembly.sections.iter().enumerate() {
        let path = folder.path().join(format!("code-{index}"));
        fs::write(&path, &section.bytes)?;
        let (size, address) = (section.bytes.len(), section.address);
        command.args(["--raw", &format!("{}:0:{size}@{address:#x}", path.display())]);
    }
    let path = folder.path().join("trace");
    fs::write(&path, &trace.bytes)?;
    let output = command.arg(path).output()?;
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some("overflow") => "gap",
        Some(event) if event.starts_with("error") => "gap",
        Some(event) => event,
        None => line,
    });
    Ok(lines.map(str::to_owned).collect())
}

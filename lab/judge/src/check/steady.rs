//! Commands that do not change: the gate lets them pass, and whatever differs between their runs has a reason.

use std::{fs, path::Path};

use hodo_check::{Baseline, Quantity};

use super::{check, verdict};
use crate::Outcome;

const LIST: &str = include_str!("../../check/steady.list");
/// Runs of each command for the baseline, and as many again that are compared with it.
const RUNS: u32 = 10;
/// Parts of commands whose equal runs differ, and why.
const VARYING: &[(&str, &str)] = &[
    ("|", "a pipe: what a read returns depends on when the other program wrote"),
    ("$(", "a pipe: what a read returns depends on when the other program wrote"),
    ("dd ", "prints how long it took, in more or fewer digits"),
    ("python3", "reads the clock: the kernel's function for that tries again while the clock is set"),
    ("bash ", "seeds its random numbers with the time and the number of its process"),
    ("gcc ", "names its temporary files at random"),
    ("sh -c", "writes the number of its parent process as text, in more or fewer digits"),
];

/// The commands.
pub(super) fn commands() -> impl Iterator<Item = &'static str> {
    LIST.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// Measures commands that do not change twice, and returns what is wrong.
pub(super) fn judge(folder: &Path) -> Outcome<Vec<String>> {
    let folder = folder.join("steady");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("text"), LIST.repeat(20))?;
    let mut toml = String::new();
    for line in commands() {
        toml.push_str(&format!("[[case]]\nname = {line:?}\ncommand = {line:?}\nruns = {RUNS}\n"));
    }
    fs::write(folder.join("hodo.toml"), toml)?;
    // It fails if a case can't be counted, which the number of cases shows.
    check(&folder).arg("--save").status()?;
    let baseline = Baseline::parse(&fs::read_to_string(folder.join("hodo.baseline"))?)?;
    let verdict = verdict(&folder)?;
    let (mut wrong, mut explained) = (Vec::new(), 0);
    let cases = verdict["cases"].as_array().ok_or("no cases")?;
    for case in cases {
        let name = case["name"].as_str().unwrap_or_default();
        let instructions =
            baseline.cases.get(name).and_then(|counts| counts.totals.get(&Quantity::Instructions));
        let width = instructions.map_or(0, |spread| spread.width());
        let varying = case["varying"].as_array().into_iter().flatten();
        let varying: Vec<&str> = varying.filter_map(|varying| varying["function"]["name"].as_str()).collect();
        let is_steady = width == 0 && varying.is_empty();
        let why = VARYING.iter().find(|(part, _)| name.contains(part)).map(|(_, why)| *why);
        let passed = case["passed"] == true;
        let shown = if is_steady { String::new() } else { format!("±{width}, {}", varying.join(", ")) };
        println!("{} {name:44} {shown}", if passed { "ok  " } else { "FAIL" });
        if !passed {
            wrong.push(format!("`{name}` fails without a change"));
        }
        match why {
            _ if is_steady => {}
            Some(why) => {
                explained += 1;
                println!("         {why}");
            }
            None => wrong.push(format!("`{name}` varies, and nothing explains that: {}", varying.join(", "))),
        }
    }
    let measured = cases.len();
    println!(
        "{measured} commands, {} runs of each; {explained} vary, with a reason; {} problems",
        2 * RUNS,
        wrong.len()
    );
    if measured < commands().count() {
        wrong.push(format!("only {measured} commands of {} could be counted", commands().count()));
    }
    Ok(wrong)
}

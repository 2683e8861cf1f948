//! `cargo judge mcp`: the protocol's own client, with a script that knows nothing about the programs, finds ten planted causes
//! through `hodo mcp`. It may call six tools for each, and follows only what their answers say.
//!
//! ```text
//! causes/* ──compile──► program ──► solver.js ──calls──► hodo mcp: record, explain, the evidence of the first finding
//!                                     └──► conclusion: does it name the function and the mechanism? is the evidence there?
//! ```
//!
//! Each cause is solved twice, with the usual bound of answers and with the smallest one.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::{
    Outcome, command,
    explain::{self, Case},
    setup::{self, Need},
};

/// The client, in the tested version.
const CLIENT: &str = "@modelcontextprotocol/sdk@1.32.2";
const SOLVER: &str = "lab/judge/src/solver.js";
/// Bounds of answers, in bytes.
const BOUNDS: [usize; 2] = [4096, 1024];
const MOST_CALLS: usize = 6;
/// The planted causes, by the names of their cases.
const CAUSES: [&str; 10] = [
    "growth of each append",
    "a hash function that maps all keys to few buckets",
    "a regular expression that is compiled for each line",
    "an array that is copied for each element",
    "one call of 99 is slow",
    "a cache that is emptied again and again",
    "one thread has most of the work",
    "exceptions for what is not exceptional",
    "a list that is cloned to look at it",
    "a membership test in a list, by Python",
];

/// Solves every cause, or those whose name contains one of these words.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/mcp");
    let modules = setup::npm_packages(&folder, CLIENT)?;
    let is_wanted =
        |case: &Case| names.is_empty() || names.iter().any(|name| case.name.contains(name.as_str()));
    let mut problems = Vec::new();
    let (mut solved, mut judged) = (0, 0);
    println!("{:52} {:>6} {:>6} {:>8}  rule, calls", "cause", "bound", "calls", "largest");
    for (number, case) in causes()?.iter().enumerate().filter(|(_, case)| is_wanted(case)) {
        let folder = folder.join(number.to_string());
        fs::create_dir_all(&folder)?;
        let words = [explain::words(case, &folder)?, case.arguments.clone()].concat();
        for bound in BOUNDS {
            let attempt = attempt(&modules, &folder, bound, &words)?;
            attempt.print(&case.name, bound);
            judged += 1;
            let found = attempt.problems(case, bound);
            solved += usize::from(found.is_empty());
            problems.extend(found.iter().map(|problem| format!("{}, {bound} bytes: {problem}", case.name)));
        }
    }
    println!("{solved} of {judged} solved in at most {MOST_CALLS} calls");
    match problems.is_empty() && judged > 0 {
        true => Ok(()),
        false => Err(problems.join("\n").into()),
    }
}

/// The cases that are solved.
fn causes() -> Outcome<Vec<Case>> {
    let mut cases = explain::cases()?;
    let mut causes = Vec::new();
    for name in CAUSES {
        let position = cases.iter().position(|case| case.name == name);
        causes.push(cases.swap_remove(position.ok_or_else(|| format!("no cause is called `{name}`"))?));
    }
    Ok(causes)
}

/// Lets the client solve one cause.
fn attempt(modules: &Path, folder: &Path, bound: usize, words: &[String]) -> Outcome<Attempt> {
    let recording = folder.join("recording.data");
    if recording.exists() {
        fs::remove_file(&recording)?;
    }
    let mut solver = Command::new("node");
    solver.arg(command::root().join(SOLVER)).arg(modules).arg(command::hodo()).arg(folder);
    solver.arg(bound.to_string()).arg(&recording).args(words).current_dir(folder);
    Attempt::of(&serde_json::from_str(&command::capture(&mut solver)?)?)
}

/// What the client asked and found.
#[derive(Debug, Default)]
struct Attempt {
    /// The sentence of the finding that it believes.
    conclusion: String,
    rule: String,
    /// What the evidence of the finding shows.
    evidence: String,
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    name: String,
    /// The bytes of the answer.
    bytes: usize,
    failed: bool,
}

impl Attempt {
    fn of(answer: &Value) -> Outcome<Attempt> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let calls = answer["calls"].as_array().ok_or("the client lists no calls")?;
        let call = |call: &Value| Call {
            name: text(&call["name"]),
            bytes: call["text"].as_str().map_or(0, str::len),
            failed: call["failed"] == true,
        };
        Ok(Attempt {
            conclusion: text(&answer["conclusion"]),
            rule: text(&answer["rule"]),
            evidence: text(&answer["evidence"]),
            calls: calls.iter().map(call).collect(),
        })
    }

    fn print(&self, name: &str, bound: usize) {
        let largest = self.calls.iter().map(|call| call.bytes).max().unwrap_or(0);
        let calls: Vec<&str> = self.calls.iter().map(|call| call.name.as_str()).collect();
        println!("{name:52} {bound:>6} {:>6} {largest:>8}  {}: {}", calls.len(), self.rule, calls.join(", "));
    }

    /// Why this is no solution; nothing if it is one.
    fn problems(&self, case: &Case, bound: usize) -> Vec<String> {
        let mut problems = Vec::new();
        if !case.is_named_in(&self.conclusion) {
            problems.push(format!("not named in `{}`", self.conclusion));
        }
        if self.evidence.is_empty() {
            problems.push("the finding has no evidence".to_owned());
        }
        if self.calls.len() > MOST_CALLS {
            problems.push(format!("{} calls", self.calls.len()));
        }
        for call in &self.calls {
            if call.failed {
                problems.push(format!("{} failed", call.name));
            }
            if call.bytes > bound {
                problems.push(format!("{} answered {} bytes", call.name, call.bytes));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_solution_names_the_cause_with_evidence_in_few_short_answers() {
        let causes = causes().expect("ten causes");
        let case = causes.iter().find(|case| case.name == "growth of each append").expect("a cause");
        let answer = |conclusion: &str, evidence: &str, length: usize, calls: usize| {
            let call = json!({ "name": "explain", "text": "x".repeat(length), "failed": false });
            let calls = vec![call; calls];
            json!({ "conclusion": conclusion, "rule": "hot", "evidence": evidence, "calls": calls })
        };
        let problems = |answer: &Value| Attempt::of(answer).expect("an answer").problems(case, 100);
        let named = "append_line calls strlen";
        assert_eq!(problems(&answer(named, "a table", 100, 6)), [""; 0]);
        assert_eq!(problems(&answer("strlen is hot", "a table", 100, 6)).len(), 1);
        assert_eq!(problems(&answer(named, "", 100, 6)).len(), 1);
        assert_eq!(problems(&answer(named, "a table", 100, 7)).len(), 1);
        assert_eq!(problems(&answer(named, "a table", 101, 1)).len(), 1);
    }
}

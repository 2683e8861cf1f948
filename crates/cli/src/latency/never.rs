//! Notes on markers that never occur, with the nearest names of what ran.

use hodo_engine::{
    Experiment, Request,
    latency::{Named, may_be_written, nearest_of},
};
use hodo_model::{Intervals, Parameters, Role, Table, Value};

use super::question::Question;
use crate::failure::Failure;

/// Number of names in a note.
const SHOWN: usize = 3;

/// Returns notes on markers that never occur and on an empty result.
pub fn notes(
    question: &Question,
    experiment: &Experiment,
    request: &Request,
    tables: &[Table],
) -> Result<Vec<String>, Failure> {
    let is_zero = |name| tables.iter().any(|table| table.figure(name) == Some(&Value::Integer(0)));
    let mut notes = Vec::new();
    if let Question::Markers { from, to, .. } = question {
        let ran = Ran { experiment, request };
        for (name, side, markers) in [("from_passed", "--from", from), ("to_passed", "--to", to)] {
            if is_zero(name) {
                let why: Vec<String> =
                    markers.iter().map(|marker| ran.why_never(marker)).collect::<Result<_, _>>()?;
                notes.push(format!("the marker of {side} never occurs: {}", why.join("; ")));
            }
        }
    }
    if let Question::Known(Intervals::Syscalls(name)) = question
        && is_zero("count")
    {
        let ran = Ran { experiment, request }.names(Role::SystemCalls, "call")?;
        if !ran.contains(name) {
            notes.push(never_ran(name, &nearest_of(name, ran.into_iter(), SHOWN), Role::SystemCalls));
        }
    }
    if is_zero("count") {
        notes.push("nothing was measured: no interval is complete".to_owned());
    }
    Ok(notes)
}

/// What the recording executed.
struct Ran<'r> {
    experiment: &'r Experiment,
    request: &'r Request,
}

impl Ran<'_> {
    /// Returns the reason why a marker never occurs.
    fn why_never(&self, marker: &Named) -> Result<String, Failure> {
        Ok(match marker {
            Named::Instructions(sequence) => {
                let ran = self.names(Role::Mnemonics, "mnemonic")?;
                let wanted = sequence.iter().map(|pattern| pattern.mnemonic.as_str());
                let is_missing =
                    |wanted: &&str| *wanted != "*" && !ran.iter().any(|ran| may_be_written(ran, wanted));
                match wanted.into_iter().find(is_missing) {
                    Some(name) => never_ran(name, &nearest_of(name, ran.into_iter(), SHOWN), Role::Mnemonics),
                    None if sequence.len() > 1 => {
                        "each of its instructions ran, but never all of them in this order".to_owned()
                    }
                    None => "its instruction ran, but never with this prefix and these operands".to_owned(),
                }
            }
            Named::Entry(name) | Named::Exit(name) => {
                let ran = self.names(Role::Functions, "function")?;
                let is_exit = matches!(marker, Named::Exit(_));
                match is_exit && ran.contains(name) {
                    true => format!("{name} ran, but no return instruction of it"),
                    false => never_ran(name, &nearest_of(name, ran.into_iter(), SHOWN), Role::Functions),
                }
            }
            Named::Line(file, line) => {
                let near = lines_near(&self.names(Role::SourceLines, "line")?, file, *line);
                never_ran(&format!("{file}:{line}"), &near, Role::SourceLines)
            }
            Named::Address(address) => {
                never_ran(&format!("the instruction at {address:#x}"), &[], Role::Blocks)
            }
        })
    }

    /// Returns a column of a report on the whole recording.
    fn names(&self, role: Role, column: &str) -> Result<Vec<String>, Failure> {
        let reports = hodo_engine::reports_for(role);
        let parameters = Parameters::default();
        let request = Request { reports, views: Vec::new(), parameters, ..self.request.clone() };
        let outcome = self.experiment.run(&request, &mut |_| true)?;
        let column_of = |table: &Table| {
            let index = table.columns().iter().position(|known| known.name == column);
            let text = |mut row: Vec<Value>| match row.swap_remove(index?) {
                Value::Text(text) => Some(text),
                _ => None,
            };
            table.rows().into_iter().filter_map(text).collect::<Vec<String>>()
        };
        Ok(outcome.tables.iter().flat_map(column_of).collect())
    }
}

fn never_ran(name: &str, near: &[String], role: Role) -> String {
    let report = hodo_engine::report_for(role).description().name;
    match near.is_empty() {
        true => format!("{name} never ran; `hodo report {report}` lists what did"),
        false => format!("{name} never ran; the nearest that did: {}", near.join(", ")),
    }
}

/// Returns the lines that ran in this file, the nearest first.
fn lines_near(ran: &[String], file: &str, line: u32) -> Vec<String> {
    let near = ran.iter().filter_map(|pattern| {
        let (path, number) = pattern.rsplit_once(':')?;
        let is_own = path.strip_suffix(file).is_some_and(|before| before.is_empty() || before.ends_with('/'));
        Some((number.parse::<u32>().ok()?.abs_diff(line), format!("{file}:{number}"))).filter(|_| is_own)
    });
    let mut near: Vec<_> = near.collect();
    near.sort();
    near.dedup();
    near.into_iter().take(SHOWN).map(|(_, pattern)| pattern).collect()
}

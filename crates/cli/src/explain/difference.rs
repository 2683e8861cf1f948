//! `hodo explain A B`: what differs between two recordings, by the code of `hodo diff`.

use std::process::ExitCode;

use hodo_compare::Sides;
use hodo_engine::Needs;
use hodo_findings::{DIVERGENCE, Evidence, LATENCIES, Need, PATHS, Rule, differences, why};
use hodo_model::Table;

use super::{Explained, say_losses, with_selection, write};
use crate::{
    arguments::{Explain, Input, PeriodArguments},
    diff::{Diff, Found, divergence, find},
    failure::{Failure, INTERRUPTED, LOSS},
    input,
    progress::{Begin, Progress},
};

/// Returns the two sides that the command compares: `--baseline` and the input, or two recordings of control flow alone.
pub fn sides(command: &Explain) -> Result<Option<Sides<Vec<Input>>>, Failure> {
    let one = |file: &std::path::Path| vec![Input { files: vec![file.to_owned()], ..command.input.clone() }];
    match (&command.baseline, command.input.files.as_slice()) {
        (Some(baseline), [file]) => Ok(Some(Sides::new(one(baseline), one(file)))),
        (Some(_), _) => Err(Failure::usage("--baseline compares one input with another")),
        (None, [a, b]) => {
            let experiment = input::experiment(&command.input, Needs::ALL)?;
            let are_flows = experiment.with(|traces| traces.flows.len() == 2) && !experiment.contents.events;
            Ok(are_flows.then(|| Sides::new(one(a), one(b))))
        }
        _ => Ok(None),
    }
}

/// Explains the difference.
pub fn run(
    command: &Explain,
    rule: Option<&'static Rule>,
    sides: &Sides<Vec<Input>>,
) -> Result<ExitCode, Failure> {
    let diff = diff(command, sides);
    let begin: Begin<'_> = &|bytes| Progress::new(bytes, command.input.quiet);
    let Some(Found { comparison, latencies, loss }) = find(&diff, sides, begin)? else {
        return Ok(INTERRUPTED.into());
    };
    let mut tables: Vec<(Need, Table)> =
        latencies.into_iter().map(|found| (LATENCIES, found.table)).collect();
    let mut nothing = "no latency of both traces grew beyond a threshold".to_owned();
    if let Some(comparison) = comparison {
        nothing = comparison.verdict();
        let is_equal = comparison.is_empty();
        tables.push((PATHS, comparison.tree()));
        // Of two builds there is no common branch, and a program without `main` has no execution to compare.
        let branch = (!is_equal).then(|| divergence::table(&diff, sides, begin).ok()).flatten();
        tables.extend(branch.map(|table| (DIVERGENCE, table)));
    }
    let evidence = Evidence::new(tables.iter().map(|(need, table)| (*need, table)).collect());
    match rule {
        Some(rule) => write(&why(rule, &evidence, differences), command)?,
        None => {
            let found = with_selection(differences(&evidence), &command.input);
            Explained { found, losses: &loss, subject: "No difference", nothing }.draw(command)?;
        }
    }
    if !command.input.strict || loss.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say_losses(&loss);
    Ok(LOSS.into())
}

/// Returns the command that compares both sides.
fn diff(command: &Explain, sides: &Sides<Vec<Input>>) -> Diff {
    let files = [&sides.a, &sides.b].into_iter().flatten().flat_map(|input| input.files.clone());
    Diff {
        a: Vec::new(),
        b: Vec::new(),
        a_time: None,
        b_time: None,
        function: None,
        nth: None,
        per: None,
        by: "path".to_owned(),
        divergence: false,
        fail_over: None,
        input: Input { files: files.collect(), ..command.input.clone() },
        output: command.output.clone(),
        period: PeriodArguments::default(),
    }
}

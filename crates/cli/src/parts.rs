//! `hodo fold` and `hodo merge`: parts of a trace, each folded by a process of its own.

use std::{fs, io::Write, path::PathBuf, process::ExitCode};

use hodo_analyses::{ANALYSES, Entry, kernel_analyses, periods::Periods};
use hodo_engine::events::{COUNT, Part, PartError, fold_part, merge_parts};
use hodo_trace::{AnyEventAnalysis, Choice, Table, Value};

use crate::{
    arguments::{Fold, Merge},
    events,
    failure::{Failure, INTERRUPTED, LOSS, written},
    output::{self, Destination},
    progress::Progress,
};

/// What the analysis of periods is called.
const PERIODS: &str = "periods";

/// `hodo fold`.
pub fn fold(command: &Fold) -> Result<ExitCode, Failure> {
    if !events::contents(&command.input).events {
        return Err(events::none_in(&command.input, "fold is about software events, and the input has none"));
    }
    let input = &command.input;
    if !(input.tid.is_empty() && input.pid.is_empty()) {
        return Err(Failure::usage("--tid and --pid choose from the whole: give them to `hodo merge`"));
    }
    events::refuse_flow(input)?;
    let traces = events::open(input)?;
    events::tell_notes(traces, input);
    let reading = events::reading(input, traces, events::PART_CHUNKS)?;
    events::refuse_streams(&reading)?;
    let asks_for = |wanted: &str| command.analysis.iter().any(|name| name == wanted);
    let count = asks_for(COUNT).then_some((COUNT, None));
    let kernel = kernel_analyses("all").filter(|(entry, _)| asks_for(entry.name) || asks_for("all"));
    let periods = Periods { period: command.period.period()? };
    if asks_for(PERIODS) != periods.period.is_some() {
        return Err(Failure::usage("--analysis periods, --begin EVENT and --end EVENT need each other"));
    }
    periods.period.as_ref().map_or(Ok(()), |period| events::check_period(traces, period))?;
    let periods: Option<(&str, Option<&dyn AnyEventAnalysis>)> =
        asks_for(PERIODS).then_some((PERIODS, Some(&periods)));
    let kernel = kernel.map(|(entry, analysis)| (entry.name, Some(analysis)));
    let analyses: Vec<_> = count.into_iter().chain(kernel).chain(periods).collect();
    let passes = u64::from(asks_for(COUNT)) + u64::from(analyses.len() > usize::from(asks_for(COUNT)));
    let progress = Progress::new(command.part.share(traces.bytes()) * passes, input.quiet);
    let part = fold_part(traces, &analyses, command.part, &reading, |done| progress.set(done));
    progress.finish();
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let mut out = Destination::open(Some(&command.output))?;
    written(out.write_all(&part.to_bytes()))?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// `hodo merge`.
pub fn merge(command: &Merge) -> Result<ExitCode, Failure> {
    let read = |path: &PathBuf| {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = fs::read(path).map_err(|error| Failure::unreadable(failed(&error)))?;
        Part::from_bytes(&bytes).map_err(|error| Failure::unreadable(failed(&error)))
    };
    let parts = command.parts.iter().map(read).collect::<Result<Vec<Part>, Failure>>()?;
    let names = parts.first().map_or(&[][..], Part::analyses);
    let known = names.iter().filter_map(|name| ANALYSES.iter().find(|entry| entry.name == name));
    let entries: Vec<&Entry> = known.collect();
    let mut analyses: Vec<_> =
        names.iter().flat_map(|name| kernel_analyses(name)).map(|(_, analysis)| analysis).collect();
    let periods = Periods::default();
    analyses.extend(names.iter().any(|name| name == PERIODS).then_some(&periods as &dyn AnyEventAnalysis));
    let choice = Choice {
        view: String::new(),
        tids: command.tid.clone(),
        pids: command.pid.clone(),
        comms: command.comm.clone(),
        cpus: command.cpu_list.concat(),
    };
    let choice = events::choice(&entries, command.by.as_deref(), choice)?;
    if analyses.iter().any(|analysis| analysis.of_choice(&choice).is_some()) {
        return Err(Failure::usage("parts do not hold what this view needs: see it with `hodo report`"));
    }
    let tables = merge_parts(parts, &analyses, &choice).map_err(|error| match error {
        PartError::Differs(place, what) => Failure::usage(format!(
            "{} and {} are no parts of one whole: {what} differs",
            command.parts[0].display(),
            command.parts[place].display()
        )),
        error => Failure::usage(error),
    })?;
    let lossless = tables.iter().all(is_lossless);
    output::draw_all(tables, &command.output)?;
    Ok(if command.strict && !lossless { LOSS.into() } else { ExitCode::SUCCESS })
}

fn is_lossless(table: &Table) -> bool {
    let lost = |name: &str| {
        table.summary.iter().any(|(known, value)| *known == name && !matches!(value, Value::Integer(0)))
    };
    table.loss.is_empty() && !lost("events_lost") && !lost("packets_lost")
}

//! `hodo report`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use hodo_analyses::{
    ANALYSES, Kind,
    blocks::Blocks,
    profile::{self, Every, Functions, Profile},
};
use hodo_engine::{ChunkSize, Experiment, Reading};
use hodo_trace::Table;

use crate::{
    arguments::Report,
    events,
    failure::{Failure, written},
    input, live, output,
};

/// Runs the command.
pub fn run(command: &Report) -> Result<ExitCode, Failure> {
    let Some(kind) = command.kind.as_deref().filter(|_| !command.list) else {
        let lines = ANALYSES.iter().map(|analysis| format!("{:10} {}\n", analysis.name, analysis.help));
        written(io::stdout().write_all(lines.collect::<String>().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    };
    let analysis =
        ANALYSES.iter().find(|analysis| analysis.name == kind).expect("the parser knows the names");
    if let Some(address) = live::address(&command.input)? {
        return live::report(command, &address);
    }
    if command.refresh.is_some() {
        return Err(Failure::usage(
            "--refresh is for sessions that are being recorded: net://HOST/host/NAME/SESSION",
        ));
    }
    if matches!(analysis.kind, Kind::EventCount | Kind::Kernel { .. } | Kind::All | Kind::Periods { .. })
        || events::are_in(&command.input)
    {
        return events::report(command, analysis);
    }
    command.filter.refuse()?;
    if command.by.is_some() || !command.comm.is_empty() {
        return Err(Failure::usage("--by and --comm are for analyses of kernel events"));
    }
    if command.every.is_some() && !matches!(analysis.kind, Kind::Profile(_)) {
        return Err(Failure::usage(
            "--every takes samples of functions and trees; lines and blocks are counted",
        ));
    }
    input::open(&command.input, |experiment| {
        let numbered = matches!(command.every, Some(Every::Instructions(_)));
        let table =
            input::read(&command.input, experiment, ChunkSize::Shares, numbered, |reading, go_on| {
                make(command, analysis.kind, experiment, reading, go_on)
            })?;
        let Some(table) = table else { return Ok(input::interrupted()) };
        let code = input::exit_code(&command.input, table.loss.is_empty());
        output::draw(table, &command.output)?;
        Ok(code)
    })
}

fn make(
    command: &Report,
    kind: Kind,
    experiment: &Experiment<'_>,
    reading: Reading<'_>,
    go_on: &mut (dyn FnMut(u64) -> bool + Send),
) -> Table {
    match kind {
        // Samples are taken of trees.
        Kind::Profile(profile::Report::Functions) if command.every.is_none() => {
            let functions = Functions { names: &experiment.modules };
            hodo_engine::profile(experiment, &functions, reading, go_on)
        }
        Kind::Profile(report) => {
            let profile = Profile { report, every: command.every, names: &experiment.modules };
            hodo_engine::profile(experiment, &profile, reading, go_on)
        }
        Kind::Blocks(report) => {
            let blocks = Blocks { report, sources: &experiment.modules };
            hodo_engine::profile(experiment, &blocks, reading, go_on)
        }
        Kind::EventCount | Kind::Kernel { .. } | Kind::All | Kind::Periods { .. } => {
            unreachable!("software events are read elsewhere")
        }
    }
}

//! `hodo report`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use hodo_analyses::{ANALYSES, Kind, blocks::Blocks, profile::Profile};
use hodo_engine::Files;

use crate::{
    arguments::Report,
    failure::{Failure, INTERRUPTED, written},
    input, output,
    progress::Progress,
};

/// Bytes of trace in a chunk.
const CHUNK: u64 = 1 << 20;

/// Runs the command.
pub fn run(command: &Report) -> Result<ExitCode, Failure> {
    let Some(kind) = command.kind.as_deref().filter(|_| !command.list) else {
        let lines = ANALYSES.iter().map(|analysis| format!("{:10} {}\n", analysis.name, analysis.help));
        written(io::stdout().write_all(lines.collect::<String>().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    };
    let analysis =
        ANALYSES.iter().find(|analysis| analysis.name == kind).expect("the parser knows the names");
    let files = Files::default();
    let source = input::source(&command.input);
    let experiment = input::open(&files, &source, &command.input)?;
    let reading = input::reading(&command.input, &experiment, CHUNK)?;
    let total = experiment.tracks.iter().map(|track| track.bytes()).sum();
    let progress = Progress::new(total, command.input.quiet);
    let go_on = |done| progress.set(done);
    let table = match analysis.kind {
        Kind::Profile(report) => {
            let profile = Profile { report, every: None, names: &experiment.modules };
            hodo_engine::profile(&experiment, &profile, reading, go_on)
        }
        Kind::Blocks(report) => {
            let blocks = Blocks { report, sources: &experiment.modules };
            hodo_engine::profile(&experiment, &blocks, reading, go_on)
        }
    };
    progress.finish();
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let code = input::exit_code(&command.input, table.loss.is_empty());
    output::draw(table, &command.output)?;
    Ok(code)
}

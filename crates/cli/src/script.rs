//! `hodo script`.

use std::process::ExitCode;

use hodo_engine::{
    Files,
    script::{self, CallFormat},
};

use crate::{
    arguments::Script,
    failure::{Failure, INTERRUPTED, written},
    input,
    output::Destination,
    progress::Progress,
};

/// Bytes of trace in a chunk; a byte of trace may become hundreds of bytes of text.
const CHUNK: u64 = 1 << 14;

/// Runs the command.
pub fn run(command: &Script) -> Result<ExitCode, Failure> {
    let json = command.output.format == "jsonl";
    if (json && (command.packets || command.insns))
        || !["text", "jsonl"].contains(&command.output.format.as_str())
    {
        return Err(Failure::usage("a script is text; calls can be jsonl too"));
    }
    if command.packets && command.input.time.is_some() {
        return Err(Failure::usage("--time chooses what was executed; packets are shown whole"));
    }
    let files = Files::default();
    let source = input::source(&command.input);
    let experiment = input::open(&files, &source, &command.input)?;
    let reading = input::reading(&command.input, &experiment, CHUNK)?;
    let total = experiment.tracks.iter().map(|track| track.bytes()).sum();
    let progress = Progress::new(total, command.input.quiet);
    let mut out = Destination::open(command.output.output.as_deref())?;
    let limit = command.output.limit;
    let go_on = |done| progress.set(done);
    let outcome = if command.packets {
        script::packets(&experiment, reading, limit, &mut out, go_on)
    } else if command.insns {
        script::instructions(&experiment, &command.fields, reading, limit, &mut out, go_on)
    } else {
        let format = if json { CallFormat::JsonLines } else { CallFormat::Text };
        script::calls(&experiment, format, reading, limit, &mut out, go_on)
    };
    progress.finish();
    written(outcome.written)?;
    if progress.is_interrupted() {
        // What was written to a file is not whole, and goes with `out`.
        return Ok(ExitCode::from(INTERRUPTED));
    }
    out.finish()?;
    let code = input::exit_code(&command.input, outcome.losses.is_empty());
    input::tell(outcome.losses);
    Ok(code)
}

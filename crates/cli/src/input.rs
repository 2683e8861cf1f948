//! Opens what the command line names.

use std::thread;

use hodo_engine::{Experiment, Files, Losses, Options, RawInput, Reading};
use hodo_intel_pt::Config;

use crate::{
    arguments::{Input, size},
    failure::Failure,
    window,
};

/// What to open.
pub fn source(input: &Input) -> hodo_engine::Input {
    match &input.pt {
        None => hodo_engine::Input::File(input.file.clone()),
        Some(trace) => hodo_engine::Input::Raw(RawInput {
            trace: trace.clone(),
            code: input.code.clone(),
            elf: input.elf.clone(),
            config: Config {
                cpu: input.cpu,
                mtc_frequency: input.mtc_freq,
                tsc_ctc_ratio: input.cpuid_0x15,
                max_nonturbo_ratio: input.nom_freq,
                ..Config::default()
            },
        }),
    }
}

/// Opens it.
pub fn open<'f>(
    files: &'f Files,
    source: &'f hodo_engine::Input,
    input: &Input,
) -> Result<Experiment<'f>, Failure> {
    let options = Options { symfs: input.symfs.clone(), tids: input.tid.clone(), pids: input.pid.clone() };
    Ok(Experiment::open(files, source, &options)?)
}

/// How to read it; chunks of `chunk_size` bytes unless the command line says otherwise.
pub fn reading(input: &Input, experiment: &Experiment<'_>, chunk_size: u64) -> Result<Reading, Failure> {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let chunk_size = input.chunk_size.as_deref().map_or(Ok(chunk_size), size)?;
    let window = input.time.as_deref().map(|text| window::parse(text, experiment)).transpose()?;
    Ok(Reading { threads: input.jobs.unwrap_or(cores).max(1), chunk_size, window })
}

/// The exit code of a reading that lost something.
pub fn exit_code(input: &Input, losses_are_empty: bool) -> std::process::ExitCode {
    match input.strict && !losses_are_empty {
        true => crate::failure::LOSS.into(),
        false => std::process::ExitCode::SUCCESS,
    }
}

/// What is missing, on standard error, for outputs that have no place for it.
pub fn tell(losses: Losses) {
    for loss in losses.into_list() {
        let stream = if loss.stream.is_empty() { String::new() } else { format!("{}: ", loss.stream) };
        eprintln!("hodo: lost: {stream}{} ({}, {} times)", loss.detail, loss.cause.name(), loss.count);
    }
}

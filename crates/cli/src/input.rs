//! Opens what the command line names.

use std::thread;

use hodo_engine::{Experiment, Files, Losses, Options, RawInput, Reading};
use hodo_intel_pt::Config;

use crate::{
    arguments::{Input, size},
    failure::Failure,
    window,
};

/// More chunks than this makes cost more memory than they are worth.
const SMALLEST_CHUNK: u64 = 1 << 10;
/// More threads than this the system may refuse to start.
const MOST_THREADS: usize = 512;

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
    let of_raw = !input.code.is_empty()
        || !input.elf.is_empty()
        || input.cpu.is_some()
        || input.mtc_freq.is_some()
        || input.nom_freq.is_some()
        || input.cpuid_0x15.is_some();
    if of_raw && input.pt.is_none() {
        let help = "--code, --elf, --cpu, --mtc-freq, --nom-freq and --cpuid-0x15 describe a raw buffer; name it with --pt FILE instead of a recording";
        return Err(Failure::usage(help));
    }
    let options = Options { symfs: input.symfs.clone(), tids: input.tid.clone(), pids: input.pid.clone() };
    Ok(Experiment::open(files, source, &options)?)
}

/// How to read it; chunks of `chunk_size` bytes unless the command line says otherwise.
pub fn reading(input: &Input, experiment: &Experiment<'_>, chunk_size: u64) -> Result<Reading, Failure> {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let chunk_size = input.chunk_size.as_deref().map_or(Ok(chunk_size), size)?.max(SMALLEST_CHUNK);
    let window = input.time.as_deref().map(|text| window::parse(text, experiment)).transpose()?;
    Ok(Reading { threads: input.jobs.unwrap_or(cores).clamp(1, MOST_THREADS), chunk_size, window })
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
        let stream = if loss.stream.is_empty() { String::new() } else { format!(", {}", loss.stream) };
        eprintln!("hodo: lost: {} × {}{stream}: {}", loss.count, loss.cause.name(), loss.detail);
    }
}

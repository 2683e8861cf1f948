//! Opens what the command line names, and reads it.

use std::{env, path::PathBuf, process::ExitCode, thread};

use hodo_engine::{ChunkSize, Experiment, Files, KernelFiles, Losses, NthCalls, Options, Places, Reading};

use crate::{
    arguments::{Input, size},
    failure::{Failure, INTERRUPTED, LOSS},
    function,
    progress::Progress,
    window,
};

/// More chunks than this makes cost more memory than they are worth.
pub const SMALLEST_CHUNK: u64 = 1 << 10;
/// More threads than this the system may refuse to start.
const MOST_THREADS: usize = 512;

/// How many threads are to work: as many as were asked for, or as there are cores.
pub fn threads(input: &Input) -> usize {
    let cores = || thread::available_parallelism().map_or(1, std::num::NonZero::get);
    input.jobs.unwrap_or_else(cores).clamp(1, MOST_THREADS)
}

/// Opens the input and hands it to `work`.
pub fn open(
    input: &Input,
    work: impl FnOnce(&Experiment<'_>) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    input.raw.check(input.pt.is_some(), &input.guests)?;
    if input.clock_frequency.is_some() {
        return Err(Failure::usage("--clock-frequency is about CTF traces, and this input is none"));
    }
    let places = Places { symfs: input.symfs.clone(), build_ids: build_ids(input), beside: None };
    let kernel = KernelFiles {
        kallsyms: input.kallsyms.clone(),
        kcore: input.kcore.clone(),
        vmlinux: input.vmlinux.clone(),
    };
    let guests = input.guests.files();
    let options = Options { places, kernel, guests, tids: input.tid.clone(), pids: input.pid.clone() };
    let (files, source) = (Files::default(), source(input));
    let experiment = Experiment::open(&files, &source, &options)?;
    if !(input.tid.is_empty() && input.pid.is_empty() || experiment.has_any()) {
        return Err(nobody(&experiment));
    }
    let code = work(&experiment)?;
    if let Some(reason) = experiment.nothing_decoded().filter(|_| code != ExitCode::from(INTERRUPTED)) {
        eprintln!("hodo: no instruction was decoded: {reason}");
    }
    Ok(code)
}

/// What to open.
fn source(input: &Input) -> hodo_engine::Input {
    match &input.pt {
        None => hodo_engine::Input::File(input.file.clone()),
        Some(trace) => hodo_engine::Input::Raw(input.raw.input(trace.clone(), &input.guests)),
    }
}

/// perf's cache of files, as perf finds it.
fn build_ids(input: &Input) -> Option<PathBuf> {
    let named = input.buildid_dir.clone().or_else(|| env::var_os("PERF_BUILDID_DIR").map(PathBuf::from));
    named.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".debug")))
}

/// No thread is left of what the command line asks for.
fn nobody(experiment: &Experiment<'_>) -> Failure {
    const SHOWN: usize = 20;
    let present = &experiment.present;
    let threads = present.iter().take(SHOWN).map(|thread| format!(" {}/{}", thread.pid, thread.tid));
    let more = if present.len() > SHOWN { " …" } else { "" };
    Failure::usage(format!(
        "--tid, --pid: no such thread has trace; the recording has (pid/tid){}{more}",
        threads.collect::<String>()
    ))
}

/// Reads an experiment in chunks of `chunk_size`, which is told the number of threads, unless the command line says
/// otherwise. `work` is handed how, and what tells it whether to go on; `None` if somebody interrupted it.
/// `numbered` where it needs the numbers of instructions.
pub fn read<R>(
    input: &Input,
    experiment: &Experiment<'_>,
    chunk_size: impl Fn(usize) -> ChunkSize,
    numbered: bool,
    work: impl FnOnce(Reading<'_>, &mut (dyn FnMut(u64) -> bool + Send)) -> R,
) -> Result<Option<R>, Failure> {
    let window = input.time.as_deref().map(|text| window::parse(text, experiment)).transpose()?;
    let calls = input.call.as_deref().map(|text| function::calls(text, experiment)).transpose()?;
    let threads = threads(input);
    let bytes: u64 = experiment.tracks.iter().map(|track| track.bytes()).sum();
    let chunk_size = match &input.chunk_size {
        Some(text) => ChunkSize::Bytes(size(text)?.max(SMALLEST_CHUNK)),
        None => chunk_size(threads),
    };
    let mut reading = Reading { threads, chunk_size, window, numbers: None, spans: None, memo: true };
    let rounds = 1 + u64::from(calls.is_some()) + u64::from(numbered || calls.is_some());
    let progress = Progress::new(bytes * rounds, input.quiet);
    let mut before = 0;
    let spans = calls.map(|calls| {
        let spans = hodo_engine::find_calls(experiment, &calls, reading, |done| progress.set(done));
        before += bytes;
        (calls, spans)
    });
    if let Some((calls, spans)) = &spans {
        if spans.is_empty() && !progress.is_interrupted() {
            progress.finish();
            return Err(never_called(calls, experiment));
        }
        reading.spans = Some(spans);
    }
    let numbers = (numbered || spans.is_some()).then(|| {
        let numbers = hodo_engine::numbers(experiment, reading, |done| progress.set(before + done));
        before += bytes;
        numbers
    });
    reading.numbers = numbers.as_ref();
    let result = match progress.is_interrupted() {
        true => None,
        false => Some(work(reading, &mut |done| progress.set(before + done))),
    };
    progress.finish();
    Ok(result.filter(|_| !progress.is_interrupted()))
}

fn never_called(calls: &NthCalls, experiment: &Experiment<'_>) -> Failure {
    let name = hodo_trace::Names::names(&experiment.modules, calls.function).0;
    let (from, to) = (calls.numbers.start(), calls.numbers.end());
    Failure::usage(match (*from, *to) {
        (1, u64::MAX) => format!("--call: {name} is never called in what was recorded"),
        _ => {
            format!("--call: no thread calls {name} {from} times; leave out # to see how often it is called")
        }
    })
}

/// The exit code of a reading that somebody interrupted.
pub fn interrupted() -> ExitCode {
    INTERRUPTED.into()
}

/// The exit code of a reading that lost something.
pub fn exit_code(input: &Input, losses_are_empty: bool) -> ExitCode {
    match input.strict && !losses_are_empty {
        true => LOSS.into(),
        false => ExitCode::SUCCESS,
    }
}

/// What is missing, on standard error, for outputs that have no place for it.
pub fn tell(losses: Losses) {
    for loss in losses.into_list() {
        let stream = if loss.stream.is_empty() { String::new() } else { format!(", {}", loss.stream) };
        eprintln!("hodo: lost: {} × {}{stream}: {}", loss.count, loss.cause.name(), loss.detail);
    }
}

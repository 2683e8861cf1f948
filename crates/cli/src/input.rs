//! Opens and reads the inputs that the command line names.

use std::{env, path::PathBuf, process::ExitCode, thread};

use hodo_clock::Nanos;
use hodo_engine::{
    AnyReport, Chunks, Executions, Experiment, FileSearchPaths, KernelFiles, Losses, Needs, Options, Reading,
    Request, TimeSpan, Times, Trace, Traces, Window, events::note_lines, nanos,
};
use hodo_model::{Loss, Parameters};

use crate::{
    arguments::Input,
    failure::{Failure, INTERRUPTED, LOSS, UNREADABLE},
    function,
    progress::{Begin, Searching},
    quantities::size,
    selection::Selection,
    timeline,
};

/// Smaller chunks would cost more memory than they save time.
pub const SMALLEST_CHUNK: u64 = 1 << 10;
/// The system may refuse to start more threads than this.
const MOST_THREADS: usize = 512;

/// Returns the number of threads: as requested, or one per core.
pub fn threads(input: &Input) -> usize {
    let cores = || thread::available_parallelism().map_or(1, std::num::NonZero::get);
    input.jobs.unwrap_or_else(cores).clamp(1, MOST_THREADS)
}

/// Opens the inputs that `needs` requires, on one timeline. Reports unreadable ones of several inputs on standard
/// error.
pub fn experiment(input: &Input, needs: Needs) -> Result<Experiment, Failure> {
    let (files, synchronised) = timeline::files(input)?;
    // Events beside control flow may define the timeline, even for a command that reads control flow only.
    let events = needs.events || (needs.flow && files.len() > 1);
    let mut experiment = opened(input, files, Needs { events, ..needs })?;
    timeline::place(&mut experiment, input, synchronised)?;
    if !input.quiet && needs.events {
        timeline::report_separate_clocks(&experiment);
    }
    experiment.with(|traces| check(input, traces))?;
    Ok(experiment)
}

/// Checks that every input exists and has a known format, and opens none.
pub fn recognised(input: &Input) -> Result<(), Failure> {
    let (files, _) = timeline::files(input)?;
    let needs = Needs { flow: false, sideband: false, events: false };
    let threads = 1;
    let experiment = Experiment::open(sources(input, files), &Options::default(), needs, threads, |_, _| {})?;
    experiment.problems.first().map_or(Ok(()), |problem| Err(Failure::unreadable(problem)))
}

/// Opens the inputs, each on its own timeline.
pub fn unplaced(input: &Input, needs: Needs) -> Result<Experiment, Failure> {
    let (files, synchronised) = timeline::files(input)?;
    if synchronised.is_some() {
        return Err(Failure::usage("this experiment is already synchronised; name its traces instead"));
    }
    opened(input, files, needs)
}

fn opened(input: &Input, files: Vec<PathBuf>, needs: Needs) -> Result<Experiment, Failure> {
    input.raw.check(input.buffer().is_some(), &input.guests)?;
    let places = FileSearchPaths { symfs: input.symfs.clone(), build_ids: build_ids(input), beside: None };
    let kernel = KernelFiles {
        kallsyms: input.kallsyms.clone(),
        kcore: input.kcore.clone(),
        vmlinux: input.vmlinux.clone(),
    };
    let options = Options {
        places,
        kernel,
        guests: input.guests.files(),
        tids: input.tid.clone(),
        pids: input.pid.clone(),
        comms: input.comm.clone(),
        without_recorder: input.without_recorder,
        clock_frequency: input.clock_frequency,
    };
    let searching = Searching::new(input.quiet);
    let search = |done, total| searching.set(done, total);
    let experiment = Experiment::open(sources(input, files), &options, needs, threads(input), search)?;
    for problem in &experiment.problems {
        message!("{problem}");
    }
    if !input.quiet {
        let lines = experiment.with(|traces| note_lines(traces.event_notes()));
        lines.iter().for_each(|line| message!("{line}"));
    }
    Ok(experiment)
}

/// Rejects options that do not apply to the traces, and reports the time zone of times.
fn check(input: &Input, traces: &Traces<'_>) -> Result<(), Failure> {
    if input.clock_frequency.is_some() && !traces.implies_clocks() {
        return Err(Failure::usage(
            "--clock-frequency is for traces that describe no clock, but this one records its clock's frequency",
        ));
    }
    if let Some((_, Some(zone))) = resolved(input, traces)?
        && !input.quiet
    {
        message!("{zone}");
    }
    let selects_threads = Selection::new(input, None)?.has_threads();
    match traces.flows.first().filter(|_| selects_threads && traces.events.is_empty()) {
        Some(first) if traces.flows.iter().all(|flow| !flow.has_any()) => Err(no_such_thread(first)),
        _ => Ok(()),
    }
}

/// Opens the only input of control flow and passes it to `work`; with `sideband`, also accepts an input without
/// control flow.
pub fn open(
    input: &Input,
    sideband: bool,
    work: impl FnOnce(&Trace<'_>, Option<TimeSpan>) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let experiment = experiment(input, Needs { flow: true, sideband, events: false })?;
    if !experiment.contents.flow {
        let file = input.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        return Err(Failure::usage(format!("{file} has no control flow; see `hodo script --events`")));
    }
    experiment.with(|traces| match traces.flows.as_slice() {
        [flow] => {
            let code = work(flow, span(input, traces)?)?;
            if code != ExitCode::from(INTERRUPTED) {
                report_nothing_decoded(traces);
            }
            Ok(code)
        }
        _ => Err(Failure::usage("this command reads one recording of control flow; name only one")),
    })
}

/// Reports control flow from which no instruction was decoded, as the last line.
pub fn report_nothing_decoded(traces: &Traces<'_>) {
    for reason in traces.flows.iter().filter_map(|flow| flow.nothing_decoded()) {
        message!("no instruction was decoded: {reason}");
    }
}

/// Returns the inputs to open.
fn sources(input: &Input, files: Vec<PathBuf>) -> Vec<hodo_engine::Input> {
    let raw = match (&input.pt, &input.etrace, &input.etm) {
        (Some(trace), _, _) => input.raw.input(trace.clone(), &input.guests),
        (None, Some(trace), _) => input.raw.riscv_input(trace.clone(), &input.guests),
        (None, None, Some(trace)) => input.raw.etm_input(trace.clone(), &input.guests),
        (None, None, None) => return files.into_iter().map(hodo_engine::Input::File).collect(),
    };
    vec![hodo_engine::Input::Raw(raw)]
}

/// Returns perf's cache of files, found as perf finds it.
fn build_ids(input: &Input) -> Option<PathBuf> {
    let named = input.buildid_dir.clone().or_else(|| env::var_os("PERF_BUILDID_DIR").map(PathBuf::from));
    named.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".debug")))
}

/// Parses `--time`.
pub fn times(input: &Input) -> Result<Option<TimeSpan>, Failure> {
    let parse =
        |text: &str| TimeSpan::parse(text).map_err(|why| Failure::usage(format!("--time {text}: {why}")));
    input.time.as_deref().map(parse).transpose()
}

/// Resolves `--time` against the traces; also returns its time zone, for people.
fn resolved(input: &Input, traces: &Traces<'_>) -> Result<Option<(TimeSpan, Option<String>)>, Failure> {
    match times(input)? {
        Some(span) if traces.span().is_some() => Ok(Some(traces.resolve(&span)?)),
        // No times are requested, or no open trace has times.
        _ => Ok(None),
    }
}

/// Resolves `--time` against the traces.
pub fn span(input: &Input, traces: &Traces<'_>) -> Result<Option<TimeSpan>, Failure> {
    match resolved(input, traces)? {
        Some((span, _)) => Ok(Some(span)),
        None => times(input),
    }
}

/// Parses `--chunk-size`.
pub fn chunks(input: &Input) -> Result<Chunks, Failure> {
    let Some(text) = input.chunk_size.as_deref() else { return Ok(Chunks::Default) };
    match nanos(text).filter(|&nanos| nanos > 0 && text.ends_with('s')) {
        Some(span) => Ok(Chunks::Time(Nanos(span))),
        None if text == "stream" => Ok(Chunks::Streams),
        None => Ok(Chunks::Bytes(size(text)?.max(SMALLEST_CHUNK))),
    }
}

/// Returns a request for reports, without the parts that depend on the inputs.
pub fn unopened(
    input: &Input,
    filter: Option<&crate::events::Filter>,
    reports: Vec<&'static AnyReport>,
    parameters: Parameters,
) -> Result<Request, Failure> {
    let Selection { events, condition, time, .. } = Selection::new(input, filter)?;
    Ok(Request {
        reports,
        views: Vec::new(),
        parameters,
        events,
        condition,
        times: Times { span: time, calls: None },
        threads: threads(input),
        chunks: chunks(input)?,
    })
}

/// Returns a request for reports.
pub fn request(
    input: &Input,
    filter: Option<&crate::events::Filter>,
    reports: Vec<&'static AnyReport>,
    parameters: Parameters,
    experiment: &Experiment,
) -> Result<Request, Failure> {
    let mut request = unopened(input, filter, reports, parameters)?;
    let calls = |text: &str| {
        experiment.with(|traces| match traces.flows.as_slice() {
            [flow] => function::calls(text, flow),
            _ => Err(Failure::usage("--call needs a single recording of control flow")),
        })
    };
    request.times.calls = input.call.as_deref().map(calls).transpose()?;
    Ok(request)
}

/// Returns the failure for a selection that matches no thread.
fn no_such_thread(trace: &Trace<'_>) -> Failure {
    const SHOWN: usize = 20;
    let present = &trace.present;
    let threads = present.iter().take(SHOWN).map(|thread| format!(" {}/{}", thread.pid, thread.tid));
    let more = if present.len() > SHOWN { " …" } else { "" };
    Failure::usage(format!(
        "--tid, --pid, --comm: no matching thread was traced; the recording has (pid/tid){}{more}",
        threads.collect::<String>()
    ))
}

/// Reads a trace; returns `None` if interrupted. `usual` are the chunks if the command line gives no size. `work` gets the
/// reading, and a callback that takes the bytes done and returns whether to continue.
pub fn read<R>(
    input: &Input,
    trace: &Trace<'_>,
    usual: Chunks,
    window: Option<TimeSpan>,
    begin: Begin<'_>,
    work: impl FnOnce(Reading<'_>, hodo_engine::Progress<'_>) -> R,
) -> Result<Option<R>, Failure> {
    let window = window.map_or(Ok(Window::ALL), |span| span.of_flow(trace))?;
    let calls = input.call.as_deref().map(|text| function::calls(text, trace)).transpose()?;
    let chunks = match chunks(input)? {
        Chunks::Default => usual,
        chunks => chunks,
    };
    let reading = Reading { window, ..Reading::new(threads(input), chunks) };
    let executions = Executions { calls: calls.as_ref(), ..Executions::default() };
    let progress = begin(trace.bytes() * (1 + executions.passes()));
    let result = trace.read(reading, executions, &mut |done| progress.set(done), work);
    progress.finish();
    Ok(Some(result?).filter(|_| !progress.is_interrupted()))
}

/// Returns the exit code after an interrupt.
pub fn interrupted() -> ExitCode {
    INTERRUPTED.into()
}

/// Returns the exit code after reading, with or without losses.
pub fn exit_code(input: &Input, lossless: bool) -> ExitCode {
    if input.strict && !lossless { LOSS.into() } else { ExitCode::SUCCESS }
}

/// Returns the exit code for an experiment, some inputs of which may be unreadable. Reports on standard error if
/// nothing was readable.
pub fn exit_code_of(input: &Input, experiment: &Experiment, lossless: bool) -> ExitCode {
    let nothing = experiment.with(|traces| {
        let has_empty_trace = traces.events.iter().any(|trace| trace.streams.is_empty());
        (!lossless || has_empty_trace) && traces.flows.is_empty() && traces.is_unreadable()
    });
    if nothing {
        let names: Vec<String> = input.files.iter().map(|file| file.display().to_string()).collect();
        message!("{}: none of its events can be read", names.join(", "));
    }
    if nothing || !experiment.problems.is_empty() { UNREADABLE.into() } else { exit_code(input, lossless) }
}

/// Reports losses on standard error, for outputs that can't contain them.
pub fn report_losses(losses: Losses) {
    report_loss_list(&losses.into_list());
}

/// As [`report_losses`].
pub fn report_loss_list(losses: &[Loss]) {
    for loss in losses {
        let stream = if loss.stream.is_empty() { String::new() } else { format!(", {}", loss.stream) };
        message!("lost: {} × {}{stream}: {}", loss.count, loss.cause.name(), loss.detail);
    }
}

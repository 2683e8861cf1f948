//! Records with the native recorder, which translates the program.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::BufWriter,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use hodo_bytes::Map;
use hodo_emulator::machine::trigger::{self as emulated, Latency};
use hodo_model::vocabulary::system_calls::Machine;
use hodo_native::{Condition, Control, Limit, Options, Select, SelectThread, Watched};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::SIGUSR2,
    iterator::{SignalsInfo, exfiltrator::WithOrigin},
};

use crate::{Engine, Error, Notices, Outcome, Request, Trigger, emulate, filter, signals, trigger};

/// How often the time is recorded, in exits of superblocks.
const TIME_EVERY: u32 = 4096;
/// The same if executions of functions are timed, or time counts instructions.
const TIME_EVERY_IF_PRECISE: u32 = 64;
/// The signal that asks for a snapshot.
const SNAPSHOT: i32 = SIGUSR2;
/// Interval between looks at signals and at the command.
const INTERVAL: Duration = Duration::from_millis(20);
/// No message before this time, so that processes that end soon cause none.
const QUIET_TIME: Duration = Duration::from_millis(300);

pub(crate) fn record(request: &Request, notices: &Notices<'_>) -> Result<Outcome, Error> {
    let unsupported = [(!request.events.is_empty(), "-e"), (request.overflow.is_some(), "--overflow")];
    if let Some((_, option)) = unsupported.into_iter().find(|(is_given, _)| *is_given) {
        return Err(Error::Missing(format!(
            "{option} is about packets of Intel PT, which --engine perf and --engine emulate record"
        )));
    }
    let control = Arc::new(Control::default());
    let options = options(request, control.clone())?;
    let command = if request.pid.is_none() { Some(command(request)?) } else { None };
    // If the recorder is killed, this file can be read as far as it was written.
    let partial = emulate::partial(&request.output);
    let file = File::create(&partial).map_err(Error::file(&request.output))?;
    let out = BufWriter::with_capacity(1 << 20, file);
    let mut incoming = SignalsInfo::<WithOrigin>::new([signals::ending(), vec![SNAPSHOT]].concat())
        .map_err(Error::file(&partial))?;
    let recorded = thread::scope(|scope| {
        let recorder = scope.spawn(|| match (request.pid, command) {
            (Some(process), _) => hodo_native::attach(process, out, options),
            (None, command) => {
                hodo_native::record(command.expect("without a process there is a command"), out, options)
            }
        });
        watch(&recorder, &mut incoming, &control, request, notices);
        pass_on(&control, notices);
        recorder.join()
    });
    let outcome = match recorded {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => {
            _ = fs::remove_file(&partial);
            return Err(failed(request, error));
        }
        Err(panic) => std::panic::resume_unwind(panic),
    };
    fs::rename(&partial, &request.output).map_err(Error::file(&request.output))?;
    let bytes = match request.deterministic {
        true => count_time(&request.output)?,
        false => fs::metadata(&request.output).map_err(Error::file(&request.output))?.len(),
    };
    let mut warnings = outcome.warnings;
    if outcome.killed > 0 {
        warnings.push(match outcome.killed {
            1 => "one thread was killed: what it ran last is missing".to_owned(),
            killed => format!("{killed} threads were killed: what each ran last is missing"),
        });
    }
    if outcome.threads == 0 && request.is_partial() {
        warnings.push(
            "the recording is empty: no thread ran that is selected by --threads and --after".to_owned(),
        );
    }
    Ok(Outcome {
        engine: Engine::Native,
        status: outcome.status,
        instructions: None,
        threads: outcome.is_complete.then_some(outcome.threads as usize),
        snapshots: (!request.triggers.is_empty()).then_some(outcome.snapshots as usize),
        bytes,
        beside: Vec::new(),
        warnings,
    })
}

/// Gives a finished recording times that count instructions. Returns its length in bytes.
fn count_time(recording: &Path) -> Result<u64, Error> {
    let recorded = Map::open(recording).map_err(Error::file(recording))?;
    emulate::write(recording, |out| hodo_native::count_time(&recorded, out).map(drop))
}

fn options(request: &Request, control: Arc<Control>) -> Result<Options, Error> {
    let default = Options::default();
    let size = request.snapshot.map(|size| size.max(emulate::SMALLEST_SNAPSHOT));
    Ok(Options {
        memory: request.native_memory.unwrap_or(default.memory),
        select: request.filter.as_deref().map_or(Ok(Vec::new()), selected)?,
        threads: request.threads.iter().map(|text| thread(text)).collect(),
        after: request.after,
        facts: serde_json::to_vec(&facts(request)).unwrap_or_default(),
        ring: size,
        conditions: request
            .triggers
            .iter()
            .map(|trigger| condition(trigger, request))
            .collect::<Result<_, Error>>()?,
        time_every: request.time_every.unwrap_or(
            match request.triggers.is_empty() && !request.deterministic {
                true => TIME_EVERY,
                false => TIME_EVERY_IF_PRECISE,
            },
        ),
        duration: request.duration,
        control,
        ..default
    })
}

/// Threads by number or by name.
fn thread(text: &str) -> SelectThread {
    match text.parse() {
        Ok(number) => SelectThread::Number(number),
        Err(_) => SelectThread::Name(text.to_owned()),
    }
}

/// A description of what is selected; empty if all is recorded.
fn selection(request: &Request) -> String {
    let threads = (!request.threads.is_empty()).then(|| format!("threads {}", request.threads.join(", ")));
    let after = request.after.map(|after| format!("after {after:?}"));
    let duration = request.duration.map(|duration| format!("for {duration:?}"));
    let selections: Vec<String> =
        [request.filter.clone(), threads, after, duration].into_iter().flatten().collect();
    selections.join("; ")
}

/// The condition of a trigger.
fn condition(asked: &Trigger, request: &Request) -> Result<Condition, Error> {
    let wrong = |name: &str, why: String| Error::Trigger(trigger::wrong(asked, Some(name), why));
    let function = |path: &Path, offsets: Range<u64>| {
        Watched::Function(Select { file: path.to_string_lossy().into_owned(), offsets })
    };
    let limit = match asked.limit {
        emulated::Limit::Nanoseconds(limit) => Limit::Nanoseconds(limit),
        emulated::Limit::Instructions(limit) => Limit::Instructions(limit),
    };
    let watched = match &asked.latency {
        Latency::Syscall(_) if matches!(limit, Limit::Instructions(_)) => {
            let why = "a system call runs no instructions of the program: give a time, such as 1ms";
            return Err(Error::Trigger(trigger::wrong(asked, None, why.to_owned())));
        }
        Latency::Syscall(name) => {
            let known = Machine::X86_64.all().find(|(_, known)| known == name);
            let (number, _) = known.ok_or_else(|| wrong(name, "there is no such system call".to_owned()))?;
            Watched::SystemCall(number)
        }
        Latency::File { path, range } => function(path, range.clone()),
        // Without a kernel in the recording, a function without a file is one of the program.
        Latency::Kernel(name) => {
            let program =
                program(request).ok_or_else(|| wrong(name, "the program is not found".to_owned()))?;
            let (path, range) = filter::function_of(&program, name).map_err(|why| wrong(name, why))?;
            function(&path, range)
        }
        _ => {
            let why = "the native recorder measures functions and system calls: FUNCTION > TIME, FUNCTION@FILE > TIME, or \
                       latency(syscall:NAME) > TIME";
            return Err(wrong("", why.to_owned()));
        }
    };
    Ok(Condition { text: asked.text.clone(), watched, limit })
}

/// The file of the recorded program.
fn program(request: &Request) -> Option<PathBuf> {
    match (request.pid, request.command.first()) {
        (Some(process), _) => fs::read_link(format!("/proc/{process}/exe")).ok(),
        (None, Some(name)) if name.as_encoded_bytes().contains(&b'/') => Some(name.into()),
        (None, name) => emulate::find_in_path(name?),
    }
}

/// The parts of files that a filter selects.
fn selected(text: &str) -> Result<Vec<Select>, Error> {
    let wrong = |reason: &str| Error::Filter { filter: text.to_owned(), reason: reason.to_owned() };
    let select = |range: hodo_emulator::FilterRange| {
        let file = String::from_utf8(range.file).map_err(|_| wrong("the file's name is not UTF-8"))?;
        if file.is_empty() {
            return Err(wrong("the native recorder needs the file of each part: filter PLACE @ FILE"));
        }
        Ok(Select { file, offsets: range.start..range.start.saturating_add(range.size) })
    };
    filter::parse(text)?.into_iter().map(select).collect()
}

fn facts(request: &Request) -> BTreeMap<&'static str, String> {
    let text = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let words: Vec<_> = request.recorded_by.iter().map(|word| word.to_string_lossy()).collect();
    let processor = text("/proc/cpuinfo");
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    BTreeMap::from([
        ("command line", words.join(" ")),
        ("host", text("/proc/sys/kernel/hostname")),
        ("kernel", text("/proc/sys/kernel/osrelease")),
        ("processor", model.map_or(String::new(), |(_, model)| model.to_owned())),
        ("recorder version", concat!("hodo ", env!("CARGO_PKG_VERSION")).to_owned()),
        ("selection", selection(request)),
    ])
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .collect()
}

fn command(request: &Request) -> Result<Command, Error> {
    let mut command = Command::new(&request.command[0]);
    command.args(&request.command[1..]);
    if let Some(surroundings) = &request.surroundings {
        surroundings.give_to(&mut command)?;
    }
    Ok(command)
}

/// Serves signals until the recorder ends. A key like Ctrl-C reaches the command directly, because the command is in our
/// process group; a signal that a process sends to the recorder is forwarded to the command. Without a command, or after
/// its end, both the key and the signal end the recording.
fn watch<T>(
    recorder: &ScopedJoinHandle<'_, T>,
    incoming: &mut SignalsInfo<WithOrigin>,
    control: &Control,
    request: &Request,
    notices: &Notices<'_>,
) {
    let begun = Instant::now();
    let mut command_ended: Option<Instant> = None;
    let mut silent = true;
    while !recorder.is_finished() {
        pass_on(control, notices);
        let command = Pid::from_raw(control.command.load(Relaxed) as i32);
        let command_runs = request.pid.is_none() && !control.ended.load(Relaxed);
        for origin in incoming.pending() {
            if origin.signal == SNAPSHOT {
                control.snapshot.store(request.snapshot.is_some(), Relaxed);
                continue;
            }
            if !command_runs {
                control.stop.store(true, Relaxed);
                continue;
            }
            let is_from_process = origin.process.is_some_and(|process| process.pid != 0);
            if is_from_process
                && let Some(command) = command
                && let Some(signal) = Signal::from_named_raw(origin.signal)
            {
                // The command may have ended meanwhile.
                _ = kill_process(command, signal);
            }
        }
        if !command_runs && request.pid.is_none() {
            let command_ended = *command_ended.get_or_insert_with(Instant::now);
            if silent && command_ended.elapsed() >= QUIET_TIME {
                silent = false;
                notices.say(
                    "the command has ended; processes that it started go on and will be recorded to the end. Ctrl-C ends the \
                     recording now",
                );
            }
        }
        // A short program should not wait for its recorder.
        thread::sleep(if begun.elapsed() >= QUIET_TIME { INTERVAL } else { INTERVAL / 10 });
    }
}

/// Passes the recorder's messages on.
fn pass_on(control: &Control, notices: &Notices<'_>) {
    if control.begun.load(Relaxed) {
        notices.begin();
    }
    let taken = control.notices.lock().map(|mut notices| std::mem::take(&mut *notices));
    taken.unwrap_or_default().iter().for_each(|text| notices.say(text));
}

fn failed(request: &Request, error: hodo_native::Error) -> Error {
    match error {
        hodo_native::Error::Start(path, error) => {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => "command not found".to_owned(),
                _ => error.to_string(),
            };
            Error::Command { command: path.display().to_string(), reason }
        }
        hodo_native::Error::Output(error) => Error::File { path: request.output.clone(), error },
        error => Error::Missing(error.to_string()),
    }
}

//! An input, opened and ready to be decoded.

use std::{borrow::Cow, collections::BTreeSet, path::Path, sync::Arc};

use hodo_clock::{Nanos, Tsc};
use hodo_code::{AddressSpace, Origin, Program, Unreadable};
use hodo_flow::{Gap, Trouble};
use hodo_formats::{
    coresight::{self, RawUnits},
    error::{Error, ErrorKind},
    raw::{self, BadElf},
    recording::{GuestCode, Recording, SidebandKind, StreamKind, Thread},
};
use hodo_intel_pt::{Config, flow::Guest};
use hodo_model::{Cause, Loss};

use crate::{
    files::Files,
    flow::{
        own_share,
        segments::Decoded,
        stream::{Chunk, Extent, TraceStream},
    },
    input::{Input, OpenError, Options, RawInput, RawUnit, format_error, system_error},
    losses::Losses,
    programs::{modules::Modules, names::Names, process_history::ProcessHistory},
    reading::{Reading, Window},
    traces::cover,
};

/// A recording and the code that it ran.
#[derive(Debug)]
pub struct Trace<'f> {
    /// The name of its input.
    pub name: String,
    /// The index of its input.
    pub input: usize,
    /// The content of the input.
    pub recording: Recording<'f>,
    /// The files that the code was mapped from.
    pub modules: Modules<'f>,
    /// The names of each thread.
    names: Names<'f>,
    /// The selected streams of trace.
    pub streams: Vec<TraceStream<'f>>,
    /// The threads of the streams, by context. If threads are selected by name, a thread has two: one while it has such a
    /// name, and one while it does not.
    pub threads: Vec<Thread>,
    /// All threads of the recording, selected or not, sorted.
    pub present: Vec<Thread>,
    /// Whether each thread runs on one stream only.
    pub(crate) threads_stay: bool,
    /// Whether each of `threads` is selected; a CPU's stream shows others too.
    wanted: Vec<bool>,
    /// The guests with known code.
    pub(crate) guests: Vec<Guest>,
    pub(crate) spaces: Vec<AddressSpace<'f>>,
    /// Summary of what was decoded so far.
    pub(crate) decoded: Decoded,
    /// Whether to leave out what a recorded machine does for the recorder.
    pub(crate) without_recorder: bool,
}

impl<'f> Trace<'f> {
    /// Opens an input and the files that its code was mapped from.
    ///
    /// # Errors
    /// An input that can't be opened or read at all. Anything else that is missing is a loss.
    pub fn open(files: &'f Files, input: &'f Input, options: &Options) -> Result<Trace<'f>, OpenError> {
        let mut recording = match input {
            Input::File(path) => {
                let input = files.recording(path).map_err(|error| system_error(path, error))?;
                hodo_formats::read(&input).map_err(|error| format_error(path, error))?
            }
            Input::Raw(raw) => open_raw(files, raw)?,
        };
        let one_of = |list: &[u32], id: u32| list.is_empty() || list.contains(&id);
        let names = Names::new(&recording, &options.comms);
        let is_machine = recording.recorder.as_ref().is_some_and(|emulated| !emulated.notes.cpus.is_empty());
        let wanted = |thread: Thread| {
            one_of(&options.tids, thread.tid)
                && one_of(&options.pids, thread.pid)
                && !(options.without_recorder && own_share::is_recorders(is_machine, thread))
        };
        let of_streams = recording.streams.iter().filter_map(|stream| stream.thread);
        let mut present: Vec<Thread> =
            of_streams.chain(recording.sideband.iter().map(|sideband| sideband.thread)).collect();
        let shows = |thread: Thread| wanted(thread) && names.select(thread);
        recording.streams.retain(|stream| stream.thread.is_none_or(shows));
        if options.guests.in_host {
            recording.guest_code = GuestCode::OfHost;
        }
        let mut modules = Modules::open(files, &recording, &options.beside(input));
        modules.accept_flat(&recording);
        let mut programs = ProcessHistory::new(&recording, &modules);
        let mut threads = Vec::new();
        let mut streams = Vec::new();
        for stream in &recording.streams {
            let schedule = programs.schedule(stream, &recording, &names, &mut threads);
            let mut opened = TraceStream::new(stream, schedule);
            if opened.has_contexts() {
                opened.contexts = programs.contexts(stream, &recording, &names, &mut threads);
            }
            streams.push(opened);
        }
        programs.share_kernel();
        let guests = programs.guests(&recording, &modules);
        let wanted = threads.iter().map(|&(thread, is_named)| is_named && wanted(thread)).collect();
        let threads: Vec<Thread> = threads.into_iter().map(|(thread, _)| thread).collect();
        present.extend(&threads);
        present.sort_unstable();
        present.dedup();
        Ok(Trace {
            name: input.to_string(),
            input: 0,
            names,
            recording,
            modules,
            threads_stay: stay(&streams, threads.len()),
            streams,
            threads,
            present,
            wanted,
            guests,
            spaces: programs.spaces,
            decoded: Decoded::default(),
            without_recorder: options.without_recorder,
        })
    }

    /// Returns whether any selected thread has trace.
    pub fn has_any(&self) -> bool {
        self.wanted.contains(&true)
    }

    /// Returns whether the thread with this context is selected.
    pub(crate) fn wants(&self, context: u32) -> bool {
        self.wanted.get(context as usize).is_some_and(|&wanted| wanted)
    }

    /// Returns whether it is a native recording, whose streams are logs instead of packets.
    pub fn is_native(&self) -> bool {
        self.streams.iter().any(TraceStream::is_log)
    }

    /// Returns the names, without folders, of the modules that are programs' own files: the first file that a process
    /// maps, at its start and after each `execve`.
    pub fn program_files(&self) -> BTreeSet<&str> {
        let mut programs = BTreeSet::new();
        // Processes whose program is known: what they map later are libraries.
        let mut known = BTreeSet::new();
        for sideband in self.recording.of_host() {
            let pid = sideband.thread.pid;
            match &sideband.kind {
                SidebandKind::Comm { exec: true, .. } => _ = known.remove(&pid),
                // A recorder that starts the program runs no code of the recording.
                SidebandKind::Fork { parent } if known.contains(&parent.pid) => _ = known.insert(pid),
                SidebandKind::Map(mapping)
                    if !mapping.kernel && mapping.name.starts_with(b"/") && known.insert(pid) =>
                {
                    let path = self.modules.list()[self.modules.of(mapping) as usize].name.as_str();
                    programs.insert(path.rsplit_once('/').map_or(path, |(_, name)| name));
                }
                _ => {}
            }
        }
        programs
    }

    /// Returns the origin of the code that a thread sees at an address, at a time if it is known; the context is the thread's
    /// index.
    pub fn origin(&self, context: u32, time: Option<Nanos>, address: u64) -> Option<Origin> {
        let tick = time.zip(self.recording.config.clock).map(|(time, clock)| clock.ticks(time));
        let programs = self.streams.iter().filter_map(|stream| {
            let begun = tick.map_or(stream.schedule.len(), |now| {
                stream.schedule.partition_point(|switch| switch.at <= now)
            });
            let (before, after) = stream.schedule.split_at(begun);
            before.iter().rev().chain(after).find(|switch| switch.context == context)
        });
        // A thread may have run on several CPUs: the newest switch to it counts.
        let newest = programs.max_by_key(|switch| (tick.is_none_or(|now| switch.at <= now), switch.at))?;
        // The last tick stands for "never ends".
        let now = tick.map_or(u64::MAX - 1, |tick| tick.0);
        Some(self.spaces.get(newest.program)?.at(address, now)?.0.origin)
    }

    /// Returns the number of bytes of trace.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(TraceStream::bytes).sum()
    }

    /// Explains to the user why the flow was decoded without finding an instruction. `None` if there are instructions,
    /// or nothing was decoded.
    pub fn nothing_decoded(&self) -> Option<String> {
        if !self.decoded.found_nothing() {
            return None;
        }
        Some(match self.decoded.first_gap() {
            _ if self.recording.config.no_branches => "it was recorded without branches".to_owned(),
            Some(gap) => format!("the first gap: {gap}"),
            None => "tracing was off, or the selection contains no code".to_owned(),
        })
    }

    /// Cuts all streams into chunks, in the order of streams and of time.
    pub fn chunks(&self, reading: Reading<'_>) -> Vec<Chunk> {
        let mut left = self.bytes();
        let streams = self.streams.iter().enumerate();
        let chunks = streams.flat_map(|(index, stream)| {
            let chunks = stream.chunks(index, reading, left);
            left -= stream.bytes();
            chunks
        });
        chunks.enumerate().map(|(index, chunk)| Chunk { index, ..chunk }).collect()
    }

    /// Returns the programs that ran, with no code decoded yet.
    pub(crate) fn programs(&self) -> Vec<Program<'_, Modules<'f>>> {
        self.spaces.iter().map(|space| Program::new(space, &self.modules)).collect()
    }

    /// Returns the losses of the recording itself: also the programs that the recorder could not follow, and where a
    /// machine ended before its command did.
    pub fn recorded_losses(&self) -> Losses {
        let mut losses = Losses::default();
        self.recording.loss.iter().for_each(|loss| losses.add(loss.clone()));
        let mut add = |stream, cause, time_ns, reason: &str| {
            let time = Some((Nanos(time_ns), Nanos(time_ns)));
            losses.add(Loss { stream, cause, bytes: 0..0, time, count: 1, detail: reason.to_owned() });
        };
        for notes in self.recording.recorder.iter().map(|emulated| &emulated.notes) {
            for program in &notes.untraced {
                let stream = format!("tid {}", program.thread.tid);
                add(stream, Cause::Untraced, program.time_ns, &program.reason);
            }
            for cut in &notes.cut {
                add(format!("cpu {}", cut.cpu), Cause::CutShort, cut.time_ns, &cut.reason);
            }
        }
        losses
    }

    /// Returns the [recorded losses](Trace::recorded_losses) that are within a window or have no time.
    pub(crate) fn losses_in(&self, window: Window<Tsc>) -> Losses {
        let Some(clock) = self.recording.config.clock.filter(|_| !window.is_all()) else {
            return self.recorded_losses();
        };
        let mut losses = Losses::default();
        for loss in self.recorded_losses().into_list() {
            let inside = |(begin, end): (Nanos, Nanos)| {
                !window.ends_by(&clock.ticks(begin)) && !window.begins_after(&clock.ticks(end))
            };
            if loss.time.is_none_or(inside) {
                losses.add(loss);
            }
        }
        losses
    }

    /// Returns the last name of a thread; if threads are selected by name, of these names.
    pub fn thread_name(&self, thread: Thread) -> Option<Cow<'f, str>> {
        self.names.last(thread)
    }

    /// Returns the first and last time of the recording, as far as its [`span`](Trace::span) is known; `None` without a clock.
    pub fn times(&self) -> Option<(Nanos, Nanos)> {
        let ((first, last), clock) = (self.span()?, self.recording.config.clock?);
        Some((clock.nanos(first), clock.nanos(last)))
    }

    /// Returns the first and last tick of the recording, as far as known from its sideband and from the TSC packets
    /// after the first and last PSB of its streams.
    pub fn span(&self) -> Option<(Tsc, Tsc)> {
        let extents = self.streams.iter().flat_map(|stream| &stream.extents);
        let mut span: Option<(Tsc, Tsc)> = None;
        for (first, last) in extents.filter_map(Extent::times) {
            // Times may go back within a stream.
            span = span.into_iter().chain([(first, first), (last, last)]).reduce(cover);
        }
        let clock = self.recording.config.clock?;
        let times = self.recording.sideband.iter().filter_map(|sideband| sideband.time);
        let ticks = times.map(|time| clock.ticks(time)).filter(|tick| tick.0 > 0);
        ticks.fold(span, |span, tick| span.map(|span| cover(span, (tick, tick))))
    }

    /// Describes why the flow could not be followed, at which byte of the file, and from which byte on the flow before
    /// the gap is doubtful.
    pub fn describe_gap(&self, gap: &Gap) -> String {
        let reason = self.describe(&gap.trouble);
        let begin = gap.from;
        match gap.doubtful_since {
            Some(byte) => format!("{reason}, at byte {begin}, doubtful since byte {byte}"),
            None => format!("{reason}, at byte {begin}"),
        }
    }

    /// Describes why the flow could not be followed, with the module's name if code is missing.
    pub fn describe(&self, trouble: &Trouble) -> String {
        match trouble {
            Trouble::Code(Unreadable::MissingBytes(address, origin)) => {
                let module = &self.modules.list()[origin.module as usize];
                let reason = module.problem.as_deref().unwrap_or("the file ends before it");
                let range = self.modules.range_around(origin.module, *address);
                let range = range.unwrap_or(*address..*address);
                format!(
                    "code of {} at {:x}-{:x} is not available: {reason}",
                    module.name, range.start, range.end
                )
            }
            Trouble::Missing if self.is_native() => "a block of the log is damaged or missing".to_owned(),
            Trouble::Overflow if self.is_native() => {
                "the log says that something ran here that was not recorded".to_owned()
            }
            Trouble::Missing => "bytes before the first PSB, or that the recorder lost".to_owned(),
            Trouble::Guest { .. } if self.recording.guest_code == GuestCode::Unknown => format!(
                "{trouble}; --guestmount, --guestvmlinux, --guestkallsyms or --guest-code say where it is"
            ),
            Trouble::Guest { .. } => format!("{trouble}; --guest-code=FILE@ADDRESS gives it"),
            Trouble::UnknownFilter { .. } => format!("{trouble}; --filter gives the filter"),
            trouble => trouble.to_string(),
        }
    }
}

/// Returns whether each of a number of threads runs on one stream only.
fn stay(streams: &[TraceStream<'_>], threads: usize) -> bool {
    let mut stream_of: Vec<Option<usize>> = vec![None; threads];
    streams.iter().enumerate().all(|(index, stream)| {
        stream.schedule.iter().all(|switch| *stream_of[switch.context as usize].get_or_insert(index) == index)
    })
}

fn open<'f>(files: &'f Files, path: &Path) -> Result<&'f [u8], OpenError> {
    files.bytes(path).map_err(|error| system_error(path, error))
}

fn open_raw<'f>(files: &'f Files, input: &'f RawInput) -> Result<Recording<'f>, OpenError> {
    let trace = open(files, &input.trace)?;
    let mut elf = Vec::new();
    for (owner, file) in &input.elf {
        elf.push((*owner, file, open(files, Path::new(&file.file))?));
    }
    let mut mappings = Vec::new();
    for (owner, code) in &input.code {
        mappings.push((*owner, code, open(files, Path::new(&code.file))?.len() as u64));
    }
    let bad = |bad: BadElf| format_error(Path::new(&bad.file), bad.error);
    let one = |kind, format| raw::recording(vec![raw::stream(trace, kind)], format, &mappings, &elf);
    let recording = match &input.unit {
        RawUnit::IntelPt(config) => {
            let read = one(StreamKind::IntelPt, "raw Intel PT").map_err(bad)?;
            Recording { config: Config { tsc: true, ..config.clone() }, ..read }
        }
        RawUnit::RiscV { settings } => {
            let kind = StreamKind::RiscV(Arc::new(riscv_settings(files, settings.as_deref())?));
            one(kind, "raw RISC-V trace").map_err(bad)?
        }
        RawUnit::Etm { settings } => {
            let units = etm_settings(files, settings)?;
            coresight::recording(trace, &units, files.unpacked(), &mappings, &elf).map_err(bad)?
        }
    };
    Ok(recording)
}

fn etm_settings(files: &Files, path: &Path) -> Result<RawUnits, OpenError> {
    let text = String::from_utf8_lossy(open(files, path)?);
    RawUnits::parse(&text).map_err(|reason| {
        let kind = ErrorKind::Text { what: "settings of trace units", reason };
        format_error(path, Error { at: 0, kind })
    })
}

fn riscv_settings(files: &Files, path: Option<&Path>) -> Result<hodo_etrace::Settings, OpenError> {
    let Some(path) = path else { return Ok(hodo_etrace::Settings::default()) };
    let text = String::from_utf8_lossy(open(files, path)?);
    hodo_etrace::Settings::parse(&text).map_err(|reason| {
        let kind = ErrorKind::Text { what: "settings of a RISC-V trace", reason: reason.to_string() };
        format_error(path, Error { at: 0, kind })
    })
}

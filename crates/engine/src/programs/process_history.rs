//! Builds address spaces and thread schedules from sideband.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use hodo_clock::{Nanos, Tsc};
use hodo_code::{AddressSpace, Content, Origin};
use hodo_etm::flow::ThreadContext;
use hodo_flow::Switch;
use hodo_formats::recording::{
    GuestCode, KeptCode, KernelSymbol, Mapping, Recording, Sideband, SidebandKind, Stream, TextPoke, Thread,
};
use hodo_intel_pt::flow::{self, Guest};

use crate::{
    flow::info::Source,
    programs::{
        find::is_file,
        generated::{Load, is_jitdump},
        modules::Modules,
        names::Names,
    },
};

/// The programs that ran: each process has one from its start, and another from each exec.
#[derive(Debug, Default)]
pub(crate) struct ProcessHistory<'f> {
    pub(crate) spaces: Vec<AddressSpace<'f>>,
    /// The programs of each process, in order.
    by_process: BTreeMap<u32, Vec<Program>>,
    /// Parent of each forked process. Code of the parent's run-time compiler is the child's too.
    parents: BTreeMap<u32, u32>,
    /// The kernel's address space, shared by all programs.
    kernel: AddressSpace<'f>,
    /// The index of each thread that a stream shows, while its name is selected and while it is not.
    contexts: HashMap<(Thread, bool), u32>,
    /// Whether the recording contains the executed code that is in no file.
    keeps_code: bool,
    /// The code of guests that the recording contains, by the address of the VMCS.
    guests: BTreeMap<u64, AddressSpace<'f>>,
    /// Functions of run-time compilers that already have their range, by program and origin.
    relabelled: HashSet<(usize, Origin)>,
    /// Address ranges of programs that were mapped without a file last.
    bare: HashMap<usize, Vec<Range<u64>>>,
}

#[derive(Clone, Copy, Debug)]
struct Program {
    /// Tick of its start.
    start: Tsc,
    /// Index of its address space.
    space: usize,
}

/// Code that becomes known at a certain time.
enum Arrival<'f> {
    Kept(KeptCode<'f>),
    Loaded(Load<'f>),
}

/// The pid of kernel mappings in perf.data.
const KERNEL: u32 = KeptCode::KERNEL;

impl<'f> ProcessHistory<'f> {
    pub(crate) fn new(recording: &Recording<'f>, modules: &Modules<'f>) -> ProcessHistory<'f> {
        let mut programs =
            ProcessHistory { keeps_code: recording.recorder.is_some(), ..ProcessHistory::default() };
        let mut arrivals = arrivals(recording, modules).into_iter().peekable();
        for sideband in recording.of_host() {
            let tick = ticks(recording, sideband);
            let before = |(time, _): &(Nanos, _)| sideband.time.is_some_and(|recorded| *time < recorded);
            while let Some((time, arrival)) = arrivals.next_if(before) {
                programs.arrive(arrival, tick_of(recording, time), modules);
            }
            programs.follow(sideband, tick, modules);
        }
        arrivals.for_each(|(time, arrival)| programs.arrive(arrival, tick_of(recording, time), modules));
        programs
    }

    /// Adds the kernel to all programs. Must be called after the last record.
    pub(crate) fn share_kernel(&mut self) {
        let kernel = Arc::new(std::mem::take(&mut self.kernel));
        if !kernel.is_empty() {
            self.spaces.iter_mut().for_each(|space| space.set_kernel(kernel.clone()));
        }
    }

    /// Returns the guests with known code, those with a pid first. Must be called after the last record.
    pub(crate) fn guests(&mut self, recording: &Recording<'f>, modules: &Modules<'f>) -> Vec<Guest> {
        let mut guests = Vec::new();
        for (vmcs, space) in std::mem::take(&mut self.guests) {
            let code = self.add(space);
            guests.push(Guest { vmcs: Some(vmcs), host: None, code });
        }
        for kernel in modules.guest_kernels() {
            let code = self.add(kernel.space());
            // A process may run its guest in any of its programs.
            let hosts = kernel.pid.map(|pid| self.by_process.get(&pid).map_or(&[][..], Vec::as_slice));
            match hosts {
                Some(hosts) => {
                    guests.extend(hosts.iter().map(|host| Guest {
                        vmcs: None,
                        host: Some(host.space),
                        code,
                    }));
                }
                None => guests.push(Guest { vmcs: None, host: None, code }),
            }
        }
        match recording.guest_code {
            GuestCode::Unknown => {}
            GuestCode::OfHost => guests.push(Guest { vmcs: None, host: None, code: flow::GuestCode::OfHost }),
            GuestCode::Mapped => {
                let mut space = AddressSpace::new();
                let of_guests = recording.sideband.iter().filter(|sideband| sideband.guest.is_some());
                for sideband in of_guests {
                    if let SidebandKind::Map(mapping) = &sideband.kind {
                        map(&mut space, mapping, ticks(recording, sideband), modules);
                    }
                }
                if !space.is_empty() {
                    let code = self.add(space);
                    guests.push(Guest { vmcs: None, host: None, code });
                }
            }
        }
        guests
    }

    fn add(&mut self, space: AddressSpace<'f>) -> flow::GuestCode {
        self.spaces.push(space);
        flow::GuestCode::Program(self.spaces.len() - 1)
    }

    fn arrive(&mut self, arrival: Arrival<'f>, tick: u64, modules: &Modules<'f>) {
        match arrival {
            Arrival::Kept(KeptCode { guest: Some(vmcs), address, bytes, .. }) => {
                let origin = Origin { module: modules.kept(), offset: address };
                let range = address..address.saturating_add(bytes.len() as u64);
                self.guests.entry(vmcs).or_default().map(range, Content { bytes, origin }, tick);
            }
            Arrival::Kept(code) if code.pid == KERNEL => self.keep_kernel(&code, tick, modules),
            Arrival::Kept(code) => self.keep(&code, tick, modules),
            Arrival::Loaded(load) => {
                self.space(load.pid, tick).map(load.range, load.content, tick);
            }
        }
    }

    /// Maps code contained in the recording, function by function.
    fn keep(&mut self, code: &KeptCode<'f>, tick: u64, modules: &Modules<'f>) {
        // Without a time of discovery, the newest description counts: that of the tick before "never ends".
        let found = code.found.map_or(u64::MAX - 1, |found| found.0);
        let compiler = self.compiler(code.pid, modules);
        let (mut address, mut bytes) = (code.address, code.bytes);
        while !bytes.is_empty() {
            let (mut origin, mut length) = modules.of_kept(compiler, address, found);
            if let Some((of_file, end)) = self.patched(code.pid, address, tick, modules)
                && origin.module == modules.kept()
            {
                (origin, length) = (of_file, length.min(end - address));
            } else if origin.module != modules.kept() {
                self.relabel_once(code.pid, address, origin, tick, modules);
            }
            let (here, rest) = bytes.split_at(usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len()));
            let range = address..address.saturating_add(here.len() as u64);
            self.space(code.pid, tick).map(range.clone(), Content { bytes: here, origin }, tick);
            (address, bytes) = (range.end, rest);
        }
    }

    /// Returns the origin of the code of a file that a process maps at an address, and where that code ends: what a
    /// debugger or a probe writes there belongs to the same function.
    fn patched(&mut self, pid: u32, address: u64, tick: u64, modules: &Modules<'f>) -> Option<(Origin, u64)> {
        let space = self.space(pid, tick);
        let (origin, end) = (space.at(address, tick)?.0.origin, space.boundary(address));
        let is_of_file = modules.list()[origin.module as usize].source == Source::File;
        (is_of_file && !self.bare(pid, tick).iter().any(|bare| bare.contains(&address)))
            .then_some((origin, end))
    }

    /// Maps kernel code contained in the recording. Its origin is what is mapped there: the image, a module, or code
    /// that the kernel generated.
    fn keep_kernel(&mut self, code: &KeptCode<'f>, tick: u64, modules: &Modules<'f>) {
        let (mut address, mut bytes) = (code.address, code.bytes);
        while !bytes.is_empty() {
            let there = self.kernel.at(address, tick).map(|(content, _)| content.origin);
            let origin = there.unwrap_or(Origin { module: modules.kept(), offset: address });
            let length = self.kernel.boundary(address).saturating_sub(address).max(1);
            let (here, rest) = bytes.split_at(usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len()));
            let range = address..address.saturating_add(here.len() as u64);
            self.kernel.map(range.clone(), Content { bytes: here, origin }, tick);
            (address, bytes) = (range.end, rest);
        }
    }

    /// Relabels the range of a function on its first use: the recording omits bytes that equal those of the previous
    /// function at the same address.
    fn relabel_once(&mut self, pid: u32, address: u64, origin: Origin, tick: u64, modules: &Modules<'f>) {
        let extent = modules.extent(origin);
        let start = address.saturating_sub(origin.offset - extent.start);
        let origin = Origin { offset: extent.start, ..origin };
        let program = self.program(pid, tick);
        if self.relabelled.insert((program, origin)) {
            let range = start..start.saturating_add(extent.end - extent.start);
            self.spaces[program].relabel(range, origin, tick);
        }
    }

    /// Returns the process whose run-time compiler generated the code of `pid`: itself, or an ancestor that forked it.
    fn compiler(&self, pid: u32, modules: &Modules<'f>) -> u32 {
        /// Maximum number of generations to search.
        const DEPTH: usize = 64;
        let ancestors = std::iter::successors(Some(pid), |pid| self.parents.get(pid).copied());
        ancestors.take(DEPTH).find(|&pid| modules.knows(pid)).unwrap_or(pid)
    }

    fn follow(&mut self, sideband: &Sideband<'f>, tick: u64, modules: &Modules<'f>) {
        let pid = sideband.thread.pid;
        match &sideband.kind {
            SidebandKind::Map(mapping) if mapping.kernel || pid == KERNEL => {
                self.map_kernel(mapping, tick, modules);
            }
            SidebandKind::Map(mapping) if is_jitdump(mapping.name) => {}
            // Code without a file is recorded as it ran on the emulated processor, and stays mapped.
            SidebandKind::Map(mapping) if self.keeps_code && !holds_file(mapping, modules) => {
                let (mapped, bare) = (range(mapping), self.bare(pid, tick));
                if !bare.iter().any(|bare| bare.start <= mapped.start && mapped.end <= bare.end) {
                    bare.push(mapped);
                }
            }
            SidebandKind::Map(mapping) => {
                let mapped = range(mapping);
                let is_left = |bare: &Range<u64>| bare.start < mapped.start || mapped.end < bare.end;
                self.bare(pid, tick).retain(is_left);
                map(self.space(pid, tick), mapping, tick, modules);
            }
            SidebandKind::Fork { parent } if parent.pid != pid => {
                let child = self.space(parent.pid, tick).fork(tick);
                let bare = self.bare(parent.pid, tick).clone();
                self.start(pid, tick, child);
                *self.bare(pid, tick) = bare;
                self.parents.insert(pid, parent.pid);
            }
            SidebandKind::Comm { exec: true, .. } => {
                self.start(pid, tick, AddressSpace::new());
                self.parents.remove(&pid);
            }
            SidebandKind::KernelSymbol(symbol) if !symbol.dropped => self.add_made(symbol, tick, modules),
            // The recording contains the code that ran, with its time; the kernel reports a change before it makes it.
            SidebandKind::TextPoke(_) if self.keeps_code => {}
            SidebandKind::TextPoke(poke) => self.poke(poke, tick),
            _ => {}
        }
    }

    fn map_kernel(&mut self, mapping: &Mapping<'f>, tick: u64, modules: &Modules<'f>) {
        let module = modules.of(mapping);
        let range = range(mapping);
        let mut address = range.start;
        while address < range.end {
            let end = self.kernel.boundary(address).clamp(address + 1, range.end);
            // Of a module that is loaded where another one was, the recording contains only what differs.
            let there = self.kernel.at(address, tick).filter(|_| self.keeps_code);
            let content = Content {
                bytes: there.map_or(&[], |(content, _)| content.bytes),
                origin: Origin { module, offset: address },
            };
            self.kernel.map(address..end, content, tick);
            address = end;
        }
        for (address, content) in modules.kernel_code(range, module) {
            let range = address..address + content.bytes.len() as u64;
            self.kernel.map(range, content, tick);
        }
    }

    /// Maps code that the kernel generated: a BPF program, or code known from another source.
    fn add_made(&mut self, symbol: &KernelSymbol<'f>, tick: u64, modules: &Modules<'f>) {
        let (origin, code) = modules.made_by_kernel(symbol);
        let range = symbol.address..symbol.address.saturating_add(symbol.length);
        if let Some(bytes) = code {
            self.kernel.map(range, Content { bytes, origin }, tick);
            return;
        }
        if !self.kernel.hole(symbol.address).is_empty() {
            self.kernel.map(range.clone(), Content { bytes: &[], origin }, tick);
        }
        for (address, content) in modules.kernel_code(range.clone(), origin.module) {
            let range = address..address + content.bytes.len() as u64;
            self.kernel.map(range, content, tick);
        }
        self.kernel.relabel(range, origin, tick);
    }

    /// Maps code that the kernel changed. The record also contains the code before the change.
    fn poke(&mut self, poke: &TextPoke<'f>, tick: u64) {
        let there = self.kernel.at(poke.address, tick).map(|(content, _)| content.origin);
        let origin = there.unwrap_or(Origin { module: 0, offset: poke.address });
        for bytes in [poke.old, poke.new] {
            let range = poke.address..poke.address.saturating_add(bytes.len() as u64);
            self.kernel.map(range, Content { bytes, origin }, tick);
        }
    }

    fn start(&mut self, pid: u32, tick: u64, space: AddressSpace<'f>) {
        let programs = self.by_process.entry(pid).or_default();
        // The first program of a process ran before the first record.
        let since = if programs.is_empty() { 0 } else { tick };
        programs.push(Program { start: Tsc(since), space: self.spaces.len() });
        self.spaces.push(space);
    }

    /// Returns the index of the current program of a process. Starts one if there is none.
    fn program(&mut self, pid: u32, tick: u64) -> usize {
        if !self.by_process.contains_key(&pid) {
            self.start(pid, tick, AddressSpace::new());
        }
        self.by_process[&pid].last().expect("a program was started").space
    }

    /// Returns the current address space of a process.
    fn space(&mut self, pid: u32, tick: u64) -> &mut AddressSpace<'f> {
        let program = self.program(pid, tick);
        &mut self.spaces[program]
    }

    /// Returns the ranges of the current program of a process that were mapped without a file.
    fn bare(&mut self, pid: u32, tick: u64) -> &mut Vec<Range<u64>> {
        let program = self.program(pid, tick);
        self.bare.entry(program).or_default()
    }

    /// Returns which thread runs on a stream from which tick on. Contexts are indexes into `threads`, to which new
    /// threads are added, with whether their names are selected then.
    pub(crate) fn schedule(
        &mut self,
        stream: &Stream<'_>,
        recording: &Recording<'_>,
        names: &Names<'_>,
        threads: &mut Vec<(Thread, bool)>,
    ) -> Vec<Switch> {
        if let Some(thread) = stream.thread {
            self.space(thread.pid, 0);
            return self.slices(thread, (Tsc(0), Tsc(u64::MAX)), names, threads);
        }
        let switches = self.switches_of(stream, recording);
        let ends = switches[1..].iter().map(|&(tick, _)| tick).chain([Tsc(u64::MAX)]).collect::<Vec<_>>();
        let slices = switches.iter().zip(ends);
        slices.flat_map(|(&(from, thread), to)| self.slices(thread, (from, to), names, threads)).collect()
    }

    /// Returns which thread runs on the CPU of a stream from which tick on. Each has a program.
    fn switches_of(&mut self, stream: &Stream<'_>, recording: &Recording<'_>) -> Vec<(Tsc, Thread)> {
        let of_cpu = recording.of_host().filter(|sideband| sideband.cpu == stream.cpu);
        let switches = switches(of_cpu.map(|sideband| (ticks(recording, sideband), sideband)));
        for (_, thread) in &switches {
            self.space(thread.pid, 0);
        }
        switches
    }

    /// Returns the threads of the CPU of a stream by their context IDs, which the kernel sets to those of threads; sorted by ID and
    /// time. They need no times of switches, as packets show these.
    pub(crate) fn contexts(
        &mut self,
        stream: &Stream<'_>,
        recording: &Recording<'_>,
        names: &Names<'_>,
        threads: &mut Vec<(Thread, bool)>,
    ) -> Vec<ThreadContext> {
        let (mut seen, mut ids) = (HashSet::new(), HashSet::new());
        let mut contexts = Vec::new();
        for (at, thread) in self.switches_of(stream, recording) {
            if seen.insert(thread) {
                // A later thread may have the ID of one that ended.
                let from = if ids.insert(thread.tid) { Tsc(0) } else { at };
                let slices = self.slices(thread, (from, Tsc(u64::MAX)), names, threads).into_iter();
                contexts.extend(slices.map(|switch| ThreadContext { context_id: thread.tid, switch }));
            }
        }
        contexts.sort_by_key(|thread| (thread.context_id, thread.switch.at));
        contexts
    }

    /// Returns the programs between two ticks of a thread's process, which must have one.
    fn slices(
        &mut self,
        thread: Thread,
        (from, to): (Tsc, Tsc),
        names: &Names<'_>,
        threads: &mut Vec<(Thread, bool)>,
    ) -> Vec<Switch> {
        let programs = &self.by_process[&thread.pid];
        let first = programs.partition_point(|program| program.start <= from).saturating_sub(1);
        let during = programs[first..].iter().take_while(|program| program.start < to);
        let mut starts: Vec<Tsc> = during.map(|program| program.start.max(from)).collect();
        if !starts.is_empty() {
            starts.extend(names.changes(thread, from, to));
            starts.sort_unstable();
            starts.dedup();
        }
        let slice = |tick: Tsc| {
            let program = programs.partition_point(|program| program.start <= tick).saturating_sub(1);
            let context =
                *self.contexts.entry((thread, names.select_at(thread, tick))).or_insert_with_key(|&key| {
                    threads.push(key);
                    threads.len() as u32 - 1
                });
            Switch { at: tick, program: programs[program].space, context }
        };
        starts.into_iter().map(slice).collect()
    }
}

/// An unknown thread.
const UNKNOWN: Thread = Thread { pid: 0, tid: 0 };

/// Returns which thread runs on a CPU from which tick on, according to the CPU's own sideband. Begins at tick 0 and is
/// never empty.
///
/// A thread's slice begins when the previous thread is switched out: in between, neither is traced, or only in the
/// kernel, and the trace's clock may lag behind the switch-in record. A thread whose tracing starts while it runs has
/// no switch-in record.
fn switches<'s>(sideband: impl Iterator<Item = (u64, &'s Sideband<'s>)>) -> Vec<(Tsc, Thread)> {
    let mut switches: Vec<(Tsc, Thread)> = Vec::new();
    let mut left = None;
    for (tick, Sideband { thread, kind, .. }) in sideband {
        let (since, runs) = match kind {
            SidebandKind::SwitchOut { next, .. } => {
                if switches.is_empty() {
                    switches.push((Tsc(0), *thread));
                }
                left = Some(tick);
                let Some(next) = next else { continue };
                (tick, *next)
            }
            SidebandKind::SwitchIn => (left.take().unwrap_or(tick), *thread),
            SidebandKind::TraceStart => {
                left = None;
                (tick, *thread)
            }
            _ => continue,
        };
        if switches.is_empty() && since > 0 {
            switches.push((Tsc(0), UNKNOWN));
        }
        if switches.last().is_none_or(|&(_, last)| last != runs) {
            // A record without a time has tick 0.
            let earliest = switches.last().map_or(0, |&(before, _)| before.0);
            switches.push((Tsc(since.max(earliest)), runs));
        }
    }
    if switches.is_empty() {
        switches.push((Tsc(0), UNKNOWN));
    }
    switches
}

/// Returns code that becomes known apart from mappings, in order of time.
fn arrivals<'f>(recording: &Recording<'f>, modules: &Modules<'f>) -> Vec<(Nanos, Arrival<'f>)> {
    let clock = recording.config.clock;
    let kept = recording.recorder.iter().flat_map(|emulated| &emulated.code);
    let kept = kept.map(|code| (code.time, Arrival::Kept(*code)));
    // Code of the emulated processor is recorded as it ran, with a time that is not on the files' clock.
    let loads = modules.loads().iter().filter(|_| recording.recorder.is_none());
    let loads = loads.map(|load| {
        let in_ticks = clock.filter(|_| load.in_ticks).map(|clock| clock.nanos(Tsc(load.time)));
        let time = in_ticks.unwrap_or(Nanos(load.time));
        (time, Arrival::Loaded(load.clone()))
    });
    let mut arrivals: Vec<_> = kept.chain(loads).collect();
    arrivals.sort_by_key(|&(time, _)| time);
    arrivals
}

/// Returns the tick of a record; 0 if it has no time or the trace has no ticks.
pub(crate) fn ticks(recording: &Recording<'_>, sideband: &Sideband<'_>) -> u64 {
    sideband.time.map_or(0, |time| tick_of(recording, time))
}

/// Returns the tick of a time; 0 if the trace has no ticks.
fn tick_of(recording: &Recording<'_>, time: Nanos) -> u64 {
    let clock = recording.config.clock.filter(|_| recording.config.tsc);
    // The last tick stands for "never ends".
    clock.map_or(0, |clock| clock.ticks(time).0.min(u64::MAX - 1))
}

fn holds_file(mapping: &Mapping<'_>, modules: &Modules<'_>) -> bool {
    is_file(&modules.list()[modules.of(mapping) as usize].name)
}

fn map<'f>(space: &mut AddressSpace<'f>, mapping: &Mapping<'f>, tick: u64, modules: &Modules<'f>) {
    let module = modules.of(mapping);
    let file = modules.list()[module as usize].bytes;
    let offset = usize::try_from(mapping.file_offset).unwrap_or(usize::MAX).min(file.len());
    let origin = Origin { module, offset: mapping.file_offset };
    space.map(range(mapping), Content { bytes: &file[offset..], origin }, tick);
}

fn range(mapping: &Mapping<'_>) -> Range<u64> {
    mapping.address..mapping.address.saturating_add(mapping.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tid: u32, kind: SidebandKind<'static>) -> Sideband<'static> {
        Sideband { time: None, cpu: Some(0), thread: Thread { pid: 1, tid }, guest: None, kind }
    }

    fn switch_out(tid: u32, next: Option<u32>) -> Sideband<'static> {
        let next = next.map(|tid| Thread { pid: 1, tid });
        record(tid, SidebandKind::SwitchOut { preempted: false, next })
    }

    /// Returns the ticks and threads of the slices.
    fn slices(sideband: &[(u64, Sideband<'static>)]) -> Vec<(u64, u32)> {
        let switches = switches(sideband.iter().map(|(tick, sideband)| (*tick, sideband)));
        switches.into_iter().map(|(tick, thread)| (tick.0, thread.tid)).collect()
    }

    #[test]
    fn a_slice_begins_when_the_previous_thread_is_switched_out() {
        let switch_in = |tid| record(tid, SidebandKind::SwitchIn);
        assert_eq!(slices(&[]), [(0, 0)]);
        assert_eq!(
            slices(&[(5, switch_in(7)), (9, switch_out(7, None)), (20, switch_in(8))]),
            [(0, 0), (5, 7), (9, 8)]
        );
        // The first thread to leave ran from the start. Switching to the same thread is no switch.
        assert_eq!(
            slices(&[
                (5, switch_out(7, None)),
                (9, switch_in(7)),
                (12, switch_out(7, None)),
                (15, switch_in(8))
            ]),
            [(0, 7), (12, 8)]
        );
        // The switch-in record is missing, or redundant.
        assert_eq!(
            slices(&[(5, switch_out(7, Some(8))), (9, switch_out(8, Some(9))), (10, switch_in(9))]),
            [(0, 7), (5, 8), (9, 9)]
        );
        // Tracing began while the thread ran.
        let start = |tid| record(tid, SidebandKind::TraceStart);
        assert_eq!(
            slices(&[(3, start(7)), (9, switch_out(7, None)), (10, start(8)), (12, switch_in(9))]),
            [(0, 0), (3, 7), (10, 8), (12, 9)]
        );
        assert_eq!(slices(&[(9, switch_in(7)), (0, switch_in(8))]), [(0, 0), (9, 7), (9, 8)]);
    }
}

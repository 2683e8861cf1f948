//! From sideband to address spaces, and who ran when.

use std::collections::{BTreeMap, HashMap};

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Origin};
use hodo_formats::recording::{Mapping, Recording, Sideband, SidebandKind, Stream, Thread};
use hodo_intel_pt::flow::Switch;

use crate::{Modules, modules::is_file};

/// The programs that ran: each process has one from its start, and another from each exec on.
#[derive(Debug, Default)]
pub(crate) struct Programs<'f> {
    pub(crate) spaces: Vec<AddressSpace<'f>>,
    /// From when on a process runs which program.
    by_process: BTreeMap<u32, Vec<(Tsc, usize)>>,
    kernel: Vec<(Mapping<'f>, u64)>,
    /// The index of each thread that some stream shows.
    contexts: HashMap<Thread, u32>,
    /// The recording keeps the code that ran and that no file holds.
    keeps_code: bool,
}

/// The pid of kernel mappings in perf.data.
const KERNEL: u32 = u32::MAX;

impl<'f> Programs<'f> {
    pub(crate) fn new(recording: &Recording<'f>, modules: &Modules<'f>) -> Programs<'f> {
        let mut programs = Programs { keeps_code: recording.emulated.is_some(), ..Programs::default() };
        let tick = |sideband: &Sideband<'_>| ticks(recording, sideband);
        let mut kept = recording.emulated.iter().flat_map(|emulated| &emulated.code).peekable();
        for sideband in recording.of_host() {
            let at = tick(sideband);
            while let Some(code) = kept.next_if(|code| sideband.time.is_some_and(|time| code.time < time)) {
                programs.keep(code, modules, recording);
            }
            programs.follow(sideband, at, modules);
        }
        kept.for_each(|code| programs.keep(code, modules, recording));
        programs
    }

    fn keep(
        &mut self,
        code: &hodo_formats::recording::KeptCode<'f>,
        modules: &Modules<'f>,
        recording: &Recording<'f>,
    ) {
        let at = recording.config.clock.map_or(0, |clock| clock.ticks(code.time).0);
        let origin = Origin { module: modules.kept(), offset: code.address };
        let range = code.address..code.address.saturating_add(code.bytes.len() as u64);
        self.space(code.pid, at, modules).map(range, Content { bytes: code.bytes, origin }, at);
    }

    fn follow(&mut self, sideband: &Sideband<'f>, at: u64, modules: &Modules<'f>) {
        let pid = sideband.thread.pid;
        match &sideband.kind {
            SidebandKind::Map(mapping) if mapping.kernel || pid == KERNEL => {
                self.kernel.push((*mapping, at));
                self.spaces.iter_mut().for_each(|space| map(space, mapping, at, modules));
            }
            // What no file holds is kept as it ran by the emulated processor, and stays known.
            SidebandKind::Map(mapping) if self.keeps_code && !holds_file(mapping, modules) => {}
            SidebandKind::Map(mapping) => map(self.space(pid, at, modules), mapping, at, modules),
            SidebandKind::Fork { parent } if parent.pid != pid => {
                let child = self.space(parent.pid, at, modules).fork(at);
                self.start(pid, at, child);
            }
            SidebandKind::Comm { exec: true, .. } => {
                let fresh = self.with_kernel(modules);
                self.start(pid, at, fresh);
            }
            _ => {}
        }
    }

    fn start(&mut self, pid: u32, at: u64, space: AddressSpace<'f>) {
        let programs = self.by_process.entry(pid).or_default();
        // The first program of a process was there before anything is known of it.
        let since = if programs.is_empty() { 0 } else { at };
        programs.push((Tsc(since), self.spaces.len()));
        self.spaces.push(space);
    }

    /// An address space with nothing but the kernel.
    fn with_kernel(&self, modules: &Modules<'f>) -> AddressSpace<'f> {
        let mut space = AddressSpace::new();
        self.kernel.iter().for_each(|(mapping, at)| map(&mut space, mapping, *at, modules));
        space
    }

    /// The address space that a process has now.
    fn space(&mut self, pid: u32, at: u64, modules: &Modules<'f>) -> &mut AddressSpace<'f> {
        if !self.by_process.contains_key(&pid) {
            let fresh = self.with_kernel(modules);
            self.start(pid, at, fresh);
        }
        let index = self.by_process[&pid].last().expect("it was started").1;
        &mut self.spaces[index]
    }

    /// Who runs on a stream from when on. Threads are contexts: indexes into `threads`, which grows.
    pub(crate) fn schedule(
        &mut self,
        stream: &Stream<'_>,
        recording: &Recording<'_>,
        modules: &Modules<'f>,
        threads: &mut Vec<Thread>,
    ) -> Vec<Switch> {
        if let Some(thread) = stream.thread {
            self.space(thread.pid, 0, modules);
            return self.stints(thread, Tsc(0), Tsc(u64::MAX), threads);
        }
        let of_cpu = recording.of_host().filter(|sideband| sideband.cpu == stream.cpu);
        let switches = switches(of_cpu.map(|sideband| (ticks(recording, sideband), sideband)));
        for (_, thread) in &switches {
            self.space(thread.pid, 0, modules);
        }
        let ends = switches[1..].iter().map(|&(at, _)| at).chain([Tsc(u64::MAX)]).collect::<Vec<_>>();
        let stints = switches.iter().zip(ends);
        stints.flat_map(|(&(from, thread), to)| self.stints(thread, from, to, threads)).collect()
    }

    /// The programs of a thread's process, which has one, between two ticks.
    fn stints(&mut self, thread: Thread, from: Tsc, to: Tsc, threads: &mut Vec<Thread>) -> Vec<Switch> {
        let context = *self.contexts.entry(thread).or_insert_with(|| {
            threads.push(thread);
            threads.len() as u32 - 1
        });
        let programs = &self.by_process[&thread.pid];
        let first = programs.partition_point(|&(at, _)| at <= from).saturating_sub(1);
        let during = programs[first..].iter().take_while(|&&(at, _)| at < to);
        during.map(|&(at, program)| Switch { at: at.max(from), program, context }).collect()
    }
}

/// Nobody that is known.
const UNKNOWN: Thread = Thread { pid: 0, tid: 0 };

/// Who runs on a CPU from when on, by the CPU's own sideband; begins at tick 0 and is never empty.
///
/// A thread's stint begins when the one before it went: nothing of either is traced in between, or the
/// kernel's code only, and the trace's clock may lag behind the record that says "in". A thread whose
/// tracing begins while it runs has no such record.
fn switches<'s>(sideband: impl Iterator<Item = (u64, &'s Sideband<'s>)>) -> Vec<(Tsc, Thread)> {
    let mut switches: Vec<(Tsc, Thread)> = Vec::new();
    let mut left = None;
    for (at, Sideband { thread, kind, .. }) in sideband {
        let (since, runs) = match kind {
            SidebandKind::SwitchOut { next, .. } => {
                if switches.is_empty() {
                    switches.push((Tsc(0), *thread));
                }
                left = Some(at);
                let Some(next) = next else { continue };
                (at, *next)
            }
            SidebandKind::SwitchIn => (left.take().unwrap_or(at), *thread),
            SidebandKind::TraceStart => {
                left = None;
                (at, *thread)
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

fn ticks(recording: &Recording<'_>, sideband: &Sideband<'_>) -> u64 {
    let clock = recording.config.clock.filter(|_| recording.config.tsc);
    // The last tick stands for "never ends".
    clock.zip(sideband.time).map_or(0, |(clock, time)| clock.ticks(time).0.min(u64::MAX - 1))
}

fn holds_file(mapping: &Mapping<'_>, modules: &Modules<'_>) -> bool {
    is_file(&modules.list()[modules.of(mapping) as usize].name)
}

fn map<'f>(space: &mut AddressSpace<'f>, mapping: &Mapping<'f>, at: u64, modules: &Modules<'f>) {
    let module = modules.of(mapping);
    let file = modules.list()[module as usize].bytes;
    let offset = usize::try_from(mapping.file_offset).unwrap_or(usize::MAX).min(file.len());
    let origin = Origin { module, offset: mapping.file_offset };
    let range = mapping.address..mapping.address.saturating_add(mapping.length);
    space.map(range, Content { bytes: &file[offset..], origin }, at);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(tid: u32, kind: SidebandKind<'static>) -> Sideband<'static> {
        Sideband { time: None, cpu: Some(0), thread: Thread { pid: 1, tid }, guest: None, kind }
    }

    fn out(tid: u32, next: Option<u32>) -> Sideband<'static> {
        let next = next.map(|tid| Thread { pid: 1, tid });
        said(tid, SidebandKind::SwitchOut { preempted: false, next })
    }

    /// Ticks and threads of the stints.
    fn shown(sideband: &[(u64, Sideband<'static>)]) -> Vec<(u64, u32)> {
        let switches = switches(sideband.iter().map(|(at, sideband)| (*at, sideband)));
        switches.into_iter().map(|(at, thread)| (at.0, thread.tid)).collect()
    }

    #[test]
    fn a_stint_begins_when_the_thread_before_it_went() {
        let r#in = |tid| said(tid, SidebandKind::SwitchIn);
        assert_eq!(shown(&[]), [(0, 0)]);
        assert_eq!(shown(&[(5, r#in(7)), (9, out(7, None)), (20, r#in(8))]), [(0, 0), (5, 7), (9, 8)]);
        // Who goes first was there from the start; the same thread again is no switch.
        assert_eq!(
            shown(&[(5, out(7, None)), (9, r#in(7)), (12, out(7, None)), (15, r#in(8))]),
            [(0, 7), (12, 8)]
        );
        // The record that says "in" is lost, or says the same again.
        assert_eq!(
            shown(&[(5, out(7, Some(8))), (9, out(8, Some(9))), (10, r#in(9))]),
            [(0, 7), (5, 8), (9, 9)]
        );
        // Tracing began while the thread ran.
        let start = |tid| said(tid, SidebandKind::TraceStart);
        assert_eq!(
            shown(&[(3, start(7)), (9, out(7, None)), (10, start(8)), (12, r#in(9))]),
            [(0, 0), (3, 7), (10, 8), (12, 9)]
        );
        assert_eq!(shown(&[(9, r#in(7)), (0, r#in(8))]), [(0, 0), (9, 7), (9, 8)]);
    }
}

//! Walks over all packets once, and keeps where bundles are and what reading them depends on.

use std::collections::{BTreeMap, HashMap, btree_map::Entry};

use hodo_model::{Cause, Loss};

use super::{
    PACKET,
    bundle::{Bundle, Compact, Events, Running, UNKNOWN},
    packet,
    reader::Before,
    schema::{Survey, each},
    unpack::{self, MOST_GROWTH},
    wire::{Field, Fields},
};
use crate::{Input, events::schema::Environment};

/// The type of `sched_switch`, and its fields that name the thread that begins to run.
const SCHED_SWITCH: u32 = 4;
const NEXT_COMM: u32 = 5;
const NEXT_PID: u32 = 6;
/// Limit on the machines of a trace, each of which is a trace of its own.
const MOST_MACHINES: usize = 1 << 8;
/// Limit on the losses that are listed one by one.
const MOST_LOSSES: usize = 1 << 12;
/// Numbers of Perfetto's clocks.
const REALTIME: u64 = 1;
const BOOTTIME: u64 = 6;

/// A bundle, its place and its times.
#[derive(Clone, Debug)]
pub(super) struct Found<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) before: Before,
    /// The first and the last time of its events.
    pub(super) times: Option<(u64, u64)>,
}

/// The bundles of a CPU from one sequence of packets.
#[derive(Clone, Debug)]
pub(super) struct CpuBundles<'a> {
    pub(super) bundles: Vec<Found<'a>>,
    /// The thread that runs after the last.
    running: Running,
    /// Events that the kernel lost up to the beginning and the end of the trace.
    pub(super) lost: (u64, u64),
    pub(super) has_statistics: bool,
}

impl Default for CpuBundles<'_> {
    fn default() -> Self {
        CpuBundles { bundles: Vec::new(), running: Running::UNKNOWN, lost: (0, 0), has_statistics: false }
    }
}

/// What is known of a machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine<'a> {
    pub(super) survey: Survey,
    /// By CPU and sequence.
    pub(super) cpus: BTreeMap<(u32, u32), CpuBundles<'a>>,
    /// By sequence: whether packets were lost since the last bundle.
    sequences: HashMap<u32, bool>,
    /// Names of threads, of the process tree and of switches, and the processes of threads.
    pub(super) threads: BTreeMap<i64, Vec<u8>>,
    pub(super) switched: BTreeMap<i64, Vec<u8>>,
    pub(super) processes: BTreeMap<i64, i64>,
    /// The names in tables.
    pub(super) names: HashMap<Box<[u8]>, i64>,
    /// The kernel's functions.
    pub(super) symbols: BTreeMap<u64, Vec<u8>>,
    /// The clocks of bundles, and the instants that relate the first to the clock that counts from boot.
    pub(super) clocks: BTreeMap<u64, Option<(i64, i64)>>,
    /// Nanoseconds from 1970 to the boot.
    pub(super) unix_zero: Option<i128>,
    pub(super) environment: Vec<(String, Environment)>,
    pub(super) loss: Vec<Loss>,
}

/// The index of a trace.
#[derive(Debug, Default)]
pub(super) struct Index<'a> {
    pub(super) machines: BTreeMap<u32, Machine<'a>>,
    /// The number of packets that are not read, by the number of their field.
    pub(super) unread: BTreeMap<u32, u64>,
    pub(super) packets: u64,
    pub(super) loss: Vec<Loss>,
    /// What Perfetto's own buffers lost, at the end: chunks that were overwritten, and packets.
    pub(super) lost: (u64, u64),
    unpacked: usize,
}

/// The position of bytes: the number of their file, and their offset in it.
type FilePosition = (usize, usize);

/// The parts of a packet that matter to the reader.
#[derive(Clone, Copy, Debug, Default)]
struct Packet<'a> {
    machine: u32,
    sequence: u32,
    is_after_gap: bool,
    interned: Option<&'a [u8]>,
    data: Option<Field<'a>>,
}

impl<'a> Packet<'a> {
    fn read(bytes: &'a [u8]) -> Result<Packet<'a>, usize> {
        let (mut packet, mut fields) = (Packet::default(), Fields::new(bytes));
        while let Some(field) = fields.next()? {
            match (field.number, field.integer(), field.bytes()) {
                (packet::SEQUENCE_ID, Some(id), _) => packet.sequence = id as u32,
                (packet::MACHINE_ID, Some(id), _) => packet.machine = id as u32,
                (packet::PREVIOUS_DROPPED, Some(flags), _) => packet.is_after_gap = flags != 0,
                (packet::INTERNED_DATA, _, interned) => packet.interned = interned,
                (packet::TRACE_PACKET_DEFAULTS, ..) | (_, Some(_), _) => {}
                (_, None, _) => packet.data = Some(field),
            }
        }
        Ok(packet)
    }
}

/// `TraceStats`: how many chunks the buffers overwrote, and how many packets they or their writers lost.
fn buffers(statistics: &[u8]) -> (u64, u64) {
    const BUFFER_STATS: u32 = 1;
    let mut lost = (0u64, 0u64);
    each(statistics, |field| {
        let Some(buffer) = field.bytes().filter(|_| field.number == BUFFER_STATS) else { return };
        each(buffer, |part| match (part.number, part.integer().unwrap_or(0)) {
            // `chunks_overwritten`.
            (3, count) => lost.0 = lost.0.saturating_add(count),
            // `trace_writer_packet_loss` and `oversized_packets_dropped`.
            (19 | 22, count) => lost.1 = lost.1.saturating_add(count),
            _ => {}
        });
    });
    lost
}

/// Adds a loss; those after the most that are listed count as more of the last.
fn add(losses: &mut Vec<Loss>, loss: Loss) {
    match losses.len() < MOST_LOSSES {
        true => losses.push(loss),
        false => losses.last_mut().into_iter().for_each(|last| last.count += 1),
    }
}

impl<'a> Index<'a> {
    /// Indexes all packets of a file.
    pub(super) fn of(input: &Input<'a>) -> Index<'a> {
        let mut index = Index::default();
        index.walk(input, input.bytes, (0, 0), false);
        index
    }

    fn walk(&mut self, input: &Input<'a>, bytes: &'a [u8], (file, base): FilePosition, is_unpacked: bool) {
        let mut fields = Fields::new(bytes);
        loop {
            match fields.next() {
                Ok(None) => break,
                Ok(Some(field)) => {
                    let Some(packet) = field.bytes().filter(|_| field.number == PACKET) else { continue };
                    self.packets += 1;
                    self.packet(input, packet, (file, base + field.at), is_unpacked);
                }
                Err(at) => {
                    let reason = "a packet that extends beyond the end of the file, or that is none";
                    self.lose(Cause::CutShort, base + at..base + bytes.len(), reason.to_owned());
                }
            }
        }
    }

    fn lose(&mut self, cause: Cause, bytes: std::ops::Range<usize>, detail: String) {
        let bytes = bytes.start as u64..bytes.end as u64;
        add(
            &mut self.loss,
            Loss { stream: "packets".to_owned(), cause, bytes, time: None, count: 1, detail },
        );
    }

    fn packet(&mut self, input: &Input<'a>, bytes: &'a [u8], (file, base): FilePosition, is_unpacked: bool) {
        let packet = match Packet::read(bytes) {
            Ok(packet) => packet,
            Err(at) => {
                let reason = "a packet with a field that can't be read".to_owned();
                return self.lose(Cause::Corrupt, base + at..base + bytes.len(), reason);
            }
        };
        if self.machines.len() >= MOST_MACHINES && !self.machines.contains_key(&packet.machine) {
            let reason =
                format!("a packet of one more machine than {MOST_MACHINES}, number {}", packet.machine);
            return self.lose(Cause::Corrupt, base..base + bytes.len(), reason);
        }
        let machine = self.machines.entry(packet.machine).or_default();
        machine.gap(packet);
        packet.interned.into_iter().for_each(|interned| machine.intern(interned));
        let Some((field, data)) = packet.data.and_then(|field| Some((field, field.bytes()?))) else { return };
        let position = (file, base + field.at);
        match field.number {
            packet::FTRACE_EVENTS => machine.bundle(packet.sequence, data, position),
            packet::PROCESS_TREE => machine.process_tree(data),
            packet::CLOCK_SNAPSHOT => machine.clock_snapshot(data),
            packet::FTRACE_STATS => machine.statistics(packet.sequence, data),
            packet::SYSTEM_INFO => machine.system(data),
            packet::TRACE_STATS => self.lost = buffers(data),
            packet::COMPRESSED | packet::ZSTD_COMPRESSED if !is_unpacked => {
                self.unpack(input, field.number, data, position);
            }
            number => *self.unread.entry(number).or_default() += 1,
        }
    }

    fn unpack(&mut self, input: &Input<'a>, number: u32, data: &[u8], (_, at): FilePosition) {
        let is_too_much = self.unpacked / MOST_GROWTH > input.bytes.len();
        let unpacked = match is_too_much {
            true => Err("compressed packets become too large".to_owned()),
            false => unpack::unpack(number, data),
        };
        match unpacked {
            Ok(bytes) => {
                let position = (1, self.unpacked);
                self.unpacked += bytes.len();
                self.walk(input, input.unpacked.keep(bytes), position, true);
            }
            Err(reason) => {
                let detail = format!("compressed packets can't be unpacked: {reason}");
                self.lose(Cause::Corrupt, at..at + data.len(), detail);
            }
        }
    }
}

impl<'a> Machine<'a> {
    /// Notes that packets of a sequence were lost. Each sequence begins with such a packet.
    fn gap(&mut self, packet: Packet<'_>) {
        let is_first = !self.sequences.contains_key(&packet.sequence);
        let gap = self.sequences.entry(packet.sequence).or_default();
        if packet.is_after_gap && !is_first {
            *gap = true;
            let cpus = self.cpus.iter_mut().filter(|((_, sequence), _)| *sequence == packet.sequence);
            cpus.for_each(|(_, cpu)| cpu.running = Running::UNKNOWN);
        }
    }

    fn corrupt(&mut self, cpu: u32, (_, start): FilePosition, bytes: &[u8], detail: String) {
        let bytes = start as u64..(start + bytes.len()) as u64;
        let stream = format!("cpu {cpu}");
        add(&mut self.loss, Loss { stream, cause: Cause::Corrupt, bytes, time: None, count: 1, detail });
    }

    fn bundle(&mut self, sequence: u32, bytes: &'a [u8], position: FilePosition) {
        let bundle = match Bundle::read(bytes) {
            Ok(bundle) => bundle,
            Err(at) => {
                let detail = format!("a bundle of events can't be read from byte {at} of it on");
                return self.corrupt(0, position, bytes, detail);
            }
        };
        let times = self.events(bytes);
        bundle.descriptors.iter().for_each(|descriptor| self.survey.describe(descriptor));
        let instant = self.clocks.entry(bundle.clock).or_default();
        *instant = instant.or(bundle.instant.0.zip(bundle.instant.1));
        if bundle.errors > 0 {
            let detail = format!("Perfetto could not parse {} parts of the kernel's buffer", bundle.errors);
            self.corrupt(bundle.cpu, position, bytes, detail);
        }
        let is_after_gap = self.sequences.insert(sequence, false).unwrap_or(false);
        let cpu = self.cpus.entry((bundle.cpu, sequence)).or_default();
        if bundle.has_lost {
            cpu.running = Running::UNKNOWN;
        }
        let before = Before {
            position,
            running: cpu.running,
            lost: bundle.has_lost.then_some(0),
            is_after_gap,
            lost_after: 0,
        };
        let rows = bundle.compact.and_then(|table| self.rows((bundle.cpu, sequence), table, bytes, position));
        let times =
            [times, rows].into_iter().flatten().reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        if let (Some(cpu), true) =
            (self.cpus.get_mut(&(bundle.cpu, sequence)), times.is_some() || bundle.has_lost || is_after_gap)
        {
            cpu.bundles.push(Found { bytes, before, times });
        }
    }

    /// Surveys the events of a bundle. Returns their first and last time.
    fn events(&mut self, bytes: &'a [u8]) -> Option<(u64, u64)> {
        let (mut events, mut times) = (Events::new(bytes), None);
        loop {
            let head = match events.next() {
                Ok(Some(head)) => head,
                Ok(None) => return times,
                // The reader reports it.
                Err(_) => continue,
            };
            let own = &bytes[head.own.clone()];
            self.survey.see(head.kind, own);
            let (first, last) = times.unwrap_or((head.time, head.time));
            times = Some((first.min(head.time), last.max(head.time)));
            if head.kind == SCHED_SWITCH {
                let (mut pid, mut name) = (None, None);
                each(own, |field| match field.number {
                    NEXT_COMM => name = field.bytes(),
                    NEXT_PID => pid = field.integer(),
                    _ => {}
                });
                pid.zip(name).into_iter().for_each(|(pid, name)| self.switched(i64::from(pid as i32), name));
            }
        }
    }

    /// Keeps the first name of a thread. The idle threads of all CPUs have one id and different names.
    fn switched(&mut self, pid: i64, name: &[u8]) {
        if let Entry::Vacant(vacant) = self.switched.entry(pid)
            && pid != 0
        {
            vacant.insert(name.to_owned());
        }
    }

    /// Reads the table of a bundle. Returns the first and last time in it.
    fn rows(
        &mut self,
        key: (u32, u32),
        table: &'a [u8],
        bundle: &[u8],
        position: FilePosition,
    ) -> Option<(u64, u64)> {
        let mut rows = match Compact::read(table) {
            Ok(rows) => rows,
            Err(at) => {
                let detail = format!("a table of switches and wake-ups can't be read at byte {at} of it");
                self.corrupt(key.0, position, bundle, detail);
                return None;
            }
        };
        let names: Vec<&[u8]> = rows.names.clone();
        for name in &names {
            let next = self.names.len() as i64;
            if !self.names.contains_key(*name) {
                self.names.insert((*name).into(), next);
            }
        }
        let mut times = None;
        let mut see = |time: u64| {
            let (first, last) = times.unwrap_or((time, time));
            times = Some((first.min(time), last.max(time)));
        };
        let mut running = self.cpus.get(&key).map_or(Running::UNKNOWN, |cpu| cpu.running);
        // A column that is too short is reported by the reader.
        while let Ok(Some(switch)) = rows.switch() {
            see(switch.time);
            self.survey.rows.0 += 1;
            running = switch.next;
            let name = usize::try_from(running.name).ok().and_then(|index| names.get(index));
            running.name = name.map_or(UNKNOWN, |name| self.names[*name]);
            name.into_iter().for_each(|name| self.switched(running.pid, name));
        }
        while let Ok(Some(waking)) = rows.waking() {
            see(waking.time);
            self.survey.rows.1 += 1;
        }
        if let Some(cpu) = self.cpus.get_mut(&key) {
            cpu.running = running;
        }
        times
    }

    /// `InternedData`: the kernel's functions.
    fn intern(&mut self, interned: &[u8]) {
        const KERNEL_SYMBOLS: u32 = 26;
        each(interned, |field| {
            let Some(symbol) = field.bytes().filter(|_| field.number == KERNEL_SYMBOLS) else { return };
            let (mut id, mut name) = (None, None);
            each(symbol, |part| match part.number {
                1 => id = part.integer(),
                2 => name = part.bytes(),
                _ => {}
            });
            self.symbols.extend(id.zip(name).map(|(id, name)| (id, name.to_owned())));
        });
    }

    fn process_tree(&mut self, tree: &[u8]) {
        each(tree, |field| {
            let (mut id, mut process, mut name) = (None, None, None);
            let is_process = field.number == 1;
            let Some(entry) = field.bytes().filter(|_| field.number <= 2) else { return };
            each(entry, |part| match (is_process, part.number) {
                (_, 1) => id = part.integer().map(|id| i64::from(id as i32)),
                (false, 2) => name = part.bytes(),
                (false, 3) => process = part.integer().map(|id| i64::from(id as i32)),
                // The first argument of the command.
                (true, 3) if name.is_none() => name = part.bytes(),
                _ => {}
            });
            let Some(id) = id else { return };
            let process = if is_process { Some(id) } else { process };
            self.processes.extend(process.map(|process| (id, process)));
            let Some(name) = name.filter(|name| !name.is_empty()) else { return };
            match is_process {
                // A thread's own name is better than its process's command.
                true => drop(self.threads.entry(id).or_insert_with(|| name.to_owned())),
                false => drop(self.threads.insert(id, name.to_owned())),
            }
        });
    }

    fn clock_snapshot(&mut self, snapshot: &[u8]) {
        let (mut real, mut boot) = (None, None);
        each(snapshot, |field| {
            let Some(clock) = field.bytes().filter(|_| field.number == 1) else { return };
            let (mut id, mut time) = (0, None);
            each(clock, |part| match part.number {
                1 => id = part.integer().unwrap_or(0),
                2 => time = part.integer(),
                _ => {}
            });
            match id {
                REALTIME => real = time,
                BOOTTIME => boot = time,
                _ => {}
            }
        });
        if let (Some(real), Some(boot)) = (real, boot) {
            self.unix_zero.get_or_insert(i128::from(real) - i128::from(boot));
        }
    }

    /// `FtraceStats`: what the kernel counted for each CPU at the beginning and at the end.
    fn statistics(&mut self, sequence: u32, statistics: &[u8]) {
        const END_OF_TRACE: u64 = 2;
        let (mut phase, mut cpus) = (0, Vec::new());
        each(statistics, |field| match field.number {
            1 => phase = field.integer().unwrap_or(0),
            2 => {
                let (mut cpu, mut lost) = (0, 0u64);
                each(field.bytes().unwrap_or_default(), |part| match part.number {
                    1 => cpu = part.integer().unwrap_or(0) as u32,
                    // Overwritten, lost in a nested interrupt, and dropped.
                    3 | 4 | 8 => lost = lost.saturating_add(part.integer().unwrap_or(0)),
                    _ => {}
                });
                cpus.push((cpu, lost));
            }
            _ => {}
        });
        for (cpu, lost) in cpus {
            let cpu = self.cpus.entry((cpu, sequence)).or_default();
            cpu.has_statistics = true;
            let counter = if phase == END_OF_TRACE { &mut cpu.lost.1 } else { &mut cpu.lost.0 };
            *counter = lost;
        }
    }

    fn system(&mut self, system: &[u8]) {
        const UTSNAME: &[(u32, &str)] =
            &[(1, "sysname"), (2, "kernel_version"), (3, "kernel_release"), (4, "machine")];
        const OTHERS: &[(u32, &str)] =
            &[(2, "android_build_fingerprint"), (4, "tracing_service_version"), (17, "hostname")];
        let mut found = Vec::new();
        let mut add = |names: &[(u32, &str)], field: &Field<'_>| {
            let name = names.iter().find(|(number, _)| *number == field.number);
            let text = field.bytes().map(|text| String::from_utf8_lossy(text).into_owned());
            found.extend(
                name.zip(text).map(|((_, name), text)| ((*name).to_owned(), Environment::Text(text))),
            );
        };
        each(system, |field| match field.number {
            1 => each(field.bytes().unwrap_or_default(), |part| add(UTSNAME, &part)),
            _ => add(OTHERS, &field),
        });
        found.retain(|(name, _)| self.environment.iter().all(|(known, _)| known != name));
        self.environment.extend(found);
    }
}

//! Walks over all packets once, and keeps where bundles are and what reading them depends on.

use std::collections::{BTreeMap, HashMap, btree_map::Entry};

use hodo_model::{Cause, Loss};

use super::{
    FilePosition, PACKET,
    bundle::{Bundle, Compact, Events, Running, UNKNOWN},
    packet,
    reader::Context,
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

/// A bundle, its context and its times.
#[derive(Clone, Debug)]
pub(super) struct IndexedBundle<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) context: Context,
    pub(super) times: Option<Times>,
}

/// The first and the last time of events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Times {
    /// The times of events at these times and at `time`.
    fn with(times: Option<Times>, time: u64) -> Times {
        let Times { first, last } = times.unwrap_or(Times { first: time, last: time });
        Times { first: first.min(time), last: last.max(time) }
    }
}

/// A CPU in one sequence of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CpuKey {
    pub(super) cpu: u32,
    pub(super) sequence: u32,
}

/// The bundles of a CPU from one sequence of packets.
#[derive(Clone, Debug)]
pub(super) struct CpuBundles<'a> {
    pub(super) bundles: Vec<IndexedBundle<'a>>,
    /// The thread that runs after the last.
    running: Running,
    /// Events that the kernel lost up to the beginning of the trace.
    lost_before: u64,
    /// Events that the kernel lost up to the end of the trace.
    lost_by_end: u64,
    pub(super) has_statistics: bool,
}

impl Default for CpuBundles<'_> {
    fn default() -> Self {
        CpuBundles {
            bundles: Vec::new(),
            running: Running::UNKNOWN,
            lost_before: 0,
            lost_by_end: 0,
            has_statistics: false,
        }
    }
}

impl CpuBundles<'_> {
    /// The number of events that the kernel lost during the trace.
    pub(super) fn lost(&self) -> u64 {
        self.lost_by_end.saturating_sub(self.lost_before)
    }
}

/// What is known of a machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine<'a> {
    pub(super) survey: Survey,
    pub(super) cpus: BTreeMap<CpuKey, CpuBundles<'a>>,
    /// By sequence: whether packets were lost since the last bundle.
    has_gap: HashMap<u32, bool>,
    /// Names of threads, of the process tree and of switches, and the processes of threads.
    pub(super) threads: BTreeMap<i64, Vec<u8>>,
    pub(super) switched: BTreeMap<i64, Vec<u8>>,
    pub(super) processes: BTreeMap<i64, i64>,
    /// The names in tables.
    pub(super) names: HashMap<Box<[u8]>, i64>,
    /// The kernel's functions.
    pub(super) symbols: BTreeMap<u64, Vec<u8>>,
    /// The clocks of bundles, and what to add to their times to get those of the clock that counts from boot.
    pub(super) clocks: BTreeMap<u64, Option<i128>>,
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
    pub(super) lost: BufferLoss,
    unpacked: usize,
}

/// What Perfetto's own buffers lost, counted at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BufferLoss {
    /// Chunks that were overwritten.
    pub(super) chunks: u64,
    pub(super) packets: u64,
}

/// Whether packets come from compressed ones, which do not nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    File,
    Compressed,
}

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
fn buffer_loss(statistics: &[u8]) -> BufferLoss {
    const BUFFER_STATS: u32 = 1;
    let mut lost = BufferLoss::default();
    each(statistics, |field| {
        let Some(buffer) = field.bytes().filter(|_| field.number == BUFFER_STATS) else { return };
        each(buffer, |part| match (part.number, part.integer().unwrap_or(0)) {
            // `chunks_overwritten`.
            (3, count) => lost.chunks = lost.chunks.saturating_add(count),
            // `trace_writer_packet_loss` and `oversized_packets_dropped`.
            (19 | 22, count) => lost.packets = lost.packets.saturating_add(count),
            _ => {}
        });
    });
    lost
}

/// Adds a loss; those after the most that are listed count as more of the last.
fn add(losses: &mut Vec<Loss>, loss: Loss) {
    if losses.len() < MOST_LOSSES {
        losses.push(loss);
    } else if let Some(last) = losses.last_mut() {
        last.count += 1;
    }
}

impl<'a> Index<'a> {
    /// Indexes all packets of a file.
    pub(super) fn of(input: &Input<'a>) -> Index<'a> {
        let mut index = Index::default();
        index.walk(input, input.bytes, FilePosition { file: 0, offset: 0 }, Source::File);
        index
    }

    fn walk(&mut self, input: &Input<'a>, bytes: &'a [u8], position: FilePosition, source: Source) {
        let mut fields = Fields::new(bytes);
        loop {
            match fields.next() {
                Ok(None) => break,
                Ok(Some(field)) => {
                    let Some(packet) = field.bytes().filter(|_| field.number == PACKET) else { continue };
                    self.packets += 1;
                    self.packet(input, packet, position.plus(field.offset), source);
                }
                Err(offset) => {
                    let reason = "a packet that extends beyond the end of the file, or that is none";
                    let bytes = position.offset + offset..position.offset + bytes.len();
                    self.lose(Cause::CutShort, bytes, reason.to_owned());
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

    fn packet(&mut self, input: &Input<'a>, bytes: &'a [u8], position: FilePosition, source: Source) {
        let base = position.offset;
        let packet = match Packet::read(bytes) {
            Ok(packet) => packet,
            Err(offset) => {
                let reason = "a packet with a field that can't be read".to_owned();
                return self.lose(Cause::Corrupt, base + offset..base + bytes.len(), reason);
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
        let position = position.plus(field.offset);
        match field.number {
            packet::FTRACE_EVENTS => machine.bundle(packet.sequence, data, position),
            packet::PROCESS_TREE => machine.process_tree(data),
            packet::CLOCK_SNAPSHOT => machine.clock_snapshot(data),
            packet::FTRACE_STATS => machine.statistics(packet.sequence, data),
            packet::SYSTEM_INFO => machine.system(data),
            packet::TRACE_STATS => self.lost = buffer_loss(data),
            packet::COMPRESSED | packet::ZSTD_COMPRESSED if source == Source::File => {
                self.unpack(input, field.number, data, position.offset);
            }
            number => *self.unread.entry(number).or_default() += 1,
        }
    }

    fn unpack(&mut self, input: &Input<'a>, number: u32, data: &[u8], offset: usize) {
        let is_too_much = self.unpacked / MOST_GROWTH > input.bytes.len();
        let unpacked = if is_too_much {
            Err("compressed packets become too large".to_owned())
        } else {
            unpack::unpack(number, data)
        };
        match unpacked {
            Ok(bytes) => {
                let position = FilePosition { file: 1, offset: self.unpacked };
                self.unpacked += bytes.len();
                self.walk(input, input.unpacked.keep(bytes), position, Source::Compressed);
            }
            Err(reason) => {
                let detail = format!("compressed packets can't be unpacked: {reason}");
                self.lose(Cause::Corrupt, offset..offset + data.len(), detail);
            }
        }
    }
}

impl<'a> Machine<'a> {
    /// Notes that packets of a sequence were lost. Each sequence begins with such a packet.
    fn gap(&mut self, packet: Packet<'_>) {
        let is_first = !self.has_gap.contains_key(&packet.sequence);
        let has_gap = self.has_gap.entry(packet.sequence).or_default();
        if packet.is_after_gap && !is_first {
            *has_gap = true;
            let cpus = self.cpus.iter_mut().filter(|(key, _)| key.sequence == packet.sequence);
            cpus.for_each(|(_, cpu)| cpu.running = Running::UNKNOWN);
        }
    }

    fn corrupt(&mut self, cpu: u32, position: FilePosition, bytes: &[u8], detail: String) {
        let start = position.offset;
        let bytes = start as u64..(start + bytes.len()) as u64;
        let stream = format!("cpu {cpu}");
        add(&mut self.loss, Loss { stream, cause: Cause::Corrupt, bytes, time: None, count: 1, detail });
    }

    fn bundle(&mut self, sequence: u32, bytes: &'a [u8], position: FilePosition) {
        let bundle = match Bundle::read(bytes) {
            Ok(bundle) => bundle,
            Err(offset) => {
                let detail = format!("a bundle of events can't be read from byte {offset} of it on");
                return self.corrupt(0, position, bytes, detail);
            }
        };
        let times = self.events(bytes);
        bundle.descriptors.iter().for_each(|descriptor| self.survey.describe(descriptor));
        let to_boot = self.clocks.entry(bundle.clock).or_default();
        if to_boot.is_none() {
            let times = bundle.boot_time.zip(bundle.own_time);
            *to_boot = times.map(|(boot, own)| i128::from(boot) - i128::from(own));
        }
        if bundle.errors > 0 {
            let detail = format!("Perfetto could not parse {} parts of the kernel's buffer", bundle.errors);
            self.corrupt(bundle.cpu, position, bytes, detail);
        }
        let is_after_gap = self.has_gap.insert(sequence, false).unwrap_or(false);
        let key = CpuKey { cpu: bundle.cpu, sequence };
        let cpu = self.cpus.entry(key).or_default();
        if bundle.has_lost {
            cpu.running = Running::UNKNOWN;
        }
        let context = Context {
            position,
            running: cpu.running,
            lost: bundle.has_lost.then_some(0),
            is_after_gap,
            lost_after: 0,
        };
        let row_times = bundle.compact.and_then(|table| self.rows(key, table, bytes, position));
        let times = match (times, row_times) {
            (Some(times), Some(Times { first, last })) => {
                Some(Times::with(Some(Times::with(Some(times), first)), last))
            }
            (times, row_times) => times.or(row_times),
        };
        if times.is_some() || bundle.has_lost || is_after_gap {
            self.cpus.entry(key).or_default().bundles.push(IndexedBundle { bytes, context, times });
        }
    }

    /// Surveys the events of a bundle. Returns their times.
    fn events(&mut self, bytes: &'a [u8]) -> Option<Times> {
        let (mut events, mut times) = (Events::new(bytes), None);
        loop {
            let head = match events.next() {
                Ok(Some(head)) => head,
                Ok(None) => return times,
                // The reader reports it.
                Err(_) => continue,
            };
            let own = &bytes[head.own.clone()];
            self.survey.count(head.kind, own);
            times = Some(Times::with(times, head.time));
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

    /// Reads the table of a bundle. Returns the times in it.
    fn rows(&mut self, key: CpuKey, table: &'a [u8], bundle: &[u8], position: FilePosition) -> Option<Times> {
        let mut rows = match Compact::read(table) {
            Ok(rows) => rows,
            Err(offset) => {
                let detail = format!("a table of switches and wake-ups can't be read at byte {offset} of it");
                self.corrupt(key.cpu, position, bundle, detail);
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
        let mut running = self.cpus.get(&key).map_or(Running::UNKNOWN, |cpu| cpu.running);
        // A column that is too short is reported by the reader.
        while let Ok(Some(switch)) = rows.switch() {
            times = Some(Times::with(times, switch.time));
            self.survey.switches += 1;
            running = switch.next;
            let name = usize::try_from(running.name).ok().and_then(|index| names.get(index));
            running.name = name.map_or(UNKNOWN, |name| self.names[*name]);
            name.into_iter().for_each(|name| self.switched(running.pid, name));
        }
        while let Ok(Some(waking)) = rows.waking() {
            times = Some(Times::with(times, waking.time));
            self.survey.wakings += 1;
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
            // A thread's own name is better than its process's command.
            if !is_process || !self.threads.contains_key(&id) {
                self.threads.insert(id, name.to_owned());
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
            let cpu = self.cpus.entry(CpuKey { cpu, sequence }).or_default();
            cpu.has_statistics = true;
            let counter = if phase == END_OF_TRACE { &mut cpu.lost_by_end } else { &mut cpu.lost_before };
            *counter = lost;
        }
    }

    fn system(&mut self, system: &[u8]) {
        const UTSNAME: &[(u32, &str)] =
            &[(1, "sysname"), (2, "kernel_version"), (3, "kernel_release"), (4, "machine")];
        const OTHERS: &[(u32, &str)] =
            &[(2, "android_build_fingerprint"), (4, "tracing_service_version"), (17, "hostname")];
        let mut facts = Vec::new();
        let mut add = |names: &[(u32, &str)], field: &Field<'_>| {
            let name = names.iter().find(|(number, _)| *number == field.number);
            let text = field.bytes().map(|text| String::from_utf8_lossy(text).into_owned());
            facts.extend(
                name.zip(text).map(|((_, name), text)| ((*name).to_owned(), Environment::Text(text))),
            );
        };
        each(system, |field| match field.number {
            1 => each(field.bytes().unwrap_or_default(), |part| add(UTSNAME, &part)),
            _ => add(OTHERS, &field),
        });
        facts.retain(|(name, _)| self.environment.iter().all(|(known, _)| known != name));
        self.environment.extend(facts);
    }
}

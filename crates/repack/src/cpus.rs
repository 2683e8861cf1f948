//! One stream per CPU, as `perf record COMMAND` writes it: each thread is traced on any CPU.

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_formats::perf::layout::{feature, intel_pt_info, misc, record};

use crate::{
    RawRecord, Recorded,
    segments::{Segment, segments},
    words,
};

/// The id of the event on a CPU is this number plus the CPU's.
const FIRST_ID: u64 = 1;
/// Words of the trailer, counted from its end: thread, time, CPU, id.
const THREAD: usize = 4;
const TIME: usize = 3;
const CPU: usize = 2;
const ID: usize = 1;

/// A thread slice: one thread on one CPU.
struct TimeSlice {
    thread: (u32, u32),
    cpu: u32,
    from: Nanos,
    to: Nanos,
    segment: Segment,
}

/// Converts a recording of threads to one of CPUs, between which threads move at each PSB.
pub fn per_cpu(recorded: &Recorded) -> Recorded {
    let slices = schedule(recorded);
    let cpus = slices.iter().map(|slice| slice.cpu).max().map_or(0, |last| last + 1);
    let mut attrs = recorded.attrs.clone();
    attrs[0].1 = (0..u64::from(cpus)).map(|cpu| FIRST_ID + cpu).collect();
    let mut made = Recorded { attrs, records: Vec::new(), features: recorded.features.clone() };
    made.features.remove(&feature::EVENT_DESC);
    let mut timed: Vec<RawRecord> = Vec::new();
    for kept in &recorded.records {
        match kept.kind {
            record::AUXTRACE_INFO => made.records.push(info(kept)),
            record::ID_INDEX => made.records.push(id_index(cpus)),
            record::SWITCH | record::AUX | record::AUXTRACE | record::FINISHED_ROUND => {}
            record::ITRACE_START => timed.push(start(kept, &slices)),
            _ => timed.push(on_cpu(kept, 0)),
        }
    }
    timed.extend(slices.iter().flat_map(switches));
    timed.sort_by_key(|kept| kept.word_from_end(TIME));
    made.records.extend(timed);
    made.records.push(RawRecord::new(record::FINISHED_ROUND, 0, Vec::new()));
    (0..cpus).for_each(|cpu| made.records.extend(trace(&slices, cpu)));
    made
}

/// Assigns each segment to a CPU that has been idle, in rotation.
fn schedule(recorded: &Recorded) -> Vec<TimeSlice> {
    let clock = recorded.clock();
    let processes = recorded.processes();
    let mut segments: Vec<((u32, u32), u64, Segment)> = Vec::new();
    for (tid, trace) in recorded.traces() {
        let of_thread = self::segments(&trace);
        let ends: Vec<u64> =
            of_thread.iter().skip(1).map(|next| next.since).chain([exit(recorded, tid, clock)]).collect();
        let thread = (processes[&tid], tid);
        segments.extend(of_thread.into_iter().zip(ends).map(|(segment, end)| (thread, end, segment)));
    }
    segments.sort_by_key(|(_, _, segment)| segment.since);
    let mut free_at: Vec<u64> = vec![0; 2];
    let mut turn = 0;
    let slice = |(thread, end, segment): ((u32, u32), u64, Segment)| {
        turn += 1;
        let count = free_at.len();
        let mut by_turns = (0..count).map(|index| (index + turn) % count);
        let cpu = by_turns.find(|&cpu| free_at[cpu] <= segment.since).unwrap_or_else(|| {
            free_at.push(0);
            count
        });
        free_at[cpu] = end;
        let (from, to) = (clock.nanos(Tsc(segment.since)), clock.nanos(Tsc(end)));
        TimeSlice { thread, cpu: cpu as u32, from, to, segment }
    };
    segments.into_iter().map(slice).collect()
}

/// Returns the time at which a thread ended.
fn exit(recorded: &Recorded, tid: u32, clock: PerfClock) -> u64 {
    let mut exits = recorded.records.iter().filter(|kept| kept.kind == record::EXIT);
    let of_thread = exits.find(|kept| kept.word_from_end(THREAD) >> 32 == u64::from(tid));
    clock.ticks(Nanos(of_thread.expect("each thread ends").word_from_end(TIME))).0
}

fn info(kept: &RawRecord) -> RawRecord {
    let mut info = kept.clone();
    let mut set = |word: usize, value: u64| {
        info.body[8 + 8 * word..][..8].copy_from_slice(&value.to_le_bytes());
    };
    set(intel_pt_info::PER_CPU_MMAPS, 1);
    set(intel_pt_info::HAVE_SCHED_SWITCH, 2);
    info
}

fn id_index(cpus: u32) -> RawRecord {
    let entry = |cpu| [FIRST_ID + cpu, cpu, cpu, u32::MAX.into()];
    let entries: Vec<u64> = (0..u64::from(cpus)).flat_map(entry).collect();
    RawRecord::new(record::ID_INDEX, 0, [words(&[cpus.into()]), words(&entries)].concat())
}

fn on_cpu(kept: &RawRecord, cpu: u32) -> RawRecord {
    let mut moved = kept.clone();
    if kept.kind < record::USER_START {
        moved.set_word_from_end(CPU, cpu.into());
        moved.set_word_from_end(ID, FIRST_ID + u64::from(cpu));
    }
    moved
}

/// ITRACE_START, where and when the thread's first slice begins.
fn start(kept: &RawRecord, slices: &[TimeSlice]) -> RawRecord {
    let tid = (kept.word_from_end(THREAD) >> 32) as u32;
    let first = slices.iter().find(|slice| slice.thread.1 == tid).expect("a traced thread");
    let mut moved = on_cpu(kept, first.cpu);
    moved.set_word_from_end(TIME, first.from.0);
    moved
}

/// SWITCH records in and out.
fn switches(slice: &TimeSlice) -> [RawRecord; 2] {
    let record = |misc, time: Nanos| RawRecord::new(record::SWITCH, misc, trailer(slice, time));
    [record(misc::SWITCH_OUT, slice.to), record(0, slice.from)]
}

fn trailer(slice: &TimeSlice, time: Nanos) -> Vec<u8> {
    let (pid, tid) = slice.thread;
    let thread = u64::from(tid) << 32 | u64::from(pid);
    words(&[thread, time.0, slice.cpu.into(), FIRST_ID + u64::from(slice.cpu)])
}

/// AUX and AUXTRACE records of a CPU.
fn trace(slices: &[TimeSlice], cpu: u32) -> Vec<RawRecord> {
    let mut records = Vec::new();
    let mut bytes = Vec::new();
    for slice in slices.iter().filter(|slice| slice.cpu == cpu) {
        let own = words(&[bytes.len() as u64, slice.segment.bytes.len() as u64, 0]);
        records.push(RawRecord::new(record::AUX, 0, [own, trailer(slice, slice.to)].concat()));
        bytes.extend(&slice.segment.bytes);
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let first = slices.iter().find(|slice| slice.cpu == cpu).map_or(0, |slice| slice.segment.since);
    let who = [cpu, u32::MAX, cpu, 0].map(u32::to_le_bytes).concat();
    let body = [words(&[bytes.len() as u64, 0, first]), who].concat();
    records.push(RawRecord { behind: bytes, ..RawRecord::new(record::AUXTRACE, 0, body) });
    records
}

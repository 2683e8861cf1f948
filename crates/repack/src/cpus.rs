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

/// CPUs that are idle at the beginning.
const FIRST_CPUS: usize = 2;
/// `HAVE_SCHED_SWITCH` of a recording of CPUs: the kernel writes SWITCH records.
const SWITCH_RECORDS: u64 = 2;

/// A thread slice: one thread on one CPU.
struct TimeSlice {
    pid: u32,
    tid: u32,
    cpu: u32,
    from: Nanos,
    to: Nanos,
    /// `to` in ticks, the unit of `segment.since`.
    to_tsc: u64,
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
    let mut slices = Vec::new();
    for (tid, trace) in recorded.traces() {
        let segments = segments(&trace);
        let mut ends: Vec<u64> = segments.iter().skip(1).map(|next| next.since).collect();
        ends.push(exit_tsc(recorded, tid, clock));
        for (segment, to_tsc) in segments.into_iter().zip(ends) {
            let (from, to) = (clock.nanos(Tsc(segment.since)), clock.nanos(Tsc(to_tsc)));
            slices.push(TimeSlice { pid: processes[&tid], tid, cpu: 0, from, to, to_tsc, segment });
        }
    }
    slices.sort_by_key(|slice| slice.segment.since);
    let mut free_at: Vec<u64> = vec![0; FIRST_CPUS];
    for (turn, slice) in (1..).zip(&mut slices) {
        let count = free_at.len();
        let mut in_rotation = (0..count).map(|index| (index + turn) % count);
        let idle = in_rotation.find(|&cpu| free_at[cpu] <= slice.segment.since);
        let cpu = idle.unwrap_or_else(|| {
            free_at.push(0);
            count
        });
        free_at[cpu] = slice.to_tsc;
        slice.cpu = cpu as u32;
    }
    slices
}

/// Returns the time at which a thread ended, in ticks.
fn exit_tsc(recorded: &Recorded, tid: u32, clock: PerfClock) -> u64 {
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
    set(intel_pt_info::HAVE_SCHED_SWITCH, SWITCH_RECORDS);
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

/// ITRACE_START, moved to the CPU and the time at which the thread's first slice begins.
fn start(kept: &RawRecord, slices: &[TimeSlice]) -> RawRecord {
    let tid = (kept.word_from_end(THREAD) >> 32) as u32;
    let first = slices.iter().find(|slice| slice.tid == tid).expect("a traced thread");
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
    let thread = u64::from(slice.tid) << 32 | u64::from(slice.pid);
    words(&[thread, time.0, slice.cpu.into(), FIRST_ID + u64::from(slice.cpu)])
}

/// AUX and AUXTRACE records of a CPU.
fn trace(slices: &[TimeSlice], cpu: u32) -> Vec<RawRecord> {
    let mut records = Vec::new();
    let mut bytes = Vec::new();
    for slice in slices.iter().filter(|slice| slice.cpu == cpu) {
        let (offset, size, flags) = (bytes.len() as u64, slice.segment.bytes.len() as u64, 0);
        let body = [words(&[offset, size, flags]), trailer(slice, slice.to)].concat();
        records.push(RawRecord::new(record::AUX, 0, body));
        bytes.extend(&slice.segment.bytes);
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let first = slices.iter().find(|slice| slice.cpu == cpu).map_or(0, |slice| slice.segment.since);
    let (index, no_tid, reserved) = (cpu, u32::MAX, 0);
    let source = [index, no_tid, cpu, reserved].map(u32::to_le_bytes).concat();
    let (size, offset, reference) = (bytes.len() as u64, 0, first);
    let body = [words(&[size, offset, reference]), source].concat();
    records.push(RawRecord { trailing: bytes, ..RawRecord::new(record::AUXTRACE, 0, body) });
    records
}

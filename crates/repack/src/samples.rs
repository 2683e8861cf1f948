//! Trace in samples, as `perf record --aux-sample` writes it: each sample of another event contains the last bytes of
//! its thread's trace.

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_formats::perf::layout::{feature, misc, record, sample};
use hodo_intel_pt::packet::PSB;

use crate::{RawRecord, Recorded, segments::segments, words};

/// Bytes of trace per sample. More than [`BETWEEN`], so that samples overlap.
const IN_SAMPLE: usize = 6000;
/// Bytes of trace from one sample to the next.
const BETWEEN: usize = 4096;
/// `perf_event_attr.type` of software events, and its `config` for the CPU's clock.
const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
/// Offsets of fields in a `perf_event_attr`.
const TYPE: usize = 0;
const CONFIG: usize = 8;
const SAMPLE_TYPE: usize = 24;
const AUX_SAMPLE_SIZE: usize = 112;

/// Converts a recording to one with its trace in samples.
pub fn in_samples(recorded: &Recorded) -> Recorded {
    let (traced, ids) = recorded.attrs[0].clone();
    let first_id = ids.iter().max().map_or(1, |last| last + 1);
    let traces = recorded.traces();
    let sampling = (first_id..).take(traces.len()).collect::<Vec<_>>();
    let attrs = vec![(traced.clone(), ids), (sampling_attr(&traced), sampling.clone())];
    let mut made = Recorded { attrs, records: Vec::new(), features: recorded.features.clone() };
    made.features.remove(&feature::EVENT_DESC);
    made.features.remove(&feature::AUXTRACE);
    let entries: Vec<(u64, u32)> = sampling.into_iter().zip(traces.keys().copied()).collect();
    let mut samples: Vec<(u64, RawRecord)> = Vec::new();
    let processes = recorded.processes();
    for &(id, tid) in &entries {
        let thread = u64::from(tid) << 32 | u64::from(processes[&tid]);
        samples.extend(samples_of_thread(&traces[&tid], thread, id, recorded.clock()));
    }
    samples.sort_by_key(|&(time, _)| time);
    for raw in &recorded.records {
        match raw.kind {
            // perf reads the trace from samples when it meets AUXTRACE_INFO, and needs the ids before.
            record::ID_INDEX => made.records.insert(0, id_index(raw, &entries)),
            record::AUX | record::AUXTRACE => {}
            _ => made.records.push(raw.clone()),
        }
    }
    made.records.extend(samples.into_iter().map(|(_, raw)| raw));
    made
}

fn sampling_attr(traced: &[u8]) -> Vec<u8> {
    let mut attr = traced.to_vec();
    let mut set = |offset: usize, bytes: &[u8]| attr[offset..][..bytes.len()].copy_from_slice(bytes);
    let fields = sample::IP | sample::TID | sample::TIME | sample::CPU | sample::IDENTIFIER | sample::AUX;
    set(TYPE, &SOFTWARE.to_le_bytes());
    set(CONFIG, &CPU_CLOCK.to_le_bytes());
    set(SAMPLE_TYPE, &fields.to_le_bytes());
    set(AUX_SAMPLE_SIZE, &(IN_SAMPLE as u32).to_le_bytes());
    attr
}

/// The index with more entries: id, position in the list, no CPU, thread.
fn id_index(raw: &RawRecord, entries: &[(u64, u32)]) -> RawRecord {
    let mut body = raw.body.clone();
    let count = u64::from_le_bytes(body[..8].try_into().expect("eight bytes")) + entries.len() as u64;
    body[..8].copy_from_slice(&count.to_le_bytes());
    for (index, &(id, tid)) in entries.iter().enumerate() {
        body.extend(words(&[id, index as u64, u32::MAX.into(), tid.into()]));
    }
    RawRecord::new(record::ID_INDEX, 0, body)
}

/// The samples of a thread, each with its time: that of the last PSB before its end, plus its number, so that no two
/// times are equal. `thread` is the word of `sample::TID`.
fn samples_of_thread(trace: &[u8], thread: u64, id: u64, clock: PerfClock) -> Vec<(u64, RawRecord)> {
    let starts: Vec<Nanos> = segments(trace).iter().map(|segment| clock.nanos(Tsc(segment.since))).collect();
    let mut samples = Vec::new();
    let ends = (BETWEEN..trace.len()).step_by(BETWEEN).chain([trace.len()]);
    for (number, end) in (0..).zip(ends) {
        let psbs = trace[..end].windows(PSB.len()).filter(|window| *window == PSB).count();
        let time = starts[psbs - 1].0 + number;
        let aux = &trace[end.saturating_sub(IN_SAMPLE)..end];
        let (ip, cpu) = (0, 0);
        let mut body = words(&[id, ip, thread, time, cpu, aux.len().next_multiple_of(8) as u64]);
        body.extend(aux);
        samples.push((time, RawRecord::new(record::SAMPLE, misc::USER, body)));
    }
    samples
}

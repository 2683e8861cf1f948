//! Traces of Arm CoreSight in perf.data.

use hodo_etm::frames::frames_of;
use hodo_formats::{
    perf::layout::{NO_CPU, aux_flag, record},
    recording::{Recording, StreamKind},
};

use super::file::{Bytes, FIELDS, PerfFile, read, trailer};

const MAIN: (u32, u32) = (7, 7);

/// An AUXTRACE_INFO record of two CPUs with ETMv4, whose trace IDs are 10h and 12h; the second has a return stack.
fn two_units() -> PerfFile {
    let unit = |cpu: u64, config: u64| {
        let head = [0x4040_4040_4040_4040, cpu, 7];
        [&head[..], &[config, 0x10 + 2 * cpu, 0x2800_0ea1, 0x4100_f433, 0x488, 0, 0xcc]].concat()
    };
    let words = [vec![1, 8 << 32 | 2, 0], unit(0, 0x800), unit(1, 0x1800)].concat();
    let mut file = PerfFile::new(&[FIELDS]);
    file.record(record::AUXTRACE_INFO, 0, Bytes::new().u32([3, 0]).u64(words));
    file
}

/// The CPU, the thread, whether there is a return stack, and the pieces of each stream.
type Shown = (Option<u32>, Option<u32>, bool, Vec<(Vec<u8>, bool)>);

fn shown(recording: &Recording<'_>) -> Vec<Shown> {
    let streams = recording.streams.iter().map(|stream| {
        let StreamKind::Etm(config) = stream.kind else { panic!("{:?}", stream.kind) };
        let pieces = stream.pieces.iter().map(|piece| (piece.bytes.to_vec(), piece.after_gap)).collect();
        (stream.cpu, stream.thread.map(|thread| thread.tid), config.return_stack, pieces)
    });
    streams.collect()
}

#[test]
fn sources_of_a_shared_buffer_become_streams() {
    let (first, second): (Vec<u8>, Vec<u8>) = ((0..50).collect(), (100..117).collect());
    let frames = [frames_of(0x10, &first), frames_of(0x12, &second)].concat();
    let mut file = two_units();
    file.trace(7, NO_CPU, 0, &frames);
    let bytes = file.finish();
    let expected =
        [(None, Some(7), false, vec![(first, false)]), (None, Some(7), true, vec![(second.clone(), false)])];
    assert_eq!(shown(&read(&bytes).unwrap()), expected);
    // Of a CPU's buffer too, as several CPUs may share the memory that is written.
    let mut file = two_units();
    let again = frames_of(0x12, &second);
    file.trace(7, 0, 0, &frames).trace(7, 1, 0, &again);
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let cpus: Vec<_> = shown(&recording).into_iter().map(|stream| (stream.0, stream.3.len())).collect();
    assert_eq!(cpus, [(Some(0), 1), (Some(1), 2)]);
}

#[test]
fn bytes_of_one_source_need_no_frames() {
    let mut file = two_units();
    file.record(record::AUX, 0, Bytes::new().u64([0, 8, aux_flag::RAW]).raw(&trailer(MAIN, 5, 1, 1)));
    file.trace(7, 1, 0, &[9; 8]);
    let bytes = file.finish();
    assert_eq!(shown(&read(&bytes).unwrap()), [(Some(1), None, true, vec![(vec![9; 8], false)])]);
}

#[test]
fn the_kernel_names_the_trace_ids() {
    let mut file = two_units();
    file.record(record::AUX_OUTPUT_HW_ID, 0, Bytes::new().u64([0x22]).raw(&trailer(MAIN, 5, 1, 1)));
    file.trace(7, 0, 0, &frames_of(0x22, &[5; 15]));
    let bytes = file.finish();
    assert_eq!(shown(&read(&bytes).unwrap()), [(Some(1), None, true, vec![(vec![5; 15], false)])]);
}

#[test]
fn an_older_unit_is_refused() {
    let mut file = PerfFile::new(&[FIELDS]);
    let words = [1, 8 << 32 | 1, 0, 0x3030_3030_3030_3030, 0, 4, 0, 0x10, 0, 0];
    file.record(record::AUXTRACE_INFO, 0, Bytes::new().u32([3, 0]).u64(words)).trace(7, 0, 0, &[1; 16]);
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    assert!(recording.streams.is_empty());
    assert!(recording.loss[0].detail.contains("an ETMv4 or ETE"), "{}", recording.loss[0].detail);
}

//! Any bytes as a perf.data, or as the records of one: whatever is read, a file cut in half gives no
//! more, and memory stays in proportion.

#![no_main]

use std::mem::size_of;

use hodo_formats::{Input, Unpacked, perf, perf::layout::{PIPE_HEADER_SIZE, feature, record, sample}, recording::{Recording, Sideband}};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the tests of the reader use all of it")]
#[path = "../../crates/formats/tests/perf/file.rs"]
mod file;

fuzz_target!(|bytes: &[u8]| {
    let Some((&selection, rest)) = bytes.split_first() else { return };
    let whole = match selection % 6 {
        0 => [perf::layout::MAGIC, rest].concat(),
        1 => records(file::FIELDS, rest),
        2 => sections(rest),
        3 => pipe(rest),
        4 => compressed(rest),
        _ => records(sample::ALL, rest),
    };
    let unpacked = Unpacked::default();
    let Ok(read) = perf::read(&Input::file(&whole, &unpacked)) else { return };
    // What was unpacked may be more than the file has, and says so little that memory stays in proportion.
    if selection % 6 != 4 {
        check(&read, whole.len());
    }
    // An index of trace may show that records are damaged; `records` makes files without one.
    if let (1, Ok(half)) = (selection % 6, perf::read(&Input::file(&whole[..whole.len() / 2], &unpacked))) {
        assert!(half.sideband.len() <= read.sideband.len());
    }
});

/// A file with these records, of an event with these fields.
fn records(fields: u64, records: &[u8]) -> Vec<u8> {
    let mut made = file::PerfFile::new(&[fields]);
    made.settings(&file::Settings { snapshots: records.len() % 2 == 1, ..file::Settings::default() });
    made.records.extend_from_slice(records);
    made.finish()
}

/// The same as a pipe has them, behind an event.
fn pipe(records: &[u8]) -> Vec<u8> {
    let mut made = file::PerfFile::new(&[file::FIELDS]);
    let (attr, ids) = made.attrs[0].clone();
    made.record(record::HEADER_ATTR, 0, file::Bytes::new().raw(&attr).u64(ids));
    made.settings(&file::Settings::default());
    [&perf::layout::MAGIC[..], &PIPE_HEADER_SIZE.to_le_bytes(), &made.records, records].concat()
}

/// A file whose compressed records are these bytes.
fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut made = file::PerfFile::new(&[file::FIELDS]);
    for body in bytes.chunks(1 << 12) {
        made.record(record::COMPRESSED, 0, file::Bytes::new().raw(body));
    }
    made.finish()
}

/// A file with these bytes in each of its feature sections.
fn sections(bytes: &[u8]) -> Vec<u8> {
    let mut made = file::PerfFile::new(&[file::FIELDS]);
    made.settings(&file::Settings::default());
    let read = [
        feature::BUILD_ID,
        feature::NRCPUS,
        feature::CPUID,
        feature::CMDLINE,
        feature::EVENT_DESC,
        feature::HODOSCOPE,
        feature::TRACING_DATA,
        feature::BPF_PROG_INFO,
        feature::HYBRID_TOPOLOGY,
        feature::CLOCK_DATA,
    ];
    made.features.extend(read.map(|bit| (bit, bytes.to_vec())));
    made.finish()
}

fn check(recording: &Recording<'_>, length: usize) {
    assert!(recording.sideband.len() * size_of::<Sideband<'_>>() <= 16 * length);
    assert!(recording.loss.len() <= length / 8 + 8);
    for piece in recording.streams.iter().flat_map(|stream| &stream.pieces) {
        assert!(!piece.bytes.is_empty() && piece.file_offset + piece.bytes.len() as u64 <= length as u64);
    }
}

//! Truncated and modified files: nothing panics, and everything before the damage is reported.

use std::{mem::size_of, path::Path};

use hodo_formats::{
    perf,
    perf::layout::{NO_CPU, feature, misc, record},
    recording::{Mapping, Piece, Recording, Sideband, SidebandKind},
};
use hodo_model::{Cause, Loss};
use proptest::prelude::*;

use crate::file::{Bytes, FIELDS, PerfFile, Settings, read, trailer};

/// A recording of two threads with many kinds of records, in order of time.
fn small() -> PerfFile {
    let mut file = PerfFile::new(&[FIELDS, FIELDS]);
    let trailer_at = |time| trailer((7, 7), time, 0, 1);
    let mapping = Bytes::new().u32([7, 7]).u64([0x40_0000, 0x1000, 0]).u32([8, 1]).u64([5, 0]).u32([5, 2]);
    let task = || Bytes::new().u32([8, 7, 8, 7]).u64([0]);
    file.settings(&Settings { filter: "filter main @ /bin/ls", ..Settings::default() })
        .record(record::COMM, misc::COMM_EXEC, Bytes::new().u32([7, 7]).text("ls").raw(&trailer_at(10)))
        .record(record::MMAP2, misc::USER, mapping.text("/bin/ls").raw(&trailer_at(11)))
        .record(record::ITRACE_START, 0, Bytes::new().u32([7, 7]).raw(&trailer_at(12)))
        .trace(7, NO_CPU, 0, &[1; 61])
        .record(record::FORK, 0, task().raw(&trailer_at(13)))
        .record(record::SWITCH, misc::SWITCH_OUT, Bytes::new().raw(&trailer_at(14)))
        .trace(8, NO_CPU, 0, &[2; 40])
        .record(record::LOST, 0, Bytes::new().u64([1, 3]).raw(&trailer_at(15)))
        .trace(7, NO_CPU, 61, &[3; 24])
        .record(record::EXIT, 0, task().raw(&trailer_at(16)));
    file.features.insert(feature::CMDLINE, Bytes::new().u32([2]).counted_text("perf").counted_text("ls").0);
    file.features.insert(feature::CPUID, Bytes::new().counted_text("GenuineIntel,6,85,4").0);
    let json = br#"{"notes":{"engine":"q","frequency":1,"threads":[],"untraced":[]},"code":[]}"#;
    file.features.insert(feature::HODOSCOPE, Bytes::new().u32([json.len() as u32]).raw(json).0);
    file
}

/// The small recording, and recordings of the emulated processor.
fn recordings() -> Vec<Vec<u8>> {
    let mut recordings = vec![small().finish()];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pt");
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".data") {
            recordings.push(std::fs::read(path).unwrap());
        }
    }
    recordings
}

/// The sideband without build ids, which may come from a table after the records.
fn sideband<'a>(recording: &Recording<'a>) -> Vec<Sideband<'a>> {
    let mut sideband = recording.sideband.clone();
    for record in &mut sideband {
        if let SidebandKind::Map(Mapping { build_id, .. }) = &mut record.kind {
            *build_id = &[];
        }
    }
    sideband
}

/// Whether all of `part` is in `whole`, in the same order.
fn contains(whole: &[Sideband<'_>], part: &[Sideband<'_>]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|wanted| rest.any(|record| record == wanted))
}

/// Memory of a recording in bytes, besides its file.
fn weight(recording: &Recording<'_>) -> usize {
    let pieces: usize = recording.streams.iter().map(|stream| stream.pieces.len()).sum();
    let details: usize = recording.loss.iter().map(|loss| loss.detail.len() + loss.stream.len()).sum();
    let facts: usize = recording.facts.iter().map(|(_, fact)| fact.len()).sum();
    recording.sideband.len() * size_of::<Sideband<'_>>()
        + pieces * size_of::<Piece<'_>>()
        + recording.loss.len() * size_of::<Loss>()
        + details
        + facts
}

/// The content of a file before an offset.
#[derive(Default)]
struct Content {
    sideband_records: usize,
    trace_bytes: u64,
}

fn content_before(bytes: &[u8], end: u64) -> Content {
    let mut content = Content::default();
    for record in perf::File::open(bytes).unwrap().records().map(Result::unwrap) {
        let kernel =
            record.kind < record::USER_START && record.kind != record::AUX && record.kind != record::SAMPLE;
        if record.trailing_offset() <= end {
            content.sideband_records += usize::from(kernel);
            content.trace_bytes += (record.trailing.len() as u64).min(end - record.trailing_offset());
        }
    }
    content
}

fn check_cut(whole: &[u8], end: usize) {
    let data = perf::File::open(whole).unwrap().data;
    let Ok(cut) = read(&whole[..end]) else {
        assert!((end as u64) < data.start, "a file that is cut at {end} is not read");
        return;
    };
    let Content { sideband_records, trace_bytes: traced } = content_before(whole, end as u64);
    assert_eq!(cut.sideband.len(), sideband_records, "records before {end}");
    assert!(contains(&sideband(&read(whole).unwrap()), &sideband(&cut)), "records before {end}");
    let bytes: usize =
        cut.streams.iter().flat_map(|stream| &stream.pieces).map(|piece| piece.bytes.len()).sum();
    let pieces: usize = cut.streams.iter().map(|stream| stream.pieces.len()).sum();
    // Each piece is padded to a multiple of 8 bytes.
    assert!(bytes as u64 <= traced && traced - bytes as u64 <= 7 * pieces as u64, "trace bytes before {end}");
    let lost: Vec<Cause> = cut.loss.iter().map(|loss| loss.cause).collect();
    assert_eq!(lost.iter().filter(|cause| **cause == Cause::CutShort).count(), 1, "{lost:?} at {end}");
    assert!(!lost.contains(&Cause::Corrupt), "{:?} at {end}", cut.loss);
}

#[test]
fn a_file_cut_at_any_byte_gives_what_lies_before() {
    let whole = small().finish();
    assert_eq!(read(&whole).unwrap().loss.len(), 1, "the lost records");
    (0..whole.len()).for_each(|end| check_cut(&whole, end));
}

#[test]
fn any_changed_byte_leaves_what_lies_before() {
    let whole = small().finish();
    for position in 0..whole.len() {
        for mask in [1, 0x80, 0xff] {
            check_flips(&whole, &[(position, mask)]);
        }
    }
}

fn check_flips(whole: &[u8], flips: &[(usize, u8)]) {
    let mut bytes = whole.to_vec();
    flips.iter().for_each(|&(position, mask)| bytes[position] ^= mask);
    let damaged = read(&bytes);
    if let Ok(recording) = &damaged {
        assert!(weight(recording) < 64 * bytes.len() + 4096, "{} bytes", weight(recording));
    }
    let file = perf::File::open(whole).unwrap();
    let first = flips.iter().map(|&(position, _)| position as u64).min().unwrap_or(0);
    if first < file.data.start {
        return;
    }
    let offsets = file.records().map(|record| record.unwrap().offset);
    let intact = offsets.take_while(|&offset| offset <= first).last().unwrap_or(file.data.start);
    let expected = read(&whole[..intact as usize]).unwrap();
    assert!(
        contains(&sideband(&damaged.unwrap()), &sideband(&expected)),
        "before {intact:#x}, changed at {first:#x}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn recordings_that_are_cut_are_read(cut in any::<prop::sample::Index>()) {
        for whole in recordings() {
            check_cut(&whole, cut.index(whole.len()));
        }
    }

    #[test]
    fn recordings_that_are_damaged_are_read(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..8),
    ) {
        for whole in recordings() {
            let flips: Vec<_> = flips.iter().map(|(at, mask)| (at.index(whole.len()), *mask)).collect();
            check_flips(&whole, &flips);
        }
    }

    #[test]
    fn any_bytes_after_the_mark_are_read_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 104..400)) {
        bytes[..8].copy_from_slice(perf::layout::MAGIC);
        let _ = read(&bytes);
    }
}

#[test]
fn reading_goes_on_at_the_next_trace_that_the_index_knows() {
    let file = small();
    let mut bytes = file.finish();
    let start = (file.data_start() + file.traces[1]) as usize;
    // The record after an AUXTRACE record of 48 bytes and its 40 bytes of trace.
    let damaged = start + 48 + 40;
    bytes[damaged + 6..damaged + 8].fill(0);
    let recording = read(&bytes).unwrap();
    let loss = &recording.loss[0];
    assert_eq!(
        loss.detail,
        format!("offset {:#x}: the size of a record is 0x0; expected at least 8", damaged + 6)
    );
    assert_eq!(loss.bytes, damaged as u64..file.data_start() + file.traces[2]);
    assert_eq!(loss.cause, Cause::Corrupt);
    let lengths: Vec<_> = recording.streams[0].pieces.iter().map(|piece| piece.bytes.len()).collect();
    assert_eq!(lengths, [61, 24]);
    assert_eq!(recording.sideband.last().map(|record| &record.kind), Some(&SidebandKind::Exit));
}

#[test]
fn trace_whose_size_covers_later_records_is_cut_at_the_next_trace() {
    let file = small();
    let mut bytes = file.finish();
    let first = (file.data_start() + file.traces[0]) as usize;
    bytes[first + 8..first + 16].copy_from_slice(&u64::MAX.to_le_bytes());
    let recording = read(&bytes).unwrap();
    assert!(
        recording.loss[0].detail.contains("trace bytes of an AUXTRACE record"),
        "{}",
        recording.loss[0].detail
    );
    let second = &recording.streams[1].pieces[0];
    assert_eq!((second.bytes, second.after_gap), (&[2; 40][..], false));
    assert_eq!(recording.streams[0].pieces.last().map(|piece| piece.after_gap), Some(true));
}

#[test]
fn wrong_numbers_in_the_header_are_errors() {
    let error = |offset: usize, number: u64| {
        let mut bytes = small().finish();
        bytes[offset..offset + 8].copy_from_slice(&number.to_le_bytes());
        read(&bytes).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(
        error(8, 50),
        "offset 0x8: the size of the perf.data header is 0x32; expected 16 or at least 104"
    );
    assert_eq!(
        error(16, 7),
        "offset 0x10: the size of an event is 0x7; expected at least 80, and a divisor of their list's size"
    );
    assert_eq!(
        error(32, u64::MAX),
        "offset 0x20: the size of a section is 0xffffffffffffffff; expected a size within the file"
    );
    assert_eq!(
        error(24, 1 << 40),
        "offset 0x10000000000: perf.data list of events: 160 bytes expected, but only 0 are left"
    );
}

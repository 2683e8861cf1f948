//! Snapshots of OpenCSD, and raw buffers of CoreSight.

#![allow(missing_docs)]

use std::{collections::BTreeMap, fs, path::Path};

use hodo_etm::frames::frames_of;
use hodo_formats::{
    FORMATS, Input, OtherFile, Unpacked, coresight,
    recording::{Recording, SidebandKind, StreamKind},
};
use hodo_model::Cause;
use proptest::prelude::*;

const FOLDER: &str = "../../fixtures/arm/snapshot";

/// The files of a snapshot by name.
type Files = BTreeMap<String, Vec<u8>>;

fn fixture() -> Files {
    let entries = fs::read_dir(Path::new(FOLDER)).unwrap();
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Reads a snapshot, and passes it to `check`.
fn read(files: &Files, check: impl FnOnce(Result<Recording<'_>, String>)) {
    let unpacked = Unpacked::default();
    let others = files.iter().map(|(name, bytes)| OtherFile { name: name.clone(), bytes });
    let input = Input {
        others: others.collect(),
        folder: "place",
        ..Input::file(&files[coresight::FIRST_FILE], &unpacked)
    };
    check(hodo_formats::read(&input).map_err(|error| error.to_string()));
}

/// Process, thread, ID of the newest trace ID's settings, and bytes of each stream.
fn streams(recording: &Recording<'_>) -> Vec<(u32, u32, bool, usize)> {
    let streams = recording.streams.iter().map(|stream| {
        let StreamKind::Etm(config) = &stream.kind else { panic!("{:?}", stream.kind) };
        let thread = stream.thread.unwrap();
        let bytes = stream.pieces.iter().map(|piece| piece.bytes.len()).sum();
        (thread.pid, thread.tid, config.is_ete, bytes)
    });
    streams.collect()
}

fn replace(files: &mut Files, name: &str, from: &str, to: &str) {
    let text = String::from_utf8(files[name].clone()).unwrap();
    assert!(text.contains(from), "{text}");
    files.insert(name.to_owned(), text.replace(from, to).into_bytes());
}

#[test]
fn each_unit_of_each_buffer_is_a_stream_of_its_processor() {
    read(&fixture(), |read| {
        let read = read.unwrap();
        assert_eq!(streams(&read), [(0, 0, false, 1315), (0, 1, false, 1315)]);
        let facts: Vec<&str> = read.facts.iter().map(|(_, fact)| fact.as_str()).collect();
        assert!(
            facts.contains(
                &"ETB_0 (frames): ETM_0 (ETMv4, ID 10), STM_0 (STM: not read); not read: trace ID 20"
            )
        );
        assert!(facts.contains(&"ETB_1 (one unit): ETM_1 (ETMv4, ID 11)"), "{facts:?}");
        let names = read.sideband.iter().filter_map(|sideband| match sideband.kind {
            SidebandKind::Comm { name, .. } => Some((sideband.thread.tid, String::from_utf8_lossy(name))),
            _ => None,
        });
        assert_eq!(names.collect::<Vec<_>>(), [(0, "cpu_0".into()), (1, "cpu_1".into())]);
        let maps = read.sideband.iter().filter_map(|sideband| match &sideband.kind {
            SidebandKind::Map(mapping) => {
                Some((mapping.name, mapping.address, mapping.file_offset, mapping.length))
            }
            _ => None,
        });
        // Both processors have the same dump.
        assert_eq!(maps.collect::<Vec<_>>(), [(&b"place/code.bin"[..], 0x40_0078, 0x10, 0x7c)]);
        assert!(read.loss.is_empty() && read.config.clock.is_none());
    });
}

#[test]
fn the_files_that_a_snapshot_needs_are_named_by_it() {
    let files = fixture();
    let mut named = vec![coresight::FIRST_FILE.to_owned()];
    for index in 0.. {
        let Some(name) = named.get(index).cloned() else { break };
        named.extend(coresight::referenced(&files[&name]));
    }
    named.sort();
    named.dedup();
    assert_eq!(named, files.keys().cloned().collect::<Vec<_>>());
}

#[test]
fn processors_with_different_memory_are_different_processes() {
    let mut files = fixture();
    replace(&mut files, "cpu_1.ini", "0x400078", "0x800000");
    read(&files, |read| assert_eq!(streams(&read.unwrap()), [(0, 0, false, 1315), (1, 1, false, 1315)]));
    // In one buffer, all processors see all dumps.
    replace(&mut files, "trace.ini", "ETM_1=ETB_1", "ETM_1=ETB_0");
    read(&files, |read| {
        let read = read.unwrap();
        let maps = read.sideband.iter().filter(|sideband| matches!(sideband.kind, SidebandKind::Map(_)));
        assert_eq!(maps.map(|sideband| sideband.thread.pid).collect::<Vec<_>>(), [0, 0]);
    });
}

#[test]
fn sessions_of_one_processor_are_streams_with_settings_of_their_own() {
    let mut files = fixture();
    replace(&mut files, "etm_1.ini", "type=ETM4.3", "type=ETE");
    replace(&mut files, "trace.ini", "cpu_1=ETM_1", "cpu_0=ETM_1");
    read(&files, |read| assert_eq!(streams(&read.unwrap()), [(0, 0, false, 1315), (0, 0, true, 1315)]));
}

#[test]
fn what_is_missing_is_a_loss() {
    let mut files = fixture();
    files.remove("code.bin");
    files.remove("source.bin");
    read(&files, |read| {
        let losses = read.unwrap().loss;
        let shown: Vec<_> = losses.iter().map(|loss| (loss.cause, loss.detail.as_str())).collect();
        let expected = [
            (Cause::CutShort, "source.bin is missing in the snapshot"),
            (Cause::MissingCode, "code.bin is missing in the snapshot"),
        ];
        assert_eq!(shown, expected);
    });
}

#[test]
fn text_that_says_too_little_is_an_error() {
    let problem = |name: &str, from: &str, to: &str| {
        let mut files = fixture();
        replace(&mut files, name, from, to);
        let mut found = String::new();
        read(&files, |read| found = read.map(|_| String::new()).unwrap_or_else(|error| error));
        found
    };
    assert!(
        problem("etm_0.ini", "TRCIDR0", "TRCX").ends_with("etm_0.ini: ETM_0: register TRCIDR0 is missing")
    );
    assert!(problem("trace.ini", "format=coresight", "format=x").contains("format=x: expected coresight"));
    assert!(problem("snapshot.ini", "stm.ini", "none.ini").ends_with("none.ini is missing"));
    assert!(problem("cpu_0.ini", "0x400078\noff", "x\noff").contains("not a number"));
}

#[test]
fn the_frequency_of_timestamps_makes_a_clock() {
    let mut files = fixture();
    replace(&mut files, "trace.ini", "[trace_buffers]", "[timestamp]\nfrequency=25000000\n[trace_buffers]");
    read(&files, |read| {
        let clock = read.unwrap().config.clock.unwrap();
        assert_eq!(clock.nanos(hodo_clock::Tsc(25_000_000)).0, 1_000_000_000);
    });
}

#[test]
fn only_a_snapshot_is_recognised_as_one() {
    let names = |bytes: &[u8]| {
        let found = FORMATS.iter().filter(|format| (format.recognise)(bytes));
        found.map(|format| format.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&fixture()["snapshot.ini"]), ["snapshot of OpenCSD"]);
    assert_eq!(names(b"; old\n[device_list]\ndevice0=cpu.ini\n"), ["snapshot of OpenCSD"]);
    assert!(names(&fixture()["trace.ini"]).is_empty());
    assert!(names(b"[snapshot]\0").is_empty());
}

#[test]
fn frames_of_a_port_are_read_as_such() {
    let mut files = fixture();
    let bytes = files["source.bin"].clone();
    let mut sent = vec![0x12, 0x34, 0x56];
    for (number, frame) in frames_of(0x10, &bytes).chunks(16).enumerate() {
        if number % 7 == 0 {
            sent.extend([0xff, 0xff, 0xff, 0x7f]);
        }
        sent.extend(&frame[..6]);
        sent.extend([0xff, 0x7f]);
        sent.extend(&frame[6..]);
    }
    files.insert("frames.bin".to_owned(), sent);
    replace(&mut files, "trace.ini", "format=coresight", "format=dstream_coresight");
    read(&files, |read| assert_eq!(streams(&read.unwrap())[0], (0, 0, false, 1315)));
}

proptest! {
    #[test]
    fn damaged_snapshots_are_read_or_refused(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut files = fixture();
        let names: Vec<String> = files.keys().filter(|name| name.ends_with(".ini")).cloned().collect();
        for (file, at, byte) in damage {
            let text = files.get_mut(file.get(&names)).unwrap();
            let at = at.index(text.len());
            text[at] = byte;
        }
        read(&files, |_| {});
    }
}

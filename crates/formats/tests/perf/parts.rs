//! How the perf.data reader interprets each part of a file.

use crate::file::{Bytes, FIELDS, PerfFile, Settings, read, trailer};
use hodo_clock::{Nanos, PerfClock};
use hodo_formats::{
    FORMATS,
    perf::layout::{NO_CPU, aux_flag, feature, intel_pt_config, misc, record, sample},
    recording::{Recording, SidebandKind, Thread},
};
use hodo_intel_pt::Cpu;
use hodo_model::Cause;

const MAIN: (u32, u32) = (7, 7);

fn thread((pid, tid): (u32, u32)) -> Thread {
    Thread { pid, tid }
}

fn kinds<'a>(recording: &Recording<'a>) -> Vec<(Option<u64>, SidebandKind<'a>)> {
    let kind = |sideband: &hodo_formats::recording::Sideband<'a>| {
        (sideband.time.map(|Nanos(time)| time), sideband.kind.clone())
    };
    recording.sideband.iter().map(kind).collect()
}

#[test]
fn settings_of_the_trace_come_from_its_info_and_its_event() {
    let mut file = PerfFile::new(&[FIELDS]);
    file.settings(&Settings { zero: 1000, filter: "filter main @ /bin/ls", ..Settings::default() });
    file.features.insert(feature::CPUID, Bytes::new().counted_text("GenuineIntel,6,85,4").0);
    let bytes = file.finish();
    let config = read(&bytes).unwrap().config;
    assert_eq!(config.cpu, Some(Cpu { family: 6, model: 85, stepping: 4 }));
    assert_eq!((config.tsc, config.cyc, config.no_return_compression), (true, true, false));
    assert_eq!((config.mtc_frequency, config.tsc_ctc_ratio), (Some(3), Some((40, 1))));
    assert_eq!(config.max_nonturbo_ratio, Some(10));
    assert_eq!(config.filter, "filter main @ /bin/ls");
    assert_eq!(config.clock, PerfClock::new(10, 1024, 1000));
}

#[test]
fn a_setting_needs_its_bit_in_the_event() {
    let mut file = PerfFile::new(&[FIELDS]);
    file.settings(&Settings::default());
    let config = (intel_pt_config::NORETCOMP | intel_pt_config::BRANCH).to_le_bytes();
    file.attrs[0].0[8..16].copy_from_slice(&config);
    let bytes = file.finish();
    let config = read(&bytes).unwrap().config;
    assert_eq!((config.tsc, config.cyc, config.no_return_compression), (false, false, true));
    assert_eq!((config.mtc_frequency, config.filter.as_str()), (None, ""));
}

#[test]
fn records_become_sideband_in_order_of_time() {
    let mut file = PerfFile::new(&[FIELDS]);
    let trailer_at = |time| trailer(MAIN, time, 1, 1);
    let comm = |name| Bytes::new().u32([7, 7]).text(name);
    let task = || Bytes::new().u32([8, 7, 9, 7]).u64([999]);
    file.record(record::COMM, 0, comm("made-up").raw(&trailer((0, 0), 0, 0, 0)))
        .record(record::COMM, misc::COMM_EXEC, comm("ls").raw(&trailer_at(50)))
        .record(record::FORK, 0, task().raw(&trailer_at(40)))
        .record(
            record::SWITCH,
            misc::SWITCH_OUT | misc::SWITCH_OUT_PREEMPT,
            Bytes::new().raw(&trailer_at(60)),
        )
        .record(record::SWITCH_CPU_WIDE, 0, Bytes::new().u32([0, 0]).raw(&trailer_at(70)))
        .record(record::ITRACE_START, 0, Bytes::new().u32([7, 7]).raw(&trailer_at(30)))
        .record(record::EXIT, 0, task().raw(&trailer_at(80)))
        .record(200, 0, Bytes::new().raw(&trailer_at(1)));
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let expected = [
        (None, SidebandKind::Comm { name: b"made-up", exec: false }),
        (Some(30), SidebandKind::TraceStart),
        (Some(40), SidebandKind::Fork { parent: thread(MAIN) }),
        (Some(50), SidebandKind::Comm { name: b"ls", exec: true }),
        (Some(60), SidebandKind::SwitchOut { preempted: true, next: None }),
        (Some(70), SidebandKind::SwitchIn),
        (Some(80), SidebandKind::Exit),
    ];
    assert_eq!(kinds(&recording), expected);
    assert_eq!(recording.sideband[2].thread, thread((8, 9)));
    assert_eq!((recording.sideband[0].cpu, recording.sideband[1].cpu), (None, Some(1)));
    let counts = &recording.facts.iter().find(|(name, _)| *name == "records").unwrap().1;
    assert!(counts.ends_with("1 of unknown type 200"), "{counts}");
    assert_eq!(recording.loss, []);
}

#[test]
fn a_mapping_has_its_build_id_inline_or_from_the_table() {
    let mut file = PerfFile::new(&[FIELDS]);
    let mapping = || Bytes::new().u32([7, 7]).u64([0x40_0000, 0x1000, 0x2000]);
    let inode = || Bytes::new().u32([8, 1]).u64([5, 0]);
    let mut inline = vec![4, 0, 0, 0, 0xa, 0xb, 0xc, 0xd];
    inline.resize(24, 0);
    let map2 = |inode: &[u8]| mapping().raw(inode).u32([5, 2]).text("/bin/ls").raw(&trailer(MAIN, 5, 0, 1));
    file.record(record::MMAP2, misc::USER, map2(&inode().0))
        .record(record::MMAP2, misc::USER | misc::MMAP_BUILD_ID, map2(&inline))
        .record(record::MMAP2, misc::USER | misc::MMAP_DATA, map2(&inode().0))
        .record(record::MMAP, misc::KERNEL, mapping().text("[kernel]").raw(&trailer(MAIN, 5, 0, 1)));
    let table = Bytes::new().u32([7]).raw(&[0xee; 20]).u32([20]).text("/bin/ls");
    let size = (table.0.len() as u16 + 8).to_le_bytes();
    let header = Bytes::new().u32([0]).raw(&misc::USER.to_le_bytes()).raw(&size);
    file.features.insert(feature::BUILD_ID, header.raw(&table.0).0);
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let mappings = recording.sideband.iter().map(|sideband| match sideband.kind {
        SidebandKind::Map(mapping) => {
            (mapping.name, mapping.build_id.to_vec(), mapping.kernel, mapping.file_offset)
        }
        _ => unreachable!("only mappings were written"),
    });
    let expected: [(&[u8], Vec<u8>, bool, u64); 3] = [
        (b"/bin/ls", vec![0xee; 20], false, 0x2000),
        (b"/bin/ls", vec![0xa, 0xb, 0xc, 0xd], false, 0x2000),
        (b"[kernel]", vec![], true, 0x2000),
    ];
    assert_eq!(mappings.collect::<Vec<_>>(), expected);
}

#[test]
fn events_with_other_trailers_are_told_apart_by_id() {
    let no_time = sample::TID | sample::IDENTIFIER;
    let mut file = PerfFile::new(&[FIELDS, no_time]);
    let start = || Bytes::new().u32([7, 7]);
    file.record(record::ITRACE_START, 0, start().raw(&trailer(MAIN, 5, 2, 2))).record(
        record::ITRACE_START,
        0,
        start().u32([7, 7]).u64([102]),
    );
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let trailers: Vec<_> = recording.sideband.iter().map(|sideband| (sideband.time, sideband.cpu)).collect();
    assert_eq!(trailers, [(Some(Nanos(5)), Some(2)), (None, None)]);
}

#[test]
fn streams_of_threads_have_their_process() {
    let mut file = PerfFile::new(&[FIELDS]);
    file.settings(&Settings::default());
    file.record(record::ITRACE_START, 0, Bytes::new().u32([7, 9]).raw(&trailer((7, 9), 5, 0, 1)))
        .trace(9, NO_CPU, 0, &[1; 13])
        .trace(10, NO_CPU, 0, &[2; 8])
        .trace(9, NO_CPU, 13, &[3; 8]);
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let streams: Vec<_> = recording
        .streams
        .iter()
        .map(|stream| {
            (stream.thread, stream.pieces.iter().map(|piece| piece.bytes.len()).collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(streams, [(Some(thread((7, 9))), vec![13, 8]), (Some(thread((10, 10))), vec![8])]);
    let piece = recording.streams[0].pieces[1];
    assert_eq!(bytes[piece.file_offset as usize..][..8], [3; 8]);
    assert!(!piece.after_gap);
}

#[test]
fn a_truncated_buffer_and_lost_records_are_losses() {
    let mut file = PerfFile::new(&[FIELDS]);
    file.settings(&Settings { per_cpu: true, ..Settings::default() });
    let trailer = trailer(MAIN, 77, 3, 1);
    file.record(record::AUX, 0, Bytes::new().u64([0, 8, aux_flag::TRUNCATED]).raw(&trailer))
        .record(record::LOST, 0, Bytes::new().u64([1, 12]).raw(&trailer))
        .trace(0, 3, 0, &[1; 16]);
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let time = Some((Nanos(77), Nanos(77)));
    let losses: Vec<_> =
        recording.loss.iter().map(|loss| (&*loss.stream, loss.cause, loss.count, loss.time)).collect();
    assert_eq!(losses, [("cpu 3", Cause::Truncated, 1, time), ("cpu 3", Cause::Truncated, 12, time)]);
    let pieces: Vec<_> =
        recording.streams[0].pieces.iter().map(|piece| (piece.bytes.len(), piece.after_gap)).collect();
    assert_eq!(pieces, [(8, false), (8, true)]);
    assert_eq!(kinds(&recording), [(Some(77), SidebandKind::Lost { records: 12 })]);
}

#[test]
fn what_the_emulated_processor_adds_is_read() {
    let mut file = PerfFile::new(&[FIELDS]);
    file.settings(&Settings::default());
    let json = r#"{"notes":{"engine":"qemu","frequency":1000000000,"threads":[],"untraced":[]},
        "code":[{"pid":7,"time_ns":9,"address":4096,"length":3},{"pid":7,"time_ns":5,"address":64,"length":1}]}"#;
    let section = Bytes::new().u32([json.len() as u32]).raw(json.as_bytes()).raw(&[1, 2, 3, 4]);
    file.features.insert(feature::HODOSCOPE, section.0);
    let bytes = file.finish();
    let emulated = read(&bytes).unwrap().recorder.unwrap();
    assert_eq!((&*emulated.notes.engine, emulated.notes.frequency), ("qemu", 1_000_000_000));
    let code: Vec<_> = emulated.code.iter().map(|code| (code.time.0, code.address, code.bytes)).collect();
    assert_eq!(code, [(5, 64, &[4][..]), (9, 4096, &[1, 2, 3][..])]);
}

#[test]
fn a_damaged_section_is_a_loss() {
    let mut file = PerfFile::new(&[FIELDS]);
    file.settings(&Settings::default());
    file.features.insert(feature::HODOSCOPE, Bytes::new().u32([2]).raw(b"{]").0);
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    assert_eq!(recording.recorder.map(|emulated| emulated.notes), None);
    assert_eq!(recording.loss[0].cause, Cause::Corrupt);
    assert!(recording.loss[0].detail.contains("hodoscope section"), "{}", recording.loss[0].detail);
}

#[test]
fn the_errors_of_inputs_that_are_not_read_say_what_they_are() {
    let error = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let file = PerfFile::new(&[FIELDS]).finish();
    assert!(error(b"\x7fELF").contains("not a trace"));
    assert!(error(b"2ELIFREP").contains("big-endian"));
    assert!(error(b"PERFFILE").contains("2009"));
    assert_eq!(error(&file[..20]), "offset 0x10: perf.data header: 8 bytes expected, but only 4 are left");
}

#[test]
fn a_trace_of_another_kind_is_named_and_its_sideband_read() {
    let mut file = PerfFile::new(&[FIELDS]);
    file.record(record::AUXTRACE_INFO, 0, Bytes::new().u32([4, 0]).u64([0; 4]))
        .record(record::ITRACE_START, 0, Bytes::new().u32([7, 7]).raw(&trailer(MAIN, 5, 0, 1)))
        .trace(7, NO_CPU, 0, &[1; 8]);
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    assert_eq!((recording.streams.len(), recording.sideband.len()), (0, 1));
    assert!(recording.loss[0].detail.contains("Arm SPE"), "{}", recording.loss[0].detail);
}

#[test]
fn at_most_one_format_recognises_each_fixture() {
    let matches = |bytes: &[u8]| FORMATS.iter().filter(|format| (format.recognise)(bytes)).count();
    assert_eq!(matches(&PerfFile::new(&[FIELDS]).finish()), 1);
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let formats = matches(&std::fs::read(&path).unwrap());
            assert!(formats <= 1, "{} formats recognise {}", formats, path.display());
            let is_recording = path.extension().is_some_and(|extension| extension == "data");
            assert!(formats == 1 || !is_recording, "no format recognises {}", path.display());
        }
    }
}

//! Records and formats of newer perf versions, byte by byte.

use hodo_clock::{Nanos, PerfClock};
use hodo_formats::{
    Input, OtherFile, Unpacked, perf,
    perf::layout::{NO_CPU, PIPE_HEADER_SIZE, attr_flag, feature, ksymbol, misc, record, sample},
    recording::{Guest, KernelSymbol, RecordedEvent, Sideband, SidebandKind, TextPoke, Thread},
};
use hodo_model::Cause;

use crate::file::{Bytes, FIELDS, PMU, PerfFile, Settings, read, trailer};

const MAIN: (u32, u32) = (7, 7);

fn trailer_at(time: u64) -> Vec<u8> {
    trailer(MAIN, time, 1, 1)
}

fn kinds<'a>(sideband: &[Sideband<'a>]) -> Vec<SidebandKind<'a>> {
    sideband.iter().map(|sideband| sideband.kind.clone()).collect()
}

#[test]
fn the_kernel_records_how_its_code_changes() {
    let mut file = PerfFile::new(&[FIELDS, FIELDS]);
    let symbol = |flags: u16| {
        let kind_and_flags = [ksymbol::BPF, flags].map(u16::to_le_bytes).concat();
        Bytes::new().u64([0x1000]).u32([0x20]).raw(&kind_and_flags).text("bpf_prog_1")
    };
    let lengths_of_old_and_new = [5u16, 2].map(u16::to_le_bytes).concat();
    let poke = Bytes::new().u64([0x2000]).raw(&lengths_of_old_and_new).raw(b"abcdefg").raw(&[0; 5]);
    let load_and_flags = [1u16, 0].map(u16::to_le_bytes).concat();
    let loaded = Bytes::new().raw(&load_and_flags).u32([42]).raw(b"12345678");
    file.record(record::KSYMBOL, misc::KERNEL, symbol(0).raw(&trailer_at(1)))
        .record(record::BPF_EVENT, misc::KERNEL, loaded.raw(&trailer_at(2)))
        .record(record::TEXT_POKE, misc::KERNEL, poke.raw(&trailer_at(3)))
        .record(record::KSYMBOL, misc::KERNEL, symbol(ksymbol::UNREGISTER).raw(&trailer_at(4)))
        .record(record::THROTTLE, 0, Bytes::new().u64([5, 1, 1]).raw(&trailer_at(5)))
        .record(record::AUX_OUTPUT_HW_ID, 0, Bytes::new().u64([3]).raw(&trailer(MAIN, 6, 1, 102)));
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let symbol =
        KernelSymbol { address: 0x1000, length: 0x20, name: b"bpf_prog_1", bpf: true, dropped: false };
    let expected = [
        SidebandKind::KernelSymbol(symbol),
        SidebandKind::BpfProgram { id: 42, loaded: true, tag: b"12345678" },
        SidebandKind::TextPoke(TextPoke { address: 0x2000, old: b"abcde", new: b"fg" }),
        SidebandKind::KernelSymbol(KernelSymbol { dropped: true, ..symbol }),
        SidebandKind::Throttle { on: true },
        SidebandKind::HardwareId { id: 3, event: 1 },
    ];
    assert_eq!(kinds(&recording.sideband), expected);
    assert_eq!(recording.events.len(), 2);
    assert_eq!(
        recording.events[1],
        RecordedEvent { name: String::new(), pmu: PMU, ..recording.events[0].clone() }
    );
}

#[test]
fn guests_are_told_apart_by_the_mode_or_by_the_id() {
    let mut file = PerfFile::new(&[FIELDS]);
    let mapping = |pid| Bytes::new().u32([pid, pid]).u64([0x1000, 0x1000, 0]).text("[guest.kernel.kallsyms]");
    let entries = [[1, 0, 0, 7], [2, 1, 0, 7]].as_flattened().to_vec();
    let machines = [0, 0, 500, 3];
    file.record(record::ID_INDEX, 0, Bytes::new().u64([2]).u64(entries).u64(machines))
        .record(record::MMAP, misc::GUEST_KERNEL, mapping(400).raw(&trailer_at(1)))
        .record(record::COMM, 0, Bytes::new().u32([9, 9]).text("init").raw(&trailer((9, 9), 2, 0, 2)))
        .record(record::COMM, 0, Bytes::new().u32([7, 7]).text("host").raw(&trailer_at(3)));
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let guests: Vec<_> = recording.sideband.iter().map(|sideband| sideband.guest).collect();
    let by_mode = Guest { pid: 400, vcpu: None };
    assert_eq!(guests, [Some(by_mode), Some(Guest { pid: 500, vcpu: Some(3) }), None]);
    assert_eq!(recording.of_host().count(), 1);
}

/// A sample with every part that may precede its trace.
#[test]
fn the_trace_in_a_sample_follows_all_its_other_parts() {
    let fields = (sample::ALL & !sample::WEIGHT_STRUCT) | sample::AUX;
    let mut file = PerfFile::new(&[fields]);
    // read_format: group, both times, ids, losses. Two registers of user space and of the interrupt each, branches with an
    // index.
    let flags = attr_flag::SAMPLE_ID_ALL;
    let attr =
        Bytes::new().u32([PMU, 112]).u64([0, 1, fields, 0b11111, flags, 0, 0, 0, 1 << 17, 0b11, 0, 0b101, 0]);
    file.attrs[0].0 = attr.0[..64].to_vec();
    let body = Bytes::new()
        // The event's id, IP; process and thread; time, address, id, stream; CPU; period.
        .u64([1, 0xabc])
        .u32([7, 9])
        .u64([77, 0, 1, 1])
        .u32([2, 0])
        .u64([1])
        // Two counters: their number, both times; each counter's value, id and losses.
        .u64([2, 10, 11, 1, 1, 0, 2, 2, 0])
        // One address of a call chain; four raw bytes.
        .u64([1, 0xdef])
        .u32([4])
        .raw(b"rawx")
        // One branch: the number, the index; from, to and flags.
        .u64([1, 5, 1, 2, 3])
        // The ABI and two registers of user space; eight bytes of its stack, all of them used.
        .u64([2, 1, 2])
        .u64([8, 0, 8])
        // Weight, source of the data, transaction.
        .u64([6, 7, 8])
        // The ABI and two registers at the interrupt.
        .u64([2, 1, 2])
        // Physical address, control group, sizes of the pages of data and code.
        .u64([1, 2, 3, 4])
        // The trace.
        .u64([16])
        .raw(&[9; 16]);
    file.record(record::SAMPLE, misc::USER, body);
    let mut bytes = file.finish();
    // An attr of 64 bytes lacks the masks, so this replaces it by the longer one.
    let start = file.data_start() as usize - 80;
    bytes.splice(start..start + 64, attr.0.iter().copied());
    let grown = (attr.0.len() - 64) as u64;
    // In the file header: the size of an attr, the size of all attrs, the offset of the records.
    for (position, by) in [(16, grown), (32, grown), (40, grown)] {
        let old = u64::from_le_bytes(bytes[position..position + 8].try_into().unwrap());
        bytes[position..position + 8].copy_from_slice(&(old + by).to_le_bytes());
    }
    let recording = read(&bytes).unwrap();
    let stream = recording.streams.first().unwrap_or_else(|| panic!("{:?}", recording.loss));
    assert_eq!(stream.thread, Some(Thread { pid: 9, tid: 9 }));
    assert_eq!((stream.pieces[0].bytes, stream.pieces[0].after_gap), (&[9; 16][..], true));
    assert_eq!(bytes[stream.pieces[0].file_offset as usize..][..16], [9; 16]);
}

/// The beginning of `perf record -o -` output: the short header, and the event.
fn piped(records: &PerfFile) -> Vec<u8> {
    let mut pipe = PerfFile { records: Vec::new(), ..PerfFile::new(&[FIELDS]) };
    let (attr, ids) = pipe.attrs[0].clone();
    pipe.record(record::HEADER_ATTR, 0, Bytes::new().raw(&attr).u64(ids));
    [&b"PERFILE2"[..], &PIPE_HEADER_SIZE.to_le_bytes(), &pipe.records, &records.records].concat()
}

#[test]
fn a_pipe_has_its_events_features_and_build_ids_in_records() {
    let mut file = PerfFile::new(&[FIELDS]);
    let cpuid = Bytes::new().u64([feature::CPUID.into()]).counted_text("GenuineIntel,6,151,2");
    let map = Bytes::new().u32([7, 7]).u64([0x1000, 0x1000, 0]).text("/bin/ls");
    let build_id = Bytes::new().u32([7]).raw(&[0xee; 20]).u32([20]).text("/bin/ls");
    let name = Bytes::new().u64([2, 1]).text("intel_pt//u");
    file.settings(&Settings::default())
        .record(record::HEADER_FEATURE, 0, cpuid)
        .record(record::EVENT_UPDATE, 0, name)
        .record(record::TIME_CONV, 0, Bytes::new().u64([5, 32, 9]))
        .record(record::HEADER_TRACING_DATA, 0, Bytes::new().u32([16, 0]));
    file.records.extend([0; 16]);
    file.record(record::MMAP, misc::USER, map.raw(&trailer_at(5))).trace(7, NO_CPU, 0, &[1; 16]).record(
        record::HEADER_BUILD_ID,
        misc::USER | misc::BUILD_ID_SIZE,
        build_id,
    );
    let mut names = PerfFile::new(&[FIELDS]);
    names.records.clone_from(&file.records);
    let bytes = piped(&names);
    let recording = read(&bytes).unwrap();
    assert_eq!(recording.config.cpu.map(|cpu| cpu.model), Some(151));
    // The settings have their own clock, which takes precedence.
    assert_eq!(recording.config.clock, PerfClock::new(10, 1024, 0));
    let [Sideband { time: Some(Nanos(5)), kind: SidebandKind::Map(mapping), .. }] = recording.sideband[..]
    else {
        panic!("{:?}", recording.sideband);
    };
    assert_eq!(mapping.build_id, [0xee; 20]);
    assert_eq!(recording.streams[0].pieces[0].bytes, [1; 16]);
    assert_eq!(recording.loss, []);
}

#[test]
fn the_clock_of_its_own_record_serves_where_the_settings_have_none() {
    let mut file = PerfFile::new(&[FIELDS]);
    file.record(record::TIME_CONV, 0, Bytes::new().u64([5, 32, 9]));
    let bytes = file.finish();
    assert_eq!(read(&bytes).unwrap().config.clock, PerfClock::new(5, 32, 9));
}

#[test]
fn the_files_of_a_folder_are_read_one_after_the_other() {
    let mut first = PerfFile::new(&[FIELDS]);
    first.features.insert(feature::DIR_FORMAT, Bytes::new().u64([1]).0);
    first.record(record::FINISHED_INIT, 0, Bytes::new());
    let first = first.finish();
    let records = |time: u64| {
        let mut part = PerfFile::new(&[FIELDS]);
        part.record(record::ITRACE_START, 0, Bytes::new().u32([7, 7]).raw(&trailer_at(time)));
        part.records
    };
    let parts = [records(9), [records(5), vec![1, 2, 3]].concat()];
    let part = |(number, bytes): (usize, &'static [u8])| OtherFile { name: format!("data.{number}"), bytes };
    let parts = parts.map(|part| &*part.leak()).into_iter().enumerate().map(part).collect();
    let unpacked = Unpacked::default();
    let recording = perf::read(&Input { others: parts, ..Input::file(&first, &unpacked) }).unwrap();
    let times: Vec<_> = recording.sideband.iter().filter_map(|sideband| sideband.time).collect();
    assert_eq!(times, [Nanos(5), Nanos(9)]);
    assert_eq!(
        recording.loss[0].detail,
        "data.1: offset 0x30: record: 4 bytes expected, but only 3 are left"
    );
    let alone = read(&first).unwrap();
    assert_eq!((alone.loss[0].cause, alone.loss.len()), (Cause::CutShort, 1));
}

#[test]
fn flags_of_the_trace_buffer_are_losses_each_of_its_own() {
    let mut file = PerfFile::new(&[FIELDS]);
    file.settings(&Settings { per_cpu: true, ..Settings::default() });
    for flags in 0..16u64 {
        file.record(record::AUX, 0, Bytes::new().u64([0, 0, flags]).raw(&trailer_at(flags + 1)));
    }
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let count = |text: &str| recording.loss.iter().filter(|loss| loss.detail.contains(text)).count();
    assert_eq!((count("buffer was full"), count("virtual machine"), count("collided")), (8, 8, 8));
    assert_eq!(recording.loss.len(), 24);
    assert!(recording.loss.iter().all(|loss| loss.stream == "cpu 1"));
}

#[test]
fn unknown_records_and_fields_are_noted() {
    let mut file = PerfFile::new(&[FIELDS | 1 << 40]);
    file.record(63, 0, Bytes::new().raw(&trailer_at(1))).record(90, 0, Bytes::new());
    let bytes = file.finish();
    let recording = read(&bytes).unwrap();
    let fact = |name: &str| recording.facts.iter().find(|(fact, _)| *fact == name).unwrap().1.clone();
    assert_eq!(fact("records"), "1 of unknown type 63, 1 of unknown type 90");
    assert_eq!(fact("unknown fields of samples"), "0x10000000000");
    assert_eq!(recording.loss, []);
}

//! Files from the writer read back unchanged.

use std::io::Cursor;

use crate::file::read;
use hodo_clock::{Nanos, PerfClock};
use hodo_etm::{encoder::Settings, frames::frames_of};
use hodo_formats::{
    perf::layout::{CodeEntry, HodoscopeSection, intel_pt_config},
    perf::write::{Setup, Source, TraceUnit, Writer},
    recording::{KernelSymbol, Mapping, RecorderNotes, Sideband, SidebandKind, StreamKind, TextPoke, Thread},
};
use proptest::{collection::vec, prelude::*};

const THREADS: [Thread; 2] = [Thread { pid: 7, tid: 7 }, Thread { pid: 7, tid: 9 }];

/// A sideband record that owns its bytes: kind, two texts, numbers.
#[derive(Clone, Debug)]
struct Event {
    kind: u8,
    after: u64,
    thread: usize,
    flag: bool,
    name: Vec<u8>,
    build_id: Vec<u8>,
    numbers: [u64; 3],
}

fn event() -> impl Strategy<Value = Event> {
    let texts = (vec(1u8.., 0..40), vec(any::<u8>(), 0..=20));
    (0u8..13, 0u64..1000, 0usize..2, any::<bool>(), texts, any::<[u64; 3]>()).prop_map(
        |(kind, after, thread, flag, (name, build_id), numbers)| Event {
            kind,
            after,
            thread,
            flag,
            name,
            build_id,
            numbers,
        },
    )
}

fn kind(event: &Event) -> SidebandKind<'_> {
    let [address, length, file_offset] = event.numbers;
    let (name, build_id, kernel) = (&event.name[..], &event.build_id[..], event.flag);
    match event.kind {
        0 => SidebandKind::Map(Mapping { address, length, file_offset, name, build_id, kernel }),
        1 => SidebandKind::Comm { name, exec: event.flag },
        2 => SidebandKind::Fork { parent: Thread { pid: address as u32, tid: length as u32 } },
        3 => SidebandKind::Exit,
        4 => SidebandKind::SwitchIn,
        5 => SidebandKind::SwitchOut {
            preempted: event.flag,
            next: (address % 2 == 0).then_some(Thread { pid: length as u32, tid: file_offset as u32 }),
        },
        6 => SidebandKind::TraceStart,
        7 => SidebandKind::Lost { records: address },
        8 => SidebandKind::Throttle { on: event.flag },
        9 => {
            let (length, bpf, dropped) = (length & 0xffff_ffff, kernel, file_offset % 2 == 0);
            SidebandKind::KernelSymbol(KernelSymbol { address, length, name, bpf, dropped })
        }
        10 => SidebandKind::TextPoke(TextPoke { address, old: build_id, new: name }),
        11 => SidebandKind::BpfProgram { id: address as u32, loaded: event.flag, tag: b"12345678" },
        _ => SidebandKind::HardwareId { id: address, event: 0 },
    }
}

fn sideband(events: &[Event]) -> Vec<Sideband<'_>> {
    let mut time = 1;
    let sideband = events.iter().map(|event| {
        time += event.after;
        let (time, thread) = (Some(Nanos(time)), THREADS[event.thread]);
        Sideband { time, cpu: Some(0), thread, guest: None, kind: kind(event) }
    });
    sideband.collect()
}

fn setup(filter: &str) -> Setup<'_> {
    Setup {
        unit: TraceUnit::IntelPt,
        config: intel_pt_config::TSC | intel_pt_config::CYC | intel_pt_config::MTC | 5 << 14,
        clock: PerfClock::new(10, 1024, 77).unwrap(),
        tsc_ctc_ratio: (40, 1),
        max_nonturbo_ratio: 10,
        snapshot: false,
        filter,
        event: "intel_pt//u",
        command: &[],
        version: "1",
        host: "",
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_recording_is_read_as_it_was_written(
        events in vec(event(), 0..20),
        traces in vec((0usize..2, vec(any::<u8>(), 1..50)), 0..8),
        code in vec(vec(any::<u8>(), 0..20), 0..4),
        filter in "(filter [a-z]{1,9} @ /bin/[a-z]{1,9})?",
    ) {
        let sideband = sideband(&events);
        let mut writer = Writer::new(Cursor::new(Vec::new()), setup(&filter), THREADS.map(Source::Thread).to_vec()).unwrap();
        sideband.iter().for_each(|record| writer.sideband(record).unwrap());
        for (thread, bytes) in &traces {
            writer.trace(*thread, Nanos(9), bytes.len() as u64, &bytes[..]).unwrap();
        }
        let notes = RecorderNotes { engine: "q".to_owned(), frequency: 1, ..RecorderNotes::default() };
        let entry = |(index, bytes): (usize, &Vec<u8>)| {
            CodeEntry { pid: 7, guest: None, time_ns: index as u64, found_ns: Some(9), address: 4096, length: bytes.len() as u64 }
        };
        let section = HodoscopeSection {
            notes: notes.clone(),
            code: code.iter().enumerate().map(entry).collect(),
            kallsyms: 0,
        };
        let file = writer.finish(&section, &code.concat()[..]).unwrap().into_inner();

        let read = read(&file).unwrap();
        prop_assert_eq!(&read.sideband, &sideband);
        prop_assert_eq!(&read.config.filter, &filter);
        prop_assert_eq!((read.config.mtc_frequency, read.config.clock), (Some(5), PerfClock::new(10, 1024, 77)));
        for (index, thread) in THREADS.iter().enumerate() {
            let wanted: Vec<u8> =
                traces.iter().filter(|(owner, _)| *owner == index).flat_map(|(_, bytes)| bytes.clone()).collect();
            let stream = read.streams.iter().find(|stream| stream.thread.is_some_and(|owner| owner.tid == thread.tid));
            let pieces = stream.map(|stream| &stream.pieces[..]).unwrap_or_default();
            prop_assert!(pieces.iter().all(|piece| !piece.after_gap));
            let mut trace: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes).copied().collect();
            // The last piece's padding is indistinguishable from its bytes.
            prop_assert!(trace.len() < wanted.len() + 8);
            prop_assert!(trace.split_off(wanted.len().min(trace.len())).iter().all(|&byte| byte == 0));
            prop_assert_eq!(trace, wanted);
        }
        let emulated = read.recorder.unwrap();
        prop_assert_eq!(emulated.notes, notes);
        prop_assert_eq!(emulated.code.iter().map(|code| code.bytes.to_vec()).collect::<Vec<_>>(), code);
        let lost = sideband.iter().filter(|record| matches!(record.kind, SidebandKind::Lost { .. })).count();
        prop_assert_eq!(read.loss.len(), lost);
    }
}

#[test]
fn no_packet_lies_in_two_pieces() {
    let mut writer =
        Writer::new(Cursor::new(Vec::new()), setup(""), THREADS.map(Source::Thread).to_vec()).unwrap();
    let size = 40 << 20;
    writer.trace(0, Nanos(9), size, std::io::repeat(0x02)).unwrap();
    let file = writer.finish(&HodoscopeSection::default(), &[][..]).unwrap().into_inner();
    let read = read(&file).unwrap();
    let lengths: Vec<_> = read.streams[0].pieces.iter().map(|piece| piece.bytes.len() as u64).collect();
    assert_eq!(lengths, [size]);
}

/// A recording of the CPUs 0 and 3: a switch on each, and these bytes in two pieces.
fn of_cpus(unit: TraceUnit<'_>, traces: [[&[u8]; 2]; 2]) -> Vec<u8> {
    let setup = Setup { unit, event: "trace//", ..setup("") };
    let sources = [0, 3].map(Source::Cpu);
    let mut writer = Writer::new(Cursor::new(Vec::new()), setup, sources.to_vec()).unwrap();
    for event in switches() {
        writer.sideband(&event).unwrap();
    }
    for (source, pieces) in traces.iter().enumerate() {
        for bytes in pieces {
            writer.trace(source, Nanos(9), bytes.len() as u64, *bytes).unwrap();
        }
    }
    writer.finish(&HodoscopeSection::default(), &[][..]).unwrap().into_inner()
}

fn switches() -> [Sideband<'static>; 2] {
    [(0, 0), (3, 1)].map(|(cpu, from)| Sideband {
        time: Some(Nanos(5 + u64::from(cpu))),
        cpu: Some(cpu),
        thread: THREADS[from],
        guest: None,
        kind: SidebandKind::SwitchOut { preempted: false, next: Some(THREADS[1 - from]) },
    })
}

/// The trace units of CPUs write into frames, each with an ID of its own.
#[test]
fn each_cpu_has_a_trace_unit() {
    for is_ete in [false, true] {
        let settings = Settings { return_stack: true, context_ids: true, is_ete, ..Settings::default() };
        let unit = TraceUnit::CoreSight(settings.registers());
        let ids = [0, 3].map(|cpu| unit.trace_id(cpu).unwrap());
        assert_eq!(ids, [0x10, 0x13]);
        let bytes: [[Vec<u8>; 2]; 2] = [[vec![1; 20], vec![2; 3]], [vec![3; 7], vec![4; 40]]];
        let framed = [0, 1].map(|cpu| [0, 1].map(|piece| frames_of(ids[cpu], &bytes[cpu][piece])));
        let file = of_cpus(unit, framed.each_ref().map(|pieces| pieces.each_ref().map(|piece| &piece[..])));

        let recording = read(&file).unwrap();
        assert_eq!(recording.sideband, switches());
        assert_eq!((recording.config.tsc, recording.config.clock), (true, PerfClock::new(10, 1024, 77)));
        // The event's contextid, contextid2, timestamp and retstack.
        assert_eq!(recording.events[0].config, 1 << 14 | 1 << 15 | 1 << 28 | 1 << 29);
        assert_eq!(recording.streams.len(), 2);
        for ((stream, cpu), bytes) in recording.streams.iter().zip([0, 3]).zip(&bytes) {
            assert_eq!((stream.cpu, stream.thread), (Some(cpu), None));
            let StreamKind::Etm(config) = stream.kind else { panic!("{:?}", stream.kind) };
            assert_eq!(config, settings.config());
            let pieces: Vec<u8> = stream.pieces.iter().flat_map(|piece| piece.bytes).copied().collect();
            assert_eq!(pieces, bytes.concat());
        }
    }
}

#[test]
fn there_are_not_more_cpus_than_trace_ids() {
    let unit = TraceUnit::CoreSight(Settings::default().registers());
    let started = |cpu| {
        let setup = Setup { unit, ..setup("") };
        Writer::new(Cursor::new(Vec::new()), setup, vec![Source::Cpu(0), Source::Cpu(cpu)]).map(|_| ())
    };
    assert!(started(95).is_ok());
    assert!(started(96).unwrap_err().to_string().contains("CPU 96 has no trace ID"));
}

#[test]
fn the_harts_of_a_recording_have_the_same_settings() {
    let unit = TraceUnit::RiscV("[transport]\nkind = \"encapsulation\"\ntime_bytes = 6\n");
    let file = of_cpus(unit, [[&[1; 8], &[2; 16]], [&[3; 8], &[4; 8]]]);
    let recording = read(&file).unwrap();
    assert!(recording.config.tsc);
    let cpus: Vec<_> = recording.streams.iter().map(|stream| stream.cpu).collect();
    assert_eq!(cpus, [Some(0), Some(3)]);
    let StreamKind::RiscV(settings) = &recording.streams[1].kind else { panic!() };
    assert!(format!("{settings:?}").contains("time_bytes: 6"), "{settings:?}");
}

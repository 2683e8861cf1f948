//! Files from the writer read back unchanged.

use std::io::Cursor;

use crate::file::read;
use hodo_clock::{Nanos, PerfClock};
use hodo_formats::{
    perf::layout::{CodeEntry, HodoscopeSection, intel_pt_config},
    perf::write::{Setup, Source, TraceUnit, Writer},
    recording::{KernelSymbol, Mapping, RecorderNotes, Sideband, SidebandKind, TextPoke, Thread},
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

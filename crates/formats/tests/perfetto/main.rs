//! Perfetto tests: packets, bundles and every kind of event, and damaged files.

#[path = "../ctf/anew.rs"]
mod anew;
mod packets;
#[allow(dead_code, reason = "the tests of CTF use all of it")]
#[path = "../ctf/show.rs"]
mod show;

use std::io::Write;

use anew::{read_back, written};
use flate2::{Compression, write::ZlibEncoder};
use hodo_formats::ctf::write::Version;
use hodo_formats::events::Trace;
use hodo_formats::perfetto::{self, recognise};
use hodo_formats::{ClockIdentity, ClockKind, FORMATS, Input, Unpacked};
use packets::{Switch, bundle, bytes, event, integer, message, packed, packet, switches};
use proptest::prelude::*;

/// Calls `check` with the traces of a file.
fn with<R>(file: &[u8], check: impl FnOnce(&[Trace<'_>]) -> R) -> R {
    let unpacked = Unpacked::default();
    let traces = perfetto::read(&Input::file(file, &unpacked)).unwrap_or_else(|error| panic!("{error}"));
    check(&traces)
}

fn lines(file: &[u8]) -> Vec<String> {
    with(file, |traces| traces.iter().flat_map(show::read).collect())
}

fn refused(file: &[u8]) -> String {
    let unpacked = Unpacked::default();
    let read = perfetto::read(&Input::file(file, &unpacked)).map(|_: Vec<Trace<'_>>| ());
    read.expect_err("it can't be read").to_string()
}

fn text(number: u32, text: &str) -> Vec<u8> {
    bytes(number, text.as_bytes())
}

/// A process with two threads.
fn tree() -> Vec<u8> {
    let threads = [(7, "main"), (8, "render")];
    let threads = threads.map(|(id, name)| message(2, &[integer(1, id), text(2, name), integer(3, 7)]));
    packet(&[message(2, &[&[message(1, &[integer(1, 7), text(3, "/bin/app")])][..], &threads].concat())])
}

/// Events with messages, a table, a generic event, one that the bundle describes, and one of an unknown type.
fn each_kind() -> Vec<u8> {
    let descriptor = [
        text(1, "kprobe_open"),
        message(2, &[text(1, "flags"), integer(3, 2), integer(5, 5)]),
        message(2, &[text(1, "path"), integer(3, 3), integer(5, 9)]),
    ];
    let generic = |value| [text(1, "my_event"), message(2, &[text(1, "level"), integer(4, value)])];
    let events = [
        event(100, 329, &[integer(1, 257), integer(2, -100), integer(2, 5)]),
        event(110, 330, &[integer(1, 257), integer(2, -2)]),
        event(130, 36, &[integer(1, 9), text(2, "eth0")]),
        event(140, 327, &generic(-3)),
        event(150, 70000, &[integer(2, -1), text(3, "/etc")]),
        event(160, 9999, &[integer(1, 1)]),
        message(2, &[integer(1, 170), integer(5, 4), message(4, &[text(1, "a"), integer(6, 8)])]),
        message(11, &[integer(1, 70000), bytes(2, &descriptor.concat())]),
        switches(
            &[
                Switch { time: 120, state: 1, next: 8, priority: 120, name: 0 },
                Switch { time: 135, state: 0, next: 7, priority: 100, name: 1 },
            ],
            &["render", "main"],
        ),
    ];
    [tree(), bundle(2, &events)].concat()
}

#[test]
fn each_kind_of_event_is_read_in_order_of_time() {
    let common = "comm=\"main\" common_flags=none common_pid=7 pid=7";
    let unknown = "comm=none common_flags=none common_pid=none pid=none";
    assert_eq!(
        lines(&each_kind()),
        [
            format!("100 sys_enter {common} id=257 args=[ 18446744073709551516 5 ]"),
            format!("110 sys_exit {common} id=257 ret=-2"),
            // The thread that ran before the first switch is not known.
            format!(
                "120 sched_switch {unknown} prev_comm=none prev_pid=none prev_prio=none prev_state=1 \
                 next_comm=\"render\" next_pid=8 next_prio=120"
            ),
            format!("130 irq_handler_entry {common} irq=9 name=\"eth0\" handler=none"),
            "135 sched_switch comm=\"render\" common_flags=none common_pid=8 pid=7 prev_comm=\"render\" prev_pid=8 \
             prev_prio=120 prev_state=0 next_comm=\"main\" next_pid=7 next_prio=100"
                .to_owned(),
            format!("140 my_event {common} level=-3"),
            format!("150 kprobe_open {common} flags=-1 path=\"/etc\""),
            format!("160 unknown_9999 {common} fields=[8, 1]"),
            "170 sched_switch comm=none common_flags=4 common_pid=none pid=none prev_comm=\"a\" prev_pid=none \
             prev_prio=none prev_state=none next_comm=none next_pid=8 next_prio=none"
                .to_owned(),
        ]
    );
    with(&each_kind(), |traces| {
        assert_eq!(traces[0].format(), "Perfetto");
        let note = "events of a type that is not known, field 9999, are shown as `unknown_9999`: 1";
        assert_eq!(traces[0].notes, [("events".to_owned(), note.to_owned())]);
    });
}

#[test]
fn packets_may_be_compressed() {
    let plain = each_kind();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&plain).unwrap();
    let zlib = message(1, &[bytes(50, &encoder.finish().unwrap())]);
    let fastest = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = message(1, &[bytes(133, &ruzstd::encoding::compress_to_vec(&plain[..], fastest))]);
    for packed in [zlib, zstd] {
        assert!(recognise(&packed) || packed[1..].contains(&0xaa));
        assert_eq!(lines(&packed), lines(&plain));
    }
    let damaged = message(1, &[bytes(50, b"not zlib")]);
    let read = lines(&[&plain[..], &damaged].concat());
    assert_eq!(read[..9], lines(&plain));
    assert!(read[9].contains("compressed packets can't be unpacked"), "{read:?}");
    // Packets that are compressed twice are not read: any growth would be possible.
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&message(1, &[bytes(50, &[1; 100])])).unwrap();
    let twice = message(1, &[bytes(50, &encoder.finish().unwrap())]);
    assert!(refused(&twice).contains("1 of field 50"), "{}", refused(&twice));
}

#[test]
fn names_and_running_threads_last_from_one_bundle_to_the_next() {
    let to_render = Switch { time: 10, state: 0, next: 8, priority: 120, name: 0 };
    let to_main = || switches(&[Switch { time: 30, state: 1, next: 7, priority: 100, name: 0 }], &["main"]);
    let first = bundle(0, &[switches(&[to_render], &["render"])]);
    let second = || bundle(0, &[to_main()]);
    let read = lines(&[first.clone(), second()].concat());
    assert!(read[1].contains("prev_comm=\"render\" prev_pid=8 prev_prio=120 prev_state=1"), "{read:?}");
    // Where events or packets were lost, the running thread is unknown.
    let lost = bundle(0, &[integer(3, 1), to_main()]);
    let read = lines(&[first.clone(), lost].concat());
    assert_eq!(read[1], "30 lost 0");
    assert!(read[2].contains("prev_comm=none prev_pid=none"), "{read:?}");
    assert!(read[3].contains("events were lost before a bundle; their number is unknown"), "{read:?}");
    let after_gap = switches(&[Switch { time: 50, state: 0, next: 9, priority: 1, name: 0 }], &["x"]);
    let gap = [second(), packet(&[integer(42, 1), message(1, &[integer(1, 0), after_gap])])];
    let read = lines(&[vec![first], gap.to_vec()].concat().concat());
    assert_eq!(read[2], "50 lost 1 packets");
    assert!(read[3].contains("prev_pid=none"), "{read:?}");
}

#[test]
fn the_kernels_count_of_lost_events_is_used() {
    let statistics = |phase, lost| {
        packet(&[message(34, &[integer(1, phase), message(2, &[integer(1, 0), integer(3, lost)])])])
    };
    let one = |time, fields: &[Vec<u8>]| bundle(0, &[fields, &[event(time, 57, &[])]].concat());
    let file = [
        statistics(1, 3),
        one(10, &[]),
        one(20, &[integer(3, 1)]),
        one(30, &[integer(3, 1)]),
        statistics(2, 10),
    ];
    let read = lines(&file.concat());
    let starts: Vec<&str> = read.iter().map(|line| line.split(" comm").next().unwrap()).collect();
    let event = |time| format!("{time} workqueue_execute_end");
    assert_eq!(starts, [&event(10), "20 lost 0", &event(20), "30 lost 7", &event(30)]);
    // Without a mark, the time of the loss is not known.
    let read = lines(&[statistics(1, 3), one(10, &[]), statistics(2, 10)].concat());
    let starts: Vec<&str> = read.iter().map(|line| line.split(" comm").next().unwrap()).collect();
    let lost = "! the kernel counted lost events, but no bundle shows where they were";
    assert_eq!(starts, [&event(10), "- lost 7", lost]);
    let other = packet(&[message(34, &[integer(1, 2), message(2, &[integer(1, 3), integer(3, 4)])])]);
    let read = lines(&[one(10, &[]), other].concat());
    assert!(read[1].ends_with("of this CPU, of which there are no events"), "{read:?}");
    let buffers = packet(&[message(35, &[message(1, &[integer(3, 2), integer(19, 1)])])]);
    with(&[one(10, &[]), buffers].concat(), |traces| {
        let note = "Perfetto's buffers overwrote 2 chunks of packets, and 1 packets were lost";
        assert!(traces[0].notes[0].1.starts_with(note), "{:?}", traces[0].notes);
    });
}

#[test]
fn cpus_machines_and_clocks_are_told_apart() {
    let one = |time| event(time, 57, &[]);
    let of_machine =
        |machine| message(1, &[integer(10, 1), integer(98, machine), message(1, &[integer(1, 0), one(5)])]);
    let snapshot = |real, boot| {
        let clock = |id, time| message(1, &[integer(1, id), integer(2, time)]);
        packet(&[message(6, &[clock(6, boot), clock(1, real)])])
    };
    let uname = message(45, &[message(1, &[text(1, "Linux"), text(3, "6.1.0")])]);
    let file = [
        snapshot(1_000_100, 100),
        packet(&[uname]),
        bundle(0, &[one(10)]),
        bundle(1, &[one(3)]),
        of_machine(4),
    ];
    with(&file.concat(), |traces| {
        let names: Vec<&str> = traces.iter().map(|trace| trace.name.as_str()).collect();
        assert_eq!(names, ["ftrace", "machine 4"]);
        let streams: Vec<&str> = traces[0].streams.iter().map(|stream| stream.name.as_str()).collect();
        assert_eq!(streams, ["cpu 0", "cpu 1"]);
        assert_eq!(traces[0].class.environment_text("kernel_release"), Some("6.1.0"));
        let identity = ClockIdentity::of_trace(&traces[0]);
        assert_eq!((identity.kind, identity.unix_zero), (ClockKind::Posix(7), Some(1_000_000)));
    });
    // Another clock of ftrace is related to the boot clock by the bundle.
    let global = [integer(5, 2), integer(6, 1000), integer(7, 5000), one(1010)];
    assert!(lines(&bundle(0, &global))[0].starts_with("5010 "));
    assert!(lines(&bundle(0, &[integer(5, 2), one(1010)]))[0].starts_with("1010 "));
}

#[test]
fn functions_are_named_by_interned_symbols() {
    let symbol = message(26, &[integer(1, 3), text(2, "vfs_read")]);
    let entry = |function| event(10, 437, &[integer(1, 2), integer(2, function)]);
    let file = packet(&[message(12, &[symbol]), message(1, &[integer(1, 0), entry(3), entry(4)])]);
    let read = lines(&file);
    assert!(read[0].ends_with(" func_name=\"vfs_read\" depth=2 func=3"), "{read:?}");
    assert!(read[1].ends_with(" func_name=none depth=2 func=4"), "{read:?}");
}

#[test]
fn what_is_not_read_is_reported() {
    let slices =
        [packet(&[message(60, &[integer(1, 5)])]), packet(&[message(11, &[integer(9, 1)])])].concat();
    assert!(recognise(&slices));
    let expected = "none of its 2 packets has ftrace events; only ftrace's packets are read, and these are not: 1 of \
                    track_event, 1 of track_descriptor";
    assert!(refused(&slices).contains(expected), "{}", refused(&slices));
    let both = [bundle(0, &[event(1, 57, &[])]), slices, packet(&[message(33, &[])])].concat();
    with(&both, |traces| assert!(traces[0].notes[0].1.ends_with("1 of track_event, 1 of track_descriptor")));
}

#[test]
fn damage_is_reported_and_the_rest_is_read() {
    let one = |time| event(time, 57, &[]);
    let broken_event = bytes(2, &[0x08]);
    let row = |time, next| Switch { time, state: 0, next, priority: 1, name: 0 };
    let mut table = switches(&[row(5, 1), row(6, 2)], &["a"]);
    // One row less in the column of priorities.
    let column = table.windows(4).position(|window| window == [0x22, 2, 1, 1]).unwrap();
    table.splice(column..column + 4, [0x22, 1, 1]);
    table[1] -= 1;
    let file = [
        bundle(0, &[one(1), broken_event, one(2)]),
        bundle(1, &[table, one(7)]),
        bundle(2, &[message(4, &[integer(1, 5)]), one(8), message(8, &[integer(1, 3)])]),
        packet(&[bytes(1, &[0x0f])]),
        vec![0x0a, 100, 1],
    ];
    let read = lines(&file.concat());
    let starts: Vec<&str> = read.iter().map(|line| line.split(" comm").next().unwrap()).collect();
    let event = |time| format!("{time} workqueue_execute_end");
    assert_eq!(
        starts,
        [
            &event(1),
            &event(2),
            "! an event that can't be read",
            "5 sched_switch",
            &event(7),
            "! a column of compact_sched has fewer switches than there are times",
            &event(8),
            "! a packet that extends beyond the end of the file, or that is none",
            "! Perfetto could not parse 1 parts of the kernel's buffer",
            "! a table of switches and wake-ups can't be read at byte 1 of it",
            "! a bundle of events can't be read from byte 0 of it on",
        ]
    );
}

#[test]
fn many_types_machines_and_losses_take_bounded_memory() {
    let types: Vec<Vec<u8>> = (0..20_000).map(|number| event(number.into(), 100_000 + number, &[])).collect();
    with(&bundle(0, &types), |traces| {
        assert_eq!(traces[0].class.streams[&0].events.len(), (1 << 14) + 1);
        let read = show::read(&traces[0]);
        assert_eq!(read.len(), 20_000);
        assert!(read[19_999].starts_with("19999 unknown_0 "), "{}", read[19_999]);
    });
    let machine = |number| message(1, &[integer(98, number), message(1, &[event(number, 57, &[])])]);
    let file: Vec<u8> = (0..300).flat_map(machine).collect();
    let read = lines(&file);
    assert_eq!(read.iter().filter(|line| line.starts_with('!')).count(), 300 - 256);
    let file = [bundle(0, &[event(1, 57, &[])]), bytes(1, &[0x0f]).repeat(5_000)].concat();
    assert_eq!(lines(&file).len(), 1 + (1 << 12));
}

#[test]
fn events_are_written_as_ctf() {
    let plain = |line: &str| -> String {
        let line = line.replace(", ", " ").replace("=[ ", "=[").replace(" ]", "]");
        let words = line.split(' ').filter(|word| !word.contains("_length="));
        // Without values that are zero, empty or absent.
        let without = |word: &str| {
            let value = ["=0", "=\"\"", "=none"].into_iter().find_map(|value| word.strip_suffix(value));
            value.unwrap_or(word).to_owned()
        };
        words.map(without).collect::<Vec<_>>().join(" ")
    };
    let read: Vec<String> = lines(&each_kind()).iter().map(|line| plain(line)).collect();
    for version in [Version::Ctf18, Version::Ctf2] {
        with(&each_kind(), |traces| {
            let (target, files) = written(&traces[0], version, |_| true);
            // A field that an event does not have is empty or zero.
            let anew: Vec<String> = read_back(&target, &files).iter().map(|line| plain(line)).collect();
            assert_eq!(anew, read, "{version:?}");
        });
    }
}

#[test]
fn only_this_format_recognises_it() {
    for file in [each_kind(), bundle(0, &[])] {
        let names: Vec<&str> =
            FORMATS.iter().filter(|format| (format.recognise)(&file)).map(|format| format.name).collect();
        assert_eq!(names, ["Perfetto"]);
    }
    assert!(recognise(&each_kind()[..each_kind().len() - 3]));
}

proptest! {
    #[test]
    fn any_damage_is_survived(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let columns = message(4, &[packed(7, &[5, 1]), packed(8, &[7, 8]), packed(9, &[0, 1]), packed(10, &[1, 1]), packed(11, &[0, 0])]);
        let mut file = [each_kind(), bundle(1, &[columns])].concat();
        for (index, byte) in changes {
            let position = index.index(file.len());
            file[position] = byte;
        }
        file.truncate(cut.index(file.len()));
        let unpacked = Unpacked::default();
        if let Ok(traces) = perfetto::read(&Input::file(&file, &unpacked)) {
            traces.iter().for_each(|trace| drop(show::read(trace)));
        }
    }
}

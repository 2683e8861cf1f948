//! ftrace events written as CTF.

use hodo_formats::ctf::write::{KeptTimes, StreamWriter, Target, Version};
use hodo_formats::events::{Cursor, Item, Trace};
use hodo_formats::{Input, Unpacked, ftrace};
use proptest::prelude::*;

use crate::{
    MISSED, STORED,
    anew::{read_back, written},
    each_kind,
    file::{file, page, record},
    lines, words,
};

/// Writes the only buffer of a file as CTF, and reads it back.
fn anew(bytes: &[u8], version: Version) -> Vec<String> {
    let unpacked = Unpacked::default();
    let traces = ftrace::read(&Input::file(bytes, &unpacked)).unwrap_or_else(|error| panic!("{error}"));
    let (target, files) = written(&traces[0], version, |_| true);
    read_back(&target, &files)
}

/// Removes what only CTF has from a line: lengths and empty names. Formats blobs as arrays, which CTF 1.8 makes of
/// them.
fn plain(line: &str) -> String {
    let is_known = |word: &&str| !(word.contains("_length=") || word.ends_with("_name=\"\""));
    let line = line.replace(", ", " ").replace("=[ ", "=[").replace(" ]", "]");
    line.split(' ').filter(is_known).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_kind_of_field_is_written_as_it_is_read() {
    let bytes = each_kind();
    let read: Vec<String> = lines(&bytes).iter().map(|line| plain(line)).collect();
    for version in [Version::Ctf18, Version::Ctf2] {
        let anew = anew(&bytes, version);
        assert_eq!(anew.iter().map(|line| plain(line)).collect::<Vec<_>>(), read, "{version:?}");
        let mixed = anew.iter().find(|line| line.contains(" mixed ")).unwrap();
        assert!(mixed.contains(" _numbers_length=2 numbers=[ 5 6 ] "), "{mixed}");
    }
}

#[test]
fn names_that_numbers_do_not_have_are_empty() {
    let bytes = file(&[vec![page(1000, &[record(1, 5, &[&words(&[1])[..], b"low\0"].concat())], 0, &[])]]);
    assert!(!lines(&bytes)[0].contains("ip_name"));
    assert!(anew(&bytes, Version::Ctf18)[0].ends_with(" ip_name=\"\" ip=1 buf=\"low\""));
}

#[test]
fn lost_events_are_counted_where_they_were() {
    let interrupt = || record(5, 20, &[9, 0, 0, 0, 16, 0, 0, 0]);
    let pages = vec![
        page(10, &[interrupt(), interrupt()], 0, &[]),
        page(100, &[interrupt()], MISSED | STORED, &7u64.to_le_bytes()),
        page(200, &[interrupt()], MISSED, &[]),
        page(300, &[], MISSED | STORED, &2u64.to_le_bytes()),
    ];
    let bytes = file(&[pages]);
    for version in [Version::Ctf18, Version::Ctf2] {
        let written = anew(&bytes, version);
        let starts: Vec<&str> = written.iter().map(|line| line.split(" comm").next().unwrap()).collect();
        // Between the previous event and the page, which is all that is known.
        let expected = [
            "15 irq_handler_entry",
            "20 irq_handler_entry",
            "20 lost 7",
            "105 irq_handler_entry",
            "205 irq_handler_entry",
            "205 lost 2",
        ];
        assert_eq!(starts, expected, "{version:?}");
    }
}

#[test]
fn times_that_are_far_apart_stay_as_they_are() {
    let interrupt = || record(5, 20, &[9, 0, 0, 0, 16, 0, 0, 0]);
    let times = [10, 10 + (1 << 32), 12 + (1 << 32), 9 << 32, 0xffff_ffff_ffff_0000];
    let pages = times.map(|time| page(time, &[interrupt()], 0, &[])).to_vec();
    let bytes = file(&[pages]);
    assert_eq!(anew(&bytes, Version::Ctf18), lines(&bytes));
}

/// Writes the writable events of a trace. Returns their number.
fn write_writable(trace: &Trace<'_>, version: Version) -> Option<usize> {
    let target = Target::new(&trace.class, version, &|_, _| true).ok()?;
    let mut count = 0;
    let mut files = Vec::new();
    for stream in &trace.streams {
        let mut writer = StreamWriter::new(&target, trace, stream);
        let (keeps_begin, writes_empty) = (true, false);
        for (index, packet) in stream.packets.iter().enumerate() {
            writer.begin(packet);
            let mut cursor = Cursor::new(trace, stream, index..index + 1);
            while let Some((_, item)) = cursor.next_item() {
                match item {
                    Item::Lost(lost) => writer.lost(&lost).ok()?,
                    Item::Event(parts) => {
                        count += usize::from(writer.event(&cursor.event(parts), keeps_begin).is_ok());
                    }
                }
            }
            writer.end(writes_empty, KeptTimes { begin: keeps_begin, end: true }).ok()?;
        }
        files.push((format!("stream{}", files.len()), writer.take()));
    }
    let is_event = |line: &&String| !line.contains("lost") && !line.starts_with('!');
    assert_eq!(read_back(&target, &files).iter().filter(is_event).count(), count);
    Some(count)
}

#[test]
fn threads_without_a_valid_number_have_no_name() {
    let field = |size: u8| format!("common_pid;\toffset:4;\tsize:{size};").into_bytes();
    for (size, is_number) in [(4, true), (0, false), (3, false), (9, false)] {
        let anew = anew(&altered(each_kind(), &field(4), &field(size)), Version::Ctf2);
        assert!(!anew.is_empty());
        assert!(anew.iter().all(|line| line.contains("comm=") == is_number), "{size}: {anew:#?}");
    }
}

/// Replaces each `from` with `to`, of equal length.
fn altered(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    for position in 0..=bytes.len() - from.len() {
        if bytes[position..].starts_with(from) {
            bytes[position..position + to.len()].copy_from_slice(to);
        }
    }
    bytes
}

proptest! {
    #[test]
    fn any_damage_is_survived(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..9)) {
        let mut bytes = each_kind();
        for (index, byte) in changes {
            let position = index.index(bytes.len());
            bytes[position] = byte;
        }
        let unpacked = Unpacked::default();
        if let Ok(traces) = ftrace::read(&Input::file(&bytes, &unpacked)) {
            for version in [Version::Ctf18, Version::Ctf2] {
                traces.iter().for_each(|trace| _ = write_writable(trace, version));
            }
        }
    }
}

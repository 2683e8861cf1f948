//! ftrace tests: every kind of field and record, and damaged files, on traces of a few pages.

#[path = "../ctf/anew.rs"]
mod anew;
mod export;
mod file;
mod machines;
#[allow(dead_code, reason = "the tests of CTF use all of it")]
#[path = "../ctf/show.rs"]
mod show;
mod swap;

use file::{PAGE, file, file_of, head, page, record};
use hodo_clock::OriginNanos;
use hodo_formats::events::Trace;
use hodo_formats::{
    ClockIdentity, Input, TscScale, Unpacked,
    ftrace::{
        self,
        write::{Head, TscToNanos},
    },
};
use proptest::prelude::*;

/// Page flags: events were lost, and their number is stored after the records.
const MISSED: u64 = 1 << 31;
const STORED: u64 = 1 << 30;

fn lines(bytes: &[u8]) -> Vec<String> {
    let unpacked = Unpacked::default();
    let traces = ftrace::read(&Input::file(bytes, &unpacked)).unwrap_or_else(|error| panic!("{error}"));
    traces.iter().flat_map(show::read).collect()
}

fn refused(bytes: &[u8]) -> String {
    let unpacked = Unpacked::default();
    let read = ftrace::read(&Input::file(bytes, &unpacked)).map(|_: Vec<Trace<'_>>| ());
    read.expect_err("it can't be read").to_string()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Code addresses in a function and in its caller.
const CALL: u64 = 0xffff_ffff_8100_0104;
const CALLER: u64 = 0xffff_ffff_8100_0010;

/// A file with every kind of field and record.
fn each_kind() -> Vec<u8> {
    each_kind_of(&head())
}

fn each_kind_of(head: &Head) -> Vec<u8> {
    let (call, caller) = (CALL, CALLER);
    let name = [&9i32.to_le_bytes()[..], &16u16.to_le_bytes(), &5u16.to_le_bytes(), b"eth0\0"].concat();
    let mixed = [
        &[1, 2, 3, 4, 5, 6][..],
        &(-2i16).to_le_bytes(),
        &[1, 0, 0, 1],
        // Eight bytes after its own end, eight bytes long.
        &[8, 0, 8, 0],
        &[9, 9, 9, 0xee],
        b"abcd",
        &5u32.to_le_bytes(),
        &6u32.to_le_bytes(),
    ]
    .concat();
    let records = [
        record(1, 1, &words(&[call, caller])),
        record(1, 20, &name),
        record(1, 21, &mixed),
        record(1, 5, &[&words(&[call])[..], b"hello\0"].concat()),
    ];
    let more = [
        record(1, 6, &[words(&[call, 0xffff_ffff_8200_0000]), vec![3, 0, 0, 0]].concat()),
        record(1, 4, &[&[2u8, 0, 0, 0, 0, 0, 0, 0][..], &words(&[call, caller])].concat()),
        record(1, 10, &[words(&[call]), vec![3, 0, 0, 0, 0, 0, 0, 0], words(&[100, 120])].concat()),
    ];
    file_of(head, &[vec![page(1000, &records, 0, &[]), page(2000, &more, 0, &[])]])
}

#[test]
fn ticks_of_the_tsc_become_nanoseconds() {
    // A tick is half a nanosecond, and tick 2,000 is the clock's zero.
    let half = TscToNanos { multiplier: 1, shift: 1, offset: 1000u64.wrapping_neg() };
    let head = Head { clock: b"local [x86-tsc]".into(), tsc: Some(half), ..head() };
    let bytes = file_of(&head, &[vec![page(4000, &[record(20, 10, &[0; 32])], 0, &[])]]);
    let unpacked = Unpacked::default();
    let traces = ftrace::read(&Input::file(&bytes, &unpacked)).unwrap();
    let scale = TscScale { multiplier: 1, shift: 1, zero: -1000 };
    assert_eq!(ClockIdentity::of_trace(&traces[0]).tsc, Some(scale));
    assert_eq!(traces[0].span(), Some((OriginNanos(1000), OriginNanos(1010))));
}

#[test]
fn each_kind_of_field_is_read() {
    let (call, caller) = (CALL, CALLER);
    let bytes = each_kind();
    let common = "comm=\"a thread\" common_flags=0 common_preempt_count=0 common_pid=7";
    assert_eq!(
        lines(&bytes),
        [
            format!(
                "1001 function {common} ip_name=\"vfs_read\" parent_ip_name=\"main_kernel\" ip={call} parent_ip={caller}"
            ),
            format!("1002 irq_handler_entry {common} irq=9 name=\"eth0\""),
            format!(
                "1003 mixed {common} mac=[1, 2, 3, 4, 5, 6] short=-2 pair=[ 1 256 ] numbers=[ 5 6 ] \
                 thing=[9, 9, 9] name=\"abcd\""
            ),
            format!("1004 print {common} ip_name=\"vfs_read\" ip={call} buf=\"hello\""),
            format!(
                "2001 bprint {common} ip_name=\"vfs_read\" fmt_name=\"count %d\\\\n\" text=\"count 3\" ip={call} \
                 fmt=18446744071595622400 buf=[ 3 ]"
            ),
            format!("2002 kernel_stack {common} size=2 caller=[ {call} {caller} ]"),
            format!(
                "2003 funcgraph_exit {common} func_name=\"vfs_read\" func={call} depth=3 overrun=0 calltime=100 rettime=120"
            ),
        ]
    );
}

/// Older kernels and Android kernels omit the brackets of a field that extends to the end of the record.
#[test]
fn texts_are_read_where_the_format_has_no_brackets() {
    let mut older = head();
    for format in &mut older.own_formats {
        let text = String::from_utf8_lossy(format).replace("buf[];", "buf;");
        *format = text.into_bytes();
    }
    assert_ne!(older.own_formats, head().own_formats);
    assert_eq!(lines(&each_kind_of(&older)), lines(&each_kind()));
}

#[test]
fn lost_events_are_reported_where_they_were() {
    let interrupt = || record(5, 20, &[9, 0, 0, 0, 16, 0, 0, 0]);
    let pages = vec![
        page(10, &[interrupt()], 0, &[]),
        page(100, &[interrupt()], MISSED | STORED, &7u64.to_le_bytes()),
        page(200, &[interrupt()], MISSED, &[]),
    ];
    let bytes = file(&[pages]);
    let read = lines(&bytes);
    let starts: Vec<&str> = read.iter().map(|line| line.split(" comm").next().unwrap()).collect();
    assert_eq!(
        starts,
        [
            "15 irq_handler_entry",
            "100 lost 7",
            "105 irq_handler_entry",
            "200 lost 0",
            "205 irq_handler_entry",
            "! events were lost before a page; their number is unknown",
        ]
    );
}

#[test]
fn damage_is_reported_and_the_rest_is_read() {
    let interrupt = || record(5, 20, &[9, 0, 0, 0, 16, 0, 0, 0]);
    let outside = record(5, 20, &[9, 0, 0, 0, 200, 0, 200, 0]);
    let pages = vec![
        page(10, &[record(5, 99, &[]), interrupt()], 0, &[]),
        page(20, &[vec![5, 0, 0, 0]], 0, &[]),
        page(30, &[interrupt(), outside], 0, &[]),
        page(40, &[], 1000, &[]),
        page(50, &[interrupt()], 0, &[]),
    ];
    let read = lines(&file(&[pages]));
    let starts: Vec<&str> = read.iter().map(|line| line.split(" comm").next().unwrap()).collect();
    assert_eq!(
        starts,
        [
            "20 irq_handler_entry",
            "35 irq_handler_entry",
            "40 ! a length of 200, which the packet has no room for",
            "55 irq_handler_entry",
            "! the description has no event 99",
            "! a record extends beyond the end of its page",
            "! a page is cut short: 1016 bytes expected at offset 0x0, but only 256 are left",
        ]
    );
}

#[test]
fn files_of_other_kinds_are_refused_with_a_reason() {
    assert!(refused(b"\x17\x08\x44tracing").contains("trace.dat"));
    assert!(refused(b"\x17\x08\x44tracing6").contains("trace.dat"));
}

/// `%s` of an address: the kernel lists the texts that its own events point to.
#[test]
fn texts_that_fields_point_to_are_shown() {
    let mut head = head();
    let rcu = head.systems[0].1[0].clone();
    let rcu = String::from_utf8(rcu).unwrap().replace("irq_handler_entry", "rcu_utilization");
    let rcu =
        rcu.replace("__data_loc char[] name;\toffset:12;\tsize:4", "const char * s;\toffset:16;\tsize:8");
    head.systems = vec![("rcu".to_owned(), vec![rcu.into_bytes()])];
    head.texts.extend(b"0xffffffff82000100 : \"Start context switch\"\n");
    let bytes = |address: u64| [vec![9, 0, 0, 0, 0, 0, 0, 0], words(&[address])].concat();
    let records = [record(1, 20, &bytes(0xffff_ffff_8200_0100)), record(1, 20, &bytes(1))];
    let file = file_of(&head, &[vec![page(1000, &records, 0, &[])]]);
    for file in [swap::big_endian(&file), file] {
        let read = lines(&file);
        assert!(
            read[0].contains(" s_name=\"Start context switch\" irq=9 s=18446744071595622656"),
            "{read:?}"
        );
        assert!(!read[1].contains("s_name") && read[1].ends_with(" s=1"), "{read:?}");
    }
    head.texts.clear();
    let file = file_of(&head, &[vec![page(1000, &[record(1, 20, &bytes(1))], 0, &[])]]);
    assert!(lines(&file)[0].ends_with(" s=1"));
}

#[test]
fn a_file_that_is_cut_gives_what_it_has() {
    let interrupt = || record(5, 20, &[9, 0, 0, 0, 16, 0, 0, 0]);
    let whole = file(&[vec![page(10, &[interrupt()], 0, &[]), page(20, &[interrupt()], 0, &[])]]);
    let pages = whole.len() - 2 * PAGE;
    let unpacked = Unpacked::default();
    for end in 0..pages {
        let _ = ftrace::read(&Input::file(&whole[..end], &unpacked));
    }
    let read = lines(&whole[..pages + PAGE]);
    assert_eq!(read.len(), 2, "{read:?}");
    assert!(read[1].contains("512 bytes of pages expected, but the file has only 256"), "{read:?}");
}

proptest! {
    #[test]
    fn any_damage_is_survived(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mixed = |delta| record(delta, 21, &[7; 40]);
        let mut bytes = file(&[vec![page(10, &[mixed(1), mixed(2)], 0, &[])], vec![page(10, &[mixed(3)], MISSED, &[])]]);
        for (index, byte) in changes {
            let position = index.index(bytes.len());
            bytes[position] = byte;
        }
        let unpacked = Unpacked::default();
        if let Ok(traces) = ftrace::read(&Input::file(&bytes, &unpacked)) {
            traces.iter().for_each(|trace| drop(show::read(trace)));
        }
    }
}

//! The law: every report of a time window agrees with the window's part of a full listing of instructions, however the
//! recording is cut, and even if the first timestamp of a segment is late.

use std::{collections::BTreeMap, fs, ops::Range, path::PathBuf};

use hodo_analyses::{
    blocks::{Blocks, BlocksReport as BlockReport},
    profile::{Functions, Profile, ProfileReport},
};
use hodo_clock::{Nanos, Tsc};
use hodo_engine::{
    Chunks, FileSearchPaths, Files, Input, KernelFiles, Options, Reading, Trace, Window, profile,
};
use hodo_intel_pt::packet::{Decoder, PSB, Packet, find_psb};
use hodo_model::{Cause, Every, FastFlow, Table, Value};
use hodo_script::{
    Format,
    flow::{self, Field, Marks},
};
use proptest::prelude::*;

const RECORDINGS: [&str; 3] = ["tiny.data", "tiny-exact-time.data", "tiny-no-return-compression.data"];

fn recording(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../../fixtures/perf/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Delays the clock packets (TSC and TMA) of each segment by a number of packets after PSB+. Returns the times in them.
fn delay_clocks(recording: &mut [u8], packets: &[usize]) -> Vec<Tsc> {
    let (mut from, mut clocks) = (0, Vec::new());
    for &packets in packets {
        let Some(distance) = find_psb(&recording[from..]) else { break };
        from += distance + PSB.len();
        let mut decoder = Decoder::new(&recording[from..], 0);
        let (mut clocks_end, mut after_psb_plus) = (0, None);
        while after_psb_plus != Some(packets) {
            match decoder.next_packet() {
                Ok(Some(Packet::Tsc(tsc))) => clocks.push(Tsc(tsc)),
                Ok(Some(Packet::Tma { .. })) => clocks_end = decoder.position(),
                Ok(Some(Packet::PsbEnd)) => after_psb_plus = Some(0),
                // The segment is too short, so its clock packets stay in place.
                Ok(Some(Packet::Psb)) | Ok(None) | Err(_) => break,
                Ok(Some(_)) => after_psb_plus = after_psb_plus.map(|count| count + 1),
            }
        }
        let end = from + decoder.position();
        if after_psb_plus == Some(packets) {
            recording[from..end].rotate_left(clocks_end);
        }
    }
    clocks
}

fn with_trace<R>(recording: &[u8], use_trace: impl FnOnce(&Trace<'_>) -> R) -> R {
    let symfs = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/perf/symfs"));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), recording).unwrap();
    let files = Files::default();
    let places = FileSearchPaths { symfs: Some(symfs), build_ids: None, beside: None };
    let kernel = KernelFiles { kallsyms: None, kcore: None, vmlinux: None };
    let options = Options { places, kernel, ..Options::default() };
    let input = Input::File(file.path().to_owned());
    use_trace(&Trace::open(&files, &input, &options).unwrap())
}

const WHOLE: Reading<'_> = Reading {
    threads: 1,
    chunks: Chunks::Bytes(1 << 30),
    window: Window::ALL,
    numbers: None,
    spans: None,
    skims: false,
    keeps_whole_chunks: false,
    memo: false,
};

/// Lists the instructions: the time of each, if known, and its function and offset.
fn listing(trace: &Trace<'_>, reading: Reading<'_>) -> Vec<(Option<Nanos>, String)> {
    let mut text = Vec::new();
    let fields = [Field::Time, Field::Sym];
    let outcome = flow::instructions(trace, (&fields, Format::Text), reading, None, &mut text, &mut |_| true);
    outcome.written.unwrap();
    let text = String::from_utf8(text).unwrap();
    let line = |line: &str| {
        let (time, symbol) = line.split_once(' ').unwrap();
        (time.replace('.', "").parse().ok().map(Nanos), symbol.to_owned())
    };
    text.lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

/// Returns the part of a full listing that is in a window. Instructions before their segment's first timestamp, one of
/// `clocks`, count as executed at that time.
fn cut(
    trace: &Trace<'_>,
    all: &[(Option<Nanos>, String)],
    clocks: &[Tsc],
    window: Window<Tsc>,
) -> Vec<String> {
    let clock = trace.recording.config.clock.unwrap();
    let mut inside = Vec::new();
    let mut next = Tsc(u64::MAX);
    for (time, symbol) in all.iter().rev() {
        let time = match time {
            Some(time) => clock.ticks(*time),
            None => *clocks.iter().rfind(|&&first| first <= next).unwrap(),
        };
        if window.contains(time) {
            inside.push(symbol.clone());
        }
        next = time;
    }
    inside.reverse();
    inside
}

/// Counts the instructions of each function in a listing: of the innermost inlined function if `inlined`.
fn by_function(symbols: &[String], inlined: bool) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for symbol in symbols {
        let mut functions = symbol.split(" < ");
        let function = if inlined { functions.next() } else { functions.last() };
        *counts.entry(function.unwrap().split('+').next().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

/// Sums a column by function.
fn sums(table: &Table, column: &str) -> BTreeMap<String, u64> {
    let index = |name: &str| table.columns().iter().position(|column| column.name == name).unwrap();
    let (function, column) = (index("function"), index(column));
    let mut sums = BTreeMap::new();
    for row in &table.rows() {
        let (Value::Text(function), Value::Integer(count)) = (&row[function], &row[column]) else { panic!() };
        *sums.entry(function.to_string()).or_default() += *count;
    }
    sums.retain(|_, count| *count > 0);
    sums
}

fn table<A: FastFlow>(trace: &Trace<'_>, analysis: &A, reading: Reading<'_>) -> Table {
    profile(trace, analysis, reading, |_| true)
}

/// Compares every report of a window, a part of the recording's time, with the full listing. The clock packets of the
/// segments are `late` by these numbers of packets. Returns the number of instructions in the window.
fn check(name: &str, late: &[usize], reading: Reading<'_>, part: Range<f64>) -> usize {
    let mut recording = recording(name);
    // Late timestamps in every segment hide the recording's first time, so read it before.
    let (first, last) = with_trace(&recording, |trace| trace.span().unwrap());
    let clocks = delay_clocks(&mut recording, late);
    with_trace(&recording, |trace| {
        let time = |share: f64| Tsc(first.0 + ((last.0 - first.0 + 2) as f64 * share) as u64);
        let window = Window { from: Some(time(part.start)), to: Some(time(part.end)) };
        let reading = Reading { window, ..reading };
        let all = listing(trace, WHOLE);
        let expected = cut(trace, &all, &clocks, window);
        let listed: Vec<String> = listing(trace, reading).into_iter().map(|(_, symbol)| symbol).collect();
        assert!(listed == expected, "a listing of {} and not {} instructions", listed.len(), expected.len());
        for (report, inlined) in [(BlockReport::Blocks, false), (BlockReport::Lines, true)] {
            let table = table(trace, &Blocks { report }, reading);
            assert_eq!(sums(&table, "instructions"), by_function(&expected, inlined), "{}", table.name());
        }
        let inlined = false;
        let expected = by_function(&expected, inlined);
        let functions = table(trace, &Functions, reading);
        assert_eq!(sums(&functions, "self_instructions"), expected);
        let every = None;
        let of_tree = table(trace, &Profile { report: ProfileReport::Functions, every }, reading);
        assert_eq!(of_tree, functions);
        let tree = table(trace, &Profile { report: ProfileReport::Tree, every }, reading);
        assert_eq!(sums(&tree, "self_instructions"), expected);
        listed.len()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn reports_of_a_window_agree_with_that_part_of_the_listing(
        which in 0..RECORDINGS.len(),
        chunk_size in prop_oneof![64u64..4096, Just(1 << 20)],
        threads in 1usize..4,
        memo: bool,
        one in 0.0..1.0,
        other in 0.0..1.0,
        late in prop::collection::vec(prop_oneof![Just(0usize), 0usize..200], 4),
    ) {
        let reading = Reading { threads, memo, chunks: Chunks::Bytes(chunk_size), ..WHOLE };
        check(RECORDINGS[which], &late, reading, f64::min(one, other)..f64::max(one, other));
    }
}

/// Returns all results of a recording.
fn everything(trace: &Trace<'_>, reading: Reading<'_>) -> Vec<String> {
    let mut reported = Vec::new();
    let numbers = hodo_engine::numbers(trace, reading, |_| true);
    for every in [None, Some(Every::Nanoseconds(100)), Some(Every::Instructions(70))] {
        let numbers = matches!(every, Some(Every::Instructions(_))).then_some(&numbers);
        let reading = Reading { numbers, ..reading };
        for report in [ProfileReport::Tree, ProfileReport::Functions] {
            reported.push(format!("{:?}", table(trace, &Profile { report, every }, reading)));
        }
    }
    reported.push(format!("{:?}", table(trace, &Functions, reading)));
    for report in [BlockReport::Blocks, BlockReport::Lines] {
        reported.push(format!("{:?}", table(trace, &Blocks { report }, reading)));
    }
    let mut text = Vec::new();
    flow::calls(trace, Format::Text, reading, None, &mut text, |_| true);
    let fields = [Field::Time, Field::Span, Field::Ip];
    flow::instructions(trace, (&fields, Format::Text), reading, None, &mut text, &mut |_| true);
    flow::marks(trace, Marks::Rest, Format::Text, reading, None, &mut text, &mut |_| true);
    reported.push(String::from_utf8(text).unwrap());
    reported
}

/// A window of all times gives the same results as the whole recording in every mode, and these are not empty.
#[test]
fn all_times_are_the_whole_recording() {
    let window = Window { from: Some(Tsc(0)), to: Some(Tsc(u64::MAX)) };
    for name in RECORDINGS {
        for late in [0, 7, 100] {
            let mut recording = recording(name);
            delay_clocks(&mut recording, &[late; 4]);
            with_trace(&recording, |trace| {
                let all = listing(trace, WHOLE);
                let untimed = all.iter().filter(|(time, _)| time.is_none()).count();
                assert_eq!(untimed > 0, late > 0, "{name}, {late} packets late: {untimed} have no time");
                let expected = everything(trace, WHOLE);
                for memo in [false, true] {
                    let reported = everything(trace, Reading { memo, window, ..WHOLE });
                    for (reported, expected) in reported.iter().zip(&expected) {
                        assert!(
                            reported == expected,
                            "{name}, {late}, {memo}:\n{reported:.2000}\n{expected:.2000}"
                        );
                    }
                }
            });
        }
    }
}

/// Instructions in a segment without clock packets are in no window, and count as a loss.
#[test]
fn instructions_without_a_time_are_a_loss() {
    let mut recording = recording("tiny.data");
    let psb = find_psb(&recording).unwrap() + PSB.len();
    // Replaces TSC (8 bytes) and TMA (7 bytes) of the only segment by padding. No PSB+ follows.
    recording[psb..psb + 8 + 7].fill(0);
    with_trace(&recording, |trace| {
        let untimed = listing(trace, WHOLE).iter().filter(|(time, _)| time.is_none()).count();
        assert!(untimed > 1000);
        let reading = Reading { window: Window { from: Some(Tsc(0)), to: Some(Tsc(u64::MAX)) }, ..WHOLE };
        let detail = format!("no packet gives the time of {untimed} instructions");
        let mut text = Vec::new();
        let listed =
            flow::instructions(trace, (&[Field::Ip], Format::Text), reading, None, &mut text, &mut |_| true);
        let functions = table(trace, &Functions, reading).loss;
        for losses in [listed.losses.into_list(), functions] {
            let untimed: Vec<_> = losses.iter().filter(|loss| loss.cause == Cause::Untimed).collect();
            assert!(untimed.len() == 1 && untimed[0].detail.contains(&detail), "{losses:?}");
        }
    });
}

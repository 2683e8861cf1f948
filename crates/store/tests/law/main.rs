//! A store returns the same results as a plain list of its records, for any order of writing, division into runs, and
//! number of threads.

#![allow(unreachable_pub, reason = "a test has no public interface")]

mod cases;
mod plain;

use std::{path::Path, thread};

use cases::{Case, Writing};
use fastrand::Rng;
use hodo_store::{Budget, Kind, LaneSlices, Lanes, Shape, Slices, State, Store, Table, TimeCell, Wanted};
use plain::Plain;

/// Number of queries per case, so that there are ten thousand in total.
const QUERIES: usize = 10_000 / CASES.len() + 1;

const CASES: &[Case] = &[
    Case {
        name: "states",
        shape: Shape::Intervals,
        value: Kind::Name,
        lanes: 200,
        rows: 60_000,
        values: 5,
        one_after_another: true,
        duration_bits: 22,
        from: 1 << 50,
        columns: &[Kind::Name, Kind::Integer],
    },
    Case {
        name: "stacks",
        shape: Shape::Intervals,
        value: Kind::Integer,
        lanes: 6,
        rows: 40_000,
        values: 1 << 40,
        one_after_another: false,
        duration_bits: 31,
        from: 0,
        columns: &[],
    },
    Case {
        name: "events",
        shape: Shape::Points,
        value: Kind::Name,
        lanes: 30,
        rows: 30_000,
        values: 40,
        one_after_another: false,
        duration_bits: 30,
        from: 5,
        columns: &[Kind::Signed],
    },
    Case {
        name: "temperatures",
        shape: Shape::Counters,
        value: Kind::Real,
        lanes: 9,
        rows: 25_000,
        values: 1 << 20,
        one_after_another: true,
        duration_bits: 30,
        from: 77,
        columns: &[],
    },
    Case {
        name: "depths",
        shape: Shape::Counters,
        value: Kind::Signed,
        lanes: 100,
        rows: 20_000,
        values: 100,
        one_after_another: false,
        duration_bits: 30,
        from: 0,
        columns: &[Kind::Boolean],
    },
    Case {
        name: "wakers",
        shape: Shape::Links,
        value: Kind::Lane,
        lanes: 300,
        rows: 20_000,
        values: 3,
        one_after_another: false,
        duration_bits: 20,
        from: 1 << 20,
        columns: &[],
    },
    Case {
        name: "the end of time",
        shape: Shape::Intervals,
        value: Kind::Name,
        lanes: 20,
        rows: 15_000,
        values: 3,
        one_after_another: false,
        duration_bits: 64,
        from: u64::MAX - (1 << 33),
        columns: &[],
    },
];

const WAYS: &[Writing] = &[
    Writing { threads: 1, run_rows: 1 << 19, shuffled: false, steps: 1, finished: true, in_order: true },
    Writing { threads: 3, run_rows: 997, shuffled: true, steps: 1, finished: true, in_order: false },
    Writing { threads: 2, run_rows: 5_000, shuffled: true, steps: 3, finished: true, in_order: false },
    Writing { threads: 2, run_rows: 3_000, shuffled: true, steps: 1, finished: false, in_order: true },
];

#[test]
fn every_store_answers_as_a_plain_list_does() {
    thread::scope(|scope| CASES.iter().for_each(|case| _ = scope.spawn(|| check(case))));
}

fn check(case: &Case) {
    let plain = case.plain();
    let folders: Vec<_> = WAYS.iter().map(|_| tempfile::tempdir().unwrap()).collect();
    let written = WAYS.iter().zip(&folders).map(|(way, folder)| way.write(folder.path(), case, &plain));
    let stores: Vec<Store> = written.collect();
    for (store, way) in stores.iter().zip(WAYS) {
        let state = if way.finished { State::Complete } else { State::CutShort };
        assert_eq!((store.state(), store.identity()), (state, "a case"));
        assert_eq!(store.table(case.name).unwrap().rows(), plain.records.len() as u64);
    }
    let mut rng = Rng::with_seed(1);
    for query in 0..QUERIES {
        let seed = rng.u64(..);
        let tables: Vec<Table<'_>> = stores.iter().map(|store| store.table(case.name).unwrap()).collect();
        ask(&tables, &plain, seed, &format!("{}, query {query}", case.name));
        // Finished stores return equal slices, even where values are omitted.
        let [first, second, third] = [0, 1, 2].map(|way| picture(&tables[way], seed));
        assert!(first == second && second == third, "{}, query {query}", case.name);
    }
}

/// Returns a random span of any width; some begin or end at a record's border.
fn span(plain: &Plain, rng: &mut Rng) -> (u64, u64) {
    let record = &plain.records[rng.usize(0..plain.records.len())];
    let begin = if rng.bool() { record.begin } else { record.end.saturating_sub(rng.u64(0..99)) };
    let width = rng.u64(..) >> rng.u32(0..64);
    let begin = begin.saturating_sub(rng.u64(0..=width)).min(u64::MAX - 1);
    (begin, begin.saturating_add(width).max(begin + 1))
}

fn picture(table: &Table<'_>, seed: u64) -> Vec<LaneSlices> {
    let mut rng = Rng::with_seed(seed);
    let (first, last) = table.span().unwrap();
    let width = (last - first) >> rng.u32(0..20);
    let begin = first + rng.u64(0..=last - first - width);
    let span = (begin, begin.saturating_add(width).max(begin + 1));
    table.slices(span, Lanes::All, rng.usize(1..300), &Budget::default()).unwrap()
}

/// Runs the same random queries on every store and on the plain list, and compares the results.
fn ask(tables: &[Table<'_>], plain: &Plain, seed: u64, label: &str) {
    let (mut rng, budget) = (Rng::with_seed(seed), Budget::default());
    let count = tables[0].lanes();
    let some: Vec<u32> = (0..rng.usize(0..9)).map(|_| rng.u32(0..count)).collect();
    let lanes = if rng.bool() { Lanes::All } else { Lanes::Some(&some) };
    let (begin, end) = span(plain, &mut rng);
    let lane = rng.u32(0..count);
    let same = |what: &str, agrees: &mut dyn FnMut(&Table<'_>) -> bool| {
        for (table, way) in tables.iter().zip(WAYS) {
            assert!(agrees(table), "{label}, {way:?}: {what}: {begin}..{end}, lane {lane} of {lanes:?}");
        }
    };
    match rng.u32(0..8) {
        0 => {
            let expected = plain.at(begin, lanes);
            same("at", &mut |table| table.at(begin, lanes, &budget).unwrap() == expected);
        }
        1 => {
            let expected = plain.next_change(lane, begin);
            same("next", &mut |table| table.next_change(lane, begin, &budget).unwrap() == expected);
        }
        2 => {
            let expected = plain.previous_change(lane, end);
            same("previous", &mut |table| table.previous_change(lane, end, &budget).unwrap() == expected);
        }
        6 => {
            let time = begin.min(u64::MAX - 1);
            let expected = plain.count_before(time);
            same("count_before", &mut |table| table.count_before(time, &budget).unwrap() == expected);
        }
        7 => {
            let (index, limit) = (rng.u64(0..=plain.records.len() as u64), rng.usize(0..50));
            let expected = plain.page(index as usize, limit);
            same("page", &mut |table| table.page(index, limit, &budget).unwrap() == expected);
        }
        kind @ (3 | 4) => {
            let record = &plain.records[rng.usize(0..plain.records.len())];
            let duration = record.end - record.begin;
            let durations = if rng.bool() { 0..=u64::MAX } else { duration / 2..=duration };
            let value = record.value.filter(|_| rng.bool());
            let wanted = Wanted { lanes, span: (begin, end), durations, value };
            let (limit, after) = (rng.usize(0..30), rng.bool().then_some(record));
            if kind == 3 {
                let expected = plain.records(&wanted, after, limit);
                same("records", &mut |table| {
                    table.records(&wanted, after, limit, &budget).unwrap() == expected
                });
            } else {
                let expected = plain.longest(&wanted, limit);
                same("longest", &mut |table| table.longest(&wanted, limit, &budget).unwrap() == expected);
            }
        }
        _ => {
            let most = rng.usize(1..400);
            let expected = plain.slices((begin, end), lanes, most);
            for (table, way) in tables.iter().zip(WAYS) {
                let found = table.slices((begin, end), lanes, most, &budget).unwrap();
                assert_eq!(found.len(), expected.len(), "{label}, {way:?}: lanes of {begin}..{end}");
                for (found, expected) in found.iter().zip(&expected) {
                    same_lane(found, expected, &format!("{label}, {way:?}: {begin}..{end} in {most}"));
                }
            }
        }
    }
}

fn same_lane(found: &LaneSlices, expected: &LaneSlices, label: &str) {
    assert_eq!(found.lane, expected.lane, "{label}");
    match (&found.slices, &expected.slices) {
        (Slices::Cells(found), Slices::Cells(expected)) => {
            assert_eq!(found.len(), expected.len(), "{label}");
            found.iter().zip(expected).for_each(|(found, expected)| same_slice(found, expected, label));
        }
        (found, expected) => assert_eq!(found, expected, "{label}"),
    }
}

/// Compares a slice, which holds the heaviest values, with `expected`, which holds all of them.
fn same_slice(found: &TimeCell, expected: &TimeCell, label: &str) {
    let figures = |slice: &TimeCell| (slice.begin, slice.last, slice.rows, slice.weight, slice.range);
    assert_eq!(figures(found), figures(expected), "{label}");
    assert!(found.values.len() <= 8, "{label}");
    // If nothing is missing, the values must be equal.
    if found.missing == 0 && expected.values.len() <= 8 {
        assert_eq!(found.values, expected.values, "{label}");
        return;
    }
    for (value, weight) in &expected.values {
        let least = found.values.iter().find(|(other, _)| other == value).map_or(0, |(_, weight)| *weight);
        let most = least.saturating_add(found.missing);
        assert!((least..=most).contains(weight), "{label}: {value:?}: {weight} not in {least}..={most}");
    }
}

#[test]
fn lanes_and_names_are_in_order_whatever_came_first() {
    let case = &CASES[0];
    let plain = case.plain();
    for way in &WAYS[..3] {
        let folder = tempfile::tempdir().unwrap();
        let store = way.write(folder.path(), case, &plain);
        let table = store.table(case.name).unwrap();
        let numbers: Vec<_> = (0..case.lanes).map(|lane| table.key(lane).unwrap()[0]).collect();
        assert_eq!(numbers, (0..case.lanes).map(|lane| Some(lane.into())).collect::<Vec<_>>());
        assert_eq!(store.name(3), Some("name 00000003"));
        let cells = table.key(3).unwrap();
        let name = store.words(Kind::Name, cells[1]);
        assert_eq!(store.path(table, 3), ["Lanes".to_owned(), format!("{name} (3)")]);
    }
}

#[test]
fn work_is_bounded_and_can_be_stopped() {
    let case = &CASES[0];
    let folder = tempfile::tempdir().unwrap();
    let store = WAYS[0].write(folder.path(), case, &case.plain());
    let table = store.table(case.name).unwrap();
    let little = Budget { rows: 1000, stop: None };
    let refused = table.longest(&Wanted::ALL, 1 << 20, &little);
    assert!(matches!(refused, Err(hodo_store::Error::TooMuch(1000))), "{refused:?}");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let stopped = table.records(&Wanted::ALL, None, 1, &Budget { stop: Some(stop), ..Budget::default() });
    assert!(matches!(stopped, Err(hodo_store::Error::Stopped)), "{stopped:?}");
    let span = (0, u64::MAX);
    assert!(table.slices(span, Lanes::All, 0, &little).is_err());
    assert!(table.slices((5, 5), Lanes::All, 1, &little).is_err());
}

#[test]
fn a_whole_picture_reads_summaries_and_not_records() {
    let case = &CASES[0];
    let folder = tempfile::tempdir().unwrap();
    let plain = case.plain();
    let store = WAYS[0].write(folder.path(), case, &plain);
    let table = store.table(case.name).unwrap();
    let (first, last) = table.span().unwrap();
    let budget = Budget { rows: table.rows() / 4, stop: None };
    let picture = table.slices((first, last + 1), Lanes::All, 20, &budget).unwrap();
    let busy: std::collections::BTreeSet<u32> = plain.records.iter().map(|record| record.lane).collect();
    assert_eq!(picture.len(), busy.len());
}

#[test]
fn a_second_writer_another_schema_and_wrong_cells_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path: &Path = folder.path();
    let none = Store::open(path);
    assert!(matches!(none, Err(hodo_store::Error::None(_))), "{none:?}");
    let writer = hodo_store::Writer::create(path, "x").unwrap();
    assert_eq!(Store::open(path).unwrap().state(), State::Growing);
    let busy = hodo_store::Writer::create(path, "y");
    assert!(matches!(busy, Err(hodo_store::Error::Busy(_))), "{busy:?}");
    let schema = CASES[0].plain().schema;
    let table = writer.table(&schema).unwrap();
    assert_eq!(writer.table(&schema).unwrap(), table);
    let other = hodo_store::Schema { columns: Vec::new(), ..schema };
    assert!(writer.table(&other).is_err());
    let mut feed = writer.feed(table);
    let lane = feed.lane(&[Some(1), None]).unwrap();
    assert!(feed.push(lane, (5, 4), None, &[None, None]).is_err());
    assert!(feed.push(lane, (5, 6), None, &[None]).is_err());
    assert!(feed.push(lane + 1, (5, 6), None, &[None, None]).is_err());
    assert!(feed.push(lane, (5, 6), Some(9), &[None, None]).is_err());
    feed.push(lane, (5, 6), None, &[None, None]).unwrap();
    drop(feed);
    let lost = writer.finish(1);
    assert!(matches!(lost, Err(hodo_store::Error::NotFlushed(1))), "{lost:?}");
}

//! Properties of every comparison.

use std::collections::BTreeMap;

use hodo_compare::{Comparison, Divisor, Options, Rows, Sides, latencies, paths};
use hodo_model::{Column, Shape, Table, Unit, Value};
use proptest::prelude::*;

/// A row of call paths.
#[derive(Clone, Copy, Debug)]
struct PathRow {
    /// Levels above a child of the previous row.
    levels_above: u64,
    function: u8,
    /// Index in [`CLONES`].
    clone: u8,
    instructions: u64,
    entries: u64,
    time: u64,
}

/// Suffixes of the clones of a function.
const CLONES: [&str; 3] = ["", ".constprop.0", ".cold"];

/// A row of a function that is no clone, one level below the previous row.
const fn row_of(function: u8, instructions: u64, entries: u64) -> PathRow {
    PathRow { levels_above: 0, function, clone: 0, instructions, entries, time: 0 }
}

fn rows() -> impl Strategy<Value = Vec<PathRow>> {
    let row = (0u64..3, 0u8..4, 0u8..3, 0u64..1000, 0u64..20, 0u64..1000).prop_map(
        |(levels_above, function, clone, instructions, entries, time)| PathRow {
            levels_above,
            function,
            clone,
            instructions,
            entries,
            time,
        },
    );
    prop::collection::vec(row, 1..12)
}

/// Makes the table of rows; `name` returns the name of a function and its clone.
fn table(rows: &[PathRow], name: impl Fn(u8, u8) -> String, module: &str) -> Table {
    let columns = vec![
        Column::integer("self_instructions", Unit::Instructions),
        Column::integer("self_time_ns", Unit::Nanoseconds),
        Column::integer("entries", Unit::Count),
        Column::integer("depth", Unit::None),
        Column::name("function"),
        Column::name("module"),
    ];
    let mut next = 0u64;
    let mut cells: Vec<Vec<Value>> = Vec::new();
    for &PathRow { levels_above, function, clone, instructions, entries, time } in rows {
        let depth = next.saturating_sub(levels_above);
        next = depth + 1;
        let name = name(function, clone);
        cells.push(vec![
            instructions.into(),
            time.into(),
            entries.into(),
            depth.into(),
            name.into(),
            module.into(),
        ]);
    }
    Table::new("paths", Shape::Tree, vec![], columns, cells)
}

/// Makes the table of rows of the module `m`, whose functions are `f0`, `f1.cold` …
fn usual(rows: &[PathRow]) -> Table {
    table(rows, |function, clone| format!("f{function}{}", CLONES[usize::from(clone)]), "m")
}

/// The recordings of a side, each with its number of executions.
#[derive(Clone, Debug)]
struct Group {
    tables: Vec<Table>,
    weights: Vec<u64>,
}

impl Group {
    /// A recording of one execution.
    fn single(table: Table) -> Group {
        Group { tables: vec![table], weights: vec![1] }
    }
}

fn group() -> impl Strategy<Value = Group> {
    prop::collection::vec((rows(), 1u64..5), 1..4).prop_map(|group| {
        let (rows, weights): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        Group { tables: rows.iter().map(|rows| usual(rows)).collect(), weights }
    })
}

fn compare(a: &Group, b: &Group, kind: Rows) -> Comparison {
    let options = Options { rows: kind, divisor: Divisor::Execution("f".to_owned()) };
    paths(Sides::new(&a.tables, &b.tables), Sides::new(a.weights.clone(), b.weights.clone()), options)
}

fn kinds() -> impl Strategy<Value = Rows> {
    prop_oneof![Just(Rows::Functions), Just(Rows::Paths)]
}

/// The differences in a row of a comparison.
#[derive(Clone, Debug, PartialEq)]
struct Delta {
    change: String,
    instructions: f64,
    calls: f64,
}

/// Returns the differences by path and function.
fn deltas(comparison: &Comparison) -> BTreeMap<(String, String), Delta> {
    let table = comparison.table();
    let position = |name: &str| table.columns().iter().position(|column| column.name == name);
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        other => panic!("{other:?} is no text"),
    };
    let real = |value: &Value| match value {
        Value::Real(real) => *real,
        other => panic!("{other:?} is no number"),
    };
    let mut deltas = BTreeMap::new();
    for row in table.rows() {
        let cell = |name: &str| &row[position(name).unwrap()];
        let path = position("path").map_or(String::new(), |path| text(&row[path]));
        let (change, instructions, calls) =
            (text(cell("change")), real(cell("delta_instructions")), real(cell("delta_calls")));
        let earlier = deltas.insert((path, text(cell("function"))), Delta { change, instructions, calls });
        assert_eq!(earlier, None, "each path and function has one row");
    }
    deltas
}

fn figure(comparison: &Comparison, name: &str) -> f64 {
    match comparison.table().figure(name) {
        Some(Value::Real(real)) => *real,
        other => panic!("{name}: {other:?}"),
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn nothing_differs_from_itself(group in group(), kind in kinds()) {
        let comparison = compare(&group, &group, kind);
        prop_assert!(comparison.is_empty(), "{:?}", comparison.table());
        prop_assert!(comparison.growth().is_none_or(|growth| growth.share == 0.0));
        prop_assert!(comparison.worst(3).is_empty());
        prop_assert!(comparison.tables().iter().all(Table::is_empty));
    }

    #[test]
    fn swapped_sides_change_signs(a in group(), b in group(), kind in kinds()) {
        let there = compare(&a, &b, kind);
        // A renamed function has its name of A.
        prop_assume!(there.notes().is_empty());
        let there = deltas(&there);
        let back = deltas(&compare(&b, &a, kind));
        let opposite = |change: &str| match change {
            "new" => "vanished",
            "vanished" => "new",
            "grown" => "shrunk",
            _ => "grown",
        };
        let turned = back.into_iter().map(|(name, Delta { change, instructions, calls })| {
            let change = opposite(&change).to_owned();
            // `0.0 - x`, as the negative of 0.0 is written differently.
            (name, Delta { change, instructions: 0.0 - instructions, calls: 0.0 - calls })
        });
        prop_assert_eq!(there, turned.collect::<BTreeMap<_, _>>());
    }

    #[test]
    fn rows_add_up_to_the_whole(a in group(), b in group(), kind in kinds()) {
        let comparison = compare(&a, &b, kind);
        let deltas = deltas(&comparison);
        let instructions: f64 = deltas.values().map(|delta| delta.instructions).sum();
        let calls: f64 = deltas.values().map(|delta| delta.calls).sum();
        prop_assert!(is_near(instructions, figure(&comparison, "delta_instructions")));
        prop_assert!(is_near(calls, figure(&comparison, "delta_calls")));
        let total = |Group { tables, weights }: &Group| {
            let own = |row: &Vec<Value>| match row[0] { Value::Integer(count) => count, _ => 0 };
            let sum: u64 = tables.iter().flat_map(|table| table.rows()).map(|row| own(&row)).sum();
            sum as f64 / weights.iter().sum::<u64>() as f64
        };
        prop_assert!(is_near(instructions, total(&b) - total(&a)));
    }

    /// Grown rows come first, then shrunk rows, each with the largest change first. The two tables for people hold
    /// these two parts.
    #[test]
    fn rows_stand_in_order(a in group(), b in group(), kind in kinds()) {
        let comparison = compare(&a, &b, kind);
        let [grown, shrunk] = comparison.tables();
        let delta = |row: &Vec<Value>| match row[0] { Value::Real(delta) => delta, _ => panic!("no number") };
        for (table, sign) in [(&grown, 1.0), (&shrunk, -1.0)] {
            let deltas: Vec<f64> = table.rows().iter().map(|row| delta(row) * sign).collect();
            prop_assert!(deltas.iter().all(|&delta| delta >= 0.0), "{:?}", table);
            prop_assert!(deltas.is_sorted_by(|x, y| x >= y), "{:?}", table);
        }
        prop_assert_eq!([grown.rows(), shrunk.rows()].concat(), comparison.table().rows());
    }

    /// A build with another file name whose functions are all clones is the same program.
    #[test]
    fn names_of_clones_and_of_files_make_no_difference(rows in rows(), kind in kinds()) {
        let named = |clone: &'static str, module| table(&rows, move |function, _| format!("f{function}{clone}"), module);
        let (old, new) = (named("", "prog-1"), named(".constprop.0", "prog-2"));
        let comparison = compare(&Group::single(old), &Group::single(new), kind);
        prop_assert!(comparison.is_empty(), "{:?}", comparison.table());
        prop_assert_eq!(comparison.notes().len(), 1);
    }

    #[test]
    fn latencies_do_not_differ_from_themselves(rows in prop::collection::vec((0u8..3, 1u64..9, 0u64..99), 0..6)) {
        let columns = vec![
            Column::name("call"),
            Column::integer("tid", Unit::None),
            Column::integer("count", Unit::Count),
            Column::integer("total_ns", Unit::Nanoseconds),
            Column::integer("p50_ns", Unit::Nanoseconds),
        ];
        let row = |&(call, count, p50): &(u8, u64, u64)| {
            vec![format!("c{call}").into(), 7u64.into(), count.into(), (count * p50).into(), p50.into()]
        };
        let table = |rows: &[(u8, u64, u64)]| {
            Table::new("syscalls", Shape::Counters, vec![], columns.clone(), rows.iter().map(row))
        };
        let all = [table(&rows)];
        let same = latencies(Sides::new(&all, &all));
        prop_assert!(same.table.is_empty() && same.grown.is_empty(), "{:?}", same.table);
        let slower: Vec<_> = rows.iter().map(|&(call, count, p50)| (call, count, p50 + 100)).collect();
        let other = latencies(Sides::new(&all, &[table(&slower)]));
        let names: std::collections::BTreeSet<u8> = rows.iter().map(|(call, ..)| *call).collect();
        prop_assert_eq!(other.table.row_count(), names.len());
        let positive = names.iter().filter(|name| rows.iter().any(|(call, _, p50)| call == *name && *p50 > 0));
        prop_assert_eq!(other.grown.len(), positive.count());
    }
}

/// A part that the compiler split off (such as `.cold`) is neither a callee nor a call of its function.
#[test]
fn split_parts_belong_to_their_function() {
    let whole = usual(&[row_of(0, 100, 0), row_of(1, 50, 3)]);
    let cold = PathRow { clone: 2, ..row_of(0, 10, 4) };
    let split = usual(&[row_of(0, 90, 0), cold, row_of(1, 50, 3)]);
    let comparison = compare(&Group::single(whole), &Group::single(split), Rows::Paths);
    assert!(comparison.is_empty(), "{:?}", comparison.table());
}

/// A function with another name is the same if its calls and its neighbours are equal, and no other one is like it.
#[test]
fn renamed_functions_are_one_function() {
    let compared = |entries_of_last: u64, names: [&str; 4]| {
        let mut rows = [
            row_of(0, 100, 1),
            row_of(1, 50, 3),
            PathRow { levels_above: 1, ..row_of(2, 60, 4) },
            PathRow { levels_above: 1, ..row_of(3, 70, entries_of_last) },
        ];
        let old_names = ["main", "read", "parse", "old"];
        let old = table(&rows, |function, _| old_names[usize::from(function)].to_owned(), "m");
        rows[2].instructions += 5;
        let new = table(&rows, |function, _| names[usize::from(function)].to_owned(), "m");
        compare(&Group::single(old), &Group::single(new), Rows::Functions)
    };
    let changes = |comparison: &Comparison| -> Vec<(String, String)> {
        deltas(comparison).into_iter().map(|((_, name), delta)| (name, delta.change)).collect()
    };
    let grown = |name: &str| vec![(name.to_owned(), "grown".to_owned())];
    let renamed = compared(5, ["main", "read", "parse_header", "old"]);
    assert_eq!(changes(&renamed), grown("parse"));
    assert_eq!(
        renamed.notes(),
        ["parse of A may be parse_header of B: calls, callers and callees are equal"]
    );
    let tree = renamed.tree();
    let matched = tree.columns().iter().position(|column| column.name == "matched").unwrap();
    assert_eq!(tree.rows()[2][matched], "renamed? parse → parse_header".into());
    let two = compared(4, ["main", "read", "parse_header", "new"]);
    assert_eq!(two.notes().len(), 1, "equal instructions decide for one of two: {:?}", two.notes());
    let no_caller = compared(5, ["start", "read", "parse", "old"]);
    assert!(no_caller.notes().is_empty(), "{:?}", no_caller.notes());
}

/// With five recordings per side, a slower function is significant and an unchanged one is not.
#[test]
fn times_of_groups_are_tested() {
    let side = |slower: u64| {
        let recording = |index: u64| {
            usual(&[
                PathRow { time: 1000 + index + slower * 100, ..row_of(0, 10 + slower, 1) },
                PathRow { time: 50 + index, ..row_of(1, 7 + slower, 1) },
            ])
        };
        Group { tables: (0..5).map(recording).collect(), weights: vec![1; 5] }
    };
    let comparison = compare(&side(0), &side(3), Rows::Functions);
    let table = comparison.table();
    let cell = |function: &str, column: &str| {
        let position = |name: &str| table.columns().iter().position(|column| column.name == name).unwrap();
        let rows = table.rows();
        let row = rows.iter().find(|row| row[position("function")] == Value::from(function)).unwrap();
        match row[position(column)] {
            Value::Real(real) => real,
            ref other => panic!("{other:?}"),
        }
    };
    assert!(is_near(cell("f0", "p_value"), 2.0 / 252.0) && is_near(cell("f0", "p_adjusted"), 4.0 / 252.0));
    assert!(is_near(cell("f1", "p_value"), 1.0));
    assert!(cell("f0", "low_time_ns") > 290.0 && cell("f0", "high_time_ns") < 310.0);
    assert!(comparison.growth_of_time().is_some_and(|growth| growth.share > 0.2));
    assert!(
        compare(&side(0), &side(0), Rows::Functions)
            .growth_of_time()
            .is_some_and(|growth| !growth.is_significant())
    );
}

/// A function that the other side still executes on another path is not searched for among inlined functions.
#[test]
fn only_what_a_side_never_ran_may_be_inlined_there() {
    let named = |rows: &[PathRow]| table(rows, |function, _| format!("f{function};"), "m");
    let sibling = PathRow { levels_above: 1, ..row_of(2, 5, 1) };
    let a = named(&[row_of(0, 9, 1), row_of(1, 5, 1), sibling]);
    let b = named(&[row_of(1, 9, 1), row_of(3, 5, 1)]);
    let comparison = compare(&Group::single(a), &Group::single(b), Rows::Paths);
    let only = comparison.only_in();
    assert_eq!(only.a.into_iter().collect::<Vec<_>>(), ["f0;", "f2;"]);
    assert_eq!(only.b.into_iter().collect::<Vec<_>>(), ["f3;"]);
    assert!(deltas(&comparison).keys().any(|(path, _)| path == "f0\\x3b;f1\\x3b"));
    let inlined = [("f0;".to_owned(), 4), ("f2;".to_owned(), 2)].into_iter().collect();
    let table = comparison.with_inlined(Sides::new(Default::default(), inlined)).table();
    let column = table.columns().iter().position(|column| column.name == "matched").unwrap();
    let count = table.rows().iter().filter(|row| row[column] != Value::Null).count();
    assert_eq!(count, 2, "{table:?}");
}

/// Growth of groups is certain if it is larger than what recordings of one side differ by, or if these do not differ.
#[test]
fn growth_of_groups_is_compared_with_their_spread() {
    let growth = |a: &[u64], b: &[u64]| {
        let group = |sums: &[u64]| {
            let tables = sums.iter().map(|&instructions| usual(&[row_of(0, instructions, 1)])).collect();
            Group { tables, weights: vec![1; sums.len()] }
        };
        compare(&group(a), &group(b), Rows::Functions).growth().expect("A has instructions")
    };
    let chance = growth(&[100, 180, 120, 90, 140], &[150, 190, 95, 125, 160]);
    assert!(
        chance.share > 0.1 && chance.p.is_some_and(|p| p > 0.3) && !chance.is_significant(),
        "{chance:?}"
    );
    let apart = growth(&[100, 110, 105, 102], &[120, 130, 125, 121]);
    assert!(apart.p.is_some_and(|p| p < 0.05) && apart.is_significant(), "{apart:?}");
    // Without any spread, two recordings are enough.
    let exact = growth(&[100, 100], &[106, 106]);
    assert!(exact.p.is_none() && exact.is_significant() && (exact.share - 0.06).abs() < 1e-9, "{exact:?}");
    let single = growth(&[100], &[106]);
    assert!(single.p.is_none() && single.is_significant());
}

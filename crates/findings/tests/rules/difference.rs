//! What differs between two recordings.

use hodo_findings::{DIVERGENCE, Evidence, Finding, LATENCIES, Need, PATHS, differences};
use hodo_model::{Column, Shape, Table, Unit, Value};

/// A function of a call path: its depth and name, own instructions and calls of A and of B, and how it was matched.
type Path = (u64, &'static str, [f64; 2], [f64; 2], &'static str);

fn paths(rows: &[Path]) -> Table {
    let columns = vec![
        Column::integer("depth", Unit::None),
        Column::name("function"),
        Column::real("a_self_instructions", Unit::Instructions),
        Column::real("b_self_instructions", Unit::Instructions),
        Column::real("a_calls", Unit::Count),
        Column::real("b_calls", Unit::Count),
        Column::text("matched"),
    ];
    let row = |&(depth, function, own, calls, matched): &Path| -> Vec<Value> {
        let numbers = [own, calls].concat().into_iter().map(Value::from);
        [depth.into(), function.into()].into_iter().chain(numbers).chain([matched.into()]).collect()
    };
    Table::new("diff_paths", Shape::Tree, Vec::new(), columns, rows.iter().map(row))
}

fn explained(need: Need, table: &Table) -> Vec<Finding> {
    differences(&Evidence::new(vec![(need, table)]))
}

/// The rule and the sentence of each finding.
fn said(rows: &[Path]) -> Vec<(&'static str, String)> {
    let found = explained(PATHS, &paths(rows));
    found.into_iter().map(|finding| (finding.rule, finding.sentence)).collect()
}

#[test]
fn a_function_that_runs_more_often_is_followed_through_its_callers() {
    let calls = |sent| {
        said(&[
            (0, "main", [500.0, 500.0], [1.0, 1.0], ""),
            (1, "serve", [1_000.0, 1_000.0], [10.0, 10.0], ""),
            (2, "send", [300.0, sent], [10.0, sent / 30.0], ""),
            (3, "copy", [300.0, sent], [10.0, sent / 30.0], ""),
        ])
    };
    let expected = "send ran 41 times instead of 10, 60 instructions each as before, in main → serve → send. That is 1,860 \
                    instructions more, 100 % of what was added and 89 % of A.";
    assert_eq!(calls(1_230.0), [("runs-more-often", expected.to_owned())]);
    assert_eq!(calls(300.0), [], "nothing differs");
    let [(rule, less)] = &calls(30.0)[..] else { panic!("one finding") };
    assert_eq!(*rule, "costs-less");
    assert!(less.starts_with("send ran once instead of 10, 60 instructions each as before"), "{less}");
}

#[test]
fn more_calls_of_a_caller_are_no_cause_of_its_callees() {
    let found = said(&[
        (0, "main", [500.0, 500.0], [1.0, 1.0], ""),
        (1, "serve", [1_000.0, 4_000.0], [10.0, 40.0], ""),
        (2, "send", [300.0, 1_200.0], [10.0, 40.0], ""),
    ]);
    let [(rule, sentence)] = &found[..] else { panic!("one finding: {found:?}") };
    assert_eq!(*rule, "runs-more-often");
    assert!(
        sentence.starts_with("serve ran 40 times instead of 10, 130 instructions each as before"),
        "{sentence}"
    );
}

#[test]
fn costs_of_each_execution_and_new_functions() {
    let found = said(&[
        (0, "main", [5_000.0, 5_000.0], [1.0, 1.0], ""),
        (1, "parse", [1_000.0, 1_500.0], [10.0, 10.0], ""),
        (2, "audit", [0.0, 900.0], [0.0, 10.0], ""),
        (1, "old", [700.0, 0.0], [7.0, 0.0], ""),
    ]);
    let expected = [
        (
            "is-new",
            "audit is new: B ran it 10 times, 90 instructions each, in main → parse → audit. That is 900",
        ),
        (
            "costs-less",
            "old runs no more: A ran it 7 times, 100 instructions each, in main → old. That is 700",
        ),
        (
            "costs-more",
            "parse costs more: each of 10 executions ran 150 instructions instead of 100 in its own code,",
        ),
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((rule, sentence), (expected, words)) in found.iter().zip(expected) {
        assert!(*rule == expected && sentence.starts_with(words), "{rule}: {sentence}");
    }
    let little = [(0, "main", [50_000.0, 50_499.0], [1.0, 1.0], "")];
    assert_eq!(said(&little), [], "less than 1 % of A");
}

#[test]
fn renamed_functions_are_named_last() {
    let found = said(&[
        (0, "main", [500.0, 900.0], [1.0, 1.0], ""),
        (1, "parse", [100.0, 100.0], [10.0, 10.0], "renamed? parse → parse_header"),
    ]);
    let sentence = "A function was renamed? Calls, callers and callees are equal: parse → parse_header.";
    assert_eq!(found.last().expect("a finding"), &("renamed", sentence.to_owned()));
    assert_eq!((found.len(), found[0].0), (2, "costs-more"));
}

#[test]
fn medians_of_events_that_grew() {
    let slower = |a: f64, b: f64, more: f64| {
        let columns = ["a_count", "delta_total_ns", "a_average_ns", "a_p50_ns", "b_p50_ns"];
        let columns = columns.map(|name| Column::real(name, Unit::None));
        let columns = [Column::name("call")].into_iter().chain(columns).collect();
        let numbers = [100.0, more, 10.0, a, b].map(Value::from);
        let row: Vec<Value> = ["read".into()].into_iter().chain(numbers).collect();
        let table = Table::new("syscalls", Shape::Counters, Vec::new(), columns, [row]);
        explained(LATENCIES, &table)
            .into_iter()
            .map(|finding| (finding.rule, finding.sentence))
            .collect::<Vec<_>>()
    };
    let [(rule, sentence)] = &slower(10.0, 13.0, 300.0)[..] else { panic!("one finding") };
    assert_eq!(*rule, "slower");
    assert!(
        sentence.starts_with("read is slower (syscalls): the median is 13 ns instead of 10 ns"),
        "{sentence}"
    );
    assert_eq!(slower(10.0, 12.0, 300.0), []);
    assert_eq!(slower(10.0, 13.0, 50.0), [], "little time");
}

#[test]
fn the_first_divergence_is_named() {
    let columns = vec![Column::name("function"), Column::text("line")];
    let rows: [Vec<Value>; 3] = [
        vec!["main".into(), "/home/x.c:7".into()],
        vec!["main".into(), "/home/x.c:8".into()],
        vec!["get".into(), Value::Null],
    ];
    let summary = vec![("common_instructions", 30u64.into()), ("a_instructions", 60u64.into())];
    let table = Table::new("first_divergence", Shape::Counters, summary, columns, rows);
    let [finding] = &explained(DIVERGENCE, &table)[..] else { panic!("one finding") };
    assert_eq!(finding.rule, "divergence");
    let expected = "They diverge at main (x.c:7), after 30 common instructions of main (50 % of A's): A goes on at main (x.c:8), B at get.";
    assert_eq!(finding.sentence, expected);
}

#[test]
fn one_function_on_paths_that_look_alike_is_one_finding() {
    let found = said(&[
        (0, "main", [500.0, 500.0], [1.0, 1.0], ""),
        (1, "first", [100.0, 100.0], [1.0, 1.0], ""),
        (2, "request", [100.0, 100.0], [10.0, 10.0], ""),
        (3, "insert", [300.0, 400.0], [10.0, 10.0], ""),
        (1, "second", [100.0, 100.0], [1.0, 1.0], ""),
        (2, "request", [100.0, 100.0], [10.0, 10.0], ""),
        (3, "insert", [300.0, 400.0], [10.0, 10.0], ""),
    ]);
    let expected = "insert costs more: each of 20 executions ran 40 instructions instead of 30, 100 % of that in its own code, in \
                    … → request → insert (2 paths). That is 200 instructions more, 100 % of what was added and 13 % of A.";
    assert_eq!(found, [("costs-more", expected.to_owned())]);
}

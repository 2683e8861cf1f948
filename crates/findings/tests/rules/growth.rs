//! Costs that grow.

use hodo_findings::{
    BlockSizes, Evidence, Execution, Executions, PATTERNS, SIZES, Sized, patterns, questions, sizes,
};
use hodo_model::{Table, Value};

use super::{found, made};

/// Executions of `append` with these costs, in a run of `whole` instructions.
fn hungry(costs: &[u64], whole: u64) -> [Table; 3] {
    let total: u64 = costs.iter().sum();
    let row: [Value; 6] = [
        "append".into(),
        "program".into(),
        (costs.len() as u64).into(),
        total.into(),
        costs[costs.len() / 2].into(),
        costs.iter().copied().max().into(),
    ];
    let columns =
        ["function", "module", "count", "instructions_total", "instructions_p50", "instructions_max"];
    let latency = made("latency", &[], &columns, &[&row]);
    let row: [Value; 3] = ["append".into(), "program".into(), total.into()];
    let columns = ["function", "module", "total_instructions"];
    let functions = made("functions", &[("instructions", whole)], &columns, &[&row]);
    let execution = |(number, &instructions): (u64, &u64)| Execution {
        number,
        begin: Some(number),
        end: Some(number + 1),
        instructions,
        caller: 0,
    };
    let all: Vec<Execution> = (0..).zip(costs).map(execution).collect();
    [latency, functions, patterns("append", "program", &Executions { all, step: 1, slow: Vec::new() })]
}

#[test]
fn growth_is_strong_large_and_of_much_of_the_run() {
    let found = |costs: &[u64], whole| {
        let [latency, functions, patterns] = &hungry(costs, whole);
        let tables =
            [(("latency", "instructions"), latency), (("functions", ""), functions), (PATTERNS, patterns)];
        found(&tables)
    };
    let growing: Vec<u64> = (0..200).map(|number| 40 + 14 * number).collect();
    let [finding] = &found(&growing, 400_000)[..] else { panic!("one finding") };
    assert_eq!(finding.rule, "growth");
    assert!(
        finding.sentence.contains("append costs more with each call: 14 instructions more"),
        "{}",
        finding.sentence
    );
    assert_eq!(found(&growing, 6_000_000), [], "little of the run");
    let slightly: Vec<u64> = (0..200).map(|number| 4000 + number).collect();
    assert_eq!(found(&slightly, 400_000), [], "at most 1.5 times");
    let [latency, functions, _] = &hungry(&growing, 400_000);
    let evidence =
        Evidence::new(vec![(("latency", "instructions"), latency), (("functions", ""), functions)]);
    assert_eq!(questions(&evidence)[0].function, "append");
    let [latency, functions, _] = &hungry(&[100; 200], 40_000);
    let evidence =
        Evidence::new(vec![(("latency", "instructions"), latency), (("functions", ""), functions)]);
    assert_eq!(questions(&evidence), [], "equal costs do not grow");
}

/// Executions of `append` with a size each, and the cost of a size.
fn sized(cost: fn(u64) -> u64, whole: u64) -> [Table; 3] {
    let counts: Vec<u64> = (0..200).map(|number| 1 + number * 77 % 200).collect();
    let costs: Vec<u64> = counts.iter().map(|size| cost(*size)).collect();
    let [latency, functions, _] = hungry(&costs, whole);
    let execution = |(number, &instructions): (u64, &u64)| Execution {
        number,
        begin: None,
        end: None,
        instructions,
        caller: 0,
    };
    let executions: Vec<Execution> = (1..).zip(&costs).map(execution).collect();
    let loops = vec![BlockSizes { at: "list.c:7".to_owned(), counts }];
    let sized = Sized { executions: &executions, bytes: Vec::new(), loops };
    [latency, functions, sizes("append", "program", &sized)]
}

#[test]
fn costs_grow_faster_than_a_size() {
    let found = |cost, whole| {
        let [latency, functions, sizes] = &sized(cost, whole);
        found(&[(("latency", "instructions"), latency), (("functions", ""), functions), (SIZES, sizes)])
    };
    let whole = 100_000_000;
    let [finding] = &found(|size| 10 * size * size, whole)[..] else { panic!("one finding") };
    assert_eq!(finding.rule, "growth");
    let expected = "append costs more for each iteration of a loop the more there are: 50 instructions for each of 5 iterations at \
                    list.c:7, 1,960 for each of 196 (power 2.00, strength 100 %, threshold 80 %).";
    assert!(finding.sentence.starts_with(expected), "{}", finding.sentence);
    assert_eq!(found(|size| 10 * size * size, 6 * whole), [], "little of the run");
    assert_eq!(found(|size| 900 * size, whole), [], "each iteration costs the same");
}

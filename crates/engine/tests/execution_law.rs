//! The law of single executions: any chunks, with learned paths or without, give the same executions, call trees and counts
//! of blocks.

use std::path::PathBuf;

use hodo_engine::{
    Chunks, Experiment, FileSearchPaths, Input, Needs, Options, Reading, Request, Trace,
    latency::{self, CallNode, LoopBlock, SampledExecution, WantedFunction},
    report,
};
use hodo_model::{Parameters, Value};

const THREADS: usize = 2;

/// What is found about the executions of functions.
#[derive(Debug, PartialEq)]
struct Found {
    executions: Vec<Vec<SampledExecution>>,
    /// The nodes of the call tree of each execution.
    trees: Vec<Vec<CallNode>>,
    loops: Vec<Vec<LoopBlock>>,
}

/// The names of the functions of a recording that were called.
fn names(experiment: &Experiment) -> Vec<(String, String)> {
    let report = report("functions").unwrap();
    let outcome = experiment.run(&Request::of(vec![report], Parameters::default()), &mut |_| true).unwrap();
    let table = &outcome.tables[0];
    let place = |name: &str| table.columns().iter().position(|column| column.name == name).unwrap();
    let [function, module, calls] = ["function", "module", "calls"].map(place);
    let rows = table.rows();
    let called = rows.iter().filter(|row| matches!(row[calls], Value::Integer(calls) if calls > 0));
    called
        .filter_map(|row| match (&row[function], &row[module]) {
            (Value::Text(function), Value::Text(module)) => Some((function.clone(), module.clone())),
            _ => None,
        })
        .collect()
}

fn find(flow: &Trace<'_>, names: &[(String, String)], reading: Reading<'_>) -> Found {
    let names: Vec<_> = names.iter().map(|(function, module)| (function.as_str(), module.as_str())).collect();
    let functions: Vec<_> = latency::functions(flow, &names).into_iter().flatten().collect();
    let slow_from = u64::MAX;
    let wanted: Vec<_> = functions.iter().map(|&function| WantedFunction { function, slow_from }).collect();
    let (samples, numbers) = latency::sample(flow, &wanted, reading, |_| true);
    let executions: Vec<_> = samples.iter().map(|sample| sample.all.kept.clone()).collect();
    let locations: Vec<_> = executions.iter().flatten().map(|one| one.location(flow)).collect();
    let (trees, _) = latency::trees(flow, &locations, &numbers, reading, |_| true);
    let counted: Vec<_> = functions.iter().copied().zip(executions.iter().cloned()).collect();
    let loops = latency::loops(flow, &counted, &numbers, reading, |_| true);
    Found { executions, trees: trees.into_iter().map(|tree| tree.nodes).collect(), loops }
}

#[test]
fn executions_do_not_depend_on_chunks_and_learned_paths() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf");
    let places = FileSearchPaths { symfs: Some(folder.join("symfs")), ..FileSearchPaths::default() };
    let options = Options { places, ..Options::default() };
    let inputs = vec![Input::File(folder.join("tiny.data"))];
    let experiment = Experiment::open(inputs, &options, Needs::ALL, THREADS, |_, _| ()).unwrap();
    let names = names(&experiment);
    experiment.with(|traces| {
        let flow = &traces.flows[0];
        let whole = Reading { memo: false, ..Reading::new(THREADS, Chunks::Streams) };
        let expected = find(flow, &names, whole);
        let counts = expected.loops.iter().flatten().flat_map(|block| &block.counts);
        assert!(counts.copied().max() > Some(10), "no loop runs often");
        assert!(expected.trees.iter().any(|nodes| nodes.len() > 1), "no execution calls");
        for bytes in [1 << 9, 1 << 11, 1 << 13, 1 << 17] {
            for memo in [false, true] {
                let reading = Reading { memo, ..Reading::new(THREADS, Chunks::Bytes(bytes)) };
                assert_eq!(find(flow, &names, reading), expected, "{bytes} {memo}");
            }
        }
    });
}

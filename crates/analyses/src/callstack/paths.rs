//! The calls of each call path, and their time.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{Column, EventAnalysis, FinishContext, Shape, Table, Unit, Value, kernel::Thread};
use serde::{Deserialize, Serialize};

use super::{CallStackSteps, EventFunction, InnermostEnd, KeptCalls, StackOwner};
use crate::critical_path::TraceKey;

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct CallStackPaths;

/// A call path: its calls and their time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct CallStackNode {
    count: u64,
    total: u64,
    /// Time in the functions that it calls.
    below: u64,
    calls: BTreeMap<EventFunction, CallStackNode>,
}

impl CallStackNode {
    /// Returns the node that calls lead to from here; adds it if it does not exist.
    fn node_of(&mut self, path: &[(EventFunction, Nanos)]) -> &mut CallStackNode {
        path.iter().fold(self, |node, (function, _)| node.calls.entry(function.clone()).or_default())
    }
}

/// The call paths of each thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trees(BTreeMap<StackOwner, CallStackNode>);

impl KeptCalls for Trees {
    fn leave(&mut self, InnermostEnd { owner, stack, time, .. }: InnermostEnd<'_>) {
        let Some(((_, begin), callers)) = stack.split_last() else { return };
        let length = time.0.saturating_sub(begin.0);
        let root = self.0.entry(owner).or_default();
        let node = root.node_of(stack);
        (node.count, node.total) = (node.count + 1, node.total + length);
        root.node_of(callers).below += length;
    }
}

impl EventAnalysis for CallStackPaths {
    type Partial = CallStackSteps<Trees>;

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let CallStackSteps { steps, traces } = whole;
        let mut all = steps.finish();
        let mut open = 0;
        let mut rows = Vec::new();
        for (owner, stack) in std::mem::take(&mut all.owners) {
            open += stack.len() as u64;
            let root = all.kept.0.remove(&owner).unwrap_or_default();
            let name = name(owner, (&traces, &all.tasks), context);
            rows.push(vec![0u64.into(), name.into(), Value::Null, root.below.into(), Value::Null]);
            add_rows(&root, 1, &mut rows);
        }
        let calls = rows.iter().map(|row| if let Value::Integer(count) = row[2] { count } else { 0 });
        let summary = vec![
            ("calls", calls.sum::<u64>().into()),
            ("unmatched", all.unmatched.into()),
            ("unfinished", open.into()),
        ];
        let columns = vec![
            Column::integer("depth", Unit::None),
            Column::name("function"),
            Column::integer("calls", Unit::Count),
            Column::integer("total_ns", Unit::Nanoseconds),
            Column::integer("self_ns", Unit::Nanoseconds),
        ];
        Table::new("callstack", Shape::Tree, summary, columns, rows)
    }
}

/// The name of a thread for people.
fn name(
    owner: StackOwner,
    (traces, tasks): (&BTreeMap<u32, String>, &BTreeMap<TraceKey, String>),
    context: &FinishContext<'_>,
) -> String {
    let trace = |key: TraceKey| traces.get(&key.trace).cloned().unwrap_or_default();
    match owner {
        StackOwner::Thread(key) => {
            let comm = context.threads.comm(Thread::new(key.id.into(), 0));
            comm.map_or_else(|| format!("thread {}", key.id), |comm| format!("{comm} ({})", key.id))
        }
        StackOwner::Task(key) => match tasks.get(&key) {
            Some(task) => format!("{task} of {}", trace(key)),
            None => trace(key),
        },
        StackOwner::Stream(key) => format!("stream {} of {}", key.id, trace(key)),
    }
}

/// Adds the paths below a node, those with the most time first.
fn add_rows(node: &CallStackNode, depth: u64, rows: &mut Vec<Vec<Value>>) {
    let mut calls: Vec<(&EventFunction, &CallStackNode)> = node.calls.iter().collect();
    calls.sort_by_key(|(function, call)| (std::cmp::Reverse(call.total), *function));
    for (function, call) in calls {
        let own = call.total.saturating_sub(call.below);
        let name = function.to_string();
        rows.push(vec![depth.into(), name.into(), call.count.into(), call.total.into(), own.into()]);
        add_rows(call, depth + 1, rows);
    }
}

//! Ranks functions by the cost of their tail.

use hodo_model::{Column, FinishContext, FunctionId, Shape, Table, Unit, Value};
use rustc_hash::FxHashMap;

use super::executions::{ExecutionSum, ExecutionsPartial, Which};
use crate::{
    columns::{most_first, share},
    durations::{Durations, add_all},
};

/// Returns the cost of the tail: for all executions beyond the 99th percentile, the sum of their instructions beyond
/// the median. Computed from histogram buckets, with a relative error of 1/64 in lengths.
fn tail(instructions: &Durations) -> u64 {
    let [Some(typical), Some(bound)] = instructions.percentiles([50, 99]) else { return 0 };
    instructions.above(bound).fold(0, |sum: u64, (length, count)| {
        sum.saturating_add(length.saturating_sub(typical).saturating_mul(count))
    })
}

pub(super) fn table(threads: Vec<ExecutionsPartial>, context: &FinishContext<'_>) -> Table {
    let count = threads.len() as u64;
    let ran = threads.iter().map(ExecutionsPartial::instructions).fold(0, u64::saturating_add);
    let mut sums: FxHashMap<FunctionId, ExecutionSum> = FxHashMap::default();
    threads.into_iter().for_each(|thread| add_all(&mut sums, thread.close(&Which::Each).1));
    let total = |amount: fn(&ExecutionSum) -> u64| {
        sums.values().map(amount).fold(0, |all: u64, more| all.saturating_add(more))
    };
    let executions = total(|sum| sum.instructions.count);
    let incomplete = total(|sum| sum.incomplete);
    let summary = vec![
        ("functions", (sums.len() as u64).into()),
        ("count", executions.into()),
        ("incomplete", incomplete.into()),
        ("instructions", ran.into()),
        ("threads", count.into()),
    ];
    let columns = vec![
        Column::name("function"),
        Column::name("module"),
        Column::integer("count", Unit::Count),
        Column::integer("incomplete", Unit::Count).secondary(),
        Column::real("tail_share", Unit::Share),
        Column::real("p99_over_p50", Unit::None),
        Column::integer("instructions_p50", Unit::Count),
        Column::integer("instructions_p99", Unit::Count),
        Column::integer("instructions_max", Unit::Count),
        Column::integer("instructions_total", Unit::Count).secondary(),
        Column::integer("time_p50_ns", Unit::Nanoseconds).secondary(),
        Column::integer("time_p99_ns", Unit::Nanoseconds).secondary(),
        Column::integer("time_max_ns", Unit::Nanoseconds),
    ];
    let rows = sums.into_iter().map(|(function, sum)| {
        let (name, module) = context.functions().names(function);
        let costs = tail(&sum.instructions);
        let (time, instructions) = (&sum.time, &sum.instructions);
        let [p50, p99] = instructions.percentiles([50, 99]);
        let [time_p50, time_p99] = time.percentiles([50, 99]);
        let ratio = match (p50, p99) {
            (Some(p50), Some(p99)) if p50 > 0 => (p99 as f64 / p50 as f64).into(),
            _ => Value::Null,
        };
        let greatest =
            |durations: &Durations| Value::from(Some(durations.max).filter(|_| durations.count > 0));
        let cells = vec![
            name.as_str().into(),
            module.as_str().into(),
            instructions.count.into(),
            sum.incomplete.into(),
            share(costs, ran),
            ratio,
            p50.into(),
            p99.into(),
            greatest(instructions),
            instructions.total.into(),
            time_p50.into(),
            time_p99.into(),
            greatest(time),
        ];
        ((costs, (name, module, function)), cells)
    });
    Table::new("latency", Shape::Counters, summary, columns, most_first(rows))
}

//! Ranks functions by the cost of their tail.

use hodo_model::{Column, FinishContext, FunctionId, Shape, Table, Unit, Value};
use rustc_hash::FxHashMap;

use super::{
    executions::{ExecutionSum, ExecutionsPartial, Which},
    humps::{Humps, humps},
    outermost::OutermostSum,
};
use crate::{
    columns::{most_first, share},
    durations::{Durations, add_all},
};

/// Returns the cost of the tail: of the slowest 1 % of executions by rank, and of all that are as long as the shortest of
/// these, the sum of their instructions beyond the median. Computed from histogram buckets, with a relative error of 1/64
/// in lengths.
fn tail(instructions: &Durations) -> u64 {
    let [Some(typical)] = instructions.percentiles([50]) else { return 0 };
    let Some(bound) = instructions.longest(instructions.count.div_ceil(100)) else { return 0 };
    let slowest = instructions.lengths().filter(|(length, _)| *length >= bound);
    slowest.fold(0, |sum: u64, (length, count)| {
        sum.saturating_add(length.saturating_sub(typical).saturating_mul(count))
    })
}

/// The executions of a function in all threads.
#[derive(Default)]
struct AllExecutions {
    all: ExecutionSum,
    outermost: OutermostSum,
}

impl AllExecutions {
    fn by_function(threads: Vec<ExecutionsPartial>) -> FxHashMap<FunctionId, AllExecutions> {
        let mut functions: FxHashMap<FunctionId, AllExecutions> = FxHashMap::default();
        let mut sums: FxHashMap<FunctionId, ExecutionSum> = FxHashMap::default();
        for thread in threads {
            let closed = thread.close(&Which::Each);
            add_all(&mut sums, closed.sums);
            for (function, sum) in closed.outermost {
                functions.entry(function).or_default().outermost.join(sum);
            }
        }
        for (function, sum) in sums {
            functions.entry(function).or_default().all = sum;
        }
        functions
    }

    /// Returns the cells of the two humps of the outermost executions.
    fn humps(&self, ran: u64) -> [Value; 6] {
        let lengths: Vec<(u64, u64)> = self.outermost.instructions.lengths().collect();
        match humps(&lengths) {
            Some(Humps { fast, slow, from, extra }) => [
                slow.count.into(),
                share(extra, ran),
                fast.count.into(),
                fast.median.into(),
                slow.median.into(),
                from.into(),
            ],
            None => std::array::from_fn(|_| Value::Null),
        }
    }
}

fn columns() -> Vec<Column> {
    vec![
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
        Column::integer("slow_count", Unit::Count),
        Column::real("slow_share", Unit::Share),
        Column::integer("fast_count", Unit::Count).secondary(),
        Column::integer("fast_p50", Unit::Count).secondary(),
        Column::integer("slow_p50", Unit::Count).secondary(),
        Column::integer("slow_from", Unit::Count).secondary(),
        Column::integer("instructions_first", Unit::Count).secondary(),
    ]
}

pub(super) fn table(threads: Vec<ExecutionsPartial>, context: &FinishContext<'_>) -> Table {
    let count = threads.len() as u64;
    let ran = threads.iter().map(ExecutionsPartial::instructions).fold(0, u64::saturating_add);
    let sums = AllExecutions::by_function(threads);
    let total = |figure: fn(&ExecutionSum) -> u64| {
        sums.values().map(|sum| figure(&sum.all)).fold(0, |all: u64, more| all.saturating_add(more))
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
    let rows = sums.into_iter().map(|(function, sum)| {
        let (name, module) = context.functions().names(function);
        let (costs, humps) = (tail(&sum.outermost.instructions), sum.humps(ran));
        let first = Some(sum.outermost.first).filter(|_| sum.outermost.instructions.count > 0);
        let ExecutionSum { time, instructions, incomplete } = &sum.all;
        let [p50, p99] = instructions.percentiles([50, 99]);
        let [time_p50, time_p99] = time.percentiles([50, 99]);
        let ratio = match (p50, p99) {
            (Some(p50), Some(p99)) if p50 > 0 => (p99 as f64 / p50 as f64).into(),
            _ => Value::Null,
        };
        let greatest =
            |durations: &Durations| Value::from(Some(durations.max).filter(|_| durations.count > 0));
        let mut cells: Vec<Value> = vec![
            name.as_str().into(),
            module.as_str().into(),
            instructions.count.into(),
            (*incomplete).into(),
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
        cells.extend(humps);
        cells.push(first.into());
        ((costs, (name, module, function)), cells)
    });
    Table::new("latency", Shape::Counters, summary, columns(), most_first(rows))
}

//! The columns and the summary that all profile tables have.

use std::cmp::Reverse;

use hodo_model::{Column, FunctionId, Names, Shape, Summary, Table, Unit, Value};
use rustc_hash::FxHashMap;

use super::{
    Every,
    cost::{ProfileCost, ThreadTotals},
};
use crate::clock::Time;

/// The cost of one function.
#[derive(Default)]
pub(super) struct FunctionCost {
    pub(super) own: ProfileCost,
    pub(super) calls: u64,
    pub(super) jumps: u64,
    /// Inclusive costs; each cost counts once even if the function is on the stack several times.
    pub(super) instructions: u64,
    pub(super) time: Time,
    pub(super) samples: u64,
}

/// The total cost of all threads.
#[derive(Clone, Default)]
pub(super) struct Amounts {
    pub(super) cost: ProfileCost,
    pub(super) sums: ThreadTotals,
    pub(super) threads: u64,
}

impl Amounts {
    pub(super) fn summary(&self, every: Option<Every>) -> Summary {
        let Amounts { cost, sums, threads } = self;
        let mut summary = Vec::new();
        if let Some(every) = every {
            let (name, period) = match every {
                Every::Nanoseconds(period) => ("sample_period_ns", period),
                Every::Instructions(period) => ("sample_period_instructions", period),
            };
            summary.push(("samples", cost.rare.samples));
            summary.push((name, period));
        }
        summary.extend([
            ("instructions", cost.ran.instructions),
            ("calls", sums.calls),
            ("threads", *threads),
            ("time_ns", cost.ran.time.nanoseconds()),
            ("outside_time_ns", cost.rare.outside.nanoseconds()),
            ("lost_time_ns", sums.lost_time),
            ("gaps", sums.gaps),
        ]);
        summary.into_iter().map(|(name, value)| (name, Value::from(value))).collect()
    }
}

/// The table of functions.
pub(super) fn functions(
    functions: FxHashMap<FunctionId, FunctionCost>,
    all: &Amounts,
    names: &dyn Names,
    every: Option<Every>,
) -> Table {
    let sampled = every.is_some();
    let weight = |own: &ProfileCost| if sampled { own.rare.samples } else { own.ran.instructions };
    let mut functions: Vec<(FunctionId, FunctionCost)> = functions.into_iter().collect();
    functions.retain(|(_, cost)| !sampled || cost.samples > 0);
    functions.sort_by_key(|(id, cost)| {
        (Reverse(weight(&cost.own)), Reverse(if sampled { cost.samples } else { 0 }), *id)
    });
    let rows = functions.iter().map(|(id, cost)| {
        let (name, module) = names.names(*id);
        let samples = [cost.own.rare.samples, cost.samples].map(Value::from);
        let row = [Value::from(share(weight(&cost.own), weight(&all.cost)))].into_iter();
        row.chain(samples.into_iter().filter(|_| sampled))
            .chain([
                Value::from(cost.own.ran.instructions),
                Value::from(cost.instructions),
                Value::from(cost.calls),
                Value::from(cost.jumps),
                Value::from(cost.own.ran.time.nanoseconds()),
                Value::from(cost.time.nanoseconds()),
                Value::from(name),
                Value::from(module),
            ])
            .collect()
    });
    let samples =
        [Column::integer("self_samples", Unit::Count), Column::integer("total_samples", Unit::Count)];
    let columns = [Column::real("share", Unit::Share)].into_iter();
    let columns = columns.chain(samples.into_iter().filter(|_| sampled)).chain([
        Column::integer("self_instructions", Unit::Instructions),
        Column::integer("total_instructions", Unit::Instructions),
        Column::integer("calls", Unit::Count),
        Column::integer("jumps", Unit::Count).secondary(),
        Column::integer("self_time_ns", Unit::Nanoseconds).secondary(),
        Column::integer("total_time_ns", Unit::Nanoseconds),
        Column::name("function"),
        Column::name("module").secondary(),
    ]);
    Table::new("functions", Shape::Counters, all.summary(every), columns.collect(), rows)
}

pub(crate) fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

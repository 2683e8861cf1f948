//! The columns and the summary that all profile tables have.

use std::cmp::Reverse;

use hodo_model::{Column, FinishContext, FunctionId, Shape, Summary, Table, Unit, Value};
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
    pub(super) fn add(&mut self, other: &Amounts) {
        self.cost.add(&other.cost);
        self.sums.add(&other.sums);
        self.threads += other.threads;
    }

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

/// The costs by function: of all threads, or of each thread in their order.
pub(super) enum Functions {
    Whole(FxHashMap<FunctionId, FunctionCost>),
    ByThread(Vec<FxHashMap<FunctionId, FunctionCost>>),
}

impl Functions {
    /// Collects the costs of threads, as the view requires.
    pub(super) fn new(view: &str) -> Functions {
        match view {
            THREAD => Functions::ByThread(Vec::new()),
            _ => Functions::Whole(FxHashMap::default()),
        }
    }

    /// Returns where the costs of the next thread are added.
    pub(super) fn next_thread(&mut self) -> &mut FxHashMap<FunctionId, FunctionCost> {
        match self {
            Functions::Whole(functions) => functions,
            Functions::ByThread(threads) => threads.push_mut(FxHashMap::default()),
        }
    }
}

/// The view with a row for each function of each thread.
pub(super) const THREAD: &str = "thread";

/// A row of the table of functions.
struct Row {
    /// The index of the thread, if the table is by thread.
    thread: Option<usize>,
    function: FunctionId,
    cost: FunctionCost,
}

/// The table of functions.
pub(super) fn functions(
    functions: Functions,
    all: &Amounts,
    context: &FinishContext<'_>,
    every: Option<Every>,
) -> Table {
    let sampled = every.is_some();
    let weight = |own: &ProfileCost| if sampled { own.rare.samples } else { own.ran.instructions };
    let (by_thread, groups) = match functions {
        Functions::Whole(functions) => (false, vec![functions]),
        Functions::ByThread(threads) => (true, threads),
    };
    let mut rows: Vec<Row> = Vec::new();
    for (index, functions) in groups.into_iter().enumerate() {
        let thread = by_thread.then_some(index);
        rows.extend(functions.into_iter().map(|(function, cost)| Row { thread, function, cost }));
    }
    rows.retain(|row| !sampled || row.cost.samples > 0);
    rows.sort_by_key(|Row { thread, function, cost }| {
        let samples = if sampled { cost.samples } else { 0 };
        (Reverse(weight(&cost.own)), Reverse(samples), *function, *thread)
    });
    let rows = rows.iter().map(|Row { thread, function, cost }| {
        let (name, module) = context.functions().names(*function);
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
            .chain(thread.iter().flat_map(|thread| thread_cells(context, *thread)))
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
    let threads = [
        Column::name("comm"),
        Column::integer("pid", Unit::None).secondary(),
        Column::integer("tid", Unit::None),
    ];
    let columns = columns.chain(threads.into_iter().filter(|_| by_thread));
    Table::new("functions", Shape::Counters, all.summary(every), columns.collect(), rows)
}

/// The cells that name a thread.
fn thread_cells(context: &FinishContext<'_>, index: usize) -> [Value; 3] {
    let thread = context.flow_threads.get(index);
    let id = |id: Option<u32>| id.map(u64::from).into();
    [
        thread.and_then(|thread| thread.comm.as_deref()).into(),
        id(thread.map(|thread| thread.pid)),
        id(thread.map(|thread| thread.tid)),
    ]
}

pub(crate) fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

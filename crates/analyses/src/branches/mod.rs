//! `branches`: how often did each branch go to each target, and which code ran straight on between them?
//!
//! This is what optimising compilers and linkers read as a profile: they get it from samples of branch records, here it
//! is exact. A partial counts runs of instructions, and steps from the last instruction of one to the first of the next.

mod partial;

use std::cmp::Reverse;

use hodo_model::{
    Analysis, Column, Description, FastFlow, FinishContext, FlowInterest, FlowLoop, Interest, Item, Made,
    Report, Role, Shape, Sources, Start, Table, Takes, Unit, Value, kernel::Threads,
};

pub use self::partial::{BranchCounts, CountKind};
use self::partial::{CountKey, Site};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Branches;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "branches",
            roles: &[Role::Branches],
            help: "exact counts of each branch by its target, and of the straight-line code between branches",
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_flow(Branches),
    }
}

impl Analysis for Branches {
    type Partial = BranchCounts;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> BranchCounts {
        BranchCounts::default()
    }

    #[inline]
    fn fold(&self, partial: &mut BranchCounts, item: Item<'_>) {
        if let Item::Flow(event) = item {
            partial.fold(&event);
        }
    }

    fn merge(&self, earlier: BranchCounts, later: BranchCounts, _: &Threads) -> BranchCounts {
        earlier.merge(later)
    }

    fn finish(&self, threads: Vec<BranchCounts>, context: &FinishContext<'_>) -> Table {
        let count = threads.len() as u64;
        let mut rows: Vec<_> = BranchCounts::together(threads).into_iter().collect();
        rows.sort_unstable_by_key(|&(key, executions)| (Reverse(executions), key));
        let sum = |kind: CountKind| {
            let of_kind = rows.iter().filter(|(key, _)| key.kind == kind);
            of_kind.fold(0, |sum: u64, (_, executions)| sum.saturating_add(*executions))
        };
        let summary = vec![
            ("threads", Value::from(count)),
            ("taken", sum(CountKind::Taken).into()),
            ("next", sum(CountKind::Next).into()),
            ("runs", sum(CountKind::Run).into()),
        ];
        let columns = vec![
            Column::name("kind"),
            Column::integer("executions", Unit::Count),
            Column::integer("from", Unit::Address),
            Column::integer("to", Unit::Address),
            Column::name("function"),
            Column::name("module"),
            Column::name("to_function"),
            Column::name("to_module").secondary(),
            Column::text("line").secondary(),
        ];
        let rows = rows.into_iter().map(|(CountKey { kind, from, to }, executions)| {
            let ((function, module), (to_function, to_module)) =
                (context.sources.names(from.function), context.sources.names(to.function));
            let from_address = address(from, context.sources);
            let line = context.sources.line(from.function.module, from_address);
            let line = line.map(|line| format!("{}:{}", line.file, line.line));
            vec![
                Value::from(kind.name()),
                Value::from(executions),
                Value::from(from_address),
                Value::from(address(to, context.sources)),
                Value::from(function),
                Value::from(module),
                Value::from(to_function),
                Value::from(to_module),
                Value::from(line),
            ]
        });
        Table::new("branches", Shape::Counters, summary, columns, rows)
    }
}

impl FastFlow for Branches {
    type Memory = ();
}

/// The address of an instruction, as in its module's symbols.
fn address(site: Site, sources: &dyn Sources) -> u64 {
    sources.address(site.function.module, site.offset)
}

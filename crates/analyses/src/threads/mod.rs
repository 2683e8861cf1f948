//! `threads`: how many instructions did each thread execute?

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FastFlow, FinishContext, FlowEvent, FlowInterest, FlowLoop, FunctionRun,
    Interest, Item, Made, Numbering, Report, Shape, Start, Table, Takes, Unit, kernel::Threads,
};
use serde::{Deserialize, Serialize};

use crate::columns::{most_first, share};

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "threads",
            help: "exact counts of executed instructions by thread",
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_flow(Instructions),
    }
}

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Instructions;

/// The instructions of a thread.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct InstructionSum(u64);

impl Analysis for Instructions {
    type Partial = InstructionSum;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> InstructionSum {
        InstructionSum::default()
    }

    #[inline]
    fn fold(&self, partial: &mut InstructionSum, item: Item<'_>) {
        if let Item::Flow(FlowEvent::Run { instructions, .. }) = item {
            partial.0 += instructions;
        }
    }

    fn merge(&self, earlier: InstructionSum, later: InstructionSum, _: &Threads) -> InstructionSum {
        InstructionSum(earlier.0.saturating_add(later.0))
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn finish(&self, threads: Vec<InstructionSum>, context: &FinishContext<'_>) -> Table {
        let sum = threads.iter().fold(0, |sum: u64, thread| sum.saturating_add(thread.0));
        let summary = vec![("instructions", sum.into()), ("threads", (threads.len() as u64).into())];
        let columns = vec![
            Column::real("share", Unit::Share),
            Column::integer("instructions", Unit::Count),
            Column::name("comm"),
            Column::integer("pid", Unit::None),
            Column::integer("tid", Unit::None),
        ];
        let rows = threads.iter().enumerate().map(|(index, &InstructionSum(count))| {
            let thread = context.flow_threads.get(index);
            let comm = thread.and_then(|thread| thread.comm.as_deref());
            let [pid, tid] = [thread.map(|thread| thread.pid), thread.map(|thread| thread.tid)]
                .map(|id| id.map(u64::from).into());
            ((count, index), vec![share(count, sum), count.into(), comm.into(), pid, tid])
        });
        Table::new("threads", Shape::Counters, summary, columns, most_first(rows))
    }
}

impl FastFlow for Instructions {
    type Memory = ();

    const TAKES_FUNCTION_RUNS: bool = true;

    #[inline]
    fn fold_function_runs(
        &self,
        partial: &mut InstructionSum,
        _: &impl Numbering,
        runs: &[FunctionRun],
        _: Option<Nanos>,
    ) {
        partial.0 += FunctionRun::instructions(runs);
    }
}

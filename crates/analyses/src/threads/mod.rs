//! `threads`: how many instructions did each thread execute?

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FastFlow, FinishContext, FlowEvent, FlowInterest, FlowLoop, FunctionRun,
    Interest, Item, Made, Numbering, Report, Run, Shape, Start, Table, Takes, Unit, kernel::Threads,
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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InstructionSum {
    instructions: u64,
    #[serde(skip)]
    paths: PathLengths,
}

/// The lengths of memoized paths, in instructions. All of them begin and end in the only state.
#[derive(Clone, Debug, Default)]
pub struct PathLengths(Vec<u64>);

impl PathLengths {
    /// The state in which paths begin and end.
    pub const STATE: u32 = 0;

    /// Memoizes a path of runs; returns its number.
    pub fn learn(&mut self, runs: impl Iterator<Item = Run>) -> u32 {
        self.push(runs.map(|run| run.instructions).sum())
    }

    /// Memoizes a path that is two others; returns its number.
    pub fn join(&mut self, first: u32, second: u32) -> u32 {
        self.push(self.of(first) + self.of(second))
    }

    fn push(&mut self, instructions: u64) -> u32 {
        self.0.push(instructions);
        self.0.len() as u32 - 1
    }

    /// Returns the length of a path.
    #[inline]
    pub fn of(&self, path: u32) -> u64 {
        self.0[path as usize]
    }
}

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
            partial.instructions += instructions;
        }
    }

    fn merge(&self, earlier: InstructionSum, later: InstructionSum, _: &Threads) -> InstructionSum {
        let instructions = earlier.instructions.saturating_add(later.instructions);
        InstructionSum { instructions, ..earlier }
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn finish(&self, threads: Vec<InstructionSum>, context: &FinishContext<'_>) -> Table {
        let sum = threads.iter().fold(0, |sum: u64, thread| sum.saturating_add(thread.instructions));
        let summary = vec![("instructions", sum.into()), ("threads", (threads.len() as u64).into())];
        let columns = vec![
            Column::real("share", Unit::Share),
            Column::integer("instructions", Unit::Count),
            Column::name("comm"),
            Column::integer("pid", Unit::None),
            Column::integer("tid", Unit::None),
        ];
        let rows = threads.iter().enumerate().map(|(index, thread)| {
            let count = thread.instructions;
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
    type Memory = PathLengths;

    const TAKES_FUNCTION_RUNS: bool = true;

    #[inline]
    fn fold_function_runs(
        &self,
        partial: &mut InstructionSum,
        _: &impl Numbering,
        runs: &[FunctionRun],
        _: Option<Nanos>,
    ) {
        partial.instructions += FunctionRun::instructions(runs);
    }

    fn exchange(&self, partial: &mut InstructionSum, memory: &mut PathLengths) {
        std::mem::swap(&mut partial.paths, memory);
    }

    fn state(&self, _: &mut InstructionSum) -> Option<u32> {
        Some(PathLengths::STATE)
    }

    fn learn(
        &self,
        partial: &mut InstructionSum,
        _: u32,
        runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        Some((partial.paths.learn(runs), PathLengths::STATE))
    }

    fn join(&self, partial: &mut InstructionSum, first: u32, second: u32) -> Option<u32> {
        Some(partial.paths.join(first, second))
    }

    #[inline]
    fn fold_path(&self, partial: &mut InstructionSum, path: u32) {
        partial.instructions += partial.paths.of(path);
    }
}

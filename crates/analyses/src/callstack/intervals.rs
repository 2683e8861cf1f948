//! Each call, from its entry to its exit.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Column, EventAnalysis, FinishContext, Heading, Shape, Table, TableBuilder, Unit, Value, kernel::Thread,
};
use serde::{Deserialize, Serialize};

use super::{CallStackSteps, EventFunction, InnermostEnd, KeptCalls, StackOwner};
use crate::{columns::interval_columns, settling::SettlingRows};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct CallStackIntervals;

/// A call that ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct CallInterval {
    owner: StackOwner,
    task: Option<String>,
    /// The number of its callers.
    depth: u64,
    begin: Nanos,
    function: EventFunction,
}

/// Calls whose rows have not left yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CallIntervals(SettlingRows<CallInterval>);

impl KeptCalls for CallIntervals {
    fn leave(&mut self, InnermostEnd { owner, task, stack, time }: InnermostEnd<'_>) {
        let Some(((function, begin), callers)) = stack.split_last() else { return };
        let (function, task) = (function.clone(), task.map(str::to_owned));
        self.0.see(time, CallInterval { owner, task, depth: callers.len() as u64, begin: *begin, function });
    }
}

/// Adds rows by end. Returns how many.
fn add_rows(
    mut ended: Vec<(Nanos, CallInterval)>,
    traces: &BTreeMap<u32, String>,
    context: &FinishContext<'_>,
    rows: &mut TableBuilder,
) -> u64 {
    ended.sort_unstable();
    for (to, CallInterval { owner, task, depth, begin, function }) in &ended {
        let (StackOwner::Thread(key) | StackOwner::Task(key) | StackOwner::Stream(key)) = *owner;
        let thread = match (owner, task) {
            (StackOwner::Thread(_), _) => match context.threads.comm(Thread::new(key.id.into(), 0)) {
                Some(comm) => format!("{comm} ({})", key.id),
                None => format!("thread {}", key.id),
            },
            (StackOwner::Task(_), Some(task)) => task.clone(),
            (StackOwner::Task(_), None) if key.id > 0 => format!("task {}", key.id),
            _ => format!("stream {}", key.id),
        };
        let row: [Value; 6] = [
            begin.0.into(),
            to.0.saturating_sub(begin.0).into(),
            traces.get(&key.trace).map(String::as_str).into(),
            thread.into(),
            (*depth).into(),
            function.to_string().into(),
        ];
        rows.row(row.iter().map(Value::cell));
    }
    ended.len() as u64
}

impl EventAnalysis for CallStackIntervals {
    type Partial = CallStackSteps<CallIntervals>;

    fn heading(&self) -> Option<Heading> {
        let mut columns = interval_columns().to_vec();
        columns.extend([
            Column::name("host"),
            Column::name("thread"),
            Column::integer("depth", Unit::None),
            Column::name("function"),
        ]);
        Some(Heading { name: "callstack", shape: Shape::Intervals, columns })
    }

    fn settle(&self, partial: &mut Self::Partial, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let CallStackSteps { steps, traces } = partial;
        let Some(stacks) = steps.machine() else { return };
        let ended = stacks.kept.0.settle(context.span.1);
        stacks.kept.0.settled += add_rows(ended, traces, context, rows);
    }

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let CallStackSteps { steps, traces } = whole;
        let mut stacks = steps.finish();
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let count = stacks.kept.0.settled + add_rows(stacks.kept.0.rest(), &traces, context, &mut rows);
        let unfinished: u64 = stacks.owners.values().map(|stack| stack.len() as u64).sum();
        rows.finish(vec![
            ("intervals", count.into()),
            ("unmatched", stacks.unmatched.into()),
            ("unfinished", unfinished.into()),
            ("left_out", stacks.kept.0.left_out.into()),
        ])
    }
}

//! `tasks`: how long did each task run on each board, and from when to when?
//!
//! A run lasts from one `task_switch` of a board's kernel to the next. Idle time is not counted, nor is time before the
//! first and after the last switch of a board. Where a switch is missing, the task is unknown, and the run has no task.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Column, Description, EventAnalysis, EventPartial, FinishContext, FlowLoop, Heading, Interest, LaneValue,
    Lanes, Made, Report, Shape, Start, Table, TableBuilder, Value,
    kernel::{KernelEvent, Kind, Threads, field::task_switch},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    columns::{duration_cells, duration_columns, interval_columns, most_first},
    critical_path::{HistoryLabels, TraceKey},
    durations::{Add, Durations},
    settling::SettlingRows,
};

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "tasks",
            help: "boards: how long each task ran on each board, from when to when",
            views: &["task", "interval"],
            lanes: Some(Lanes {
                view: "interval",
                title: "running tasks of boards",
                lane: &["host"],
                value: LaneValue::Column("task"),
                path: &["Boards", "{host}"],
            }),
            ..Description::EMPTY
        },
        make: |parameters| match parameters.view() {
            "interval" => Made::of_events(TaskIntervals),
            _ => Made::of_events(TaskSums),
        },
    }
}

/// The runs of each task, in sum.
#[derive(Clone, Copy, Debug)]
pub struct TaskSums;

/// Each run.
#[derive(Clone, Copy, Debug)]
pub struct TaskIntervals;

/// The task that idles.
const IDLE: u32 = 0;

/// The switches of a board.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SwitchesOfBoard {
    /// The time of the first switch, and its previous task.
    first: (Nanos, u32),
    /// The time of the last switch, and its next task.
    last: (Nanos, u32),
}

/// A run without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskRun {
    trace: u32,
    /// `None` if a switch is missing.
    task: Option<u32>,
    from: Nanos,
}

/// What is kept of runs.
pub trait KeptRuns: Default + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// Adds a run that ends at `to`.
    fn see(&mut self, to: Nanos, run: TaskRun);
    /// Adds what the next partial kept.
    fn add(&mut self, later: Self);
}

impl KeptRuns for SettlingRows<TaskRun> {
    fn see(&mut self, to: Nanos, run: TaskRun) {
        self.see(to, run);
    }

    fn add(&mut self, later: Self) {
        self.add(later, |run| run);
    }
}

/// The runs of each task of each trace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OfTasks(BTreeMap<(u32, Option<u32>), Durations>);

impl KeptRuns for OfTasks {
    fn see(&mut self, to: Nanos, TaskRun { trace, task, from }: TaskRun) {
        self.0.entry((trace, task)).or_default().see(to.0.saturating_sub(from.0));
    }

    fn add(&mut self, later: Self) {
        later.0.into_iter().for_each(|(task, runs)| self.0.entry(task).or_default().add(runs));
    }
}

/// The switches of each board, by trace, and the runs between them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(bound(serialize = "K: Serialize", deserialize = "K: DeserializeOwned"))]
pub struct TaskRuns<K> {
    switches: BTreeMap<u32, SwitchesOfBoard>,
    runs: K,
    labels: HistoryLabels,
}

impl<K: KeptRuns> EventPartial for TaskRuns<K> {
    fn interest() -> Interest<'static> {
        use task_switch::{NEXT, NEXT_NAME, PREV, PREV_NAME};
        Interest::events(const { &[(Kind::TaskSwitch, &[PREV, NEXT, PREV_NAME, NEXT_NAME])] })
            .without_threads()
    }

    fn begin(_: &Start<'_>) -> TaskRuns<K> {
        TaskRuns::default()
    }

    fn see(&mut self, event: &KernelEvent<'_>) {
        if event.kind == Kind::TaskSwitch {
            let prev = self.labels.task(event, task_switch::PREV, task_switch::PREV_NAME);
            let next = self.labels.task(event, task_switch::NEXT, task_switch::NEXT_NAME);
            self.append(
                event.trace(),
                SwitchesOfBoard { first: (event.time, prev), last: (event.time, next) },
            );
        }
    }

    fn add(&mut self, later: TaskRuns<K>, _: &Threads) {
        self.runs.add(later.runs);
        self.labels.add(later.labels);
        later.switches.into_iter().for_each(|(trace, later)| self.append(trace, later));
    }
}

impl<K: KeptRuns> TaskRuns<K> {
    /// Adds switches of a board that follow, and the run between the two partials.
    fn append(&mut self, trace: u32, later: SwitchesOfBoard) {
        let Some(known) = self.switches.get_mut(&trace) else {
            self.switches.insert(trace, later);
            return;
        };
        let ((start, next_task), (end, prev_task)) = (known.last, later.first);
        known.last = later.last;
        let task = (next_task == prev_task).then_some(prev_task);
        if task != Some(IDLE) {
            self.runs.see(end, TaskRun { trace, task, from: start });
        }
    }

    /// Returns the names of a board and of a task; a task without a name has its number.
    fn names(&self, trace: u32, task: Option<u32>) -> [Value; 2] {
        let host = self.labels.traces.get(&trace).map(String::as_str);
        let name = task.and_then(|id| self.labels.tasks.get(&TraceKey { trace, id })).cloned();
        [host.into(), name.or_else(|| task.map(|id| id.to_string())).into()]
    }
}

impl EventAnalysis for TaskSums {
    type Partial = TaskRuns<OfTasks>;

    fn finish(&self, whole: Self::Partial, _: &FinishContext<'_>) -> Table {
        let tasks = &whole.runs.0;
        let rows = tasks.iter().map(|(&(trace, task), runs)| {
            let cells = [duration_cells(runs).to_vec(), whole.names(trace, task).to_vec()].concat();
            ((runs.total, (trace, task)), cells)
        });
        let sum = |figure: fn(&Durations) -> u64| tasks.values().map(figure).fold(0, u64::saturating_add);
        let summary =
            vec![("runs", sum(|runs| runs.count).into()), ("total_ns", sum(|runs| runs.total).into())];
        let columns = duration_columns().into_iter().chain([Column::name("host"), Column::name("task")]);
        Table::new("tasks", Shape::Counters, summary, columns.collect(), most_first(rows))
    }
}

/// Adds rows by end. Returns how many.
fn add_rows(
    partial: &TaskRuns<SettlingRows<TaskRun>>,
    mut settled: Vec<(Nanos, TaskRun)>,
    rows: &mut TableBuilder,
) -> u64 {
    settled.sort_unstable();
    for &(to, TaskRun { trace, task, from }) in &settled {
        let times = [Value::from(from.0), to.0.saturating_sub(from.0).into()];
        rows.row(times.iter().chain(&partial.names(trace, task)).map(Value::cell));
    }
    settled.len() as u64
}

impl EventAnalysis for TaskIntervals {
    type Partial = TaskRuns<SettlingRows<TaskRun>>;

    fn heading(&self) -> Option<Heading> {
        let mut columns = interval_columns().to_vec();
        columns.extend([Column::name("host"), Column::name("task")]);
        Some(Heading { name: "tasks", shape: Shape::Intervals, columns })
    }

    fn settle(&self, partial: &mut Self::Partial, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let settled = partial.runs.settle(context.span.1);
        partial.runs.settled += add_rows(partial, settled, rows);
    }

    fn finish(&self, mut whole: Self::Partial, _: &FinishContext<'_>) -> Table {
        let rest = whole.runs.rest();
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let count = whole.runs.settled + add_rows(&whole, rest, &mut rows);
        rows.finish(vec![("intervals", count.into()), ("left_out", whole.runs.left_out.into())])
    }
}

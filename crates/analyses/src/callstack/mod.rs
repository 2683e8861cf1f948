//! `callstack`: how long did each call path take, by events at the entry and the exit of functions?
//!
//! Such events are `func_entry` and `func_exit` of LTTng-UST (`-finstrument-functions`) and of boards. A function belongs
//! to the thread of its event; without that context, to the task that runs on the board, or to the stream. An exit also
//! ends functions above it whose exits are missing (`unmatched`), such as those that an exception left.

use std::{collections::BTreeMap, fmt};

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, Interest, Item, Shape, Simple, Start, Table, Takes, Unit,
    Value,
    kernel::{KernelEvent, Kind, Threads, field},
    only,
};
use serde::{Deserialize, Serialize};

use crate::{
    critical_path::Key,
    deferred_ops::{DeferredOps, Machine},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Callstack;

/// The report.
pub const CALLSTACK: Simple<Callstack> = Simple {
    description: Description {
        name: "callstack",
        help: "software events: time of call paths, by events at entry and exit of functions",
        views: &["path"],
        takes: Takes::NOTHING,
        in_all: false,
    },
    analysis: Callstack,
};

/// A function, as its event identifies it: by address or by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Function {
    Named(String),
    Address(u64),
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Function::Named(name) => f.write_str(name),
            Function::Address(address) => write!(f, "{address:#x}"),
        }
    }
}

/// Whose event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Owner {
    /// A thread that its event names.
    Thread(Key),
    /// A task of a board, or stream 0 of a trace without tasks.
    Task(Key),
    /// Another stream of a trace.
    Stream(Key),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Step {
    /// A board's kernel switches to this task.
    Switch(Key),
    Enter {
        time: Nanos,
        owner: Owner,
        function: Function,
    },
    Exit {
        time: Nanos,
        owner: Owner,
        function: Function,
    },
}

/// A call path: its calls and their time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Node {
    count: u64,
    total: u64,
    /// Time in the functions that it calls.
    below: u64,
    calls: BTreeMap<Function, Node>,
}

impl Node {
    fn at(&mut self, path: &[(Function, Nanos)]) -> &mut Node {
        path.iter().fold(self, |node, (function, _)| node.calls.entry(function.clone()).or_default())
    }
}

/// The paths of a thread, and where it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Paths {
    root: Node,
    stack: Vec<(Function, Nanos)>,
}

impl Paths {
    /// Ends the innermost function.
    fn leave(&mut self, time: Nanos) {
        let Some((_, begin)) = self.stack.last() else { return };
        let length = time.0.saturating_sub(begin.0);
        let node = self.root.at(&self.stack);
        (node.count, node.total) = (node.count + 1, node.total + length);
        self.stack.pop();
        self.root.at(&self.stack).below += length;
    }
}

/// The paths of all threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct All {
    owners: BTreeMap<Owner, Paths>,
    /// The tasks that run on boards.
    running: BTreeMap<u32, u32>,
    unmatched: u64,
}

/// Functions that call each other deeper than this are one.
const DEEPEST: usize = 1 << 10;

impl All {
    fn of(&mut self, owner: Owner) -> &mut Paths {
        let owner = match owner {
            Owner::Task(key) => {
                Owner::Task(Key { id: self.running.get(&key.trace).copied().unwrap_or(key.id), ..key })
            }
            owner => owner,
        };
        self.owners.entry(owner).or_default()
    }
}

impl Machine<Step> for All {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Switch(task) => _ = self.running.insert(task.trace, task.id),
            Step::Enter { time, owner, function } => {
                let paths = self.of(owner);
                if paths.stack.len() < DEEPEST {
                    paths.stack.push((function, time));
                }
            }
            Step::Exit { time, owner, function } => {
                let paths = self.of(owner);
                let Some(place) = paths.stack.iter().rposition(|(known, _)| *known == function) else {
                    self.unmatched += 1;
                    return;
                };
                let missing = paths.stack.len() - place - 1;
                (0..=missing).for_each(|_| paths.leave(time));
                self.unmatched += missing as u64;
            }
        }
    }
}

/// The call paths of some events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    steps: DeferredOps<All, Step>,
    /// Names of traces and tasks.
    traces: BTreeMap<u32, String>,
    tasks: BTreeMap<Key, String>,
}

impl Partial {
    fn see(&mut self, event: &KernelEvent<'_>) {
        use field::task_switch::{NEXT, NEXT_NAME};
        let trace = event.trace;
        self.traces.entry(trace).or_insert_with(|| event.trace_name.to_owned());
        let text = |place| event.text(place).map(|name| String::from_utf8_lossy(name).into_owned());
        let time = event.time;
        match event.kind {
            Kind::TaskSwitch => {
                let Some(id) = event.integer(NEXT).map(|id| id as u32) else { return };
                let task = Key { trace, id };
                if let Some(name) = text(NEXT_NAME).filter(|_| !self.tasks.contains_key(&task)) {
                    self.tasks.insert(task, name);
                }
                self.steps.see(Step::Switch(task));
            }
            Kind::FunctionEntry | Kind::FunctionExit => {
                let own = |id| Key { trace, id };
                let owner = match event.reported().and_then(|thread| thread.tid()) {
                    Some(tid) => Owner::Thread(own(tid)),
                    None if event.cpu == 0 => Owner::Task(own(0)),
                    None => Owner::Stream(own(event.cpu)),
                };
                let address = || event.integer(field::function::FUNCTION).map(|value| value as u64);
                let named = text(field::function::NAME).map(Function::Named);
                let Some(function) = named.or_else(|| address().map(Function::Address)) else { return };
                self.steps.see(match event.kind {
                    Kind::FunctionEntry => Step::Enter { time, owner, function },
                    _ => Step::Exit { time, owner, function },
                });
            }
            _ => {}
        }
    }
}

impl Analysis for Callstack {
    type Partial = Partial;

    fn interest(&self) -> Interest<'_> {
        use field::{function, task_switch};
        Interest::events(&[
            (Kind::TaskSwitch, &[task_switch::NEXT, task_switch::NEXT_NAME]),
            (Kind::FunctionEntry, &[function::FUNCTION, function::NAME]),
            (Kind::FunctionExit, &[function::FUNCTION, function::NAME]),
        ])
    }

    fn begin(&self, start: &Start<'_>) -> Partial {
        let steps = DeferredOps::new(start.is_first);
        Partial { steps, traces: BTreeMap::new(), tasks: BTreeMap::new() }
    }

    fn fold(&self, partial: &mut Partial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        partial.see(event);
    }

    fn merge(&self, mut earlier: Partial, later: Partial, _: &Threads) -> Partial {
        earlier.steps.add(later.steps);
        later.traces.into_iter().for_each(|(trace, name)| _ = earlier.traces.entry(trace).or_insert(name));
        later.tasks.into_iter().for_each(|(task, name)| _ = earlier.tasks.entry(task).or_insert(name));
        earlier
    }

    fn finish(&self, partials: Vec<Partial>, of: &FinishContext<'_>) -> Table {
        let Partial { steps, traces, tasks } = only(partials);
        let mut all = steps.finish();
        let mut open = 0;
        let mut rows = Vec::new();
        for (owner, paths) in std::mem::take(&mut all.owners) {
            open += paths.stack.len() as u64;
            let name = name(owner, (&traces, &tasks), of);
            let total = paths.root.below;
            rows.push(vec![0u64.into(), name.into(), Value::Null, total.into(), Value::Null]);
            add_rows(&paths.root, 1, &mut rows);
        }
        let summary = vec![
            (
                "calls",
                rows.iter()
                    .map(|row| if let Value::Integer(count) = row[2] { count } else { 0 })
                    .sum::<u64>()
                    .into(),
            ),
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
    owner: Owner,
    (traces, tasks): (&BTreeMap<u32, String>, &BTreeMap<Key, String>),
    of: &FinishContext<'_>,
) -> String {
    let trace = |key: Key| traces.get(&key.trace).cloned().unwrap_or_default();
    match owner {
        Owner::Thread(key) => {
            let comm = of.threads.comm(hodo_model::kernel::Thread::new(key.id.into(), 0));
            comm.map_or_else(|| format!("thread {}", key.id), |comm| format!("{comm} ({})", key.id))
        }
        Owner::Task(key) => match tasks.get(&key) {
            Some(task) => format!("{task} of {}", trace(key)),
            None => trace(key),
        },
        Owner::Stream(key) => format!("stream {} of {}", key.id, trace(key)),
    }
}

/// Adds the paths below a node, those with the most time first.
fn add_rows(node: &Node, depth: u64, rows: &mut Vec<Vec<Value>>) {
    let mut calls: Vec<(&Function, &Node)> = node.calls.iter().collect();
    calls.sort_by_key(|(function, call)| (std::cmp::Reverse(call.total), *function));
    for (function, call) in calls {
        let own = call.total.saturating_sub(call.below);
        let name = function.to_string();
        rows.push(vec![depth.into(), name.into(), call.count.into(), call.total.into(), own.into()]);
        add_rows(call, depth + 1, rows);
    }
}

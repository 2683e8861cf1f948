//! `callstack`: how long did each call path take, and when did each call run, by events at the entry and the exit of
//! functions?
//!
//! Such events are `func_entry` and `func_exit` of LTTng-UST (`-finstrument-functions`) and of boards. A function belongs
//! to the thread of its event; without that context, to the task that runs on the board, or to the stream. An exit also
//! ends functions above it whose exits are missing (`unmatched`), such as those that an exception left.

use std::{collections::BTreeMap, fmt};

use hodo_clock::Nanos;
use hodo_model::{
    Description, EventPartial, FlowLoop, Interest, LaneValue, Lanes, Made, Report, Start,
    kernel::{KernelEvent, Kind, Threads, field},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    critical_path::TraceKey,
    deferred_ops::{DeferredOps, StateMachine},
};

mod intervals;
mod paths;

pub use self::{intervals::CallStackIntervals, paths::CallStackPaths};

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "callstack",
            help: "software events: time of call paths, by events at entry and exit of functions",
            views: &["path", "interval"],
            lanes: Some(Lanes {
                view: "interval",
                title: "calls, by events at their entry and exit",
                lane: &["host", "thread", "depth"],
                value: LaneValue::Column("function"),
                path: &["Call stacks", "{host}", "{thread}", "{depth}"],
            }),
            ..Description::EMPTY
        },
        make: |parameters| match parameters.view() {
            "interval" => Made::of_events(CallStackIntervals),
            _ => Made::of_events(CallStackPaths),
        },
    }
}

/// A function, as its event identifies it: by address or by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum EventFunction {
    Named(String),
    Address(u64),
}

impl fmt::Display for EventFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventFunction::Named(name) => f.write_str(name),
            EventFunction::Address(address) => write!(f, "{address:#x}"),
        }
    }
}

/// Whose event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum StackOwner {
    /// A thread that its event names.
    Thread(TraceKey),
    /// A task of a board, or stream 0 of a trace without tasks.
    Task(TraceKey),
    /// Another stream of a trace.
    Stream(TraceKey),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum CallStackStep {
    /// A board's kernel switches to this task, with this name.
    Switch(TraceKey, Option<String>),
    Enter {
        time: Nanos,
        owner: StackOwner,
        function: EventFunction,
    },
    Exit {
        time: Nanos,
        owner: StackOwner,
        function: EventFunction,
    },
}

/// What is kept of calls.
pub trait KeptCalls:
    Default + fmt::Debug + Clone + Send + Sync + Serialize + DeserializeOwned + 'static
{
    /// Adds the innermost call of a stack, which ends.
    fn leave(&mut self, ended: InnermostEnd<'_>);
}

/// The end of the innermost call of a stack.
#[derive(Clone, Copy, Debug)]
pub struct InnermostEnd<'s> {
    owner: StackOwner,
    /// The name of the owner if that is a task whose name is known.
    task: Option<&'s str>,
    /// The functions with the times of their entry, the innermost last.
    stack: &'s [(EventFunction, Nanos)],
    time: Nanos,
}

/// The stacks of all threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stacks<K> {
    owners: BTreeMap<StackOwner, Vec<(EventFunction, Nanos)>>,
    /// The tasks that run on boards.
    running: BTreeMap<u32, u32>,
    /// Names of tasks.
    tasks: BTreeMap<TraceKey, String>,
    unmatched: u64,
    kept: K,
}

/// Functions nested deeper than this count as part of the one at this depth.
const DEEPEST: usize = 1 << 10;
/// The longest stack, so that entries without exits take no more memory: functions above it are unknown.
const LONGEST: usize = 1 << 14;

impl<K> Stacks<K> {
    /// The owner of a function's event; a task is the one that runs.
    fn resolved(&self, owner: StackOwner) -> StackOwner {
        match owner {
            StackOwner::Task(key) => StackOwner::Task(TraceKey {
                id: self.running.get(&key.trace).copied().unwrap_or(key.id),
                ..key
            }),
            owner => owner,
        }
    }
}

impl<K: KeptCalls> StateMachine<CallStackStep> for Stacks<K> {
    fn apply(&mut self, step: CallStackStep) {
        match step {
            CallStackStep::Switch(task, name) => {
                self.running.insert(task.trace, task.id);
                if let Some(name) = name {
                    self.tasks.entry(task).or_insert(name);
                }
            }
            CallStackStep::Enter { time, owner, function } => {
                let owner = self.resolved(owner);
                let stack = self.owners.entry(owner).or_default();
                if stack.len() < LONGEST {
                    stack.push((function, time));
                }
            }
            CallStackStep::Exit { time, owner, function } => {
                let owner = self.resolved(owner);
                let stack = self.owners.entry(owner).or_default();
                let Some(index) = stack.iter().rposition(|(known, _)| *known == function) else {
                    self.unmatched += 1;
                    return;
                };
                self.unmatched += (stack.len() - index - 1) as u64;
                let task = match &owner {
                    StackOwner::Task(key) => self.tasks.get(key).map(String::as_str),
                    _ => None,
                };
                while stack.len() > index {
                    if stack.len() <= DEEPEST {
                        self.kept.leave(InnermostEnd { owner, task, stack, time });
                    }
                    stack.pop();
                }
            }
        }
    }
}

/// The stacks of some events.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "K: Serialize", deserialize = "K: DeserializeOwned"))]
pub struct CallStackSteps<K> {
    steps: DeferredOps<Stacks<K>, CallStackStep>,
    /// Names of traces.
    traces: BTreeMap<u32, String>,
}

impl<K: KeptCalls> EventPartial for CallStackSteps<K> {
    fn interest() -> Interest<'static> {
        use field::{function, task_switch};
        Interest::events(
            const {
                &[
                    (Kind::TaskSwitch, &[task_switch::NEXT, task_switch::NEXT_NAME]),
                    (Kind::FunctionEntry, &[function::FUNCTION, function::NAME]),
                    (Kind::FunctionExit, &[function::FUNCTION, function::NAME]),
                ]
            },
        )
    }

    fn begin(start: &Start<'_>) -> CallStackSteps<K> {
        CallStackSteps { steps: DeferredOps::new(start.is_first), traces: BTreeMap::new() }
    }

    fn see(&mut self, event: &KernelEvent<'_>) {
        use field::task_switch::{NEXT, NEXT_NAME};
        let trace = event.trace();
        self.traces.entry(trace).or_insert_with(|| event.trace_name().to_owned());
        let text = |field| event.text(field).map(|name| String::from_utf8_lossy(name).into_owned());
        let time = event.time;
        match event.kind {
            Kind::TaskSwitch => {
                let Some(id) = event.integer(NEXT).map(|id| id as u32) else { return };
                self.steps.see(CallStackStep::Switch(TraceKey { trace, id }, text(NEXT_NAME)));
            }
            Kind::FunctionEntry | Kind::FunctionExit => {
                let key = |id| TraceKey { trace, id };
                let owner = match event.reported().and_then(|thread| thread.tid()) {
                    Some(tid) => StackOwner::Thread(key(tid)),
                    None if event.cpu == 0 => StackOwner::Task(key(0)),
                    None => StackOwner::Stream(key(event.cpu)),
                };
                let address = event.integer(field::function::FUNCTION).map(|value| value as u64);
                let named = text(field::function::NAME).map(EventFunction::Named);
                let Some(function) = named.or(address.map(EventFunction::Address)) else { return };
                self.steps.see(match event.kind {
                    Kind::FunctionEntry => CallStackStep::Enter { time, owner, function },
                    _ => CallStackStep::Exit { time, owner, function },
                });
            }
            _ => {}
        }
    }

    fn add(&mut self, later: CallStackSteps<K>, _: &Threads) {
        self.steps.add(later.steps);
        later.traces.into_iter().for_each(|(trace, name)| _ = self.traces.entry(trace).or_insert(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The begin and the end of each call.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    struct Calls(Vec<(Nanos, Nanos)>);

    impl KeptCalls for Calls {
        fn leave(&mut self, InnermostEnd { stack, time, .. }: InnermostEnd<'_>) {
            self.0.extend(stack.last().map(|(_, begin)| (*begin, time)));
        }
    }

    #[test]
    fn in_a_deep_recursion_the_first_call_ends_last() {
        let owner = StackOwner::Thread(TraceKey { trace: 0, id: 1 });
        let calls = 2 * DEEPEST as u64;
        let mut stacks = Stacks::<Calls>::default();
        for time in (0..calls).map(Nanos) {
            stacks.apply(CallStackStep::Enter { time, owner, function: EventFunction::Address(1) });
        }
        for time in (calls..2 * calls).map(Nanos) {
            stacks.apply(CallStackStep::Exit { time, owner, function: EventFunction::Address(1) });
        }
        assert_eq!((stacks.kept.0.len(), stacks.unmatched), (DEEPEST, 0));
        assert_eq!(stacks.kept.0.last(), Some(&(Nanos(0), Nanos(2 * calls - 1))));
    }
}

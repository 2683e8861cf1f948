//! The contribution of a chunk to the histories.

use std::collections::BTreeMap;

use hodo_model::{
    EventPartial, Interest, Start,
    kernel::{KernelEvent, Kind, Threads, field},
};
use serde::{Deserialize, Serialize};

use super::{
    board::BoardEvent,
    history::{InterruptSource, TraceKey},
    machine::{Histories, HistoryStep, InCall, InsideKernel},
};
use crate::{deferred_ops::DeferredOps, running::RunningThreads};

/// The events of which histories are made.
const INTEREST: &[(Kind, &[usize])] = {
    use field::{
        block, fork, function, irq, message, migrate, net, softirq, switch, task_switch, task_wake, wakeup,
    };
    &[
        (Kind::SchedSwitch, &[switch::PREV_TID, switch::PREV_STATE, switch::NEXT_TID]),
        (Kind::SchedWaking, &[wakeup::TID, wakeup::TARGET_CPU, wakeup::FLAGS]),
        (Kind::SchedWakeup, &[wakeup::TID, wakeup::TARGET_CPU, wakeup::FLAGS]),
        (Kind::SchedMigrate, &[migrate::TID, migrate::DEST_CPU]),
        (Kind::SchedFork, &[fork::CHILD_TID, fork::PARENT_TID]),
        (Kind::SyscallEntry, &[]),
        (Kind::SyscallExit, &[]),
        (Kind::Syscall, &[]),
        (Kind::PageFault, &[]),
        (Kind::IrqEntry, &[irq::IRQ, irq::NAME]),
        (Kind::IrqExit, &[]),
        (Kind::SoftirqEntry, &[softirq::VEC]),
        (Kind::SoftirqExit, &[]),
        (Kind::TimerEntry, &[]),
        (Kind::TimerExit, &[]),
        (Kind::BlockIssue, &[block::DEV, block::SECTOR]),
        (Kind::BlockComplete, &[block::DEV, block::SECTOR]),
        (Kind::NetQueue, &[net::BUFFER]),
        (Kind::NetReceive, &[net::BUFFER]),
        (
            Kind::TaskSwitch,
            &[task_switch::PREV, task_switch::NEXT, task_switch::PREV_NAME, task_switch::NEXT_NAME],
        ),
        (Kind::TaskWake, &[task_wake::TASK, task_wake::NAME]),
        (Kind::FunctionEntry, &[function::FUNCTION]),
        (Kind::FunctionExit, &[function::FUNCTION]),
        (Kind::MessageSend, &[message::ID]),
        (Kind::MessageReceive, &[message::ID]),
    ]
};

/// The names of what the histories number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HistoryLabels {
    /// By trace.
    pub(crate) traces: BTreeMap<u32, String>,
    /// Tasks of boards.
    pub(crate) tasks: BTreeMap<TraceKey, String>,
    /// Interrupts, by trace and number.
    pub(crate) interrupts: BTreeMap<TraceKey, String>,
}

impl HistoryLabels {
    /// Returns the task in a field of an event, and keeps its name and that of its trace.
    pub(crate) fn task(&mut self, event: &KernelEvent<'_>, field: usize, name: usize) -> u32 {
        let task = TraceKey { trace: event.trace(), id: event.integer(field).unwrap_or(0) as u32 };
        self.trace(event);
        if let Some(name) = event.text(name).filter(|_| !self.tasks.contains_key(&task)) {
            self.tasks.insert(task, String::from_utf8_lossy(name).into_owned());
        }
        task.id
    }

    /// Keeps the name of an event's trace.
    fn trace(&mut self, event: &KernelEvent<'_>) {
        self.traces.entry(event.trace()).or_insert_with(|| event.trace_name().to_owned());
    }

    /// Adds those of a later neighbour.
    pub(crate) fn add(&mut self, later: HistoryLabels) {
        later.traces.into_iter().for_each(|(trace, name)| _ = self.traces.entry(trace).or_insert(name));
        later.tasks.into_iter().for_each(|(task, name)| _ = self.tasks.entry(task).or_insert(name));
        for (irq, name) in later.interrupts {
            self.interrupts.entry(irq).or_insert(name);
        }
    }
}

/// The contribution of a chunk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delta {
    steps: DeferredOps<Histories, HistoryStep>,
    /// What is known of the threads on CPUs.
    inside: BTreeMap<TraceKey, InsideKernel>,
    #[serde(skip)]
    running: RunningThreads,
    labels: HistoryLabels,
}

/// What all threads did, and the names that a table needs.
pub(crate) struct Whole {
    pub(crate) histories: Histories,
    pub(crate) labels: HistoryLabels,
}

impl EventPartial for Delta {
    fn interest() -> Interest<'static> {
        Interest::events(INTEREST)
    }

    fn begin(start: &Start<'_>) -> Delta {
        Delta {
            steps: DeferredOps::new(start.is_first),
            inside: BTreeMap::new(),
            running: RunningThreads::default(),
            labels: HistoryLabels::default(),
        }
    }

    fn add(&mut self, later: Delta, _: &Threads) {
        // What each CPU's thread is inside of at the end of this task holds up to the first switch of the next task. The
        // operations of the next task do not contain it, so it becomes operations here.
        for (cpu, inside) in std::mem::take(&mut self.inside) {
            self.steps.see(HistoryStep::SetOpenCall { cpu, inside });
        }
        self.steps.add(later.steps);
        self.inside = later.inside;
        self.running = later.running;
        self.labels.add(later.labels);
    }

    fn see(&mut self, event: &KernelEvent<'_>) {
        let cpu = TraceKey { trace: event.trace(), id: event.cpu };
        self.labels.trace(event);
        self.compare(event, cpu);
        match event.kind {
            Kind::SyscallEntry => self.set(cpu, InCall::In(event.name)),
            Kind::SyscallExit | Kind::Syscall => self.set(cpu, InCall::No),
            Kind::PageFault => self.inside.entry(cpu).or_default().fault = Some(true),
            Kind::SchedSwitch
            | Kind::SchedWaking
            | Kind::SchedWakeup
            | Kind::SchedMigrate
            | Kind::SchedFork => self.scheduler(event, cpu),
            Kind::TaskSwitch
            | Kind::TaskWake
            | Kind::FunctionEntry
            | Kind::FunctionExit
            | Kind::MessageSend
            | Kind::MessageReceive => self.board(event),
            _ => self.interrupt(event, cpu),
        }
    }
}

impl Delta {
    pub(crate) fn finish(self) -> Whole {
        Whole { histories: self.steps.finish(), labels: self.labels }
    }

    /// Compares the thread that an event contains with the running one: they differ if a switch is missing.
    fn compare(&mut self, event: &KernelEvent<'_>, cpu: TraceKey) {
        let Some(tid) = self.running.see(event) else { return };
        if let Some(inside) = self.inside.remove(&cpu) {
            self.steps.see(HistoryStep::SetOpenCall { cpu, inside });
        }
        self.steps.see(HistoryStep::Runs { time: event.time, cpu, tid });
    }

    fn set(&mut self, cpu: TraceKey, call: InCall) {
        self.inside.insert(cpu, InsideKernel { call: Some(call), fault: Some(false) });
    }

    fn scheduler(&mut self, event: &KernelEvent<'_>, cpu: TraceKey) {
        let time = event.time;
        let integer = |field| event.integer(field).map(|value| value as u32);
        let thread = |tid| TraceKey { id: tid, ..cpu };
        let step = match event.kind {
            Kind::SchedSwitch => {
                let tids = integer(field::switch::PREV_TID).zip(integer(field::switch::NEXT_TID));
                let Some((prev, next)) = tids else { return };
                let state = event.prev_state();
                let inside = self.inside.remove(&cpu).unwrap_or_default();
                HistoryStep::Switch { time, cpu, prev, next, state, inside }
            }
            Kind::SchedMigrate => {
                let tid = integer(field::migrate::TID).filter(|&tid| tid != 0);
                let Some((tid, to)) = tid.zip(integer(field::migrate::DEST_CPU)) else { return };
                HistoryStep::Migrate { time, thread: thread(tid), cpu: to }
            }
            Kind::SchedFork => {
                let child = integer(field::fork::CHILD_TID).filter(|&tid| tid != 0);
                let Some((child, parent)) = child.zip(integer(field::fork::PARENT_TID)) else { return };
                HistoryStep::Fork { time, parent, child: thread(child) }
            }
            _ => {
                let Some(tid) = integer(field::wakeup::TID).filter(|&tid| tid != 0) else { return };
                let target = integer(field::wakeup::TARGET_CPU).unwrap_or(event.cpu);
                let flags = event.integer(field::wakeup::FLAGS);
                HistoryStep::Wake { time, cpu, tid, target, flags, is_early: event.kind == Kind::SchedWaking }
            }
        };
        self.steps.see(step);
    }

    fn interrupt(&mut self, event: &KernelEvent<'_>, cpu: TraceKey) {
        use field::{block, irq, net, softirq};
        let integer = |field| event.integer(field).unwrap_or(0);
        let request = (integer(block::DEV) as u32, integer(block::SECTOR) as u64);
        let step = match event.kind {
            Kind::IrqEntry => {
                let number = integer(irq::IRQ) as u32;
                let key = TraceKey { id: number, ..cpu };
                if let Some(name) =
                    event.text(irq::NAME).filter(|_| !self.labels.interrupts.contains_key(&key))
                {
                    self.labels.interrupts.insert(key, String::from_utf8_lossy(name).into_owned());
                }
                HistoryStep::Enter { cpu, source: InterruptSource::Irq(number) }
            }
            Kind::SoftirqEntry => {
                HistoryStep::Enter { cpu, source: InterruptSource::Softirq(integer(softirq::VEC) as u32) }
            }
            Kind::TimerEntry => HistoryStep::Enter { cpu, source: InterruptSource::Timer },
            Kind::IrqExit | Kind::SoftirqExit | Kind::TimerExit => HistoryStep::Leave { cpu },
            Kind::BlockIssue => HistoryStep::Issue { time: event.time, cpu, request },
            Kind::BlockComplete => HistoryStep::Complete { cpu, request },
            Kind::NetQueue | Kind::NetReceive => {
                let Some(packet) = event.integer(net::BUFFER).map(|buffer| buffer as u64) else { return };
                match event.kind {
                    Kind::NetQueue => HistoryStep::Send { time: event.time, cpu, packet },
                    _ => HistoryStep::Receive { cpu, packet },
                }
            }
            _ => return,
        };
        self.steps.see(step);
    }

    fn board(&mut self, event: &KernelEvent<'_>) {
        use field::{message, task_switch, task_wake};
        let integer = |field| event.integer(field).unwrap_or(0);
        let mut named = |field, name| self.labels.task(event, field, name);
        let board_event = match event.kind {
            Kind::TaskSwitch => BoardEvent::Switch {
                prev: named(task_switch::PREV, task_switch::PREV_NAME),
                next: named(task_switch::NEXT, task_switch::NEXT_NAME),
            },
            Kind::TaskWake => BoardEvent::Wake { task: named(task_wake::TASK, task_wake::NAME) },
            // Threads of a kernel's trace and of programs have schedulers.
            Kind::FunctionEntry | Kind::FunctionExit if event.reported().is_some() => return,
            Kind::FunctionEntry => BoardEvent::Enter,
            Kind::FunctionExit => BoardEvent::Exit,
            Kind::MessageSend => BoardEvent::Send { id: integer(message::ID) as u64 },
            _ => BoardEvent::Receive { id: integer(message::ID) as u64 },
        };
        self.steps.see(HistoryStep::Board { time: event.time, trace: event.trace(), event: board_event });
    }
}

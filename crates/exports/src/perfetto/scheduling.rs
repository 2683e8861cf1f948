//! Switches and wake-ups as ftrace's events, of which Perfetto makes its tables `sched` and `thread_state`.

use super::messages::{FtraceEvent, FtraceEventBundle, SchedSwitch, SchedWaking};
use crate::{EventThread, Switch, Wakeup};

/// The bits of `prev_state`, as in Linux: `TASK_RUNNING`, `TASK_INTERRUPTIBLE` and so on of `include/linux/sched.h`.
const STATES: [(&str, i64); 6] = [
    ("runnable", 0),
    ("interruptible", 1),
    ("uninterruptible", 2),
    ("stopped", 4),
    ("ended", 16),
    ("idle", 128),
];

/// The number of a thread; that of the idle thread is 0.
fn number(thread: EventThread<'_>) -> Option<i32> {
    i32::try_from(thread.tid).ok()
}

fn bundle(cpu: u32, event: FtraceEvent) -> FtraceEventBundle {
    FtraceEventBundle { cpu: Some(cpu), event: vec![event] }
}

/// A switch as an event of its CPU.
pub(super) fn switch(switch: &Switch<'_>) -> FtraceEventBundle {
    let &Switch { time, cpu, previous, state, next, priority } = switch;
    let state = STATES.iter().find(|(name, _)| *name == state).map_or(1, |(_, bits)| *bits);
    let event = SchedSwitch {
        prev_comm: Some(previous.name.to_owned()),
        prev_pid: number(previous),
        prev_prio: Some(0),
        prev_state: Some(state),
        next_comm: Some(next.name.to_owned()),
        next_pid: number(next),
        next_prio: i32::try_from(priority).ok(),
    };
    let event = FtraceEvent {
        timestamp: Some(time),
        pid: Some(previous.tid),
        sched_switch: Some(event),
        ..FtraceEvent::default()
    };
    bundle(cpu, event)
}

/// A wake-up as an event of the waker's CPU.
pub(super) fn waking(wakeup: &Wakeup<'_>) -> FtraceEventBundle {
    let &Wakeup { time, cpu, waker, woken } = wakeup;
    let event = SchedWaking {
        comm: Some(woken.name.to_owned()),
        pid: number(woken),
        prio: Some(0),
        success: Some(1),
        target_cpu: i32::try_from(cpu).ok(),
    };
    let event = FtraceEvent {
        timestamp: Some(time),
        pid: Some(waker.tid),
        sched_waking: Some(event),
        ..FtraceEvent::default()
    };
    bundle(cpu, event)
}

//! Boards: tasks of small kernels, and programs without a scheduler that trace functions and messages.
//!
//! A board's CPU is number 0 of its trace, and task 0 idles. A trace without `task_switch` has one thread, number 0: it
//! runs while a function does, and waits for a message if that was sent after the thread's previous event.

use hodo_clock::Nanos;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{
    history::{Author, CompletedWork, Doing, TraceKey, WaitIn, Waker, Why, WorkKind},
    machine::Histories,
};

/// An event of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BoardEvent {
    Switch { prev: u32, next: u32 },
    Wake { task: u32 },
    Enter,
    Exit,
    Send { id: u64 },
    Receive { id: u64 },
}

/// A board.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Board {
    has_scheduler: bool,
    running: u32,
    /// The functions that run, if there is no scheduler.
    depth: u64,
    /// The last event of the running task.
    last: Nanos,
}

/// All boards.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Boards {
    boards: FxHashMap<u32, Board>,
    /// Messages that are not received, by id.
    messages: FxHashMap<u64, CompletedWork>,
}

impl Boards {
    /// Whether a trace is of a board.
    pub(crate) fn contains(&self, trace: u32) -> bool {
        self.boards.contains_key(&trace)
    }

    /// Whether it has a scheduler.
    pub(crate) fn has_scheduler(&self, trace: u32) -> bool {
        self.boards.get(&trace).is_some_and(|board| board.has_scheduler)
    }
}

/// The only CPU of a board.
fn cpu(trace: u32) -> TraceKey {
    TraceKey { trace, id: 0 }
}

/// Applies an event.
pub(super) fn apply(histories: &mut Histories, time: Nanos, trace: u32, event: BoardEvent) {
    let boards = histories.boards_mut();
    let board = boards.boards.entry(trace).or_default();
    let (before, thread) = (board.last, TraceKey { trace, id: board.running });
    if !matches!(event, BoardEvent::Wake { .. }) {
        board.last = time;
    }
    match event {
        BoardEvent::Switch { prev, next } => switch(histories, time, trace, (prev, next)),
        BoardEvent::Wake { task } => {
            let by = match thread.id {
                0 => Waker::SomeInterrupt,
                running => Waker::Thread(running),
            };
            let history = histories.thread_history(TraceKey { trace, id: task });
            match history.last().map(|change| change.to) {
                Some(Doing::Running(_) | Doing::Woken(..)) => return,
                None => history.push(Nanos(0), Doing::Blocked(WaitIn::Unknown)),
                Some(_) => {}
            }
            history.push(time, Doing::Woken(0, by));
        }
        BoardEvent::Enter | BoardEvent::Exit if board.has_scheduler => {}
        BoardEvent::Enter => {
            board.depth += 1;
            if board.depth == 1 {
                histories.thread_history(thread).push(time, Doing::Running(0));
            }
        }
        BoardEvent::Exit => {
            board.depth = board.depth.saturating_sub(1);
            if board.depth == 0 {
                histories.thread_history(thread).push(time, Doing::Unknown(Why::NoScheduler));
            }
        }
        BoardEvent::Send { id } => {
            let work = CompletedWork { kind: WorkKind::Message, begin: time, author: Author::Thread(thread) };
            boards.messages.insert(id, work);
        }
        BoardEvent::Receive { id } => {
            if let Some(work) = boards.messages.remove(&id) {
                receive(histories, (before, time), thread, work);
            }
        }
    }
}

fn switch(histories: &mut Histories, time: Nanos, trace: u32, (prev, next): (u32, u32)) {
    let board = histories.boards_mut().boards.entry(trace).or_default();
    let is_first = !std::mem::replace(&mut board.has_scheduler, true);
    let running = std::mem::replace(&mut board.running, next);
    if is_first {
        histories.forget(cpu(trace));
        histories.occupants_mut(cpu(trace)).push(Nanos(0), prev);
    } else if running != prev {
        histories.occupants_mut(cpu(trace)).lose();
        if running != 0 {
            histories.lose(TraceKey { trace, id: running });
        }
    }
    let since = histories.occupants_mut(cpu(trace)).last();
    histories.occupants_mut(cpu(trace)).push(time, next);
    if prev != 0 {
        let history = histories.thread_history(TraceKey { trace, id: prev });
        if history.last().is_none() && is_first {
            history.push(Nanos(0), Doing::Running(0));
        }
        if history.last().is_none_or(|change| change.to != Doing::Running(0)) {
            history.push_unknown(since);
        }
        history.push(time, if next == 0 { Doing::Blocked(WaitIn::Unknown) } else { Doing::Left(0) });
    }
    if next != 0 {
        let history = histories.thread_history(TraceKey { trace, id: next });
        match history.last().map(|change| change.to) {
            None => history.push(Nanos(0), Doing::Unknown(Why::Before)),
            Some(Doing::Running(_)) => history.correct(Doing::Unknown(Why::Lost)),
            Some(_) => {}
        }
        history.push(time, Doing::Running(0));
    }
}

/// A thread receives a message. The thread waited if the message was sent after the thread's previous event.
fn receive(histories: &mut Histories, (before, time): (Nanos, Nanos), thread: TraceKey, work: CompletedWork) {
    let board = &histories.boards().boards[&thread.trace];
    let (has_scheduler, depth) = (board.has_scheduler, board.depth);
    let Some(last) = histories.thread_history(thread).last() else { return };
    if has_scheduler {
        // The task was started for the message, which it takes first.
        if last.to != Doing::Running(0) || last.time != before || work.begin > last.time {
            return;
        }
        let index = histories.add_work(work);
        let history = histories.thread_history(thread);
        history.pop();
        if history.last().is_some_and(|change| change.to == Doing::Blocked(WaitIn::Unknown)) {
            history.correct(Doing::Blocked(WaitIn::Message));
            history.push(last.time, Doing::Woken(0, Waker::Work(index)));
        }
        return history.push(last.time, Doing::Running(0));
    }
    if work.begin > before && last.time <= before {
        let index = histories.add_work(work);
        let history = histories.thread_history(thread);
        history.push(before, Doing::Blocked(WaitIn::Message));
        history.push(time, Doing::Woken(0, Waker::Work(index)));
        history.push(time, if depth > 0 { Doing::Running(0) } else { Doing::Unknown(Why::NoScheduler) });
    }
}

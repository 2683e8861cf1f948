//! Determines the thread that received a signal from a later switch.
//!
//! Events after the reception are deferred until then, because another signal may be sent to the same thread. So the
//! history of signals is a list of blocks, each of which ends in deferred events; a block without deferred events is
//! merged with the next one. Few events lie between a reception and the next switch of its CPU, so there is mostly one
//! block.

use hodo_clock::Nanos;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{SignalSums, key};
use crate::pairs::{Requests, Unpaired};

/// The reception of a signal on a CPU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Taken {
    pub(super) cpu: u32,
    pub(super) signal: u32,
    pub(super) time: Nanos,
}

/// Deferred events in order of time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum DeferredSignal {
    Sent(u64, Nanos),
    /// By an unknown thread.
    Taken(Taken),
    /// By thread and number.
    TakenBy(u64, Nanos),
}

/// The state after the events before the deferred ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SignalBlock {
    /// By CPU, the previous thread of the first switch.
    left: FxHashMap<u32, u32>,
    /// Sent and received signals.
    requests: Requests<Nanos, (u64, Nanos)>,
    waiting: Vec<DeferredSignal>,
}

/// Blocks in order of time; at least one, if there are events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct SignalBlocks(Vec<SignalBlock>);

impl SignalBlock {
    fn sent(&mut self, key: u64, time: Nanos) {
        match self.waiting.is_empty() {
            true => self.requests.ask(key, time),
            false => self.waiting.push(DeferredSignal::Sent(key, time)),
        }
    }

    /// Applies a switch: its previous thread received the signals that were delivered on the CPU.
    fn switch<const ALL: bool>(&mut self, cpu: u32, tid: u32, sums: &mut SignalSums<ALL>) {
        let mut is_any = false;
        for waiting in &mut self.waiting {
            if let &mut DeferredSignal::Taken(taken) = waiting
                && taken.cpu == cpu
            {
                *waiting = DeferredSignal::TakenBy(key(tid, taken.signal), taken.time);
                is_any = true;
            }
        }
        if is_any {
            self.advance(sums);
        }
    }

    /// Folds the deferred events whose threads are known now.
    fn advance<const ALL: bool>(&mut self, sums: &mut SignalSums<ALL>) {
        let known =
            self.waiting.iter().take_while(|waiting| !matches!(waiting, DeferredSignal::Taken(_))).count();
        for waiting in self.waiting.drain(..known) {
            match waiting {
                DeferredSignal::Sent(key, time) => self.requests.ask(key, time),
                DeferredSignal::TakenBy(key, time) => {
                    sums.taken(key);
                    if let Some((begin, _)) = self.requests.begin(key, (key, time)) {
                        sums.waited(key, begin, time);
                    }
                }
                DeferredSignal::Taken(_) => unreachable!("its thread is known"),
            }
        }
    }
}

impl SignalBlocks {
    fn last(&mut self) -> &mut SignalBlock {
        if self.0.is_empty() {
            self.0.push(SignalBlock::default());
        }
        self.0.last_mut().expect("a block was pushed if there was none")
    }

    /// Adds a sent signal.
    pub(super) fn sent(&mut self, key: u64, time: Nanos) {
        self.last().sent(key, time);
    }

    /// Adds a signal that the running thread of a CPU received.
    pub(super) fn taken(&mut self, taken: Taken) {
        self.last().waiting.push(DeferredSignal::Taken(taken));
    }

    /// Adds a switch.
    pub(super) fn switch<const ALL: bool>(&mut self, cpu: u32, tid: u32, sums: &mut SignalSums<ALL>) {
        let last = self.last();
        last.left.entry(cpu).or_insert(tid);
        last.switch(cpu, tid, sums);
    }

    /// Adds the history of the next task.
    pub(super) fn add<const ALL: bool>(&mut self, later: SignalBlocks, sums: &mut SignalSums<ALL>) {
        for block in later.0 {
            let mut left: Vec<_> = block.left.iter().map(|(&cpu, &tid)| (cpu, tid)).collect();
            left.sort_unstable();
            for before in &mut self.0 {
                left.iter().for_each(|&(cpu, tid)| before.switch(cpu, tid, sums));
            }
            self.0.push(block);
        }
        self.join(sums);
    }

    /// Merges neighbouring blocks without deferred events between them.
    fn join<const ALL: bool>(&mut self, sums: &mut SignalSums<ALL>) {
        let blocks = std::mem::take(&mut self.0);
        for block in blocks {
            match self.0.last_mut().filter(|last| last.waiting.is_empty()) {
                None => self.0.push(block),
                Some(last) => {
                    // The first thread that left a CPU took the signals before that.
                    for (cpu, tid) in block.left {
                        last.left.entry(cpu).or_insert(tid);
                    }
                    last.requests.add(block.requests, |begin, (key, end)| sums.waited(key, begin, end));
                    last.waiting = block.waiting;
                }
            }
        }
    }

    /// Ends the trace: returns the numbers of signals received but not sent (unmatched), and sent but not received.
    pub(super) fn finish<const ALL: bool>(
        mut self,
        running: impl Fn(u32) -> Option<u32>,
        sums: &mut SignalSums<ALL>,
    ) -> Unpaired {
        let mut cpus = Vec::new();
        for waiting in self.0.iter().flat_map(|block| &block.waiting) {
            if let DeferredSignal::Taken(taken) = waiting {
                cpus.push(taken.cpu);
            }
        }
        cpus.sort_unstable();
        cpus.dedup();
        for cpu in cpus {
            // Only the idle threads have the id 0, and they take no signals.
            let tid = running(cpu).unwrap_or(0);
            self.0.iter_mut().for_each(|block| block.switch(cpu, tid, sums));
        }
        self.join(sums);
        let requests = self.0.pop().unwrap_or_default().requests;
        let unfinished = requests.waiting();
        let unmatched = requests.finish(|begin, (key, end)| sums.waited(key, begin, end));
        Unpaired { unmatched, unfinished }
    }
}

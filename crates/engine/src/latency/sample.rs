//! Executions of several functions, in one pass and in bounded memory: all of them, or every Nth.

use std::{collections::BTreeMap, sync::Arc};

use hodo_analyses::{
    FrameEntry,
    calls::{Call, Moment, WantedCalls},
};
use hodo_model::FunctionId;
use rustc_hash::FxHashMap;

use super::{
    ExecutionLocation,
    slowest::{Measured, slow_from},
};
use crate::{
    flow::{
        calls::{CallSink, numbered_calls},
        selection_filter::Numbers,
        trace::Trace,
    },
    reading::Reading,
};

/// Executions of a function that are kept at most; beyond, every second is dropped.
const MOST: usize = 1 << 18;
/// The same of slow ones, which are kept beside them.
const MOST_SLOW: usize = 20_000;

/// A complete execution that no other one of its function contains. One that an exception left is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledExecution {
    /// Its number among those of its thread, from 1.
    pub number: u64,
    /// Begin in nanoseconds, if known.
    pub begin: Option<u64>,
    /// End in nanoseconds, if known.
    pub end: Option<u64>,
    /// The number of its first instruction in the thread.
    pub first: u64,
    /// Number of instructions executed in it.
    pub instructions: u64,
    /// The function that called it.
    pub caller: Option<FunctionId>,
    /// The index of its thread in [`Trace::threads`].
    context: u32,
}

impl SampledExecution {
    /// Returns where it is in the control flow.
    pub fn location(&self, flow: &Trace<'_>) -> ExecutionLocation {
        let thread = flow.threads[self.context as usize];
        let instructions = self.first..self.first + self.instructions;
        ExecutionLocation { pid: thread.pid, tid: thread.tid, instructions }
    }
}

impl Measured for SampledExecution {
    fn instructions(&self) -> Option<u64> {
        Some(self.instructions)
    }

    fn time(&self) -> Option<u64> {
        self.begin.zip(self.end).map(|(begin, end)| end.saturating_sub(begin))
    }
}

/// Every Nth of a sequence, where N is 1 or a power of two for which they fit into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thinned {
    /// N.
    pub step: u64,
    /// Those that are kept, thread by thread in order.
    pub kept: Vec<SampledExecution>,
    most: usize,
    count: u64,
}

impl Thinned {
    fn new(most: usize) -> Thinned {
        Thinned { step: 1, kept: Vec::new(), most, count: 0 }
    }

    fn push(&mut self, execution: SampledExecution) {
        if self.count.is_multiple_of(self.step) {
            self.kept.push(execution);
            if self.kept.len() > self.most {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.step *= 2;
            }
        }
        self.count += 1;
    }

    /// Returns whether nothing was dropped.
    pub fn is_whole(&self) -> bool {
        self.step == 1
    }

    /// Returns those of the thread that has most of them.
    pub fn of_main_thread(&self) -> Vec<SampledExecution> {
        let mut threads: BTreeMap<u32, Vec<SampledExecution>> = BTreeMap::new();
        for execution in &self.kept {
            threads.entry(execution.context).or_default().push(*execution);
        }
        threads.into_values().max_by_key(Vec::len).unwrap_or_default()
    }

    /// Returns those of the thread of another execution.
    pub fn of_thread_of(&self, other: &SampledExecution) -> Vec<SampledExecution> {
        self.kept.iter().filter(|one| one.context == other.context).copied().collect()
    }
}

/// The executions of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionSample {
    /// Every Nth of all.
    pub all: Thinned,
    /// Every Nth of those with at least [`WantedFunction::slow_from`] instructions.
    slow: Thinned,
    /// That [`WantedFunction::slow_from`].
    wanted_from: u64,
}

impl ExecutionSample {
    /// Returns every Nth of the executions with at least `from` instructions, in order.
    pub fn slow(&self, from: u64) -> Thinned {
        // `self.slow` keeps more of them, but none with fewer than `wanted_from`.
        let mut slow =
            if self.all.is_whole() || from < self.wanted_from { &self.all } else { &self.slow }.clone();
        slow.kept.retain(|one| one.instructions >= from);
        slow
    }

    /// Returns the least number of instructions of a slow execution: of the slow kind, or of the slowest 1 % by rank.
    pub fn slow_from(&self) -> Option<u64> {
        slow_from(&self.all.kept.iter().collect::<Vec<_>>())
    }
}

/// A function whose executions are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedFunction {
    /// The function.
    pub function: FunctionId,
    /// Executions with at least as many instructions are kept though others are dropped.
    pub slow_from: u64,
}

/// Returns the executions of functions, in the same order, and the numbers of the instructions of everything that `reading`
/// reads, which has no window. `progress` gets the number of decoded bytes and returns whether
/// to continue.
pub fn sample(
    flow: &Trace<'_>,
    wanted: &[WantedFunction],
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> (Vec<ExecutionSample>, Numbers) {
    let indices = wanted.iter().zip(0..).map(|(one, index)| (one.function, index)).collect();
    let empty = |one: &WantedFunction| ExecutionSample {
        all: Thinned::new(MOST),
        slow: Thinned::new(MOST_SLOW),
        wanted_from: one.slow_from,
    };
    let mut sampler = Sampler {
        indices,
        samples: wanted.iter().map(empty).collect(),
        threads: BTreeMap::new(),
        context: 0,
        current: OfThread::default(),
    };
    let (_, numbers) = numbered_calls(flow, reading, &mut sampler, progress);
    (sampler.samples, numbers)
}

/// A thread's executions of a wanted function.
#[derive(Clone, Copy, Default)]
struct OfFunction {
    /// How many are open.
    open: u64,
    /// How many ended that no other one contains.
    ended: u64,
}

#[derive(Default)]
struct OfThread {
    /// The functions that run, the innermost last.
    stack: Vec<FunctionId>,
    /// By the index of the function.
    functions: FxHashMap<usize, OfFunction>,
    /// Executions that ended at the last instruction so far. If nothing follows, they did not return: flow is missing, or
    /// the trace ends.
    last: Vec<(usize, SampledExecution)>,
}

struct Sampler {
    /// The index of each wanted function.
    indices: FxHashMap<FunctionId, usize>,
    samples: Vec<ExecutionSample>,
    /// The other threads.
    threads: BTreeMap<u32, OfThread>,
    context: u32,
    current: OfThread,
}

impl Sampler {
    /// Adds the executions that ended before this instruction.
    #[inline]
    fn settle(&mut self, position: u64) {
        let is_before = |(_, one): &(usize, SampledExecution)| one.first + one.instructions < position;
        if self.current.last.first().is_some_and(is_before) {
            self.add_last();
        }
    }

    fn add_last(&mut self) {
        for (index, execution) in self.current.last.drain(..) {
            let sample = &mut self.samples[index];
            sample.all.push(execution);
            if execution.instructions >= sample.wanted_from {
                sample.slow.push(execution);
            }
        }
    }

    fn end(&mut self, index: usize, call: &Call) {
        self.settle(call.before + call.instructions);
        let thread = &mut self.current;
        let function = thread.functions.entry(index).or_default();
        function.open = function.open.saturating_sub(1);
        // What already ran at the start of the trace did not begin in it.
        if function.open > 0 || call.entry == FrameEntry::Root {
            return;
        }
        function.ended += 1;
        let execution = SampledExecution {
            number: function.ended,
            begin: call.begin.map(|time| time.0),
            end: call.end.map(|time| time.0),
            first: call.before,
            instructions: call.instructions,
            caller: call.depth.checked_sub(1).and_then(|caller| thread.stack.get(caller)).copied(),
            context: self.context,
        };
        thread.last.push((index, execution));
    }
}

impl CallSink for Sampler {
    fn begins(&self) -> bool {
        true
    }

    fn wanted(&self) -> WantedCalls {
        WantedCalls::Of(Arc::new(self.indices.keys().copied().collect()))
    }

    fn thread(&mut self, context: u32) {
        if self.context != context {
            let before = std::mem::take(&mut self.current);
            self.threads.insert(self.context, before);
            self.context = context;
            self.current = self.threads.remove(&context).unwrap_or_default();
        }
    }

    fn moment(&mut self, moment: Moment) {
        match moment {
            Moment::Begin { depth, function, before, .. } => {
                self.settle(before);
                let thread = &mut self.current;
                thread.stack.truncate(depth);
                thread.stack.push(function);
                if let Some(&index) = self.indices.get(&function) {
                    thread.functions.entry(index).or_default().open += 1;
                }
            }
            Moment::End { call } => match self.indices.get(&call.function) {
                Some(&index) => self.end(index, &call),
                None => self.settle(call.before + call.instructions),
            },
            Moment::Gap { .. } => {
                self.current.last.clear();
                self.current.functions.values_mut().for_each(|function| function.open = 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution(number: u64) -> SampledExecution {
        SampledExecution {
            number,
            begin: None,
            end: None,
            first: number * 10,
            instructions: 5,
            caller: None,
            context: 0,
        }
    }

    #[test]
    fn long_sequences_are_thinned_evenly() {
        let mut thinned = Thinned::new(10);
        (0..100).for_each(|number| thinned.push(execution(number)));
        let numbers: Vec<u64> = thinned.kept.iter().map(|one| one.number).collect();
        assert_eq!((thinned.step, numbers), (16, vec![0, 16, 32, 48, 64, 80, 96]));
    }

    #[test]
    fn what_does_not_return_is_no_execution() {
        let function = FunctionId { module: 0, index: 0 };
        let mut sampler = Sampler {
            indices: FxHashMap::from_iter([(function, 0)]),
            samples: vec![ExecutionSample { all: Thinned::new(9), slow: Thinned::new(9), wanted_from: 7 }],
            threads: BTreeMap::new(),
            context: 0,
            current: OfThread::default(),
        };
        let entry = FrameEntry::Call;
        let begin = |before| Moment::Begin { depth: 0, function, entry, time: None, before };
        let end = |before, instructions| {
            let (begin, end, is_open) = (None, None, false);
            let call = Call { depth: 0, function, entry, begin, end, before, instructions, is_open };
            Moment::End { call }
        };
        // The second contains another; the fourth ends in a gap, the last one with the trace.
        let moments = [
            begin(0),
            end(0, 5),
            begin(10),
            begin(12),
            end(12, 2),
            end(10, 8),
            begin(20),
            end(20, 3),
            begin(30),
            end(30, 4),
            Moment::Gap { before: 0 },
            begin(40),
            end(40, 4),
        ];
        moments.into_iter().for_each(|moment| sampler.moment(moment));
        let [sample] = &sampler.samples[..] else { panic!("one function") };
        let found = |kept: &[SampledExecution]| -> Vec<(u64, u64)> {
            kept.iter().map(|one| (one.number, one.instructions)).collect()
        };
        assert_eq!(found(&sample.all.kept), [(1, 5), (2, 8), (3, 3)]);
        assert_eq!(found(&sample.slow.kept), [(2, 8)]);
        assert_eq!(found(&sample.slow(5).kept), [(1, 5), (2, 8)], "all are kept");
    }
}

//! Prints the kernel's call stack at moments of an emulated machine's recording, without the newest interrupt: to compare
//! with the stacks that the guest's own kernel found in that interrupt.
//!
//! An interrupt may come between a branch and the instruction that it leads to. The kernel's stack then begins with that
//! instruction, and the decoded one with the branch. So each part of a stack is read when the interrupt above it has
//! returned.
//!
//! ```text
//! hodo-stacks RECORDING < SAMPLES
//! ```
//!
//! A line of SAMPLES is the number of a thread and a time in nanoseconds. Each gets a line: thread, time, and the functions
//! of the stack, the newest first, separated by `;`. A frame that a jump replaced is left out, as its function does
//! not return. A stack has no function where execution was in user space. The last name is `...` if the thread has run
//! since before the recording, so that older frames are unknown.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    env,
    error::Error,
    io::{self, BufRead, Write},
    path::PathBuf,
};

use hodo_analyses::{FrameEntry, calls::Moment};
use hodo_clock::Nanos;
use hodo_engine::{CHUNKS_IN_ORDER, CallSink, Files, Input, Options, Reading, Trace};
use hodo_model::{FunctionId, Names};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [recording] = arguments.as_slice() else {
        return Err("usage: hodo-stacks RECORDING < SAMPLES".into());
    };
    let files = Files::default();
    let input = Input::File(PathBuf::from(recording));
    let trace = Trace::open(&files, &input, &Options::default())?;
    let out = io::BufWriter::new(io::stdout());
    let names = HashMap::new();
    let mut stacks =
        Stacks { trace: &trace, samples: samples()?, threads: BTreeMap::new(), tid: 0, names, out };
    let reading = Reading::new(std::thread::available_parallelism()?.get(), CHUNKS_IN_ORDER);
    hodo_engine::calls(&trace, reading, &mut stacks, |_| true);
    stacks.finish();
    stacks.out.flush()?;
    Ok(())
}

/// The times of samples by thread, in order.
fn samples() -> Result<HashMap<u32, VecDeque<u64>>, Box<dyn Error>> {
    let mut samples: HashMap<u32, VecDeque<u64>> = HashMap::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (tid, time) = line.split_once(' ').ok_or("a sample is a thread and a time")?;
        samples.entry(tid.parse()?).or_default().push_back(time.parse()?);
    }
    samples.values_mut().for_each(|times| times.make_contiguous().sort_unstable());
    Ok(samples)
}

#[derive(Clone, Copy)]
struct Frame {
    function: FunctionId,
    entry: FrameEntry,
}

/// A sample whose stack is not complete yet.
struct Pending {
    time: u64,
    /// The names so far, the newest first.
    names: Vec<String>,
    /// The depths of the interrupts above the missing parts, the oldest first.
    interrupts: Vec<usize>,
    /// The number of instructions of the thread at which the newest of them returned.
    returned: Option<u64>,
}

#[derive(Default)]
struct Thread {
    frames: Vec<Frame>,
    pending: Vec<Pending>,
    /// Whether flow was missing.
    has_gap: bool,
}

struct Stacks<'x, 'f> {
    trace: &'x Trace<'f>,
    samples: HashMap<u32, VecDeque<u64>>,
    threads: BTreeMap<u32, Thread>,
    tid: u32,
    /// The name of each function; `None` outside the kernel.
    names: HashMap<FunctionId, Option<String>>,
    out: io::BufWriter<io::Stdout>,
}

impl Stacks<'_, '_> {
    /// Returns the name of a function of the kernel.
    fn name(&mut self, function: FunctionId) -> Option<&str> {
        let trace = self.trace;
        let name = || {
            let (name, module) = trace.modules.names(function);
            let is_kernel = module.starts_with('[') && !["[vdso]", "[generated code]"].contains(&&*module);
            is_kernel.then_some(name)
        };
        self.names.entry(function).or_insert_with(name).as_deref()
    }

    /// Begins the stacks of the samples before a time.
    fn sample_until(&mut self, thread: &mut Thread, time: Option<Nanos>) {
        let Some(limit) = time else { return };
        while let Some(&time) = self.samples.get(&self.tid).and_then(VecDeque::front)
            && time < limit.0
        {
            self.samples.get_mut(&self.tid).map(VecDeque::pop_front);
            let is_above_kernel = |&depth: &usize| {
                thread.frames[depth].entry.is_interrupt()
                    && self.name(thread.frames[depth - 1].function).is_some()
            };
            let mut interrupts: Vec<usize> = (1..thread.frames.len()).filter(is_above_kernel).collect();
            let newest = thread.frames.iter().rposition(|frame| frame.entry.is_interrupt());
            // The newest interrupted the user's program: nothing of the kernel lies below.
            if newest != interrupts.last().copied() {
                interrupts.clear();
            }
            thread.pending.push(Pending { time, names: Vec::new(), interrupts, returned: None });
        }
    }

    /// Reads the parts below interrupts that have returned before an instruction, and prints the complete stacks.
    fn settle(&mut self, thread: &mut Thread, instruction: u64) {
        let Thread { frames, pending, has_gap } = thread;
        for sample in pending.iter_mut() {
            if sample.returned.is_some_and(|returned| returned < instruction) {
                self.read(sample, frames, *has_gap);
            }
        }
        pending.retain(|sample| {
            let is_complete = sample.interrupts.is_empty();
            if is_complete {
                // An error shows when the writer is flushed at the end.
                _ = writeln!(self.out, "{} {} {}", self.tid, sample.time, sample.names.join(";"));
            }
            !is_complete
        });
    }

    /// Adds the functions from the newest frame to the next interrupt of the kernel.
    fn read(&mut self, sample: &mut Pending, frames: &[Frame], has_gap: bool) {
        sample.returned = None;
        sample.interrupts.pop();
        let from = sample.interrupts.last().copied().unwrap_or(0);
        let mut is_replaced = false;
        for &Frame { function, entry } in frames.get(from..).unwrap_or_default().iter().rev() {
            let Some(name) = self.name(function) else { return sample.interrupts.clear() };
            if !is_replaced {
                sample.names.push(name.to_owned());
            }
            is_replaced = entry == FrameEntry::Tail;
        }
        if from == 0 && !has_gap {
            sample.names.push("...".to_owned());
        }
    }

    /// Prints the stacks that are still not complete.
    fn finish(&mut self) {
        for (tid, mut thread) in std::mem::take(&mut self.threads) {
            self.tid = tid;
            self.flush(&mut thread);
        }
    }

    fn flush(&mut self, thread: &mut Thread) {
        for sample in &mut thread.pending {
            sample.interrupts.clear();
        }
        self.settle(thread, 0);
    }
}

impl CallSink for Stacks<'_, '_> {
    fn begins(&self) -> bool {
        true
    }

    fn thread(&mut self, context: u32) {
        self.tid = self.trace.threads[context as usize].tid;
    }

    fn moment(&mut self, moment: Moment) {
        let mut thread = self.threads.remove(&self.tid).unwrap_or_default();
        match moment {
            Moment::Begin { depth, function, entry, time, before } => {
                self.settle(&mut thread, before);
                self.sample_until(&mut thread, time);
                thread.frames.truncate(depth);
                thread.frames.push(Frame { function, entry });
                // The next interrupt came before an instruction was executed.
                let waits = thread.pending.iter_mut().filter(|sample| sample.returned.is_some());
                for sample in waits.filter(|_| entry.is_interrupt()) {
                    sample.returned = None;
                    sample.interrupts.pop();
                    sample.interrupts.push(depth);
                }
            }
            Moment::End { call } => {
                let now = call.before + call.instructions;
                self.settle(&mut thread, now);
                self.sample_until(&mut thread, call.end);
                thread.frames.truncate(call.depth);
                let ends = |sample: &&mut Pending| sample.interrupts.last() == Some(&call.depth);
                thread.pending.iter_mut().filter(ends).for_each(|sample| sample.returned = Some(now));
            }
            Moment::Gap { .. } => {
                thread.has_gap = true;
                thread.frames.clear();
                self.flush(&mut thread);
            }
        }
        self.threads.insert(self.tid, thread);
    }
}

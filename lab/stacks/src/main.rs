//! Prints the kernel's call stack at moments of an emulated machine's recording, as it was when the newest interrupt came:
//! to compare with the stacks that the guest's own kernel found in that interrupt.
//!
//! ```text
//! hodo-stacks RECORDING < SAMPLES
//! ```
//!
//! A line of SAMPLES is the number of a thread and a time in nanoseconds. Each gets a line: thread, time, and the functions
//! of the stack, the newest first, separated by `;`. A frame that a jump replaced is left out, as its function does
//! not return. A stack has no function where execution was in user space.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    env,
    error::Error,
    io::{self, BufRead, Write},
    path::PathBuf,
};

use hodo_analyses::{FrameEntry, calls::Moment};
use hodo_clock::Nanos;
use hodo_engine::{CHUNKS_IN_ORDER, CallSink, Files, FlowTrace, Input, Options, Reading};
use hodo_model::{FunctionId, Names};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [recording] = arguments.as_slice() else {
        return Err("usage: hodo-stacks RECORDING < SAMPLES".into());
    };
    let files = Files::default();
    let input = Input::File(PathBuf::from(recording));
    let experiment = FlowTrace::open(&files, &input, &Options::default())?;
    let out = io::BufWriter::new(io::stdout());
    let names = HashMap::new();
    let mut stacks =
        Stacks { experiment: &experiment, samples: samples()?, threads: BTreeMap::new(), tid: 0, names, out };
    let reading = Reading {
        threads: std::thread::available_parallelism()?.get(),
        chunk_size: CHUNKS_IN_ORDER,
        window: None,
        numbers: None,
        spans: None,
        memo: true,
    };
    hodo_engine::calls(&experiment, reading, &mut stacks, |_| true);
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

struct Stacks<'x, 'f> {
    experiment: &'x FlowTrace<'f>,
    samples: HashMap<u32, VecDeque<u64>>,
    threads: BTreeMap<u32, Vec<Frame>>,
    tid: u32,
    /// The name of each function; `None` outside the kernel.
    names: HashMap<FunctionId, Option<String>>,
    out: io::BufWriter<io::Stdout>,
}

impl Stacks<'_, '_> {
    /// Prints the samples before a time.
    fn print_until(&mut self, time: Option<Nanos>) {
        let Some(time) = time else { return };
        while let Some(&sample) = self.samples.get(&self.tid).and_then(VecDeque::front)
            && sample < time.0
        {
            let names = self.interrupted();
            // An error shows when the writer is flushed at the end.
            _ = writeln!(self.out, "{} {sample} {}", self.tid, names.join(";"));
            self.samples.get_mut(&self.tid).map(VecDeque::pop_front);
        }
    }

    /// The functions of the kernel below the newest interrupt.
    fn interrupted(&mut self) -> Vec<String> {
        let Some(frames) = self.threads.get(&self.tid) else { return Vec::new() };
        let newest = frames.iter().rposition(|frame| frame.entry.name() == "interrupt").unwrap_or(0);
        let mut found = Vec::new();
        let mut replaced = false;
        for &Frame { function, entry } in frames[..newest].iter().rev() {
            let experiment = self.experiment;
            let name = self.names.entry(function).or_insert_with(|| {
                let (name, module) = experiment.modules.names(function);
                (module.starts_with('[') && module != "[vdso]").then_some(name)
            });
            let Some(name) = name else { break };
            if !replaced {
                found.push(name.clone());
            }
            replaced = entry == FrameEntry::Tail;
        }
        found
    }
}

impl CallSink for Stacks<'_, '_> {
    fn begins(&self) -> bool {
        true
    }

    fn thread(&mut self, context: u32) {
        self.tid = self.experiment.threads[context as usize].tid;
    }

    fn moment(&mut self, moment: Moment) {
        match moment {
            Moment::Begin { depth, function, entry, time, .. } => {
                self.print_until(time);
                let frames = self.threads.entry(self.tid).or_default();
                frames.truncate(depth);
                frames.push(Frame { function, entry });
            }
            Moment::End { call } => {
                self.print_until(call.end);
                self.threads.entry(self.tid).or_default().truncate(call.depth);
            }
            Moment::Gap => self.threads.entry(self.tid).or_default().clear(),
        }
    }
}

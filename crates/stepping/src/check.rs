//! Compares positions with the flow as it is decoded from the start, by the ways of `hodo script`.

use std::collections::BTreeMap;

use hodo_analyses::{FrameEntry, calls::Moment};
use hodo_clock::Nanos;
use hodo_engine::{
    CallSink, Chunk, Chunks, Reading, SelectionFilter, StreamSink, Trace, calls, decode_all, numbers,
};
use hodo_flow::{Event, Executed, Sink};
use hodo_model::FunctionId;

use crate::execution::Execution;

/// Numbers of instructions to compare, sorted, by the index of their thread.
pub type Samples = BTreeMap<u32, Vec<u64>>;

/// A frame: its function, how it was entered, and the number of its first instruction.
type Frame = (FunctionId, FrameEntry, u64);

/// Compares place, call stack and time at sampled instructions. Returns the number of comparisons.
///
/// # Errors
/// Returns what differs first.
pub fn compare(
    trace: &Trace<'_>,
    execution: &mut Execution,
    samples: &Samples,
    threads: usize,
) -> Result<u64, String> {
    let reading = Reading { memo: true, ..Reading::new(threads, Chunks::Default) };
    let numbers = numbers(trace, reading, |_| true);
    let addresses = addresses(trace, Reading { numbers: Some(&numbers), ..reading }, samples);
    let mut stacks = Stacks {
        samples: samples
            .iter()
            .map(|(&thread, numbers)| (thread, numbers.iter().copied().peekable()))
            .collect(),
        thread: 0,
        open: BTreeMap::new(),
        found: BTreeMap::new(),
        begins: BTreeMap::new(),
    };
    calls(trace, reading, &mut stacks, |_| true);
    stacks.finish();
    let mut compared = 0;
    let mut stepper = execution.stepper(trace, &|| true);
    for (&thread, numbers) in samples {
        for &number in numbers {
            let at = stepper.position(thread, number).ok_or(format!("thread {thread} has no {number}"))?;
            let piece = stepper.piece(thread, at.number);
            let instruction = piece.instruction(number);
            let theirs = addresses.get(&(thread, number));
            if theirs != Some(&instruction.address()) {
                return Err(format!("{at:?}: {:x}, expected {theirs:x?}", instruction.address()));
            }
            let frames = piece.frames.stack(Some(instruction.frame));
            let ours: Vec<Frame> = frames.map(|frame| (frame.function, frame.entry, frame.begin)).collect();
            let theirs: Option<Vec<Frame>> =
                stacks.found.get(&(thread, number)).map(|frames| frames.iter().rev().copied().collect());
            if theirs.as_ref() != Some(&ours) {
                return Err(format!("{at:?}: {ours:?}, expected {theirs:?}"));
            }
            if let Some(time) = stacks.begins.get(&(thread, number))
                && piece.time(number) != *time
            {
                return Err(format!("{at:?}: at {:?}, expected {time:?}", piece.time(number)));
            }
            compared += 1;
        }
    }
    Ok(compared)
}

/// The addresses of sampled instructions.
fn addresses(trace: &Trace<'_>, reading: Reading<'_>, samples: &Samples) -> BTreeMap<(u32, u64), u64> {
    let mut all = BTreeMap::new();
    decode_all(
        trace,
        reading,
        |chunk: &Chunk, ()| Addresses {
            filter: SelectionFilter::new(trace, chunk, reading),
            samples,
            found: Vec::new(),
        },
        |sink| (sink.found, ()),
        |_, found| {
            all.extend(found);
            true
        },
        |_| true,
    );
    all
}

struct Addresses<'x, 'f> {
    filter: SelectionFilter<'x, 'f>,
    samples: &'x Samples,
    found: Vec<((u32, u64), u64)>,
}

impl StreamSink for Addresses<'_, '_> {
    fn begin_segment(&mut self) {
        self.filter.begin_segment();
    }
}

impl Sink for Addresses<'_, '_> {
    fn executed(&mut self, executed: Executed<'_>) {
        let first = self.filter.number().expect("instructions are numbered");
        let count = executed.lengths.len() as u64;
        self.filter.ran(count);
        let Some(samples) = self.samples.get(&self.filter.context) else { return };
        let next = samples.partition_point(|&sample| sample < first);
        for &sample in samples[next..].iter().take_while(|&&sample| sample < first + count) {
            let address = executed.addresses().nth((sample - first) as usize);
            self.found.extend(address.map(|address| ((self.filter.context, sample), address)));
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(now) => self.filter.time(now),
            Event::Switch(context) => self.filter.switch(context),
            _ => {}
        }
    }
}

/// Follows the calls of threads, and keeps the stacks at sampled instructions.
struct Stacks<I: Iterator<Item = u64>> {
    samples: BTreeMap<u32, std::iter::Peekable<I>>,
    thread: u32,
    open: BTreeMap<u32, Vec<Frame>>,
    found: BTreeMap<(u32, u64), Vec<Frame>>,
    /// The times of sampled instructions with which a call begins.
    begins: BTreeMap<(u32, u64), Option<Nanos>>,
}

impl<I: Iterator<Item = u64>> Stacks<I> {
    /// Keeps the stack for the samples before an instruction.
    fn until(&mut self, number: u64) {
        let open = self.open.entry(self.thread).or_default();
        let Some(samples) = self.samples.get_mut(&self.thread) else { return };
        while let Some(sample) = samples.next_if(|&sample| sample < number) {
            self.found.insert((self.thread, sample), open.clone());
        }
    }

    fn finish(&mut self) {
        for thread in self.open.keys().copied().collect::<Vec<_>>() {
            self.thread = thread;
            self.until(u64::MAX);
        }
    }
}

impl<I: Iterator<Item = u64> + Send> CallSink for Stacks<I> {
    fn begins(&self) -> bool {
        true
    }

    fn thread(&mut self, context: u32) {
        self.thread = context;
    }

    fn moment(&mut self, moment: Moment) {
        match moment {
            Moment::Begin { depth, function, entry, time, before } => {
                self.until(before);
                if self.samples.get_mut(&self.thread).and_then(|samples| samples.peek()) == Some(&before) {
                    self.begins.insert((self.thread, before), time);
                }
                let open = self.open.entry(self.thread).or_default();
                open.truncate(depth);
                open.push((function, entry, before));
            }
            Moment::End { call } => {
                self.until(call.before + call.instructions);
                self.open.entry(self.thread).or_default().truncate(call.depth);
            }
            Moment::Gap { before } => {
                self.until(before);
                self.open.entry(self.thread).or_default().clear();
            }
        }
    }
}

//! A closer look at single executions of functions: the patterns in their sequence, what their cost depends on, and why
//! slow ones are slow.
//!
//! ```text
//! questions ──1 pass──► executions of all these functions, numbers of instructions ──► patterns
//!                          │ some of them, of which only the chunks are decoded
//!                          ├──► typical and slow ones ──► call trees ──► causes
//!                          └──► 200 of all lengths ──► iterations of loops ──► sizes
//! ```

use std::cmp::Reverse;

use hodo_engine::{
    Chunks, Experiment, Numbers, Reading, Request, Trace,
    latency::{self, CallTree, ExecutionSample, LoopBlock, SampledExecution, WantedFunction},
};
use hodo_findings::{
    BlockSizes, CAUSES, Execution, Executions, Need, PATTERNS, Question, SIZES, Sized, patterns, sizes,
};
use hodo_model::{FunctionId, Summary, Table, Value};

use crate::{arguments::Input, failure::Failure, latency::question::only, progress::Progress};

/// The most slow executions of a function that are compared.
const MOST_COMPARED: usize = 1000;
/// The most executions of a function whose loops are counted: the chunks in which they ran are decoded for it.
const MOST_COUNTED: usize = 200;

/// A question whose function is known, with its executions.
struct Asked<'q> {
    question: &'q Question,
    function: FunctionId,
    sample: ExecutionSample,
}

/// Returns tables of the patterns in the executions of functions, and of why slow ones were slow, by comparison with a
/// typical one. `None` if interrupted. Only of whole recordings of control flow: of parts executions have no numbers.
pub fn look(
    input: &Input,
    experiment: &Experiment,
    request: &Request,
    questions: &[Question],
) -> Result<Option<Vec<(Need, Table)>>, Failure> {
    if questions.is_empty() || input.time.is_some() || input.call.is_some() {
        return Ok(Some(Vec::new()));
    }
    let counts = questions.iter().any(|question| question.counts);
    let moved = match counts && experiment.contents.events {
        true => moved_bytes(input, experiment)?,
        false => Vec::new(),
    };
    experiment.with(|traces| {
        // Of several recordings no tables are made.
        let Ok(flow) = only(traces) else { return Ok(Some(Vec::new())) };
        let look = Look { flow, moved, reading: reading(request), quiet: input.quiet };
        Ok(look.tables(questions))
    })
}

/// Chunks in which several hundred thousand calls end, or a few blocks of a native log: smaller ones cost more, as each
/// begins with an unknown stack, and with the block before it.
const CHUNKS: Chunks = Chunks::Bytes(1 << 17);

fn reading(request: &Request) -> Reading<'static> {
    let chunks = match request.chunks {
        Chunks::Bytes(_) => request.chunks,
        _ => CHUNKS,
    };
    Reading::new(request.threads, chunks)
}

/// System calls whose result is a number of bytes that they moved.
const MOVE_BYTES: &[&str] = &[
    "read",
    "pread64",
    "readv",
    "preadv",
    "preadv2",
    "recvfrom",
    "recvmsg",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "sendto",
    "sendmsg",
    "sendfile",
    "copy_file_range",
    "splice",
];

/// A system call that moved bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moved {
    tid: u64,
    /// When it began, in nanoseconds.
    begin: u64,
    bytes: u64,
}

/// Returns the system calls that moved bytes, in order of threads and time.
fn moved_bytes(input: &Input, experiment: &Experiment) -> Result<Vec<Moved>, Failure> {
    let request = super::request_of(input, experiment, &[("syscalls", "interval")])?;
    let outcome = experiment.run(&request, &mut |_| true)?;
    let mut moved = Vec::new();
    for table in &outcome.tables {
        let at = |name: &str| table.columns().iter().position(|column| column.name == name);
        let places = ["tid", "begin_ns", "call", "result"].map(at);
        let [Some(tid), Some(begin), Some(call), Some(result)] = places else { continue };
        for row in table.rows() {
            if let (Value::Integer(tid), Value::Integer(begin), Value::Text(call), Value::Signed(bytes @ 1..)) =
                (&row[tid], &row[begin], &row[call], &row[result])
                && MOVE_BYTES.contains(&call.as_str())
            {
                moved.push(Moved { tid: *tid, begin: *begin, bytes: bytes.unsigned_abs() });
            }
        }
    }
    moved.sort_unstable();
    Ok(moved)
}

/// Returns the bytes that a thread moved from one instant to another.
fn bytes_within(moved: &[Moved], tid: u64, begin: u64, end: u64) -> u64 {
    let first = moved.partition_point(|one| (one.tid, one.begin) < (tid, begin));
    let within = moved[first..].iter().take_while(|one| one.tid == tid && one.begin < end);
    within.fold(0, |sum: u64, one| sum.saturating_add(one.bytes))
}

struct Look<'l, 'f> {
    flow: &'l Trace<'f>,
    /// What system calls moved, if the input has these.
    moved: Vec<Moved>,
    reading: Reading<'static>,
    quiet: bool,
}

impl Look<'_, '_> {
    /// Returns the tables; `None` if interrupted.
    fn tables(&self, questions: &[Question]) -> Option<Vec<(Need, Table)>> {
        let (asked, numbers) = self.executions(questions)?;
        let mut tables: Vec<(Need, Table)> = asked.iter().map(|one| (PATTERNS, patterns_of(one))).collect();
        let compared: Vec<(&Asked<'_>, Vec<SampledExecution>)> = asked
            .iter()
            .filter(|one| one.question.compares)
            .filter_map(|one| Some((one, sides(&one.sample)?)))
            .collect();
        let counted = counted(&asked);
        if compared.is_empty() && counted.is_empty() {
            return Some(tables);
        }
        let passes = u64::from(!compared.is_empty()) + u64::from(!counted.is_empty());
        let progress = Progress::new(self.flow.bytes() * passes, self.quiet);
        let mut before = 0;
        if !compared.is_empty() {
            let locations: Vec<_> =
                compared.iter().flat_map(|(_, sides)| sides).map(|one| one.location(self.flow)).collect();
            let (trees, _) = latency::trees(self.flow, &locations, &numbers, self.reading, |done| {
                progress.set(before + done)
            });
            tables.extend(causes(&compared, trees));
            before += self.flow.bytes();
        }
        if !counted.is_empty() {
            let executions: Vec<_> =
                counted.iter().map(|(one, executions)| (one.function, executions.clone())).collect();
            let blocks = latency::loops(self.flow, &executions, &numbers, self.reading, |done| {
                progress.set(before + done)
            });
            let sizes = counted.iter().zip(blocks);
            tables.extend(sizes.map(|((one, own), blocks)| (SIZES, self.sizes(one, own, blocks))));
        }
        progress.finish();
        (!progress.is_interrupted()).then_some(tables)
    }

    /// Returns the executions of the functions in question, and the numbers of instructions; `None` if interrupted. Of several functions with one name in
    /// a file none are returned.
    fn executions<'q>(&self, questions: &'q [Question]) -> Option<(Vec<Asked<'q>>, Numbers)> {
        let names: Vec<(&str, &str)> =
            questions.iter().map(|question| (question.function.as_str(), question.module.as_str())).collect();
        let functions = latency::functions(self.flow, &names);
        let named: Vec<(&Question, FunctionId)> = questions
            .iter()
            .zip(functions)
            .filter_map(|(question, function)| Some((question, function?)))
            .collect();
        let wanted: Vec<WantedFunction> = named
            .iter()
            .map(|&(question, function)| WantedFunction { function, slow_from: question.slow_from })
            .collect();
        let progress = Progress::new(self.flow.bytes(), self.quiet);
        let (samples, numbers) = latency::sample(self.flow, &wanted, self.reading, |done| progress.set(done));
        progress.finish();
        if progress.is_interrupted() {
            return None;
        }
        let samples = named.into_iter().zip(samples);
        let asked = samples.map(|((question, function), sample)| Asked { question, function, sample });
        Some((asked.collect(), numbers))
    }

    /// Returns the table of the size that the cost of executions depends on.
    fn sizes(&self, asked: &Asked<'_>, counted: &[SampledExecution], blocks: Vec<LoopBlock>) -> Table {
        let loops =
            blocks.into_iter().map(|block| BlockSizes { at: block.at, counts: block.counts }).collect();
        let executions: Vec<Execution> = counted.iter().map(execution).collect();
        let bytes_of = |one: &SampledExecution| {
            let tid = one.location(self.flow).tid.into();
            one.begin.zip(one.end).map_or(0, |(begin, end)| bytes_within(&self.moved, tid, begin, end))
        };
        let bytes = match self.moved.is_empty() {
            true => Vec::new(),
            false => counted.iter().map(bytes_of).collect(),
        };
        sizes(
            &asked.question.function,
            &asked.question.module,
            &Sized { executions: &executions, bytes, loops },
        )
    }
}

fn execution(one: &SampledExecution) -> Execution {
    let caller =
        one.caller.map_or(u64::MAX, |caller| u64::from(caller.module) << 32 | u64::from(caller.index));
    Execution { number: one.number, begin: one.begin, end: one.end, instructions: one.instructions, caller }
}

/// Returns the patterns in the executions of the thread that has most of them.
fn patterns_of(asked: &Asked<'_>) -> Table {
    let all = asked.sample.all.of_main_thread();
    let slow_from = asked.sample.slow_from();
    let slow = slow_from.zip(all.first()).map(|(from, first)| {
        let slow = asked.sample.slow(from);
        // Of every Nth one the distances are unknown.
        let is_whole = slow.is_whole();
        slow.of_thread_of(first).iter().filter(|_| is_whole).map(execution).collect()
    });
    let executions = Executions {
        all: all.iter().map(execution).collect(),
        step: asked.sample.all.step,
        slow: slow.unwrap_or_default(),
    };
    patterns(&asked.question.function, &asked.question.module, &executions)
}

/// Returns a typical execution, then slow ones, evenly spread if they are many.
fn sides(sample: &ExecutionSample) -> Option<Vec<SampledExecution>> {
    let mut order: Vec<&SampledExecution> = sample.all.kept.iter().collect();
    order.sort_by_key(|one| Reverse((one.instructions, latency::Measured::time(*one))));
    let typical = *latency::typical(&order)?;
    let slowest = slowest(sample)?;
    let step = slowest.len().div_ceil(MOST_COMPARED).max(1);
    Some([typical].into_iter().chain(slowest.into_iter().step_by(step)).collect())
}

/// Returns the slow executions: the slow kind, or the slowest 1 % by rank.
fn slowest(sample: &ExecutionSample) -> Option<Vec<SampledExecution>> {
    if !sample.all.is_whole() {
        return Some(sample.slow(sample.slow_from()?).kept);
    }
    let mut order: Vec<&SampledExecution> = sample.all.kept.iter().collect();
    order.sort_by_key(|one| Reverse((one.instructions, latency::Measured::time(*one))));
    Some(latency::slowest(&order).into_iter().copied().collect())
}

/// Returns exact numbers of a function's executions, whose histogram has rounded ones. None if only a sample is known.
fn exact(asked: &Asked<'_>) -> Summary {
    let sample = &asked.sample;
    if !sample.all.is_whole() {
        return Vec::new();
    }
    let lengths = |is_wanted: &dyn Fn(u64) -> bool| {
        let lengths = sample.all.kept.iter().map(|one| one.instructions).filter(|&length| is_wanted(length));
        let mut lengths: Vec<u64> = lengths.collect();
        lengths.sort_unstable();
        lengths
    };
    let median = |lengths: &[u64]| lengths.get(lengths.len().saturating_sub(1) / 2).copied();
    let slow_from = asked.question.slow_from;
    let fast = lengths(&|length| length < slow_from);
    let slow = lengths(&|length| length >= slow_from);
    vec![
        ("slowest", slowest(sample).map(|slowest| slowest.len() as u64).into()),
        ("median", median(&lengths(&|_| true)).into()),
        ("fast_count", (fast.len() as u64).into()),
        ("fast_p50", median(&fast).into()),
        ("slow_count", (slow.len() as u64).into()),
        ("slow_p50", median(&slow).into()),
    ]
}

/// Returns the tables of why slow executions were slow.
fn causes(compared: &[(&Asked<'_>, Vec<SampledExecution>)], trees: Vec<CallTree>) -> Vec<(Need, Table)> {
    let mut trees = trees.into_iter();
    let mut tables = Vec::new();
    for (one, sides) in compared {
        let trees: Vec<CallTree> = trees.by_ref().take(sides.len()).collect();
        if let Some((typical, slow)) = trees.split_first() {
            let mut summary = vec![
                ("function", one.question.function.as_str().into()),
                ("compared", (slow.len() as u64).into()),
            ];
            summary.extend(exact(one));
            tables.push((CAUSES, latency::causes(typical, slow).causes_table(summary)));
        }
    }
    tables
}

/// The least ratio of long executions to short ones, of which 5 % are longer and shorter, that a size may explain.
const LEAST_RATIO: u64 = 4;

/// Returns whether the lengths of executions differ enough to count their loops, which takes two passes.
fn differs(sample: &ExecutionSample) -> bool {
    let mut lengths: Vec<u64> = sample.all.kept.iter().map(|one| one.instructions).collect();
    lengths.sort_unstable();
    let few = lengths.len() / 20;
    let ends = lengths.get(few).zip(lengths.len().checked_sub(few + 1).map(|last| lengths[last]));
    ends.is_some_and(|(short, long)| long >= short.saturating_mul(LEAST_RATIO))
}

/// Returns the functions whose loops are counted, each with executions of all lengths, of one thread and in order.
fn counted<'a, 'q>(asked: &'a [Asked<'q>]) -> Vec<(&'a Asked<'q>, Vec<SampledExecution>)> {
    let mut counted: Vec<(&Asked<'_>, Vec<SampledExecution>)> = Vec::new();
    for one in asked.iter().filter(|one| one.question.counts && differs(&one.sample)) {
        let mut executions = match counted.first() {
            Some((_, first)) => one.sample.all.of_thread_of(&first[0]),
            None => one.sample.all.of_main_thread(),
        };
        executions.sort_by_key(|one| (one.instructions, one.number));
        let step = executions.len().div_ceil(MOST_COUNTED).max(1);
        // The longest is among them: its size is the largest that a finding names.
        executions.reverse();
        let mut executions: Vec<_> = executions.into_iter().step_by(step).collect();
        executions.sort_by_key(|one| one.first);
        if !executions.is_empty() {
            counted.push((one, executions));
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_for_the_execution_in_which_the_thread_moved_them() {
        let moved = [(7, 10, 1), (7, 20, 2), (7, 30, 4), (8, 20, 8)];
        let moved = moved.map(|(tid, begin, bytes)| Moved { tid, begin, bytes });
        let within = |tid, begin, end| bytes_within(&moved, tid, begin, end);
        assert_eq!((within(7, 10, 30), within(7, 11, 31), within(8, 0, 99)), (3, 6, 8));
        assert_eq!((within(7, 31, 99), within(9, 0, 99)), (0, 0));
    }
}

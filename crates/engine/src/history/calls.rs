//! The calls of control flow as records: one lane for each thread and depth of its stack, in each recording.

use hodo_analyses::calls::{Call, Moment};
use hodo_clock::Nanos;
use hodo_model::{Cause, FunctionId, Lanes, Loss, Names};
use hodo_store::{Error, Feed, Field, Kind, Schema, Shape, Writer};
use rustc_hash::FxHashMap;

use super::{NO_SPAN, tables::naming};
use crate::{
    flow::{
        calls::{CHUNKS_IN_ORDER, CallSink},
        trace::Trace,
    },
    losses::Losses,
    reading::Reading,
    traces::cover,
};

/// Name of the table.
const CALLS: &str = "calls";

/// The column that names the recording of a row, if there are several.
const RECORDING: &str = "recording";

/// With `has_recordings`, lanes are those of several recordings.
fn schema(has_recordings: bool) -> Schema {
    let [threads, process, thread] = Lanes::THREAD;
    let recording = has_recordings.then_some("{recording}");
    let path: Vec<&str> =
        [threads].into_iter().chain(recording).chain([process, thread, "call stack", "{depth}"]).collect();
    let instructions = Field { unit: "instructions".to_owned(), ..Field::new("instructions", Kind::Integer) };
    Schema {
        name: CALLS.to_owned(),
        shape: Shape::Intervals,
        key: vec![
            Field::new("pid", Kind::Integer),
            Field::new("tid", Kind::Integer),
            Field::new("comm", Kind::Name),
            Field::new("depth", Kind::Integer),
        ]
        .into_iter()
        .chain(has_recordings.then(|| Field::new(RECORDING, Kind::Name)))
        .collect(),
        value: Field::new("function", Kind::Name),
        columns: vec![instructions, Field::new("module", Kind::Name), Field::new("entered_by", Kind::Name)],
        naming: naming("calls of functions", &path),
    }
}

/// Adds the calls of a trace to a store. `recording` is the name of the trace, if there are several. Returns what is
/// missing, and the first begin and the last end.
pub(super) fn add(
    writer: &Writer,
    trace: &Trace<'_>,
    recording: Option<&str>,
    threads: usize,
    progress: impl FnMut(u64) -> bool + Send,
) -> Result<(Losses, (u64, u64)), Error> {
    let reading = Reading::new(threads, CHUNKS_IN_ORDER);
    let mut feed = writer.feed(writer.table(&schema(recording.is_some()))?);
    let recording = recording.map(|name| feed.name(name)).transpose()?;
    let mut sink = Sink {
        trace,
        feed,
        recording,
        names: FxHashMap::default(),
        thread: [None; 3],
        lanes: FxHashMap::default(),
        context: 0,
        known: FxHashMap::default(),
        untimed: 0,
        span: NO_SPAN,
        fed: Ok(()),
    };
    let mut losses = crate::flow::calls::calls(trace, reading, &mut sink, progress);
    sink.fed?;
    sink.feed.flush()?;
    if sink.untimed > 0 {
        losses.add(Loss {
            stream: String::new(),
            cause: Cause::Untimed,
            bytes: 0..0,
            time: None,
            count: sink.untimed,
            detail: "calls without times, which a history can't hold".to_owned(),
        });
    }
    Ok((losses, sink.span))
}

struct Sink<'x, 'f> {
    trace: &'x Trace<'f>,
    feed: Feed,
    /// The name of the recording, if there are several.
    recording: Option<u64>,
    /// The names of a function and of its module.
    names: FxHashMap<FunctionId, [Option<u64>; 2]>,
    /// The first cells of the current thread's keys.
    thread: [Option<u64>; 3],
    /// The lane of each context and depth.
    lanes: FxHashMap<(u32, usize), u32>,
    context: u32,
    /// The last known time of each context.
    known: FxHashMap<u32, Option<Nanos>>,
    untimed: u64,
    span: (u64, u64),
    fed: Result<(), Error>,
}

impl Sink<'_, '_> {
    fn cells_of_thread(&mut self) -> Result<[Option<u64>; 3], Error> {
        let thread = self.trace.threads[self.context as usize];
        let name = self.trace.thread_name(thread).map(|name| self.feed.name(&name)).transpose()?;
        Ok([Some(thread.pid.into()), Some(thread.tid.into()), name])
    }

    fn add(&mut self, call: &Call) -> Result<(), Error> {
        // No timestamp follows the last calls of a thread: they lasted at least until the last known time.
        let known = self.known.entry(self.context).or_default();
        *known = (*known).max(call.begin).max(call.end);
        let Some((begin, end)) = call.begin.or(*known).zip(call.end.or(*known)) else {
            self.untimed += 1;
            return Ok(());
        };
        let times = (begin.0, end.0.max(begin.0));
        self.span = cover(self.span, times);
        let lane = match self.lanes.get(&(self.context, call.depth)) {
            Some(lane) => *lane,
            None => {
                let [pid, tid, comm] = self.thread;
                let key = [pid, tid, comm, Some(call.depth as u64), self.recording];
                // Only lanes of several recordings have the last cell.
                let cells = key.len() - usize::from(self.recording.is_none());
                let lane = self.feed.lane(&key[..cells])?;
                *self.lanes.entry((self.context, call.depth)).or_insert(lane)
            }
        };
        let [function, module] = match self.names.get(&call.function) {
            Some(names) => *names,
            None => {
                let (function, module) = self.trace.modules.names(call.function);
                let names = [Some(self.feed.name(&function)?), Some(self.feed.name(&module)?)];
                *self.names.entry(call.function).or_insert(names)
            }
        };
        let entered_by = Some(self.feed.name(call.entry.name())?);
        self.feed.push(lane, times, function, &[Some(call.instructions), module, entered_by])
    }
}

impl CallSink for Sink<'_, '_> {
    fn begins(&self) -> bool {
        false
    }

    fn thread(&mut self, context: u32) {
        self.context = context;
        match self.cells_of_thread() {
            Ok(cells) => self.thread = cells,
            Err(error) => self.fed = Err(error),
        }
    }

    fn moment(&mut self, moment: Moment) {
        if let Moment::End { call } = moment
            && self.fed.is_ok()
        {
            self.fed = self.add(&call);
        }
    }

    fn wants_more(&mut self) -> bool {
        self.fed.is_ok()
    }
}

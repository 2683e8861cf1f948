//! The table `calls`: each call of control flow in the selected span, with its caller.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use hodo_analyses::calls::{Call, Moment};
use hodo_engine::{CHUNKS_IN_ORDER, CallSink, Losses, Trace};
use hodo_model::{Column, FunctionId, Names, Shape, Table, TableBuilder, Unit, table::Cell};
use hodo_sql::Source;
use rustc_hash::FxHashMap;

use super::sources::{Common, RECORDING};
use crate::{arguments::Input, input, progress::Progress};

/// The name of the table.
pub(super) const CALLS: &str = "calls";

/// The calls of all recordings.
pub(super) struct OfCalls {
    pub(super) input: Input,
    pub(super) common: Arc<Common>,
}

impl OfCalls {
    /// Whether rows name their recording.
    fn has_recordings(&self) -> bool {
        self.common.experiment.with(|traces| traces.flows.len() > 1)
    }

    fn read(&self, trace: &Trace<'_>, sink: &mut Sink<'_, '_>) -> Result<Losses, String> {
        let Common { experiment, stop, quiet, .. } = &*self.common;
        let span =
            experiment.with(|traces| input::span(&self.input, traces)).map_err(|why| why.to_string())?;
        let begin = |total| Progress::new_stopped_by(stop, total, *quiet);
        let read = input::read(&self.input, trace, CHUNKS_IN_ORDER, span, &begin, |reading, keep_going| {
            hodo_engine::calls(trace, reading, sink, keep_going)
        });
        read.map_err(|why| why.to_string())?.ok_or_else(|| "interrupted".to_owned())
    }
}

impl Source for OfCalls {
    fn name(&self) -> &str {
        CALLS
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        let instructions = |name| Column::integer(name, Unit::Instructions);
        let mut columns = vec![
            Column::integer("pid", Unit::None),
            Column::integer("tid", Unit::None),
            Column::name("comm"),
            Column::signed("begin_ns", Unit::Nanoseconds),
            Column::signed("duration_ns", Unit::Nanoseconds),
            instructions("begin_instructions"),
            instructions("instructions"),
            Column::integer("depth", Unit::None),
            Column::integer("id", Unit::None),
            Column::integer("parent", Unit::None),
            Column::name("function"),
            Column::name("module"),
            Column::name("caller"),
            Column::name("entered_by"),
        ];
        columns.extend(self.has_recordings().then(|| Column::name(RECORDING)));
        Ok(columns)
    }

    fn table(&self, _: &[bool]) -> Result<Table, String> {
        let mut builder = TableBuilder::new(CALLS, Shape::Intervals, self.columns()?);
        let (mut next, mut losses) = (0, Losses::default());
        let has_recordings = self.has_recordings();
        self.common.experiment.with(|traces| {
            for trace in &traces.flows {
                let recording = has_recordings.then(|| trace.name.clone());
                let mut sink = Sink {
                    trace,
                    recording,
                    rows: &mut builder,
                    next: &mut next,
                    context: 0,
                    open: FxHashMap::default(),
                    names: FxHashMap::default(),
                };
                self.read(trace, &mut sink)?.into_list().into_iter().for_each(|loss| losses.add(loss));
            }
            Ok::<(), String>(())
        })?;
        if self.common.stop.load(Relaxed) {
            return Err("interrupted".to_owned());
        }
        Ok(builder.finish(Vec::new()).with_loss(losses.into_list()))
    }

    fn has_all_columns(&self) -> bool {
        true
    }
}

/// A call whose end is still to come.
#[derive(Clone, Copy)]
struct OpenCall {
    id: u64,
    function: FunctionId,
}

/// The names of a function and of its module.
struct FunctionNames {
    function: String,
    module: String,
}

/// Makes a row of each call when it ends.
struct Sink<'x, 'f> {
    trace: &'x Trace<'f>,
    /// The name of the recording, if there are several.
    recording: Option<String>,
    rows: &'x mut TableBuilder,
    /// The number of the next call, over all recordings.
    next: &'x mut u64,
    context: u32,
    /// The stack of each thread; `None` where the begin of a frame is unknown.
    open: FxHashMap<u32, Vec<Option<OpenCall>>>,
    names: FxHashMap<FunctionId, FunctionNames>,
}

impl Sink<'_, '_> {
    fn begin(&mut self, depth: usize, function: FunctionId) {
        let stack = self.open.entry(self.context).or_default();
        stack.resize(depth, None);
        stack.push(Some(OpenCall { id: *self.next, function }));
        *self.next += 1;
    }

    fn end(&mut self, call: &Call) {
        let stack = self.open.entry(self.context).or_default();
        let own = stack.get(call.depth).copied().flatten();
        let caller = call.depth.checked_sub(1).and_then(|below| stack.get(below).copied().flatten());
        stack.truncate(call.depth);
        for function in [Some(call.function), caller.map(|caller| caller.function)].into_iter().flatten() {
            self.names.entry(function).or_insert_with(|| {
                let (function, module) = self.trace.modules.names(function);
                FunctionNames { function, module }
            });
        }
        let names = &self.names[&call.function];
        let thread = self.trace.threads[self.context as usize];
        let comm = self.trace.thread_name(thread);
        let duration = call.begin.zip(call.end).map(|(begin, end)| end.0.saturating_sub(begin.0) as i64);
        let row = [
            Cell::Integer(thread.pid.into()),
            Cell::Integer(thread.tid.into()),
            text(comm.as_deref()),
            call.begin.map_or(Cell::Null, |begin| Cell::Signed(begin.0 as i64)),
            duration.map_or(Cell::Null, Cell::Signed),
            Cell::Integer(call.before),
            Cell::Integer(call.instructions),
            Cell::Integer(call.depth as u64),
            integer(own.map(|own| own.id)),
            integer(caller.map(|caller| caller.id)),
            Cell::Text(&names.function),
            Cell::Text(&names.module),
            text(caller.map(|caller| self.names[&caller.function].function.as_str())),
            Cell::Text(call.entry.name()),
        ];
        self.rows.row(row.into_iter().chain(self.recording.as_deref().map(Cell::Text)));
    }
}

fn text(value: Option<&str>) -> Cell<'_> {
    value.map_or(Cell::Null, Cell::Text)
}

fn integer(value: Option<u64>) -> Cell<'static> {
    value.map_or(Cell::Null, Cell::Integer)
}

impl CallSink for Sink<'_, '_> {
    fn begins(&self) -> bool {
        true
    }

    fn thread(&mut self, context: u32) {
        self.context = context;
    }

    fn moment(&mut self, moment: Moment) {
        match moment {
            Moment::Begin { depth, function, .. } => self.begin(depth, function),
            Moment::End { call } => self.end(&call),
            Moment::Gap { .. } => {
                self.open.remove(&self.context);
            }
        }
    }
}

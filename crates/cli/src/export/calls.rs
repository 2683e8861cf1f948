//! The calls of control flow as a timeline.

use std::{collections::HashMap, io, process::ExitCode};

use hodo_analyses::calls::Moment;
use hodo_clock::Nanos;
use hodo_engine::{CHUNKS_IN_ORDER, CallSink, Losses, Trace};
use hodo_exports::{BeginTimeline, Calls, Instructions, Track};
use hodo_model::{Cause, FunctionId, Loss, Names};

use super::{emit_left_out, emit_nothing};
use crate::{
    arguments::Export,
    failure::{Failure, written},
    input,
    output::Destination,
    progress::Progress,
    selection::Selection,
};

pub(super) fn export(command: &Export, begin: BeginTimeline) -> Result<ExitCode, Failure> {
    Selection::new(&command.input, Some(&command.filter))?.refuse_events()?;
    let with_sideband = false;
    input::open(&command.input, with_sideband, |trace, window| {
        let mut out = Destination::open(Some(&command.output))?;
        let read = input::read(
            &command.input,
            trace,
            CHUNKS_IN_ORDER,
            window,
            &|bytes| Progress::new(bytes, command.input.quiet),
            |reading, keep_going| {
                let calls = Calls::new(begin(&mut out)?, command.min.unwrap_or(0))?;
                let tracks = HashMap::new();
                let names = HashMap::new();
                let mut sink = Sink { trace, calls, tracks, track: 0, names, result: Ok(()) };
                let losses = hodo_engine::calls(trace, reading, &mut sink, keep_going);
                sink.finish(losses)
            },
        );
        let Some(exported) = read? else { return Ok(input::interrupted()) };
        let Exported { losses, left_out, is_empty } = match exported {
            Ok(exported) => exported,
            Err(error) => return written(Err(error)).map(|()| ExitCode::SUCCESS),
        };
        out.finish()?;
        emit_left_out(command, left_out);
        if is_empty {
            emit_nothing(command, "call");
        }
        let code = input::exit_code(&command.input, losses.is_empty());
        input::report_losses(losses);
        Ok(code)
    })
}

/// Passes calls on with numbers for threads and functions.
struct Sink<'x, 'f, 'o> {
    trace: &'x Trace<'f>,
    calls: Calls<'o>,
    /// The track of each context.
    tracks: HashMap<u32, u32>,
    track: u32,
    names: HashMap<FunctionId, u32>,
    result: io::Result<()>,
}

/// The result of an export.
struct Exported {
    losses: Losses,
    /// The number of calls that are left out as too short.
    left_out: u64,
    /// Whether the file has no calls.
    is_empty: bool,
}

impl Sink<'_, '_, '_> {
    /// Ends the file.
    fn finish(self, mut losses: Losses) -> io::Result<Exported> {
        self.result?;
        let is_empty = self.names.is_empty();
        let left_out = self.calls.left_out;
        if self.calls.untimed > 0 {
            losses.add(Loss {
                stream: String::new(),
                cause: Cause::Untimed,
                bytes: 0..0,
                time: None,
                count: self.calls.untimed,
                detail: "calls without times, which a timeline can't hold".to_owned(),
            });
        }
        let list = losses.into_list();
        self.calls.into_timeline().finish(&list)?;
        let mut losses = Losses::default();
        list.into_iter().for_each(|loss| losses.add(loss));
        Ok(Exported { losses, left_out, is_empty })
    }

    fn switch(&mut self, context: u32) -> io::Result<()> {
        let next = self.tracks.len() as u32;
        self.track = *self.tracks.entry(context).or_insert(next);
        if self.track < next {
            return Ok(());
        }
        let thread = self.trace.threads[context as usize];
        let name = self.trace.thread_name(thread).unwrap_or_default();
        self.calls.begin_track(&Track::Thread {
            pid: thread.pid,
            tid: thread.tid,
            name: name.to_string(),
            what: String::new(),
        })
    }

    fn add(&mut self, moment: Moment) -> io::Result<()> {
        match moment {
            Moment::Begin { function, time, .. } => {
                // 0 is the name of gaps.
                let next = self.names.len() as u32 + 1;
                let name = *self.names.entry(function).or_insert(next);
                if name == next {
                    self.calls.name(&self.trace.modules.names(function).0)?;
                }
                self.calls.begin(self.track, time.map(|Nanos(time)| time), name)
            }
            Moment::End { call } => {
                let of_call = call.instructions;
                let instructions = Instructions { of_call, of_thread: call.before.saturating_add(of_call) };
                self.calls.end(self.track, call.end.map(|Nanos(time)| time), instructions)
            }
            Moment::Gap { .. } => {
                self.calls.gap(self.track);
                Ok(())
            }
        }
    }
}

impl CallSink for Sink<'_, '_, '_> {
    fn begins(&self) -> bool {
        true
    }

    fn thread(&mut self, context: u32) {
        if self.result.is_ok() {
            self.result = self.switch(context);
        }
    }

    fn moment(&mut self, moment: Moment) {
        if self.result.is_ok() {
            self.result = self.add(moment);
        }
    }

    fn wants_more(&mut self) -> bool {
        self.result.is_ok()
    }
}

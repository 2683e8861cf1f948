//! The traces of any number of inputs, opened together.

use hodo_formats::{
    Contents, FORMATS,
    error::{Error, ErrorKind},
    events,
};

use crate::{
    events::{holds, open},
    files::{Files, Maps},
    flow::trace::Trace,
    input::{Input, OpenError, OpenErrorReason, Options},
};

/// Selects what is opened of the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Control flow, with the code and the symbols of the traced programs.
    pub flow: bool,
    /// Sideband data of recordings, also of recordings without control flow.
    pub sideband: bool,
    /// Software events.
    pub events: bool,
}

impl Needs {
    /// Control flow and events, without sideband data.
    pub const ALL: Needs = Needs { flow: true, sideband: false, events: true };
}

/// Traces of control flow and of software events.
#[derive(Debug, Default)]
pub struct Traces<'f> {
    /// Control flow.
    pub flows: Vec<Trace<'f>>,
    /// Software events, in order of inputs and of their folders.
    pub events: Vec<events::Trace<'f>>,
    /// The index of each event trace's input.
    pub event_inputs: Vec<usize>,
    /// Inputs whose clocks are not related to another clock, each with the missing information.
    pub unrelated: Vec<(String, String)>,
    /// The timeline's value at the Unix epoch, in nanoseconds, if a trace records it.
    pub wall: Option<i128>,
    /// The kinds of traces in the inputs, opened or not.
    pub contents: Contents,
    /// The memory maps of the files.
    pub(crate) maps: Option<&'f Maps>,
}

/// Returns the span from the earlier begin of two spans to the later end.
pub(crate) fn cover<T: Ord>(one: (T, T), other: (T, T)) -> (T, T) {
    (one.0.min(other.0), one.1.max(other.1))
}

impl<'f> Traces<'f> {
    /// Opens what `needs` selects of the inputs, and returns the errors of those that can't be read as well. `threads`
    /// threads search event files for packets. `progress` receives the number of bytes searched so far and the size of the
    /// input.
    ///
    /// # Errors
    /// Returns the first error if no input can be read.
    pub fn open(
        files: &'f Files,
        inputs: &'f [Input],
        options: &Options,
        needs: Needs,
        threads: usize,
        progress: impl Fn(u64, u64) + Sync,
    ) -> Result<(Traces<'f>, Vec<OpenError>), OpenError> {
        let mut traces = Traces { maps: Some(files.maps()), ..Traces::default() };
        let mut problems = Vec::new();
        for (number, input) in inputs.iter().enumerate() {
            let mut own = contents_of(files, input);
            if let Err(problem) = check_recognised(files, input, own) {
                problems.push(problem);
                continue;
            }
            // A damaged recording may be recognised as neither; opening it as control flow reports the damage.
            own.flow |= !own.events;
            traces.contents.events |= own.events;
            // Sideband data is read with control flow, even where there is none.
            own.flow |= needs.sideband;
            traces.contents.flow |= own.flow;
            if needs.flow && own.flow {
                match Trace::open(files, input, options) {
                    Ok(mut trace) => {
                        trace.input = number;
                        traces.flows.push(trace);
                    }
                    Err(problem) => {
                        problems.push(problem);
                        continue;
                    }
                }
            }
            if let Input::File(path) = input
                && needs.events
                && own.events
            {
                match open(files, path, options.clock_frequency, threads, &progress) {
                    Ok(opened) => traces.events.extend(opened),
                    Err(problem) => problems.push(problem),
                }
                traces.event_inputs.resize(traces.events.len(), number);
            }
        }
        match problems.is_empty() || !traces.is_empty() {
            true => Ok((traces, problems)),
            false => Err(problems.swap_remove(0)),
        }
    }

    /// Returns whether there is no trace.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty() && self.events.is_empty()
    }
}

/// Returns which kinds of traces an input contains.
fn contents_of(files: &Files, input: &Input) -> Contents {
    match input {
        Input::File(path) => holds(files, path),
        Input::Raw(_) => Contents::FLOW,
    }
}

/// Rejects an input whose format is not recognised.
fn check_recognised(files: &Files, input: &Input, contents: Contents) -> Result<(), OpenError> {
    let Input::File(path) = input else { return Ok(()) };
    let failed = |reason| OpenError { file: path.clone(), reason };
    match files.recording(path) {
        _ if contents.events => Ok(()),
        Ok(input) if FORMATS.iter().any(|format| (format.recognise)(input.bytes)) => Ok(()),
        Err(error) => Err(failed(OpenErrorReason::System(error))),
        Ok(_) => Err(failed(OpenErrorReason::Format(Error { at: 0, kind: ErrorKind::NotRecognised }))),
    }
}

//! Opening: which input holds what, and all of it in one value.

use std::fmt;

use hodo_formats::{
    FORMATS,
    error::{Error, ErrorKind},
};
use self_cell::self_cell;

use super::clocks::{TraceClock, label};
use crate::{
    Files, FlowTrace, Input, OpenError, OpenErrorReason, Options,
    events::{Contents, EventTraces, holds},
};

/// What of the inputs is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Control flow, with the code and the symbols of what ran.
    pub flow: bool,
    /// What recordings of control flow say beside it, also of those without any.
    pub sideband: bool,
    /// Software events.
    pub events: bool,
}

impl Needs {
    /// All of it.
    pub const ALL: Needs = Needs { flow: true, sideband: false, events: true };
}

/// The traces of an experiment.
#[derive(Debug)]
pub struct Traces<'f> {
    /// Traces of control flow, and the names of the inputs that hold them.
    pub flows: Vec<(String, FlowTrace<'f>)>,
    /// Traces of software events.
    pub events: EventTraces<'f>,
    /// Of which inputs the traces of control flow are.
    pub flow_inputs: Vec<usize>,
    /// Of which inputs the traces of software events are.
    pub event_inputs: Vec<usize>,
    /// Inputs whose clocks are related to no other, and what is missing.
    pub unrelated: Vec<(String, String)>,
    /// What the timeline shows at 1970, in nanoseconds, where a trace says so.
    pub wall: Option<i128>,
}

/// What traces borrow from.
struct Sources {
    files: Files,
    inputs: Vec<Input>,
}

self_cell!(
    struct Opened {
        owner: Sources,
        #[not_covariant]
        dependent: Traces,
    }
);

/// Inputs that were opened together.
pub struct Experiment {
    opened: Opened,
    /// What the inputs hold, whether it was opened or not.
    pub contents: Contents,
    /// Inputs that can't be read.
    pub problems: Vec<OpenError>,
    /// The clocks of the traces, once they are [placed](Experiment::place).
    pub clocks: Vec<TraceClock>,
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Experiment")
            .field("contents", &self.contents)
            .field("problems", &self.problems)
            .finish()
    }
}

impl Experiment {
    /// Opens inputs, as far as `needs` says. Files of events are searched for packets by `threads` threads, and
    /// `progress` gets the bytes searched so far and those of the input.
    ///
    /// # Errors
    /// The first input that can't be read, where none can. Else these are in [`Experiment::problems`].
    pub fn open(
        inputs: Vec<Input>,
        options: &Options,
        needs: Needs,
        threads: usize,
        progress: impl Fn(u64, u64) + Sync,
    ) -> Result<Experiment, OpenError> {
        let mut contents = Contents { events: false, flow: false };
        let mut problems = Vec::new();
        let opened = Opened::new(Sources { files: Files::default(), inputs }, |sources| {
            let mut traces = Traces {
                flows: Vec::new(),
                events: EventTraces::none(&sources.files),
                flow_inputs: Vec::new(),
                event_inputs: Vec::new(),
                unrelated: Vec::new(),
                wall: None,
            };
            for (number, input) in sources.inputs.iter().enumerate() {
                let mut own = contents_of(&sources.files, input);
                if let Err(problem) = recognised(&sources.files, input, own) {
                    problems.push(problem);
                    continue;
                }
                // A damaged recording may hold neither; what is wrong with it shows when it is opened.
                own.flow |= !own.events;
                contents.events |= own.events;
                own.flow |= needs.sideband;
                contents.flow |= own.flow;
                let wanted =
                    Needs { flow: needs.flow && own.flow, events: needs.events && own.events, ..needs };
                problems.extend(traces.add(sources, input, options, wanted, (threads, &progress)).err());
                traces.flow_inputs.resize(traces.flows.len(), number);
                traces.event_inputs.resize(traces.events.traces.len(), number);
            }
            traces
        });
        let experiment = Experiment { opened, contents, problems, clocks: Vec::new() };
        let is_empty = experiment.with(|traces| traces.flows.is_empty() && traces.events.traces.is_empty());
        match experiment.problems.is_empty() || !is_empty {
            true => Ok(experiment),
            false => Err(experiment.problems.into_iter().next().expect("there is a problem")),
        }
    }

    /// How the inputs were named.
    pub(super) fn input_labels(&self) -> Vec<String> {
        self.opened.borrow_owner().inputs.iter().map(label).collect()
    }

    /// Hands the traces to `work`, which may change them.
    pub(super) fn with_mut<R>(&mut self, work: impl FnOnce(&mut Traces<'_>) -> R) -> R {
        self.opened.with_dependent_mut(|_, traces| work(traces))
    }

    /// Hands the traces to `work`.
    pub fn with<R>(&self, work: impl FnOnce(&Traces<'_>) -> R) -> R {
        self.opened.with_dependent(|_, traces| work(traces))
    }
}

/// What an input holds.
fn contents_of(files: &Files, input: &Input) -> Contents {
    match input {
        Input::File(path) => holds(files, path),
        Input::Raw(_) => Contents { events: false, flow: true },
    }
}

/// Refuses an input that is no recording at all.
fn recognised(files: &Files, input: &Input, contents: Contents) -> Result<(), OpenError> {
    let Input::File(path) = input else { return Ok(()) };
    let failed = |reason| OpenError { file: path.clone(), reason };
    match files.recording(path) {
        _ if contents.events => Ok(()),
        Ok(input) if FORMATS.iter().any(|format| (format.recognise)(input.bytes)) => Ok(()),
        Err(error) => Err(failed(OpenErrorReason::System(error))),
        Ok(_) => Err(failed(OpenErrorReason::Format(Error { at: 0, kind: ErrorKind::NotRecognised }))),
    }
}

impl<'f> Traces<'f> {
    fn add(
        &mut self,
        sources: &'f Sources,
        input: &'f Input,
        options: &Options,
        needs: Needs,
        (threads, progress): (usize, &(impl Fn(u64, u64) + Sync)),
    ) -> Result<(), OpenError> {
        if needs.flow {
            self.flows.push((label(input), FlowTrace::open(&sources.files, input, options)?));
        }
        if let (true, Input::File(path)) = (needs.events, input) {
            let (files, frequency) = (&sources.files, options.clock_frequency);
            let own = EventTraces::open_with_frequency(files, path, frequency, threads, progress)?;
            self.events.traces.extend(own.traces);
        }
        Ok(())
    }
}

//! Opening: which input holds what, and all of it in one value.

use std::fmt;

use hodo_formats::{
    FORMATS,
    error::{Error, ErrorKind},
};
use self_cell::self_cell;

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
            let mut traces = Traces { flows: Vec::new(), events: EventTraces::none(&sources.files) };
            for input in &sources.inputs {
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
            }
            traces
        });
        let experiment = Experiment { opened, contents, problems };
        let is_empty = experiment.with(|traces| traces.flows.is_empty() && traces.events.traces.is_empty());
        match experiment.problems.is_empty() || !is_empty {
            true => Ok(experiment),
            false => Err(experiment.problems.into_iter().next().expect("there is a problem")),
        }
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
            let name = match input {
                Input::File(path) => path.display().to_string(),
                Input::Raw(raw) => raw.trace.display().to_string(),
            };
            self.flows.push((name, FlowTrace::open(&sources.files, input, options)?));
        }
        if let (true, Input::File(path)) = (needs.events, input) {
            let (files, frequency) = (&sources.files, options.clock_frequency);
            let own = EventTraces::open_with_frequency(files, path, frequency, threads, progress)?;
            self.events.traces.extend(own.traces);
        }
        Ok(())
    }
}

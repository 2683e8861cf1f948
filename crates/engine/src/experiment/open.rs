//! Opens the inputs of an experiment and classifies each by its content.

use std::{fmt, path::Path};

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

/// The traces of an experiment.
#[derive(Debug)]
pub struct Traces<'f> {
    /// Traces of control flow, and the names of the inputs that hold them.
    pub flows: Vec<(String, FlowTrace<'f>)>,
    /// Traces of software events.
    pub events: EventTraces<'f>,
    /// The index of each control-flow trace's input.
    pub flow_inputs: Vec<usize>,
    /// The index of each event trace's input.
    pub event_inputs: Vec<usize>,
    /// Inputs whose clocks are not related to another clock, each with the missing information.
    pub unrelated: Vec<(String, String)>,
    /// The timeline's value at the Unix epoch, in nanoseconds, if a trace records it.
    pub wall: Option<i128>,
}

/// The owner of the data that the traces borrow.
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
    /// The kinds of traces in the inputs, opened or not.
    pub contents: Contents,
    /// Inputs that can't be read.
    pub problems: Vec<OpenError>,
    /// The clocks of the traces; empty until they are [placed](Experiment::place).
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
    /// Opens what `needs` selects of the inputs. `threads` threads search event files for packets. `progress` receives
    /// the number of bytes searched so far and the size of the input.
    ///
    /// # Errors
    /// Returns the first error if no input can be read. Otherwise the errors are in [`Experiment::problems`].
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
                if let Err(problem) = check_recognised(&sources.files, input, own) {
                    problems.push(problem);
                    continue;
                }
                // A damaged recording may be recognised as neither; opening it as control flow reports the damage.
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

    /// Returns the names of the inputs.
    pub(super) fn input_labels(&self) -> Vec<String> {
        self.opened.borrow_owner().inputs.iter().map(label).collect()
    }

    /// Returns the paths of the inputs: files, folders, or buffers.
    pub(super) fn input_files(&self) -> impl Iterator<Item = &Path> {
        self.opened.borrow_owner().inputs.iter().map(|input| match input {
            Input::File(path) => path.as_path(),
            Input::Raw(raw) => raw.trace.as_path(),
        })
    }

    /// Calls `work` with mutable access to the traces.
    pub(super) fn with_mut<R>(&mut self, work: impl FnOnce(&mut Traces<'_>) -> R) -> R {
        self.opened.with_dependent_mut(|_, traces| work(traces))
    }

    /// Calls `work` with the traces.
    pub fn with<R>(&self, work: impl FnOnce(&Traces<'_>) -> R) -> R {
        self.opened.with_dependent(|_, traces| work(traces))
    }
}

/// Returns which kinds of traces an input contains.
fn contents_of(files: &Files, input: &Input) -> Contents {
    match input {
        Input::File(path) => holds(files, path),
        Input::Raw(_) => Contents { events: false, flow: true },
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

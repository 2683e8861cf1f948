//! An experiment and what it owns.

use std::{fmt, sync::Mutex};

use hodo_formats::Contents;
use self_cell::self_cell;

use super::{clocks::TraceClock, stream::FirstPass};
use crate::{
    files::Files,
    input::{Input, OpenError, Options},
    traces::{Needs, Traces},
};

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
    /// The first pass of the last stream.
    pub(super) first_pass: Mutex<Option<FirstPass>>,
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
    /// Opens inputs as [`Traces::open`] does.
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
        let mut problems = Vec::new();
        let opened = Opened::try_new(Sources { files: Files::default(), inputs }, |sources| {
            let Sources { files, inputs } = sources;
            let (traces, unreadable) = Traces::open(files, inputs, options, needs, threads, progress)?;
            problems = unreadable;
            Ok(traces)
        })?;
        let contents = opened.with_dependent(|_, traces| traces.contents);
        let first_pass = Mutex::default();
        Ok(Experiment { opened, contents, problems, clocks: Vec::new(), first_pass })
    }

    /// Returns the inputs.
    pub(super) fn inputs(&self) -> &[Input] {
        &self.opened.borrow_owner().inputs
    }

    /// Calls `work` with mutable access to the traces.
    pub(super) fn with_mut<R>(&mut self, work: impl FnOnce(&mut Traces<'_>) -> R) -> R {
        self.first_pass = Mutex::default();
        self.opened.with_dependent_mut(|_, traces| work(traces))
    }

    /// Calls `work` with the traces.
    pub fn with<R>(&self, work: impl FnOnce(&Traces<'_>) -> R) -> R {
        self.opened.with_dependent(|_, traces| work(traces))
    }
}

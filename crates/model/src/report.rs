//! What `hodo report --list` lists: an analysis with its name, its views and what it can be asked.

use serde::{Deserialize, Serialize};

use crate::{Analysis, FastFlow, Intervals, Period, Selection};

/// How far samples lie apart.
///
/// Both count from a fixed origin, not from where a task begins, so that any cutting gives the same samples: the
/// clock's zero, and the thread's first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Every {
    /// A sample at each multiple of this many nanoseconds of the clock; not 0.
    Nanoseconds(u64),
    /// A sample at each multiple of this many instructions of a thread; not 0.
    Instructions(u64),
}

/// What a report can be asked, beside the times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// `--tid`, `--pid` and `--comm`: its rows are of threads.
    pub threads: bool,
    /// `--cpu-list`: its rows are of CPUs.
    pub cpus: bool,
    /// `--every`: samples.
    pub every: bool,
    /// `--begin` and `--end`, which it needs.
    pub period: bool,
    /// `--event` and `--where`: single events can be left out.
    pub events: bool,
    /// What intervals are of.
    pub intervals: bool,
}

impl Takes {
    /// None of it.
    pub const NOTHING: Takes =
        Takes { threads: false, cpus: false, every: false, period: false, events: false, intervals: false };
    /// Threads, and the CPUs that they ran on.
    pub const THREADS_AND_CPUS: Takes = Takes { threads: true, cpus: true, ..Takes::NOTHING };
    /// Threads.
    pub const THREADS: Takes = Takes { threads: true, ..Takes::NOTHING };
    /// CPUs.
    pub const CPUS: Takes = Takes { cpus: true, ..Takes::NOTHING };
}

/// What a report is asked.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// The view, and of which threads and CPUs.
    pub selection: Selection,
    /// Samples.
    pub every: Option<Every>,
    /// The period to measure.
    pub period: Option<Period>,
    /// What intervals are of.
    pub intervals: Option<Intervals>,
    /// Whether no other view or choice will be asked of the partial: a cheaper analysis with the same table will do.
    pub alone: bool,
}

/// Takes the analysis that a report makes, whatever its type.
pub trait Maker {
    /// What it makes of it.
    type Made;

    /// An analysis of events, or of control flow without fast paths.
    fn analysis<A: Analysis>(self, analysis: A) -> Self::Made;

    /// An analysis of control flow with fast paths.
    fn fast<A: FastFlow>(self, analysis: A) -> Self::Made;
}

/// How a report is listed.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Names of the tables that it can make (`--by`), the default one first.
    pub views: &'static [&'static str],
    /// What it can be asked.
    pub takes: Takes,
    /// Whether `hodo report all` has it.
    pub in_all: bool,
}

/// A kind of report.
pub trait Report: Sync {
    /// How it is listed.
    fn description(&self) -> &Description;

    /// Makes the analysis for some parameters.
    fn make<M: Maker>(&self, parameters: &Parameters, maker: M) -> M::Made;
}

/// A report that the same analysis makes whatever is asked.
#[derive(Clone, Copy, Debug)]
pub struct Simple<A> {
    /// How it is listed.
    pub description: Description,
    /// The analysis.
    pub analysis: A,
}

impl<A: Analysis + Copy> Report for Simple<A> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn make<M: Maker>(&self, _: &Parameters, maker: M) -> M::Made {
        maker.analysis(self.analysis)
    }
}

/// Takes the reports of a list, one after the other.
pub trait Visitor {
    /// The next report.
    fn visit<R: Report>(&mut self, report: &'static R);
}

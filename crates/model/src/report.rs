//! Reports: an analysis with its name, views and options, as `hodo report --list` shows them.

use serde::{Deserialize, Serialize};

use crate::{Analysis, AnyAnalysis, CacheGeometry, FastFlow, Intervals, Period, Selection};

/// The interval between samples.
///
/// Both kinds count from a fixed origin, the clock's zero or the thread's first instruction, and not from the
/// beginning of a task. So samples do not depend on how the trace is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Every {
    /// A sample at each multiple of this many nanoseconds of the clock; not 0.
    Nanoseconds(u64),
    /// A sample at each multiple of this many instructions of a thread; not 0.
    Instructions(u64),
}

/// The options that a report accepts, besides the time window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// `--tid`, `--pid` and `--comm`: rows belong to threads.
    pub threads: bool,
    /// `--cpu-list`: rows belong to CPUs.
    pub cpus: bool,
    /// `--every`: the sampling interval.
    pub every: bool,
    /// `--begin` and `--end`, which are required.
    pub period: bool,
    /// `--event` and `--where`: events can be filtered.
    pub events: bool,
    /// `--function` and `--syscall`: its rows can begin at the executions of a function.
    pub root: bool,
    /// Options such as `--from` and `--to`, which say what to measure as intervals.
    pub intervals: bool,
    /// `--icache`: the modelled instruction cache.
    pub icache: bool,
}

impl Takes {
    /// No options.
    pub const NOTHING: Takes = Takes {
        threads: false,
        cpus: false,
        every: false,
        period: false,
        events: false,
        root: false,
        intervals: false,
        icache: false,
    };
    /// Filters by thread and by CPU.
    pub const THREADS_AND_CPUS: Takes = Takes { threads: true, cpus: true, ..Takes::NOTHING };
    /// Filters by thread.
    pub const THREADS: Takes = Takes { threads: true, ..Takes::NOTHING };
    /// Filters by CPU.
    pub const CPUS: Takes = Takes { cpus: true, ..Takes::NOTHING };
}

/// The values of a report's options.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// The view, and the filters for threads and CPUs.
    pub selection: Selection,
    /// The sampling interval.
    pub every: Option<Every>,
    /// The period to measure.
    pub period: Option<Period>,
    /// The kind of intervals.
    pub intervals: Option<Intervals>,
    /// The modelled instruction cache.
    pub icache: Option<CacheGeometry>,
    /// Whether the partial serves this view and selection only. Then a cheaper analysis with the same table may be made.
    pub alone: bool,
}

impl Parameters {
    /// The name of the view; empty for the default.
    pub fn view(&self) -> &str {
        &self.selection.view
    }
}

/// The name, help and options of a report.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Names of its views (`--by`), the default first.
    pub views: &'static [&'static str],
    /// The options it accepts.
    pub takes: Takes,
    /// Whether `hodo report all` includes it.
    pub in_all: bool,
    /// What commands besides `hodo report` use it for.
    pub roles: &'static [Role],
    /// The lanes that its rows become in the history on disk, which the viewer and `hodo serve` show over time.
    pub lanes: Option<Lanes>,
}

impl Description {
    /// A description to begin with: no views, no options, not in `all`, no lanes.
    pub const EMPTY: Description = Description {
        name: "",
        help: "",
        views: &[],
        takes: Takes::NOTHING,
        in_all: false,
        roles: &[],
        lanes: None,
    };
}

/// What a command uses a report for. Commands ask for a role, not for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions and calls of each function.
    Functions,
    /// The calling-context tree, for profiles of other tools.
    CallTree,
    /// Call paths, which may begin at a function; `hodo diff` compares them.
    CallPaths,
    /// Executions of source lines.
    SourceLines,
    /// Lines, functions and branches that ran, and those that did not.
    Coverage,
    /// Executions of basic blocks.
    Blocks,
    /// Branches, for compilers.
    Branches,
    /// Executed instructions by name.
    Mnemonics,
    /// Intervals of any kind, for `hodo latency`.
    Intervals,
    /// Intervals between two events.
    Periods,
    /// Counts of events, also of a trace that is still written.
    Counts,
    /// System calls.
    SystemCalls,
    /// Latencies that `hodo diff` compares.
    Latencies,
    /// What a command waited for.
    CriticalPath,
    /// Switches of CPUs between threads.
    Switches,
    /// Which thread woke which.
    Wakeups,
}

/// How the rows of a view become records of lanes in the history on disk.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// The view. Its rows [settle](Analysis::settle), so that they are written in bounded memory.
    pub view: &'static str,
    /// What the records are, for people.
    pub title: &'static str,
    /// The columns that identify a lane.
    pub lane: &'static [&'static str],
    /// What becomes the value of a record.
    pub value: LaneValue,
    /// The path of a lane in the tree of all lanes, with the names of its columns in braces. A lane of links has the path of
    /// the lane from which its links lead; other lanes share no path.
    pub path: &'static [&'static str],
}

impl Lanes {
    /// The path of the states of a thread in the tree of lanes. The paths of its other lanes begin with it and have one part
    /// more, such as `"system calls"`.
    pub const THREAD: [&'static str; 3] = ["Threads", "process {pid}", "{comm} ({tid})"];
}

/// The value of a record.
#[derive(Clone, Copy, Debug)]
pub enum LaneValue {
    /// The cell of a column.
    Column(&'static str),
    /// The lane that these columns identify: the record is a link to it.
    Lane(&'static [&'static str]),
}

/// A kind of report: a line in the list of reports.
#[derive(Clone, Copy, Debug)]
pub struct Report<L: FlowLoop> {
    /// Its name, help and options.
    pub description: Description,
    /// Makes the analysis for some parameters.
    pub make: fn(&Parameters) -> Made<L>,
}

impl<L: FlowLoop> Report<L> {
    /// Its name, help and options.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Makes the analysis for some parameters.
    pub fn make(&self, parameters: &Parameters) -> Made<L> {
        (self.make)(parameters)
    }
}

/// An analysis that a report makes.
pub enum Made<L: FlowLoop> {
    /// It reads events or counts.
    Events(Box<dyn AnyAnalysis>),
    /// It reads control flow.
    Flow(Box<L::Analysis>),
}

impl<L: FlowLoop> Made<L> {
    /// An analysis of events or counts.
    pub fn of_events(analysis: impl Analysis) -> Made<L> {
        Made::Events(Box::new(analysis))
    }

    /// An analysis of control flow.
    pub fn of_flow(analysis: impl FastFlow) -> Made<L> {
        Made::Flow(L::compile(analysis))
    }

    /// The analysis.
    pub fn analysis(&self) -> &dyn AnyAnalysis {
        match self {
            Made::Events(analysis) => &**analysis,
            Made::Flow(analysis) => L::analysis(analysis),
        }
    }

    /// The analysis with its loop, if it reads control flow.
    pub fn flow(&self) -> Option<&L::Analysis> {
        match self {
            Made::Events(_) => None,
            Made::Flow(analysis) => Some(analysis),
        }
    }
}

/// A loop over control flow: the engine's, or that of a test.
///
/// Reports are generic over it because the loop contains the decoder, is compiled for each analysis of control flow, and
/// belongs to the engine, which the analyses must not know.
pub trait FlowLoop: 'static {
    /// An analysis together with the loop that is compiled for it.
    type Analysis: ?Sized;

    /// Compiles the loop for an analysis.
    fn compile(analysis: impl FastFlow) -> Box<Self::Analysis>;

    /// Returns the analysis alone.
    fn analysis(analysis: &Self::Analysis) -> &dyn AnyAnalysis;
}

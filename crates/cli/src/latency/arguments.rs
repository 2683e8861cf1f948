//! Arguments of `hodo latency`.

use std::path::PathBuf;

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use hodo_model::ThreadState;

use crate::arguments::{Input, Output};

/// The measure by which executions are the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Worst {
    /// The longest time; with equal times, the most instructions
    Time,
    /// The most instructions
    Instructions,
}

/// The rule that pairs an end with one of several begins before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NestingChoice {
    /// The newest begin that has no end yet, like brackets
    Nested,
    /// The first begin; later begins before the end are ignored
    First,
    /// The last begin; earlier begins have no end
    Last,
}

/// Returns the state of this name.
fn state(name: String) -> ThreadState {
    let state = ThreadState::ALL.into_iter().find(|state| state.name() == name);
    state.expect("the parser accepts only names of states")
}

/// The width of histogram bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bins {
    /// Equal widths
    Linear,
    /// Each bin twice as wide as the previous one
    Log,
}

/// The intervals to measure.
#[derive(Debug, Default, Args)]
pub struct QuestionArguments {
    /// Executions of this function, from call to return: its name, or NAME@FILE if several files have it
    #[arg(long, value_name = "FUNC", group = "what_intervals")]
    pub function: Option<String>,
    /// All functions, ranked by the cost of their tail: the instructions of the slowest 1 % of executions beyond the
    /// median
    #[arg(long, group = "what_intervals")]
    pub functions: bool,
    /// Intervals from this marker
    #[arg(long, value_name = "MARKER", group = "what_intervals", requires = "to")]
    pub from: Option<String>,
    /// Intervals to this marker
    #[arg(long, value_name = "MARKER", requires = "from")]
    pub to: Option<String>,
    /// Intervals between a named pair of markers, such as malloc; `--pair list` lists the pairs
    #[arg(long, value_name = "NAME", group = "what_intervals")]
    pub pair: Option<String>,
    /// TOML file with further pairs: a table for each, with `from`, `to`, and optionally `nesting` and `help`
    #[arg(long, value_name = "FILE")]
    pub pairs: Option<PathBuf>,
    /// System calls with this name, from entry to return: in the kernel's control flow if it was recorded, else in kernel
    /// events
    #[arg(long, value_name = "NAME", group = "what_intervals")]
    pub syscall: Option<String>,
    /// Handler runs of the interrupt with this number, in a trace of kernel events
    #[arg(long, value_name = "NUMBER", group = "what_intervals")]
    pub irq: Option<u32>,
    /// Times in which a thread was in this state, in a trace of kernel events
    #[arg(long, value_name = "STATE", group = "what_intervals",
          value_parser = PossibleValuesParser::new(ThreadState::ALL.map(ThreadState::name)).map(state))]
    pub state: Option<ThreadState>,
    /// Intervals from one software event to another: 'BEGIN -> END', each a name or pattern, optionally with `where
    /// CONDITION`
    #[arg(long, value_name = "PERIOD", group = "what_intervals")]
    pub period: Option<String>,
    /// The begin to which an end belongs, if there are several [default: that of the pair, else nested]
    #[arg(long, value_name = "RULE", value_enum)]
    pub nesting: Option<NestingChoice>,
}

#[derive(Debug, Args)]
#[command(after_help = "Markers:
  cli   'pushf; pop; cli'   'mov *, %cr3'   'lock cmpxchg'   consecutive instructions
  entry:FUNCTION   exit:FUNCTION   0xADDRESS   FILE:LINE     'sti | popf': either of two
  'event:NAME where CONDITION'                               a software event

Examples:
  hodo latency --function handle_request perf.data
  hodo latency --function handle_request --outliers 3 perf.data    call trees of the three slowest
  hodo latency --function handle_request --compare perf.data       what the slowest did more than a typical one
  hodo latency --functions --top 20 perf.data                      functions with heavy tails
  hodo latency --from entry:read_config --to exit:start_server perf.data
  hodo latency --from cli --to 'sti | popf' --by thread perf.data
  hodo latency --pair malloc perf.data
  hodo latency --function insert@server --by executions --format csv perf.data
  hodo latency --syscall mmap machine.data
  hodo latency --irq 30 ./my-trace
  hodo latency --state runnable --by thread ./my-trace             how long threads waited for a CPU
  hodo latency --period 'irq_handler_entry -> irq_handler_exit' --match irq,cpu ./my-trace")]
pub struct Latency {
    #[command(flatten)]
    pub question: QuestionArguments,
    /// Events only: fields that must have equal values at both ends; FIELD=OTHER if their names differ; `cpu` is the
    /// CPU
    #[arg(long = "match", value_name = "FIELD,…", value_delimiter = ',', value_parser = crate::arguments::matched)]
    pub matched: Vec<(String, String)>,
    /// Percentiles by thread, caller, cpu or time; or all executions, one per row
    #[arg(long, value_name = "WHAT", value_parser = ["thread", "caller", "cpu", "time", "executions"])]
    pub by: Option<String>,
    /// Bins of the drawn histograms; formats other than text contain both kinds
    #[arg(long, value_name = "WIDTH", value_enum, default_value = "log")]
    pub bins: Bins,
    /// The worst N executions, with their call trees
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub outliers: Option<u32>,
    /// Measure by which executions are the worst
    #[arg(long, value_name = "MEASURE", value_enum, default_value = "time")]
    pub worst_by: Worst,
    /// The call tree of one execution: the K-th in the order of `--by executions`
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub nth: Option<u64>,
    /// Compare the slowest 1 % with a typical execution (the median by instructions): extra instructions by call path
    #[arg(long)]
    pub compare: bool,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
}

//! Arguments of `hodo latency`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::arguments::{Input, Output};

/// Which executions are the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Worst {
    /// Those that took longest; of equal ones those with most instructions
    Time,
    /// Those with most instructions
    Instructions,
}

/// Which begin an end belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NestingChoice {
    /// The newest that has no end yet, as of brackets
    Nested,
    /// The first: those behind it, until the end, only repeat it
    First,
    /// The last: those before it have no end
    Last,
}

/// How wide bins of histograms are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bins {
    /// All the same
    Linear,
    /// Each twice as wide as the one before
    Log,
}

/// From where to where.
#[derive(Debug, Args)]
pub struct QuestionArguments {
    /// Executions of this function, from call to return: its name, or NAME@FILE where several files have one
    #[arg(long, value_name = "FUNC", group = "what_intervals")]
    pub function: Option<String>,
    /// Every function, by what its tail costs: what the slowest 1 % of its executions ran beyond its median
    #[arg(long, group = "what_intervals")]
    pub functions: bool,
    /// From this marker
    #[arg(long, value_name = "MARKER", group = "what_intervals", requires = "to")]
    pub from: Option<String>,
    /// To that one
    #[arg(long, value_name = "MARKER", requires = "from")]
    pub to: Option<String>,
    /// From one marker to another of the pair with this name, such as malloc; `--pair list` lists them
    #[arg(long, value_name = "NAME", group = "what_intervals")]
    pub pair: Option<String>,
    /// Pairs of your own: a TOML file with a table for each, which has `from`, `to`, and if need be `nesting` and `help`
    #[arg(long, value_name = "FILE")]
    pub pairs: Option<PathBuf>,
    /// System calls with this name, of a trace of software events
    #[arg(long, value_name = "NAME", group = "what_intervals")]
    pub syscall: Option<String>,
    /// The handler of the interrupt with this number, of a trace of software events
    #[arg(long, value_name = "NUMBER", group = "what_intervals")]
    pub irq: Option<u32>,
    /// From one software event to the next of another kind: 'BEGIN -> END', each a name or a pattern, and what its fields meet
    #[arg(long, value_name = "PERIOD", group = "what_intervals")]
    pub period: Option<String>,
    /// Which begin an end belongs to, where several went before [default: nested, or what the pair says]
    #[arg(long, value_name = "RULE", value_enum)]
    pub nesting: Option<NestingChoice>,
}

#[derive(Debug, Args)]
#[command(after_help = "Markers:
  cli   'pushf; pop; cli'   'mov *, %cr3'   'lock cmpxchg'   instructions that run one after the other
  entry:FUNCTION   exit:FUNCTION   0xADDRESS   FILE:LINE     'sti | popf' is either of two
  'event:NAME where CONDITION'                               a software event

Examples:
  hodo latency --function handle_request perf.data
  hodo latency --function handle_request --outliers 3 perf.data    what the three slowest did, call by call
  hodo latency --function handle_request --compare perf.data       what the slowest did that a typical one did not
  hodo latency --functions --top 20 perf.data                      which functions have heavy tails
  hodo latency --from entry:read_config --to exit:start_server perf.data
  hodo latency --from cli --to 'sti | popf' --by thread perf.data
  hodo latency --pair malloc perf.data
  hodo latency --function insert --by executions --format csv perf.data
  hodo latency --irq 30 ./my-trace
  hodo latency --period 'irq_handler_entry -> irq_handler_exit' --match irq,cpu ./my-trace")]
pub struct Latency {
    #[command(flatten)]
    pub question: QuestionArguments,
    /// Events only: these fields of both ends have the same values; FIELD=OTHER where their names differ; `cpu` is the CPU
    #[arg(long = "match", value_name = "FIELD,…", value_delimiter = ',', value_parser = crate::arguments::matched)]
    pub matched: Vec<(String, String)>,
    /// Percentiles for each thread, caller, cpu or span of time; or all executions, one a row
    #[arg(long, value_name = "WHAT", value_parser = ["thread", "caller", "cpu", "time", "executions"])]
    pub by: Option<String>,
    /// Bins of the histograms that are drawn; other formats than text have both
    #[arg(long, value_name = "WIDTH", value_enum, default_value = "log")]
    pub bins: Bins,
    /// The worst N executions with what they called
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub outliers: Option<u32>,
    /// Which are the worst
    #[arg(long, value_name = "MEASURE", value_enum, default_value = "time")]
    pub worst_by: Worst,
    /// One execution in full: the K-th in the order of `--by executions`
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub nth: Option<u64>,
    /// The slowest 1 % beside a typical execution (the median by instructions): what they ran more, path by path
    #[arg(long)]
    pub compare: bool,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
}

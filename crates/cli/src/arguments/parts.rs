//! Arguments of `hodo plan`, `hodo fold` and `hodo merge`.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use hodo_engine::Portion;
use hodo_model::Every;

use super::{Input, Output, PeriodArguments, QuestionArguments, report_names};
use crate::{function::RootArguments, quantities};

/// The request that is divided into parts.
#[derive(Debug, Args)]
pub struct What {
    /// Kinds of report
    #[arg(value_name = "KIND,…", value_delimiter = ',', num_args = 1, action = ArgAction::Set, value_parser = report_names())]
    pub kinds: Vec<String>,
    /// Kind of rows, if the tables need other data than the default rows; `hodo merge` reports if they do
    #[arg(long, value_name = "WHAT")]
    pub by: Option<String>,
    /// Sampling interval: 100ns, 1us, 10ms or 1000i (instructions)
    #[arg(long, value_name = "PERIOD", value_parser = quantities::every)]
    pub every: Option<Every>,
    /// For `models`, the instruction cache, as for `hodo report`
    #[arg(long, value_name = "SIZE,WAYS,LINE")]
    pub icache: Option<hodo_model::CacheGeometry>,
    #[command(flatten)]
    pub period: PeriodArguments,
    /// The intervals of `latency`, as for `hodo latency`
    #[command(flatten)]
    pub question: QuestionArguments,
    #[command(flatten)]
    pub input: Input,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo plan functions --parts 8 perf.data > tasks
  while read -r task; do hodo fold --task \"$task\" -o $((i++)).part; done < tasks
  hodo merge *.part")]
pub struct Plan {
    /// Number of tasks [default: one per 64 MB of trace]
    #[arg(long, value_name = "N")]
    pub parts: Option<std::num::NonZero<u32>>,
    #[command(flatten)]
    pub what: What,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo fold cpu,io --part 1/2 -o 1.part ./my-trace
  hodo fold cpu,io --part 2/2 -o 2.part ./my-trace
  hodo fold --task \"$(hodo plan functions --parts 4 perf.data | head -1)\" -o 1.part
  hodo merge *.part")]
pub struct Fold {
    /// Number of the part, and of all parts: 1/4 is the first of four
    #[arg(long, value_name = "I/N", value_parser = portion, required_unless_present = "task")]
    pub part: Option<Portion>,
    /// A line printed by `hodo plan`, which contains all other options
    #[arg(long, value_name = "JSON", conflicts_with_all = ["part", "kinds"])]
    pub task: Option<String>,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub what: What,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo merge *.part
  hodo merge --by process --top 10 1.part 2.part
  hodo merge --part left.part 1.part 2.part    one part, to be merged with others")]
pub struct Merge {
    /// Files written by `hodo fold` or `hodo merge --part`: all parts of one request, in any order
    #[arg(value_name = "PART", required = true)]
    pub parts: Vec<PathBuf>,
    /// Merge adjacent parts into one, written to this file, instead of printing tables
    #[arg(long, value_name = "FILE")]
    pub part: Option<PathBuf>,
    /// Kind of rows, as for `hodo report`
    #[arg(long, value_name = "WHAT")]
    pub by: Option<String>,
    /// Only threads with these names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub comm: Vec<String>,
    /// Only these threads
    #[arg(long, value_name = "TID,…", value_delimiter = ',')]
    pub tid: Vec<u32>,
    /// Only these processes
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Only events of these CPUs
    #[arg(long, value_name = "CPU,…", value_delimiter = ',', value_parser = crate::events::cpus)]
    pub cpu_list: Vec<Vec<u32>>,
    /// Exit with code 1 if anything was lost or can't be decoded
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub root: RootArguments,
}

/// Parses `I/N`.
fn portion(text: &str) -> Result<Portion, String> {
    Portion::parse(text).ok_or("expected I/N, such as 1/4 for the first of four parts".to_owned())
}

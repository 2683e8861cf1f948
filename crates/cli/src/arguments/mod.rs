//! The command line.

use std::{ffi::OsString, io::Write, ops::Deref, path::PathBuf, process::ExitCode};

use clap::{
    ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, builder::Resettable,
};
use hodo_engine::{events::Condition, script::Field};
use hodo_model::{Edge, Every, Period};

use crate::{
    buffer::{Guests, Raw},
    failure::{Failure, written},
    function::RootArguments,
    quantities,
};

/// Shows the path that a program took: records and reads Intel Processor Trace, and tells exactly which
/// functions ran, how often and for how long.
#[derive(Debug, Parser)]
#[command(name = "hodo", version, max_term_width = 100)]
#[command(after_help = "Examples:
  hodo record -- ls -l            trace a program (on the emulated processor where there is no Intel PT)
  hodo report functions perf.data what ran, function by function, exact counts
  hodo script --calls perf.data   every call in order
  hodo diff old.data new.data     what changed, function by function
  hodo info perf.data             what is in a recording, and what is missing from it")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command and record the path it takes
    Record(Chosen<Record>),
    /// What a recording holds: clocks, streams, programs, what was lost
    Info(Chosen<Info>),
    /// What happened, in order: packets, instructions or calls
    Script(Chosen<Script>),
    /// Tables: exact profiles by function or by call path
    Report(Chosen<Report>),
    /// Findings in plain sentences, worst first, each with the command that shows its evidence
    Explain(Chosen<Explain>),
    /// What a thread waited for, and what its waker waited for: its critical path, from its end to its begin
    Path(Chosen<crate::path::Path>),
    /// How long from here to there: percentiles, histogram, the worst ones and what they did
    Latency(Chosen<Latency>),
    /// Tasks of a report, a line of JSON each, for `hodo fold --task`
    Plan(Chosen<Plan>),
    /// Part of a report: folds a part of the inputs, for `hodo merge`; parts may be folded on other machines
    Fold(Chosen<Fold>),
    /// Tables of what `hodo fold` made of all parts of the inputs
    Merge(Chosen<Merge>),
    /// Several traces on one timeline: relates clocks by messages that two traces saw, and says how sure times are
    Sync(Chosen<crate::sync::Sync>),
    /// Software events in another format, or only some of them: a small trace out of a big one
    Export(Chosen<Export>),
    /// A store of what happened, for quick answers: which thread was in which state, at any time
    Index(Chosen<Index>),
    /// One function: source and disassembly, with how often each line, instruction and branch ran
    Annotate(Chosen<Annotate>),
    /// What changed between two recordings, groups of recordings, times or executions
    Diff(Chosen<crate::diff::Diff>),
    /// Print shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
}

/// Arguments of a command, declared to clap only if the command is chosen: declaring those of all commands takes as
/// long as reading the metadata of a small trace.
#[derive(Debug)]
pub struct Chosen<T>(Box<T>);

impl<T> Chosen<T> {
    /// Returns the arguments.
    pub fn into_inner(self) -> Box<T> {
        self.0
    }
}

impl<T> Deref for Chosen<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: FromArgMatches> FromArgMatches for Chosen<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(|arguments| Chosen(Box::new(arguments)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Declares arguments on a command, and keeps the command's own help texts.
fn described(command: clap::Command, declare: fn(clap::Command) -> clap::Command) -> clap::Command {
    let (about, long_about) = (command.get_about().cloned(), command.get_long_about().cloned());
    declare(command).about(Resettable::from(about)).long_about(Resettable::from(long_about))
}

impl<T: Args> Args for Chosen<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(|command| described(command, T::augment_args))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command.defer(|command| described(command, T::augment_args_for_update))
    }
}

/// Where the trace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Intel PT of this processor where it has it, else the emulated processor
    Auto,
    /// Intel PT of this processor, through `perf record`
    Perf,
    /// The emulated processor: QEMU's user-mode emulation with virtual time
    Emulate,
    /// A whole emulated machine: a small guest, its kernel and all its processes
    Machine,
    /// The kernel's own tracer: events of the whole system while the command runs (needs root)
    Ftrace,
    /// An emulated board: slaves in QEMU and a master, each with a clock of its own; instead of a command, the
    /// folder to write
    Board,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo record -- ./prog arg
  hodo record -e intel_pt/cyc,psb_period=0/u -o prog.data -- ./prog
  hodo record --filter 'filter main @ ./prog' -- ./prog
  hodo record --snapshot=1M -- ./prog      keep the last megabyte of each thread
  hodo record --engine machine -- ls -l /usr         the kernel and every process of a small machine
  hodo record --engine ftrace -e sched -e irq -e syscalls -o trace.dat -- ./prog
  hodo record --engine board --board slaves=8,time=60s traces/     a board with eight slaves")]
pub struct Record {
    /// Where the trace comes from
    #[arg(long, value_enum, default_value = "auto")]
    pub engine: Engine,
    /// Event in perf's syntax: intel_pt/tsc,mtc,mtc_period=N,cyc,cyc_thresh=N,psb_period=N,noretcomp/u;
    /// of ftrace a system or an event, such as sched or sched:sched_switch; several are possible there
    #[arg(short, long, value_name = "EVENT")]
    pub event: Vec<String>,
    /// ftrace: trace calls of these functions of the kernel, such as 'vfs_*'
    #[arg(long, value_name = "FILTER")]
    pub function: Option<String>,
    /// ftrace: size of the buffer of each CPU [default: 8M]
    #[arg(long, value_name = "SIZE")]
    pub buffer_size: Option<String>,
    /// Trace only some addresses, in perf's syntax: 'filter FUNC @ FILE', 'filter ADDRESS/SIZE @ FILE'
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// Keep only the last bytes of each thread's trace (default size: 4M)
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "4M")]
    pub snapshot: Option<String>,
    /// Make the emulated processor lose the packets of these instructions of each thread, as if its
    /// buffer had overflowed: the numbers of the first and of the one after the last
    #[arg(long, value_name = "FROM..TO", value_parser = quantities::instructions)]
    pub overflow: Option<std::ops::Range<u64>>,
    /// A machine: trace the kernel only
    #[arg(long, conflicts_with = "user")]
    pub kernel: bool,
    /// A machine: trace user space only
    #[arg(long)]
    pub user: bool,
    /// A machine: count instructions one by one as well, and hold the trace's own count against it
    #[arg(long)]
    pub witness: bool,
    /// A board: slaves, cortex-m3, protocol, exchanges, period, tick, time, drift, wander, step, work, urgent, as in
    /// slaves=8,protocol=polling,time=60s,wander=5ppm/20s (docs/boards.md tells of each)
    #[arg(long, value_name = "SETTINGS")]
    pub board: Option<hodo_recorder::BoardSettings>,
    /// File to write
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "perf.data",
        default_value_if("engine", "ftrace", "trace.dat")
    )]
    pub output: PathBuf,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What to read.
#[derive(Clone, Debug, Args)]
pub struct Input {
    /// Recordings, opened together: perf.data or trace.dat files, folders of CTF traces (LTTng, barectf), an experiment
    /// that `hodo sync` wrote, or a session that LTTng is recording (net://HOST[:PORT]/host/NAME/SESSION)
    #[arg(value_name = "INPUT", default_value = "perf.data", conflicts_with = "pt")]
    pub files: Vec<PathBuf>,
    /// Raw Intel PT buffer instead of a recording
    #[arg(long, value_name = "FILE")]
    pub pt: Option<PathBuf>,
    #[command(flatten)]
    pub raw: Raw,
    /// Cycles a second of the clock of a CTF trace that describes none [default: 1000000000]
    #[arg(long, value_name = "HZ", conflicts_with = "pt", value_parser = clap::value_parser!(u64).range(1..))]
    pub clock_frequency: Option<u64>,
    /// Add TIME to the times of this input, whose clock nothing else relates to the others: ./kernel-trace=-1.5s. The
    /// times of the clock that `hodo info` calls the timeline stay
    #[arg(long, value_name = "TRACE=±TIME", value_parser = crate::timeline::offset)]
    pub offset: Vec<hodo_engine::TraceOffset>,
    /// Folder below which the files of the traced system lie
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,
    /// Folder with files by their build ids [default: $PERF_BUILDID_DIR, or ~/.debug]
    #[arg(long, value_name = "DIR")]
    pub buildid_dir: Option<PathBuf>,
    /// Functions of the kernel: a copy of /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    pub kallsyms: Option<PathBuf>,
    /// Code of the kernel: a copy of /proc/kcore, as `perf record --kcore` makes it
    #[arg(long, value_name = "FILE")]
    pub kcore: Option<PathBuf>,
    /// The kernel as it was linked, for its functions, and for its code where there is no copy
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,
    #[command(flatten)]
    pub guests: Guests,
    /// Only these threads
    #[arg(long, value_name = "TID,…", value_delimiter = ',')]
    pub tid: Vec<u32>,
    /// Only these processes
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Only threads with these names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub comm: Vec<String>,
    /// Only this span: START,STOP in seconds; 10%-20%; +0.1,+0.2 from the beginning; or 10:38:00,10:38:01 of the wall
    /// clock, with a date before it where needed, in the time zone of TZ or else of the trace
    #[arg(long, value_name = "SPAN")]
    pub time: Option<String>,
    /// Only while these calls of a function run: all, the N-th of each thread, or the N-th to the M-th
    #[arg(long, value_name = "FUNC[#N[..M]]")]
    pub call: Option<String>,
    /// Threads that decode [default: all cores]
    #[arg(short = 'j', long, value_name = "THREADS")]
    pub jobs: Option<usize>,
    /// What is decoded at a time: bytes of trace, such as 4M; of software events also seconds, such as 0.5s, or
    /// each `stream` as a whole
    #[arg(long, value_name = "SIZE")]
    pub chunk_size: Option<String>,
    /// Exit with 1 where anything was lost or can't be decoded
    #[arg(long)]
    pub strict: bool,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// Where to write, and how.
#[derive(Debug, Args)]
pub struct Output {
    /// How to write
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = format_names())]
    pub format: String,
    /// File to write instead of the terminal
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// At most this many rows or lines
    #[arg(long, visible_alias = "top", value_name = "N")]
    pub limit: Option<u64>,
    /// When to use colours
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub color: clap::ColorChoice,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo info perf.data
  hodo info --format json perf.data
  hodo info perf.data ./kernel-trace           have they one clock?
  hodo info --symfs ./target-root perf.data    are the programs of another machine all there?")]
pub struct Info {
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub store: StoreFolder,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo index kernel-trace/
  hodo index --store /tmp/store kernel-trace/
  hodo info kernel-trace/       is there a store, and is it of the trace as it is now?")]
pub struct Index {
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub store: StoreFolder,
}

/// Where a store lies.
#[derive(Debug, Args)]
pub struct StoreFolder {
    /// Folder of the store of what happened [default: one in the user's cache, by the inputs' paths]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo script --calls perf.data
  hodo script --insns --fields tid,ip,sym,insn --limit 100 perf.data
  hodo script --packets perf.data
  hodo script --events --event 'sched_*' --where 'prev_tid == 42' ./my-trace
  hodo script --events --time '10:38:00,10:38:01' perf.data ./kernel-trace
  hodo script --insns --pt trace.bin --elf a.out@0x400000 --cpu 6/85/4")]
pub struct Script {
    /// Each packet: offset, bytes, meaning
    #[arg(long, group = "what")]
    pub packets: bool,
    /// Each executed instruction
    #[arg(long, group = "what")]
    pub insns: bool,
    /// Each call, indented by depth (the default)
    #[arg(long, group = "what")]
    pub calls: bool,
    /// What the kernel said meanwhile: mappings, names, forks, switches
    #[arg(long, group = "what")]
    pub sideband: bool,
    /// Each software event of all inputs, in order of time (the default where there are only such); of inputs that
    /// have none the same as --marks
    #[arg(long, group = "what")]
    pub events: bool,
    /// What a recording of Intel PT tells beside the flow: interrupts, transactions, modes, where tracing goes on and
    /// off, gaps
    #[arg(long, group = "what")]
    pub marks: bool,
    /// Each value that PTWRITE wrote
    #[arg(long, group = "what")]
    pub ptwrite: bool,
    /// Power states and changes of the frequency
    #[arg(long, group = "what")]
    pub power: bool,
    /// What a line of --insns tells: time, span, cpu, pid, tid, ip, sym, insn, srcline
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', default_value = "ip")]
    pub fields: Vec<Field>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub filter: crate::events::Filter,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = report_help())]
pub struct Report {
    /// List the kinds of report
    #[arg(long)]
    pub list: bool,
    /// Kind of report
    #[arg(value_name = "KIND", required_unless_present = "list", value_parser = report_names())]
    pub kind: Option<String>,
    /// Redraw the table at this distance while a session is being recorded: 1s, 500ms
    #[arg(long, value_name = "TIME", value_parser = quantities::interval)]
    pub refresh: Option<std::time::Duration>,
    /// Samples at this distance instead of weights by instructions, as perf would take them: 100ns, 1us,
    /// 10ms or 1000i (instructions); of `count --by time`, how wide the spans are
    #[arg(long, value_name = "PERIOD", value_parser = quantities::every)]
    pub every: Option<Every>,
    /// What the rows are, of the count of software events and of analyses of kernel events; what there is of each is
    /// listed below
    #[arg(long, value_name = "WHAT")]
    pub by: Option<String>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub filter: crate::events::Filter,
    #[command(flatten)]
    pub output: Output,
    // Groups with headings come last, because a heading applies to all following arguments.
    #[command(flatten)]
    pub root: RootArguments,
    #[command(flatten)]
    pub period: PeriodArguments,
}

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_HELP)]
pub struct Explain {
    /// List the rules with their thresholds
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
}

const EXPLAIN_HELP: &str =
    "Each finding is made of numbers in a table, and says the threshold that it passed.

Examples:
  hodo explain kernel-trace/               what threads waited for, and what disturbed them
  hodo explain hodo.data                   what stands out in the control flow of a program
  hodo explain --time 10%-20% trace.dat    the same of a part of the time
  hodo explain --list                      the rules";

/// What `hodo report periods` measures.
#[derive(Debug, Args)]
#[command(next_help_heading = "Periods")]
pub struct PeriodArguments {
    /// Periods begin at these events: a name or a pattern, and what their fields meet, such as
    /// 'sched_wakeup where tid == 42'
    #[arg(long, value_name = "EVENT", value_parser = edge)]
    pub begin: Option<Edge>,
    /// They end at the next of these
    #[arg(long, value_name = "EVENT", value_parser = edge)]
    pub end: Option<Edge>,
    /// Only if these fields of both have the same values; FIELD=OTHER where their names differ; `cpu` is the CPU
    #[arg(long = "match", value_name = "FIELD,…", value_delimiter = ',', value_parser = matched)]
    pub matched: Vec<(String, String)>,
    /// Rows are for values of these fields of the first event; `event` is its name
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    pub group: Vec<String>,
}

impl PeriodArguments {
    /// Returns the period, if one is given.
    pub fn period(&self) -> Result<Option<Period>, Failure> {
        match (self.begin.clone(), self.end.clone()) {
            (Some(begin), Some(end)) => {
                let (matched, group) = (self.matched.clone(), self.group.clone());
                Ok(Some(Period { begin, end, matched, group }))
            }
            (None, None) if self.matched.is_empty() && self.group.is_empty() => Ok(None),
            _ => Err(Failure::usage("periods need both --begin EVENT and --end EVENT")),
        }
    }
}

/// Parses a pattern of names with an optional condition.
pub fn edge(text: &str) -> Result<Edge, String> {
    let edge = Edge::parse(text);
    match edge.condition.is_empty() {
        true => Ok(edge),
        false => Condition::parse(&edge.condition).map(|_| edge),
    }
}

/// Parses a field, or two fields with `=` between them.
pub fn matched(text: &str) -> Result<(String, String), String> {
    let (begin, end) = text.split_once('=').unwrap_or((text, text));
    match begin.is_empty() || end.is_empty() {
        true => Err("expected FIELD or FIELD=OTHER, such as next_tid=prev_tid".to_owned()),
        false => Ok((begin.to_owned(), end.to_owned())),
    }
}

mod parts;

pub use crate::latency::arguments::{Latency, QuestionArguments};
pub use parts::{Fold, Merge, Plan, What};

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// CTF 1.8: a folder that babeltrace2, Trace Compass and others read
    Ctf,
    /// CTF 2: a folder
    Ctf2,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo export --to ctf -o small --event 'sched_*' --time +1,+1.5 ./my-trace
  hodo export --to ctf2 -o new ./my-trace
  hodo export --to ctf -o one-thread --tid 4711 ./my-trace
  hodo export --to ctf -o kernel trace.dat")]
pub struct Export {
    /// Format
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub to: ExportFormat,
    /// Folder to write, which is not there yet
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub filter: crate::events::Filter,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo annotate main perf.data
  hodo annotate --format json 'std::vec::push_back' perf.data
  hodo annotate --call 'handle_request#3' insert         in the third request only
  hodo annotate --source-dir ~/src/project parse_header perf.data")]
pub struct Annotate {
    /// The function: its name, demangled or not, or 0xADDRESS; @FILE where several files have one
    #[arg(value_name = "FUNC")]
    pub function: String,
    /// Folder in which to look for source files, by as much of their path as is there
    #[arg(long, value_name = "DIR")]
    pub source_dir: Vec<PathBuf>,
    /// What the paths of source files begin with, and what they begin with here
    #[arg(long, value_name = "OLD=NEW", value_parser = prefix)]
    pub prefix: Vec<(String, String)>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
}

/// Parses two path prefixes, `OLD=NEW`.
fn prefix(text: &str) -> Result<(String, String), String> {
    let (old, new) = text.split_once('=').ok_or("expected OLD=NEW, such as /build=/home/me/src")?;
    Ok((old.to_owned(), new.to_owned()))
}

/// Returns the names of formats.
pub fn format_names() -> Vec<&'static str> {
    hodo_views::VIEWS.iter().map(|view| view.name).collect()
}

fn report_names() -> Vec<&'static str> {
    crate::report::list().map(|(name, ..)| name).collect()
}

fn report_help() -> String {
    let kinds = crate::report::list().map(|(name, help, _)| format!("  {name:10} {help}\n"));
    let views = crate::report::list().filter(|(.., views)| views.len() > 1);
    let views = views.map(|(name, _, views)| format!("  {name:10} {}\n", views.join(", ")));
    format!(
        "Kinds:\n{}\nRows (--by), the usual ones first:\n{}\nExamples:
  hodo report functions perf.data
  hodo report tree --limit 40
  hodo report functions --every 1us perf.data            as a sampling profiler would see it
  hodo report tree --call 'handle_request#3' perf.data   what the third request did
  hodo report paths --format folded perf.data | flamegraph.pl > flame.svg
  hodo report paths --syscall mmap perf.data             what the kernel does for mmap, path by path
  hodo report lines --time +1ms,+2ms perf.data
  hodo report cpu ./my-trace
  hodo report syscalls --by slowest --top 10 ./my-trace
  hodo report count --by time --every 10ms ./my-trace
  hodo report periods --begin irq_handler_entry --end irq_handler_exit --match irq,cpu --group name ./my-trace
  hodo report all ./my-trace",
        kinds.collect::<String>(),
        views.collect::<String>()
    )
}

/// Prints shell completions.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "hodo", &mut script);
    written(std::io::stdout().write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}

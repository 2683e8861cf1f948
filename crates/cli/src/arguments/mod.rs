//! The command line.

use std::{ops::Deref, path::PathBuf};

use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand, builder::Resettable};
use hodo_engine::events::Condition;
use hodo_model::{Edge, Every, Period};
use hodo_script::flow::Field;

use crate::{
    buffer::{Guests, Raw},
    failure::Failure,
    function::RootArguments,
    quantities,
};

/// Records and analyses exact execution traces: which functions a program ran, how often and for how long, from Intel
/// Processor Trace, and kernel and software events.
#[derive(Debug, Parser)]
#[command(name = "hodo", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Examples:
  hodo record -- ls -l            trace a program (translated by hodo if there is no Intel PT)
  hodo report functions perf.data exact instruction and call counts of each function
  hodo script --calls perf.data   every call in order
  hodo diff old.data new.data     what changed, function by function
  hodo info perf.data             contents of a recording, and what is missing from it")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command and record its execution
    Record(Chosen<Record>),
    /// Contents of a recording: clocks, streams, programs, losses
    Info(Chosen<Info>),
    /// Packets, instructions, calls or events in order, one per line
    Script(Chosen<Script>),
    /// Tables: profiles of functions and call paths, analyses of kernel events
    Report(Chosen<Report>),
    /// Findings in plain sentences, worst first, each with the command that shows its evidence
    Explain(Chosen<Explain>),
    /// What a thread waited for, and what its waker waited for: its critical path, from its end to its begin
    Path(Chosen<crate::path::Path>),
    /// Latencies of functions, or between two markers: percentiles, histogram, call trees of the slowest executions
    Latency(Chosen<Latency>),
    /// Divide a report into tasks for `hodo fold --task`, one line of JSON each
    Plan(Chosen<Plan>),
    /// Compute one part of a report, on any machine, for `hodo merge`
    Fold(Chosen<Fold>),
    /// Merge the parts that `hodo fold` wrote, and print the tables
    Merge(Chosen<Merge>),
    /// Put several traces on one timeline, by messages that two traces recorded; reports the uncertainty of times
    Sync(Chosen<crate::sync::Sync>),
    /// Write calls, profiles or software events, or a selection of them, for other tools
    Export(Chosen<Export>),
    /// Build a store of thread states for quick queries at any time of a large trace
    Index(Chosen<Index>),
    /// The viewer: tables, findings and a timeline, in the browser
    View(Chosen<View>),
    /// What happened for the trace viewers of VS Code and Theia, on this machine only
    Serve(Chosen<crate::serve::Serve>),
    /// Source and disassembly of a function, with exact counts of each line, instruction and branch
    Annotate(Chosen<Annotate>),
    /// Differences between two recordings, groups of recordings, time spans or executions
    Diff(Chosen<crate::diff::Diff>),
    /// The gate: runs the cases of hodo.toml, and fails if one grew beyond its limit, with the reason
    Check(Chosen<crate::check::Check>),
    /// Tables, calls and events by SQL: statements that read
    Sql(Chosen<crate::sql::Sql>),
    /// Tools for programs that plan: the Model Context Protocol on standard input and output
    Mcp(Chosen<crate::mcp::Mcp>),
    /// Print the help of the program or of a command; --json describes commands, reports, columns and units
    Help(crate::describe::Help),
    /// Print shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write man pages of all commands into a folder
    #[command(hide = true)]
    Manual { folder: PathBuf },
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

impl Input {
    /// Returns the raw buffer that is read instead of recordings.
    pub fn buffer(&self) -> Option<&PathBuf> {
        self.pt.as_ref().or(self.etrace.as_ref()).or(self.etm.as_ref())
    }

    /// Returns the input with some of its files, without the offsets of the other ones: an offset that names no input is
    /// refused.
    pub fn of_files(&self, files: Vec<PathBuf>) -> Input {
        let is_here = |offset: &hodo_engine::TraceOffset| {
            let is_path = |file: &&PathBuf| file.as_os_str() == offset.trace.as_str();
            let is_name =
                |file: &&PathBuf| file.file_name().is_some_and(|name| name == offset.trace.as_str());
            let named = self.files.iter().find(is_path).or_else(|| self.files.iter().find(is_name));
            named.is_none_or(|file| files.contains(file))
        };
        let offset = self.offset.iter().filter(|offset| is_here(offset)).cloned().collect();
        Input { files, offset, ..self.clone() }
    }
}

/// What to read.
#[derive(Clone, Debug, Default, Args)]
pub struct Input {
    /// Recordings, opened together: perf.data or trace.dat files, folders of CTF traces (LTTng, barectf), snapshots of
    /// OpenCSD, an experiment that `hodo sync` wrote, or a live LTTng session (net://HOST[:PORT]/host/NAME/SESSION)
    #[arg(value_name = "INPUT", default_value = "perf.data", conflicts_with = "buffer")]
    pub files: Vec<PathBuf>,
    /// Raw Intel PT buffer instead of a recording
    #[arg(long, value_name = "FILE", group = "buffer")]
    pub pt: Option<PathBuf>,
    /// Raw RISC-V trace (E-Trace or N-Trace) instead of a recording
    #[arg(long, value_name = "FILE", group = "buffer")]
    pub etrace: Option<PathBuf>,
    /// Raw buffer of Arm CoreSight (ETMv4 or ETE) instead of a recording
    #[arg(long, value_name = "FILE", group = "buffer", requires = "etm_config")]
    pub etm: Option<PathBuf>,
    #[command(flatten)]
    pub raw: Raw,
    /// Clock frequency of CTF traces that do not describe their clock [default: 1000000000]
    #[arg(long, value_name = "HZ", conflicts_with = "pt", value_parser = clap::value_parser!(u64).range(1..))]
    pub clock_frequency: Option<u64>,
    /// Add TIME to the times of this input, whose clock is unrelated to the others: ./kernel-trace=-1.5s. Times of the
    /// clock that `hodo info` calls the timeline do not change
    #[arg(long, value_name = "TRACE=±TIME", value_parser = crate::timeline::offset)]
    pub offset: Vec<hodo_engine::TraceOffset>,
    /// Root folder of the traced system's files
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,
    /// Folder of files by build id [default: $PERF_BUILDID_DIR, or ~/.debug]
    #[arg(long, value_name = "DIR")]
    pub buildid_dir: Option<PathBuf>,
    /// Kernel symbols: a copy of /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    pub kallsyms: Option<PathBuf>,
    /// Kernel code: a copy of /proc/kcore, as `perf record --kcore` makes it
    #[arg(long, value_name = "FILE")]
    pub kcore: Option<PathBuf>,
    /// Kernel image as linked (vmlinux): symbols, and code if --kcore is not given
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
    /// Only threads with these names, while they have them
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub comm: Vec<String>,
    /// Leave out what the recorder made the kernel of a recorded machine do, and the recorder's own process
    #[arg(long)]
    pub without_recorder: bool,
    /// Only this span: START,STOP in seconds; 10%-20%; +0.1,+0.2 from the beginning; or wall-clock times such as
    /// 10:38:00,10:38:01, optionally with a date, in the time zone of TZ, else that of the trace
    #[arg(long, value_name = "SPAN")]
    pub time: Option<String>,
    /// Only during these calls of a function: all, the N-th of each thread, or the N-th to the M-th
    #[arg(long, value_name = "FUNC[#N[..M]]")]
    pub call: Option<String>,
    /// Number of decoding threads [default: one per core]
    #[arg(short = 'j', long, value_name = "THREADS")]
    pub jobs: Option<usize>,
    /// Size of the chunks decoded at a time: bytes of trace, such as 4M; for software events also a time, such as 0.5s,
    /// or `stream` for whole streams
    #[arg(long, value_name = "SIZE")]
    pub chunk_size: Option<String>,
    /// Exit with code 1 if anything was lost or can't be decoded
    #[arg(long)]
    pub strict: bool,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// The output and its format.
#[derive(Clone, Debug, Default, Args)]
pub struct Output {
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = format_names())]
    pub format: String,
    /// File to write instead of standard output
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
  hodo info perf.data ./kernel-trace           do they have the same clock?
  hodo info --symfs ./target-root perf.data    are all programs of another machine available?")]
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
  hodo info kernel-trace/       does a store exist, and does it match the trace?")]
pub struct Index {
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub store: StoreFolder,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo view ./my-trace                       open it in the browser
  hodo view --no-open perf.data ./my-trace   print the address only
  hodo view -o page.html ./my-trace          one file that needs neither hodo nor a network")]
pub struct View {
    /// Write the page with its data as one file, instead of serving it
    #[arg(short, long, value_name = "FILE", conflicts_with = "no_open")]
    pub output: Option<PathBuf>,
    /// Size of that file at most: rows and detail that don't fit are left out, and the page says so
    #[arg(long, value_name = "SIZE", default_value = "20M", requires = "output")]
    pub size: String,
    /// Only these rows in the timeline of that file: a regular expression, as in the page's filter. --time SPAN is its time
    #[arg(long, value_name = "PATTERN", requires = "output")]
    pub rows: Option<String>,
    /// Print the address, and open no browser
    #[arg(long)]
    pub no_open: bool,
    /// Draw a field of an event as a counter above the rows of the timeline (repeatable): sched_stat_runtime.runtime
    #[arg(long, value_name = "EVENT.FIELD", conflicts_with = "output", value_parser = counter)]
    pub counter: Vec<String>,
    /// Keep the times of several recordings of control flow; else all begin when the first one does
    #[arg(long)]
    pub no_align: bool,
    /// Place several recordings of control flow so that this function begins for the first time at the same instant in all
    #[arg(long, value_name = "FUNC", conflicts_with = "no_align")]
    pub align: Option<String>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub store: StoreFolder,
}

/// Checks the name of a counter: an event and one of its fields.
fn counter(text: &str) -> Result<String, String> {
    match text.split_once('.') {
        Some((event, field)) if !event.is_empty() && !field.is_empty() => Ok(text.to_owned()),
        _ => Err("expected EVENT.FIELD, such as sched_stat_runtime.runtime".to_owned()),
    }
}

/// The location of a store.
#[derive(Clone, Debug, Default, Args)]
pub struct StoreFolder {
    /// Folder of the store [default: in the user's cache, by the inputs' paths]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo script --calls perf.data
  hodo script --insns --fields tid,ip,sym,insn --limit 100 perf.data
  hodo script --packets perf.data             Intel PT's, Arm's or RISC-V's; native recordings: hodo export --to intel-pt
  hodo script --at +3.5ms perf.data           where each thread is, and how it got there
  hodo script --at end crash.data             where each thread ended
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
    /// Sideband records of the kernel: mappings, names, forks, switches
    #[arg(long, group = "what")]
    pub sideband: bool,
    /// Each software event of all inputs, in order of time (the default if there is no control flow); the same as
    /// --marks if there are none
    #[arg(long, group = "what")]
    pub events: bool,
    /// What Intel PT records besides control flow: interrupts, transactions, modes, tracing on and off, gaps
    #[arg(long, group = "what")]
    pub marks: bool,
    /// Each value that PTWRITE wrote
    #[arg(long, group = "what")]
    pub ptwrite: bool,
    /// Power states and frequency changes
    #[arg(long, group = "what")]
    pub power: bool,
    /// Place and call stack of each thread at an instant: a time in seconds, +TIME from the begin, N%, `end` (or 100%), the
    /// thread's last instruction, or #N, its n-th
    #[arg(long, group = "what", value_name = "INSTANT")]
    pub at: Option<String>,
    /// Columns of --insns: time, span, cpu, pid, tid, ip, sym, insn, srcline
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
    /// For a live session, redraw the table at this interval: 1s, 500ms
    #[arg(long, value_name = "TIME", value_parser = quantities::interval)]
    pub refresh: Option<std::time::Duration>,
    /// Count samples at this interval instead of instructions, like a sampling profiler: 100ns, 1us, 10ms or 1000i
    /// (instructions); for `count --by time`, the width of the time bins
    #[arg(long, value_name = "PERIOD", value_parser = quantities::every)]
    pub every: Option<Every>,
    /// For `models`, the instruction cache in bytes, with its ways and its lines [default: 32768,8,64]
    #[arg(long, value_name = "SIZE,WAYS,LINE")]
    pub icache: Option<hodo_model::CacheGeometry>,
    /// Kind of rows, for reports with several; the values of each report are listed below
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
    /// Show a rule, what it read of this input, and why it found something or nothing
    #[arg(long, value_name = "RULE")]
    pub why: Option<String>,
    /// Explain how the input differs from this one, as two recordings of control flow are explained
    #[arg(long, value_name = "INPUT")]
    pub baseline: Option<PathBuf>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
}

const EXPLAIN_HELP: &str =
    "Each finding is based on numbers in a table, and states the threshold that it exceeds.

Examples:
  hodo explain kernel-trace/               what threads waited for, and what interrupted them
  hodo explain hodo.data                   findings about the control flow of a program
  hodo explain --time 10%-20% trace.dat    findings in a part of the trace
  hodo explain old.data new.data           what differs between two recordings of control flow
  hodo explain --baseline old/ new/        the same of traces of events, which else are opened together
  hodo explain --list                      the rules
  hodo explain --why heavy-tail hodo.data  why a rule found something in a recording, or nothing";

/// The periods that `hodo report periods` measures.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Periods")]
pub struct PeriodArguments {
    /// Periods begin at these events: a name or pattern, optionally with a condition, such as 'sched_wakeup where tid
    /// == 42'
    #[arg(long, value_name = "EVENT", value_parser = edge)]
    pub begin: Option<Edge>,
    /// Periods end at the next of these events
    #[arg(long, value_name = "EVENT", value_parser = edge)]
    pub end: Option<Edge>,
    /// Fields that must have equal values in both events; FIELD=OTHER if their names differ; `cpu` is the CPU
    #[arg(long = "match", value_name = "FIELD,…", value_delimiter = ',', value_parser = matched)]
    pub matched: Vec<(String, String)>,
    /// Group rows by the values of these fields of the first event; `event` is its name
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
    if edge.condition.is_empty() { Ok(edge) } else { Condition::parse(&edge.condition).map(|_| edge) }
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
mod record;

pub use crate::latency::arguments::{Latency, QuestionArguments};
pub use parts::{Fold, Merge, Plan, What};
pub use record::{Architecture, Engine, Record};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo export --to perfetto -o calls.pftrace perf.data          every call, for ui.perfetto.dev
  hodo export --to perfetto -o kernel.pftrace ./my-trace        states, system calls, interrupts
  hodo export --to speedscope --min 1us --time 10%-20% -o calls.json perf.data
  hodo export --to callgrind -o callgrind.out perf.data         for kcachegrind
  hodo export --to pprof -o profile.pb.gz perf.data
  hodo export --to llvm -o prog.counts perf.data                for llvm-profgen --unsymbolized-profile
  hodo export --to ctf -o small --event 'sched_*' --time +1,+1.5 ./my-trace
  hodo export --to ctf -o one-thread --tid 4711 ./my-trace")]
pub struct Export {
    /// Format
    #[arg(long, value_name = "FORMAT", value_parser = crate::export::names())]
    pub to: String,
    /// File to write; for CTF a folder, which must not exist
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,
    /// Leave out calls and intervals that are shorter: 100ns, 1us, 5ms
    #[arg(long, value_name = "TIME", value_parser = quantities::shortest)]
    pub min: Option<u64>,
    /// folded: also the numbers of this recording, before those of INPUT, as flamegraph.pl reads differences
    #[arg(long, value_name = "FILE")]
    pub before: Option<PathBuf>,
    /// llvm, bolt, autofdo: the module to write [default: the recorded program's file]; lcov: only the lines of this module
    #[arg(long, value_name = "NAME")]
    pub module: Option<String>,
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
    /// Function: its name, demangled or not, or 0xADDRESS; append @FILE if several files have it
    #[arg(value_name = "FUNC")]
    pub function: String,
    /// Folder in which to search for source files, by their path or the end of it
    #[arg(long, value_name = "DIR")]
    pub source_dir: Vec<PathBuf>,
    /// Replace the beginning OLD of source paths by NEW
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
    crate::report::list().map(|about| about.name).collect()
}

fn report_help() -> String {
    let kinds = crate::report::list().map(|about| format!("  {:10} {}\n", about.name, about.help));
    let views = crate::report::list().filter(|about| about.views.len() > 1);
    let views = views.map(|about| format!("  {:10} {}\n", about.name, about.views.join(", ")));
    format!(
        "Kinds:\n{}\nRows (--by), the default first:\n{}\nExamples:
  hodo report functions perf.data
  hodo report tree --limit 40
  hodo report functions --every 1us perf.data            as a sampling profiler would see it
  hodo report tree --call 'handle_request#3' perf.data   what the third request did
  hodo report paths --format folded perf.data | flamegraph.pl > flame.svg
  hodo report paths --syscall mmap machine.data          call paths of the kernel in mmap: hodo record --engine machine
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

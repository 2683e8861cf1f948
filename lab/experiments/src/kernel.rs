//! `cargo run -p lab -- kernel`: what seven system calls execute in the kernel of an emulated machine, without a tracer
//! and with four; for how long interrupts are off.
//!
//! Sharma and Dagenais, "Hardware-assisted instruction profiling and latency detection", 2016, Figures 6, 10 and 11.
//! Prints tables in Markdown, and writes plots to `docs/reproduction`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use workbench::{
    Outcome,
    command::{self, hodo},
    setup::{self, Need},
    workloads,
};

use super::{
    deltas::{docs, draw_histograms},
    measure::json,
};

/// Intel PT without return compression, so that libipt can read the recordings too.
const EVENT: &str = "intel_pt/noretcomp,mtc_period=9/";
/// The functions of the C library that make the system calls of `seven_calls.c`.
const CALLS: [&str; 7] = ["open", "write", "read", "fstatat", "mmap", "munmap", "close"];
/// The system calls that these make.
const SYSTEM_CALLS: [&str; 7] = ["openat", "write", "read", "newfstatat", "mmap", "munmap", "close"];
/// Names of pairs in `hodo latency --pair`.
const PAIRS: [&str; 5] = ["interrupts-off", "spinlock", "cpu-relax", "kernel-fpu", "syscall"];

/// How the system calls are traced by the kernel's own tracers.
enum Tracer {
    None,
    /// By `hodo record --with`.
    With(&'static str),
    /// By these lines of shell, which write to ftrace's files before and after.
    Ftrace {
        on: &'static str,
        off: &'static str,
    },
}

const RECORDINGS: [(&str, Tracer); 5] = [
    ("off", Tracer::None),
    ("events", Tracer::Ftrace { on: "echo 1 > events/syscalls/enable", off: "echo 0 > events/enable" }),
    ("lttng", Tracer::With("lttng")),
    ("perf", Tracer::With("perf")),
    ("ftrace", Tracer::Ftrace { on: "echo function > current_tracer", off: "echo nop > current_tracer" }),
];

/// Records, prints the tables and writes the plots.
pub(super) fn run() -> Outcome {
    setup::ensure(Need::Test)?;
    setup::machine()?;
    command::build_hodo()?;
    let folder = command::target().join("lab/kernel");
    fs::create_dir_all(&folder)?;
    let program = workloads::compile("seven_calls.c", &[], &folder)?.display().to_string();
    let recording = |name: &str| folder.join(format!("{name}.data"));
    for (name, tracer) in &RECORDINGS {
        record(tracer, &format!("{program} 400"), &recording(name))?;
    }
    record(&Tracer::None, "head -c 1000000 /dev/zero > /dev/urandom", &recording("random"))?;

    medians(
        "function of the C library",
        &CALLS.map(|call| ("--function", format!("{call}@libc.so.6"))),
        recording,
    )?;
    medians("system call", &SYSTEM_CALLS.map(|call| ("--syscall", call.to_owned())), recording)?;

    println!("\n| pair | recording | intervals | unmatched | median | p99 | longest |");
    println!("|---|---|---|---|---|---|---|");
    for (name, pair) in PAIRS.map(|pair| ("off", pair)).into_iter().chain([("random", "kernel-fpu")]) {
        let table = json(&["latency", "--pair", pair, "--bins", "log"], &recording(name))?;
        let columns = ["count", "unmatched", "instructions_p50", "instructions_p99", "instructions_max"];
        let figures = columns.map(|column| match &table["summary"][column] {
            Value::Null => "–".to_owned(),
            figure => figure.to_string(),
        });
        println!("| {pair} | {name} | {} |", figures.join(" | "));
        if pair == "interrupts-off" {
            draw_histograms(&table, "kernel")?;
        }
    }
    for name in ["off", "lttng"] {
        let mut paths = Command::new(hodo());
        paths.args(["report", "paths", "-q", "--function", "mmap@libc.so.6", "--format", "sunburst", "-o"]);
        command::quietly(paths.arg(docs(&format!("pt-figure-6-mmap-{name}.svg"))).arg(recording(name)))?;
    }
    Ok(())
}

/// Prints the median instructions of calls in all recordings.
fn medians(kind: &str, calls: &[(&str, String)], recording: impl Fn(&str) -> PathBuf) -> Outcome {
    println!("\n| {kind}, median instructions | {} |", RECORDINGS.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(RECORDINGS.len()));
    for (option, call) in calls {
        print!("| {call} |");
        for (name, _) in &RECORDINGS {
            let table = json(&["latency", option, call], &recording(name))?;
            print!(" {} |", table["summary"]["instructions_p50"]);
        }
        println!();
    }
    Ok(())
}

/// Runs a line of shell in the emulated machine, and records it.
fn record(tracer: &Tracer, line: &str, recording: &Path) -> Outcome {
    let mut record = Command::new(hodo());
    record.args(["record", "--engine", "machine", "--icount", "-q", "-e", EVENT, "-o"]).arg(recording);
    let line = match tracer {
        Tracer::None => line.to_owned(),
        Tracer::With(tracer) => {
            record.args(["--with", tracer, "--with-events", "raw_syscalls"]);
            line.to_owned()
        }
        Tracer::Ftrace { on, off } => format!("cd /sys/kernel/tracing; {on}; {line}; {off}"),
    };
    command::quietly(record.args(["--", "sh", "-c", &line]))
}

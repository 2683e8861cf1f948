//! The cost of ftrace on this machine's kernel, under sysbench (the paper's Table 2).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use bench::processor_time;
use workbench::{Outcome, command};

use super::overhead::HARDWARE;

const TRACEFS: &str = "/sys/kernel/tracing";
/// Runs of each test with and without each tracer.
const ROUNDS: usize = 5;

/// Name, and arguments for sysbench: a fixed amount of work.
const TESTS: [(&str, &str); 3] = [
    (
        "file",
        "fileio --file-total-size=64M --file-num=8 --file-test-mode=rndrw --file-fsync-freq=0 --time=0 --events=400000",
    ),
    ("memory", "memory --memory-block-size=1K --memory-total-size=8G --time=0 --events=4000000"),
    ("CPU", "cpu --cpu-max-prime=10000 --time=0 --events=2500"),
];

/// What the paper's Table 2 says of Intel PT and of the function tracer in each test: megabytes a second, or seconds,
/// without and with the tracer.
const PUBLISHED: [[&str; 2]; 3] = [
    ["32.32 → 31.99 MB/s: 1.00 %", "32.32 → 19.76 MB/s: 63.56 %"],
    ["5358.25 → 5355.59 MB/s: 0.00 %", "5358.25 → 4698.52 MB/s: 14.04 %"],
    ["19.001 → 19.007 s: 0.00 %", "19.001 → 19.121 s: 0.6 %"],
];

/// A tracer: its name, and what switches it on, as file of tracefs and text.
struct Tracer {
    name: &'static str,
    on: &'static [(&'static str, &'static str)],
}

const TRACERS: [Tracer; 2] = [
    Tracer { name: "function tracer", on: &[("current_tracer", "function")] },
    Tracer {
        name: "events of system calls, sched, irq and kmem",
        on: &[
            ("events/raw_syscalls/enable", "1"),
            ("events/sched/enable", "1"),
            ("events/irq/enable", "1"),
            ("events/kmem/enable", "1"),
        ],
    },
];

/// An instance of tracefs, which its drop removes.
struct Instance(PathBuf);

impl Instance {
    /// Starts a tracer.
    ///
    /// # Errors
    /// The kernel does not allow it: without privilege, or where it is locked down.
    fn start(tracer: &Tracer) -> Outcome<Instance> {
        let folder = Path::new(TRACEFS).join("instances/hodo-lab");
        fs::create_dir(&folder).map_err(|error| format!("can't make {}: {error}", folder.display()))?;
        let instance = Instance(folder);
        for (file, text) in tracer.on {
            fs::write(instance.0.join(file), text).map_err(|error| format!("{file}: {error}"))?;
        }
        Ok(instance)
    }

    /// The number of recorded events.
    fn events(&self) -> Outcome<u64> {
        let mut events = 0;
        for cpu in fs::read_dir(self.0.join("per_cpu"))? {
            let stats = fs::read_to_string(cpu?.path().join("stats"))?;
            let count = |name: &str| {
                stats.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            };
            events += count("entries:").unwrap_or(0) + count("overrun:").unwrap_or(0);
        }
        Ok(events)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let stop = [("current_tracer", "nop"), ("events/enable", "0")];
        let stopped = stop.iter().try_for_each(|(file, text)| fs::write(self.0.join(file), text));
        if let Err(error) = stopped.and_then(|()| fs::remove_dir(&self.0)) {
            eprintln!("can't remove {}: {error}", self.0.display());
        }
    }
}

/// Prints the table.
pub(super) fn run() -> Outcome {
    let folder = command::target().join("lab/sysbench");
    fs::create_dir_all(&folder)?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!(
        "\nLinux {}: the least processor time of {ROUNDS} runs by turns, and the range of their ratios.\n\n| sysbench | \
         tracer | without | with | overhead | events recorded | published |\n|---|---|---|---|---|---|---|",
        kernel.trim()
    );
    for ((name, arguments), published) in TESTS.into_iter().zip(PUBLISHED) {
        let sysbench = |last: &str| {
            let mut sysbench = Command::new("sysbench");
            sysbench.args(arguments.split(' ')).arg(last).current_dir(&folder);
            sysbench
        };
        let has_files = arguments.starts_with("fileio");
        if has_files {
            command::capture(&mut sysbench("prepare"))?;
        }
        println!("| {name} | Intel PT | {HARDWARE} | {HARDWARE} | {HARDWARE} | – | {} |", published[0]);
        for (tracer, published) in TRACERS.iter().zip([published[1], "–"]) {
            let cells = cells(tracer, || sysbench("run"))?;
            println!("| {name} | ftrace's {} | {cells} | {published} |", tracer.name);
        }
        if has_files {
            command::capture(&mut sysbench("cleanup"))?;
        }
    }
    Ok(())
}

/// Times without and with the tracer, overhead and events; or why the tracer does not start.
fn cells(tracer: &Tracer, run: impl Fn() -> Command) -> Outcome<String> {
    if let Err(refused) = Instance::start(tracer) {
        return Ok(format!("– | – | refused: {refused} | –"));
    }
    let mut seconds = [Vec::new(), Vec::new()];
    let mut events = 0;
    for _ in 0..ROUNDS {
        seconds[0].push(processor_time(&mut run())?.as_secs_f64());
        let instance = Instance::start(tracer)?;
        seconds[1].push(processor_time(&mut run())?.as_secs_f64());
        events = instance.events()?;
    }
    let ratio = seconds[0].iter().zip(&seconds[1]).map(|(off, on)| (on / off - 1.0) * 100.0);
    let (low, high) = ratio.fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(one), high.max(one)));
    let [off, on] = seconds.map(|all| all.into_iter().fold(f64::MAX, f64::min));
    Ok(format!(
        "{off:.2} s | {on:.2} s | {:.0} % ({low:.0} to {high:.0} %) | {:.2} M",
        (on / off - 1.0) * 100.0,
        events as f64 / 1e6
    ))
}

//! The cost of ftrace's function tracer on this machine's kernel, under sysbench (the paper's Table 2).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use bench::processor_time;
use workbench::{Outcome, command};

use super::overhead::HARDWARE;

const TRACEFS: &str = "/sys/kernel/tracing";
/// Runs of each test with and without the tracer.
const ROUNDS: usize = 5;

/// Name, and arguments for sysbench: a fixed amount of work.
const TESTS: [(&str, &str); 3] = [
    (
        "file",
        "fileio --file-total-size=64M --file-num=8 --file-test-mode=rndrw --file-fsync-freq=0 --time=0 --events=60000",
    ),
    ("memory", "memory --memory-block-size=1K --memory-total-size=8G --time=0 --events=4000000"),
    ("CPU", "cpu --cpu-max-prime=10000 --time=0 --events=2500"),
];

/// An instance of tracefs with the function tracer, which its drop removes.
struct FunctionTracer(PathBuf);

impl FunctionTracer {
    fn start() -> Outcome<FunctionTracer> {
        let folder = Path::new(TRACEFS).join("instances/hodo-lab");
        fs::create_dir(&folder).map_err(|error| format!("can't make {}: {error}", folder.display()))?;
        let tracer = FunctionTracer(folder);
        fs::write(tracer.0.join("current_tracer"), "function")?;
        Ok(tracer)
    }

    /// The number of traced calls.
    fn calls(&self) -> Outcome<u64> {
        let mut calls = 0;
        for cpu in fs::read_dir(self.0.join("per_cpu"))? {
            let stats = fs::read_to_string(cpu?.path().join("stats"))?;
            let count =
                |name: &str| stats.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            calls += count("entries:").unwrap_or(0) + count("overrun:").unwrap_or(0);
        }
        Ok(calls)
    }
}

impl Drop for FunctionTracer {
    fn drop(&mut self) {
        let stopped = fs::write(self.0.join("current_tracer"), "nop");
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
         without | with ftrace's function tracer | overhead | calls traced | Intel PT |\n|---|---|---|---|---|---|",
        kernel.trim()
    );
    for (name, arguments) in TESTS {
        let sysbench = |last: &str| {
            let mut sysbench = Command::new("sysbench");
            sysbench.args(arguments.split(' ')).arg(last).current_dir(&folder);
            sysbench
        };
        command::capture(&mut sysbench("prepare"))?;
        let mut seconds = [Vec::new(), Vec::new()];
        let mut calls = 0;
        for _ in 0..ROUNDS {
            seconds[0].push(processor_time(&mut sysbench("run"))?.as_secs_f64());
            let tracer = FunctionTracer::start()?;
            seconds[1].push(processor_time(&mut sysbench("run"))?.as_secs_f64());
            calls = tracer.calls()?;
        }
        command::capture(&mut sysbench("cleanup"))?;
        let ratio = seconds[0].iter().zip(&seconds[1]).map(|(off, on)| (on / off - 1.0) * 100.0);
        let (low, high) = ratio.fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(one), high.max(one)));
        let [off, on] = seconds.map(|all| all.into_iter().fold(f64::MAX, f64::min));
        println!(
            "| {name} | {off:.2} s | {on:.2} s | {:.0} % ({low:.0} to {high:.0} %) | {:.1} M | {HARDWARE} |",
            (on / off - 1.0) * 100.0,
            calls as f64 / 1e6
        );
    }
    Ok(())
}

//! `cargo bench-peers pt [NAME…]`: the speed of recording programs and of decoding their recordings, compared with
//! other decoders and with perf, on one thread and on two; and the memory.

use std::{fs, path::Path, process::Command};

use workbench::{
    Outcome, command,
    release::shipped,
    setup::{self, Need},
    workloads::compile,
};

use super::{
    Tap,
    decoders::{self, Harnesses, ROUNDS},
    in_turn, median, millis, peak_memory,
    plot::{self, Axes, Line},
    took, two_threads,
    workloads::{CONFIGURATIONS, DEFAULT, GIGABYTE, Size, WORKLOADS, Workload},
};

/// The number whose recursive Fibonacci takes more than a billion instructions.
const FIBONACCI: &str = "38";

/// The most private memory on two threads, in MB.
const MEMORY: f64 = 300.0;

/// Measures all workloads, or those with these names.
pub(super) fn run(names: &[String]) -> Outcome {
    let chosen = |workload: &&Workload| names.is_empty() || names.iter().any(|name| name == workload.name);
    let workloads: Vec<&Workload> = WORKLOADS.iter().filter(chosen).collect();
    if workloads.is_empty() || names.iter().any(|name| WORKLOADS.iter().all(|known| known.name != name)) {
        let known = WORKLOADS.map(|workload| workload.name).join(" ");
        return Err(format!("usage: cargo bench-peers pt [NAME…], of {known}").into());
    }
    setup::ensure(Need::Bench)?;
    // The judge runs this program to inspect a recording.
    command::build_hodo()?;
    let folder = command::target().join("bench");
    let harnesses = Harnesses::build(&folder)?;
    if names.is_empty() {
        recording(&folder)?;
    }
    for (index, configuration) in CONFIGURATIONS.iter().enumerate() {
        let mut measured = Vec::new();
        let mut bytes = 0;
        for workload in &workloads {
            let recording = workload.record(configuration, Size::Full, &folder)?;
            bytes += fs::metadata(&recording)?.len();
            measured.push((workload.name.to_owned(), harnesses.measure(&recording, index == DEFAULT)?));
        }
        println!(
            "\n{}: {}; {:.0} MB, processor time of one thread, medians of {ROUNDS}\n",
            configuration.name,
            configuration.what,
            bytes as f64 / 1e6
        );
        decoders::print(&measured);
    }
    whole_programs(&workloads, &folder)?;
    threads(&workloads, &folder)?;
    memory(&folder)?;
    plot(&folder)
}

fn recording(folder: &Path) -> Outcome {
    let program = compile("fib.c", &[], folder)?;
    let recording = folder.join("fib.data");
    let [native, recorded] = in_turn(
        ROUNDS,
        [&|| Command::new(&program).tap(|command| command.arg(FIBONACCI)), &|| {
            Command::new(shipped("hodo")).tap(|command| {
                command.args(["record", "--engine", "emulate", "-q", "-o"]).arg(&recording);
                command.arg("--").arg(&program).arg(FIBONACCI)
            })
        }],
    )?;
    let instructions = judge::instructions(&recording)?;
    println!("recording: fib {FIBONACCI}, {instructions} instructions, medians of {ROUNDS}");
    println!("  native   {:8.0} ms", millis(native));
    println!(
        "  recorded {:8.0} ms = {:.1}× native, {:.0} million instructions a second",
        millis(recorded),
        recorded.as_secs_f64() / native.as_secs_f64(),
        instructions as f64 / recorded.as_secs_f64() / 1e6,
    );
    Ok(())
}

/// Whole programs as people start them, in CPU time of all their threads, on short recordings, as perf is slow.
fn whole_programs(workloads: &[&Workload], folder: &Path) -> Outcome {
    let pairs: [(&[&str], &[&str], f64); 2] = [
        (&["report", "functions", "-q"], &["report", "--itrace=i0ns", "--stdio", "-i"], 50.0),
        (&["script", "--insns", "--fields", "ip"], &["script", "--itrace=i0ns", "-F", "ip", "-i"], 20.0),
    ];
    println!("\nwhole programs, processor time, medians of {ROUNDS}\n");
    println!(
        "| recording | MB | hodo | s | perf | s | times as fast | goal |\n|---|---|---|---|---|---|---|---|"
    );
    for workload in workloads {
        let recording = workload.record(&CONFIGURATIONS[DEFAULT], Size::Short, folder)?;
        let megabytes = fs::metadata(&recording)?.len() as f64 / 1e6;
        for (ours, theirs, goal) in pairs {
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (times, (program, arguments)) in
                    times.iter_mut().zip([(shipped("hodo"), ours), ("perf".into(), theirs)])
                {
                    let took = took(Command::new(program).args(arguments).arg(&recording))?;
                    times.push(took.processor.as_secs_f64());
                }
            }
            let [our, their] = times.map(median);
            let theirs = theirs[..theirs.len() - 1].join(" ");
            println!(
                "| {} | {megabytes:.1} | {} | {our:.3} | {theirs} | {their:.1} | {:.0} | {goal} |",
                workload.name,
                ours.join(" "),
                their / our
            );
        }
    }
    Ok(())
}

/// Both passes over a recording, on one thread and on two.
fn threads(workloads: &[&Workload], folder: &Path) -> Outcome {
    println!("\ntwice in one process");
    for workload in workloads.iter().copied().chain([&GIGABYTE]) {
        let recording = workload.record(&CONFIGURATIONS[DEFAULT], Size::Full, folder)?;
        let megabytes = fs::metadata(&recording)?.len() / 1_000_000;
        for what in ["functions", "calls"] {
            println!("  {what} of {}, {megabytes} MB", workload.name);
            two_threads(ROUNDS, &|threads| on_threads(what, &recording, threads))?;
        }
    }
    Ok(())
}

fn memory(folder: &Path) -> Outcome {
    let recording = GIGABYTE.record(&CONFIGURATIONS[DEFAULT], Size::Full, folder)?;
    let bytes = fs::metadata(&recording)?.len();
    println!("\nmemory: {} MB of trace by {}", bytes / 1_000_000, GIGABYTE.name);
    for arguments in [&["report", "functions", "-q"][..], &["script", "--calls", "-q"]] {
        let mut command = Command::new(shipped("hodo"));
        let (peak, time) = peak_memory(command.args(arguments).args(["-j", "2"]).arg(&recording))?;
        println!(
            "  hodo {}: RssAnon at most {:.0} MB on two threads (goal {MEMORY}), {:.1} s",
            arguments.join(" "),
            peak as f64 / 1e3,
            time.as_secs_f64()
        );
    }
    Ok(())
}

fn on_threads(what: &str, recording: &Path, threads: usize) -> Command {
    Command::new(shipped("hodo-speed"))
        .tap(|command| command.arg(what).arg(recording).args(["--threads", &threads.to_string()]))
}

/// Plots megabytes per second by number of threads, up to all cores.
fn plot(folder: &Path) -> Outcome {
    let recording = GIGABYTE.record(&CONFIGURATIONS[DEFAULT], Size::Full, folder)?;
    // Both passes.
    let megabytes = fs::metadata(&recording)?.len() as f64 / 1e6 * 2.0;
    let mut lines = Vec::new();
    for what in ["functions", "calls"] {
        let mut points = Vec::new();
        for threads in 1..=std::thread::available_parallelism()?.get() {
            let [time] = in_turn(ROUNDS, [&|| on_threads(what, &recording, threads)])?;
            points.push((threads as f64, megabytes / time.as_secs_f64()));
        }
        lines.push(Line { name: format!("{what} of {}", GIGABYTE.name), points });
    }
    let path = folder.join("threads.svg");
    plot::lines(&path, &Axes { across: "threads", up: "MB of trace a second" }, &lines)?;
    println!("\n{} is drawn", path.display());
    Ok(())
}

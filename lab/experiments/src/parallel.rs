//! `cargo run -p lab -- parallel [TRACE]`: the speed-up of analyses with threads, by partition of the trace and by
//! chunk size; and the decoding speed from which they wait for storage.
//!
//! It repeats on this machine what Reumont-Locke, Ezzati-Jivan and Dagenais measured in "Efficient Methods for Trace
//! Analysis Parallelization" (International Journal of Parallel Programming 47, 2019). Prints Markdown, and writes two
//! plots to the build folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use bench::plot::{self, Axes, Line};
use serde_json::Value;
use workbench::{
    Outcome, command,
    release::{self, shipped},
    setup::{self, Need},
};

use super::pages::{self, Storage};

/// Runs of each measurement; an odd number, so that there is a median.
const ROUNDS: usize = 3;
/// The default trace.
const ARCHIVE: &str = "../shared/data/ctf/lttng2.13-kernel6.1-4cpu-18M.tar.zst";
/// The analyses of the paper.
const ANALYSES: [&str; 3] = ["count", "cpu", "io"];
/// Chunk sizes.
const CHUNKS: [&str; 5] = ["1M", "4M", "16M", "64M", "256M"];
/// Simulated decoding speeds, as multiples of babeltrace2's.
const FASTER: [u32; 5] = [1, 2, 4, 8, 16];
/// The paper's result: threads, speed-up and efficiency.
const PAPER: &str = "on 32 threads, 18 times the speed of one: an efficiency of 56 % (the paper's abstract)";

/// Measures everything.
pub(super) fn run(arguments: &[String]) -> Outcome {
    let trace = match arguments {
        [] => command::root().join(ARCHIVE),
        [trace] => PathBuf::from(trace),
        _ => return Err("usage: cargo run -p lab -- parallel [TRACE]".into()),
    };
    setup::ensure(Need::Judge)?;
    release::build()?;
    let trace = judge::unpacked(&trace)?;
    let folder = command::target().join("lab");
    fs::create_dir_all(&folder)?;
    let cores = thread::available_parallelism()?.get();
    let threads: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&threads| threads <= cores).collect();
    println!("{cores} threads at most, medians of {ROUNDS}, the trace in memory unless said.");
    let by_threads = by_threads(&trace, &threads)?;
    plot::lines(
        &folder.join("speed-up.svg"),
        &Axes { across: "threads", up: "times as fast as one thread" },
        &by_threads,
    )?;
    by_partition(&trace, cores)?;
    by_chunk(&trace, cores)?;
    let decoding = storage(&trace, &threads)?;
    plot::lines(
        &folder.join("storage.svg"),
        &Axes { across: "times as fast as babeltrace2 decodes", up: "MB/s" },
        &decoding,
    )?;
    println!("\nPlots: {0}/speed-up.svg, {0}/storage.svg", folder.display());
    Ok(())
}

/// The median time of an analysis in seconds.
fn seconds(trace: &Path, analysis: &str, threads: usize, more: &[&str]) -> Outcome<f64> {
    let mut report = Command::new(shipped("hodo"));
    report.args(["report", analysis, "-q", "-j", &threads.to_string()]).args(more).arg(trace);
    median(ROUNDS, || command::quietly(report.stdout(Stdio::null())))
}

fn median(rounds: usize, mut run: impl FnMut() -> Outcome) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begin = Instant::now();
        run()?;
        times.push(begin.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[rounds / 2])
}

fn by_threads(trace: &Path, threads: &[usize]) -> Outcome<Vec<Line>> {
    println!("\n## By threads\n\n| analysis | threads | s | speed-up | efficiency |\n|---|---|---|---|---|");
    let mut lines = Vec::new();
    let mut projections = Vec::new();
    for analysis in ANALYSES {
        let mut points = Vec::new();
        let mut one = 0.0;
        for &count in threads {
            let time = seconds(trace, analysis, count, &[])?;
            if count == 1 {
                one = time;
            }
            let (speed_up, efficiency) = (one / time, one / time / count as f64);
            println!("| {analysis} | {count} | {time:.3} | {speed_up:.2} | {:.0} % |", 100.0 * efficiency);
            points.push((count as f64, speed_up));
        }
        projections
            .extend(points.last().filter(|(count, _)| *count > 1.0).map(|&last| projection(analysis, last)));
        lines.push(Line { name: analysis.to_owned(), points });
    }
    println!("\nThe paper: {PAPER}.\n");
    projections.iter().for_each(|projection| println!("{projection}"));
    Ok(lines)
}

/// Extrapolates a measured speed-up by Amdahl's law.
fn projection(analysis: &str, (threads, speed_up): (f64, f64)) -> String {
    let serial = ((threads / speed_up - 1.0) / (threads - 1.0)).clamp(0.0, 1.0);
    let on = |threads: f64| 1.0 / (serial + (1.0 - serial) / threads);
    format!(
        "Projection, not measured: {analysis} has a serial part of {:.1} % by what {threads} threads gave, which would \
         make it {:.1} times as fast on 16 threads and {:.1} on 32.",
        100.0 * serial,
        on(16.0),
        on(32.0)
    )
}

/// Compares balanced pieces of all streams, equal times, and whole streams. Only `count` supports the last: the others
/// need the events of all streams in order.
fn by_partition(trace: &Path, threads: usize) -> Outcome {
    println!("\n## By partition, {threads} threads\n\n| analysis | partition | s |\n|---|---|---|");
    let pieces = pages::bytes(&pages::files(trace)?).div_ceil(16 << 20);
    let equal = format!("{}ns", (span(trace)? / pieces).max(1));
    for analysis in ANALYSES {
        for (partition, chunk) in [("balanced", "16M"), ("time", &equal), ("stream", "stream")] {
            if partition != "stream" || analysis == "count" {
                let time = seconds(trace, analysis, threads, &["--chunk-size", chunk])?;
                println!("| {analysis} | {partition} | {time:.3} |");
            }
        }
    }
    Ok(())
}

/// Nanoseconds from the first event to the last.
fn span(trace: &Path) -> Outcome<u64> {
    let mut count = Command::new(shipped("hodo"));
    let table = command::capture(count.args(["report", "count", "-q", "--format", "json"]).arg(trace))?;
    let table: Value = serde_json::from_str(&table)?;
    let time = |name: &str| table["summary"][name].as_u64().ok_or("a trace with times expected");
    Ok(time("end_ns")? - time("begin_ns")?)
}

fn by_chunk(trace: &Path, threads: usize) -> Outcome {
    println!("\n## By size of chunks, {threads} threads\n\n| analysis | chunk | s |\n|---|---|---|");
    for analysis in ANALYSES {
        for chunk in CHUNKS {
            let time = seconds(trace, analysis, threads, &["--chunk-size", chunk])?;
            println!("| {analysis} | {chunk} | {time:.3} |");
        }
    }
    Ok(())
}

/// The paper's listing 1: a fixed amount of work per page, in memory and on storage.
fn storage(trace: &Path, threads: &[usize]) -> Outcome<Vec<Line>> {
    let files = pages::files(trace)?;
    let megabytes = pages::bytes(&files) as f64 / 1e6;
    let mut babeltrace = Command::new("babeltrace2");
    babeltrace.arg(trace).args(["-o", "dummy"]);
    let theirs = median(1, || command::quietly(&mut babeltrace))?;
    println!(
        "\n## Work for each page, and storage\n\nbabeltrace2 decodes {:.0} MB/s; work is simulated at multiples \
         of that speed. {megabytes:.0} MB.\n\n| decoding | storage | threads | MB/s | efficiency |\n|---|---|---|---|---|",
        megabytes / theirs
    );
    let mut speeds: Vec<(String, f64)> = FASTER.map(|times| (format!("{times}×"), times.into())).to_vec();
    for analysis in ANALYSES {
        let times = theirs / seconds(trace, analysis, 1, &[])?;
        speeds.push((format!("{analysis} of ours: {times:.0}×"), times));
    }
    speeds.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut lines = Vec::new();
    for storage in [Storage::Memory, Storage::Cold] {
        for &count in threads {
            let mut points = Vec::new();
            for (name, times) in &speeds {
                let work = theirs / times / megabytes * 1e6;
                let measured = |threads| {
                    median(ROUNDS, || pages::simulate(&files, storage, threads, work))
                        .map(|time| megabytes / time)
                };
                let (one, all) = (measured(1)?, measured(count)?);
                let efficiency = 100.0 * all / one / count as f64;
                println!("| {name} | {} | {count} | {all:.0} | {efficiency:.0} % |", storage.name());
                points.push((*times, all));
            }
            lines.push(Line { name: format!("{}, {count} threads", storage.name()), points });
        }
    }
    Ok(lines)
}

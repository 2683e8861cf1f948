//! `cargo xtask demo`: records two small programs and explains the result. The last lines are the conclusions, computed
//! from what `hodo` prints about this run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    Outcome,
    command::{self, hodo},
    demo_board,
    setup::{self, Need},
    workloads,
};

/// Packets that time each call to the nanosecond; the default is accurate to the microsecond.
const EXACT_TIME: &str = "intel_pt/cyc/u";

/// Runs the demo.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    match arguments {
        [] => {}
        [board] if board == "board" => return demo_board::run(),
        _ => return Err("usage: cargo xtask demo [board]".into()),
    }
    setup::ensure(Need::Demo)?;
    command::build_hodo()?;
    let folder = command::target().join("demo");
    fs::create_dir_all(&folder)?;
    let slow = slow_path(&folder)?;
    let uneven = uneven_threads(&folder)?;
    println!("\n━━ What the recordings say\n\n{slow}\n\n{uneven}");
    Ok(())
}

/// A rare slow path that an average hides.
fn slow_path(folder: &Path) -> Outcome<String> {
    println!("\n━━ 1. A service answers requests. Is there one that waits too long?\n");
    let recording = record(workloads::compile("slowpath.c", &[], folder)?, &["-e", EXACT_TIME])?;
    show(&["report", "functions", "--limit", "6"], &recording)?;

    let calls = calls(&recording)?;
    let mut requests: Vec<&Call> = calls.iter().filter(|call| call.function == "handle_request").collect();
    requests.sort_by_key(|call| call.begin);
    let mut costs: Vec<u64> = requests.iter().map(|call| call.instructions).collect();
    costs.sort();
    let median = *costs.get(costs.len() / 2).ok_or("no request in the recording")?;
    let longest = (0..requests.len()).max_by_key(|&at| requests[at].instructions).unwrap_or(0);
    let slowest = requests[longest];
    let path = heaviest_path(&calls, slowest);
    let culprit = path.last().copied().unwrap_or(slowest);

    println!("\nThe profile is of the average. These are the calls around the slowest of the requests:\n");
    let window = format!("{},{}", seconds(culprit.begin.saturating_sub(1200)), seconds(culprit.begin + 1000));
    show(&["script", "--calls", "--limit", "28", "--time", &window], &recording)?;
    println!("\nAnd this is where that request's time went:\n");
    let window = format!("{},{}", seconds(slowest.begin), seconds(slowest.end));
    show(&["report", "tree", "--limit", "4", "--time", &window], &recording)?;

    let chain: Vec<String> =
        path.iter().rev().skip(1).map(|call| format!(", called from {}()", call.function)).collect();
    let profile = json(&["report", "functions"], &recording)?;
    Ok(format!(
        "slowpath: request {} of {} took {:.0}× the median: {} instructions instead of {};\n          \
         {:.0} % of them in {}(){}. Of the whole run it is {:.0} %.",
        longest + 1,
        requests.len(),
        slowest.instructions as f64 / median as f64,
        grouped(slowest.instructions),
        grouped(median),
        100.0 * culprit.instructions as f64 / slowest.instructions as f64,
        culprit.function,
        chain.concat(),
        100.0 * total(&profile, &culprit.function)? as f64 / instructions(&profile)? as f64,
    ))
}

/// A program that is as slow as its last thread.
fn uneven_threads(folder: &Path) -> Outcome<String> {
    println!("\n━━ 2. Four threads share the work. Does each have its share?\n");
    let recording = record(workloads::compile("threads.c", &["-pthread"], folder)?, &[])?;
    show(&["report", "functions", "--limit", "5"], &recording)?;
    let info = json(&["info"], &recording)?;
    let threads = info["truth"].as_array().ok_or("`hodo info` lists no threads")?;
    let mut workers = Vec::new();
    for tid in threads
        .iter()
        .filter(|thread| thread["tid"] != thread["pid"])
        .filter_map(|thread| thread["tid"].as_u64())
    {
        workers.push((
            tid,
            instructions(&json(&["report", "functions", "--tid", &tid.to_string()], &recording)?)?,
        ));
    }
    let sum: u64 = workers.iter().map(|(_, count)| count).sum();
    let (longest, most) =
        workers.iter().copied().max_by_key(|(_, count)| *count).ok_or("no threads in the recording")?;
    println!("\nInstructions of each thread:\n");
    for (tid, count) in &workers {
        let bar = "█".repeat((40 * count / most.max(1)) as usize);
        println!("  {tid:8} {:>12} {:5.1} %  {bar}", grouped(*count), 100.0 * *count as f64 / sum as f64);
    }
    Ok(format!(
        "threads:  one of {} threads ({longest}) executes {:.0} % of their instructions, and the others wait for it;\n          \
         with equal shares the longest would be {:.2}× shorter.",
        workers.len(),
        100.0 * most as f64 / sum as f64,
        most as f64 * workers.len() as f64 / sum as f64,
    ))
}

/// Records a program into its folder, and prints the command.
fn record(program: PathBuf, options: &[&str]) -> Outcome<PathBuf> {
    let recording = program.with_extension("perf.data");
    println!("$ hodo record {}-o {} -- {}\n", join(options), short(&recording), short(&program));
    let mut command = Command::new(hodo());
    command.arg("record").args(options).arg("-o").arg(&recording).arg("--").arg(&program);
    command::quietly(&mut command)?;
    println!();
    Ok(recording)
}

/// Prints a command and its output, as in a terminal.
fn show(arguments: &[&str], recording: &Path) -> Outcome {
    println!("$ hodo {}{}\n", join(arguments), short(recording));
    command::quietly(Command::new(hodo()).args(arguments).arg(recording))
}

/// The words, with a space after each.
fn join(words: &[&str]) -> String {
    words.iter().map(|word| format!("{word} ")).collect()
}

/// A path as typed in the root of the repository.
fn short(path: &Path) -> String {
    path.strip_prefix(command::root()).unwrap_or(path).display().to_string()
}

/// The output of `hodo` for the recording, as JSON.
fn json(arguments: &[&str], recording: &Path) -> Outcome<Value> {
    let mut command = Command::new(hodo());
    command.args(arguments).args(["-q", "--format", "json"]).arg(recording);
    Ok(serde_json::from_str(&command::capture(&mut command)?)?)
}

fn instructions(table: &Value) -> Outcome<u64> {
    Ok(table["summary"]["instructions"].as_u64().ok_or("a table without a number of instructions")?)
}

/// A function's instructions including its callees, from the table of functions.
fn total(table: &Value, function: &str) -> Outcome<u64> {
    let columns = table["columns"].as_array().ok_or("a table without columns")?;
    let at = |name: &str| columns.iter().position(|column| column["name"] == name);
    let (name, total) =
        at("function").zip(at("total_instructions")).ok_or("a table without function and total")?;
    let rows = table["rows"].as_array().ok_or("a table without rows")?;
    Ok(rows.iter().filter(|row| row[name] == function).filter_map(|row| row[total].as_u64()).sum())
}

/// An execution of a function; times in nanoseconds.
struct Call {
    function: String,
    begin: u64,
    end: u64,
    depth: u64,
    /// Instructions including callees.
    instructions: u64,
}

fn calls(recording: &Path) -> Outcome<Vec<Call>> {
    let mut command = Command::new(hodo());
    command.args(["script", "--calls", "--format", "jsonl"]).arg(recording);
    let mut calls = Vec::new();
    for line in command::capture(&mut command)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let number = |name: &str| line[name].as_u64();
        let call = || {
            Some(Call {
                function: line["function"].as_str()?.to_owned(),
                begin: number("time_ns")?,
                end: number("end_ns")?,
                depth: number("depth")?,
                instructions: number("instructions")?,
            })
        };
        calls.extend(call());
    }
    Ok(calls)
}

/// The path from a call down through callees that execute most of their caller's instructions.
fn heaviest_path<'a>(calls: &'a [Call], top: &'a Call) -> Vec<&'a Call> {
    let mut path: Vec<&Call> = Vec::new();
    let mut at = top;
    loop {
        let inside =
            calls.iter().filter(|c| c.depth == at.depth + 1 && c.begin >= at.begin && c.end <= at.end);
        match inside.max_by_key(|call| call.instructions) {
            Some(heaviest) if heaviest.instructions * 2 > at.instructions => at = heaviest,
            _ => return path,
        }
        path.push(at);
    }
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

/// A number with separated thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = (digits.len() - 1) % 3 + 1;
    let mut text = digits[..first].to_owned();
    for at in (first..digits.len()).step_by(3) {
        text.push(',');
        text.push_str(&digits[at..at + 3]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 12345678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }

    #[test]
    fn the_heaviest_path_ends_where_no_callee_has_most() {
        let call = |function: &str, begin, end, depth| Call {
            function: function.to_owned(),
            begin,
            end,
            depth,
            instructions: end - begin,
        };
        let calls = [
            call("request", 0, 100, 1),
            call("insert", 10, 95, 2),
            call("answer", 95, 99, 2),
            call("rehash", 12, 92, 3),
            call("place", 20, 40, 4),
            call("place", 50, 70, 4),
            call("rehash", 200, 900, 3),
        ];
        let path: Vec<&str> = heaviest_path(&calls, &calls[0]).iter().map(|call| &*call.function).collect();
        assert_eq!(path, ["insert", "rehash"]);
    }
}

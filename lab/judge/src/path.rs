//! `cargo judge path`: threads that wait for a known cause, recorded by ftrace on this machine's kernel. `hodo path` must
//! name the cause of each wait that other programs did not cause; its pieces must follow each other and add up to the span;
//! and by the switches alone, the thread that a piece names as cause must have run all the time.

use std::{
    collections::HashMap,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{Outcome, command, workloads};

/// What a scenario must show.
struct Scenario {
    /// The argument of `lab/workloads/waits.c`.
    name: &'static str,
    what: &'static str,
    /// How the subject waits; empty if for a CPU.
    wait: &'static str,
    cause: &'static str,
    /// The thread that the path follows during the wait.
    comm: &'static str,
    /// What the detail begins with.
    detail: &'static str,
    /// The least share of the span, but for the time in which other programs had the CPU.
    share: f64,
}

const fn scenario(
    (name, what): (&'static str, &'static str),
    (wait, cause): (&'static str, &'static str),
    (comm, detail): (&'static str, &'static str),
    share: f64,
) -> Scenario {
    Scenario { name, what, wait, cause, comm, detail, share }
}

const SCENARIOS: &[Scenario] = &[
    // Its name and what it is; the wait and its cause; the thread and the detail; the share.
    scenario(("cpu", "two threads on one CPU"), ("", "cpu"), ("subject", "rival"), 0.3),
    scenario(("mutex", "a chain of three threads"), ("lock", "running"), ("first", ""), 0.6),
    scenario(("disk", "reads past the page cache"), ("data", "block"), ("", ""), 0.3),
    scenario(("fault", "page faults of a mapped file"), ("page fault", "block"), ("", ""), 0.3),
    scenario(("pipe", "another process answers"), ("data", "running"), ("partner", ""), 0.6),
    scenario(("timer", "sleeps"), ("sleep", "timer"), ("subject", ""), 0.8),
    scenario(("inversion", "the lock's holder is preempted"), ("lock", "cpu"), ("low", "middle"), 0.6),
    scenario(("network", "a server answers"), ("data", "running"), ("server", ""), 0.6),
];

/// The names of the program's threads. Threads with other names, which may have the CPU, are of other programs.
const OWN_THREADS: [&str; 9] =
    ["subject", "rival", "first", "second", "partner", "low", "middle", "server", "waits"];

/// The events that a path is made of.
const EVENTS: &str = "sched:sched_switch sched:sched_waking sched:sched_wakeup sched:sched_wakeup_new \
    sched:sched_migrate_task sched:sched_process_fork sched:sched_process_exec sched:sched_process_exit \
    irq timer:hrtimer_expire_entry timer:hrtimer_expire_exit timer:timer_expire_entry \
    timer:timer_expire_exit block:block_rq_issue block:block_rq_complete net:net_dev_queue \
    net:netif_receive_skb raw_syscalls exceptions:page_fault_user";

/// Judges all scenarios, or those named.
pub(super) fn run(names: &[String]) -> Outcome {
    if let Some(name) = names.iter().find(|name| SCENARIOS.iter().all(|known| known.name != **name)) {
        return Err(format!("no scenario `{name}`").into());
    }
    command::build_hodo()?;
    let folder = command::target().join("judge/path");
    std::fs::create_dir_all(&folder)?;
    let program = workloads::compile("waits.c", &["-O1", "-pthread"], &folder)?;
    println!("| scenario | | span | without other programs | pieces | unknown | named cause | share |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    for scenario in
        SCENARIOS.iter().filter(|known| names.is_empty() || names.iter().any(|name| name == known.name))
    {
        let trace = record(&program, scenario.name, &folder)?;
        if let Err(why) = judge(scenario, &trace) {
            wrong.push(format!("{}: {why} ({})", scenario.name, trace.display()));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

fn record(program: &Path, cause: &str, folder: &Path) -> Outcome<PathBuf> {
    let trace = folder.join(format!("{cause}.dat"));
    let mut record = Command::new(command::hodo());
    record.args(["record", "--quiet", "--engine", "ftrace", "--buffer-size", "32M", "-o"]).arg(&trace);
    EVENTS.split(' ').for_each(|event| _ = record.args(["-e", event]));
    command::quietly(record.arg("--").arg(program).arg(cause).arg(folder))?;
    Ok(trace)
}

/// A view of the subject's path, as JSON; rows by the names of columns.
fn view(name: &str, trace: &Path) -> Outcome<Value> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["path", "--thread", "subject", "--by", name, "--quiet", "--format", "json"]).arg(trace);
    let mut table: Value = serde_json::from_str(&command::capture(&mut hodo)?)?;
    let columns = table["columns"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        let cells = row.as_array().cloned().unwrap_or_default();
        *row =
            names.iter().map(|name| (*name).to_owned()).zip(cells).collect::<serde_json::Map<_, _>>().into();
    }
    Ok(table)
}

fn rows(table: &Value) -> &[Value] {
    table["rows"].as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn judge(scenario: &Scenario, trace: &Path) -> Outcome {
    let causes = view("cause", trace)?;
    let pieces = view("piece", trace)?;
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let is_named = |row: &&Value| {
        text(row, "wait") == scenario.wait
            && text(row, "cause") == scenario.cause
            && (scenario.comm.is_empty() || text(row, "comm") == scenario.comm)
            && text(row, "detail").starts_with(scenario.detail)
    };
    let is_foreign = |row: &&Value| {
        let detail = text(row, "detail");
        text(row, "cause") == "cpu"
            && detail != "idle"
            && OWN_THREADS.iter().all(|own| !detail.starts_with(own))
    };
    let sum = |is_counted: &dyn Fn(&&Value) -> bool| -> u64 {
        rows(&causes).iter().filter(is_counted).map(|row| number(&row["total_ns"])).sum()
    };
    let summary = &causes["summary"];
    let span = number(&summary["span_ns"]).saturating_sub(sum(&is_foreign));
    let share = sum(&is_named) as f64 / span.max(1) as f64;
    println!(
        "| {} | {} | {:.3} ms | {:.3} ms | {} | {:.3} ms | {} {} {} {} | {:.1} % |",
        scenario.name,
        scenario.what,
        number(&summary["span_ns"]) as f64 / 1e6,
        span as f64 / 1e6,
        number(&summary["pieces"]),
        number(&summary["unknown_ns"]) as f64 / 1e6,
        scenario.wait,
        scenario.cause,
        scenario.comm,
        scenario.detail,
        share * 100.0,
    );
    pieces_fill_span(&pieces)?;
    causes_ran(rows(&pieces), trace)?;
    if share < scenario.share {
        return Err(format!("the cause has {:.1} % of the span", share * 100.0).into());
    }
    let through = |name: &str| rows(&pieces).iter().any(|row| text(row, "through").contains(name));
    if scenario.name == "mutex" && !through("second") {
        return Err("no piece is reached through `second`".into());
    }
    let is_network = |row: &Value| text(row, "cause") == "network";
    if scenario.name == "network" && !rows(&causes).iter().any(is_network) {
        return Err("no packet is on the path".into());
    }
    Ok(())
}

/// Pieces follow each other without gaps from the begin of the span to its end.
fn pieces_fill_span(table: &Value) -> Outcome {
    let summary = &table["summary"];
    let mut now = number(&summary["path_begin_ns"]);
    let end = now + number(&summary["span_ns"]);
    for row in rows(table) {
        let (begin, length) = (number(&row["begin_ns"]), number(&row["duration_ns"]));
        if begin != now || length == 0 {
            return Err(
                format!("a piece begins at {begin} ns and lasts {length} ns, where {now} ns is due").into()
            );
        }
        now += length;
    }
    if now == end { Ok(()) } else { Err(format!("pieces end at {now} ns, the span at {end} ns").into()) }
}

/// The thread that the last switch of a CPU names as next.
struct Running {
    tid: u64,
    since: u64,
}

/// The times at which each thread ran, by the switches of the trace.
fn runs(trace: &Path) -> Outcome<HashMap<u64, Vec<Range<u64>>>> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--events", "--event", "sched_switch", "--quiet", "--format", "jsonl"]).arg(trace);
    let mut runs: HashMap<u64, Vec<Range<u64>>> = HashMap::new();
    let mut running_by_cpu: HashMap<u64, Running> = HashMap::new();
    let mut wrong = None;
    command::each_line(hodo, |line| {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            wrong = Some(String::from_utf8_lossy(line).into_owned());
            return;
        };
        let (time, cpu) = (number(&event["ts"]), number(&event["context"]["cpu_id"]));
        let next = Running { tid: number(&event["fields"]["next_pid"]), since: time };
        let begin = running_by_cpu.insert(cpu, next).map_or(0, |running| running.since);
        runs.entry(number(&event["fields"]["prev_pid"])).or_default().push(begin..time);
    })?;
    for Running { tid, since } in running_by_cpu.into_values() {
        runs.entry(tid).or_default().push(since..u64::MAX);
    }
    match wrong {
        None => Ok(runs),
        Some(line) => Err(format!("no JSON: {line}").into()),
    }
}

/// The thread that a piece names as cause ran from its begin to its end.
fn causes_ran(pieces: &[Value], trace: &Path) -> Outcome {
    let runs = runs(trace)?;
    for row in pieces {
        let detail = row["detail"].as_str().unwrap_or_default();
        let blamed = match row["cause"].as_str() {
            Some("running") => Some(number(&row["tid"])),
            // `name (tid)`
            Some("cpu") => {
                detail.rsplit_once('(').and_then(|(_, tid)| tid.trim_end_matches(')').parse().ok())
            }
            _ => None,
        };
        let (begin, length) = (number(&row["begin_ns"]), number(&row["duration_ns"]));
        let ran = |tid: u64| {
            runs.get(&tid)
                .is_some_and(|runs| runs.iter().any(|run| run.start <= begin && begin + length <= run.end))
        };
        if let Some(tid) = blamed.filter(|&tid| !ran(tid)) {
            return Err(format!("thread {tid} did not run for {length} ns from {begin} ns").into());
        }
    }
    Ok(())
}

//! `cargo judge ctf [FOLDER | ARCHIVE]…`: compares every event that we read from traces with babeltrace2.
//!
//! ```text
//! folder ─┬─► hodo script --events --format jsonl ─┐ event by event: time, stream, name, all fields and
//!         └─► babeltrace2's Python module ─────────┴─► contexts; and what was lost, stream by stream
//! ```
//!
//! Known differences are reported separately: another order of events with the same time, empty texts (babeltrace2
//! before 2.0.5 shows what was there before), counters of lost events that went back (it takes those for nearly 2^64
//! lost events), streams whose time goes back (it stops there). Large traces are judged in two parts of their time, in
//! parallel.
//!
//! Debian's babeltrace2 does not read CTF 2. There it reads our export to CTF 1.8, the counts are compared with those
//! of a newer version, which are stored with the archives, and a program that was recorded as CTF 1.8 and as CTF 2 must
//! have the same events, thread by thread.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, fs,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use crate::{
    Outcome,
    command::{self, root},
    setup::{self, Need},
};

/// The folder of trace archives, outside the repository.
const ARCHIVES: &str = "../shared/data/ctf";
const ARCHIVE: &str = ".tar.zst";
/// The folder of small traces in the repository.
const FIXTURES: &str = "fixtures/ctf";
/// Differences that are shown per trace.
const SHOWN: usize = 3;
/// Larger traces are judged in parts, as babeltrace2's Python module is slow.
const LARGE: u64 = 4_000_000;
/// Recordings of the same program as CTF 1.8 and as CTF 2; the program numbers its threads.
const TWINS: [&str; 2] = ["ust-2.16-ctf1.8", "ust-2.16-ctf2"];

/// Judges the named traces; by default, all archives and all fixtures.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let mut failed = Vec::new();
    let mut twins = BTreeMap::new();
    for path in paths(names)? {
        let folder = unpacked(&path)?;
        let name = folder
            .file_name()
            .map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned());
        let verdict = if is_ctf_2(&folder)? {
            let counts = counted(&path, &folder)?;
            println!("{name}: {counts}");
            failed.extend(counts.differs().then(|| name.clone()));
            let mut verdict = judge(&folder, &as_ctf_18(&folder, &name)?)?;
            verdict.only = Some("CTF 2, and babeltrace2 reads it as CTF 1.8 from us:");
            verdict
        } else {
            judge(&folder, &folder)?
        };
        println!("{name}: {verdict}");
        if verdict.differs() {
            failed.push(name.clone());
        }
        twins.insert(name, folder);
    }
    if let [Some(first), Some(second)] = TWINS.map(|name| twins.get(name)) {
        let verdict = compare_threads(&Events::by_thread(first)?, &Events::by_thread(second)?);
        println!("{}: {verdict}", TWINS.join(" and "));
        if verdict.differs() {
            failed.push(TWINS.join(" and "));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not equal: {}", failed.join(", ")).into()) }
}

fn paths(names: &[String]) -> Outcome<Vec<PathBuf>> {
    if !names.is_empty() {
        return Ok(names.iter().map(PathBuf::from).collect());
    }
    let folder = root().join(ARCHIVES);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder)
        .map_err(|error| format!("{}: {error}; name traces instead", folder.display()))?
    {
        paths.extend(Some(entry?.path()).filter(|path| path.to_string_lossy().ends_with(ARCHIVE)));
    }
    for entry in fs::read_dir(root().join(FIXTURES))? {
        paths.extend(Some(entry?.path()).filter(|path| path.is_dir()));
    }
    paths.sort();
    Ok(paths)
}

/// The folder of a trace, unpacked if it is an archive.
pub fn unpacked(path: &Path) -> Outcome<PathBuf> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(ARCHIVE)) else {
        return Ok(path.to_owned());
    };
    let folder = command::target().join("judge/ctf").join(name);
    if !folder.exists() {
        fs::create_dir_all(&folder)?;
        command::run(Command::new("tar").arg("--zstd").arg("-xf").arg(path).arg("-C").arg(&folder))?;
    }
    Ok(folder)
}

/// Whether a trace is CTF 2, which Debian's babeltrace2 does not read.
fn is_ctf_2(folder: &Path) -> Outcome<bool> {
    let mut hodo = Command::new(command::hodo());
    let info: Value =
        serde_json::from_str(&command::capture(hodo.args(["info", "--format", "json"]).arg(folder))?)?;
    Ok(info["traces"].as_array().is_some_and(|traces| traces.iter().any(|trace| trace["format"] == "CTF 2")))
}

/// The trace exported to CTF 1.8.
fn as_ctf_18(folder: &Path, name: &str) -> Outcome<PathBuf> {
    let written = command::target().join("judge/ctf18").join(name);
    if written.exists() {
        fs::remove_dir_all(&written)?;
    }
    fs::create_dir_all(written.parent().unwrap_or(&written))?;
    let mut hodo = Command::new(command::hodo());
    command::quietly(hodo.args(["export", "--to", "ctf", "-q", "-o"]).arg(&written).arg(folder))?;
    Ok(written)
}

/// Counts our events.
fn count(folder: &Path) -> Outcome<Value> {
    let mut hodo = Command::new(command::hodo());
    let table = command::capture(hodo.args(["report", "count", "--format", "json", "-q"]).arg(folder))?;
    Ok(serde_json::from_str(&table)?)
}

/// Compares our event counts with those of a newer babeltrace2, which are stored with the archive: the total, and by
/// name if there is a list.
fn counted(path: &Path, folder: &Path) -> Outcome<Verdict> {
    let table = count(folder)?;
    let ours = table["summary"]["events"].as_u64().unwrap_or(0);
    let mut verdict = Verdict { events: ours, only: Some("CTF 2, counts"), ..Verdict::default() };
    let (beside, file) =
        (path.parent().unwrap_or(path), path.file_name().unwrap_or_default().to_string_lossy());
    let Ok(counts) = fs::read_to_string(beside.join("COUNTS.tsv")) else {
        verdict.only = Some("CTF 2, without counts:");
        return Ok(verdict);
    };
    // Rows begin with the archive, and have the number of events in the fifth column.
    let rows = counts.lines().map(|line| line.split('\t').collect::<Vec<_>>()).filter(|row| row[0] == file);
    let theirs: u64 = rows.filter_map(|row| row.get(4)?.parse::<u64>().ok()).sum();
    if ours != theirs {
        verdict.differ(format!("{ours} events, and by babeltrace2 {theirs}"));
    }
    let Ok(list) = fs::read_to_string(beside.join(format!("EVENTS-{}.tsv", file.trim_end_matches(ARCHIVE))))
    else {
        return Ok(verdict);
    };
    let row = |row: &Value| Some(format!("{}\t{}", row[0].as_str()?, row[1]));
    let ours: BTreeSet<String> = table["rows"].as_array().ok_or("no rows")?.iter().filter_map(row).collect();
    let theirs: BTreeSet<String> = list.lines().map(str::to_owned).collect();
    ours.difference(&theirs).for_each(|row| verdict.differ(format!("only ours: {row}")));
    theirs.difference(&ours).for_each(|row| verdict.differ(format!("only babeltrace2's: {row}")));
    Ok(verdict)
}

/// Names and fields of events, by thread in order of thread number.
type Threads = Vec<Vec<String>>;

/// Compares the events and fields of two runs of a program, thread by thread. Times, CPUs and thread ids differ between
/// runs.
fn compare_threads(ours: &Threads, theirs: &Threads) -> Verdict {
    let events = |threads: &Threads| threads.iter().map(Vec::len).sum::<usize>() as u64;
    let mut verdict = Verdict { events: events(ours), only: Some("names and fields"), ..Verdict::default() };
    if ours.len() != theirs.len() || events(ours) != events(theirs) {
        verdict.differ(format!("{} threads, and {}", ours.len(), theirs.len()));
        verdict.differ(format!("{} events, and {}", events(ours), events(theirs)));
    }
    let events = ours.iter().flatten().zip(theirs.iter().flatten());
    let differing = events.filter(|(our, their)| our != their).take(SHOWN);
    differing.for_each(|(our, their)| verdict.differ(format!("one   {our}\n  other {their}")));
    verdict
}

/// The result for a trace.
#[derive(Default)]
pub(super) struct Verdict {
    events: u64,
    /// What was compared, if not everything.
    only: Option<&'static str>,
    other_order: u64,
    /// Names of events.
    empty_texts: BTreeSet<String>,
    lost: u64,
    /// Streams.
    counters_that_went_back: BTreeSet<String>,
    /// Our event at which babeltrace2 stopped.
    time_went_back: Option<String>,
    pub(super) differences: Vec<String>,
}

impl Verdict {
    pub(super) fn differs(&self) -> bool {
        !self.differences.is_empty()
    }

    fn differ(&mut self, difference: String) {
        if self.differences.len() < SHOWN {
            self.differences.push(difference);
        }
    }

    fn add(&mut self, other: Verdict) {
        self.events += other.events;
        self.other_order += other.other_order;
        self.empty_texts.extend(other.empty_texts);
        self.lost += other.lost;
        self.counters_that_went_back.extend(other.counters_that_went_back);
        self.time_went_back = self.time_went_back.take().or(other.time_went_back);
        other.differences.into_iter().for_each(|difference| self.differ(difference));
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.differs() { "DIFFERENT" } else { "equal" };
        write!(
            f,
            "{} events, {} lost, {}{word}",
            self.events,
            self.lost,
            self.only.map_or(String::new(), |only| format!("{only} "))
        )?;
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        if self.other_order > 0 {
            write!(f, "\n  the events of {} times are in another order", self.other_order)?;
        }
        if let Some(event) = &self.time_went_back {
            write!(f, "\n  babeltrace2 gave up where time goes back: {event}")?;
        }
        if !self.empty_texts.is_empty() {
            write!(f, "\n  empty texts that babeltrace2 fills with old ones: {}", list(&self.empty_texts))?;
        }
        if !self.counters_that_went_back.is_empty() {
            let streams = list(&self.counters_that_went_back);
            write!(f, "\n  counters of lost events that went back, in babeltrace2 lost 2^64: {streams}")?;
        }
        self.differences.iter().try_for_each(|difference| write!(f, "\n  {difference}"))
    }
}

/// A part of a trace, in nanoseconds: all of it, unless there are limits.
#[derive(Clone, Copy, Default)]
struct Part {
    /// Inclusive.
    from: Option<u64>,
    /// Exclusive.
    to: Option<u64>,
}

/// Compares our events of a trace with babeltrace2's of the same, or of our export of it.
pub(super) fn judge(folder: &Path, theirs: &Path) -> Outcome<Verdict> {
    let summary = &count(folder)?["summary"];
    let number = |name: &str| summary[name].as_u64();
    let middle = number("begin_ns").zip(number("end_ns")).map(|(begin, end)| begin.midpoint(end));
    let parts = match middle {
        Some(_) if number("events") > Some(LARGE) => {
            vec![Part { from: None, to: middle }, Part { from: middle, to: None }]
        }
        _ => vec![Part::default()],
    };
    let mut verdict = Verdict::default();
    let judged = std::thread::scope(|scope| {
        // The result of a thread must be `Send`, which errors need not be.
        let judge =
            |&part| scope.spawn(move || judge_part(folder, theirs, part).map_err(|error| error.to_string()));
        let threads: Vec<_> = parts.iter().map(judge).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for part in judged {
        verdict.add(part.map_err(|_| "a judge panicked")??);
    }
    Ok(verdict)
}

fn judge_part(folder: &Path, theirs: &Path, Part { from, to }: Part) -> Outcome<Verdict> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--events", "--format", "jsonl", "-q"]).arg(folder);
    // Debian's own Python has babeltrace2's module.
    let mut babeltrace = Command::new("/usr/bin/python3");
    babeltrace.arg(root().join("lab/judges/events.py")).arg(theirs);
    if from.or(to).is_some() {
        let time = |time: Option<u64>, unit: &str| time.map_or(String::new(), |time| format!("{time}{unit}"));
        hodo.arg(format!("--time={},{}", time(from, "ns"), time(to, "ns")));
        babeltrace.args([from, to].map(|time| time.map_or("-".to_owned(), |time| time.to_string())));
    }
    let (mut ours, mut theirs) = (Events::of(hodo)?, Events::of(babeltrace)?);
    let mut verdict = Verdict::default();
    let mut before = i64::MIN;
    loop {
        let (our, their) = (ours.same_time()?, theirs.same_time()?);
        if our.is_empty() && their.is_empty() {
            break;
        }
        let time = our.first().and_then(|event| event["ts"].as_i64()).unwrap_or(before);
        if their.is_empty() && time < before {
            verdict.time_went_back = our.first().map(Value::to_string);
            return Ok(verdict);
        }
        before = time;
        verdict.events += our.len() as u64;
        compare(our, their, &mut verdict);
        if verdict.differences.len() == SHOWN {
            return Ok(verdict);
        }
    }
    compare_lost(&ours.end()?, &theirs.end()?, &mut verdict);
    Ok(verdict)
}

/// Compares the events of one time.
fn compare(mut ours: Vec<Value>, mut theirs: Vec<Value>, verdict: &mut Verdict) {
    if ours == theirs {
        return;
    }
    let key = |event: &Value| (event["stream"].to_string(), event["name"].to_string(), event.to_string());
    ours.sort_by_cached_key(key);
    theirs.sort_by_cached_key(key);
    if ours == theirs {
        verdict.other_order += 1;
    } else if ours.len() == theirs.len()
        && ours.iter().zip(&theirs).all(|(our, their)| equal_unless_empty(our, their))
    {
        let differing = ours.iter().zip(&theirs).filter(|(our, their)| our != their);
        let names = differing.filter_map(|(our, _)| our["name"].as_str());
        verdict.empty_texts.extend(names.map(str::to_owned));
    } else {
        let show =
            |events: &[Value]| events.iter().map(Value::to_string).collect::<Vec<_>>().join("\n       ");
        verdict.differ(format!("ours   {}\n  theirs {}", show(&ours), show(&theirs)));
    }
}

/// Whether values are equal, except texts that are empty on our side.
fn equal_unless_empty(our: &Value, their: &Value) -> bool {
    match (our, their) {
        (Value::Object(our), Value::Object(their)) => {
            our.len() == their.len()
                && our.iter().all(|(name, value)| {
                    their.get(name).is_some_and(|their| equal_unless_empty(value, their))
                })
        }
        (Value::Array(our), Value::Array(their)) => {
            our.len() == their.len()
                && our.iter().zip(their).all(|(our, their)| equal_unless_empty(our, their))
        }
        (Value::String(our), Value::String(_)) if our.is_empty() => true,
        _ => our == their,
    }
}

/// Lost events by stream: the counts in order.
type Lost = BTreeMap<String, Vec<u64>>;

fn compare_lost(ours: &Lost, theirs: &Lost, verdict: &mut Verdict) {
    verdict.lost = ours.values().flatten().sum();
    let streams: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    for stream in streams {
        let none = Vec::new();
        let (our, their) = (ours.get(stream).unwrap_or(&none), theirs.get(stream).unwrap_or(&none));
        if our == their {
            continue;
        }
        match their.iter().any(|&count| count > 1 << 32) {
            true => drop(verdict.counters_that_went_back.insert(stream.clone())),
            false => verdict.differ(format!("{stream}: lost {our:?}, and by babeltrace2 {their:?}")),
        }
    }
}

/// The events that a program prints.
struct Events {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    ahead: VecDeque<Value>,
    lost: Lost,
}

impl Events {
    fn of(mut command: Command) -> Outcome<Events> {
        let shown = command::line(&command);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("can't start `{shown}`: {error}"))?;
        let out = child.stdout.take().ok_or("no output")?;
        Ok(Events { child, lines: BufReader::new(out).lines(), ahead: VecDeque::new(), lost: Lost::new() })
    }

    /// Our events of a trace, by thread.
    fn by_thread(folder: &Path) -> Outcome<Threads> {
        let mut hodo = Command::new(command::hodo());
        hodo.args(["script", "--events", "--format", "jsonl", "-q"]).arg(folder);
        let mut events = Events::of(hodo)?;
        let mut threads: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        while let Some(event) = events.next_event()? {
            let thread = event["context"]["vtid"].as_u64().ok_or("an event without a thread")?;
            threads.entry(thread).or_default().push(format!("{}{}", event["name"], event["fields"]));
        }
        events.end()?;
        Ok(threads.into_values().collect())
    }

    fn next_event(&mut self) -> Outcome<Option<Value>> {
        if let Some(event) = self.ahead.pop_front() {
            return Ok(Some(event));
        }
        for line in self.lines.by_ref() {
            let mut value: Value = serde_json::from_str(&line?)?;
            if let Some(count) = value.get("lost_events").map(|count| count.as_u64().unwrap_or(0)) {
                let stream = value["stream"].as_str().unwrap_or_default().to_owned();
                self.lost.entry(stream).or_default().push(count);
            } else if value.get("lost_packets").is_none() {
                value.as_object_mut().ok_or("an object expected")?.remove("trace");
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The next events that have the same time.
    fn same_time(&mut self) -> Outcome<Vec<Value>> {
        let Some(first) = self.next_event()? else { return Ok(Vec::new()) };
        let mut events = vec![first];
        while let Some(event) = self.next_event()? {
            if event["ts"] != events[0]["ts"] {
                self.ahead.push_front(event);
                break;
            }
            events.push(event);
        }
        Ok(events)
    }

    fn end(mut self) -> Outcome<Lost> {
        match self.child.wait()? {
            status if status.success() => Ok(self.lost),
            status => Err(format!("a program that reads the trace failed: {status}").into()),
        }
    }
}

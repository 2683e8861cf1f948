//! `cargo xtask judge ctf [FOLDER | ARCHIVE]…`: every event that we read of traces, against babeltrace2.
//!
//! ```text
//! folder ─┬─► hodo script --events --format jsonl ─┐ event by event: time, stream, name, all fields and
//!         └─► babeltrace2's Python module ─────────┴─► contexts; and what was lost, stream by stream
//! ```
//!
//! What is known to differ is counted under its own name: events of the same time in another order, texts
//! that are empty (babeltrace2 before 2.0.5 shows what was there before), counters of lost events that went
//! back (it takes those for nearly 2^64 lost events).

use std::{
    collections::{BTreeMap, VecDeque},
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

/// Where archives of traces lie beside the repository, and the end of their names.
const ARCHIVES: &str = "../shared/data/ctf";
const ARCHIVE: &str = ".tar.zst";
/// Differences that are shown of a trace.
const SHOWN: usize = 3;

/// Judges the traces that are named; all archives beside the repository where none is.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let mut failed = Vec::new();
    for path in paths(names)? {
        let folder = unpacked(&path)?;
        if is_ctf_2(&folder)? {
            match counted(&path, &folder)? {
                None => println!("{}: CTF 2, the counts are equal", path.display()),
                Some(difference) => {
                    println!("{}: CTF 2, DIFFERENT\n  {difference}", path.display());
                    failed.push(path.display().to_string());
                }
            }
            continue;
        }
        let name = folder
            .file_name()
            .map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned());
        let verdict = judge(&folder)?;
        println!("{name}: {verdict}");
        if verdict.differs() {
            failed.push(name);
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
    paths.sort();
    Ok(paths)
}

/// The folder of a trace, unpacked if it is an archive.
fn unpacked(path: &Path) -> Outcome<PathBuf> {
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

/// Debian's babeltrace2 reads no CTF 2.
fn is_ctf_2(folder: &Path) -> Outcome<bool> {
    let mut hodo = Command::new(command::hodo());
    let info: Value =
        serde_json::from_str(&command::capture(hodo.args(["info", "--format", "json"]).arg(folder))?)?;
    Ok(info["traces"].as_array().is_some_and(|traces| traces.iter().any(|trace| trace["format"] == "CTF 2")))
}

/// How our count of events differs from what a newer babeltrace2 counted, which lies beside the archive: in
/// all, and by name where there is such a list.
fn counted(path: &Path, folder: &Path) -> Outcome<Option<String>> {
    let mut hodo = Command::new(command::hodo());
    let table = command::capture(hodo.args(["report", "count", "--format", "json", "-q"]).arg(folder))?;
    let table: Value = serde_json::from_str(&table)?;
    let (beside, file) =
        (path.parent().unwrap_or(path), path.file_name().unwrap_or_default().to_string_lossy());
    let counts = fs::read_to_string(beside.join("COUNTS.tsv"))?;
    let rows = counts.lines().map(|line| line.split('\t').collect::<Vec<_>>()).filter(|row| row[0] == file);
    let theirs: u64 = rows.filter_map(|row| row.get(4)?.parse::<u64>().ok()).sum();
    let ours = table["summary"]["events"].as_u64().unwrap_or(0);
    if ours != theirs {
        return Ok(Some(format!("{ours} events, and by babeltrace2 {theirs}")));
    }
    let Ok(list) = fs::read_to_string(beside.join(format!("EVENTS-{}.tsv", file.trim_end_matches(ARCHIVE))))
    else {
        return Ok(None);
    };
    let row = |row: &Value| Some(format!("{}\t{}", row[0].as_str()?, row[1]));
    let mut ours: Vec<String> = table["rows"].as_array().ok_or("no rows")?.iter().filter_map(row).collect();
    let mut theirs: Vec<String> = list.lines().map(str::to_owned).collect();
    ours.sort();
    theirs.sort();
    let differing = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs);
    Ok(differing.map(|(ours, theirs)| format!("{ours}, and by babeltrace2 {theirs}")))
}

/// What was found out about a trace.
#[derive(Default)]
struct Verdict {
    events: u64,
    other_order: u64,
    empty_texts: u64,
    lost: u64,
    counters_that_went_back: u64,
    differences: Vec<String>,
}

impl Verdict {
    fn differs(&self) -> bool {
        !self.differences.is_empty()
    }

    fn differ(&mut self, difference: String) {
        if self.differences.len() < SHOWN {
            self.differences.push(difference);
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.differs() { "DIFFERENT" } else { "equal" };
        write!(f, "{} events, {} lost, {word}", self.events, self.lost)?;
        for (count, what) in [
            (self.other_order, "times with another order (fact 7)"),
            (self.empty_texts, "events with empty texts that babeltrace2 fills with old ones (fact 20)"),
            (self.counters_that_went_back, "streams with a counter of lost events that went back (fact 23)"),
        ] {
            if count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        self.differences.iter().try_for_each(|difference| write!(f, "\n  {difference}"))
    }
}

fn judge(folder: &Path) -> Outcome<Verdict> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--events", "--format", "jsonl", "-q"]).arg(folder);
    // Debian's own Python has babeltrace2's module.
    let mut babeltrace = Command::new("/usr/bin/python3");
    babeltrace.arg(root().join("lab/judges/events.py")).arg(folder);
    let (mut ours, mut theirs) = (Events::of(hodo)?, Events::of(babeltrace)?);
    let mut verdict = Verdict::default();
    loop {
        let (our, their) = (ours.same_time()?, theirs.same_time()?);
        if our.is_empty() && their.is_empty() {
            break;
        }
        verdict.events += our.len() as u64;
        compare(our, their, &mut verdict);
        if verdict.differences.len() == SHOWN {
            verdict.differ(String::new());
            return Ok(verdict);
        }
    }
    compare_lost(&ours.end()?, &theirs.end()?, &mut verdict);
    Ok(verdict)
}

/// The events of one time.
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
        && ours.iter().zip(&theirs).all(|(our, their)| equal_but_empty(our, their))
    {
        verdict.empty_texts += 1;
    } else {
        let show =
            |events: &[Value]| events.iter().map(Value::to_string).collect::<Vec<_>>().join("\n       ");
        verdict.differ(format!("ours   {}\n  theirs {}", show(&ours), show(&theirs)));
    }
}

/// Whether values are the same but for texts that are empty on our side.
fn equal_but_empty(our: &Value, their: &Value) -> bool {
    match (our, their) {
        (Value::Object(our), Value::Object(their)) => {
            our.len() == their.len()
                && our
                    .iter()
                    .all(|(name, value)| their.get(name).is_some_and(|their| equal_but_empty(value, their)))
        }
        (Value::Array(our), Value::Array(their)) => {
            our.len() == their.len() && our.iter().zip(their).all(|(our, their)| equal_but_empty(our, their))
        }
        (Value::String(our), Value::String(_)) if our.is_empty() => true,
        _ => our == their,
    }
}

/// Lost events by stream: the counts in their order.
type Lost = BTreeMap<String, Vec<u64>>;

fn compare_lost(ours: &Lost, theirs: &Lost, verdict: &mut Verdict) {
    verdict.lost = ours.values().flatten().sum();
    let streams: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    for stream in streams {
        let none = Vec::new();
        let (our, their) = (ours.get(stream).unwrap_or(&none), theirs.get(stream).unwrap_or(&none));
        if our == their {
            continue;
        }
        match their.iter().any(|&count| count > 1 << 32) {
            true => verdict.counters_that_went_back += 1,
            false => verdict.differ(format!("{stream}: lost {our:?}, and by babeltrace2 {their:?}")),
        }
    }
}

/// Events as a program writes them.
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

    /// The next events, as many as have the same time.
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

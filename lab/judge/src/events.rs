//! `cargo judge events`: compares every event of ftrace and of perf that we read with trace-cmd and perf.
//!
//! ```text
//! workload ─┬─ hodo record --engine ftrace ──► trace.dat 6 ─┐  hodo script --events  ≟  trace-cmd report -R
//!           ├─ tracefs, trace-cmd extract ───► trace.dat 7 ─┤
//!           └─ perf record -a ───────────────► perf.data ───┘  hodo script --events  ≟  perf script
//!                                                   └─► hodo export --to ctf ─► hodo  ≟  babeltrace2
//! ```
//!
//! The time in nanoseconds, the CPU, the thread, the name and each field of each event are compared; events of one time
//! in any order. perf prints some events after later ones, and warns about that; they are sorted first.

mod fields;
mod peers;
mod recordings;
mod written;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Map, Value};

use super::ctf;
use crate::{
    Outcome, command,
    processor_time::processor_time,
    setup::{self, Need},
};
use recordings::Recording;

/// Differences that are shown per recording.
const SHOWN: usize = 3;

/// An event for comparison.
#[derive(Debug)]
pub(super) struct Event {
    time: i64,
    cpu: i64,
    thread: i64,
    name: String,
    fields: Fields,
}

/// The fields of an event, in the format of its reader.
#[derive(Debug)]
pub(super) enum Fields {
    /// Ours.
    Ours {
        fields: Map<String, Value>,
        /// With the names of numbers, such as `ip_name`.
        context: Map<String, Value>,
    },
    /// `a=1 b=text`.
    Text(String),
    /// perf's, in its Python interface.
    Values(Map<String, Value>),
}

/// System calls of the workload; each makes two events, or four.
const CALLS: u64 = 600_000;

/// Judges the named files; by default, new recordings with a workload of `--count N` system calls.
pub(super) fn run(arguments: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/events");
    fs::create_dir_all(&folder)?;
    let mut differing = Vec::new();
    let recordings = match arguments {
        [] => recordings::record(&folder, CALLS)?,
        [option, count] if option == "--count" => recordings::record(&folder, count.parse()?)?,
        files => files.iter().map(|file| Recording::new(file)).collect(),
    };
    for recording in recordings {
        let results = [judge(&recording)?, judge_written(&recording)?];
        if results.contains(&false) {
            differing.push(recording.name.clone());
        }
    }
    if differing.is_empty() { Ok(()) } else { Err(format!("not equal: {}", differing.join(", ")).into()) }
}

/// The result for a recording.
#[derive(Default)]
struct Verdict {
    events: u64,
    lost: u64,
    differences: Vec<String>,
}

impl Verdict {
    fn differ(&mut self, difference: String) {
        if self.differences.len() < SHOWN {
            self.differences.push(difference);
        }
    }
}

fn judge(recording: &Recording) -> Outcome<bool> {
    let mut theirs = peers::lines(recording)?;
    let mut ours = Ours::open(&recording.path)?;
    let mut verdict = Verdict::default();
    loop {
        let (our, their) = (ours.same_time()?, theirs.same_time()?);
        if our.is_empty() && their.is_empty() {
            break;
        }
        verdict.events += our.len() as u64;
        compare(our, their, &mut verdict);
        if verdict.differences.len() == SHOWN {
            break;
        }
    }
    verdict.lost = ours.0.lost;
    if ours.0.lost != theirs.lost && verdict.differences.is_empty() {
        verdict.differ(format!("{} lost, and by the peer {}", ours.0.lost, theirs.lost));
    }
    let equal = verdict.differences.is_empty();
    let word = if equal { "equal" } else { "DIFFERENT" };
    println!("{}: {} events, {} lost, {word}", recording.name, verdict.events, verdict.lost);
    verdict.differences.iter().for_each(|difference| println!("  {difference}"));
    if equal {
        let own = processor_time(&mut hodo(&recording.path))?.user;
        let peer = processor_time(&mut peers::plain(recording))?.user;
        let ratio = peer.as_secs_f64() / own.as_secs_f64().max(0.01);
        println!(
            "  user CPU time as text: hodo {own:.2?}, {} {peer:.2?}: {ratio:.1} times as fast",
            peers::name(recording)
        );
    }
    Ok(equal)
}

/// Compares our CTF export with what we read, and with what babeltrace2 reads from it.
fn judge_written(recording: &Recording) -> Outcome<bool> {
    let folder = written::export(recording)?;
    let mut verdict = ctf::judge(&folder, &folder)?;
    verdict.differences.extend(written::difference(recording, &folder)?);
    println!("  written as CTF: {verdict}");
    Ok(!verdict.differs())
}

/// Compares the events of one time.
fn compare(ours: Vec<Event>, mut theirs: Vec<Event>, verdict: &mut Verdict) {
    for our in ours {
        match theirs.iter().position(|their| same(&our, their)) {
            Some(index) => drop(theirs.swap_remove(index)),
            None => {
                let nearest = theirs.iter().find(|their| their.name == our.name).or(theirs.first());
                verdict.differ(format!("ours   {our:?}\n  theirs {nearest:?}"));
            }
        }
    }
    theirs.iter().for_each(|their| verdict.differ(format!("theirs only {their:?}")));
}

fn same(our: &Event, their: &Event) -> bool {
    let Fields::Ours { fields, context } = &our.fields else { return false };
    (our.time, our.cpu, our.thread, &our.name) == (their.time, their.cpu, their.thread, &their.name)
        && match &their.fields {
            Fields::Text(text) => fields::equal_text(fields, context, text),
            Fields::Values(values) => fields::equal_values(fields, context, values),
            Fields::Ours { .. } => false,
        }
}

/// Events in groups of the same time.
pub(super) struct Events<I> {
    events: I,
    /// Events that were read ahead, by time and number.
    ahead: BTreeMap<(i64, u64), Event>,
    /// How many events to read ahead, as perf prints some after later ones.
    window: usize,
    read: u64,
    /// Events that the tracer lost.
    lost: u64,
}

/// The content of a line.
pub(super) enum Line {
    Event(Event),
    Lost(u64),
    Nothing,
}

impl<I: Iterator<Item = Outcome<Line>>> Events<I> {
    pub(super) fn new(events: I, window: usize) -> Events<I> {
        Events { events, ahead: BTreeMap::new(), window, read: 0, lost: 0 }
    }

    fn read_ahead(&mut self) -> Outcome {
        while self.ahead.len() <= self.window
            && let Some(line) = self.events.next()
        {
            match line? {
                Line::Event(event) => {
                    self.read += 1;
                    self.ahead.insert((event.time, self.read), event);
                }
                Line::Lost(count) => self.lost += count,
                Line::Nothing => {}
            }
        }
        Ok(())
    }

    fn same_time(&mut self) -> Outcome<Vec<Event>> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            self.read_ahead()?;
            match self.ahead.first_entry() {
                Some(next) if events.first().is_none_or(|first| first.time == next.key().0) => {
                    events.push(next.remove());
                }
                _ => return Ok(events),
            }
        }
    }
}

/// The lines that a command prints.
pub(super) fn lines_of(
    command: &mut Command,
) -> Outcome<impl Iterator<Item = std::io::Result<String>> + use<>> {
    let shown = command::line(command);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|error| format!("can't start `{shown}`: {error}"))?;
    let out = child.stdout.take().ok_or("no output")?;
    let lines = BufReader::with_capacity(1 << 20, out).split(b'\n');
    // Reaped when its output ends.
    let end = std::iter::from_fn(move || child.wait().err().map(Err));
    Ok(lines.map(|line| Ok(String::from_utf8_lossy(&line?).into_owned())).chain(end))
}

fn hodo(path: &Path) -> Command {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--events", "-q"]).arg(path);
    hodo
}

/// Our reader's events.
struct Ours(Events<Box<dyn Iterator<Item = Outcome<Line>>>>);

impl Ours {
    fn open(path: &Path) -> Outcome<Ours> {
        let lines = lines_of(hodo(path).args(["--format", "jsonl"]))?;
        Ok(Ours(Events::new(Box::new(lines.map(|line| our_line(&line?))), 0)))
    }

    fn same_time(&mut self) -> Outcome<Vec<Event>> {
        self.0.same_time()
    }
}

fn our_line(line: &str) -> Outcome<Line> {
    let mut line: Value = serde_json::from_str(line)?;
    if let Some(count) = line.get("lost_events") {
        return Ok(Line::Lost(count.as_u64().unwrap_or(0)));
    }
    let object = |value: Value| match value {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    let (fields, context) = (object(line["fields"].take()), object(line["context"].take()));
    let number = |names: &[&str]| {
        names.iter().find_map(|name| context.get(*name).or(fields.get(*name))?.as_i64()).unwrap_or(-1)
    };
    Ok(Line::Event(Event {
        time: line["ts"].as_i64().ok_or("a time expected")?,
        cpu: number(&["cpu_id", "cpu"]),
        thread: number(&["tid", "common_pid"]),
        name: line["name"].as_str().unwrap_or_default().to_owned(),
        fields: Fields::Ours { fields, context },
    }))
}

//! `cargo xtask demo board`: records an emulated board of eight slaves that compute pictures, and one slave with its hardware
//! trace. What it prints is computed from what `hodo` prints about this run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use serde_json::Value;
use workbench::board;

use crate::{
    Outcome, command,
    demo::{build_hodo, hodo},
    demo_slave,
};

/// Settings of the board: the urgent task wakes after 5 s, and the recording ends after 10 s.
const BOARD: &str = "slaves=8,work=sobel,urgent=5s,time=10s";
const SLAVES: u32 = 8;

/// Values of the enumerations of tasks and functions in `embedded/board/slave.yaml` and `master.yaml`.
const URGENT: u64 = 2;
const SOBEL: u64 = 0;

/// Runs the demo.
pub(crate) fn run() -> Outcome {
    board::ensure()?;
    build_hodo()?;
    let folder = command::target().join("demo/board");
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.parent().unwrap_or(&folder))?;
    let mut record = Command::new(hodo());
    command::run(record.args(["record", "--engine", "board", "--board", BOARD]).arg(&folder))?;
    let pictures = pictures(&folder)?;
    println!("\n━━ What the recording says\n");
    let took = |wanted: fn(&Picture) -> bool| {
        let mut took: Vec<u64> =
            pictures.iter().filter(|picture| wanted(picture)).map(|picture| picture.took).collect();
        took.sort_unstable();
        Ok::<_, String>((took.len(), *took.get(took.len() / 2).ok_or("no picture was made")?))
    };
    let (calm, calm_time) = took(|picture| picture.urgent.is_empty())?;
    let (disturbed, disturbed_time) = took(|picture| !picture.urgent.is_empty())?;
    let slaves: BTreeSet<&str> =
        pictures.iter().flat_map(|picture| &picture.urgent).map(String::as_str).collect();
    let slaves: Vec<&str> = slaves.into_iter().collect();
    println!(
        "{calm} pictures took {} ms each; {disturbed} took {} ms, {:.1}× as long: while they were made, an urgent task ran \
         on {}.\nThe picture: {}",
        calm_time / 1_000_000,
        disturbed_time / 1_000_000,
        disturbed_time as f64 / calm_time as f64,
        slaves.join(" and "),
        folder.join("sobel.pgm").display()
    );
    who_waited(&folder, &slaves)?;
    demo_slave::run(&command::target().join("demo/slave"))
}

/// Puts all clocks on one timeline, and shows what pictures waited for while the urgent task ran. `hodo path` and `hodo
/// explain` must name that task and its slaves.
fn who_waited(folder: &Path, slaves: &[&str]) -> Outcome {
    let experiment = folder.join("board.toml");
    let mut sync = Command::new(hodo());
    sync.args(["sync", "-q", "-o"]).arg(&experiment).arg(folder.join("master"));
    command::quietly(sync.args((0..SLAVES).map(|slave| folder.join(format!("slave-{slave}")))))?;
    for arguments in [&["path", "-q", "--from", "+5.5"][..], &["explain", "-q", "--top", "6"]] {
        let text = command::capture(Command::new(hodo()).args(arguments).arg(&experiment))?;
        println!("\n━━ hodo {} {}\n\n{text}", arguments.join(" "), experiment.display());
        // Sentences are wrapped.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_missing = |slave: &&&str| !words.contains(&format!("urgent of {slave}"));
        if let Some(slave) = slaves.iter().find(is_missing) {
            return Err(format!("hodo {} does not name the urgent task of {slave}", arguments[0]).into());
        }
    }
    Ok(())
}

/// A picture that the slaves computed.
struct Picture {
    /// Duration in nanoseconds.
    took: u64,
    /// The slaves on which the urgent task ran during that time.
    urgent: Vec<String>,
}

pub(crate) struct BoardEvent {
    pub(crate) trace: String,
    pub(crate) time: i64,
    /// Bounds of the time; on a trace's own clock the time itself.
    pub(crate) lower: i64,
    pub(crate) upper: i64,
    /// Of a slave's event: when it really happened.
    pub(crate) truth: i64,
    pub(crate) name: String,
    pub(crate) fields: Value,
}

/// Returns the events of one trace of a board, or of all on one timeline, in order.
pub(crate) fn events(trace: &Path) -> Outcome<Vec<BoardEvent>> {
    let mut script = Command::new(hodo());
    script.args(["script", "--events", "--format", "jsonl", "-q"]).arg(trace);
    let mut events = Vec::new();
    let mut wrong = None;
    command::each_line(script, |line| match serde_json::from_slice::<Value>(line) {
        Ok(event) => {
            let time = event["ts"].as_i64().unwrap_or(0);
            let text = |name: &str| event[name].as_str().unwrap_or("").to_owned();
            let bound = |name: &str| event[name].as_i64().unwrap_or(time);
            events.push(BoardEvent {
                trace: text("trace"),
                time,
                lower: bound("lower_ns"),
                upper: bound("upper_ns"),
                truth: event["context"]["truth"].as_i64().unwrap_or(time),
                name: text("name"),
                fields: event["fields"].clone(),
            });
        }
        Err(error) => wrong = Some(error),
    })?;
    wrong.map_or(Ok(events), |error| Err(error.into()))
}

/// Returns the pictures. Their times come from the master's trace. The urgent task disturbed a slave if it ran between
/// a message and its answer in the slave's trace.
fn pictures(folder: &Path) -> Outcome<Vec<Picture>> {
    let mut disturbed: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for slave in 0..SLAVES {
        let name = format!("slave-{slave}");
        let (mut working, mut is_disturbed) = (None, false);
        for BoardEvent { name: event, fields, .. } in events(&folder.join(&name))? {
            match event.as_str() {
                "msg_recv" => (working, is_disturbed) = (fields["id"].as_u64(), false),
                "task_switch" if fields["next"] == URGENT => is_disturbed = true,
                "msg_send" if is_disturbed => {
                    // The lower half holds the picture's number, shifted by the bit that marks answers.
                    let picture = working.take().map(|id| (id & 0xffff_ffff) >> 1);
                    picture
                        .into_iter()
                        .for_each(|picture| disturbed.entry(picture).or_default().push(name.clone()));
                }
                _ => {}
            }
        }
    }
    let (mut pictures, mut begin) = (Vec::new(), None);
    for BoardEvent { time, name, fields, .. } in events(&folder.join("master"))? {
        match name.as_str() {
            "func_entry" if fields["function"] == SOBEL => begin = Some(time),
            "func_exit" if fields["function"] == SOBEL => {
                let Some(begin) = begin.take() else { continue };
                let urgent = disturbed.remove(&(pictures.len() as u64)).unwrap_or_default();
                pictures.push(Picture { took: time.abs_diff(begin), urgent });
            }
            _ => {}
        }
    }
    Ok(pictures)
}

//! The last part of `cargo xtask demo board`: what one slave ran, instruction by instruction, beside its events, on the clock
//! of the master.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::{
    Outcome, command,
    demo::hodo,
    demo_board::{BoardEvent, events},
};

/// Settings of the board.
const BOARD: &str = "slaves=1,work=sobel,time=3s,trace=hardware";

/// The value of a function in `embedded/board/slave.yaml`.
const ROW: u64 = 1;
/// Nanoseconds between two times of the hardware trace, at most, while the hart runs; with a margin for a busy machine.
const RESOLUTION: i64 = 20_000;
/// Rows that are shown.
const SHOWN: usize = 5;

/// A row of a picture: its event, and the execution of the function that computes it.
struct Row {
    event: BoardEvent,
    /// When the execution began, by the hardware trace.
    begin: i64,
}

/// Records a slave with its hardware trace into a folder, and shows that both of its traces agree.
pub(crate) fn run(folder: &Path) -> Outcome {
    println!("\n━━ One slave, instruction by instruction\n");
    _ = fs::remove_dir_all(folder);
    let mut record = Command::new(hodo());
    command::run(record.args(["record", "--engine", "board", "--board", BOARD]).arg(folder))?;
    let (experiment, slave) = (folder.join("board.toml"), folder.join("slave-0"));
    let mut sync = Command::new(hodo());
    command::capture(
        sync.args(["sync", "-q", "-o"]).arg(&experiment).arg(folder.join("master")).arg(&slave),
    )?;
    command::run(Command::new(hodo()).args(["report", "functions", "-q", "--limit", "8"]).arg(&slave))?;
    let width = half_width(&experiment)?;
    let rows = rows(&experiment)?;
    let first = rows.first().ok_or("no row was computed")?.event.time;
    println!(
        "\nRows of a picture on the master's clock, in µs since the first. The event is the slave's own; `call` is where the hardware trace \
         says that `sobel_row` began:\n\n      event           bounds  true time       call"
    );
    let micros = |time: i64| (time - first) as f64 / 1e3;
    for Row { event, begin } in rows.iter().take(SHOWN) {
        let bounds = format!("{:.3} to {:.3}", micros(event.lower), micros(event.upper));
        println!(
            "{:11.3} {bounds:>16} {:10.3} {:10.3}",
            micros(event.time),
            micros(event.truth),
            micros(*begin)
        );
    }
    let outside =
        rows.iter().filter(|row| !(row.event.lower..=row.event.upper).contains(&row.event.truth)).count();
    let distant = rows.iter().filter(|row| (row.begin - row.event.truth).abs() > width + RESOLUTION).count();
    println!(
        "\nOf {} events, {outside} have their true time outside of their bounds. {distant} calls begin more than {} µs from it: {} µs of \
         the control flow's clock, and {} µs between times in the hardware trace.\n\n$ hodo view {}",
        rows.len(),
        (width + RESOLUTION) / 1000,
        width / 1000,
        RESOLUTION / 1000,
        experiment.display()
    );
    // The emulator may lose its processor between an event and the call.
    match outside == 0 && distant * 50 <= rows.len() {
        true => Ok(()),
        false => Err("the slave's traces do not agree".into()),
    }
}

/// Half of the width of the clock that places the hardware trace.
fn half_width(experiment: &Path) -> Outcome<i64> {
    let info = json(&["info", "-q", "--format", "json"], experiment)?;
    let clocks = info["clocks"].as_array().map_or(&[][..], Vec::as_slice);
    let flow = clocks.iter().find(|clock| clock["trace"] == "control flow");
    flow.and_then(|clock| clock["half_width_ns"].as_i64())
        .ok_or_else(|| "the hardware trace has no clock on the timeline".into())
}

/// Returns the rows that were computed, in order: the n-th event is that of the n-th call.
fn rows(experiment: &Path) -> Outcome<Vec<Row>> {
    let words = ["latency", "-q", "--function", "sobel_row", "--by", "executions", "--limit", "1000000"];
    let table = json(&[&words[..], &["--format", "json"]].concat(), experiment)?;
    let columns = table["columns"].as_array().map_or(&[][..], Vec::as_slice);
    let column = columns.iter().position(|column| column["name"] == "begin_ns").ok_or("no begin_ns")?;
    let calls = table["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let mut begins =
        calls.iter().map(|row| row[column].as_i64()).collect::<Option<Vec<i64>>>().ok_or("no time")?;
    begins.sort_unstable();
    let is_row = |event: &BoardEvent| {
        event.name == "func_entry" && event.trace != "master" && event.fields["function"] == ROW
    };
    let events: Vec<BoardEvent> = events(experiment)?.into_iter().filter(is_row).collect();
    match events.len() == begins.len() {
        true => Ok(events.into_iter().zip(begins).map(|(event, begin)| Row { event, begin }).collect()),
        false => {
            Err(format!("{} events of rows, but {} calls of sobel_row", events.len(), begins.len()).into())
        }
    }
}

fn json(arguments: &[&str], input: &Path) -> Outcome<Value> {
    Ok(serde_json::from_str(&command::capture(Command::new(hodo()).args(arguments).arg(input))?)?)
}

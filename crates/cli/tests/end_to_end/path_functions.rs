//! `hodo path` with Intel PT: the functions that ran in each piece.

use std::{collections::BTreeMap, fs, ops::Range, path::Path};

use serde_json::Value;

use crate::run::{Folder, fixture, hodo, rows};

/// As lttng-modules describes the events of the scheduler.
const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 32; signed = true; } := i32;
typealias integer { size = 64; signed = true; } := i64;
trace { major = 1; minor = 8; byte_order = le; };
env { hostname = \"host\"; domain = \"kernel\"; tracer_name = \"lttng-modules\"; };
clock { name = \"monotonic\"; freq = 1000000000; };
typealias integer { size = 64; map = clock.monotonic.value; } := time;
stream { packet.context := struct { i32 cpu_id; }; event.header := struct { u8 id; time t; }; };
event { id = 1; name = \"sched_switch\"; fields := struct {
    string _prev_comm; i32 _prev_tid; i32 _prev_prio; i64 _prev_state;
    string _next_comm; i32 _next_tid; i32 _next_prio; }; };
event { id = 2; name = \"sched_waking\"; fields := struct {
    string _comm; i32 _tid; i32 _prio; i32 _target_cpu; }; };
";

/// The thread of `tiny-exact-time.data`, which runs from 1 s for 20,731 ns, and another one of the same CPU.
const TINY: i32 = 30_179;
const OTHER: i32 = 7;

fn comm(tid: i32) -> &'static [u8] {
    match tid {
        TINY => b"tiny\0",
        OTHER => b"other\0",
        _ => b"swapper/0\0",
    }
}

/// A kernel trace; times are nanoseconds from 1 s.
struct Kernel(Vec<u8>);

impl Kernel {
    fn new() -> Kernel {
        Kernel(0i32.to_le_bytes().to_vec())
    }

    fn begin(&mut self, id: u8, time: u64) {
        self.0.push(id);
        self.0.extend((1_000_000_000 + time).to_le_bytes());
    }

    /// `state`: 0 if the previous thread could run on, 1 if it waits.
    fn switch(&mut self, time: u64, prev: i32, state: i64, next: i32) {
        self.begin(1, time);
        self.0.extend(comm(prev));
        [prev, 120].iter().for_each(|number| self.0.extend(number.to_le_bytes()));
        self.0.extend(state.to_le_bytes());
        self.0.extend(comm(next));
        [next, 120].iter().for_each(|number| self.0.extend(number.to_le_bytes()));
    }

    fn waking(&mut self, time: u64, tid: i32) {
        self.begin(2, time);
        self.0.extend(comm(tid));
        [tid, 120, 0].iter().for_each(|number| self.0.extend(number.to_le_bytes()));
    }

    fn write(&self, folder: &Path) -> String {
        let kernel = folder.join("kernel");
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("metadata"), METADATA).unwrap();
        fs::write(kernel.join("channel0_0"), &self.0).unwrap();
        kernel.display().to_string()
    }
}

/// The inputs: Intel PT of the program, and the kernel trace on its clock.
fn inputs(folder: &Folder, kernel: &Kernel) -> Vec<String> {
    vec![
        fixture("perf/tiny-exact-time.data"),
        kernel.write(&folder.path()),
        "--symfs".to_owned(),
        fixture("perf/symfs"),
        "--offset".to_owned(),
        "kernel=+0s".to_owned(),
    ]
}

/// The Intel PT alone.
fn flow(inputs: &[String]) -> Vec<String> {
    [0, 2, 3].map(|index| inputs[index].clone()).to_vec()
}

/// The rows, by the names of columns, and the summary.
fn table(command: &[&str], inputs: &[String]) -> (Vec<Value>, Value) {
    let inputs = inputs.iter().map(String::as_str).collect::<Vec<_>>();
    let table = hodo(&[command, &["-q", "--format", "json"], &inputs].concat()).fine().json();
    (rows(&table), table["summary"].clone())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[derive(Clone, Copy)]
struct Cost {
    instructions: u64,
    time_ns: u64,
}

/// A piece of a path, and the functions below it.
struct PathPiece<'r> {
    row: &'r Value,
    functions: BTreeMap<&'r str, Cost>,
}

fn pieces(rows: &[Value]) -> Vec<PathPiece<'_>> {
    let mut pieces: Vec<PathPiece<'_>> = Vec::new();
    for row in rows {
        match row["cause"].as_str() {
            Some("function") => {
                let name = row["detail"].as_str().unwrap();
                let cost =
                    Cost { instructions: number(&row["instructions"]), time_ns: number(&row["duration_ns"]) };
                assert!(pieces.last_mut().unwrap().functions.insert(name, cost).is_none());
            }
            _ => pieces.push(PathPiece { row, functions: BTreeMap::new() }),
        }
    }
    pieces
}

#[test]
fn a_whole_run_has_the_numbers_of_the_report() {
    let folder = Folder::new();
    let mut kernel = Kernel::new();
    kernel.switch(0, 0, 0, TINY);
    kernel.switch(20_731, TINY, 1, 0);
    let inputs = inputs(&folder, &kernel);
    let command = ["path", "--thread", "tiny", "--by", "piece", "--functions", "9"];
    let (rows, summary) = table(&command, &inputs);
    let (functions, _) = table(&["report", "functions"], &flow(&inputs));
    let expected: BTreeMap<String, Cost> = functions
        .iter()
        .map(|row| {
            let name = format!("{}@{}", row["function"].as_str().unwrap(), row["module"].as_str().unwrap());
            let instructions = number(&row["self_instructions"]);
            (name, Cost { instructions, time_ns: number(&row["self_time_ns"]) })
        })
        .collect();
    let pieces = pieces(&rows);
    let piece = pieces.iter().find(|piece| !piece.functions.is_empty()).unwrap();
    let row = piece.row;
    assert_eq!((number(&row["begin_ns"]), number(&row["duration_ns"])), (1_000_000_000, 20_731));
    assert_eq!((row["cause"].as_str(), number(&row["instructions"])), (Some("running"), 20_731));
    assert_eq!(piece.functions.len(), expected.len());
    for (name, cost) in &piece.functions {
        let reported = expected[*name];
        assert_eq!(cost.instructions, reported.instructions, "{name}");
        // The report rounds sums down, the path the end of each run.
        let (time, expected_time) = (cost.time_ns, reported.time_ns);
        assert!(time.abs_diff(expected_time) <= 200, "{name}: {time} ns, not {expected_time} ns");
    }
    assert_eq!((&summary["instructions"], &summary["untraced_ns"]), (&20_731.into(), &0.into()));
    // The tree sums the pieces.
    let (tree, _) = table(&["path", "--thread", "tiny", "--functions", "2"], &inputs);
    let row = |what: &str| tree.iter().find(|row| row["what"] == what).unwrap_or_else(|| panic!("{tree:?}"));
    let runs = row("runs");
    assert_eq!((number(&runs["instructions"]), number(&runs["total_ns"])), (20_731, 20_731));
    let below = ["fib@tiny", "choose@tiny", "3 more functions"].map(row);
    assert!(below.iter().all(|row| number(&row["depth"]) == number(&runs["depth"]) + 1));
    assert_eq!(below.iter().map(|row| number(&row["total_ns"])).sum::<u64>(), 20_731);
    assert_eq!(number(&below[0]["instructions"]), expected["fib@tiny"].instructions);
}

#[test]
fn pieces_divide_what_ran() {
    let folder = Folder::new();
    let mut kernel = Kernel::new();
    kernel.switch(0, 0, 0, TINY);
    // It waits; the other thread runs, wakes it and runs on.
    kernel.switch(5_000, TINY, 1, OTHER);
    kernel.waking(8_000, TINY);
    kernel.switch(9_000, OTHER, 0, TINY);
    kernel.switch(20_731, TINY, 1, 0);
    let inputs = inputs(&folder, &kernel);
    let command = ["path", "--thread", "tiny", "--by", "piece", "--functions", "9"];
    let (rows, summary) = table(&command, &inputs);
    let divided = pieces(&rows);
    let spans: Vec<(Range<u64>, &str)> = divided
        .iter()
        .map(|PathPiece { row, .. }| {
            let begin = number(&row["begin_ns"]) - 1_000_000_000;
            (begin..begin + number(&row["duration_ns"]), row["comm"].as_str().unwrap())
        })
        .filter(|(span, _)| span.start < 20_731)
        .collect();
    assert_eq!(
        spans,
        [(0..5_000, "tiny"), (5_000..8_000, "other"), (8_000..9_000, "tiny"), (9_000..20_731, "tiny")]
    );
    // A piece has the time of its functions, to the nanosecond; the other thread has no trace.
    for (index, expected) in [5_000, 0, 0, 11_731].into_iter().enumerate() {
        assert_eq!(divided[index].functions.values().map(|cost| cost.time_ns).sum::<u64>(), expected);
    }
    // A piece has the instructions of the same span of time in `report functions`. There is a clock reading at least every
    // 77 instructions, and the two may assign the instructions between two readings differently.
    for (index, span) in [(0, "1,1.000005"), (3, "1.000009,")] {
        let (report, _) = table(&["report", "functions", "--time", span], &flow(&inputs));
        let expected: u64 = report.iter().map(|row| number(&row["self_instructions"])).sum();
        let ran: u64 = divided[index].functions.values().map(|cost| cost.instructions).sum();
        assert!(ran.abs_diff(expected) <= 77, "{ran}, not {expected}");
        assert_eq!(number(&divided[index].row["instructions"]), ran);
    }
    assert_eq!(number(&summary["untraced_ns"]), 3_000);
    // Any chunks and threads give the same.
    let cut = [&command[..], &["-j", "3", "--chunk-size", "1K"]].concat();
    assert_eq!(table(&cut, &inputs), (rows.clone(), summary));
    // Without functions, it is the path of the events.
    let plain = table(&["path", "--thread", "tiny", "--by", "piece", "--functions", "0"], &inputs).0;
    assert!(plain.iter().all(|row| row.get("instructions").is_none() && row["cause"] != "function"));
    assert_eq!(plain.len(), divided.len());
}

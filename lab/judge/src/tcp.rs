//! `cargo judge tcp`: two network namespaces of this kernel talk TCP; each has a trace of its segments in the form of
//! LTTng's, and one of the traces a clock that is wrong on purpose. `hodo sync` must relate the clocks by the segments
//! alone: every interval contains the true time, and no segment is received before it was sent.
//!
//! ```text
//! namespace a ──veth── namespace b
//!   watch │              │ watch     packet sockets: where the kernel traces net_dev_queue and net_if_receive_skb
//!         ▼              ▼
//!    trace a         trace b, its clock 37 ppm fast and half a second ahead; each event hides the true time
//! ```
//!
//! Packet sockets stand in for LTTng's kernel modules, which this kernel does not load; ftrace records no headers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{Outcome, command, workloads};

/// How long both watch; how many bytes are answered during that time.
const MILLISECONDS: &str = "7000";
const COUNT: &str = "1000";

/// What is wrong with the clock of b.
const FAST_PPM: u64 = 37;
const AHEAD: u64 = 500_000_000;

/// As lttng-modules' `instrumentation/events/net.h` describes a segment, and the true time.
const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 16; byte_order = be; } := be16;
typealias integer { size = 32; byte_order = be; } := be32;
typealias integer { size = 64; } := u64;
trace { major = 1; minor = 8; byte_order = le; };
env { hostname = \"HOST\"; domain = \"kernel\"; tracer_name = \"lttng-modules\"; };
clock { name = \"monotonic\"; freq = 1000000000; offset_s = 0; absolute = TRUE; };
typealias integer { size = 64; map = clock.monotonic.value; } := time;
stream { event.header := struct { u8 id; time t; }; };
struct headers {
    u8 _saddr[4]; u8 _daddr[4];
    struct { be16 _source_port; be16 _dest_port; be32 _seq; be32 _ack_seq; be16 _flags; } _tcp;
    u64 _truth;
};
event { id = 1; name = \"net_dev_queue\"; fields := struct { struct headers _h; }; };
event { id = 2; name = \"net_if_receive_skb\"; fields := struct { struct headers _h; }; };
";

/// Two namespaces with a cable between; removed in the end.
struct Namespaces;

const NAMES: [&str; 2] = ["hodo-judge-a", "hodo-judge-b"];
const DEVICES: [&str; 2] = ["hodo0", "hodo1"];
const ADDRESSES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
const PORT: &str = "7777";

impl Namespaces {
    fn new() -> Outcome<Namespaces> {
        let ip = |words: &str| command::quietly(Command::new("ip").args(words.split(' ')));
        // They are removed again if a step fails.
        let namespaces = Namespaces;
        NAMES.iter().try_for_each(|name| ip(&format!("netns add {name}")))?;
        let ([a, b], [device_a, device_b]) = (NAMES, DEVICES);
        ip(&format!("link add {device_a} netns {a} type veth peer name {device_b} netns {b}"))?;
        for ((name, device), address) in NAMES.iter().zip(DEVICES).zip(ADDRESSES) {
            ip(&format!("-n {name} addr add {address}/24 dev {device}"))?;
            ip(&format!("-n {name} link set {device} up"))?;
        }
        Ok(namespaces)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in NAMES {
            _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
        }
    }
}

/// Runs the program in a namespace.
fn inside(namespace: usize, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", NAMES[namespace]]).arg(program).args(arguments);
    command
}

/// Judges one conversation.
pub(super) fn run(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: cargo judge tcp".into());
    }
    command::build_hodo()?;
    let folder = command::target().join("judge/tcp");
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let program = workloads::compile("segments.c", &["-O1"], &folder)?;
    let lines = talk(&program, &folder)?;
    for (index, lines) in lines.iter().enumerate() {
        write(&folder.join(["a", "b"][index]), lines, index == 1)?;
    }
    let experiment = folder.join("experiment.toml");
    let mut sync = Command::new(command::hodo());
    sync.args(["sync", "--quiet", "--match", "tcp", "--format", "json", "-o"]).arg(&experiment);
    let tables: Value =
        serde_json::from_str(&command::capture(sync.arg(folder.join("a")).arg(folder.join("b")))?)?;
    judge(&tables, &experiment)
}

/// Lets both talk; returns the lines of what each of them saw.
fn talk(program: &Path, folder: &Path) -> Outcome<[String; 2]> {
    let _namespaces = Namespaces::new()?;
    let logs: [PathBuf; 2] = ["a.txt", "b.txt"].map(|name| folder.join(name));
    let mut watchers: Vec<Child> = Vec::new();
    for (namespace, path) in logs.iter().enumerate() {
        let mut watch = inside(namespace, program, &["watch", DEVICES[namespace], MILLISECONDS]);
        watchers.push(watch.stdout(fs::File::create(path)?).spawn()?);
    }
    let mut server = inside(1, program, &["serve", PORT]).spawn()?;
    // Until it listens.
    thread::sleep(Duration::from_millis(300));
    let asked = command::quietly(&mut inside(0, program, &["ask", ADDRESSES[1], PORT, COUNT]));
    if asked.is_err() {
        _ = server.kill();
    }
    for watcher in watchers.iter_mut().chain([&mut server]) {
        watcher.wait()?;
    }
    asked?;
    Ok([fs::read_to_string(&logs[0])?, fs::read_to_string(&logs[1])?])
}

/// A segment that a namespace saw; in order of time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Segment {
    time: u64,
    /// Sent, not received.
    sent: bool,
    /// The numbers of its header.
    header: Vec<u32>,
}

/// Writes a trace of what a namespace saw; `is_wrong`: by the clock of b.
fn write(folder: &Path, lines: &str, is_wrong: bool) -> Outcome {
    fs::create_dir_all(folder)?;
    let host = folder.file_name().and_then(|name| name.to_str()).unwrap_or("a");
    fs::write(folder.join("metadata"), METADATA.replace("HOST", host))?;
    let mut segments: Vec<Segment> = Vec::new();
    for line in lines.lines() {
        let mut words = line.split(' ');
        let time = words.next().unwrap_or_default().parse()?;
        let sent = words.next() == Some("sent");
        segments.push(Segment { time, sent, header: words.map(str::parse).collect::<Result<_, _>>()? });
    }
    // Packet sockets of a device deliver in order of time, but for the two directions.
    segments.sort();
    let first = segments.first().map_or(0, |segment| segment.time);
    let mut stream = Vec::new();
    for Segment { time: truth, sent, header } in segments {
        let [source, destination, from, to, seq, ack, flags] = header[..] else {
            return Err("a segment of seven numbers was expected".into());
        };
        let shown = if is_wrong { truth + AHEAD + (truth - first) * FAST_PPM / 1_000_000 } else { truth };
        // The events' ids in the metadata.
        stream.push(if sent { 1 } else { 2 });
        stream.extend(shown.to_le_bytes());
        stream.extend([source, destination].into_iter().flat_map(u32::to_be_bytes));
        stream.extend([from as u16, to as u16].into_iter().flat_map(u16::to_be_bytes));
        stream.extend([seq, ack].into_iter().flat_map(u32::to_be_bytes));
        stream.extend((flags as u16).to_be_bytes());
        stream.extend(truth.to_le_bytes());
    }
    Ok(fs::write(folder.join("channel0_0"), stream)?)
}

/// Every interval contains the truth; nothing is inverted.
fn judge(tables: &Value, experiment: &Path) -> Outcome {
    let table_of =
        |name: &str| tables.as_array().and_then(|tables| tables.iter().find(|table| table["table"] == name));
    let cell = |table: &str, row: usize, column: &str| {
        let table = table_of(table)?;
        let index = table["columns"].as_array()?.iter().position(|known| known["name"] == column)?;
        Some(table["rows"][row][index].clone())
    };
    let figure = |table, row, column| cell(table, row, column).and_then(|cell| cell.as_i64()).unwrap_or(-1);
    let mut script = Command::new(command::hodo());
    script.args(["script", "--events", "--quiet", "--format", "jsonl"]).arg(experiment);
    let text = command::capture(&mut script)?;
    let (mut errors, mut covered) = (Vec::new(), 0);
    for line in text.lines() {
        let event: Value = serde_json::from_str(line)?;
        let truth = event["fields"]["h"]["truth"].as_i64().ok_or("an event without the truth")?;
        let bound = |name: &str| event[name].as_i64();
        let Some((lower, upper)) = bound("lower_ns").zip(bound("upper_ns")) else { continue };
        covered += usize::from((lower..=upper).contains(&truth));
        errors.push(bound("ts").unwrap_or(0).abs_diff(truth));
    }
    errors.sort_unstable();
    let percentile = |percent: usize| errors.get(errors.len() * percent / 100).copied().unwrap_or(0);
    let pairs = figure("messages", 0, "pairs") + figure("messages", 0, "pairs_back");
    println!(
        "| segments matched | drift | half-width p50 | error p50 | error p99 | covered | inversions before, after |"
    );
    println!("|---|---|---|---|---|---|---|");
    println!(
        "| {pairs} | {:.3} ppm | {} ns | {} ns | {} ns | {covered} of {} | {}, {} |",
        -figure("clocks", 1, "drift_ppb") as f64 / 1e3,
        figure("clocks", 1, "half_width_median_ns"),
        percentile(50),
        percentile(99),
        errors.len(),
        figure("messages", 0, "violations_before"),
        figure("messages", 0, "violations_after"),
    );
    if pairs < 1_000 {
        Err("too few segments have two ends".into())
    } else if covered < errors.len() || errors.is_empty() {
        Err("an interval does not contain the truth".into())
    } else if figure("messages", 0, "violations_after") != 0 {
        Err("a segment comes before it was sent".into())
    } else {
        Ok(())
    }
}

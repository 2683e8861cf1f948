//! Our CTF 1.8 output, read by babeltrace2: every trace that we read can be exported, and other tools can read the
//! export.

use std::{fs, path::Path, process::Command};

use crate::run::{Folder, fixture, hodo};

/// Returns the lines that babeltrace2 prints for a trace, one per event.
#[track_caller]
fn babeltrace(trace: &str, label: &str) -> Vec<String> {
    let mut command = Command::new("babeltrace2");
    command.args(["--clock-seconds", "--no-delta"]).arg(trace);
    let ran = command
        .output()
        .unwrap_or_else(|error| panic!("babeltrace2 (`cargo xtask setup` installs it): {error}"));
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{label}: {stderr}");
    String::from_utf8_lossy(&ran.stdout).lines().map(str::to_owned).collect()
}

/// Returns the times and names of our events, in babeltrace2's form.
fn ours(input: &str) -> Vec<(Option<i64>, String)> {
    let script = hodo(&["script", "--events", "--format", "jsonl", "-q", input]).fine();
    let events = script.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let named = events.filter(|event| event["name"].is_string());
    let last_word = |name: &str| name.rsplit(' ').next().unwrap_or(name).to_owned();
    named.map(|event| (event["ts"].as_i64(), last_word(event["name"].as_str().unwrap()))).collect()
}

/// Parses a line of babeltrace2: seconds in brackets, if the trace has times, and the name before a colon.
fn theirs(line: &str) -> (Option<i64>, String) {
    let (time, rest) = match line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
        Some((time, rest)) => (Some(time), rest),
        None => (None, line),
    };
    let nanos = time.map(|time| {
        let (sign, time) = time.strip_prefix('-').map_or((1, time), |time| (-1, time));
        let (seconds, nanos) = time.split_once('.').unwrap();
        sign * (seconds.parse::<i64>().unwrap() * 1_000_000_000 + nanos.parse::<i64>().unwrap())
    });
    // Names may contain colons too; fields or nothing follow the name.
    let name = rest.split(": ").next().unwrap_or(rest).trim_end_matches(':');
    (nanos, name.rsplit(' ').next().unwrap_or(name).to_owned())
}

/// Exports a trace, and compares the events that babeltrace2 reads with ours.
#[track_caller]
fn check(input: &str, label: &str) {
    let folder = Folder::new();
    let output = folder.file("new");
    hodo(&["export", "--to", "ctf", "-q", "-o", &output, input]).fine();
    let (mut our, mut their) = (ours(input), Vec::new());
    their.extend(babeltrace(&output, label).iter().map(|line| theirs(line)));
    // Events of the same time have no order.
    our.sort();
    their.sort();
    assert_eq!(our, their, "{label}");
    assert!(!our.is_empty(), "{label}");
}

#[test]
fn every_fixture_is_written_so_that_babeltrace2_reads_it() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let within = |folder: &str| {
        let entries = fs::read_dir(fixtures.join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let is_trace =
        |path: &&std::path::PathBuf| path.is_dir() || path.extension().is_some_and(|end| end == "dat");
    let mut inputs: Vec<_> = ["ctf", "ftrace"].iter().flat_map(|folder| within(folder)).collect();
    inputs.retain(|path| is_trace(&path));
    inputs.push(fixtures.join("perf/events.data"));
    inputs.sort();
    assert!(inputs.len() >= 8);
    for input in inputs {
        check(input.to_str().unwrap(), &input.display().to_string());
    }
}

#[test]
fn a_board_is_read_as_babeltrace2_reads_it() {
    for (part, count) in [("master", 936), ("slave-0", 1841), ("slave-1", 2360), ("slave-2", 1859)] {
        let trace = &fixture(&format!("ctf/board/{part}"));
        let their: Vec<_> = babeltrace(trace, part).iter().map(|line| theirs(line)).collect();
        assert_eq!((ours(trace), their.len()), (their, count), "{part}");
    }
}

/// The shape of a trace: headers and contexts, and the number of stream and event classes.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Members of the packet header.
    header: &'static str,
    /// Members of the packet context.
    context: &'static str,
    /// Members of the event header.
    event: &'static str,
    clock: &'static str,
    /// Ids of the event classes; only one if headers have no id.
    ids: &'static [u8],
    /// Id of the stream class.
    stream: Option<u8>,
}

impl Shape {
    fn metadata(&self) -> String {
        let block = |name: &str, members: &str| match members {
            "" => String::new(),
            members => format!("{name} := struct {{ {members} }};"),
        };
        let stream = self.stream.map(|id| format!("id = {id};")).unwrap_or_default();
        let of_stream = self.stream.map(|id| format!("stream_id = {id};")).unwrap_or_default();
        let events: String = self
            .ids
            .iter()
            .map(|id| {
                let id_of = if *id > 0 { format!("id = {id};") } else { String::new() };
                format!("event {{ name = e{id}; {id_of} {of_stream} fields := struct {{ u8 _x; }}; }};\n")
            })
            .collect();
        format!(
            "/* CTF 1.8 */
            typealias integer {{ size = 8; }} := u8; typealias integer {{ size = 16; }} := u16;
            typealias integer {{ size = 32; }} := u32; typealias integer {{ size = 64; }} := u64;
            trace {{ major = 1; minor = 8; byte_order = le; uuid = \"00010203-0405-0607-0809-0a0b0c0d0e0f\"; {} }};
            {}
            stream {{ {stream} {} {} }};
            {events}",
            block("packet.header", self.header),
            self.clock,
            block("packet.context", self.context),
            block("event.header", self.event),
        )
    }

    /// Returns two packets of two events, or one packet if nothing contains its size.
    fn stream(&self, class: u8) -> Vec<u8> {
        let count = if self.context.contains("_size") { 2 } else { 1 };
        (0..count).flat_map(|number| self.packet(class, number)).collect()
    }

    fn packet(&self, class: u8, number: u8) -> Vec<u8> {
        let time = |event: u8| 20 * number + 5 * event + class + 10;
        let mut events = Vec::new();
        for event in 0..2 {
            let id = self.ids[usize::from(event) % self.ids.len()];
            for member in members(self.event) {
                match member {
                    ("u8", "id") => events.push(id),
                    ("u8", "timestamp") => events.push(time(event)),
                    (_, "timestamp") => events.extend(u32::from(time(event)).to_le_bytes()),
                    (_, "other") => events.push(0xaa),
                    member => panic!("{member:?}"),
                }
            }
            events.push(event + 1);
        }
        let size = |member: &(&str, &str)| match member.0 {
            "u8" => 1,
            "u16" => 2,
            "u32" => 4,
            _ => 8,
        };
        let before: usize =
            members(self.header).chain(members(self.context)).map(|member| size(&member)).sum();
        // The UUID has 16 bytes, and counts as one u8 above.
        let before = before + 15 * usize::from(self.header.contains("uuid"));
        let bits = 8 * (before + events.len()) as u64;
        let mut bytes = Vec::new();
        for member in members(self.header).chain(members(self.context)) {
            let value: u64 = match member.1 {
                "magic" => 0xC1FC_1FC1,
                "uuid[16]" => {
                    bytes.extend(0..16u8);
                    continue;
                }
                "stream_id" => class.into(),
                "stream_instance_id" => 4,
                "content_size" | "packet_size" => bits,
                "timestamp_begin" => u64::from(time(0)) - 1,
                "timestamp_end" => u64::from(time(2)),
                "packet_seq_num" => number.into(),
                "events_discarded" => 0,
                "_cpu_id" => 1,
                member => panic!("{member:?}"),
            };
            bytes.extend(&value.to_le_bytes()[..size(&member)]);
        }
        bytes.extend(events);
        bytes
    }
}

/// Parses the types and names of members.
fn members(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split(';').filter_map(|member| member.trim().split_once(' '))
}

const HEADERS: &[&str] = &[
    "",
    "u32 magic;",
    "u32 magic; u8 uuid[16];",
    "u8 uuid[16];",
    "u32 magic; u8 stream_id;",
    "u8 stream_id;",
    "u32 magic; u64 stream_instance_id;",
    "u32 magic; u8 uuid[16]; u32 stream_id; u64 stream_instance_id;",
];

const CONTEXTS: &[&str] = &[
    "",
    "u32 content_size;",
    "u32 packet_size;",
    "u16 packet_size; u16 content_size; u8 _cpu_id;",
    "u64 timestamp_begin; u64 timestamp_end; u32 content_size; u32 packet_size; u8 events_discarded; u8 packet_seq_num;",
    "u32 timestamp_begin; u32 packet_size;",
    "u8 _cpu_id;",
];

const EVENTS: &[&str] =
    &["", "u8 id;", "u32 timestamp;", "u32 timestamp; u8 id;", "u8 id; u8 timestamp;", "u8 other; u8 id;"];

const CLOCKS: &[&str] = &["", "clock { name = c; freq = 500000000; offset_s = 3; };"];

/// Every n-th shape is tested, because all of them take a minute. No member list has a length divisible by this number.
const STEP: usize = 5;

#[test]
fn every_shape_of_packets_and_events_is_written_so_that_babeltrace2_reads_it() {
    let mut shapes = Vec::new();
    for (header, context) in
        HEADERS.iter().flat_map(|header| CONTEXTS.iter().map(move |context| (header, context)))
    {
        for (event, clock) in EVENTS.iter().flat_map(|event| CLOCKS.iter().map(move |clock| (event, clock))) {
            let turn = shapes.len() / STEP;
            let ids: &[u8] = if event.contains("id;") { &[7, 3] } else { [&[0], &[5]][turn % 2] };
            let stream = [None, Some(0), Some(5)][turn % 3];
            let stream = if header.contains("stream_id") { stream.or(Some(5)) } else { stream };
            shapes.push(Shape { header, context, event, clock, ids, stream });
        }
    }
    for shape in shapes.iter().step_by(STEP) {
        let folder = Folder::new();
        folder.write("metadata", shape.metadata().as_bytes());
        folder.write("chan_0", &shape.stream(shape.stream.unwrap_or(0)));
        let input = folder.path().into_os_string().into_string().unwrap();
        check(&input, &format!("{shape:?}"));
    }
}

//! Traces of software events, from folder to lines.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::run::{Folder, fixture, hodo};

/// A clock that counts nanoseconds from 1970, packets with times, and events with a thread in their context.
pub(crate) const METADATA: &str = "/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le; uuid = \"00010203-0405-0607-0809-0a0b0c0d0e0f\"; };
env { hostname = \"host\"; };
clock { name = c; absolute = true; };
typealias integer { size = 8; } := u8;
typealias integer { size = 64; map = clock.c.value; } := time;
stream {
    packet.context := struct { time timestamp_begin; time timestamp_end; u8 packet_seq_num; u8 events_discarded; u8 cpu_id; integer { size = 16; } packet_size; };
    event.header := struct { u8 id; integer { size = 8; map = clock.c.value; } t; };
    event.context := struct { u8 _vtid; };
};
event { id = 1; name = \"a:one\"; fields := struct { integer { size = 8; base = 16; } x; string s; }; };
event { id = 2; name = \"b:two\"; fields := struct { enum : u8 { LOW = 1, HIGH = 2 } level; }; };
";

/// Returns a packet of a CPU, with the times of its begin and end, and the number of events discarded so far.
pub(crate) fn packet(cpu: u8, number: u8, times: Range<u64>, discarded: u8, events: &[&[u8]]) -> Vec<u8> {
    let events = events.concat();
    let mut bytes: Vec<u8> = [times.start, times.end].iter().flat_map(|time| time.to_le_bytes()).collect();
    bytes.extend([number, discarded, cpu]);
    bytes.extend(((21 + events.len() as u16) * 8).to_le_bytes());
    bytes.extend(events);
    bytes
}

/// Writes a trace of two CPUs, and files that a reader must ignore.
fn write(folder: &Path) {
    fs::create_dir_all(folder.join("index")).unwrap();
    fs::write(folder.join("metadata"), METADATA).unwrap();
    fs::write(folder.join("index/cpu_0.idx"), b"no index").unwrap();
    fs::write(folder.join(".hidden"), b"no stream").unwrap();
    fs::write(folder.join("empty"), b"").unwrap();
    let first = packet(0, 0, 10..40, 0, &[&[1, 10, 7, 0xab, b'h', b'i', 0], &[2, 30, 7, 2]]);
    let second = packet(0, 1, 50..60, 3, &[&[2, 55, 8, 1]]);
    fs::write(folder.join("cpu_0"), [first, second].concat()).unwrap();
    let other = packet(1, 0, 5..70, 0, &[&[2, 20, 9, 1], &[2, 30, 9, 1], &[1, 65, 7, 0, 0]]);
    fs::write(folder.join("cpu_1"), other).unwrap();
}

fn script(folder: &Path, arguments: &[&str]) -> String {
    let input = folder.to_str().unwrap();
    hodo(&[&["script", "--events", "-q"], arguments, &[input]].concat()).fine().stdout
}

#[test]
fn a_stream_block_after_an_event_block_in_a_comment_is_found() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let plain = script(folder.path(), &[]);
    // The search for packets uses reduced metadata, without the text that looks like an event block.
    let hidden = METADATA.replace("stream {", "/*\nevent {\n*/ stream {");
    fs::write(folder.path().join("metadata"), hidden).unwrap();
    assert_eq!(script(folder.path(), &[]), plain);
}

#[test]
fn a_field_within_a_field_is_named_with_a_dot() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let nested = METADATA
        .replace("base = 16; } x;", "base = 16; } x; } a;")
        .replace("fields := struct { integer", "fields := struct { struct { integer");
    fs::write(folder.path().join("metadata"), nested).unwrap();
    let events = |condition: &str| script(folder.path(), &["--where", condition]).matches("vtid").count();
    assert_eq!((events("a.x == 0xab"), events("a.x < 0xab"), events("not a.x == 0xab")), (1, 1, 5));
    assert_eq!((events("a.y == 0xab"), events("x.a == 0xab")), (0, 0));
}

#[test]
fn events_of_all_streams_come_in_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let text = script(folder.path(), &[]);
    let expected = "\
[00:00:00.000000010] (+?.?????????) host a:one: { cpu_id = 0 }, { vtid = 7 }, { x = 0xAB, s = \"hi\" }
[00:00:00.000000020] (+0.000000010) host b:two: { cpu_id = 1 }, { vtid = 9 }, { level = ( \"LOW\" : container = 1 ) }
[00:00:00.000000030] (+0.000000010) host b:two: { cpu_id = 0 }, { vtid = 7 }, { level = ( \"HIGH\" : container = 2 ) }
[00:00:00.000000030] (+0.000000000) host b:two: { cpu_id = 1 }, { vtid = 9 }, { level = ( \"LOW\" : container = 1 ) }
[00:00:00.000000040] # 3 events lost in cpu_0 after 00:00:00.000000040 before 00:00:00.000000060
[00:00:00.000000055] (+0.000000025) host b:two: { cpu_id = 0 }, { vtid = 8 }, { level = ( \"LOW\" : container = 1 ) }
[00:00:00.000000065] (+0.000000010) host a:one: { cpu_id = 1 }, { vtid = 7 }, { x = 0x0, s = \"\" }
";
    assert_eq!(text, expected);
    for cut in [&["-j1", "--chunk-size", "1K"][..], &["-j3", "--chunk-size", "1K"], &["--limit", "100"]] {
        assert_eq!(script(folder.path(), cut), expected, "{cut:?}");
    }
    assert_eq!(script(folder.path(), &["--limit", "2"]).lines().count(), 2);
}

#[test]
fn a_loss_in_the_first_packet_of_a_stream_leaves_events_in_order() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let first = packet(0, 0, 10..40, 2, &[&[1, 10, 7, 0xab, b'h', b'i', 0], &[2, 30, 7, 2]]);
    fs::write(folder.path().join("cpu_0"), first).unwrap();
    let times = |text: &str| text.lines().map(|line| line[10..20].to_owned()).collect::<Vec<_>>();
    let text = script(folder.path(), &[]);
    assert!(
        text.contains("# 2 events lost in cpu_0 after 00:00:00.000000010 before 00:00:00.000000040"),
        "{text}"
    );
    let mut sorted = times(&text);
    sorted.sort();
    assert_eq!(times(&text), sorted, "{text}");
    assert_eq!(script(folder.path(), &["-j3", "--chunk-size", "1K"]), text);
    let input = folder.path().to_str().unwrap();
    let lost = hodo(&["report", "lost", "--by", "longest", "--format", "csv", "-q", input]);
    assert!(lost.stdout.contains("cpu_0,2,0,30,10,40"), "{}", lost.stdout);
}

#[test]
fn json_has_every_field_and_context() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let text = script(folder.path(), &["--format", "jsonl", "--event", "a:*"]);
    let name = folder.path().canonicalize().unwrap();
    let name = name.file_name().unwrap().to_str().unwrap();
    let expected = format!(
        "{{\"ts\":10,\"trace\":\"{name}\",\"stream\":\"cpu_0\",\"name\":\"a:one\",\"fields\":{{\"x\":171,\"s\":\"hi\"}},\"context\":{{\"cpu_id\":0,\"vtid\":7}}}}\n\
         {{\"ts\":40,\"trace\":\"{name}\",\"stream\":\"cpu_0\",\"lost_events\":3,\"after_ns\":40,\"before_ns\":60}}\n\
         {{\"ts\":65,\"trace\":\"{name}\",\"stream\":\"cpu_1\",\"name\":\"a:one\",\"fields\":{{\"x\":0,\"s\":\"\"}},\"context\":{{\"cpu_id\":1,\"vtid\":7}}}}\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn events_are_chosen_by_name_field_thread_cpu_and_time() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    for (arguments, count) in [
        (&["--tid", "7"][..], 3),
        (&["--tid", "7,8"], 4),
        (&["--cpu-list", "1"], 3),
        (&["--cpu-list", "0-1"], 6),
        (&["--event", "b:*"], 4),
        (&["--event", "*one", "--event", "b:two"], 6),
        (&["--where", "level == HIGH"], 1),
        (&["--where", "x >= 0xab or level == 1 and vtid != 9"], 2),
        (&["--where", "not s == ''"], 5),
        (&["--time", "0.00000002,0.00000003"], 1),
        (&["--time", "+0.00000005,"], 2),
        (&["--event", "nothing"], 0),
    ] {
        let text = script(folder.path(), arguments);
        assert_eq!(text.lines().filter(|line| !line.contains('#')).count(), count, "{arguments:?}\n{text}");
    }
}

#[test]
fn that_no_event_is_selected_is_said() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/ctf/ust2.16-ctf2");
    let none = hodo(&["script", "--events", "-q", "--event", "nothing", trace]).fine();
    assert!(none.stdout.is_empty() && none.stderr.contains("no event is selected"), "{none:?}");
    for limit in ["0", "1"] {
        let some = hodo(&["script", "--events", "-q", "--limit", limit, trace]).fine();
        assert!(!some.stderr.contains("no event is selected"), "{some:?}");
    }
}

#[test]
fn counts_and_info_agree_on_what_is_in_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let input = folder.path().to_str().unwrap();
    let table = hodo(&["report", "count", "--format", "json", input]).fine().json();
    assert_eq!(table["rows"], serde_json::json!([["b:two", 4], ["a:one", 2]]));
    let summary = serde_json::json!({"events": 6, "events_lost": 3, "packets_lost": 0, "streams": 2, "begin_ns": 10, "end_ns": 65});
    assert_eq!(table["summary"], summary);
    let info = hodo(&["info", "--format", "json", input]).fine().json();
    let trace = &info["traces"][0];
    assert_eq!(
        (&trace["format"], &trace["begin_ns"], &trace["end_ns"]),
        (&"CTF 1.8".into(), &5.into(), &70.into())
    );
    assert_eq!(trace["streams"][0]["events_lost"], 3);
    let info = hodo(&["info", input]).fine().stdout;
    assert!(info.contains("event classes"));
    // The trace's notes mention unusable files and their consequences.
    assert!(info.contains("cpu_0: the index of this file was not used"), "{info}");
    assert!(hodo(&["report", "count", input]).fine().stderr.contains("hodo: cpu_0: the index"));
}

#[test]
fn fact_26_folders_with_one_uuid_are_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("one"));
    write(&folder.path().join("two"));
    let input = folder.path().to_str().unwrap();
    let table = hodo(&["report", "count", "--format", "json", input]).fine().json();
    // Without stream ids, each file is a stream.
    assert_eq!((&table["summary"]["events"], &table["summary"]["streams"]), (&12.into(), &4.into()));
}

#[test]
fn what_lies_outside_of_the_time_is_not_read() {
    let folder = Folder::new();
    let whole = PathBuf::from(fixture("ctf/barectf3.1"));
    let mut stream = fs::read(whole.join("stream")).unwrap();
    // Overwrites events in the first packet, which has 445 bytes.
    stream[120..440].fill(0xff);
    folder.write("metadata", &fs::read(whole.join("metadata")).unwrap());
    folder.write("stream", &stream);
    let count = |input: &Path, time: &str| {
        let report = ["report", "count", "-q", "--format", "json", "--time", time];
        hodo(&[&report[..], &[input.to_str().unwrap()]].concat()).json()
    };
    let losses = |table: &Value| table["loss"].as_array().unwrap().len();
    assert!(losses(&count(&folder.path(), "0%-20%")) > 0);
    let late = count(&folder.path(), "50%-100%");
    assert_eq!((losses(&late), late), (0, count(&whole, "50%-100%")));
}

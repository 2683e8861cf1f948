//! CTF traces with little metadata, or with nothing readable.

use std::fs;

use crate::run::{Folder, fixture, hodo};

const TYPES: &str = "/* CTF 1.8 */
typealias integer { size = 8; } := u8; typealias integer { size = 32; } := u32;
trace { major = 1; minor = 8; byte_order = le; };
";
/// The form in which Zephyr writes: no clock, no packets, a time and an id before each event.
const ZEPHYR: &str = "stream { event.header := struct { u32 timestamp; u8 id; }; };
event { name = thread_switched_in; id = 0x10; fields := struct { u32 thread_id; }; };
event { name = isr_enter; id = 0x1b; };
";

/// Writes a folder with metadata and one stream, and returns it with its path.
fn trace(metadata: &str, stream: &[u8]) -> (Folder, String) {
    let folder = Folder::new();
    folder.write("metadata", format!("{TYPES}{metadata}").as_bytes());
    folder.write("chan_0", stream);
    let path = folder.path().into_os_string().into_string().unwrap();
    (folder, path)
}

/// Returns three events; the counter wraps before the last.
fn zephyr() -> Vec<u8> {
    let event = |time: u32, id: u8, fields: &[u8]| [&time.to_le_bytes()[..], &[id], fields].concat();
    [event(100, 0x10, &[7, 0, 0, 0]), event(250, 0x1b, &[]), event(50, 0x1b, &[])].concat()
}

#[test]
fn times_without_a_clock_are_nanoseconds_unless_the_command_line_says_otherwise() {
    let (_folder, path) = trace(ZEPHYR, &zephyr());
    let times = |arguments: &[&str]| {
        let ran = hodo(&[&["script", "--events", "--format", "jsonl"], arguments, &[&path]].concat()).fine();
        let events = ran.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        (events.map(|event| event["ts"].as_i64().unwrap()).collect::<Vec<_>>(), ran.stderr)
    };
    let (usual, note) = times(&[]);
    assert_eq!(usual, [100, 250, 4_294_967_346]);
    assert!(note.contains("it describes no clock"), "{note}");
    let (slower, note) = times(&["--clock-frequency", "1000000"]);
    assert_eq!(slower, [100_000, 250_000, 4_294_967_346_000]);
    assert_eq!(note, "");
    // Time windows work, too.
    assert_eq!(times(&["-q", "--time", "0%-50%"]).0, [100, 250]);
    assert_eq!(times(&["-q", "--time", "+0.0000001,"]).0, [250, 4_294_967_346]);
    let info = hodo(&["info", &path]).fine().stdout;
    assert!(info.contains("begin") && !info.contains("none: "), "{info}");
    let ran = hodo(&["report", "count", "--clock-frequency", "5", &fixture("ctf/barectf3.1")]);
    assert!(ran.code == 2 && ran.stderr.contains("records its clock's frequency"), "{ran:?}");
}

#[test]
fn info_says_why_there_are_no_times() {
    let plain = "event { name = e; fields := struct { u8 x; }; };";
    let clock = |name: &str| format!("clock {{ name = {name}; }};");
    for (metadata, stream, why) in [
        (plain.to_owned(), &[1u8][..], "describes no clock"),
        (clock("c") + plain, &[1], "no header field is a value of the clock `c`"),
        (clock("a") + &clock("b") + ZEPHYR, &zephyr(), "no header field is a value of one of the 2 clocks"),
        (ZEPHYR.to_owned(), &[], "no files except the metadata"),
        (
            "stream { packet.context := struct { u32 packet_size; }; event.header := struct { u32 timestamp; }; };"
                .to_owned() + plain,
            &32u32.to_le_bytes(),
            "no packet contains a time",
        ),
    ] {
        let (_folder, path) = trace(&metadata, stream);
        let text = hodo(&["info", &path]).fine().stdout;
        assert!(text.contains("none: ") && text.contains(why), "{why}: {text}");
        let json = hodo(&["info", "--format", "json", &path]).fine().json();
        assert!(json["traces"][0]["no_times"].as_str().unwrap().contains(why), "{why}: {json}");
    }
}

#[test]
fn a_trace_of_which_nothing_can_be_read_is_no_success() {
    let packets = "trace { packet.header := struct { u32 magic; }; };
        stream { packet.context := struct { u32 packet_size; }; event.header := struct { u8 id; }; };
        event { name = e; id = 1; };";
    let packet = |magic: u32, id: u8| [&magic.to_le_bytes()[..], &72u32.to_le_bytes(), &[id]].concat();
    let (good, bad, unknown) =
        (packet(0xC1FC_1FC1, 1), packet(0xC1FC_1FC1, 1)[1..].to_vec(), packet(0xC1FC_1FC1, 9));
    let commands: [&[&str]; 3] = [&["script", "--events"], &["report", "count"], &["report", "all"]];
    for (stream, code) in [
        (good.clone(), 0),
        (bad.clone(), 3),
        (vec![0; 99], 3),
        (unknown.clone(), 3),
        ([good.clone(), bad].concat(), 0),
        ([unknown, good].concat(), 0),
        // An empty packet is valid.
        ([&0xC1FC_1FC1_u32.to_le_bytes()[..], &64u32.to_le_bytes()].concat(), 0),
        (Vec::new(), 0),
    ] {
        let (folder, path) = trace(packets, &stream);
        for command in commands {
            let ran = hodo(&[command, &[&path]].concat());
            assert_eq!(ran.code, code, "{stream:?} {command:?}: {ran:?}");
            assert_eq!(ran.stderr.contains("none of its events can be read"), code == 3, "{ran:?}");
        }
        let ran = hodo(&["export", "--to", "ctf", "-o", &folder.file("new"), &path]);
        assert_eq!(ran.code, code, "{stream:?}: {ran:?}");
    }
    let (_folder, path) = trace(packets, &[0; 99]);
    assert_eq!(hodo(&["info", &path]).code, 3);
}

#[test]
fn a_folder_without_a_trace_is_reported_as_one() {
    let (folder, output) = (Folder::new(), Folder::new());
    let path = folder.path().into_os_string().into_string().unwrap();
    let output = output.file("new");
    let commands: [&[&str]; 5] = [
        &["info"],
        &["script", "--events"],
        &["report", "count"],
        &["report", "functions"],
        &["export", "--to", "ctf", "-o", &output],
    ];
    for command in commands {
        let ran = hodo(&[command, &[&path]].concat());
        assert!(ran.code == 3 && ran.stderr.contains("a folder without a trace"), "{command:?}: {ran:?}");
        assert!(ran.stderr.contains("no `metadata`"), "{ran:?}");
    }
    folder.write("metadata", b"\n");
    let ran = hodo(&["info", &path]);
    assert!(ran.code == 3 && ran.stderr.contains("metadata: is empty"), "{ran:?}");
}

#[test]
fn what_is_wrong_with_many_files_is_reported_once() {
    let (folder, path) = trace("event { name = e; fields := struct { u8 x; }; };", &[1]);
    fs::create_dir(folder.path().join("index")).unwrap();
    for number in 0..40 {
        folder.write(&format!("chan_{number}"), &[1]);
        folder.write(&format!("index/chan_{number}.idx"), b"no index");
    }
    let text = hodo(&["report", "count", &path]).fine().stderr;
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("chan_0: the index of this file was not used") && text.contains("39 more files"),
        "{text}"
    );
    let info = hodo(&["info", &path]).fine().stdout;
    assert_eq!(info.matches("was not used").count(), 1, "{info}");
    let json = hodo(&["info", "--format", "json", &path]).fine().json();
    assert_eq!(json["traces"][0]["notes"].as_array().unwrap().len(), 40);
}

//! `hodo sync`: two traces on one timeline by the messages between them.

use serde_json::Value;

use crate::{
    run::{Folder, Ran, fixture, hodo, rows},
    talk::{CLIENT_OFFSET, Side, Slew, Step, Talk},
};

/// A conversation in a folder, with the paths of both traces.
struct Written {
    folder: Folder,
    client: String,
    server: String,
}

fn written(talk: &Talk) -> Written {
    let folder = Folder::new();
    talk.write(&folder.path());
    let (client, server) = (folder.file("client"), folder.file("server"));
    Written { folder, client, server }
}

fn sync(arguments: &[&str]) -> Ran {
    hodo(&[&["sync", "-q", "--format", "json"], arguments].concat())
}

/// A row of a table, by the names of columns.
fn row(tables: &Value, name: &str, number: usize) -> Value {
    let table = tables.as_array().unwrap().iter().find(|table| table["table"] == name).unwrap();
    rows(table)[number].clone()
}

/// Events of a script in JSON lines.
fn events(input: &str, arguments: &[&str]) -> Vec<Value> {
    let ran = hodo(&[&["script", "--events", "-q", "--format", "jsonl", input], arguments].concat()).fine();
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The true time of a tick on the timeline of the client.
fn truth(event: &Value) -> i64 {
    CLIENT_OFFSET as i64 * 1_000_000_000 + event["fields"]["truth"].as_i64().unwrap()
}

#[test]
fn two_traces_that_talk_tcp_come_onto_one_timeline() {
    let Written { folder, client, server } = written(&Talk::of_exchanges(1000));
    // Unsynchronised traces can't be merged: nothing says which event was first.
    let ran = hodo(&["script", "--events", "-q", &client, &server]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("`one` and `two`") && ran.stderr.contains("hodo sync"), "{}", ran.stderr);
    let file = folder.file("experiment.toml");
    let tables = sync(&["-o", &file, &client, &server]).fine().json();
    let messages = row(&tables, "messages", 0);
    assert_eq!((&messages["pairs"], &messages["pairs_back"]), (&1000.into(), &1000.into()));
    assert!(messages["violations_before"].as_u64() > Some(0), "{messages:?}");
    assert_eq!((&messages["violations_after"], &messages["dropped"]), (&0.into(), &0.into()));
    let clock = row(&tables, "clocks", 1);
    // The clock is 37 ppm fast, plus or minus its wander over 6 s.
    let drift = clock["drift_ppb"].as_i64().unwrap();
    assert!((-38_500..-36_500).contains(&drift), "{clock:?}");
    assert_eq!(clock["bounded"], "yes");
    assert!(clock["half_width_median_ns"].as_u64() < Some(70_000), "{clock:?}");
    let ticks = events(&file, &["--event", "tick"]);
    assert_eq!(ticks.len(), 2000);
    let bound = |event: &Value, name: &str| event[name].as_i64().unwrap();
    for tick in &ticks {
        let truth = truth(tick);
        assert!((bound(tick, "lower_ns")..=bound(tick, "upper_ns")).contains(&truth), "{tick}");
        assert!(bound(tick, "ts").abs_diff(truth) < 30_000, "{tick}");
    }
    assert!(ticks.is_sorted_by_key(|tick| bound(tick, "ts")));
}

#[test]
fn an_experiment_is_an_input_of_every_command() {
    let Written { folder, client, server } = written(&Talk::of_exchanges(100));
    let file = folder.file("experiment.toml");
    sync(&["-o", &file, &client, &server]).fine();
    let text = hodo(&["script", "--events", "-q", &file]).fine().stdout;
    assert_eq!(text.lines().count(), 600);
    let first_line_of = |host: &str| text.lines().find(|line| line.contains(host)).unwrap().to_owned();
    assert!(
        first_line_of(" two ").contains(" ±") && first_line_of(" two ").contains(" µs two "),
        "{}",
        first_line_of(" two ")
    );
    assert!(!first_line_of(" one ").contains('±'), "{}", first_line_of(" one "));
    // Both hosts tick at the same time: the order of these ticks is marked as unknown.
    assert!(text.lines().filter(|line| line.contains('≈') && line.contains("tick")).count() >= 90, "{text}");
    // Messages are in order.
    let names: Vec<Value> = events(&file, &["--event", "net_*"]);
    for pair in names.chunks(2) {
        assert_eq!(
            (&pair[0]["name"], &pair[1]["name"]),
            (&"net_dev_queue".into(), &"net_if_receive_skb".into())
        );
    }
    let any = events(&file, &["-j", "3", "--chunk-size", "1K"]);
    assert_eq!(any, events(&file, &["-j", "1"]));
    let info = hodo(&["info", "-q", "--format", "json", &file]).fine().json();
    assert_eq!(info["clocks"][0]["relation"], "reference");
    assert_eq!(info["clocks"][1]["relation"], "synchronised");
    assert!(info["clocks"][1]["how"].as_str().unwrap().contains("200 messages (bounds): ±"), "{info}");
    let count = hodo(&["report", "count", "-q", "--format", "json", &file]).fine().json();
    assert_eq!((&count["summary"]["events"], count["loss"].as_array().unwrap().len()), (&600.into(), 0));
    assert!(count["summary"]["uncertainty_ns"].as_u64() > Some(1_000), "{count}");
    // Both traces reach into the second half of the timeline.
    let late = events(&file, &["--time", "50%-100%", "--event", "tick"]);
    assert!((95..=105).contains(&late.len()), "{}", late.len());
    // The folder may move; another trace may not take the place of one.
    let home = folder.path();
    let moved = home.with_extension("moved");
    std::fs::rename(&home, &moved).unwrap();
    let file = moved.join("experiment.toml").display().to_string();
    hodo(&["info", "-q", &file]).fine();
    Talk::of_exchanges(50).write(&moved);
    let ran = hodo(&["info", "-q", &file]);
    assert!(ran.code == 2 && ran.stderr.contains("another trace was synchronised"), "{ran:?}");
    std::fs::rename(&moved, &home).unwrap();
}

#[test]
fn every_method_and_reference_gives_a_timeline() {
    let Written { folder, client, server } = written(&Talk::of_exchanges(200));
    for method in ["bounds", "hull", "regression"] {
        let file = folder.file(&format!("{method}.toml"));
        sync(&["--method", method, "-o", &file, &client, &server]).fine();
        let ticks = events(&file, &["--event", "tick"]);
        let off = ticks.iter().map(|tick| tick["ts"].as_i64().unwrap().abs_diff(truth(tick)));
        assert!(off.max() < Some(60_000), "{method}");
    }
    let tables = sync(&["--reference", "server", &client, &server]).fine().json();
    assert!(row(&tables, "clocks", 0)["clock"].as_str().unwrap().ends_with("server"));
    assert!(row(&tables, "clocks", 1)["drift_ppb"].as_i64() > Some(36_500), "{tables}");
    let ran = sync(&["--reference", "nobody", &client, &server]);
    assert!(ran.code == 2 && ran.stderr.contains("nobody"), "{ran:?}");
    let picture = hodo(&["sync", "-q", &client, &server]).fine().stdout;
    assert!(picture.contains("offset of ") && picture.matches('●').count() == 64, "{picture}");
}

#[test]
fn fields_of_any_events_match() {
    let Written { folder: _folder, client, server } = written(&Talk::of_exchanges(50));
    let rule = "net_dev_queue.h.network_header.ipv4.transport_header.tcp.seq = net_if_receive_skb.h.network_header.ipv4.transport_header.tcp.seq";
    let tables = sync(&["--match", rule, &client, &server]).fine().json();
    assert_eq!(row(&tables, "matches", 0)["pairs"], 100);
    let ran = sync(&["--match", "a.x = a.x", &client, &server]);
    assert!(ran.code == 2 && ran.stderr.contains("can't be both"), "{ran:?}");
    // Ticks have no other end.
    let ran = sync(&["--match", "tick.truth = tock.truth", &client, &server]);
    assert!(ran.code == 3 && ran.stderr.contains("no event here has its other end there"), "{ran:?}");
}

#[test]
fn times_with_a_bound_on_one_side_are_shown_as_such() {
    let bounded = |talk: &Talk| {
        let Written { folder: _folder, client, server } = written(talk);
        let ran = sync(&[&client, &server]);
        let clock = row(&ran.json(), "clocks", 1);
        (ran.code, clock["bounded"].as_str().unwrap().to_owned())
    };
    let mut talk = Talk::default();
    talk.tick(1_000_000);
    assert_eq!(bounded(&talk), (3, "no".to_owned()));
    talk.segment(Side::Client, 1, Some(2_000_000), Some(2_100_000));
    assert_eq!(bounded(&talk), (0, "from below only".to_owned()));
    for index in 2..20 {
        let sent = u64::from(index) * 1_000_000;
        talk.segment(Side::Client, index, Some(sent), Some(sent + 100_000));
    }
    assert_eq!(bounded(&talk), (0, "from below only".to_owned()));
    let mut back = Talk::default();
    back.segment(Side::Server, 1, Some(2_000_000), Some(2_100_000));
    assert_eq!(bounded(&back), (0, "from above only".to_owned()));
    // Times with a bound on one side only are shown as such.
    let Written { folder, client, server } = written(&talk);
    let file = folder.file("experiment.toml");
    sync(&["-o", &file, &client, &server]).fine();
    let tick = &events(&file, &["--event", "tick", "--where", "truth == 1000000"])[..];
    let server = tick.iter().find(|tick| tick["trace"] == "server").unwrap();
    assert!(server["upper_ns"].is_null() && server["lower_ns"].as_i64() <= Some(truth(server)), "{server}");
    assert!(hodo(&["script", "--events", "-q", &file]).fine().stdout.contains(" +∞ two "));
}

/// NTP slews: the frequency changes at once, by more than any crystal does.
#[test]
fn a_slewed_clock_keeps_the_truth_in_its_intervals() {
    let mut talk = Talk::of_exchanges(1600);
    talk.slew = Some(Slew { from: 3_000_000_000, duration: 2_500_000_000, ppm: 480 });
    let Written { folder, client, server } = written(&talk);
    let file = folder.file("experiment.toml");
    let ran = sync(&["-o", &file, &client, &server]);
    assert!(ran.stderr.contains("server: its frequency changes more than clocks were assumed to"), "{ran:?}");
    assert!(ran.stderr.contains("slews are of at most 500000 ppb"), "{ran:?}");
    let tables = ran.fine().json();
    assert_eq!(tables[0]["summary"]["clocks_beyond_bounds"], 1);
    let clock = row(&tables, "clocks", 1);
    assert!(clock["drift_bound_ppb"].as_u64() > Some(480_000), "{clock:?}");
    assert!(clock["wander_bound_ppb_per_s"].is_null() && clock["contradictions"] == 0, "{clock:?}");
    assert_eq!(row(&tables, "messages", 0)["dropped"], 0);
    for tick in events(&file, &["--event", "tick"]) {
        let [lower, upper] = ["lower_ns", "upper_ns"].map(|name| tick[name].as_i64().unwrap());
        assert!((lower..=upper).contains(&truth(&tick)), "{tick}");
    }
}

/// The only exchange lies long after the first tick and long before the second: the widths in the table cover the wide
/// intervals of these ticks too.
#[test]
fn half_widths_are_those_of_events() {
    let mut talk = Talk::of_exchanges(1);
    [100_000_000, 9_000_000_000].into_iter().for_each(|time| talk.tick(time));
    let Written { folder, client, server } = written(&talk);
    let file = folder.file("experiment.toml");
    let tables = sync(&["-o", &file, &client, &server]).fine().json();
    let widths = events(&file, &["--event", "tick"])
        .into_iter()
        .map(|tick| (tick["upper_ns"].as_i64().unwrap() - tick["lower_ns"].as_i64().unwrap()) as u64 / 2);
    let (most, clock) = (widths.max().unwrap(), row(&tables, "clocks", 1));
    assert!(most > 1_000_000, "{most}");
    let max = clock["half_width_max_ns"].as_u64().unwrap();
    assert!(max >= most && max < most + most / 100, "{clock:?}, and an event has {most}");
    assert!(clock["half_width_median_ns"].as_u64() > Some(most / 4), "{clock:?}");
}

#[test]
fn a_step_is_listed_with_its_time_and_size() {
    let (truth, jump) = (2_001_000_000, 2_000_000);
    let mut talk = Talk::of_exchanges(400);
    talk.step = Some(Step { time: truth, jump });
    let Written { folder: _folder, client, server } = written(&talk);
    let tables = sync(&[&client, &server]).fine().json();
    assert_eq!(row(&tables, "clocks", 1)["steps"], 1);
    let step = row(&tables, "steps", 0);
    let value = |name: &str| step[name].as_i64().unwrap();
    let time = CLIENT_OFFSET as i64 * 1_000_000_000 + truth as i64;
    assert!(step["clock"].as_str().unwrap().ends_with("server"), "{step:?}");
    assert!(value("after_ns") <= time && time <= value("before_ns"), "{step:?}");
    assert!(value("before_ns") - value("after_ns") < 25_000_000, "{step:?}");
    assert!((value("jump_least_ns")..=value("jump_most_ns")).contains(&(jump as i64)), "{step:?}");
}

#[test]
fn messages_that_no_clock_explains_are_no_result() {
    let mut talk = Talk::default();
    for index in 0..400u32 {
        let (sent, delay) =
            (1_000_000_000 + u64::from(index) * 5_000_000, u64::from(index * 7_919 % 400) * 100_000);
        talk.segment(Side::Client, index, Some(sent), Some(sent + delay - 20_000_000));
        talk.segment(Side::Server, index, Some(sent), Some(sent + delay - 20_000_000));
    }
    let Written { folder, client, server } = written(&talk);
    let file = folder.file("experiment.toml");
    let ran = sync(&["-o", &file, &client, &server]);
    assert!(
        ran.code == 3 && ran.stderr.contains("contradict the others, whatever their clocks did"),
        "{ran:?}"
    );
    assert!(!std::path::Path::new(&file).exists());
}

#[test]
fn lost_repeated_and_late_segments_are_counted() {
    let mut talk = Talk::of_exchanges(300);
    let time = 1_300_500_000;
    talk.segment(Side::Client, 1, Some(time), None);
    talk.segment(Side::Client, 2, None, Some(time));
    // Sent twice, and received twice.
    for again in [0, 50_000] {
        talk.segment(Side::Client, 3, Some(time + again), Some(time + again + 60_000));
    }
    // Overtaken by those behind it.
    talk.segment(Side::Client, 4, Some(time), Some(time + 12_000_000));
    // A wrong match: received before it was sent.
    talk.segment(Side::Client, 5, Some(time), Some(time - 40_000_000));
    let Written { folder: _folder, client, server } = written(&talk);
    let tables = sync(&[&client, &server]).fine().json();
    let matched = row(&tables, "matches", 1);
    assert_eq!((&matched["lost_sends"], &matched["lost_receives"]), (&1.into(), &1.into()), "{matched:?}");
    assert_eq!((&matched["repeated"], &matched["pairs"]), (&4.into(), &602.into()), "{matched:?}");
    let messages = row(&tables, "messages", 0);
    assert_eq!((&messages["dropped"], &messages["violations_after"]), (&2.into(), &0.into()), "{messages:?}");
    assert_eq!(row(&tables, "clocks", 1)["bounded"], "yes");
}

#[test]
fn an_experiment_that_sync_did_not_write_is_refused() {
    let folder = Folder::new();
    for (name, content, expected) in [
        ("a.toml", "x = 1", "not an experiment of `hodo sync`"),
        ("b.toml", "version = 2\nmethod = \"bounded\"\ntrace = []", "version 1 expected"),
        ("c.toml", "\u{0}", "not an experiment of `hodo sync`"),
    ] {
        let file = folder.write(name, content.as_bytes());
        let ran = hodo(&["info", &file]);
        assert!(ran.code == 3 && ran.stderr.contains(expected), "{ran:?}");
    }
    let ran = sync(&[&fixture("ftrace/small-6.dat")]);
    assert!(ran.code == 2 && ran.stderr.contains("two inputs"), "{ran:?}");
    let ran = hodo(&["sync", "--format", "csv", &fixture("ftrace/small-6.dat")]);
    assert!(ran.code == 2 && ran.stderr.contains("--format csv supports one table"), "{ran:?}");
    // Two recordings of one boot of a host share its clock, which counts on between them.
    let ran = sync(&[&fixture("ftrace/small-6.dat"), &fixture("ftrace/small-7.dat")]).fine();
    let clock = row(&ran.json(), "clocks", 0);
    assert!(clock["clock"].as_str().unwrap().contains(" = "), "{clock:?}");
}

/// An event of a board at a true time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct BoardEvent {
    truth: u64,
    stream: usize,
    id: u8,
    fields: Vec<u64>,
}

/// The stream of the master; those of slaves have their numbers.
const MASTER: usize = 0;
/// Ids of events.
const SEND: u8 = 1;
const RECEIVE: u8 = 2;
const TICK: u8 = 3;

/// A master and two slaves that count at 10 MHz, as barectf writes them: exchanges have one number for each slave.
fn boards(folder: &Folder, slaves: std::ops::RangeInclusive<u64>) -> [String; 3] {
    let metadata = |frequency: u64, slave: &str| {
        format!(
            "/* CTF 1.8 */
typealias integer {{ size = 8; }} := u8;
typealias integer {{ size = 64; }} := u64;
trace {{ major = 1; minor = 8; byte_order = le; }};
clock {{ name = default; freq = {frequency}; }};
typealias integer {{ size = 64; map = clock.default.value; }} := time;
stream {{ event.header := struct {{ u8 id; time t; }}; }};
event {{ id = 1; name = \"sync_send\"; fields := struct {{ {slave} u64 seq; }}; }};
event {{ id = 2; name = \"sync_recv\"; fields := struct {{ {slave} u64 seq; }}; }};
event {{ id = 3; name = \"tick\"; fields := struct {{ u64 truth; }}; }};
"
        )
    };
    let mut streams = vec![Vec::new(); 3];
    let mut events: Vec<BoardEvent> = Vec::new();
    let mut add = |truth, stream, id, fields| events.push(BoardEvent { truth, stream, id, fields });
    for exchange in 0..200u64 {
        for slave in slaves.clone() {
            let sent = 1_000_000_000 + exchange * 10_000_000 + slave * 1_000_000;
            let (seq, hold) = (2 * exchange, sent + 2_000);
            add(sent, MASTER, SEND, vec![slave, seq]);
            add(sent + 900, slave as usize, RECEIVE, vec![seq]);
            add(hold, slave as usize, SEND, vec![seq + 1]);
            add(hold + 1_100, MASTER, RECEIVE, vec![slave, seq + 1]);
            let middle = sent + 3_000_000;
            add(middle, slave as usize, TICK, vec![middle]);
        }
    }
    events.sort();
    for BoardEvent { truth, stream: stream_index, id, fields } in events {
        // Slave 1 is 20 ppm slow, slave 2 is 40 ppm slow, and both started 0.9 s after the master.
        let clock = match stream_index as u64 {
            0 => truth,
            slave => (truth - truth / 1_000_000 * 20 * slave - 900_000_000) / 100,
        };
        streams[stream_index].push(id);
        streams[stream_index].extend(clock.to_le_bytes());
        fields.iter().for_each(|field| streams[stream_index].extend(field.to_le_bytes()));
    }
    let names = ["master", "slave1", "slave2"];
    for ((name, stream), stream_index) in names.iter().zip(streams).zip(0..) {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        let (frequency, slave) =
            if stream_index == 0 { (1_000_000_000, "u64 slave;") } else { (10_000_000, "") };
        folder.write(&format!("{name}/metadata"), metadata(frequency, slave).as_bytes());
        folder.write(&format!("{name}/stream"), &stream);
    }
    names.map(|name| folder.file(name))
}

#[test]
fn slaves_of_a_master_are_distinguished_by_their_numbers() {
    let folder = Folder::new();
    let [master, one, two] = boards(&folder, 1..=2);
    let file = folder.file("experiment.toml");
    let tables = sync(&["-o", &file, &master, &one, &two]).fine().json();
    for (slave, drift) in [(1, 20_000), (2, 40_000)] {
        let clock = row(&tables, "clocks", slave);
        assert_eq!((&clock["hops"], &clock["bounded"]), (&1.into(), &"yes".into()), "{clock:?}");
        assert!(clock["drift_ppb"].as_i64().unwrap().abs_diff(drift) < 1_000, "{clock:?}");
        assert!(clock["half_width_median_ns"].as_u64() < Some(1_300), "{clock:?}");
        assert_eq!(row(&tables, "messages", slave - 1)["pairs"], 200);
    }
    assert_eq!(row(&tables, "matches", 0)["pairs"], 800);
    let ticks = events(&file, &["--event", "tick"]);
    assert_eq!(ticks.len(), 400);
    for tick in ticks {
        let [truth, lower, upper] = [&tick["fields"]["truth"], &tick["lower_ns"], &tick["upper_ns"]]
            .map(|time| time.as_i64().unwrap());
        assert!((lower..=upper).contains(&truth), "{tick}");
    }
    let tables = sync(&[&master, &two]).fine().json();
    assert_eq!(row(&tables, "clocks", 1)["bounded"], "yes");
    // If there is only one slave, it may have any name.
    let folder = Folder::new();
    let [master, one, _] = boards(&folder, 1..=1);
    let other = folder.file("board-7");
    std::fs::rename(one, &other).unwrap();
    let tables = sync(&[&master, &other]).fine().json();
    assert_eq!(row(&tables, "clocks", 1)["bounded"], "yes");
    assert_eq!(row(&tables, "matches", 0)["pairs"], 400);
}

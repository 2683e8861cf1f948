//! A real recording, truncated and corrupted: everything readable is reported, and the rest is counted as loss.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    sync::LazyLock,
    thread,
};

use proptest::prelude::*;
use serde_json::Value;

use crate::{
    program,
    recorded::{build, can_record, record},
    run::{Folder, Ran, command, hodo, wait},
};

/// A recording with several PSBs, and the folder with its program.
struct Recording {
    folder: Folder,
    bytes: Vec<u8>,
    /// Range of the trace in the file.
    trace: std::ops::Range<usize>,
    instructions: u64,
}

const ROUNDS: u32 = 12_000;

/// The PSB packet, which locates the trace.
const PSB: [u8; 16] =
    [0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82];

static RECORDING: LazyLock<Option<Recording>> = LazyLock::new(|| {
    can_record().then(|| {
        let folder = Folder::new();
        let program = build(&folder, ROUNDS, 1);
        let (path, _) = record(&folder, &["-e", "intel_pt/cyc,psb_period=0/u"], &[&program]);
        let bytes = fs::read(path).unwrap();
        let psbs: Vec<usize> =
            (0..bytes.len() - 16).filter(|&offset| bytes[offset..offset + 16] == PSB).collect();
        assert!(psbs.len() > 4, "{psbs:?}");
        let trace = psbs[0]..psbs[psbs.len() - 1];
        Recording { folder, bytes, trace, instructions: program::addresses(0, ROUNDS).len() as u64 }
    })
});

impl Recording {
    /// Writes damaged bytes to a file and runs a command on it.
    fn run(&self, name: &str, bytes: &[u8], command: &[&str]) -> Ran {
        let path = self.folder.write(name, bytes);
        hodo(&[command, &[path.as_str()]].concat())
    }

    fn report(&self, name: &str, bytes: &[u8]) -> Value {
        self.run(name, bytes, &["report", "functions", "--format", "json"]).fine().json()
    }
}

fn instructions(table: &Value) -> u64 {
    table["summary"]["instructions"].as_u64().unwrap()
}

fn losses(table: &Value) -> &[Value] {
    table["loss"].as_array().unwrap()
}

#[test]
fn a_whole_recording_has_no_loss() {
    let Some(recording) = &*RECORDING else { return };
    let table = recording.report("whole.data", &recording.bytes);
    assert_eq!(instructions(&table), recording.instructions);
    assert_eq!(losses(&table), &[] as &[Value]);
}

#[test]
fn what_lies_before_a_cut_is_reported() {
    let Some(recording) = &*RECORDING else { return };
    let mut before = 0;
    for share in 1..8 {
        let cut = recording.trace.start + recording.trace.len() * share / 8;
        let bytes = &recording.bytes[..cut];
        let table = recording.report("cut-at.data", bytes);
        let read = instructions(&table);
        assert!(before < read && read < recording.instructions, "{share}/8: {before} {read}");
        before = read;
        let loss = losses(&table).iter().find(|loss| loss["cause"] == "cut_short");
        let loss = loss.unwrap_or_else(|| panic!("{share}/8: {table}"));
        let detail = loss["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("the file has {cut} bytes")), "{detail}");
        assert_eq!(recording.run("cut-at.data", bytes, &["script", "--insns", "--strict"]).code, 1);
        assert_eq!(recording.run("cut-at.data", bytes, &["info", "--strict"]).code, 1);
    }
}

#[test]
fn a_gap_is_located_and_the_trace_behind_it_read() {
    let Some(recording) = &*RECORDING else { return };
    let mut bytes = recording.bytes.clone();
    let middle = recording.trace.start + recording.trace.len() / 2;
    // No packet begins with these bytes.
    bytes[middle..middle + 32].fill(0xd9);
    let table = recording.report("gap.data", &bytes);
    let read = instructions(&table);
    assert!(read > recording.instructions / 2 && read < recording.instructions, "{read}");
    let [loss] = losses(&table) else { panic!("{table}") };
    assert_eq!((&loss["cause"], &loss["count"]), (&Value::from("corrupt"), &Value::from(1)), "{table}");
    let offset = |name: &str| usize::try_from(loss[name].as_u64().unwrap()).unwrap();
    assert!((middle - 8..middle + 32).contains(&offset("begin_byte")), "{middle} {loss}");
    assert!(offset("end_byte") > middle && offset("end_byte") <= middle + 4096, "{middle} {loss}");

    let script = recording.run("gap.data", &bytes, &["script", "--insns"]).fine();
    let addresses = program::lines(&program::addresses(program::ENTRY, ROUNDS));
    let (head, tail) = script.stdout.split_once("# gap ").unwrap();
    let (_, tail) = tail.split_once('\n').unwrap();
    assert!(addresses.starts_with(head) && addresses.ends_with(tail));
    assert!(script.stderr.contains("corrupt"), "{}", script.stderr);
    assert_eq!(recording.run("gap.data", &bytes, &["script", "--insns", "--strict"]).code, 1);
}

/// A change to a recording. Positions are fractions of the file.
#[derive(Clone, Debug)]
enum Damage {
    /// Truncates the file.
    Cut(f64),
    /// Flips bits of a byte.
    Flip(f64, u8),
    /// Removes some bytes.
    Remove(f64, usize),
    /// Zeroes some bytes.
    Zero(f64, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    // Half of it hits headers, sideband and the ends of sections.
    let share = || prop_oneof![0.0..1.0, 0.0..0.1f64, 0.98..1.0f64];
    prop_oneof![
        share().prop_map(Damage::Cut),
        (share(), 1u8..).prop_map(|(share, bits)| Damage::Flip(share, bits)),
        (share(), 1usize..100).prop_map(|(share, length)| Damage::Remove(share, length)),
        (share(), 1usize..100).prop_map(|(share, length)| Damage::Zero(share, length)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let length = bytes.len();
    let offset = |share: f64| (share * length as f64) as usize;
    match *damage {
        Damage::Cut(share) => bytes.truncate(offset(share)),
        Damage::Flip(share, bits) => {
            if let Some(byte) = bytes.get_mut(offset(share)) {
                *byte ^= bits;
            }
        }
        Damage::Remove(share, count) => {
            let begin = offset(share);
            bytes.drain(begin..(begin + count).min(length));
        }
        Damage::Zero(share, count) => {
            let begin = offset(share).min(length);
            bytes[begin..(begin + count).min(length)].fill(0);
        }
    }
}

const COMMANDS: [&[&str]; 6] = [
    &["info", "--format", "json"],
    &["info"],
    &["report", "tree"],
    &["script", "--calls"],
    &["script", "--insns", "--fields", "time,tid,ip,sym,insn"],
    &["script", "--packets"],
];

/// Few cases, because each starts `hodo` three times; set `PROPTEST_CASES` for more.
fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases: 48, ..config } }
}

proptest! {
    #![proptest_config(config())]

    /// A panic exits with 101; a hang fails too.
    #[test]
    fn damage_ends_as_the_contract_says(
        damages in prop::collection::vec(damage(), 1..4),
        command in prop::sample::select(&COMMANDS[..]),
    ) {
        let Some(recording) = &*RECORDING else { return Ok(()) };
        let mut bytes = recording.bytes.clone();
        damages.iter().for_each(|damage| apply(&mut bytes, damage));
        let report = recording.run("damaged.data", &bytes, &["report", "functions", "--format", "json"]);
        let strict = recording.run("damaged.data", &bytes, &["report", "functions", "--strict"]);
        let other = recording.run("damaged.data", &bytes, command);
        prop_assert!([0, 3].contains(&report.code), "{:?}", report);
        let lost = report.code == 0 && !losses(&report.json()).is_empty();
        prop_assert_eq!(strict.code, if lost { 1 } else { report.code }, "{:?}", strict);
        // Either all commands can read it, or none.
        prop_assert_eq!(other.code, report.code, "{:?}: {:?}", command, other);
        for ran in [&report, &other] {
            let says_where = ran.stderr.contains("damaged.data: offset 0x");
            prop_assert_eq!(ran.code == 3, says_where, "{:?}", ran);
        }
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_ends_no_program() {
    let folder = Folder::new();
    // A PSB, and TNT packets up to the next.
    let part: Vec<u8> = [0x02, 0x82].repeat(8).into_iter().chain([0x06; 4080]).collect();
    let file = folder.write("pt", &part.repeat(256));
    let mut child = command(&["script", "--packets", "--pt", &file]).spawn().expect("hodo starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    // It waits for its reader, with most of the file unread.
    stdout.read_line(&mut String::new()).expect("a line");
    File::options().write(true).open(&file).expect("the file").set_len(8192).expect("it shrinks");
    let drain = thread::spawn(move || io::copy(&mut stdout, &mut io::sink()));
    let ran = wait(child).expect("it ends");
    drain.join().expect("it does not panic").expect("output can be read");
    assert_eq!(ran.code, 1, "{ran:?}");
    // Where the reader was by then depends on the system's pipe.
    assert!(ran.stderr.contains(&format!("{file}: from byte ")), "{ran:?}");
}

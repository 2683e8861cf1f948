//! Programs recorded on the emulated processor, and reports of the recordings.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use serde_json::Value;

use crate::{
    program,
    run::{Folder, Ran, hodo},
};

/// Returns whether programs can be recorded here; prints a message if not.
pub(crate) fn can_record() -> bool {
    let is_installed = Command::new("qemu-x86_64").arg("--version").output().is_ok();
    if !is_installed {
        eprintln!("skipped: qemu-x86_64 is not installed (cargo xtask setup)");
    }
    is_installed
}

/// Builds the known program in this folder.
pub(crate) fn build(folder: &Folder, rounds: u32, build_id: u8) -> String {
    let path = folder.write("program", &program::elf(&program::code(rounds), [build_id; 20]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

/// Compiles a program of `lab/workloads` into this folder; returns its path.
pub(crate) fn compile(folder: &Folder, source: &str, flags: &[&str]) -> String {
    let (name, _) = source.rsplit_once('.').expect("a source has an extension");
    let (program, workloads) =
        (folder.file(name), concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/workloads"));
    let source = format!("{workloads}/{source}");
    let compiled = Command::new("cc").args(flags).args(["-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "cc compiles {source}");
    program
}

/// Records a command into `perf.data` of this folder.
pub(crate) fn record(folder: &Folder, options: &[&str], command: &[&str]) -> (String, Ran) {
    let out = folder.file("perf.data");
    let ran = hodo(&[&["record", "--engine", "emulate", "-o", &out], options, &["--"], command].concat());
    assert!(fs::exists(&out).is_ok_and(|there| there), "{ran:?}");
    (out, ran)
}

/// A command with several processes, libraries and system calls.
const PROCESSES: [&str; 3] = ["sh", "-c", "ls / | wc -l; true; exit 7"];

pub(crate) fn report(arguments: &[&str], recording: &str) -> Value {
    let words = ["report", "functions", "--format", "json"];
    hodo(&[&words, arguments, &[recording]].concat()).fine().json()
}

fn info(recording: &str) -> Value {
    hodo(&["info", "--format", "json", recording]).fine().json()
}

#[test]
fn every_instruction_of_a_known_program() {
    if !can_record() {
        return;
    }
    const ROUNDS: u32 = 1000;
    let folder = Folder::new();
    let program = build(&folder, ROUNDS, 1);
    let expected = program::addresses(program::ENTRY, ROUNDS);
    for event in [
        "intel_pt//u",
        "intel_pt/psb_period=0/u",
        "intel_pt/cyc,noretcomp/u",
        "intel_pt/mtc=0,psb_period=0/u",
        "intel_pt/tsc=0,mtc=0/u",
    ] {
        let (recording, ran) = record(&folder, &["-e", event], &[&program]);
        ran.fine();
        let script = hodo(&["script", "--insns", "--strict", &recording]).fine();
        assert_eq!(script.stdout, program::lines(&expected), "{event}");
        let table = report(&["--strict"], &recording);
        assert_eq!(table["summary"]["instructions"], expected.len(), "{event}");
        assert_eq!(table["summary"]["calls"], ROUNDS, "{event}");
        let truth = &info(&recording)["truth"][0];
        assert_eq!(truth["instructions"], expected.len(), "{event}");
        assert_eq!(truth["traced_calls"], ROUNDS, "{event}");
    }
}

/// An instruction of the emulated processor takes a nanosecond.
#[test]
fn the_span_of_each_instruction_holds_its_time() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = build(&folder, 3000, 1);
    for (event, widest) in
        [("intel_pt/mtc_period=0/u", 400), ("intel_pt/cyc,noretcomp/u", 80), ("intel_pt/cyc,mtc=0/u", 80)]
    {
        let (recording, _) = record(&folder, &["-e", event], &[&program]);
        let script = hodo(&["script", "--insns", "--fields", "span,ip", &recording]).fine();
        let nanoseconds = |text: &str| text.replace('.', "").parse::<i64>().ok();
        let (mut earliest, mut latest, mut widths) = (i64::MIN, i64::MAX, Vec::new());
        for (number, line) in (0i64..).zip(script.stdout.lines()) {
            let (from, to) = line.split(' ').next().unwrap().split_once("..").unwrap();
            // Bounds for the time of the first instruction, derived from this one.
            let (from, to) = (nanoseconds(from), nanoseconds(to));
            earliest = earliest.max(from.map_or(i64::MIN, |from| from - number));
            latest = latest.min(to.map_or(i64::MAX, |to| to - number));
            widths.extend(from.zip(to).map(|(from, to)| to - from));
        }
        assert!(earliest <= latest + 1, "{event}: {earliest} {latest}");
        widths.sort_unstable();
        assert!(
            widths.len() > 10_000 && widths[widths.len() / 2] <= widest,
            "{event}: {:?}",
            widths[widths.len() / 2]
        );
    }
}

#[test]
fn totals_are_those_of_the_emulated_processor() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let (recording, ran) = record(&folder, &[], &PROCESSES);
    assert_eq!(ran.code, 7, "the program's own exit code: {ran:?}");
    assert!(
        ran.stdout.trim().parse::<u32>().is_ok_and(|names| names > 3),
        "the program's own output: {ran:?}"
    );
    let info = info(&recording);
    let truth = info["truth"].as_array().unwrap();
    assert!(truth.len() >= 3, "{info}");
    for thread in truth {
        let tid = thread["tid"].to_string();
        let table = report(&["--strict", "--tid", &tid], &recording);
        assert_eq!(table["summary"]["instructions"], thread["traced_instructions"], "tid {tid}");
        assert_eq!(table["summary"]["calls"], thread["traced_calls"], "tid {tid}");
    }
    let all = |count: &str| truth.iter().map(|thread| thread[count].as_u64().unwrap()).sum::<u64>();
    let table = report(&["--strict"], &recording);
    assert_eq!(table["summary"]["instructions"], all("instructions"));
    assert_eq!(table["summary"]["calls"], all("calls"));
}

/// Functions generated at run time, some at the same address, and self-modifying code.
#[test]
fn code_that_no_file_holds_is_followed() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = compile(&folder, "generated.c", &["-O1"]);
    let (recording, ran) = record(&folder, &[], &[&program]);
    ran.fine();
    let table = report(&["--strict"], &recording);
    let truth = &info(&recording)["truth"][0];
    assert_eq!(table["summary"]["instructions"], truth["instructions"]);
    assert_eq!(table["summary"]["calls"], truth["calls"]);
}

#[test]
fn neither_threads_nor_chunks_change_a_byte() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let command = ["sh", "-c", "/bin/true | /bin/true"];
    let (recording, _) = record(&folder, &["-e", "intel_pt/psb_period=0/u"], &command);
    for what in [
        &["report", "functions", "--format", "json"][..],
        &["report", "tree", "--format", "json"],
        &["report", "functions", "--format", "json", "--every", "700i"],
        &["report", "tree", "--format", "json", "--every", "100ns"],
        &["report", "functions", "--format", "json", "--every", "50i", "--time", "20%-60%"],
        &["report", "blocks", "--format", "json"],
        &["report", "lines", "--format", "json", "--time", "20%-60%"],
        &["script", "--insns", "--fields", "tid,ip,time"],
        &["script", "--packets"],
        &["script", "--calls", "--format", "jsonl"],
        &["script", "--calls", "--time", "20%-60%"],
    ] {
        let run = |options: &[&str]| hodo(&[what, options, &[recording.as_str()]].concat()).fine();
        let one = run(&["-j", "1", "--chunk-size", "1G"]);
        assert!(one.stdout.len() > 1000, "{what:?}: {one:?}");
        for options in [&["-j1"][..], &["-j2", "--chunk-size", "1K"], &["-j", "3", "--chunk-size", "5000"]] {
            let other = run(options);
            assert!(one.stdout == other.stdout, "{what:?} {options:?} differs");
            assert_eq!(one.stderr, other.stderr, "{what:?} {options:?}");
        }
    }
}

#[test]
fn an_overflow_is_a_loss_of_what_it_swallowed() {
    if !can_record() {
        return;
    }
    const ROUNDS: u32 = 1000;
    let folder = Folder::new();
    let program = build(&folder, ROUNDS, 1);
    let (recording, _) = record(&folder, &["--overflow", "1000..3000"], &[&program]);
    let table = report(&[], &recording);
    let truth = &info(&recording)["truth"][0];
    let executed = program::addresses(program::ENTRY, ROUNDS);
    assert_eq!(truth["instructions"], executed.len());
    assert_eq!(truth["traced_instructions"], table["summary"]["instructions"]);
    assert_eq!(truth["traced_calls"], table["summary"]["calls"]);
    assert_eq!(table["loss"].as_array().unwrap().len(), 1, "{table}");
    assert_eq!(table["loss"][0]["cause"], "overflow");
    let script = hodo(&["script", "--insns", &recording]).fine();
    assert!(script.stderr.contains("1 × overflow"), "{}", script.stderr);
    let (head, tail) = script.stdout.split_once("# gap ").unwrap();
    let tail = tail.split_once('\n').unwrap().1;
    let lines = program::lines(&executed);
    assert!(lines.starts_with(head) && lines.ends_with(tail));
    assert_eq!(executed.len() - head.lines().count() - tail.lines().count(), 2000);
    assert_eq!(hodo(&["script", "--insns", "--strict", &recording]).code, 1);
}

#[test]
fn a_filter_leaves_only_what_it_names() {
    if !can_record() {
        return;
    }
    const ROUNDS: u32 = 1000;
    let folder = Folder::new();
    let program = build(&folder, ROUNDS, 1);
    // The function: two instructions at offset 29 of the code.
    let filter = format!("filter {:#x}/2 @ {program}", program::ENTRY - program::LOADED_AT + 29);
    let (recording, _) = record(&folder, &["--filter", &filter], &[&program]);
    let script = hodo(&["script", "--insns", "--strict", &recording]).fine();
    let function = [program::ENTRY + 29, program::ENTRY + 30];
    assert_eq!(script.stdout, program::lines(&function.repeat(ROUNDS as usize)));
    assert!(hodo(&["info", &recording]).fine().stdout.contains(&filter));
}

#[test]
fn a_program_that_is_gone_is_named() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = build(&folder, 100, 1);
    let (recording, _) = record(&folder, &[], &[&program]);
    let bytes = fs::read(&program).unwrap();
    fs::remove_file(&program).unwrap();
    let table = report(&[], &recording);
    assert_eq!(table["summary"]["instructions"], 0);
    let loss = &table["loss"][0];
    assert_eq!(loss["cause"], "missing_code", "{table}");
    let detail = loss["detail"].as_str().unwrap();
    assert!(detail.contains(&program) && detail.contains("No such file"), "{detail}");
    assert_eq!(hodo(&["report", "functions", "--strict", &recording]).code, 1);
    assert_eq!(info(&recording)["modules"][0]["source"], "missing");
    let text = hodo(&["info", &recording]).fine().stdout;
    assert!(text.contains("No such file"), "{text}");
    assert!(hodo(&["script", "--insns", &recording]).fine().stdout.starts_with("# gap "));

    // The program is found below another root.
    let below = folder.path().join("root").join(program.trim_start_matches('/'));
    fs::create_dir_all(below.parent().unwrap()).unwrap();
    fs::write(below, bytes).unwrap();
    let root = folder.file("root");
    let table = report(&["--strict", "--symfs", &root], &recording);
    assert_eq!(table["summary"]["instructions"], program::addresses(0, 100).len());
}

#[test]
fn a_program_that_was_built_anew_is_refused() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = build(&folder, 100, 1);
    let (recording, _) = record(&folder, &[], &[&program]);
    assert_eq!(info(&recording)["modules"][0]["build_id"], "01".repeat(20));
    build(&folder, 100, 2);
    let table = report(&[], &recording);
    assert_eq!(table["summary"]["instructions"], 0, "no flow through code that did not run");
    let detail = table["loss"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("build id"), "{detail}");
    assert_eq!(hodo(&["script", "--insns", "--strict", &recording]).code, 1);
    assert!(hodo(&["info", &recording]).fine().stdout.contains("build id differs"));
}

#[test]
fn spans_of_time_add_up() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = build(&folder, 30_000, 1);
    let (recording, _) = record(&folder, &["-e", "intel_pt/psb_period=0/u"], &[&program]);
    let instructions =
        |span: &str| report(&["--time", span], &recording)["summary"]["instructions"].as_u64().unwrap();
    let parts: Vec<u64> = ["0%-25%", "25%-60%", "60%-100%"].map(instructions).to_vec();
    assert_eq!(parts.iter().sum::<u64>(), program::addresses(0, 30_000).len() as u64, "{parts:?}");
    assert!(parts.iter().all(|&part| part > 0), "{parts:?}");
    // One instruction is one nanosecond of virtual time; timestamps are 8 ticks of the crystal clock apart.
    let some = instructions("+10us,+60us");
    assert!(some.abs_diff(50_000) <= 2 * 320, "{some}");
}

#[test]
fn what_can_not_be_recorded_says_why() {
    let folder = Folder::new();
    let out = folder.file("perf.data");
    let record =
        |engine: &str, command: &str| hodo(&["record", "--engine", engine, "-o", &out, "--", command]);
    if can_record() {
        let ran = record("emulate", "./no-such-program");
        assert!(ran.code != 0 && ran.stderr.contains("no-such-program: no such file"), "{ran:?}");
    }
    if !fs::exists("/sys/bus/event_source/devices/intel_pt").is_ok_and(|there| there) {
        let ran = record("perf", "true");
        assert!(ran.code != 0 && ran.stderr.contains("--engine native"), "{ran:?}");
    }
    assert_eq!(folder.names(), Vec::<String>::new());
}

//! The cost of a software tracer: a program with LTTng tracepoints against the same program without.

use std::{path::Path, process::Command};

use crate::{
    live::Lttng,
    recorded::can_record,
    run::{command, hodo},
};

/// Number of recordings of each configuration.
const REPETITIONS: usize = 5;
const CALLS: u64 = 1000;

/// A recording, and the emulator's own counts.
struct Recorded {
    file: String,
    /// Instructions of all threads.
    all: f64,
    /// Instructions of the main thread.
    main: f64,
}

/// Records a program as the user of the session daemon.
fn record(lttng: &Lttng, program: &Path, name: &str, calls: u64) -> Recorded {
    let file = lttng.folder.path().join(name).to_str().unwrap().to_owned();
    let calls = calls.to_string();
    let usual = command(&[
        "record",
        "-q",
        "--engine",
        "emulate",
        "-o",
        &file,
        "--",
        program.to_str().unwrap(),
        &calls,
    ]);
    let mut recording = lttng.command(usual.get_program());
    recording.args(usual.get_args()).env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
    recording.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // QEMU's user mode fails when a process with LTTng's threads exits, which is after the measured part.
    recording.status().expect("hodo starts");
    let info = hodo(&["info", "--format", "json", &file]).fine().json();
    let (mut all, mut main) = (0.0, 0.0);
    for thread in info["truth"].as_array().unwrap() {
        let instructions = thread["instructions"].as_f64().unwrap();
        all += instructions;
        main += if thread["tid"] == thread["pid"] { instructions } else { 0.0 };
    }
    Recorded { file, all, main }
}

fn delta(arguments: &[&str], a: &Recorded, b: &Recorded) -> f64 {
    let both = [&["diff", "-q", "--strict", "--format", "json"], arguments, &[&a.file, &b.file]].concat();
    hodo(&both).fine().json()["summary"]["delta_instructions"].as_f64().unwrap()
}

#[test]
fn what_a_tracepoint_costs_is_exact_and_stable() {
    if !can_record() {
        return;
    }
    let lttng = Lttng::start();
    let compile = |name: &str, options: &[&str]| {
        let program = lttng.folder.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/workloads/traced_step.c");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-g", "-o"]).arg(&program).arg(source).args(options);
        assert!(compiler.status().unwrap().success());
        program
    };
    let (plain, traced) = (compile("plain", &[]), compile("traced", &["-DTRACED", "-llttng-ust", "-ldl"]));
    lttng.record("costs");
    let without = record(&lttng, &plain, "plain.data", CALLS);
    let with = |index: usize| record(&lttng, &traced, &format!("traced-{index}.data"), CALLS);
    let with: Vec<Recorded> = (0..REPETITIONS).map(with).collect();

    let extra: Vec<f64> = with.iter().map(|with| delta(&["--per", "step"], &without, with)).collect();
    let (least, most) =
        (extra.iter().copied().fold(f64::MAX, f64::min), extra.iter().copied().fold(0.0, f64::max));
    // The program writes the event, and doesn't only check whether it is enabled.
    assert!(least > 500.0 && most <= least * 1.01, "{extra:?}");
    for with in &with {
        assert_eq!(delta(&[], &without, with), with.all - without.all, "the emulated processor's own count");
    }
    // The emulator's count per call agrees: the cost of further calls, with tracepoints minus without. There
    // are many of them, for the start of LTTng's library varies by 30,000 instructions from run to run.
    let more = |program: &Path, name: &str, fewer: &Recorded| {
        let further = 9 * CALLS;
        (record(&lttng, program, name, CALLS + further).main - fewer.main) / further as f64
    };
    let counted = more(&traced, "traced-longer.data", &with[0]) - more(&plain, "plain-longer.data", &without);
    assert!((counted - extra[0]).abs() <= counted * 0.01, "{counted} counted, {extra:?} by hodo");
    lttng.lttng("destroy --no-wait costs");
}

//! Every decoding compares the instructions with the checkpoints of the emulated processor, and reports a difference.

#[path = "../../engine/tests/setup/mod.rs"]
mod setup;

use std::{
    fs::File,
    io::{BufWriter, Cursor},
    path::Path,
};

use hodo_analyses::profile::{Functions, Profile, ProfileReport};
use hodo_clock::{Nanos, Tsc};
use hodo_engine::{Chunks, Files, Input, Options, Reading, Trace, Window, profile};
use hodo_formats::{
    perf::{
        layout::{CodeEntry, HodoscopeSection},
        write::{Source, Writer},
    },
    recording::{Checkpoint, CpuCheckpoints, RecorderNotes, Sideband, SidebandKind, Thread},
};
use hodo_intel_pt::encoder::{Encoder, Settings, Timing};
use hodo_model::Loss;
use hodo_script::{Format, flow};

use self::setup::setup;

const START: u64 = 0x1000;
const THREAD: Thread = Thread { pid: 7, tid: 7 };
const CPU: u32 = 3;
/// Four segments of this many rounds.
const ROUNDS: u64 = 3000;
const SEGMENTS: u64 = 4;

/// 1000: call 1009; 1005: test eax, eax; 1007: jne 1000; 1009: nop; 100a: ret.
const CODE: [u8; 11] = [0xe8, 4, 0, 0, 0, 0x85, 0xc0, 0x75, 0xf7, 0x90, 0xc3];
/// What runs in a round.
const ROUND: [u64; 5] = [0x1000, 0x1009, 0x100a, 0x1005, 0x1007];

/// The trace, and what ran before each PSB and the end.
fn trace_and_checkpoints() -> (Vec<u8>, Vec<Checkpoint>) {
    let timing = Timing { tsc: true, mtc_period: None, cyc_threshold: None };
    let mut encoder = Encoder::new(Settings { return_compression: true, timing }, 1000);
    let (mut bytes, mut checkpoints) = (Vec::new(), Vec::new());
    let checkpoint = |segment: u64, bytes: &[u8]| Checkpoint {
        position: bytes.len() as u64,
        instructions: segment * ROUNDS * ROUND.len() as u64,
        sum: segment * ROUNDS * ROUND.iter().sum::<u64>(),
    };
    for segment in 0..SEGMENTS {
        let now = 1000 * (segment + 1);
        encoder.flush(now, &mut bytes);
        checkpoints.push(checkpoint(segment, &bytes));
        let next = (segment > 0).then_some(START);
        encoder.synchronize(next, now, &mut bytes);
        if next.is_none() {
            encoder.enable(START, now, &mut bytes);
        }
        for _ in 0..ROUNDS {
            encoder.call(START + 5);
            encoder.ret(START + 5, now, &mut bytes);
            let taken = true;
            encoder.branch(taken, now, &mut bytes);
        }
    }
    encoder.interrupt(START, 9000, &mut bytes);
    checkpoints.push(checkpoint(SEGMENTS, &bytes));
    (bytes, checkpoints)
}

/// Writes a recording with these checkpoints of the trace.
fn write(path: &Path, checkpoints: Vec<Checkpoint>) {
    let out = BufWriter::new(File::create(path).unwrap());
    let mut writer = Writer::new(out, setup(), vec![Source::Cpu(CPU)]).unwrap();
    let kind = SidebandKind::SwitchIn;
    let switch = Sideband { time: Some(Nanos(500)), cpu: Some(CPU), thread: THREAD, guest: None, kind };
    writer.sideband(&switch).unwrap();
    let (trace, _) = trace_and_checkpoints();
    writer.trace(0, Nanos(9000), trace.len() as u64, &trace[..]).unwrap();
    let length = CODE.len() as u64;
    let code = CodeEntry { pid: THREAD.pid, guest: None, time_ns: 0, found_ns: None, address: START, length };
    let checkpoints = vec![CpuCheckpoints { cpu: CPU, places: checkpoints }];
    let notes = RecorderNotes { engine: "test".into(), checkpoints, ..RecorderNotes::default() };
    let section = HodoscopeSection { notes, code: vec![code], kallsyms: 0 };
    writer.finish(&section, Cursor::new(CODE)).unwrap();
}

/// Returns the details of the losses of four reports: functions, call tree, calls, instructions.
fn losses(
    checkpoints: Vec<Checkpoint>,
    chunk_size: u64,
    memo: bool,
    window: Window<Tsc>,
) -> [Vec<String>; 4] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    write(&path, checkpoints);
    let (files, input) = (Files::default(), Input::File(path));
    let trace = Trace::open(&files, &input, &Options::default()).unwrap();
    let reading = Reading { window, memo, ..Reading::new(2, Chunks::Bytes(chunk_size)) };
    let details =
        |losses: &[Loss]| losses.iter().map(|loss| format!("{} × {}", loss.count, loss.detail)).collect();
    let tree = Profile { report: ProfileReport::Tree, every: None };
    let functions = profile(&trace, &Functions, reading, |_| true);
    let tree = profile(&trace, &tree, reading, |_| true);
    let text = Format::Text;
    let calls = flow::calls(&trace, text, reading, None, &mut Vec::new(), |_| true);
    let as_text: (&[flow::Field], _) = (&[flow::Field::Ip], Format::Text);
    let listing = flow::instructions(&trace, as_text, reading, None, &mut Vec::new(), &mut |_| true);
    let [calls, listing] = [calls, listing].map(|outcome| outcome.losses.into_list());
    [&functions.loss, &tree.loss, &calls, &listing].map(|losses| details(losses))
}

const NOTHING: Vec<String> = Vec::new();

/// Whole, and cut so that chunks begin in the middle of segments.
const CHUNKS: [u64; 3] = [u64::MAX, 700, 64];

/// Checks the losses for all sizes of chunks, with and without memoized paths.
fn each_reading(checkpoints: &[Checkpoint], window: Window<Tsc>, check: impl Fn([Vec<String>; 4])) {
    for chunk_size in CHUNKS {
        for memo in [false, true] {
            check(losses(checkpoints.to_vec(), chunk_size, memo, window));
        }
    }
}

#[test]
fn correct_checkpoints_give_no_loss() {
    let (_, checkpoints) = trace_and_checkpoints();
    each_reading(&checkpoints, Window::ALL, |losses| assert_eq!(losses, [NOTHING; 4]));
}

#[test]
fn a_difference_is_a_loss_in_every_report() {
    let (_, mut checkpoints) = trace_and_checkpoints();
    // An instruction more in the second segment, and one less in the third.
    checkpoints[2].instructions += 1;
    let less = "1 × fewer instructions were decoded than the recorder says ran".to_owned();
    let more = "1 × more instructions were decoded than the recorder says ran".to_owned();
    each_reading(&checkpoints, Window::ALL, |losses| {
        losses.iter().for_each(|of_report| assert_eq!(*of_report, [less.clone(), more.clone()]));
    });
    // The window ends before the third segment.
    let window = Window { from: Some(Tsc(0)), to: Some(Tsc(2500)) };
    each_reading(&checkpoints, window, |losses| {
        losses.iter().for_each(|of_report| assert_eq!(of_report.as_slice(), std::slice::from_ref(&less)));
    });
}

#[test]
fn other_instructions_are_a_loss_where_addresses_are_shown() {
    let (_, mut checkpoints) = trace_and_checkpoints();
    checkpoints[1].sum += 1;
    let other = "2 × other instructions were decoded than the recorder says ran".to_owned();
    each_reading(&checkpoints, Window::ALL, |[functions, tree, calls, listing]| {
        assert_eq!([functions, tree, calls], [NOTHING; 3]);
        assert_eq!(listing.as_slice(), std::slice::from_ref(&other));
    });
}

/// As in a recording that was cut, or whose pieces were lost.
#[test]
fn checkpoints_that_are_not_at_a_psb_are_not_compared() {
    let (_, mut checkpoints) = trace_and_checkpoints();
    for (checkpoint, index) in checkpoints.iter_mut().zip(1..) {
        (checkpoint.position, checkpoint.instructions) = (checkpoint.position + 1, index * index);
    }
    each_reading(&checkpoints, Window::ALL, |losses| assert_eq!(losses, [NOTHING; 4]));
}

//! What the page's execution view shows.

use hodo_clock::Nanos;
use hodo_engine::Trace;
use hodo_server::{CodePlace, From, To, Walk};
use hodo_stepping::{
    Direction, Execution, Granularity, Instant, Interrupted, Motion, Place, Position, Scene, Step, Stepper,
    Stop,
};
use serde_json::{Value, json};

use crate::{annotate::read_lines, failure::Failure, function};

/// Instructions before and after the current one.
const INSTRUCTIONS: usize = 150;
/// Lines of source before and after the current one.
const LINES: usize = 200;

/// Returns what is seen after a walk; `None` if it was stopped.
pub fn seen(
    trace: &Trace<'_>,
    execution: &mut Execution,
    walk: &Walk,
    keep_going: &dyn Fn() -> bool,
) -> Result<Option<Value>, Failure> {
    let known: Vec<u32> = execution.threads().collect();
    let mut stepper = execution.stepper(trace, keep_going);
    let found = begin(&mut stepper, &known, walk).and_then(|from| match from {
        Some(from) => go(&mut stepper, from, &walk.to).map(Some),
        None => Ok(None),
    });
    let arrival = match found {
        Ok(Some(arrival)) => arrival,
        Ok(None) => return Err(Failure::usage("no selected thread executes recorded code then")),
        Err(Refusal::Interrupted) => return Ok(None),
        Err(Refusal::Wrong(failure)) => return Err(failure),
    };
    let scene = stepper.scene(arrival.at);
    let (source, code) = around(&stepper, &scene, walk.frame);
    let threads: Vec<Value> = known.iter().map(|&thread| described(trace, &stepper, thread)).collect();
    Ok(Some(json!({
        "threads": threads,
        "gap": arrival.at.stop == Stop::Gap,
        "missed": arrival.missed,
        // Larger than a number of the page is exact.
        "time": scene.time_ns.map(|time| time.to_string()),
        "scene": scene,
        "source": source,
        "code": code,
    })))
}

/// Why there is no arrival.
enum Refusal {
    Interrupted,
    Wrong(Failure),
}

impl std::convert::From<Interrupted> for Refusal {
    fn from(Interrupted: Interrupted) -> Refusal {
        Refusal::Interrupted
    }
}

/// Where a walk ended.
struct Arrival {
    at: Position,
    /// What it did not find.
    missed: Option<&'static str>,
}

fn begin(stepper: &mut Stepper<'_, '_>, known: &[u32], walk: &Walk) -> Result<Option<Position>, Refusal> {
    let is_wanted =
        |thread: u32| walk.thread.is_none_or(|tid| stepper.trace.threads[thread as usize].tid == tid);
    let wanted: Vec<u32> = known.iter().copied().filter(|&thread| is_wanted(thread)).collect();
    let instant = match &walk.from {
        From::Instant(text) => {
            let parsed = Instant::parse(text, stepper.trace);
            Some(parsed.map_err(|why| Refusal::Wrong(Failure::usage(format!("{text}: {why}"))))?)
        }
        From::Time(time) => Some(Instant::Time(Nanos(*time))),
        _ => None,
    };
    for &thread in &wanted {
        let found = match walk.from {
            From::Time(_) | From::Instant(_) => match instant {
                Some(instant) => stepper.at_instant(thread, instant)?,
                None => None,
            },
            From::Begin => stepper.first(thread),
            From::End => stepper.last(thread),
            From::Number { number, gap: false } => stepper.position(thread, number),
            From::Number { number, gap: true } => stepper
                .position(thread, number)
                .and_then(|at| stepper.previous(at))
                .or_else(|| stepper.last(thread))
                .filter(|at| at.stop == Stop::Gap),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    // A thread that is named is shown, if need be before or after what it executed.
    let Some(&thread) = wanted.first().filter(|_| walk.thread.is_some()) else { return Ok(None) };
    Ok(match instant {
        Some(Instant::Time(time)) => stepper.at(thread, time)?,
        _ => stepper.last(thread),
    })
}

fn go(stepper: &mut Stepper<'_, '_>, from: Position, to: &To) -> Result<Arrival, Refusal> {
    let direction = |back: bool| if back { Direction::Backward } else { Direction::Forward };
    let (found, missed) = match to {
        To::Here => (Some(from), None),
        To::Step { motion, by, back } => {
            let moved = stepper.step(from, step(motion, by, direction(*back))?)?;
            let missed = match (moved.at_limit, back) {
                (false, _) => None,
                (true, false) => Some("the recording of the thread ends here"),
                (true, true) => Some("the recording of the thread begins here"),
            };
            (Some(moved.to), missed)
        }
        To::Gap { back } => (stepper.gap(from, direction(*back)), Some("no flow is missing on this way")),
        To::Execution { place, back } => {
            let places = places(stepper.trace, place).map_err(Refusal::Wrong)?;
            let found = stepper.find(from, &places, direction(*back))?;
            let missed = if *back {
                "never executed before by this thread"
            } else {
                "never executed again by this thread"
            };
            (found, Some(missed))
        }
    };
    Ok(match (found, to) {
        (Some(at), To::Step { .. }) => Arrival { at, missed },
        (Some(at), _) => Arrival { at, missed: None },
        (None, _) => Arrival { at: from, missed },
    })
}

fn step(motion: &str, by: &str, direction: Direction) -> Result<Step, Refusal> {
    let motion = match motion {
        "into" => Motion::Into,
        "over" => Motion::Over,
        "out" => Motion::Out,
        _ => return Err(Refusal::Wrong(Failure::usage("a step is into, over or out"))),
    };
    let granularity = if by == "instruction" { Granularity::Instruction } else { Granularity::Line };
    Ok(Step { motion, granularity, direction })
}

fn places(trace: &Trace<'_>, place: &CodePlace) -> Result<Vec<Place>, Failure> {
    Ok(match place {
        CodePlace::Function(name) => vec![Place::Function(function::find(name, trace)?)],
        CodePlace::Line(line) => {
            let (file, number) = line.rsplit_once(':').unwrap_or((line, ""));
            Place::of_line(trace, file, number.parse().unwrap_or(0))
        }
        &CodePlace::Instruction { module, offset, taken: None } => vec![Place::Code { module, offset }],
        &CodePlace::Instruction { module, offset, taken: Some(taken) } => {
            vec![Place::Branch { module, offset, taken }]
        }
    })
}

/// The source and the code around the instruction of a frame.
fn around(stepper: &Stepper<'_, '_>, scene: &Scene, frame: usize) -> (Value, Value) {
    let Some(frame) = scene.frames.get(frame) else { return (Value::Null, Value::Null) };
    let code = stepper.listing(frame, INSTRUCTIONS);
    let Some((file, line)) = frame.file.as_ref().zip(frame.line) else { return (Value::Null, json!(code)) };
    let at = (line as usize).saturating_sub(1);
    let first = at.saturating_sub(LINES);
    let lines = read_lines(file).map(|lines| {
        let shown: Vec<String> = lines.into_iter().skip(first).take(2 * LINES + 1).collect();
        shown
    });
    (json!({ "file": file, "line": line, "first": first + 1, "lines": lines }), json!(code))
}

fn described(trace: &Trace<'_>, stepper: &Stepper<'_, '_>, thread: u32) -> Value {
    let known = trace.threads[thread as usize];
    let last = stepper.last(thread).map_or(0, |last| last.number);
    json!({
        "pid": known.pid,
        "tid": known.tid,
        "name": trace.thread_name(known).unwrap_or_default(),
        "last": last,
    })
}

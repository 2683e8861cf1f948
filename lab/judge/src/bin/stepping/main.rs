//! Compares positions of a recording's execution with the flow as it is decoded from the start, steps back and forth, and
//! measures the steps.
//!
//! ```text
//! hodo-stepping INSTANTS STEPS RECORDING…
//! ```
//!
//! Of each recording, place, call stack and time are compared at INSTANTS random instructions. STEPS steps are made from
//! random instructions, by random motions, and undone. A line for each recording says how many were compared and how long
//! they took; what differs first ends the program.

use std::{
    env,
    error::Error,
    io::{self, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use hodo_engine::{Files, Input, Options, Trace};
use hodo_stepping::{
    Direction, Execution, Granularity, Motion, Position, Step, Stepper,
    check::{self, Samples},
};

/// Steps from a random instruction, before the next one.
const IN_A_ROW: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [instants, steps, recordings @ ..] = arguments.as_slice() else {
        return Err("usage: hodo-stepping INSTANTS STEPS RECORDING…".into());
    };
    let (instants, steps): (u64, u64) = (instants.parse()?, steps.parse()?);
    let threads = thread::available_parallelism()?.get();
    let mut out = io::stdout().lock();
    for recording in recordings {
        let files = Files::default();
        let input = Input::File(PathBuf::from(recording));
        let trace = Trace::open(&files, &input, &Options::default())?;
        let begun = Instant::now();
        let mut execution = Execution::open(&trace, threads, |_| true).ok_or("reading was stopped")?;
        let opened = begun.elapsed();
        // The idle tasks of all CPUs are one thread, which executes on several at once: its order depends on the chunks.
        let has_several = trace.recording.streams.len() > 1;
        let is_idle = |thread: u32| has_several && trace.threads[thread as usize].tid == 0;
        let (idle, known): (Vec<u32>, Vec<u32>) = execution.threads().partition(|&thread| is_idle(thread));
        if known.is_empty() {
            return Err(format!("{recording}: no instruction was recorded").into());
        }
        let instructions: u64 = known.iter().map(|&thread| execution.instructions(thread)).sum();
        let compared = compare(&trace, &mut execution, &known, instants, threads)
            .map_err(|difference| format!("{recording}: {difference}"))?;
        let times = walk(&trace, &mut execution, &known, steps)
            .map_err(|difference| format!("{recording}: {difference}"))?;
        let share = |part: usize| times[(times.len() * part / 1000).min(times.len() - 1)].as_secs_f64() * 1e3;
        writeln!(
            out,
            "{recording}: {instructions} instructions of {} threads, {} idle, {} checkpoints in {:.2} s; {compared} instants equal; {} steps \
             undone; a step and its scene: median {:.2} ms, 99 % {:.2} ms, 99.9 % {:.2} ms, longest {:.2} ms",
            known.len(),
            idle.len(),
            execution.checkpoints(),
            opened.as_secs_f64(),
            times.len() / 2,
            share(500),
            share(990),
            share(999),
            share(1000),
        )?;
    }
    Ok(())
}

/// A random instruction.
fn random(execution: &Execution, known: &[u32]) -> (u32, u64) {
    let thread = known[fastrand::usize(..known.len())];
    (thread, fastrand::u64(..execution.instructions(thread)))
}

fn compare(
    trace: &Trace<'_>,
    execution: &mut Execution,
    known: &[u32],
    instants: u64,
    threads: usize,
) -> Result<u64, String> {
    let mut samples = Samples::new();
    for _ in 0..instants {
        let (thread, number) = random(execution, known);
        samples.entry(thread).or_default().push(number);
    }
    for numbers in samples.values_mut() {
        numbers.sort_unstable();
        numbers.dedup();
    }
    check::compare(trace, execution, &samples, threads)
}

/// Makes steps and undoes each; returns their times, sorted.
fn walk(
    trace: &Trace<'_>,
    execution: &mut Execution,
    known: &[u32],
    steps: u64,
) -> Result<Vec<Duration>, String> {
    let mut times = Vec::new();
    let mut left = steps;
    while left > 0 {
        let (thread, number) = random(execution, known);
        let mut stepper = execution.stepper(trace, &|| true);
        let mut at = stepper.position(thread, number).ok_or("it has this instruction")?;
        for _ in 0..IN_A_ROW.min(left) {
            let step = Step {
                motion: *fastrand::choice(&[Motion::Into, Motion::Over, Motion::Out])
                    .unwrap_or(&Motion::Into),
                granularity: if fastrand::bool() { Granularity::Line } else { Granularity::Instruction },
                direction: if fastrand::bool() { Direction::Forward } else { Direction::Backward },
            };
            let there = timed(&mut stepper, at, step, &mut times)?;
            // A single instruction is undone from everywhere; other steps where the stack is as before.
            let single = Step { motion: Motion::Into, granularity: Granularity::Instruction, ..step };
            let next = timed(&mut stepper, there, single, &mut times)?;
            let back = match step.direction {
                Direction::Forward => Direction::Backward,
                Direction::Backward => Direction::Forward,
            };
            let again = stepper.step(next, Step { direction: back, ..single }).map_err(|_| "interrupted")?;
            if next != there && again.to != there {
                return Err(format!(
                    "{single:?} from {there:?} leads to {next:?}, and back to {:?}",
                    again.to
                ));
            }
            let over = Step { motion: Motion::Over, ..single };
            let beyond = stepper.step(there, over).map_err(|_| "interrupted")?;
            if !beyond.at_limit
                && stepper.depth(beyond.to) == stepper.depth(there)
                && stepper.depth(there) > 0
            {
                let again =
                    stepper.step(beyond.to, Step { direction: back, ..over }).map_err(|_| "interrupted")?;
                if again.to != there {
                    return Err(format!(
                        "{over:?} from {there:?} leads to {:?}, and back to {:?}",
                        beyond.to, again.to
                    ));
                }
            }
            at = there;
        }
        left -= IN_A_ROW.min(left);
    }
    times.sort_unstable();
    Ok(times)
}

fn timed(
    stepper: &mut Stepper<'_, '_>,
    from: Position,
    step: Step,
    times: &mut Vec<Duration>,
) -> Result<Position, String> {
    let begun = Instant::now();
    let moved = stepper.step(from, step).map_err(|_| "interrupted")?;
    stepper.scene(moved.to);
    times.push(begun.elapsed());
    Ok(moved.to)
}

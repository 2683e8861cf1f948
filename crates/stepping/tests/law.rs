//! Positions and steps on the fixtures, beside what every instruction of them shows.

use std::path::PathBuf;

use hodo_engine::{Experiment, FileSearchPaths, Input, Needs, Options, Trace};
use hodo_stepping::{
    Direction, Execution, Granularity, Motion, Place, Position, Scene, Step, Stepper, Stop,
    check::{self, Samples},
};
use proptest::prelude::*;

const FIXTURES: [&str; 3] = ["tiny.data", "tiny-exact-time.data", "tiny-no-return-compression.data"];

fn with<R>(name: &str, work: impl FnOnce(&Trace<'_>) -> R) -> R {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf");
    let places = FileSearchPaths { symfs: Some(folder.join("symfs")), ..FileSearchPaths::default() };
    let options = Options { places, ..Options::default() };
    let experiment =
        Experiment::open(vec![Input::File(folder.join(name))], &options, Needs::ALL, 1, |_, _| ()).unwrap();
    experiment.with(|traces| work(&traces.flows[0]))
}

fn open(trace: &Trace<'_>) -> Execution {
    let execution = Execution::open(trace, 2, |_| true).unwrap();
    assert!(execution.threads().count() > 0);
    execution
}

#[test]
fn each_instruction_is_where_the_flow_from_the_start_has_it() {
    for name in FIXTURES {
        with(name, |trace| {
            let mut execution = open(trace);
            let all: Samples = execution
                .threads()
                .map(|thread| (thread, (0..execution.instructions(thread)).collect()))
                .collect();
            for most in [1 << 20, 50] {
                execution.limit_pieces(most);
                let compared = check::compare(trace, &mut execution, &all, 2).unwrap();
                assert!(compared > 1000, "{name}: {compared}");
            }
        });
    }
}

#[test]
fn positions_are_in_one_order() {
    for name in FIXTURES {
        with(name, |trace| {
            let mut execution = open(trace);
            let threads: Vec<u32> = execution.threads().collect();
            let stepper = execution.stepper(trace, &|| true);
            for thread in threads {
                let first = stepper.first(thread).unwrap();
                assert_eq!(stepper.previous(first), None);
                let mut at = first;
                while let Some(next) = stepper.next(at) {
                    assert_eq!(stepper.previous(next), Some(at));
                    assert!(next > at);
                    at = next;
                }
                assert_eq!(stepper.last(thread), Some(at));
            }
        });
    }
}

/// The line of an instruction in an execution of its function: the frame's first instruction, its depth, file and line.
type LineOfCall = (u64, u64, Option<(String, u32)>);

/// What decides on steps, for each instruction of a thread.
struct Known {
    scenes: Vec<Scene>,
    /// The number of frames that jumps did not enter.
    frames: Vec<usize>,
    lines: Vec<LineOfCall>,
}

impl Known {
    fn of(stepper: &mut Stepper<'_, '_>, thread: u32) -> Known {
        let mut scenes = Vec::new();
        while let Some(at) = stepper.position(thread, scenes.len() as u64) {
            scenes.push(stepper.scene(at));
        }
        let frames = |scene: &Scene| scene.frames.iter().filter(|frame| frame.entered_by != "jump").count();
        let line = |scene: &Scene| {
            let top = &scene.frames[0];
            (top.begin, scene.depth, top.file.clone().zip(top.line))
        };
        Known {
            frames: scenes.iter().map(frames).collect(),
            lines: scenes.iter().map(line).collect(),
            scenes,
        }
    }

    /// Where a step leads, found instruction by instruction; `None` if nowhere.
    fn step(&self, from: usize, step: Step) -> Option<usize> {
        let most = match step.motion {
            Motion::Into => usize::MAX,
            Motion::Over => self.frames[from],
            Motion::Out => self.frames[from] - 1,
        };
        let by_line = step.granularity == Granularity::Line && step.motion != Motion::Out;
        let next = |from: usize, most: usize| match step.direction {
            Direction::Forward => (from + 1..self.scenes.len()).find(|&at| self.frames[at] <= most),
            Direction::Backward => (0..from).rev().find(|&at| self.frames[at] <= most),
        };
        if !by_line {
            return next(from, most);
        }
        let mut at = next(from, most)?;
        if step.direction == Direction::Forward {
            while self.lines[at] == self.lines[from] {
                at = next(at, most)?;
            }
            return Some(at);
        }
        // Back to the begin of the line, unless it is there.
        let most = match self.lines[at] == self.lines[from] {
            true => most,
            false if most == usize::MAX => most,
            false => self.frames[at],
        };
        while let Some(before) = next(at, most).filter(|&before| self.lines[before] == self.lines[at]) {
            at = before;
        }
        Some(at)
    }
}

fn steps() -> impl Iterator<Item = Step> {
    let motions = [Motion::Into, Motion::Over, Motion::Out];
    let granularities = [Granularity::Instruction, Granularity::Line];
    motions.into_iter().flat_map(move |motion| {
        granularities.into_iter().flat_map(move |granularity| {
            [Direction::Forward, Direction::Backward].into_iter().map(move |direction| Step {
                motion,
                granularity,
                direction,
            })
        })
    })
}

#[test]
fn steps_are_those_found_instruction_by_instruction() {
    for name in FIXTURES {
        with(name, |trace| {
            let mut execution = open(trace);
            let threads: Vec<u32> = execution.threads().collect();
            let mut stepper = execution.stepper(trace, &|| true);
            for thread in threads {
                let known = Known::of(&mut stepper, thread);
                for number in (0..known.scenes.len()).step_by(23) {
                    let from = stepper.position(thread, number as u64).unwrap();
                    for step in steps() {
                        let moved = stepper.step(from, step).unwrap();
                        let expected = known.step(number, step);
                        if moved.to.stop == Stop::Gap {
                            continue;
                        }
                        assert_eq!(
                            (!moved.at_limit).then_some(moved.to.number as usize),
                            expected,
                            "{name}: {step:?} from {number}"
                        );
                    }
                }
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// A step over a call and back ends where it began, unless the function returned; so does a step by line from the begin
    /// of a line.
    #[test]
    fn a_step_back_undoes_a_step(starts in prop::collection::vec(any::<prop::sample::Index>(), 30), name in 0usize..3) {
        with(FIXTURES[name], |trace| {
            let mut execution = open(trace);
            let thread = execution.threads().next().unwrap();
            let count = execution.instructions(thread) as usize;
            let mut stepper = execution.stepper(trace, &|| true);
            for start in starts {
                let from = stepper.position(thread, start.index(count) as u64).unwrap();
                for step in steps().filter(|step| step.direction == Direction::Forward && step.motion != Motion::Out) {
                    let back = Step { direction: Direction::Backward, ..step };
                    let from = if step.granularity == Granularity::Line { begin_of_line(&mut stepper, from, back) } else { from };
                    let there = stepper.step(from, step).unwrap();
                    if there.at_limit || stepper.depth(there.to) != stepper.depth(from) && step.motion == Motion::Over {
                        continue;
                    }
                    let again = stepper.step(there.to, back).unwrap().to;
                    prop_assert_eq!(again, from, "{:?}", step);
                }
            }
            Ok(())
        })?;
    }
}

/// The begin of the line of a position, or of the one before.
fn begin_of_line(stepper: &mut Stepper<'_, '_>, from: Position, back: Step) -> Position {
    stepper.step(from, back).unwrap().to
}

#[test]
fn executions_of_a_function_are_found_in_both_directions() {
    with("tiny.data", |trace| {
        let mut execution = open(trace);
        let thread = execution.threads().next().unwrap();
        let mut stepper = execution.stepper(trace, &|| true);
        let known = Known::of(&mut stepper, thread);
        // The most frequent function.
        let begins = |name: &str| -> Vec<u64> {
            let is_begin = |scene: &&Scene| {
                let top = &scene.frames[0];
                top.function == name && top.begin == scene.number && top.entered_by != "start"
            };
            known.scenes.iter().filter(is_begin).map(|scene| scene.number).collect()
        };
        let names: std::collections::BTreeSet<&str> =
            known.scenes.iter().map(|scene| scene.frames[0].function.as_str()).collect();
        let (name, expected) = names
            .into_iter()
            .map(|name| (name, begins(name)))
            .max_by_key(|(_, begins)| begins.len())
            .unwrap();
        assert!(expected.len() > 1, "{name}");
        let places: Vec<Place> =
            trace.modules.functions_named(name).into_iter().map(Place::Function).collect();
        let walk = |stepper: &mut Stepper<'_, '_>, from: Position, direction| {
            let mut found = Vec::new();
            let mut at = from;
            while let Some(next) = stepper.find(at, &places, direction).unwrap() {
                found.push(next.number);
                at = next;
            }
            found
        };
        let (first, last) = (stepper.first(thread).unwrap(), stepper.last(thread).unwrap());
        assert_eq!(walk(&mut stepper, first, Direction::Forward), expected);
        let backward = walk(&mut stepper, last, Direction::Backward);
        assert_eq!(backward.into_iter().rev().collect::<Vec<_>>(), expected);
    });
}

#[test]
fn an_instant_is_before_the_first_later_instruction() {
    with("tiny-exact-time.data", |trace| {
        let mut execution = open(trace);
        let thread = execution.threads().next().unwrap();
        let mut stepper = execution.stepper(trace, &|| true);
        let known = Known::of(&mut stepper, thread);
        let times: Vec<u64> = known.scenes.iter().filter_map(|scene| scene.time_ns).collect();
        let (first, last) = (times[0], times[times.len() - 1]);
        assert!(last > first);
        for step in 0..200 {
            let instant = first + (last - first) * step / 200;
            let later =
                known.scenes.iter().position(|scene| scene.time_ns.is_some_and(|time| time > instant));
            let expected = later.unwrap_or(known.scenes.len()).saturating_sub(1) as u64;
            let at = stepper.at(thread, hodo_clock::Nanos(instant)).unwrap().unwrap();
            assert_eq!(at.number, expected, "{instant}");
        }
    });
}

//! Requests that move: steps, continued execution, jumps to a line or an instant.

use hodo_stepping::{
    Direction, Granularity, Instant, Interrupted, Motion, Moved, Place, Position, Step, Stepper,
};
use serde_json::{Value, json};

use crate::session::{Answer, Session, thread_of};

/// Why a search found nothing.
const STOPPED: &str = "the search was stopped";

/// Where a continued execution stops.
struct Stopped {
    at: Position,
    /// The time, if it is known.
    time: Option<u64>,
}

impl Session<'_, '_> {
    /// `next`, `stepIn`, `stepOut` and `stepBack`, which steps over calls.
    pub(crate) fn steps(&mut self, command: &str, arguments: &Value) -> Answer {
        let (motion, direction) = match command {
            "stepIn" => (Motion::Into, Direction::Forward),
            "stepOut" => (Motion::Out, Direction::Forward),
            "stepBack" => (Motion::Over, Direction::Backward),
            _ => (Motion::Over, Direction::Forward),
        };
        let granularity = match arguments["granularity"].as_str() {
            Some("instruction") => Granularity::Instruction,
            _ => Granularity::Line,
        };
        self.step(thread_of(arguments)?, Step { motion, granularity, direction })?;
        Ok(Value::Null)
    }

    fn step(&mut self, thread: u32, step: Step) -> Result<(), String> {
        let from = self.from(thread)?;
        match self.search(|stepper| stepper.step(from, step)) {
            Ok(Moved { to, .. }) => self.stopped(to, "step", &[]),
            Err(Interrupted) => self.stopped(from, "pause", &[]),
        }
        Ok(())
    }

    /// Where a thread moves from.
    fn from(&mut self, thread: u32) -> Result<Position, String> {
        self.position_of(thread).ok_or_else(|| "the thread executes nothing at this instant".to_owned())
    }

    /// `continue` and `reverseContinue`: to the next breakpoint of any thread, in order of time.
    pub(crate) fn run_to(&mut self, arguments: &Value, direction: Direction) -> Answer {
        let thread = thread_of(arguments)?;
        let from = self.from(thread)?;
        let places: Vec<Place> =
            self.breakpoints.all().flat_map(|(_, breakpoint)| breakpoint.places.iter().copied()).collect();
        let is_single = arguments["singleThread"] == true;
        let others = if is_single { Vec::new() } else { self.all_threads() };
        let mut begins = vec![from];
        for other in others.into_iter().filter(|&other| other != thread) {
            begins.extend(self.start_of(other, direction));
        }
        let stops_at_gaps = self.stops_at_gaps;
        let found = self.search(|stepper| {
            let mut nearest: Option<Stopped> = None;
            for begin in begins {
                let Some(at) = stop_of(stepper, begin, &places, direction, stops_at_gaps)? else { continue };
                let time = stepper.time(at).map(|time| time.0);
                let is_nearer = nearest.as_ref().is_none_or(|nearest| match direction {
                    Direction::Forward => time.is_some() && time < nearest.time,
                    Direction::Backward => time > nearest.time,
                });
                if is_nearer {
                    nearest = Some(Stopped { at, time });
                }
            }
            Ok::<_, Interrupted>(nearest)
        });
        match found {
            Err(Interrupted) => self.stopped(from, "pause", &[]),
            Ok(Some(Stopped { at, .. })) => {
                let (reason, hit) = self.hit(at);
                self.stopped(at, reason, &hit);
            }
            Ok(None) => {
                let stepper = self.stepper();
                let limit = match direction {
                    Direction::Forward => stepper.last(thread),
                    Direction::Backward => stepper.first(thread),
                };
                self.stopped(limit.unwrap_or(from), "pause", &[]);
            }
        }
        Ok(json!({ "allThreadsContinued": true }))
    }

    /// Where another thread begins to run: where it is now, or its first or last position if it executes nothing now.
    fn start_of(&mut self, thread: u32, direction: Direction) -> Option<Position> {
        if let Some(now) = self.position_of(thread) {
            return Some(now);
        }
        let here = self.here?;
        let mut stepper = self.stepper();
        let now = stepper.time(here)?;
        let ahead = match direction {
            Direction::Forward => stepper.first(thread)?,
            Direction::Backward => stepper.last(thread)?,
        };
        let time = stepper.time(ahead)?;
        let is_ahead = if direction == Direction::Forward { time > now } else { time < now };
        is_ahead.then_some(ahead)
    }

    /// The reason of a stop, and the breakpoints that cause it.
    fn hit(&mut self, at: Position) -> (&'static str, Vec<i64>) {
        let all: Vec<_> =
            self.breakpoints.all().map(|(reason, breakpoint)| (reason, breakpoint.clone())).collect();
        let mut stepper = self.stepper();
        let hit: Vec<_> =
            all.into_iter().filter(|(_, breakpoint)| stepper.is_at(at, &breakpoint.places)).collect();
        let reason = hit.first().map_or("exception", |(reason, _)| reason);
        (reason, hit.into_iter().map(|(_, breakpoint)| breakpoint.id).collect())
    }

    pub(crate) fn goto_targets(&mut self, arguments: &Value) -> Answer {
        let path = arguments["source"]["path"].as_str().unwrap_or_default();
        let line = arguments["line"].as_u64().and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        let places = self.places_of_line(&self.recorded_path(path), line);
        if places.is_empty() {
            return Ok(json!({ "targets": [] }));
        }
        let id = self.targets.len() as i64 + 1;
        self.targets.insert(id, places);
        let label = format!("line {line}: its next execution, else its last one");
        Ok(json!({ "targets": [{ "id": id, "label": label, "line": line }] }))
    }

    pub(crate) fn goto(&mut self, arguments: &Value) -> Answer {
        let from = self.from(thread_of(arguments)?)?;
        let places = arguments["targetId"].as_i64().and_then(|id| self.targets.get(&id)).cloned();
        let places = places.ok_or("there is no such target")?;
        let found = self.search(|stepper| match stepper.find(from, &places, Direction::Forward)? {
            Some(found) => Ok(Some(found)),
            None => stepper.find(from, &places, Direction::Backward),
        });
        match found {
            Ok(Some(at)) => self.stopped(at, "goto", &[]),
            Ok(None) => return Err("this thread never executes the line".to_owned()),
            Err(Interrupted) => return Err(STOPPED.to_owned()),
        }
        Ok(Value::Null)
    }

    /// Commands of the client's console.
    pub(crate) fn evaluate(&mut self, arguments: &Value) -> Answer {
        const HELP: &str = "a recording has no values; commands: at INSTANT (seconds, +TIME, N%, #N), reverse-step, \
                            reverse-finish, reverse-stepi, next-gap, previous-gap";
        let text = arguments["expression"].as_str().unwrap_or_default().trim();
        let here = self.here.ok_or("nothing is launched")?;
        if let Some(instant) = text.strip_prefix("at ") {
            let instant = Instant::parse(instant.trim(), self.trace)?;
            let found = self.search(|stepper| stepper.at_instant(here.thread, instant));
            let found = found.map_err(|Interrupted| STOPPED.to_owned())?;
            let at = found.ok_or("the thread executes nothing at this instant")?;
            self.stopped(at, "goto", &[]);
            return Ok(json!({ "result": text, "variablesReference": 0 }));
        }
        let back = |motion, granularity| Step { motion, granularity, direction: Direction::Backward };
        match text {
            "reverse-step" => self.step(here.thread, back(Motion::Into, Granularity::Line))?,
            "reverse-stepi" => self.step(here.thread, back(Motion::Into, Granularity::Instruction))?,
            "reverse-finish" => self.step(here.thread, back(Motion::Out, Granularity::Line))?,
            "next-gap" | "previous-gap" => {
                let direction = if text == "next-gap" { Direction::Forward } else { Direction::Backward };
                let gap = self.stepper().gap(here, direction);
                self.stopped(gap.ok_or("no flow is missing on this way")?, "exception", &[]);
            }
            _ => return Err(HELP.to_owned()),
        }
        Ok(json!({ "result": text, "variablesReference": 0 }))
    }
}

/// Where a thread stops: at a breakpoint, or where flow is missing if that comes first.
fn stop_of(
    stepper: &mut Stepper<'_, '_>,
    from: Position,
    places: &[Place],
    direction: Direction,
    stops_at_gaps: bool,
) -> Result<Option<Position>, Interrupted> {
    let hit = stepper.find(from, places, direction)?;
    let gap = stepper.gap(from, direction).filter(|_| stops_at_gaps);
    Ok(match direction {
        Direction::Forward => hit.into_iter().chain(gap).min(),
        Direction::Backward => hit.into_iter().chain(gap).max(),
    })
}

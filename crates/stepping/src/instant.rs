//! Instants of a recording, as people write them.

use hodo_clock::Nanos;
use hodo_engine::{TimeSpan, Trace};

use crate::execution::{Interrupted, Position, Stepper};

/// An instant of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instant {
    /// A time of the recording's clock.
    Time(Nanos),
    /// The n-th instruction of a thread, counted from 0.
    Instruction(u64),
    /// The last instruction of a thread.
    End,
}

impl Instant {
    /// Parses a time in seconds, `+TIME` from the begin, `N%` of the recording, `end` or `100%`, or `#N`, the n-th instruction.
    ///
    /// # Errors
    /// Returns a text with what was expected.
    pub fn parse(text: &str, trace: &Trace<'_>) -> Result<Instant, String> {
        const EXPECTED: &str =
            "expected a time in seconds, +TIME from the begin, N%, end, or #N, the n-th instruction";
        if matches!(text, "end" | "100%") {
            return Ok(Instant::End);
        }
        if let Some(number) = text.strip_prefix('#') {
            return number.parse().map(Instant::Instruction).map_err(|_| EXPECTED.to_owned());
        }
        let span = match text.strip_suffix('%') {
            Some(share) => TimeSpan::parse(&format!("{share}%-100%")),
            None => TimeSpan::parse(&format!("{text},")),
        };
        let span = span.map_err(|_| EXPECTED.to_owned())?;
        let window = span.of_flow(trace).map_err(|refusal| refusal.to_string())?;
        let from = window.from.zip(trace.recording.config.clock).map(|(from, clock)| clock.nanos(from));
        from.map(Instant::Time).ok_or_else(|| EXPECTED.to_owned())
    }
}

impl Stepper<'_, '_> {
    /// The position of a thread at an instant; `None` if it executes nothing then: before its first and after its last
    /// timestamp, or in fewer instructions. Its end is before its last instruction.
    ///
    /// # Errors
    /// Returns an error if the answer is no longer awaited.
    pub fn at_instant(&mut self, thread: u32, instant: Instant) -> Result<Option<Position>, Interrupted> {
        let time = match instant {
            Instant::Instruction(number) => return Ok(self.position(thread, number)),
            Instant::End => {
                let number = self.execution.instructions(thread).checked_sub(1);
                return Ok(number.and_then(|number| self.position(thread, number)));
            }
            Instant::Time(time) => time,
        };
        if self.latest(thread) < Some(time) {
            return Ok(None);
        }
        let found = self.at(thread, time)?;
        Ok(found.filter(|&at| self.time(at).is_none_or(|begun| begun <= time)))
    }
}

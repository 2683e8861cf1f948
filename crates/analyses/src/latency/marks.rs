//! Markers that a thread reaches, and the intervals between them.

use std::ops::Range;

use crate::mark::{Clocks, Mark, ReadingDelta, StampedMarks};
use hodo_model::{Arrival, Code, FlowEvent, Nesting};
use serde::{Deserialize, Serialize};

use super::{
    IntervalEnd,
    matcher::{FROM, MarkerMatcher, MarkerRoles, MatchCache, POPF, TO},
};

/// Control flow is missing here.
const GAP: MarkerRoles = 1 << 4;
/// The trace says that interrupts are on from here, or off.
const ON: MarkerRoles = 1 << 5;
const OFF: MarkerRoles = 1 << 6;

/// The bits of an instruction that matches no sequence.
const NO_MATCH: u64 = 0;

/// A marker that was reached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Hit {
    roles: MarkerRoles,
    mark: Mark,
}

/// One of the first instructions of a partial, which may continue a sequence that began in an earlier partial.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct EarlyInstruction {
    bits: u64,
    /// The position after it.
    mark: Mark,
}

/// An interval between two markers.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkedInterval {
    pub(super) begin: Mark,
    pub(super) end: Mark,
    pub(super) ended: IntervalEnd,
}

/// The intervals between the markers of a whole thread.
#[derive(Clone, Debug, Default)]
pub(super) struct MarkedIntervals {
    /// In order of their ends.
    pub(super) intervals: Vec<MarkedInterval>,
    /// Number of markers without a counterpart.
    pub(super) unmatched: u64,
    pub(super) passed: PassedMarkers,
}

/// Numbers of markers reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PassedMarkers {
    pub(super) begins: u64,
    pub(super) ends: u64,
}

/// The markers in some chunks of a thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MarkersPartial {
    clocks: Clocks,
    hits: Vec<Hit>,
    /// The first instructions: at most the length of the longest sequence minus one.
    early: Vec<EarlyInstruction>,
    /// Whether sequences that began before the partial can't end after these.
    closed: bool,
    /// The matcher's state: the sequences in progress.
    state: u64,
    #[serde(skip)]
    pub(super) cache: MatchCache,
    /// How many hits are stamped.
    #[serde(skip)]
    stamped: StampedMarks,
}

impl MarkersPartial {
    /// Returns the number of instructions of the partial.
    pub(super) fn instructions(&self) -> u64 {
        self.clocks.instructions
    }

    /// Returns whether it is consistent.
    pub(super) fn is_sound(&self) -> bool {
        self.hits.is_sorted_by_key(|hit| hit.mark.before)
    }

    #[inline]
    pub(super) fn fold(&mut self, matcher: &MarkerMatcher, event: &FlowEvent<'_>) {
        match event {
            FlowEvent::Run { at, instructions, code } => {
                self.run(matcher, at, code);
                self.clocks.instructions += instructions;
            }
            FlowEvent::Gap => self.gap(),
            FlowEvent::Interrupts(true) => self.hit(ON, self.clocks.mark()),
            FlowEvent::Interrupts(false) => self.hit(OFF, self.clocks.mark()),
            FlowEvent::Skip { instructions } => {
                self.gap();
                self.clocks.instructions += instructions;
            }
            event => {
                let mut clocks = std::mem::take(&mut self.clocks);
                clocks.fold(event, |reading| self.stamp(reading));
                self.clocks = clocks;
            }
        }
    }

    #[inline]
    fn run(&mut self, matcher: &MarkerMatcher, at: &Arrival, code: &Code<'_>) {
        let mut cache = std::mem::take(&mut self.cache);
        let begin = self.clocks.mark();
        let position = |instructions: u32| begin.after(instructions.into(), 0);
        let (mut state, mut next) = (self.state, 0);
        for matched in matcher.find(&mut cache, at, code) {
            if matched.index > next {
                state = 0;
            }
            self.look_early(matcher, begin, next..matched.index, NO_MATCH);
            self.look_early(matcher, begin, matched.index..matched.index + 1, matched.bits);
            self.hit(matched.before, position(matched.index));
            state = matcher.step(state, matched.bits);
            next = matched.index + 1;
            self.hit(matcher.roles(state) | matched.after, position(next));
        }
        let count = code.lengths.len() as u32;
        if count > next {
            state = 0;
            self.look_early(matcher, begin, next..count, NO_MATCH);
        }
        (self.state, self.cache) = (state, cache);
    }

    /// Keeps some instructions of a run if they are among the first of the partial.
    #[inline]
    fn look_early(&mut self, matcher: &MarkerMatcher, begin: Mark, instructions: Range<u32>, bits: u64) {
        for index in instructions {
            if self.closed || self.early.len() + 1 >= matcher.longest {
                self.closed = true;
                return;
            }
            self.early.push(EarlyInstruction { bits, mark: begin.after(u64::from(index) + 1, 0) });
        }
    }

    #[inline]
    fn hit(&mut self, roles: MarkerRoles, mark: Mark) {
        if roles == 0 {
            return;
        }
        match self.hits.last_mut() {
            Some(last) if last.mark.before == mark.before && last.roles & GAP == roles & GAP => {
                last.roles |= roles
            }
            _ => self.hits.push(Hit { roles, mark }),
        }
    }

    fn gap(&mut self) {
        (self.state, self.closed) = (0, true);
        self.hit(GAP, self.clocks.mark());
    }

    fn stamp(&mut self, reading: &ReadingDelta) {
        let stamped = &mut self.stamped[reading.clock() as usize];
        self.hits[*stamped..].iter_mut().for_each(|hit| reading.stamp(&mut hit.mark));
        *stamped = self.hits.len();
        self.early.iter_mut().for_each(|early| reading.stamp(&mut early.mark));
    }

    /// Merges the next partial.
    pub(super) fn merge(mut self, matcher: &MarkerMatcher, later: MarkersPartial) -> MarkersPartial {
        let (instructions, segments) = (self.clocks.instructions, self.clocks.segments);
        let shifted = |mark: Mark| mark.after(instructions, segments);
        // Sequences that begin in this partial and end among the first instructions of the later one.
        let (mut state, mut joined) = (self.state, Vec::new());
        for early in &later.early {
            state = matcher.advance(state, early.bits);
            let roles = matcher.roles(state);
            joined.extend((roles != 0).then_some(Hit { roles, mark: early.mark }));
        }
        let mut joined = joined.into_iter().peekable();
        for hit in later.hits {
            // At the same position, a gap comes after the sequences that end there.
            while let Some(own) = joined.next_if(|own| own.mark.before <= hit.mark.before) {
                self.hit(own.roles, shifted(own.mark));
            }
            self.hit(hit.roles, shifted(hit.mark));
        }
        joined.for_each(|own| self.hit(own.roles, shifted(own.mark)));
        if !self.closed {
            for early in &later.early {
                if self.early.len() + 1 >= matcher.longest {
                    self.closed = true;
                    break;
                }
                self.early.push(EarlyInstruction { mark: shifted(early.mark), ..*early });
            }
            self.closed |= later.closed;
        }
        self.state = later.state | if later.closed { 0 } else { state };
        self.clocks.add(&later.clocks);
        self.stamped = [self.hits.len(); 2];
        self
    }

    /// Returns whether the trace says when interrupts are turned on and off.
    pub(super) fn has_interrupts(&self) -> bool {
        self.hits.iter().any(|hit| hit.roles & (ON | OFF) != 0)
    }

    /// Returns the intervals between the markers of a whole thread. `has_interrupts`: a `popf` is an end only where the
    /// trace says that it turned interrupts on, and a begin only where it turned them off.
    pub(super) fn close(self, nesting: Nesting, has_interrupts: bool) -> MarkedIntervals {
        let (mut open, mut marked): (Vec<Mark>, MarkedIntervals) = Default::default();
        let interval = |begin, end, ended| MarkedInterval { begin, end, ended };
        for Hit { mut roles, mark } in self.hits {
            if has_interrupts && roles & POPF != 0 {
                roles &= if roles & ON == 0 { !TO } else { !0 };
                roles &= if roles & OFF == 0 { !FROM } else { !0 };
            }
            if roles & GAP != 0 {
                marked.intervals.extend(open.drain(..).map(|begin| interval(begin, mark, IntervalEnd::Lost)));
            }
            if roles & TO != 0 {
                marked.passed.ends += 1;
                match open.pop() {
                    Some(begin) => marked.intervals.push(interval(begin, mark, IntervalEnd::Returned)),
                    None => marked.unmatched += 1,
                }
            }
            if roles & FROM != 0 {
                marked.passed.begins += 1;
                match nesting {
                    Nesting::First if !open.is_empty() => marked.unmatched += 1,
                    Nesting::Last if !open.is_empty() => {
                        marked.unmatched += 1;
                        open[0] = mark;
                    }
                    _ => open.push(mark),
                }
            }
        }
        let end = self.clocks.mark();
        marked.intervals.extend(open.into_iter().map(|begin| interval(begin, end, IntervalEnd::Cut)));
        marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that passes markers at instructions of these numbers.
    fn thread(hits: &[(MarkerRoles, u64)]) -> MarkersPartial {
        let mut partial = MarkersPartial::default();
        for &(roles, before) in hits {
            partial.hit(roles, Clocks::default().mark().after(before, 0));
        }
        partial
    }

    #[test]
    fn the_interrupt_flag_decides_which_popf_is_an_end() {
        // cli, a popf that changes nothing, a popf that turns interrupts on, and one that turns them off.
        let hits = [(FROM | OFF, 10), (TO | POPF, 20), (TO | POPF, 30), (ON, 30), (TO | POPF, 40), (OFF, 40)];
        let closed = |has_interrupts| thread(&hits).close(Nesting::Nested, has_interrupts);
        let lengths = |marked: &MarkedIntervals| -> Vec<u64> {
            marked.intervals.iter().map(|interval| interval.end.before - interval.begin.before).collect()
        };
        assert!(thread(&hits).has_interrupts() && !thread(&hits[1..3]).has_interrupts());
        let by_flag = closed(true);
        assert_eq!((lengths(&by_flag), by_flag.unmatched), (vec![20], 0));
        assert_eq!(by_flag.passed, PassedMarkers { begins: 1, ends: 1 });
        let by_pairing = closed(false);
        assert_eq!((lengths(&by_pairing), by_pairing.unmatched), (vec![10], 2));
        assert_eq!(by_pairing.passed, PassedMarkers { begins: 1, ends: 3 });
    }
}

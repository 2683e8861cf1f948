//! Markers that a thread reaches, and the intervals between them.

use crate::mark::{Clocks, Mark, ReadingDelta, ReadingOf};
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

/// A marker that was reached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Hit {
    kinds: MarkerRoles,
    mark: Mark,
}

/// One of the first instructions of a partial, which may continue a sequence that began in an earlier partial.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct EarlyInstruction {
    bits: u64,
    /// The position after it.
    mark: Mark,
}

/// The intervals between the markers of a whole thread, in order of their ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Between {
    /// The begin, the end, and how each ended.
    pub(super) found: Vec<(Mark, Mark, IntervalEnd)>,
    /// Number of markers without a counterpart.
    pub(super) unmatched: u64,
    /// The number of begins and ends reached.
    pub(super) passed: [u64; 2],
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
    /// The hits before these indices have their times, and their cycles.
    #[serde(skip)]
    reported: [usize; 2],
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
            self.look_early(matcher, begin, next, matched.index, 0);
            self.look_early(matcher, begin, matched.index, matched.index + 1, matched.bits);
            self.hit(matched.before, position(matched.index));
            state = matcher.step(state, matched.bits);
            next = matched.index + 1;
            self.hit(matcher.kinds(state) | matched.behind, position(next));
        }
        let count = code.lengths.len() as u32;
        if count > next {
            state = 0;
            self.look_early(matcher, begin, next, count, 0);
        }
        (self.state, self.cache) = (state, cache);
    }

    /// Keeps the instructions `from..to` of a run if they are among the first of the partial.
    #[inline]
    fn look_early(&mut self, matcher: &MarkerMatcher, begin: Mark, from: u32, to: u32, bits: u64) {
        for index in from..to {
            if self.closed || self.early.len() + 1 >= matcher.longest {
                self.closed = true;
                return;
            }
            self.early.push(EarlyInstruction { bits, mark: begin.after(u64::from(index) + 1, 0) });
        }
    }

    #[inline]
    fn hit(&mut self, kinds: MarkerRoles, mark: Mark) {
        if kinds == 0 {
            return;
        }
        match self.hits.last_mut() {
            Some(last) if last.mark.before == mark.before && last.kinds & GAP == kinds & GAP => {
                last.kinds |= kinds
            }
            _ => self.hits.push(Hit { kinds, mark }),
        }
    }

    fn gap(&mut self) {
        (self.state, self.closed) = (0, true);
        self.hit(GAP, self.clocks.mark());
    }

    fn stamp(&mut self, reading: &ReadingDelta) {
        let reported = &mut self.reported[usize::from(reading.of() == ReadingOf::Cycles)];
        self.hits[*reported..].iter_mut().for_each(|hit| reading.stamp(&mut hit.mark));
        *reported = self.hits.len();
        self.early.iter_mut().for_each(|early| reading.stamp(&mut early.mark));
    }

    /// Merges the next partial.
    pub(super) fn merge(mut self, matcher: &MarkerMatcher, later: MarkersPartial) -> MarkersPartial {
        let (instructions, segments) = (self.clocks.instructions, self.clocks.segments);
        let behind = |mark: Mark| mark.after(instructions, segments);
        // Sequences that begin in this partial and end among the first instructions of the later one.
        let (mut state, mut over) = (self.state, Vec::new());
        for early in &later.early {
            state = matcher.advance(state, early.bits);
            let kinds = matcher.kinds(state);
            over.extend((kinds != 0).then_some(Hit { kinds, mark: early.mark }));
        }
        let mut over = over.into_iter().peekable();
        for hit in later.hits {
            // At the same position, a gap comes after the sequences that end there.
            while let Some(own) = over.next_if(|own| own.mark.before <= hit.mark.before) {
                self.hit(own.kinds, behind(own.mark));
            }
            self.hit(hit.kinds, behind(hit.mark));
        }
        over.for_each(|own| self.hit(own.kinds, behind(own.mark)));
        if !self.closed {
            for early in &later.early {
                if self.early.len() + 1 >= matcher.longest {
                    self.closed = true;
                    break;
                }
                self.early.push(EarlyInstruction { mark: behind(early.mark), ..*early });
            }
            self.closed |= later.closed;
        }
        self.state = later.state | if later.closed { 0 } else { state };
        self.clocks.add(&later.clocks);
        self.reported = [self.hits.len(); 2];
        self
    }

    /// Returns whether the trace says when interrupts are turned on and off.
    pub(super) fn has_interrupts(&self) -> bool {
        self.hits.iter().any(|hit| hit.kinds & (ON | OFF) != 0)
    }

    /// Returns the intervals between the markers of a whole thread. `decides`: a `popf` is an end only where the trace says
    /// that it turned interrupts on, and a begin only where it turned them off.
    pub(super) fn close(self, nesting: Nesting, decides: bool) -> Between {
        let (mut open, mut between) = (Vec::new(), Between::default());
        for Hit { mut kinds, mark } in self.hits {
            if decides && kinds & POPF != 0 {
                kinds &= if kinds & ON == 0 { !TO } else { !0 };
                kinds &= if kinds & OFF == 0 { !FROM } else { !0 };
            }
            if kinds & GAP != 0 {
                between.found.extend(open.drain(..).map(|begin| (begin, mark, IntervalEnd::Lost)));
            }
            if kinds & TO != 0 {
                between.passed[1] += 1;
                match open.pop() {
                    Some(begin) => between.found.push((begin, mark, IntervalEnd::Returned)),
                    None => between.unmatched += 1,
                }
            }
            if kinds & FROM != 0 {
                between.passed[0] += 1;
                match nesting {
                    Nesting::First if !open.is_empty() => between.unmatched += 1,
                    Nesting::Last if !open.is_empty() => {
                        between.unmatched += 1;
                        open[0] = mark;
                    }
                    _ => open.push(mark),
                }
            }
        }
        let end = self.clocks.mark();
        between.found.extend(open.into_iter().map(|begin| (begin, end, IntervalEnd::Cut)));
        between
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that passes markers at instructions of these numbers.
    fn thread(hits: &[(MarkerRoles, u64)]) -> MarkersPartial {
        let mut partial = MarkersPartial::default();
        for &(kinds, before) in hits {
            partial.hit(kinds, Clocks::default().mark().after(before, 0));
        }
        partial
    }

    #[test]
    fn the_interrupt_flag_decides_which_popf_is_an_end() {
        // cli, a popf that changes nothing, a popf that turns interrupts on, and one that turns them off.
        let hits = [(FROM | OFF, 10), (TO | POPF, 20), (TO | POPF, 30), (ON, 30), (TO | POPF, 40), (OFF, 40)];
        let lengths_if_it_decides = |decides| {
            let Between { found, unmatched, passed } = thread(&hits).close(Nesting::Nested, decides);
            let found: Vec<_> = found.iter().map(|(begin, end, _)| end.before - begin.before).collect();
            (found, unmatched, passed)
        };
        assert!(thread(&hits).has_interrupts() && !thread(&hits[1..3]).has_interrupts());
        assert_eq!(lengths_if_it_decides(true), (vec![20], 0, [1, 1]));
        assert_eq!(lengths_if_it_decides(false), (vec![10], 2, [1, 3]), "by pairing");
    }
}

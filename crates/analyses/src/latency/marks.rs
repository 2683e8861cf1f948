//! Markers that a thread passes, and what lies between them.

use hodo_model::{Arrival, Code, FlowEvent, Nesting};
use serde::{Deserialize, Serialize};

use super::{
    Ended,
    mark::{Clocks, Mark, Of, Reading},
    matcher::{Cache, FROM, Kinds, Matcher, TO},
};

/// Flow is missing here.
const GAP: Kinds = 4;

/// A marker that was passed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Hit {
    kinds: Kinds,
    mark: Mark,
}

/// One of the first instructions of a part, which may go on with a sequence that began before.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Early {
    bits: u64,
    /// Behind it.
    mark: Mark,
}

/// What lies between the markers of a whole thread, in the order of its ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Between {
    /// From where to where, and how each ended.
    pub(super) found: Vec<(Mark, Mark, Ended)>,
    /// Markers that have no other half.
    pub(super) unmatched: u64,
    /// How often a begin was passed, and an end.
    pub(super) passed: [u64; 2],
}

/// What some part of a thread shows of markers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Partial {
    clocks: Clocks,
    hits: Vec<Hit>,
    /// The first instructions, up to one less than the longest sequence has.
    early: Vec<Early>,
    /// Whether sequences that began before the part can't end behind these.
    closed: bool,
    /// Which sequences go on.
    state: u64,
    #[serde(skip)]
    pub(super) cache: Cache,
    /// Hits before these have their times, and their cycles.
    #[serde(skip)]
    told: [usize; 2],
}

impl Partial {
    /// Instructions of the part.
    pub(super) fn instructions(&self) -> u64 {
        self.clocks.instructions
    }

    /// Whether it holds together.
    pub(super) fn is_sound(&self) -> bool {
        self.hits.is_sorted_by_key(|hit| hit.mark.before)
    }

    #[inline]
    pub(super) fn fold(&mut self, matcher: &Matcher, seen: &FlowEvent<'_>) {
        match seen {
            FlowEvent::Run { at, instructions, code } => {
                self.run(matcher, at, code);
                self.clocks.instructions += instructions;
            }
            FlowEvent::Gap => self.gap(),
            FlowEvent::Skip { instructions } => {
                self.gap();
                self.clocks.instructions += instructions;
            }
            seen => {
                let mut clocks = std::mem::take(&mut self.clocks);
                clocks.fold(seen, |reading| self.tell(reading));
                self.clocks = clocks;
            }
        }
    }

    #[inline]
    fn run(&mut self, matcher: &Matcher, at: &Arrival, code: &Code<'_>) {
        let mut cache = std::mem::take(&mut self.cache);
        let begin = self.clocks.mark();
        let place = |instructions: u32| begin.behind(instructions.into(), 0);
        let (mut state, mut next) = (self.state, 0);
        for matched in matcher.find(&mut cache, at, code) {
            if matched.index > next {
                state = 0;
            }
            self.look_early(matcher, begin, next, matched.index, 0);
            self.look_early(matcher, begin, matched.index, matched.index + 1, matched.bits);
            self.hit(matched.before, place(matched.index));
            state = matcher.step(state, matched.bits);
            next = matched.index + 1;
            self.hit(matcher.kinds(state) | matched.behind, place(next));
        }
        let count = code.lengths.len() as u32;
        if count > next {
            state = 0;
            self.look_early(matcher, begin, next, count, 0);
        }
        (self.state, self.cache) = (state, cache);
    }

    /// Keeps the instructions of a run from one place to another, if they are among the first.
    #[inline]
    fn look_early(&mut self, matcher: &Matcher, begin: Mark, from: u32, to: u32, bits: u64) {
        for index in from..to {
            if self.closed || self.early.len() + 1 >= matcher.longest {
                self.closed = true;
                return;
            }
            self.early.push(Early { bits, mark: begin.behind(u64::from(index) + 1, 0) });
        }
    }

    #[inline]
    fn hit(&mut self, kinds: Kinds, mark: Mark) {
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

    fn tell(&mut self, reading: &Reading) {
        let told = &mut self.told[usize::from(reading.of() == Of::Cycles)];
        self.hits[*told..].iter_mut().for_each(|hit| reading.tell(&mut hit.mark));
        *told = self.hits.len();
        self.early.iter_mut().for_each(|early| reading.tell(&mut early.mark));
    }

    /// Joins two neighbours.
    pub(super) fn merge(mut self, matcher: &Matcher, later: Partial) -> Partial {
        let (instructions, segments) = (self.clocks.instructions, self.clocks.segments);
        let behind = |mark: Mark| mark.behind(instructions, segments);
        // Sequences that began in this part and end among the first instructions of the later one.
        let (mut state, mut over) = (self.state, Vec::new());
        for early in &later.early {
            state = matcher.go_on(state, early.bits);
            let kinds = matcher.kinds(state);
            over.extend((kinds != 0).then_some(Hit { kinds, mark: early.mark }));
        }
        let mut over = over.into_iter().peekable();
        for hit in later.hits {
            // A gap stands behind what ended there.
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
                self.early.push(Early { mark: behind(early.mark), ..*early });
            }
            self.closed |= later.closed;
        }
        self.state = later.state | if later.closed { 0 } else { state };
        self.clocks.add(&later.clocks);
        self.told = [self.hits.len(); 2];
        self
    }

    /// What lies between the markers of a whole thread.
    pub(super) fn close(self, nesting: Nesting) -> Between {
        let (mut open, mut between) = (Vec::new(), Between::default());
        for Hit { kinds, mark } in self.hits {
            if kinds & GAP != 0 {
                between.found.extend(open.drain(..).map(|begin| (begin, mark, Ended::Lost)));
            }
            if kinds & TO != 0 {
                between.passed[1] += 1;
                match open.pop() {
                    Some(begin) => between.found.push((begin, mark, Ended::Returned)),
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
        between.found.extend(open.into_iter().map(|begin| (begin, end, Ended::Cut)));
        between
    }
}

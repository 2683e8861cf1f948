//! The effect of exits on the sink, so that an exit that ran before in a state costs one look-up.

use super::exits::ExitCode;

/// The effect of an exit in a state of the sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    exit: u32,
    state: u32,
    /// The sink's number for its path; [`BY_BLOCKS`] if the sink needs the blocks.
    pub(super) path: u32,
    /// The state after it.
    pub(super) to: u32,
    /// Where the exit's code begins.
    pub(super) start: u64,
    /// Where it leads; 0 if only the next entry says it.
    pub(super) leads_to: u64,
}

/// In place of the number of a path: the sink needs the blocks.
pub(super) const BY_BLOCKS: u32 = u32::MAX;

/// Marks an empty slot: no exit has this number.
const VACANT: u32 = u32::MAX;

const EMPTY_SLOT: Way = Way { exit: VACANT, state: 0, path: BY_BLOCKS, to: 0, start: 0, leads_to: 0 };

const FEWEST_SLOTS: usize = 1 << 10;

/// Ways by exit and state, in open addressing.
#[derive(Debug, Default)]
pub(super) struct Ways {
    slots: Vec<Way>,
    used: usize,
}

impl Ways {
    /// The effect of an exit in a state, if known.
    #[inline(always)]
    pub(super) fn find(&self, exit: u32, state: u32) -> Option<&Way> {
        let way = self.slots.get(self.slot(exit, state))?;
        (way.exit == exit).then_some(way)
    }

    /// The slot of an exit and a state, or the empty one for them.
    #[inline(always)]
    fn slot(&self, exit: u32, state: u32) -> usize {
        let mask = self.slots.len().wrapping_sub(1);
        let key = u64::from(exit) | u64::from(state) << 32;
        let mut index = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while let Some(way) = self.slots.get(index) {
            if (way.exit, way.state) == (exit, state) || way.exit == VACANT {
                break;
            }
            index = (index + 1) & mask;
        }
        index
    }

    /// Records what an exit does in a state: the number of its path, and the state after it.
    pub(super) fn insert(&mut self, (exit, state): (u32, u32), code: &ExitCode, (path, to): (u32, u32)) {
        if self.used * 2 >= self.slots.len() {
            let more = vec![EMPTY_SLOT; (self.slots.len() * 2).max(FEWEST_SLOTS)];
            for way in std::mem::replace(&mut self.slots, more) {
                if way.exit != VACANT {
                    self.put(way);
                }
            }
        }
        self.used += 1;
        self.put(Way { exit, state, path, to, start: code.start, leads_to: code.leads_to });
    }

    fn put(&mut self, way: Way) {
        let slot = self.slot(way.exit, way.state);
        self.slots[slot] = way;
    }

    /// Forgets all ways.
    pub(super) fn clear(&mut self) {
        *self = Ways::default();
    }
}

/// Whether learning pays.
#[derive(Debug, Default)]
pub(super) struct Benefit {
    /// The number of ways that were learned.
    learned: usize,
    /// The number of steps of all learned ways.
    steps: usize,
    /// How often a learned way was taken.
    pub(super) taken: usize,
    /// `learned` at the last check.
    checked_learned: usize,
    /// `taken` at the last check.
    checked_taken: usize,
    /// The number of checks with too little benefit, less those with enough.
    seldom: u32,
    /// The number of exits until learning goes on.
    pub(super) pause: usize,
}

/// The most ways; beyond it, everything is forgotten.
const MOST_WAYS: usize = 1 << 18;

/// The most steps of all ways.
const MOST_STEPS: usize = 1 << 21;

/// The number of new ways after which their benefit is checked.
const WAYS_PER_CHECK: usize = MOST_WAYS / 64;

/// Exits in the first pause, per new way.
const PAUSE_PER_WAY: usize = 128;

/// The most doublings of the pause.
const MOST_DOUBLINGS: u32 = 10;

impl Benefit {
    /// Counts a way of this many steps that was learned. A way pays if it is taken `worth` times.
    pub(super) fn learned(&mut self, steps: usize, worth: usize) {
        (self.learned, self.steps) = (self.learned + 1, self.steps + steps);
        let (learned, taken) = (self.learned - self.checked_learned, self.taken - self.checked_taken);
        if learned < WAYS_PER_CHECK {
            return;
        }
        (self.checked_learned, self.checked_taken) = (self.learned, self.taken);
        if taken >= worth * learned {
            self.seldom = self.seldom.saturating_sub(1);
        } else {
            self.pause = (PAUSE_PER_WAY * learned) << self.seldom;
            self.seldom = (self.seldom + 1).min(MOST_DOUBLINGS);
        }
    }

    /// Whether a limit is reached, so that everything must be forgotten.
    pub(super) fn is_full(&self) -> bool {
        self.learned >= MOST_WAYS || self.steps >= MOST_STEPS
    }

    /// Starts over after a limit was reached.
    pub(super) fn restart(&mut self) {
        *self = Benefit { seldom: self.seldom, ..Benefit::default() };
    }
}

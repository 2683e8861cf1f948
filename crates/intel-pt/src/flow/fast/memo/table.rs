//! What packets do at each block, as far as its code alone decides that.

use hodo_code::BlockId;
use hodo_flow::Step;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// The result of following packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The packets lead to this block.
    Block(BlockId),
    /// The packets lead to this block, after this many of their bytes; the next packet is not plain.
    Part(BlockId, u8),
    /// The packets lead over a compressed return whose call is before them.
    Return {
        /// Number of branches left of its TNT.
        branches_left: u8,
        /// Bytes of the completely consumed packets.
        consumed: u8,
    },
    /// The packets have no recordable effect: the first one contradicts the code or needs more context.
    Unknown,
}

/// Consecutive packets at a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) block: BlockId,
    /// The region of the last IP if the packets include a TIP, else [`NO_REGION`].
    pub(super) region: u16,
    /// The packets, the first in the lowest byte, padded with zeros.
    pub(super) packets: u64,
}

/// The effect of packets.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Transition {
    packets: u64,
    block: BlockId,
    region_before: u16,
    /// The region of the last IP after the packets, or [`NO_REGION`] if it does not change.
    pub(super) region: u16,
    /// Number of steps after the first.
    count: u8,
    /// Index of the second step.
    more: u32,
    pub(super) next: Next,
    pub(super) first: Step,
}

impl Transition {
    #[inline]
    fn key(&self) -> Key {
        Key { block: self.block, region: self.region_before, packets: self.packets }
    }
}

/// The region in keys of packets without a TIP.
pub(super) const NO_REGION: u16 = 0;

/// Maximum steps of a transition.
pub(super) const LONGEST: usize = 200;

/// Number of slots of the smallest table; a slot has 64 bytes.
const FEWEST_SLOTS: usize = 1 << 10;

/// Number of slots of the largest table, which is emptied when it is full.
const MOST_SLOTS: usize = 1 << 18;

/// Maximum number of regions, checked before packets are followed.
const REGIONS: usize = 1 << 12;

/// Maximum further steps in all: 40 bytes each.
const STEPS: usize = 1 << 19;

/// Marks an empty slot: no block has this id.
const VACANT: BlockId = BlockId(u32::MAX);

/// Transitions of one graph, by block and packets, in open addressing.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Transition>,
    used: usize,
    steps: Vec<Step>,
    /// The upper 48 bits of IPs, which TIP packets may omit.
    regions: IndexSet<u64, FxBuildHasher>,
}

impl Key {
    /// Fibonacci hashing.
    #[inline]
    fn hash(self) -> u64 {
        let state = u64::from(self.block.0) << 16 | u64::from(self.region);
        let mixed = self.packets ^ state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 32
    }
}

impl Table {
    pub(super) fn new() -> Table {
        // `u64::MAX` takes number 0, which is `NO_REGION`: no IP has these upper bits.
        let regions = IndexSet::from_iter([u64::MAX]);
        Table { slots: vacant(FEWEST_SLOTS), used: 0, steps: Vec::new(), regions }
    }

    /// Returns the effect of packets, if known.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<&Transition> {
        let slot = &self.slots[self.slot(key)];
        (slot.key() == key).then_some(slot)
    }

    /// Returns the slot of a key, or the empty slot for it.
    #[inline]
    fn slot(&self, key: Key) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = key.hash() as usize & mask;
        loop {
            let slot = &self.slots[index];
            if slot.key() == key || slot.block == VACANT {
                return index;
            }
            index = (index + 1) & mask;
        }
    }

    /// Returns the steps of a transition after the first.
    #[inline]
    pub(super) fn more(&self, transition: &Transition) -> &[Step] {
        &self.steps[transition.more as usize..][..usize::from(transition.count)]
    }

    /// Returns the region of an IP, or `None` if there are too many.
    pub(super) fn region(&mut self, ip: u64) -> Option<u16> {
        let upper = ip >> 16;
        match u16::try_from(self.regions.len()) {
            Ok(_) => self.regions.insert_full(upper).0.try_into().ok(),
            Err(_) => self.regions.get_index_of(&upper).and_then(|region| region.try_into().ok()),
        }
    }

    /// Returns an IP in a region. All but its lowest 16 bits, which every TIP packet gives, are right.
    pub(super) fn ip(&self, region: u16) -> u64 {
        self.regions[usize::from(region)] << 16
    }

    /// Returns whether the number of regions exceeds the limit.
    pub(super) fn has_many_regions(&self) -> bool {
        self.regions.len() > REGIONS
    }

    /// Discards everything if there are too many regions; earlier region numbers become invalid.
    pub(super) fn limit_regions(&mut self) {
        if self.has_many_regions() {
            *self = Table::new();
        }
    }

    /// Makes space for a transition, by discarding all transitions if needed.
    fn make_room(&mut self) {
        if self.steps.len() + LONGEST <= STEPS && self.used * 2 < self.slots.len() {
            return;
        }
        self.used = 0;
        if self.steps.len() + LONGEST > STEPS || self.slots.len() == MOST_SLOTS {
            self.slots.clear();
            self.slots = vacant(FEWEST_SLOTS);
            self.steps.clear();
            return;
        }
        let larger = vacant(self.slots.len() * 4);
        for transition in std::mem::replace(&mut self.slots, larger) {
            if transition.block != VACANT {
                self.put(transition);
            }
        }
    }

    /// Records the effect of packets.
    pub(super) fn insert(&mut self, key: Key, region: u16, steps: &[Step], next: Next) {
        self.make_room();
        let (next, steps) = match steps {
            [first, more @ ..] if steps.len() <= LONGEST => (next, Some((*first, more))),
            _ => (Next::Unknown, None),
        };
        let (first, more) = steps.unwrap_or((Step::NONE, &[]));
        let start = self.steps.len() as u32;
        let Key { packets, block, region: region_before } = key;
        self.steps.extend_from_slice(more);
        self.put(Transition {
            packets,
            block,
            region_before,
            region,
            count: more.len() as u8,
            more: start,
            next,
            first,
        });
    }

    fn put(&mut self, transition: Transition) {
        let index = self.slot(transition.key());
        self.slots[index] = transition;
        self.used += 1;
    }
}

fn vacant(slots: usize) -> Vec<Transition> {
    let nothing = Transition {
        packets: 0,
        block: VACANT,
        region_before: NO_REGION,
        region: NO_REGION,
        count: 0,
        more: 0,
        next: Next::Unknown,
        first: Step::NONE,
    };
    vec![nothing; slots]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transition_is_one_line_of_the_cache() {
        assert_eq!(size_of::<Transition>(), 64);
    }
}

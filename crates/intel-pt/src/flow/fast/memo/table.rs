//! What packets did, by the block that execution stood before.

use hodo_code::{Block, BlockId, Label, Place, Transfer};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// Instructions of one function that ran one after the other, and what the last of them was.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Address of the first instruction.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    module: u32,
    function: u32,
    /// The block that begins at `start`.
    pub block: BlockId,
    /// How many instructions.
    pub instructions: u16,
    /// What the last of them was.
    pub transfer: Transfer,
    place: Place,
}

impl Step {
    /// A block that ran.
    pub(super) fn new(block: &Block, transfer: Transfer) -> Step {
        let Block { start, end, label: Label { module, function, place }, .. } = *block;
        // A block is not as long as that.
        let instructions = block.instructions as u16;
        Step { start, end, module, function, block: VACANT, instructions, transfer, place }
    }

    /// What is known of the code at `start`.
    #[inline]
    pub fn label(&self) -> Label {
        Label { module: self.module, function: self.function, place: self.place }
    }

    /// Joins what ran next; `false` where it is no part of the same run.
    pub(super) fn join(&mut self, next: &Step) -> bool {
        let one =
            self.transfer == Transfer::None && (self.module, self.function) == (next.module, next.function);
        match self.instructions.checked_add(next.instructions).filter(|_| one) {
            Some(instructions) => {
                (self.instructions, self.end) = (instructions, next.end);
                self.transfer = next.transfer;
                true
            }
            None => false,
        }
    }
}

/// Where packets led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// To this block.
    Block(BlockId),
    /// The same over so many bytes of them; the packet after these is not plain.
    Part(BlockId, u8),
    /// Over a compressed return from a call before the packets. So many bits of its TNT are left, and so many
    /// bytes of packets are done with, all bits of them.
    Return(u8, u8),
    /// The first packet is not one to remember the effect of: it contradicts the code, or needs others.
    Untold,
}

/// Packets that follow each other, where execution stands before a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) block: BlockId,
    /// The region of the last IP, where an IP is among the packets; [`NO_REGION`] else.
    pub(super) region: u16,
    /// The packets, the first in the lowest byte, and zeros.
    pub(super) packets: u64,
}

/// What packets did.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Transition {
    packets: u64,
    block: BlockId,
    region_before: u16,
    /// The region of the last IP after them, or [`NO_REGION`] where it is the one before.
    pub(super) region: u16,
    /// Steps apart from the first.
    count: u8,
    /// Where these begin.
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

/// Packets without an IP need no region of the last one.
pub(super) const NO_REGION: u16 = 0;

/// Most steps of a transition.
pub(super) const LONGEST: usize = 200;

/// Slots of the smallest table and of the largest, which is emptied when it is full: 64 bytes each.
const SLOTS: [usize; 2] = [1 << 10, 1 << 18];

/// Most regions at the start of a run of packets.
const REGIONS: usize = 1 << 12;

/// Most steps that are kept beside them: 40 bytes each.
const STEPS: usize = 1 << 19;

/// A block that there is not.
const VACANT: BlockId = BlockId(u32::MAX);

/// Transitions of one graph, by block and packets, in open addressing.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Transition>,
    used: usize,
    steps: Vec<Step>,
    /// The upper 48 bits of IPs, which TIP packets may leave out.
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
        // No IP is in the region of which the number says that there is none.
        let regions = IndexSet::from_iter([u64::MAX]);
        Table { slots: vacant(SLOTS[0]), used: 0, steps: Vec::new(), regions }
    }

    /// What is known of packets.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<&Transition> {
        let slot = &self.slots[self.slot(key)];
        (slot.key() == key).then_some(slot)
    }

    /// The slot of a key, or the one to put it into.
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

    /// The steps of a transition after the first.
    #[inline]
    pub(super) fn more(&self, transition: &Transition) -> &[Step] {
        &self.steps[transition.more as usize..][..usize::from(transition.count)]
    }

    /// The region of an IP; `None` where there are too many.
    pub(super) fn region(&mut self, ip: u64) -> Option<u16> {
        let upper = ip >> 16;
        match u16::try_from(self.regions.len()) {
            Ok(_) => self.regions.insert_full(upper).0.try_into().ok(),
            Err(_) => self.regions.get_index_of(&upper).and_then(|region| region.try_into().ok()),
        }
    }

    /// An IP in a region: what it is but for the lowest 16 bits, which all TIP packets tell anew.
    pub(super) fn ip(&self, region: u16) -> u64 {
        self.regions[usize::from(region)] << 16
    }

    /// Whether there are more regions than are to be remembered.
    pub(super) fn has_many_regions(&self) -> bool {
        self.regions.len() > REGIONS
    }

    /// Forgets everything where there are too many regions; no region from before means anything then.
    pub(super) fn limit_regions(&mut self) {
        if self.has_many_regions() {
            *self = Table::new();
        }
    }

    /// Makes room for more, if need be by forgetting all transitions.
    fn make_room(&mut self) {
        if self.steps.len() + LONGEST <= STEPS && self.used * 2 < self.slots.len() {
            return;
        }
        self.used = 0;
        if self.steps.len() + LONGEST > STEPS || self.slots.len() == SLOTS[1] {
            self.slots.clear();
            self.slots = vacant(SLOTS[0]);
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

    /// Remembers what packets did.
    pub(super) fn insert(&mut self, key: Key, region: u16, steps: &[Step], next: Next) {
        self.make_room();
        let (next, steps) = match steps {
            [first, more @ ..] if steps.len() <= LONGEST => (next, Some((*first, more))),
            _ => (Next::Untold, None),
        };
        let (first, more) = steps.unwrap_or((NO_STEP, &[]));
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

const NO_STEP: Step = Step {
    start: 0,
    end: 0,
    module: 0,
    function: 0,
    block: VACANT,
    instructions: 0,
    transfer: Transfer::None,
    place: Place::Unknown,
};

fn vacant(slots: usize) -> Vec<Transition> {
    let nothing = Transition {
        packets: 0,
        block: VACANT,
        region_before: NO_REGION,
        region: NO_REGION,
        count: 0,
        more: 0,
        next: Next::Untold,
        first: NO_STEP,
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

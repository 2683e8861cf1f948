//! What packets did, by the block that execution stood before.

use hodo_code::{BlockId, Label};

/// Instructions of one function that ran one after the other, and what the last of them was.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Address of the first instruction.
    pub start: u64,
    /// What is known of the code there.
    pub label: Label,
    /// How many instructions.
    pub instructions: u32,
    /// What the last of them was.
    pub transfer: Transfer,
    /// The block that a call returns to, as far as it can be read.
    pub(super) back: u32,
}

/// A branch as far as it changes the call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// None, a direct or conditional branch, or a far one.
    None,
    /// A near call, which will return to this address.
    Call(u64),
    /// A near return.
    Return,
    /// A near jump through a register or memory.
    IndirectJump,
}

/// Where a packet led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// To this block.
    Block(BlockId),
    /// Over a compressed return from a call before the packet. So many bits of the TNT are left.
    Return(u8),
    /// The packet is not one to remember the effect of: it contradicts the code, or needs others.
    Untold,
}

/// What a packet did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transition {
    /// The block before which execution stood, twice, and 1 more for a TIP.
    from: u32,
    steps: u32,
    /// The bits of a TNT with the stop bit, or the target of a TIP.
    payload: u64,
    pub(super) next: Next,
    count: u16,
}

/// Slots of the smallest table and of the largest, which is emptied when it is full: 32 bytes each.
const SLOTS: [usize; 2] = [1 << 12, 1 << 20];

/// Most steps that are kept: 48 bytes each.
const STEPS: usize = 1 << 20;

/// No block.
const VACANT: u32 = u32::MAX;

/// Transitions of one graph, by block and packet, in open addressing.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Transition>,
    used: usize,
    steps: Vec<Step>,
}

/// What a transition is found by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    from: u32,
    payload: u64,
}

impl Key {
    #[inline]
    pub(super) fn new(block: BlockId, is_tip: bool, payload: u64) -> Key {
        Key { from: block.0 << 1 | u32::from(is_tip), payload }
    }

    /// Fibonacci hashing.
    #[inline]
    fn hash(self) -> u64 {
        let mixed = self.payload ^ u64::from(self.from).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}

impl Table {
    pub(super) fn new() -> Table {
        Table { slots: vacant(SLOTS[0]), used: 0, steps: Vec::new() }
    }

    /// What is known of a packet.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<&Transition> {
        let slot = &self.slots[self.slot(key)];
        (slot.from == key.from && slot.payload == key.payload).then_some(slot)
    }

    /// The slot of a key, or the one to put it into.
    #[inline]
    fn slot(&self, key: Key) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = (key.hash() >> 32) as usize & mask;
        loop {
            let slot = &self.slots[index];
            if slot.from == key.from && slot.payload == key.payload || slot.from == VACANT {
                return index;
            }
            index = (index + 1) & mask;
        }
    }

    #[inline]
    pub(super) fn steps(&self, transition: &Transition) -> &[Step] {
        &self.steps[transition.steps as usize..][..usize::from(transition.count)]
    }

    /// Remembers what a packet did.
    pub(super) fn insert(&mut self, key: Key, steps: &[Step], next: Next) {
        if self.used * 2 >= self.slots.len() || self.steps.len() + steps.len() > STEPS {
            self.make_room();
        }
        let first = self.steps.len() as u32;
        self.steps.extend_from_slice(steps);
        let Key { from, payload } = key;
        self.put(Transition { from, payload, steps: first, count: steps.len() as u16, next });
    }

    fn put(&mut self, transition: Transition) {
        let index = self.slot(Key { from: transition.from, payload: transition.payload });
        self.slots[index] = transition;
        self.used += 1;
    }

    /// Grows, or where it may not, forgets everything.
    fn make_room(&mut self) {
        self.used = 0;
        if self.slots.len() == SLOTS[1] || self.steps.len() > STEPS / 2 {
            self.slots.fill(vacant(1)[0]);
            self.steps.clear();
            return;
        }
        let larger = vacant(self.slots.len() * 4);
        for transition in std::mem::replace(&mut self.slots, larger) {
            if transition.from != VACANT {
                self.put(transition);
            }
        }
    }
}

fn vacant(slots: usize) -> Vec<Transition> {
    vec![Transition { from: VACANT, steps: 0, payload: 0, next: Next::Untold, count: 0 }; slots]
}

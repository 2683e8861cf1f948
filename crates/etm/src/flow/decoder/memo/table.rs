//! Numbers for decoding states, and the transitions between them.

use hodo_code::BlockId;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::super::super::walk::{DEPTH, Returns};
use crate::packet::PlainPackets;

/// Everything that determines the effect of atoms and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The next block to execute, or that of an indirect branch whose target comes next.
    pub(super) block: BlockId,
    pub(super) is_after_indirect: bool,
    pub(super) calls: Calls,
    /// The sink's number for its state.
    pub(super) sink: u32,
}

/// A return stack: its newest call in a chain, and its depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Calls {
    link: u32,
    count: u8,
}

/// The link of the empty stack.
const BOTTOM: u32 = 0;

/// The effect of packets in a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transition {
    atoms: u64,
    /// The address of the packets, or [`NO_ADDRESS`].
    address: u64,
    from: u32,
    /// The state after them.
    pub(super) to: u32,
    pub(super) path: Path,
}

/// What runs on a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// The path with the sink's number.
    Learned(u32),
    /// Nothing.
    Empty,
    /// The packets are left to the decoder.
    Unfit,
}

/// No instruction of A64 has this address.
const NO_ADDRESS: u64 = 1;

/// Marks an empty slot: no state has this number.
const VACANT: u32 = u32::MAX;

const EMPTY_SLOT: Transition =
    Transition { atoms: 0, address: NO_ADDRESS, from: VACANT, to: VACANT, path: Path::Empty };

/// Maximum transitions: 32 bytes each, and as much again in empty slots.
const TRANSITIONS: usize = 1 << 18;

/// Maximum states, and maximum calls in chains: about 60 bytes each.
const STATES: usize = 1 << 17;

/// Slots for packets that occurred once.
const SEEN_SLOTS: usize = 1 << 16;

/// Transitions from state to state, in open addressing.
#[derive(Debug)]
pub(super) struct TransitionTable {
    slots: Vec<Transition>,
    used: usize,
    /// Hashes of packets that occurred, each in its slot.
    seen: Vec<u32>,
    states: IndexSet<State, FxBuildHasher>,
    /// The address after a call, and the link of the call below it.
    links: IndexSet<(u32, u64), FxBuildHasher>,
}

impl TransitionTable {
    pub(super) fn new() -> TransitionTable {
        TransitionTable {
            slots: vec![EMPTY_SLOT; 1 << 10],
            used: 0,
            seen: vec![0; SEEN_SLOTS],
            states: IndexSet::default(),
            links: IndexSet::from_iter([(BOTTOM, NO_ADDRESS)]),
        }
    }

    /// Discards all transitions and states, but keeps their memory. What occurred is only a hint, and stays.
    pub(super) fn clear(&mut self) {
        self.slots.fill(EMPTY_SLOT);
        self.used = 0;
        self.states.clear();
        self.links.truncate(1);
    }

    /// Returns whether a limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.used >= TRANSITIONS || self.states.len() >= STATES || self.links.len() >= STATES
    }

    /// Returns the number of a state.
    pub(super) fn number(&mut self, state: State) -> u32 {
        self.states.insert_full(state).0 as u32
    }

    pub(super) fn state(&self, number: u32) -> State {
        self.states[number as usize]
    }

    /// Returns a return stack as a chain.
    pub(super) fn chain(&mut self, returns: &Returns) -> Calls {
        let mut chain = Calls { link: BOTTOM, count: 0 };
        for address in returns.addresses() {
            let link = self.links.insert_full((chain.link, address)).0 as u32;
            chain = Calls { link, count: chain.count + 1 };
        }
        chain
    }

    /// Returns the addresses of a chain, the oldest call first.
    pub(super) fn addresses(&self, calls: Calls) -> impl Iterator<Item = u64> {
        let mut addresses = [0; DEPTH];
        let count = usize::from(calls.count);
        let mut link = calls.link;
        for address in addresses[..count].iter_mut().rev() {
            (link, *address) = self.links[link as usize];
        }
        addresses.into_iter().take(count)
    }

    /// Returns the effect of packets in a state, if known.
    #[inline(always)]
    pub(super) fn find(&self, from: u32, packets: &PlainPackets) -> Option<&Transition> {
        let transition = &self.slots[self.slot(from, packets.atoms, packets.address.unwrap_or(NO_ADDRESS))];
        (transition.from == from).then_some(transition)
    }

    /// Returns whether packets occurred in a state before, as far as the slots still contain them, and records them.
    pub(super) fn was_seen(&mut self, from: u32, packets: &PlainPackets) -> bool {
        let hash = hash(from, packets.atoms, packets.address.unwrap_or(NO_ADDRESS));
        let seen = &mut self.seen[(hash >> 32) as usize % SEEN_SLOTS];
        std::mem::replace(seen, hash as u32) == hash as u32
    }

    /// Returns the slot of packets, or the empty slot for them.
    #[inline(always)]
    fn slot(&self, from: u32, atoms: u64, address: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = hash(from, atoms, address) as usize & mask;
        loop {
            let slot = &self.slots[index];
            let is_same = slot.from == from && slot.atoms == atoms && slot.address == address;
            if is_same || slot.from == VACANT {
                return index;
            }
            index = (index + 1) & mask;
        }
    }

    /// Records where packets lead.
    pub(super) fn insert(&mut self, from: u32, packets: &PlainPackets, to: u32, path: Path) {
        if self.used * 2 >= self.slots.len() {
            let larger = vec![EMPTY_SLOT; self.slots.len() * 2];
            for transition in std::mem::replace(&mut self.slots, larger) {
                if transition.from != VACANT {
                    self.put(transition);
                }
            }
        }
        self.used += 1;
        let address = packets.address.unwrap_or(NO_ADDRESS);
        self.put(Transition { atoms: packets.atoms, address, from, to, path });
    }

    fn put(&mut self, transition: Transition) {
        let slot = self.slot(transition.from, transition.atoms, transition.address);
        self.slots[slot] = transition;
    }
}

/// Fibonacci hashing. Only the last multiplication waits for the state, which the previous look-up gives.
#[inline(always)]
fn hash(from: u32, atoms: u64, address: u64) -> u64 {
    let packets = atoms ^ address.wrapping_mul(0xa076_1d64_78bd_642f).rotate_left(23);
    let mixed = packets ^ u64::from(from).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

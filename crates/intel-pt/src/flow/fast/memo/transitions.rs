//! Numbers for decoding states, and the transitions between them.

use hodo_code::{Back, BlockId, DEPTH, ReturnStack, ReturnTarget};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// Everything that determines the effect of plain packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The next block to execute.
    pub(super) block: BlockId,
    /// The region of the last IP.
    pub(super) region: u16,
    /// The return stack.
    pub(super) returns: Returns,
    /// The sink's number for its state.
    pub(super) sink: u32,
}

/// A return stack: its newest link in a chain, and its depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Returns {
    link: u32,
    count: u8,
}

/// Return addresses, each linked to the stack below it.
#[derive(Debug)]
pub(super) struct Chains {
    /// The link below, and the address.
    links: IndexSet<(u32, u64), FxBuildHasher>,
}

/// The link of the empty stack.
const BOTTOM: u32 = 0;

impl Chains {
    pub(super) fn new() -> Chains {
        Chains { links: IndexSet::from_iter([(BOTTOM, 0)]) }
    }

    /// Pushes a call that returns to `address`.
    pub(super) fn push(&mut self, below: Returns, address: u64) -> Returns {
        let link = self.links.insert_full((below.link, address)).0 as u32;
        Returns { link, count: (below.count + 1).min(DEPTH as u8) }
    }

    /// Returns the newest address and the stack below it, or `None` if the stack is empty.
    pub(super) fn pop(&self, returns: Returns) -> Option<(u64, Returns)> {
        let count = returns.count.checked_sub(1)?;
        let (below, address) = self.links[returns.link as usize];
        // Calls that fell out of the stack are still in the chain.
        Some((address, Returns { link: if count == 0 { BOTTOM } else { below }, count }))
    }

    /// Returns a return stack as a chain.
    pub(super) fn chain_of(&mut self, stack: &ReturnStack) -> Returns {
        let bottom = Returns { link: BOTTOM, count: 0 };
        stack.addresses().fold(bottom, |below, address| self.push(below, address))
    }

    /// Returns the return stack of a chain, without blocks.
    pub(super) fn stack(&self, mut returns: Returns) -> ReturnStack {
        let mut newest_first = Vec::with_capacity(DEPTH);
        while let Some((address, below)) = self.pop(returns) {
            newest_first.push(address);
            returns = below;
        }
        let mut stack = ReturnStack::default();
        let backs = newest_first.into_iter().rev().map(|address| Back { address, block: None });
        backs.for_each(|back| stack.push(back, ReturnTarget::UNKNOWN));
        stack
    }
}

/// The effect of packets in a state: the next state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transition {
    packets: u64,
    from: u32,
    /// The state after them.
    pub(super) to: u32,
    /// The sink's number for their path.
    pub(super) path: u32,
    /// Number of packet bytes that the transition consumes; 0 if the first packet is left to the decoder.
    pub(super) bytes: u32,
}

/// Marks an empty slot: no state has this number.
const VACANT: u32 = u32::MAX;

/// An empty slot.
const EMPTY_SLOT: Transition = Transition { packets: 0, from: VACANT, to: VACANT, path: 0, bytes: 0 };

/// Maximum transitions: 24 bytes each, and as much again in empty slots.
const TRANSITIONS: usize = 1 << 18;

/// Maximum states, and maximum return addresses: about 60 bytes each.
const STATES: usize = 1 << 17;

/// Slots for packets that occurred once.
const SEEN_SLOTS: usize = 1 << 16;

/// Fibonacci hashing.
#[inline(always)]
pub(super) fn hash(from: u32, packets: u64) -> u64 {
    let mixed = packets ^ u64::from(from).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

/// Transitions from state to state, in open addressing.
#[derive(Debug)]
pub(super) struct TransitionTable {
    slots: Vec<Transition>,
    used: usize,
    /// Hashes of packets that occurred, each in its slot.
    met: Vec<u32>,
    states: IndexSet<State, FxBuildHasher>,
    pub(super) chains: Chains,
}

impl TransitionTable {
    pub(super) fn new() -> TransitionTable {
        TransitionTable {
            slots: vec![EMPTY_SLOT; 1 << 10],
            used: 0,
            met: vec![0; SEEN_SLOTS],
            states: IndexSet::default(),
            chains: Chains::new(),
        }
    }

    /// Discards all transitions, states and chains, but keeps their memory. What occurred is only a hint, and stays.
    pub(super) fn clear(&mut self) {
        self.slots.fill(EMPTY_SLOT);
        self.used = 0;
        self.states.clear();
        self.chains.links.truncate(1);
    }

    /// Returns whether a limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.used >= TRANSITIONS || self.states.len() >= STATES || self.chains.links.len() >= STATES
    }

    /// Returns the number of a state.
    pub(super) fn number(&mut self, state: State) -> u32 {
        self.states.insert_full(state).0 as u32
    }

    pub(super) fn state(&self, number: u32) -> State {
        self.states[number as usize]
    }

    /// Returns the effect of packets in a state, if known.
    #[inline(always)]
    pub(super) fn find(&self, from: u32, packets: u64) -> Option<&Transition> {
        let transition = &self.slots[self.slot(from, packets)];
        (transition.from == from).then_some(transition)
    }

    /// Returns whether packets occurred in a state before, as far as the slots still contain them, and records them.
    pub(super) fn was_seen(&mut self, from: u32, packets: u64) -> bool {
        let hash = hash(from, packets);
        let met = &mut self.met[(hash >> 32) as usize % SEEN_SLOTS];
        std::mem::replace(met, hash as u32) == hash as u32
    }

    /// Returns the slot of packets, or the empty slot for them.
    #[inline(always)]
    fn slot(&self, from: u32, packets: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = hash(from, packets) as usize & mask;
        loop {
            let transition = &self.slots[index];
            if (transition.from, transition.packets) == (from, packets) || transition.from == VACANT {
                return index;
            }
            index = (index + 1) & mask;
        }
    }

    /// Records where packets lead.
    pub(super) fn insert(&mut self, from: u32, packets: u64, to: u32, path: u32, bytes: u32) {
        if self.used * 2 >= self.slots.len() {
            let larger = vec![EMPTY_SLOT; self.slots.len() * 2];
            for transition in std::mem::replace(&mut self.slots, larger) {
                if transition.from != VACANT {
                    self.put(transition);
                }
            }
        }
        self.used += 1;
        self.put(Transition { packets, from, to, path, bytes });
    }

    fn put(&mut self, transition: Transition) {
        let slot = self.slot(transition.from, transition.packets);
        self.slots[slot] = transition;
    }
}

//! Encodes the account of a program's instructions as a trace unit would.
//!
//! Addresses have bit 0 set where the code is T32, as the addresses of functions have.
//!
//! The bytes are those of one legal unit among many: it writes each element when its packet is complete, and an address
//! packet that is as short as its three registers of addresses allow.

use hodo_code::{Step, Terminator};

use crate::{
    Config, Registers,
    packet::{A_SYNC, Address, Context},
};

/// What a unit traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether it is an ETE, not an ETMv4.
    pub is_ete: bool,
    /// Whether returns to the newest call have no address.
    pub return_stack: bool,
    /// The least number of cycles that is counted; `None` if none are.
    pub cycle_threshold: Option<u32>,
    /// Whether the processor is of M-profile.
    pub is_m_profile: bool,
    /// Whether cycle counts contain commits.
    pub cycles_commit: bool,
    /// Whether packets contain the context ID and the virtual context, of four bytes each.
    pub context_ids: bool,
    /// Bytes between synchronizations, at least.
    pub synchronization: usize,
    /// The largest number of elements that are not committed.
    pub speculation_depth: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            is_ete: false,
            is_m_profile: false,
            return_stack: false,
            cycle_threshold: None,
            cycles_commit: false,
            context_ids: false,
            synchronization: 4096,
            speculation_depth: 0,
        }
    }
}

impl Settings {
    /// Returns the registers of a unit with these settings.
    pub fn registers(&self) -> Registers {
        let cycles = self.cycle_threshold.is_some();
        let context_ids = u32::from(self.context_ids);
        Registers {
            // Cycle counting, context ID, virtual context, timestamps, return stack.
            config: u32::from(cycles) << 4
                | context_ids << 6
                | context_ids << 7
                | 1 << 11
                | u32::from(self.return_stack) << 12,
            trace_id: 0x10,
            // Timestamps of 64 bits, return stack, cycle counting; the lowest bit is always set.
            id0: 0x0800_0ea1 | u32::from(!self.cycles_commit) << 29,
            id1: if self.is_ete { 0x4100_fff3 } else { 0x4100_f433 },
            // Addresses of eight bytes, context ID and virtual context of four; of four bytes, and none.
            id2: if self.is_m_profile { 0x0000_0004 } else { 0x0000_1088 },
            id8: self.speculation_depth,
            device_architecture: if self.is_ete { 0x4770_5a13 } else { 0 },
        }
    }

    /// Returns how to read what a unit with these settings writes.
    pub fn config(&self) -> Config {
        Config::new(&self.registers())
    }
}

/// Calls on the return stack, at most: one less than decoders keep.
const DEPTH: usize = 15;
/// Atoms that wait for a packet, at most.
const MOST_ATOMS: usize = 200;

/// Writes packets.
#[derive(Clone, Debug)]
pub struct Encoder {
    settings: Settings,
    out: Vec<u8>,
    /// Atoms without a packet yet, the oldest first.
    atoms: Vec<bool>,
    /// The newest addresses, the newest first.
    recent: [Address; 3],
    calls: Vec<u64>,
    /// Whether an address was written since the last Trace Info, so that calls are remembered.
    has_address: bool,
    context: Context,
    /// The target of the last indirect branch, which is not written yet.
    pending: Option<u64>,
    /// The call that the last indirect branch returned to, if no address was written for it.
    popped: Option<u64>,
    /// The time that the next timestamp is compressed against.
    stamp: u64,
    /// The time of synchronizations, if they contain it.
    now: Option<u64>,
    /// Cycles since the last count.
    cycles: u32,
    uncommitted: u32,
    has_begun: bool,
    synchronized_at: usize,
}

impl Encoder {
    /// Creates an encoder that has written nothing.
    pub fn new(settings: Settings) -> Encoder {
        Encoder {
            settings,
            out: Vec::new(),
            atoms: Vec::new(),
            recent: [Address::default(); 3],
            calls: Vec::new(),
            has_address: false,
            context: Context::default(),
            pending: None,
            popped: None,
            stamp: 0,
            now: None,
            cycles: 0,
            uncommitted: 0,
            has_begun: false,
            synchronized_at: 0,
        }
    }

    /// Turns tracing on, at an address.
    pub fn begin(&mut self, address: u64, context: Context) {
        self.flush();
        if !self.has_begun {
            self.has_begun = true;
            self.synchronize();
        }
        self.out.push(0x04); // Trace On
        self.forget_calls();
        self.pending = None;
        self.write_context_address(address, context);
    }

    /// Adds an instruction that ran, and the address of the one after it.
    pub fn executed(&mut self, address: u64, step: &Step, next: u64) {
        self.write_pending();
        self.popped = None;
        let after = address.wrapping_add(step.length.into());
        // In A32 and T32 any branch may have a condition.
        let runs_on = !self.context.is_64 && next == after && step.target != after & !1;
        match step.terminator {
            Terminator::None | Terminator::Trap | Terminator::Wait => return,
            Terminator::Conditional => self.atom(next & !1 == step.target),
            Terminator::Jump | Terminator::Call if runs_on => self.atom(false),
            Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return
                if !self.context.is_64 && next == after =>
            {
                self.atom(false);
            }
            Terminator::Barrier | Terminator::Jump => self.atom(true),
            Terminator::Call => {
                self.atom(true);
                self.push_call(after);
            }
            Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return | Terminator::Far => {
                self.atom(true);
                if step.terminator == Terminator::IndirectCall {
                    self.push_call(after);
                }
                if step.terminator == Terminator::Far && !self.settings.is_ete {
                    self.flush();
                    self.out.push(0x07); // Exception Return
                }
                match self.calls.last() {
                    Some(&top) if top == next => self.popped = self.calls.pop(),
                    _ => self.pending = Some(next),
                }
            }
        }
        let is_due = self.out.len() - self.synchronized_at > self.settings.synchronization;
        if is_due && self.pending.is_none() {
            self.synchronize();
            self.write_context_address(next, self.context);
        }
    }

    /// Adds an exception that returns to `from`. Continue with [`Encoder::handler`], or with [`Encoder::begin`] if its
    /// handler is not traced.
    pub fn exception(&mut self, kind: u16, from: u64) {
        // With a return stack, decoders disagree about an exception that is its branch's target.
        let is_target = self.pending == Some(from) && !self.settings.return_stack;
        if is_target {
            self.pending = None;
        }
        self.write_pending();
        self.flush();
        let interpretation = if is_target { 0x40 } else { 0x01 };
        let (low, high) = ((kind & 0x1f) as u8, (kind >> 5) as u8);
        self.out.push(0x06); // Exception
        if high == 0 {
            self.out.push(low << 1 | interpretation);
        } else {
            self.out.extend([0x80 | low << 1 | interpretation, high]);
        }
        self.count_p0();
        self.write_address(from);
    }

    /// The last indirect branch ended a handler of M-profile: it goes on where the exception came.
    pub fn exception_return(&mut self) {
        self.flush();
        self.out.push(0x07); // Exception Return
    }

    /// Continues in the handler of an exception.
    pub fn handler(&mut self, address: u64, context: Context) {
        self.write_context_address(address, context);
    }

    /// Changes the context after a waypoint, at `address`.
    pub fn context(&mut self, context: Context, address: u64) {
        self.write_pending();
        self.flush();
        // A decoder that finds an address pops no call.
        self.calls.extend(self.popped.take());
        self.write_context_address(address, context);
    }

    /// Adds cycles that passed.
    pub fn pass_cycles(&mut self, cycles: u32) {
        if self.settings.cycle_threshold.is_some() {
            self.cycles += cycles;
        }
    }

    /// Writes the time, with the cycles since the last count.
    pub fn timestamp(&mut self, time: u64) {
        self.flush();
        let changed = self.stamp ^ time;
        let count = (1..9).find(|&bytes| changed >> (7 * bytes) == 0).unwrap_or(9);
        self.out.push(0x02 | u8::from(self.settings.cycle_threshold.is_some())); // Timestamp
        for index in 0..count {
            let more = if index + 1 < count { 0x80 } else { 0 };
            self.out.push(match index {
                8 => (time >> 56) as u8,
                _ => (time >> (7 * index) & 0x7f) as u8 | more,
            });
        }
        if self.settings.cycle_threshold.is_some() {
            let cycles = std::mem::take(&mut self.cycles);
            self.variable(cycles);
        }
        self.stamp = time;
    }

    /// Lets the synchronizations that follow contain this time, as decoding may begin there.
    pub fn pass_time(&mut self, now: u64) {
        self.now = Some(now);
    }

    /// Writes a count of the cycles since the last one, if there are enough. Its commits are those of all elements.
    pub fn count_cycles(&mut self) {
        self.flush();
        let Some(threshold) = self.settings.cycle_threshold else { return };
        let Some(count) = self.cycles.checked_sub(threshold) else { return };
        let commits = if self.settings.cycles_commit { self.uncommitted } else { 0 };
        // Cycle Count, formats 3, 2 and 1.
        match (count, commits) {
            (0..=3, 0) if !self.settings.cycles_commit => self.out.push(0x10 | count as u8),
            (0..=3, 1..=4) => self.out.push(0x10 | (commits as u8 - 1) << 2 | count as u8),
            (0..=15, 1..=16) => self.out.extend([0x0c, (commits as u8 - 1) << 4 | count as u8]),
            _ => {
                self.out.push(0x0e);
                if self.settings.cycles_commit {
                    self.variable(commits);
                }
                self.variable(count);
            }
        }
        self.uncommitted -= commits;
        self.cycles = 0;
    }

    /// Commits the oldest elements, at most `count`.
    pub fn commit(&mut self, count: u32) {
        self.flush();
        let count = count.min(self.uncommitted);
        if count > 0 {
            self.out.push(0x2d); // Commit
            self.variable(count);
            self.uncommitted -= count;
        }
    }

    /// Writes atoms of a path that was speculated and cancelled, as far as the depth allows.
    pub fn cancelled(&mut self, atoms: &[bool]) {
        self.write_pending();
        self.flush();
        let count = atoms.len().min((self.settings.speculation_depth - self.uncommitted) as usize);
        if count == 0 {
            return;
        }
        self.atoms.extend_from_slice(&atoms[..count]);
        self.flush();
        self.uncommitted -= count as u32;
        self.out.push(0x2e); // Cancel, format 1
        self.variable(count as u32);
    }

    /// Adds a conditional branch whose outcome was predicted wrongly at first.
    pub fn mispredicted(&mut self, taken: bool) {
        self.write_pending();
        self.popped = None;
        self.atom(!taken);
        self.flush();
        if self.settings.speculation_depth > 0 {
            self.out.push(0x30); // Mispredict
        }
    }

    /// Loses what follows, as the unit's buffer is full. Continue with [`Encoder::begin`].
    pub fn overflow(&mut self) {
        self.atoms.clear();
        self.pending = None;
        self.uncommitted = 0;
        self.out.extend([0x00, 0x05]); // Overflow
        self.synchronize();
    }

    /// Takes the bytes that were written since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.out);
        self.synchronized_at = self.synchronized_at.saturating_sub(bytes.len());
        bytes
    }

    /// Ends tracing, and returns all bytes that were not taken.
    pub fn finish(mut self) -> Vec<u8> {
        self.write_pending();
        self.commit(u32::MAX);
        self.out
    }

    fn push_call(&mut self, after: u64) {
        if self.settings.return_stack && self.has_address {
            if self.calls.len() == DEPTH {
                self.calls.remove(0);
            }
            self.calls.push(after);
        }
    }

    fn forget_calls(&mut self) {
        self.calls.clear();
        self.popped = None;
    }

    fn atom(&mut self, taken: bool) {
        self.atoms.push(taken);
        if self.atoms.len() == MOST_ATOMS {
            self.flush();
        }
    }

    /// Elements beyond the depth commit the oldest.
    fn count_p0(&mut self) {
        self.uncommitted = (self.uncommitted + 1).min(self.settings.speculation_depth);
    }

    fn write_pending(&mut self) {
        if let Some(address) = self.pending.take() {
            self.flush();
            self.write_address(address);
        }
    }

    /// Writes all waiting atoms.
    fn flush(&mut self) {
        let atoms = std::mem::take(&mut self.atoms);
        let mut rest = &atoms[..];
        while !rest.is_empty() {
            let (header, count) = atom_packet(rest);
            self.out.push(header);
            rest = &rest[count..];
            (0..count).for_each(|_| self.count_p0());
        }
    }

    /// Seven bits a byte, the lowest first.
    fn variable(&mut self, mut value: u32) {
        while value > 0x7f {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    /// Writes an A-Sync and the state of the unit.
    fn synchronize(&mut self) {
        self.flush();
        self.out.extend(A_SYNC);
        let cycles = self.settings.cycle_threshold;
        let has_speculation = self.settings.speculation_depth > 0;
        self.out.push(0x01); // Trace Info
        self.out.push(1 | u8::from(has_speculation) << 2 | u8::from(cycles.is_some()) << 3);
        self.out.push(cycles.is_some().into());
        if has_speculation {
            self.variable(self.uncommitted);
        }
        if let Some(threshold) = cycles {
            self.variable(threshold);
        }
        self.recent = [Address::default(); 3];
        self.stamp = 0;
        self.forget_calls();
        self.has_address = false;
        if let Some(now) = self.now {
            self.timestamp(now);
        }
        self.synchronized_at = self.out.len();
    }

    fn remember(&mut self, address: Address) {
        self.recent = [address, self.recent[0], self.recent[1]];
        self.has_address = true;
    }

    fn write_long(&mut self, address: Address, bytes: usize) {
        let Address { value, is_t32 } = address;
        self.out.extend(match is_t32 {
            true => [(value >> 1 & 0x7f) as u8, (value >> 8) as u8],
            false => [(value >> 2 & 0x7f) as u8, (value >> 9 & 0x7f) as u8],
        });
        self.out.extend(&value.to_le_bytes()[2..bytes]);
    }

    fn write_address(&mut self, value: u64) {
        let address = Address { value: value & !1, is_t32: value & 1 == 1 };
        // Exact Match; Short Address; Long Address of 32 and of 64 bits.
        let (shift, set) = if address.is_t32 { (1, 1) } else { (2, 0) };
        let changed = address.value ^ self.recent[0].value;
        let low = (address.value >> shift & 0x7f) as u8;
        if let Some(index) = self.recent.iter().position(|&known| known == address) {
            self.out.push(0x90 | index as u8);
        } else if changed >> (7 + shift) == 0 {
            self.out.extend([0x95 + set, low]);
        } else if changed >> (15 + shift) == 0 {
            self.out.extend([0x95 + set, low | 0x80, (address.value >> (7 + shift)) as u8]);
        } else if changed >> 32 == 0 {
            self.out.push(0x9a + set);
            self.write_long(address, 4);
        } else {
            self.out.push(0x9d + set);
            self.write_long(address, 8);
        }
        self.remember(address);
    }

    fn write_context_address(&mut self, value: u64, context: Context) {
        self.context = context;
        let address = Address { value: value & !1, is_t32: value & 1 == 1 };
        self.out.push(0x85 + u8::from(address.is_t32)); // Address with Context
        self.write_long(address, 8);
        let virtual_context = context.virtual_context.filter(|_| self.settings.context_ids);
        let context_id = context.context_id.filter(|_| self.settings.context_ids);
        self.out.push(
            context.level
                | u8::from(context.is_64) << 4
                | u8::from(context.is_non_secure) << 5
                | u8::from(virtual_context.is_some()) << 6
                | u8::from(context_id.is_some()) << 7,
        );
        for field in [virtual_context, context_id].into_iter().flatten() {
            self.out.extend(field.to_le_bytes());
        }
        self.remember(address);
    }
}

/// Patterns of several atoms with a packet of their own, the oldest first.
const PATTERNS: [(&[bool], u8); 8] = {
    const E: bool = true;
    const N: bool = false;
    [
        (&[N, E, E, E, E], 0xf5),
        (&[N, N, N, N, N], 0xd5),
        (&[N, E, N, E, N], 0xd6),
        (&[E, N, E, N, E], 0xd7),
        (&[N, E, E, E], 0xdc),
        (&[N, N, N, N], 0xdd),
        (&[N, E, N, E], 0xde),
        (&[E, N, E, N], 0xdf),
    ]
};

/// Returns the header of a packet of the first atoms, and their number.
fn atom_packet(atoms: &[bool]) -> (u8, usize) {
    /// E atoms before the last one of format 6.
    const MOST: usize = 23;
    const FEWEST: usize = 3;
    let taken = atoms.iter().take(MOST).take_while(|&&taken| taken).count();
    if taken >= FEWEST && atoms.len() > taken {
        let last = if atoms[taken] { 0 } else { 0x20 };
        return (0xc0 | last | (taken - FEWEST) as u8, taken + 1);
    }
    if taken > FEWEST {
        return (0xc0 | (taken - 1 - FEWEST) as u8, taken);
    }
    if let Some((pattern, header)) = PATTERNS.iter().find(|(pattern, _)| atoms.starts_with(pattern)) {
        return (*header, pattern.len());
    }
    let count = atoms.len().min(3);
    let bits = (0..count).fold(0, |bits, index| bits | u8::from(atoms[index]) << index);
    (
        match count {
            3 => 0xf8 | bits,
            2 => 0xd8 | bits,
            _ => 0xf6 | bits,
        },
        count,
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::{Decoder, Packet};

    proptest! {
        #[test]
        fn atoms_of_all_formats_are_read(atoms in prop::collection::vec(prop::bool::weighted(0.8), 0..300)) {
            let mut encoder = Encoder::new(Settings::default());
            atoms.iter().for_each(|&taken| encoder.atom(taken));
            encoder.flush();
            let mut decoder = Decoder::new(&encoder.out, 0, &Settings::default().config());
            let mut read = Vec::new();
            while let Ok(Some(Packet::Atoms(packet))) = decoder.next_packet() {
                read.extend((0..packet.count).map(|index| packet.bits >> index & 1 == 1));
            }
            prop_assert_eq!(read, atoms);
        }

        #[test]
        fn addresses_and_times_are_read(
            values in prop::collection::vec((any::<u64>(), 0..64u32, any::<bool>()), 1..50),
        ) {
            let mut encoder = Encoder::new(Settings::default());
            let (mut expected, mut last) = (Vec::new(), 0u64);
            for (value, bits, is_time) in values {
                last ^= value >> bits;
                if is_time {
                    encoder.timestamp(last);
                    expected.push(last);
                } else {
                    encoder.write_address(last & !3);
                    expected.push(last & !3);
                }
            }
            let mut decoder = Decoder::new(&encoder.out, 0, &Settings::default().config());
            let mut read = Vec::new();
            while let Some(packet) = decoder.next_packet().unwrap() {
                match packet {
                    Packet::Timestamp { time, cycles: None } => read.push(time),
                    Packet::Address(address) => read.push(address.value),
                    other => panic!("{other:?}"),
                }
            }
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn any_bytes_are_packets_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for settings in [Settings::default(), Settings { is_ete: true, context_ids: true, ..Settings::default() }] {
                let mut decoder = Decoder::new(&bytes, 0, &settings.config());
                let mut before = 0;
                while let Ok(Some(_)) = decoder.next_packet() {
                    prop_assert!(decoder.position() > before);
                    before = decoder.position();
                }
                prop_assert!(before <= bytes.len());
            }
        }
    }
}

//! A RISC-V hart: its traps, by the control registers.

use std::arch::x86_64::_rdtsc;

use super::{Core, INTERRUPT, State, Trap};
use crate::{block::Block, memory};

/// The first address of the RAM; the code before it is QEMU's, in no file.
const RAM: u64 = 0x8000_0000;
/// `csrrw x0, mtvec, rs1` without its register.
const WRITE_VECTOR: u32 = 0x3050_1073;
const REGISTER: u32 = 0x1f << 15;
/// The general registers, of 64 bits, with which QEMU's `CPURISCVState` begins.
const REGISTERS: usize = 32;
/// Words of the processor's state before which its control registers are.
const STATE: usize = 2048;

/// A hart.
pub(super) struct Hart {
    /// The register of the last block that writes `mtvec`.
    writes: Option<usize>,
    /// The address of the trap handler.
    vector: u64,
    /// Where `mtvec` is in the processor's state, in words; `mepc` and `mcause` follow.
    place: Option<usize>,
}

impl Hart {
    pub(super) fn new() -> Hart {
        Hart { writes: None, vector: u64::MAX, place: None }
    }
}

impl Core for Hart {
    /// The host's time-stamp counter, which is also the hart's `mcycle`.
    fn now(&mut self) -> u64 {
        // SAFETY: reading the counter has no effect.
        unsafe { _rdtsc() }
    }

    /// A few microseconds.
    fn time_every(&self) -> u64 {
        10_000
    }

    fn is_recorded(&self, block: &Block) -> bool {
        block.pc >= RAM
    }

    /// The number of the register that is written to `mtvec`.
    fn note(&self, last: &[u8]) -> Option<usize> {
        let word = u32::from_le_bytes(last.try_into().ok()?);
        (word & !REGISTER == WRITE_VECTOR).then_some((word >> REGISTER.trailing_zeros() & 0x1f) as usize)
    }

    fn enter(&mut self, note: Option<usize>, state: State) {
        if let Some(register) = self.writes.take()
            && let Some(written) = state.words(register, 1).first().copied()
        {
            // The lowest bits choose the mode; a slave has one handler for all traps.
            self.vector = written & !3;
            let words = state.words(REGISTERS, STATE - REGISTERS);
            self.place = find_vector(&words, written).map(|at| REGISTERS + at);
        }
        self.writes = note;
    }

    fn trap(&mut self, previous: &Block, next: &Block, state: State) -> Option<Trap> {
        if next.pc != self.vector {
            return None;
        }
        let words = state.words(self.place?, 3);
        let [vector, from, cause] = words[..] else { return None };
        let is_place = previous.may_continue_at(from) || previous.index_of(from).is_some();
        let interrupt = if cause >> 63 != 0 { INTERRUPT } else { 0 };
        let is_trap = vector & !3 == self.vector && cause & !(1 << 63) < 64 && is_place;
        is_trap.then_some(Trap { from, cause: interrupt | cause as u8 })
    }
}

impl State {
    /// Words of 64 bits of the processor's state; none if they can't be read.
    fn words(self, first: usize, count: usize) -> Vec<u64> {
        let mut bytes = vec![0; 8 * count];
        match memory::read(self.0.addr() as u64 + 8 * first as u64, &mut bytes) {
            true => bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect(),
            false => Vec::new(),
        }
    }
}

/// Returns the index of `mtvec`, which was written just now; `None` if several words have its value. At a trap the program counter has
/// it too, and what follows that may look like the other control registers.
fn find_vector(words: &[u64], written: u64) -> Option<usize> {
    let mut found = (0..words.len()).filter(|&at| words[at] == written);
    let first = found.next();
    first.filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_register_is_the_only_word_with_the_value_written() {
        let vector = 0x8000_0040;
        let mut words = vec![0; 100];
        assert_eq!(find_vector(&words, vector), None);
        words[40] = vector;
        assert_eq!(find_vector(&words, vector), Some(40));
        words[20] = vector;
        assert_eq!(find_vector(&words, vector), None);
    }
}

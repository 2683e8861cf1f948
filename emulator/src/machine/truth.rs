//! What really ran: the number of instructions, and a digest of their addresses in order.
//!
//! The digest of a sequence of addresses is `digest = digest * FACTOR + address` for each, in 64 bits. It is linear in
//! the address of a block, so a whole block is added at once. So is the sum of the addresses, which decoders compute
//! faster.

use serde::{Deserialize, Serialize};

/// The factor of a digest; odd, so that no bits are lost.
pub const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The instructions that ran, and the digest of their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Instructions retired; a repeated string instruction counts once, whatever its number of iterations.
    pub instructions: u64,
    /// The digest of their addresses, in order.
    pub digest: u64,
    /// The sum of their addresses.
    #[serde(default)]
    pub sum: u64,
}

impl Account {
    /// Adds an instruction.
    #[inline(always)]
    pub fn retire(&mut self, address: u64) {
        self.instructions += 1;
        self.digest = self.digest.wrapping_mul(FACTOR).wrapping_add(address);
        self.sum = self.sum.wrapping_add(address);
    }

    /// The account of what was added since an earlier state.
    pub(crate) fn since(&self, earlier: Account) -> Account {
        let instructions = self.instructions - earlier.instructions;
        let before = earlier.digest.wrapping_mul(power(instructions));
        let sum = self.sum.wrapping_sub(earlier.sum);
        Account { instructions, digest: self.digest.wrapping_sub(before), sum }
    }

    /// Adds instructions that ran after these.
    pub(crate) fn append(&mut self, later: Account) {
        self.instructions += later.instructions;
        self.digest = self.digest.wrapping_mul(power(later.instructions)).wrapping_add(later.digest);
        self.sum = self.sum.wrapping_add(later.sum);
    }

    /// Adds all instructions of a block at `pc`.
    #[inline(always)]
    pub(crate) fn retire_all(&mut self, block: &Digest, pc: u64) {
        self.instructions += block.instructions;
        self.digest = (self.digest.wrapping_mul(block.power))
            .wrapping_add(pc.wrapping_mul(block.slope))
            .wrapping_add(block.constant);
        self.sum = self.sum.wrapping_add(pc.wrapping_mul(block.instructions)).wrapping_add(block.offsets);
    }
}

/// [`FACTOR`] to this power.
fn power(mut exponent: u64) -> u64 {
    let (mut power, mut square) = (1u64, FACTOR);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        exponent >>= 1;
    }
    power
}

/// What a block adds to an account: `digest * power + pc * slope + constant`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest {
    instructions: u64,
    power: u64,
    slope: u64,
    constant: u64,
    /// The sum of the instructions' distances from the block's start.
    offsets: u64,
}

impl Digest {
    /// The digest of instructions at these offsets from the block's start.
    pub(crate) fn of(offsets: impl Iterator<Item = u64>) -> Digest {
        let empty = Digest { instructions: 0, power: 1, slope: 0, constant: 0, offsets: 0 };
        offsets.fold(empty, |digest, offset| Digest {
            instructions: digest.instructions + 1,
            power: digest.power.wrapping_mul(FACTOR),
            slope: digest.slope.wrapping_mul(FACTOR).wrapping_add(1),
            constant: digest.constant.wrapping_mul(FACTOR).wrapping_add(offset),
            offsets: digest.offsets.wrapping_add(offset),
        })
    }
}

/// Counts instructions as QEMU begins them one by one, independent of blocks and their ends.
///
/// A begun instruction has retired when another one begins, or at an interrupt or exception that does not leave from
/// its address. If it begins again at once, it has not retired: a repeated string instruction iterates that way, and
/// QEMU repeats an access to a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Witness {
    pub(crate) account: Account,
    /// The last begun instruction, if its end is unknown.
    begun: Option<Begun>,
}

/// An instruction that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) address: u64,
    /// It is a direct branch to itself.
    pub(crate) to_itself: bool,
    /// It raises the exception that it ends with.
    pub(crate) raises: bool,
}

impl Witness {
    /// An instruction begins.
    #[inline(always)]
    pub(crate) fn begin(&mut self, next: Begun) {
        if let Some(begun) = self.begun {
            if begun.address == next.address && !begun.to_itself {
                return;
            }
            self.account.retire(begun.address);
        }
        self.begun = Some(next);
    }

    /// An interrupt or exception leaves before the instruction at `from`.
    pub(crate) fn interrupt(&mut self, from: u64) {
        if let Some(begun) = self.begun.take()
            && (begun.address != from || begun.raises || begun.to_itself)
        {
            self.account.retire(begun.address);
        }
    }

    /// The recording ends before the instruction at `next`, or, without one, within the last begun instruction.
    pub(crate) fn end(&mut self, next: Option<u64>) {
        if let Some(address) = next {
            self.begin(Begun { address, to_itself: false, raises: false });
        }
        self.begun = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(addresses: &[u64]) -> Account {
        let mut account = Account::default();
        addresses.iter().for_each(|&address| account.retire(address));
        account
    }

    #[test]
    fn a_block_is_taken_in_at_once() {
        let mut one = account(&[7, 9]);
        let mut all = one;
        let offsets = [0, 3, 4, 11];
        let pc = 0xffff_ffff_8100_0ff0;
        offsets.iter().for_each(|offset| one.retire(pc + offset));
        all.retire_all(&Digest::of(offsets.into_iter()), pc);
        assert_eq!(one, all);
        assert_ne!(account(&[1, 2]).digest, account(&[2, 1]).digest);
    }

    #[test]
    fn parts_of_an_account_are_accounts() {
        let all = account(&[3, 1, 4, 1, 5]);
        let begin = account(&[3, 1]);
        assert_eq!(all.since(begin), account(&[4, 1, 5]));
        let mut joined = begin;
        joined.append(account(&[4, 1, 5]));
        assert_eq!(joined, all);
    }

    #[test]
    fn what_was_begun_has_retired_unless_it_was_left() {
        let plain = |address| Begun { address, to_itself: false, raises: false };
        let mut witness = Witness::default();
        // A string instruction iterates three times, and is interrupted before a fourth iteration.
        [1, 2, 2, 2].into_iter().for_each(|address| witness.begin(plain(address)));
        witness.interrupt(2);
        witness.begin(plain(100));
        // The handler's first instruction is done when another interrupt comes.
        witness.interrupt(101);
        [200, 2, 3].into_iter().for_each(|address| witness.begin(plain(address)));
        // A page fault, then a breakpoint.
        witness.interrupt(3);
        witness.begin(Begun { raises: true, ..plain(4) });
        witness.interrupt(4);
        (0..3).for_each(|_| witness.begin(Begun { to_itself: true, ..plain(5) }));
        witness.end(Some(5));
        assert_eq!(witness.account, account(&[1, 100, 200, 2, 4, 5, 5, 5]));
    }
}

//! RISC-V's instructions as steps of the flow.

use super::{Kind, Linkage, Set, decode};
use crate::{Step, Terminator, Undecodable};

impl Set {
    /// The number of sets.
    pub(crate) const COUNT: usize = 4;

    /// Returns a number below [`Set::COUNT`] that no other set has.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.width as usize * 2 + self.shared as usize
    }

    /// Returns the set with an index.
    pub(crate) const fn from_index(index: usize) -> Option<Set> {
        use super::{Shared::*, Width::*};
        let (width, shared) = match index {
            0 => (Bits32, Doubles),
            1 => (Bits32, PushesAndTables),
            2 => (Bits64, Doubles),
            3 => (Bits64, PushesAndTables),
            _ => return None,
        };
        Some(Set { width, shared })
    }
}

/// Decodes the first instruction of `bytes`, which is at `address`.
///
/// # Errors
/// Why there is none.
#[inline]
pub(crate) fn step(bytes: &[u8], address: u64, set: Set) -> Result<Step, Undecodable> {
    let Some(instruction) = decode(bytes, address, set) else {
        let is_whole = bytes.len() >= 4 || bytes.len() >= 2 && bytes[0] & 3 != 3;
        return Err(if is_whole { Undecodable::Invalid } else { Undecodable::CutShort });
    };
    let plain = Step::plain(instruction.length, address);
    let kind = instruction.kind;
    Ok(match (kind, kind.linkage()) {
        (Kind::Plain | Kind::Upper { .. }, _) => plain,
        (Kind::Branch { target }, _) => plain.to(Terminator::Conditional, target),
        (Kind::EnvironmentCall | Kind::Breakpoint, _) => plain.with(Terminator::Trap),
        (Kind::TrapReturn, _) => plain.with(Terminator::Far),
        (Kind::Jump { .. } | Kind::Indirect { .. } | Kind::PopReturn | Kind::Table { .. }, linkage) => {
            match (kind.direct_target(), linkage) {
                (Some(target), Linkage::Call) => plain.to(Terminator::Call, target),
                (Some(target), _) => plain.to(Terminator::Jump, target),
                (None, Linkage::Call) => plain.with(Terminator::IndirectCall),
                (None, Linkage::Return) => plain.with(Terminator::Return),
                // A swap of co-routines neither calls nor returns.
                (None, Linkage::Swap | Linkage::None) => plain.with(Terminator::IndirectJump),
            }
        }
    })
}

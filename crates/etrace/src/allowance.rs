//! How much work a few bytes of trace may cause.

use hodo_flow::{PacketError, Trouble};

/// Branches or halfwords that a trace may repeat after a synchronization, however few bytes it has. Encoders synchronize
/// after 2^19 cycles or halfwords at the latest (trTeInstSyncMax).
const BASE: u64 = 1 << 23;
/// What each byte since the synchronization adds.
const FOR_EACH_BYTE: u64 = 1 << 12;

/// Limits the work that counts in packets cause: a damaged one may stand for billions of branches. It restarts at each
/// synchronization, so it is the same wherever a stream is cut.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    /// Position of the last synchronization.
    since: usize,
    spent: u64,
}

impl Allowance {
    /// Begins anew at a synchronization.
    pub(crate) fn restart(&mut self, at: usize) {
        *self = Allowance { since: at, spent: 0 };
    }

    /// Takes the branches or halfwords of a packet at a position.
    ///
    /// # Errors
    /// The bytes since the synchronization cannot stand for that many.
    pub(crate) fn spend(&mut self, count: u64, at: usize) -> Result<(), Trouble> {
        let bytes = at.saturating_sub(self.since) as u64;
        self.spent = self.spent.saturating_add(count);
        match self.spent <= BASE.saturating_add(bytes.saturating_mul(FOR_EACH_BYTE)) {
            true => Ok(()),
            false => Err(Trouble::Packet(PacketError::TooMany(count))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_synchronizations_allow_more() {
        let mut allowance = Allowance::default();
        assert!(allowance.spend(BASE, 0).is_ok());
        assert_eq!(allowance.spend(1, 0), Err(Trouble::Packet(PacketError::TooMany(1))));
        assert!(allowance.spend(FOR_EACH_BYTE - 1, 1).is_ok());
        assert!(allowance.spend(u64::MAX, 2).is_err());
        allowance.restart(2);
        assert!(allowance.spend(BASE, 2).is_ok());
    }
}

//! Exceptions.

use hodo_flow::{Cause, ControlFlowKind, Event, Sink};

use crate::packet::Exception;

/// What an exception left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The address to which it returns.
    pub(super) from: u64,
    pub(super) exception: Exception,
}

/// Types of an ETE without a return address: the processor was reset; a transaction failed.
pub(super) const RESET: u16 = 0;
pub(super) const TRANSACTION_FAILURE: u16 = 0x18;
/// SVC, HVC or SMC.
const CALL: u16 = 2;
/// SVC of M-profile.
const SVC: u16 = 11;

impl Left {
    /// Reports the exception; `to` is its handler, if that is traced.
    pub(super) fn report(self, to: Option<u64>, sink: &mut impl Sink) {
        let Exception { kind, is_m_profile, .. } = self.exception;
        // What calls the system is the last instruction that ran.
        let is_call = kind == if is_m_profile { SVC } else { CALL };
        let cause = Some(Cause { kind: ControlFlowKind::Named(self.exception.name()), vector: 0 });
        sink.event(match to {
            Some(to) => Event::Asynchronous { from: self.from, to, cause },
            None if is_call => Event::Disabled { from: None, to: None, asynchronous: false, cause: None },
            None => Event::Disabled { from: Some(self.from), to: None, asynchronous: true, cause },
        });
    }
}

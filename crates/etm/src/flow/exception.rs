//! Exceptions.

use hodo_flow::{Cause, ControlFlowKind, Event, Sink};

/// What an exception left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The address to which it returns.
    pub(super) from: u64,
    pub(super) kind: u16,
}

/// Of an ETE: the processor was reset; a transaction failed.
pub(super) const RESET: u16 = 0;
pub(super) const TRANSACTION_FAILURE: u16 = 0x18;
/// SVC, HVC or SMC.
const CALL: u16 = 2;

impl Left {
    /// Reports the exception; `to` is its handler, if that is traced.
    pub(super) fn report(self, to: Option<u64>, sink: &mut impl Sink) {
        let cause = Some(Cause { kind: ControlFlowKind::Named(name(self.kind)), vector: 0 });
        sink.event(match to {
            Some(to) => Event::Asynchronous { from: self.from, to, cause },
            // The call is the last instruction that ran.
            None if self.kind == CALL => {
                Event::Disabled { from: None, to: None, asynchronous: false, cause: None }
            }
            None => Event::Disabled { from: Some(self.from), to: None, asynchronous: true, cause },
        });
    }
}

/// Returns the name of an exception's type, of A- and R-profile (IHI 0064, "Exception instruction trace packet").
fn name(kind: u16) -> &'static str {
    match kind {
        0x00 => "reset",
        0x01 => "debug halt",
        0x02 => "call",
        0x03 => "trap",
        0x04 => "system error",
        0x06 => "instruction debug",
        0x07 => "data debug",
        0x0a => "alignment fault",
        0x0b => "instruction fault",
        0x0c => "data fault",
        0x0e => "IRQ",
        0x0f => "FIQ",
        _ => "exception",
    }
}

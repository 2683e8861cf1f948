//! Error codes and status bits of `intel-pt.h`.

use std::{
    ffi::CStr,
    ops::{BitOr, BitOrAssign},
};

/// An error as the C functions return it: a negative `pt_error_code`, or the negative result of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) i32);

impl Error {
    /// A broken invariant, as libipt reports it.
    pub(crate) const INTERNAL: Error = Error(-1);
    /// Invalid argument.
    pub(crate) const INVALID: Error = Error(-2);
    /// The decoder is not synchronized.
    pub(crate) const NO_SYNC: Error = Error(-3);
    /// Unknown opcode of a packet.
    pub(crate) const BAD_OPCODE: Error = Error(-4);
    /// Unknown payload of a packet.
    pub(crate) const BAD_PACKET: Error = Error(-5);
    /// A packet where none of its kind may be.
    pub(crate) const BAD_CONTEXT: Error = Error(-6);
    /// End of the trace.
    pub(crate) const END: Error = Error(-7);
    /// The next packets do not answer the query.
    pub(crate) const BAD_QUERY: Error = Error(-8);
    /// Out of memory, or too many pending events.
    pub(crate) const NO_MEMORY: Error = Error(-9);
    /// Bad configuration.
    pub(crate) const BAD_CONFIG: Error = Error(-10);
    /// No IP is known.
    pub(crate) const NO_IP: Error = Error(-11);
    /// The last IP was suppressed.
    pub(crate) const IP_SUPPRESSED: Error = Error(-12);
    /// No memory at the address.
    pub(crate) const NO_MAP: Error = Error(-13);
    /// Bytes that are no instruction.
    pub(crate) const BAD_INSTRUCTION: Error = Error(-14);
    /// No timestamp yet.
    pub(crate) const NO_TIME: Error = Error(-15);
    /// No core-to-bus ratio yet.
    pub(crate) const NO_RATIO: Error = Error(-16);
    /// The image lacks the section, or its file changed.
    pub(crate) const BAD_IMAGE: Error = Error(-17);
    /// A compressed return without call.
    pub(crate) const RETURN_STACK_EMPTY: Error = Error(-20);
    /// A TNT bit that is not taken, at a return.
    pub(crate) const BAD_RETURN: Error = Error(-21);
    /// A PSB+ contradicts the decoder's state.
    pub(crate) const BAD_STATUS_UPDATE: Error = Error(-22);
    /// Tracing is off, and no event turns it on.
    pub(crate) const NO_ENABLE: Error = Error(-23);
    /// A query passed over an event.
    pub(crate) const EVENT_IGNORED: Error = Error(-24);
    /// A file can't be read.
    pub(crate) const BAD_FILE: Error = Error(-26);
    /// Unknown processor.
    pub(crate) const BAD_CPU: Error = Error(-27);
}

/// The text of each `pt_error_code`, from 0 on, as libipt words it.
const TEXTS: [&CStr; 28] = [
    c"OK",
    c"internal error",
    c"invalid argument",
    c"decoder out of sync",
    c"unknown opcode",
    c"unknown packet",
    c"unexpected packet context",
    c"reached end of trace stream",
    c"trace stream does not match query",
    c"out of memory",
    c"bad configuration",
    c"no ip",
    c"ip has been suppressed",
    c"no memory mapped at this address",
    c"unknown instruction",
    c"no timing information",
    c"no core:bus ratio",
    c"bad image",
    c"locking error",
    c"not supported",
    c"compressed return without call",
    c"bad compressed return",
    c"bad status update",
    c"expected tracing enabled event",
    c"event ignored",
    c"overflow",
    c"bad file",
    c"unknown cpu",
];

/// Returns the text of a `pt_error_code`.
pub(crate) fn text(code: u32) -> &'static CStr {
    TEXTS.get(code as usize).copied().unwrap_or(c"internal error.")
}

/// `pt_status_flag` bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) i32);

impl Status {
    /// No bit.
    pub(crate) const NONE: Status = Status(0);
    /// An event is pending.
    pub(crate) const EVENT_PENDING: Status = Status(1);
    /// The address is suppressed: tracing is off.
    pub(crate) const IP_SUPPRESSED: Status = Status(2);
    /// The trace ends here.
    pub(crate) const END: Status = Status(4);

    /// Returns whether all bits of `other` are set.
    pub(crate) fn has(self, other: Status) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Status {
    type Output = Status;

    fn bitor(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }
}

impl BitOrAssign for Status {
    fn bitor_assign(&mut self, other: Status) {
        self.0 |= other.0;
    }
}

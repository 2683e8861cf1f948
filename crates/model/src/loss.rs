//! What a recording or its decoding lost, and where.

use std::ops::Range;

use hodo_clock::Nanos;
use serde::{Deserialize, Serialize};

/// Why something is missing from a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The processor's internal buffer overflowed (Intel PT OVF packet).
    Overflow,
    /// The tracer could not write out its buffer in time (AUX record with the truncated flag, LOST record).
    Truncated,
    /// The bytes are no valid trace.
    Corrupt,
    /// The trace contradicts the code it is decoded against.
    Mismatch,
    /// No bytes of the code that ran are known.
    MissingCode,
    /// A program ran outside the tracer's reach, such as a child that no emulator could run.
    Untraced,
    /// Input that was cut short: the file ends before what its header promises.
    CutShort,
    /// When it ran is not known, and only a part of the times was wanted.
    Untimed,
    /// The clocks of two traces are not known to be related, so the order of their events is not known either.
    UnrelatedClocks,
}

impl Cause {
    /// The name in tables and JSON, such as `missing_code`.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Overflow => "overflow",
            Cause::Truncated => "truncated",
            Cause::Corrupt => "corrupt",
            Cause::Mismatch => "mismatch",
            Cause::MissingCode => "missing_code",
            Cause::Untraced => "untraced",
            Cause::CutShort => "cut_short",
            Cause::Untimed => "untimed",
            Cause::UnrelatedClocks => "unrelated_clocks",
        }
    }
}

/// One place where something is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Which stream, such as `tid 4242`; empty for the whole input.
    pub stream: String,
    /// Why.
    pub cause: Cause,
    /// Bytes of the input that could not be used, as offsets into the file; empty where none are known.
    pub bytes: Range<u64>,
    /// The span of time that the loss covers, where known.
    pub time: Option<(Nanos, Nanos)>,
    /// How many times this happened at this place, or how many records were lost.
    pub count: u64,
    /// What exactly, for people: the address, the packet, what was expected.
    pub detail: String,
}

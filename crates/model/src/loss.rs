//! Losses: missing parts of a recording or of its decoding.

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
    /// The bytes are not a valid trace.
    Corrupt,
    /// The trace contradicts the code it is decoded against.
    Mismatch,
    /// The bytes of the executed code are unknown.
    MissingCode,
    /// A program ran out of the tracer's reach, such as a child that the emulator cannot run.
    Untraced,
    /// The input is cut short: the file ends before the length in its header, or the recorded machine ended before its
    /// command did.
    CutShort,
    /// The execution time is unknown, and only a time window was requested.
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

/// One place where data is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The stream, such as `tid 4242`; empty for the whole input.
    pub stream: String,
    /// The reason.
    pub cause: Cause,
    /// File offsets of the unusable bytes; empty if unknown.
    pub bytes: Range<u64>,
    /// The time window of the loss, if known.
    pub time: Option<(Nanos, Nanos)>,
    /// The number of occurrences at this place, or of lost records.
    pub count: u64,
    /// Details for people: the address, the packet, what was expected.
    pub detail: String,
}

//! Perfetto: the protobuf traces of Android, of `tracebox` and of `traced` on Linux.
//!
//! ```text
//! packets ──index──► bundles of ftrace events ──schema──► TraceClass ─┐
//!            │  └──► names, clocks, statistics                        ├──► Trace, one per machine
//!            └─unpack─► packets                bundle ──reader──► a stream per CPU ─┘
//! ```
//!
//! ftrace's events become the same classes as those of a trace.dat. Their fields are read where they lie in the file;
//! an index of the bundles is all that is kept of a trace. Other packets, such as slices of applications, are counted
//! and named in a note.
//!
//! Source: `protos/perfetto/trace` of Perfetto 59.

mod bundle;
mod index;
mod reader;
mod schema;
mod table;
mod trace;
mod unpack;
pub(crate) mod wire;

pub(crate) use reader::{BundleReader, Bundles};
pub use trace::read;

use wire::{Fields, Value};

/// The format.
pub const FORMAT: crate::Format = crate::Format {
    name: "Perfetto",
    recognise,
    contents: |_| crate::Contents::EVENTS,
    flow: None,
    events: Some(read),
};

/// The field of `Trace` with its packets.
const PACKET: u32 = 1;

/// The position of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FilePosition {
    /// The number of their file.
    file: usize,
    offset: usize,
}

impl FilePosition {
    fn plus(self, length: usize) -> FilePosition {
        FilePosition { offset: self.offset + length, ..self }
    }
}

/// Numbers of the fields of `TracePacket`.
mod packet {
    pub(super) const FTRACE_EVENTS: u32 = 1;
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const TRUSTED_UID: u32 = 3;
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const FTRACE_STATS: u32 = 34;
    pub(super) const TRACE_STATS: u32 = 35;
    pub(super) const SYNCHRONIZATION_MARKER: u32 = 36;
    pub(super) const PREVIOUS_DROPPED: u32 = 42;
    pub(super) const SYSTEM_INFO: u32 = 45;
    pub(super) const COMPRESSED: u32 = 50;
    pub(super) const TRACE_PACKET_DEFAULTS: u32 = 59;
    pub(super) const MACHINE_ID: u32 = 98;
    pub(super) const ZSTD_COMPRESSED: u32 = 133;
}

/// The fields of `TracePacket` that are integers; all others are messages or bytes.
const INTEGERS: &[u32] = &[3, 8, 10, 13, 41, 42, 58, 79, 87, 98];
/// Fields that a trace of Perfetto has in one of its first packets, and that other files do not have by chance.
const TYPICAL: &[u32] = &[
    packet::FTRACE_EVENTS,
    packet::TRUSTED_UID,
    packet::CLOCK_SNAPSHOT,
    packet::SEQUENCE_ID,
    packet::SYNCHRONIZATION_MARKER,
    packet::COMPRESSED,
];
/// Number of packets by which a trace is recognised.
const FIRST_PACKETS: usize = 16;
/// The highest number of a field of `TracePacket`.
const HIGHEST: u32 = 1 << 10;

/// Whether the bytes begin a trace of Perfetto.
pub fn recognise(bytes: &[u8]) -> bool {
    let (mut fields, mut is_typical) = (Fields::new(bytes), false);
    for number in 0..FIRST_PACKETS {
        let start = fields.offset();
        match fields.next() {
            Ok(None) => return number > 0 && is_typical,
            Ok(Some(field)) => match field.bytes().filter(|_| field.number == PACKET).map(likeness) {
                Some(Likeness::Typical) => is_typical = true,
                Some(Likeness::Possible) => {}
                Some(Likeness::Impossible) | None => return false,
            },
            // A packet that is cut short by the end of the file.
            Err(_) => return number > 0 && is_typical && bytes.get(start) == Some(&0x0a),
        }
    }
    is_typical
}

/// Whether a message can be a packet.
enum Likeness {
    /// It has a field that other files do not have by chance.
    Typical,
    Possible,
    Impossible,
}

fn likeness(bytes: &[u8]) -> Likeness {
    let (mut fields, mut likeness) = (Fields::new(bytes), Likeness::Possible);
    loop {
        let field = match fields.next() {
            Ok(Some(field)) => field,
            Ok(None) => return likeness,
            Err(_) => return Likeness::Impossible,
        };
        let is_integer = matches!(field.value, Value::Number(_));
        if field.number > HIGHEST || is_integer != INTEGERS.contains(&field.number) {
            return Likeness::Impossible;
        }
        if TYPICAL.contains(&field.number) {
            likeness = Likeness::Typical;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_are_recognised() {
        assert!(recognise(&[0x0a, 2, 0x50, 1]));
        assert!(recognise(&[0x0a, 2, 0x50, 1, 0x0a, 100, 1]));
        for other in [
            &b""[..],
            b"\n",
            b"\n/* CTF 1.8 */\ntrace {",
            &[0x0a, 0],
            &[0x0a, 4, 8, 1, 0x10, 2],
            &[0x0a, 9, 0x50],
        ] {
            assert!(!recognise(other), "{other:?}");
        }
    }
}

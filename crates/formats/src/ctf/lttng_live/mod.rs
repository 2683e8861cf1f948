//! The protocol by which LTTng's relay daemon shows sessions that are being recorded ("LTTng live", version 2.4).
//!
//! ```text
//! Request ──encode──► bytes ──► relay daemon ──► bytes of a known number ──decode──► a reply, and how much follows
//! ```
//!
//! All numbers are big-endian. A viewer connects, creates a viewer session, attaches to a session, and asks each
//! stream for the index of its next packet, then for the packet. What a server claims is bounded before anybody
//! makes room for it. Source: LTTng-tools, `doc/live-reading-protocol.txt` and `lttng-viewer-abi.h`.

mod reply;

pub use reply::{
    Attached, Connected, Index, IndexStatus, MetadataHead, MetadataStatus, NewStreams, PacketHead,
    PacketStatus, Reply, Session, SessionCount, SessionCreated, StreamInfo,
};

/// The version that is spoken.
pub const VERSION: (u32, u32) = (2, 4);
/// Where a relay daemon listens for viewers.
pub const PORT: u16 = 5344;
/// The longest packet or piece of metadata that is taken, in bytes: far more than any ring buffer has.
pub const LONGEST: u64 = 1 << 28;
/// The most sessions or streams that are taken in a list.
pub const MOST: u32 = 1 << 16;

/// What a viewer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// To speak version 2.4.
    Connect,
    /// The sessions that there are.
    ListSessions,
    /// A viewer session, to which sessions can be attached.
    CreateSession,
    /// The streams of a session from their beginning on.
    Attach {
        /// Its id.
        session: u64,
    },
    /// What and where the next packet of a stream is.
    NextIndex {
        /// Its id.
        stream: u64,
    },
    /// Bytes of a packet.
    Packet {
        /// Id of its stream.
        stream: u64,
        /// Where it begins in the daemon's file.
        offset: u64,
        /// Its bytes.
        length: u32,
    },
    /// What was added to metadata.
    Metadata {
        /// Id of the stream that holds it.
        stream: u64,
    },
    /// The streams that a session got meanwhile.
    NewStreams {
        /// Its id.
        session: u64,
    },
    /// No more of a session.
    Detach {
        /// Its id.
        session: u64,
    },
}

/// A viewer that asks, rather than one that is notified.
const CLIENT_COMMAND: u32 = 1;
/// From the beginning of what the daemon has.
const SEEK_BEGINNING: u32 = 1;

impl Request {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let wide = |number: u64| number.to_be_bytes();
        let word = |number: u32| number.to_be_bytes();
        let (command, body): (u32, Vec<u8>) = match *self {
            Request::Connect => {
                let version = [word(VERSION.0), word(VERSION.1), word(CLIENT_COMMAND)].concat();
                (1, [&wide(u64::MAX)[..], &version].concat())
            }
            Request::ListSessions => (2, Vec::new()),
            Request::Attach { session } => {
                (3, [&wide(session)[..], &wide(0), &word(SEEK_BEGINNING)].concat())
            }
            Request::NextIndex { stream } => (4, wide(stream).to_vec()),
            Request::Packet { stream, offset, length } => {
                (5, [&wide(stream)[..], &wide(offset), &word(length)].concat())
            }
            Request::Metadata { stream } => (6, wide(stream).to_vec()),
            Request::NewStreams { session } => (7, wide(session).to_vec()),
            Request::CreateSession => (8, Vec::new()),
            Request::Detach { session } => (9, wide(session).to_vec()),
        };
        [&wide(body.len() as u64)[..], &word(command), &word(0), &body].concat()
    }
}

/// A server that says what it may not, or can't be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError(pub String);

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the relay daemon's answer: {}", self.0)
    }
}

impl std::error::Error for ProtocolError {}

#[cfg(test)]
mod tests;

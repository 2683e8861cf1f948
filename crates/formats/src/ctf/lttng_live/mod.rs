//! The LTTng live protocol, version 2.4: reads sessions from LTTng's relay daemon while they are recorded.
//!
//! ```text
//! Request ──encode──► bytes ──► relay daemon ──► fixed-size reply ──decode──► reply, and the size of the data after it
//! ```
//!
//! All numbers are big-endian. A viewer connects, creates a viewer session and attaches to a session. For each stream
//! it requests the index of the next packet, then the packet. Sizes from the server are bounded before anything is
//! allocated. Source: LTTng-tools, `doc/live-reading-protocol.txt` and `lttng-viewer-abi.h`.

mod reply;

pub use reply::{
    Attached, Connected, Index, IndexStatus, MetadataHead, MetadataStatus, NewStreams, PacketHead,
    PacketStatus, Reply, Session, SessionCount, SessionCreated, StreamInfo,
};

/// The protocol version: major and minor.
pub const VERSION: (u32, u32) = (2, 4);
/// The relay daemon's default port for viewers.
pub const PORT: u16 = 5344;
/// The largest accepted packet or piece of metadata in bytes, far larger than any ring buffer.
pub const LONGEST: u64 = 1 << 28;
/// The largest accepted number of sessions or streams in a list.
pub const MOST: u32 = 1 << 16;

/// A viewer's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Connects with version 2.4.
    Connect,
    /// Lists the sessions.
    ListSessions,
    /// Creates a viewer session, to which sessions can be attached.
    CreateSession,
    /// Attaches to a session, from the beginning of its streams.
    Attach {
        /// Session id.
        session: u64,
    },
    /// Requests the index of a stream's next packet.
    NextIndex {
        /// Stream id.
        stream: u64,
    },
    /// Requests a packet's bytes.
    Packet {
        /// Stream id.
        stream: u64,
        /// Offset in the daemon's file.
        offset: u64,
        /// Size in bytes.
        length: u32,
    },
    /// Requests new metadata.
    Metadata {
        /// Id of the metadata stream.
        stream: u64,
    },
    /// Requests a session's new streams.
    NewStreams {
        /// Session id.
        session: u64,
    },
    /// Detaches from a session.
    Detach {
        /// Session id.
        session: u64,
    },
}

/// The connection type of a viewer that sends requests, rather than receiving notifications.
const CLIENT_COMMAND: u32 = 1;
/// Seeks to the beginning of the daemon's data.
const SEEK_BEGINNING: u32 = 1;

impl Request {
    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        let wide = |number: u64| number.to_be_bytes();
        let word = |number: u32| number.to_be_bytes();
        // The numbers of commands: `enum lttng_viewer_command`.
        let (command, body): (u32, Vec<u8>) = match *self {
            Request::Connect => {
                let version = [word(VERSION.0), word(VERSION.1), word(CLIENT_COMMAND)].concat();
                (1, [&wide(u64::MAX)[..], &version].concat())
            }
            Request::ListSessions => (2, Vec::new()),
            Request::Attach { session } => {
                let offset = 0;
                (3, [&wide(session)[..], &wide(offset), &word(SEEK_BEGINNING)].concat())
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
        let command_version = 0;
        [&wide(body.len() as u64)[..], &word(command), &word(command_version), &body].concat()
    }
}

/// An invalid reply, or a request that the server cannot process.
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

//! Replies of a relay daemon.

use super::{LONGEST, MOST, ProtocolError, VERSION};

/// A reply of fixed size.
pub trait Reply: Sized {
    /// The size in bytes.
    const SIZE: usize;

    /// Decodes a reply.
    ///
    /// # Errors
    /// An invalid reply.
    fn decode(bytes: &[u8]) -> Result<Self, ProtocolError>;
}

/// Reads integers and text from a reply.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ProtocolError> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or_else(|| ProtocolError("it is too short".to_owned()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u32, ProtocolError> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().unwrap_or_default()))
    }

    fn wide(&mut self) -> Result<u64, ProtocolError> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().unwrap_or_default()))
    }

    /// Reads NUL-terminated text from a field of `size` bytes.
    fn text(&mut self, size: usize) -> Result<String, ProtocolError> {
        let field = self.take(size)?;
        let text = field.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Reads the bounded length of the list that follows.
    fn count(&mut self, what: &str) -> Result<u32, ProtocolError> {
        let count = self.word()?;
        if count > MOST {
            return Err(ProtocolError(format!("{count} {what}; at most {MOST} are accepted")));
        }
        Ok(count)
    }
}

/// Checks a length against the limit before it is allocated.
fn bounded(what: &str, length: u64) -> Result<u64, ProtocolError> {
    if length > LONGEST {
        return Err(ProtocolError(format!("{what} of {length} bytes; at most {LONGEST} are accepted")));
    }
    Ok(length)
}

/// The reply to [`Request::Connect`](super::Request::Connect).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The daemon's version: major and minor.
    pub version: (u32, u32),
}

impl Reply for Connected {
    const SIZE: usize = 20;

    fn decode(bytes: &[u8]) -> Result<Connected, ProtocolError> {
        let mut fields = Fields(bytes);
        let _session = fields.wide()?;
        let (major, minor) = (fields.word()?, fields.word()?);
        if major != VERSION.0 || minor < VERSION.1 {
            return Err(ProtocolError(format!("it speaks version {major}.{minor}; 2.4 or later expected")));
        }
        Ok(Connected { version: (major, minor) })
    }
}

/// The number of sessions that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCount(pub u32);

impl Reply for SessionCount {
    const SIZE: usize = 4;

    fn decode(bytes: &[u8]) -> Result<SessionCount, ProtocolError> {
        Fields(bytes).count("sessions").map(SessionCount)
    }
}

/// A session that is being recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The session id.
    pub id: u64,
    /// Microseconds after which a partly filled buffer is sent; 0 if the session is not live.
    pub live_timer: u32,
    /// Number of attached viewers.
    pub clients: u32,
    /// Number of streams.
    pub streams: u32,
    /// The traced machine.
    pub host: String,
    /// The session's name.
    pub name: String,
}

impl Reply for Session {
    const SIZE: usize = 8 + 3 * 4 + 64 + 255;

    fn decode(bytes: &[u8]) -> Result<Session, ProtocolError> {
        let mut fields = Fields(bytes);
        Ok(Session {
            id: fields.wide()?,
            live_timer: fields.word()?,
            clients: fields.word()?,
            streams: fields.word()?,
            host: fields.text(64)?,
            name: fields.text(255)?,
        })
    }
}

/// The reply to [`Request::CreateSession`](super::Request::CreateSession).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCreated;

impl Reply for SessionCreated {
    const SIZE: usize = 4;

    fn decode(bytes: &[u8]) -> Result<SessionCreated, ProtocolError> {
        match Fields(bytes).word()? {
            1 => Ok(SessionCreated),
            status => {
                Err(ProtocolError(format!("the daemon refuses to create a viewer session (status {status})")))
            }
        }
    }
}

/// The number of streams that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached(pub u32);

impl Reply for Attached {
    const SIZE: usize = 8;

    fn decode(bytes: &[u8]) -> Result<Attached, ProtocolError> {
        let mut fields = Fields(bytes);
        let reason = match fields.word()? {
            1 => return fields.count("streams").map(Attached),
            2 => "another viewer reads this session",
            3 => "the session no longer exists",
            4 => "the session is not a live one; create it with `lttng create --live`",
            5 => "it can't go to the session's beginning",
            6 => "there is no viewer session",
            _ => "it does not attach to the session, without a reason",
        };
        Err(ProtocolError(reason.to_owned()))
    }
}

/// A stream of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The stream id, for requests.
    pub id: u64,
    /// Id of its trace in the session.
    pub trace: u64,
    /// Whether it contains metadata.
    pub is_metadata: bool,
    /// The folder of its trace.
    pub path: String,
    /// The channel.
    pub channel: String,
}

impl Reply for StreamInfo {
    const SIZE: usize = 8 + 8 + 4 + 4096 + 255;

    fn decode(bytes: &[u8]) -> Result<StreamInfo, ProtocolError> {
        let mut fields = Fields(bytes);
        Ok(StreamInfo {
            id: fields.wide()?,
            trace: fields.wide()?,
            is_metadata: fields.word()? != 0,
            path: fields.text(4096)?,
            channel: fields.text(255)?,
        })
    }
}

/// New streams of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewStreams {
    /// The number of new streams, which follow.
    Streams(u32),
    /// The session has ended.
    Ended,
}

impl Reply for NewStreams {
    const SIZE: usize = 8;

    fn decode(bytes: &[u8]) -> Result<NewStreams, ProtocolError> {
        let mut fields = Fields(bytes);
        match fields.word()? {
            1 => fields.count("streams").map(NewStreams::Streams),
            2 => Ok(NewStreams::Streams(0)),
            // A session that the daemon no longer knows has ended too.
            3 | 4 => Ok(NewStreams::Ended),
            status => Err(ProtocolError(format!("new streams with status {status}"))),
        }
    }
}

/// The next item of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexStatus {
    /// A packet.
    Packet,
    /// Nothing yet.
    Retry,
    /// The end of the stream.
    Ended,
    /// No events before `end`.
    Inactive,
}

/// The index of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// The next item.
    pub status: IndexStatus,
    /// Begin offset in the daemon's file, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub length: u32,
    /// Begin time in cycles.
    pub begin: u64,
    /// End time in cycles.
    pub end: u64,
    /// Id of the stream class.
    pub stream_class: u64,
    /// Whether there is new metadata, which the packet may need.
    pub new_metadata: bool,
    /// Whether the session has new streams.
    pub new_streams: bool,
}

/// Flags in the index and head of a packet.
const NEW_METADATA: u32 = 1 << 0;
const NEW_STREAMS: u32 = 1 << 1;

impl Reply for Index {
    const SIZE: usize = 64;

    fn decode(bytes: &[u8]) -> Result<Index, ProtocolError> {
        let mut fields = Fields(bytes);
        let (offset, size, _content) = (fields.wide()?, fields.wide()?, fields.wide()?);
        let (begin, end, _discarded, stream_class) =
            (fields.wide()?, fields.wide()?, fields.wide()?, fields.wide()?);
        let (status, flags) = (fields.word()?, fields.word()?);
        let status = match status {
            1 => IndexStatus::Packet,
            2 => IndexStatus::Retry,
            3 | 6 => IndexStatus::Ended,
            5 => IndexStatus::Inactive,
            status => return Err(ProtocolError(format!("an index with status {status}"))),
        };
        let length = match status {
            IndexStatus::Packet if size == 0 || !size.is_multiple_of(8) => {
                return Err(ProtocolError(format!("a packet of {size} bits; whole bytes expected")));
            }
            IndexStatus::Packet => bounded("a packet", size / 8)? as u32,
            _ => 0,
        };
        let (new_metadata, new_streams) = (flags & NEW_METADATA != 0, flags & NEW_STREAMS != 0);
        Ok(Index { status, offset, length, begin, end, stream_class, new_metadata, new_streams })
    }
}

/// The state of a requested packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketStatus {
    /// The number of bytes that follow.
    Bytes(u32),
    /// Not available until the client has requested the metadata or streams that the flags announce.
    Later,
    /// The daemon does not have the packet.
    Absent,
}

/// The header of a packet reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    /// Whether the packet follows.
    pub status: PacketStatus,
    /// Whether there is new metadata, which the packet may need.
    pub new_metadata: bool,
    /// Whether the session has new streams.
    pub new_streams: bool,
}

impl Reply for PacketHead {
    const SIZE: usize = 12;

    fn decode(bytes: &[u8]) -> Result<PacketHead, ProtocolError> {
        let mut fields = Fields(bytes);
        let (status, length, flags) = (fields.word()?, fields.word()?, fields.word()?);
        let (new_metadata, new_streams) = (flags & NEW_METADATA != 0, flags & NEW_STREAMS != 0);
        let status = match status {
            1 => PacketStatus::Bytes(bounded("a packet", length.into())? as u32),
            2 => PacketStatus::Later,
            3 if new_metadata || new_streams => PacketStatus::Later,
            3 => PacketStatus::Absent,
            status => return Err(ProtocolError(format!("a packet with status {status}"))),
        };
        Ok(PacketHead { status, new_metadata, new_streams })
    }
}

/// The state of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataStatus {
    /// The number of bytes that follow.
    Bytes(u32),
    /// No new metadata.
    NoNew,
}

/// The header of a metadata reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataHead(pub MetadataStatus);

impl Reply for MetadataHead {
    const SIZE: usize = 12;

    fn decode(bytes: &[u8]) -> Result<MetadataHead, ProtocolError> {
        let mut fields = Fields(bytes);
        let (length, status) = (fields.wide()?, fields.word()?);
        match status {
            1 => Ok(MetadataHead(MetadataStatus::Bytes(bounded("metadata", length)? as u32))),
            2 => Ok(MetadataHead(MetadataStatus::NoNew)),
            status => Err(ProtocolError(format!("metadata with status {status}"))),
        }
    }
}

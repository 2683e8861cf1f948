//! What a relay daemon answers.

use super::{LONGEST, MOST, ProtocolError, VERSION};

/// An answer of a known number of bytes.
pub trait Reply: Sized {
    /// How many.
    const SIZE: usize;

    /// What they say.
    ///
    /// # Errors
    /// What a daemon may not say.
    fn decode(bytes: &[u8]) -> Result<Self, ProtocolError>;
}

/// Reads numbers and text from an answer.
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

    /// Text up to its NUL, in a field of so many bytes.
    fn text(&mut self, size: usize) -> Result<String, ProtocolError> {
        let field = self.take(size)?;
        let text = field.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// A number of things in a list that follows.
    fn count(&mut self, what: &str) -> Result<u32, ProtocolError> {
        let count = self.word()?;
        match count <= MOST {
            true => Ok(count),
            false => Err(ProtocolError(format!("{count} {what}; {MOST} at most are taken"))),
        }
    }
}

/// A length that somebody is to make room for.
fn bounded(what: &str, length: u64) -> Result<u64, ProtocolError> {
    match length <= LONGEST {
        true => Ok(length),
        false => Err(ProtocolError(format!("{what} of {length} bytes; {LONGEST} at most are taken"))),
    }
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The version that the daemon speaks.
    pub version: (u32, u32),
}

impl Reply for Connected {
    const SIZE: usize = 20;

    fn decode(bytes: &[u8]) -> Result<Connected, ProtocolError> {
        let mut fields = Fields(bytes);
        let _session = fields.wide()?;
        let version = (fields.word()?, fields.word()?);
        match version.0 == VERSION.0 && version.1 >= VERSION.1 {
            true => Ok(Connected { version }),
            false => Err(ProtocolError(format!(
                "it speaks version {}.{}; 2.4 or later expected",
                version.0, version.1
            ))),
        }
    }
}

/// How many sessions follow.
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
    /// Its id.
    pub id: u64,
    /// Microseconds after which a buffer that is not full is sent; 0 where the session is not live.
    pub live_timer: u32,
    /// Viewers that are attached.
    pub clients: u32,
    /// How many streams it has.
    pub streams: u32,
    /// The machine that is traced.
    pub host: String,
    /// Its name.
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

/// A viewer session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCreated;

impl Reply for SessionCreated {
    const SIZE: usize = 4;

    fn decode(bytes: &[u8]) -> Result<SessionCreated, ProtocolError> {
        match Fields(bytes).word()? {
            1 => Ok(SessionCreated),
            status => Err(ProtocolError(format!("it creates no viewer session (status {status})"))),
        }
    }
}

/// How many streams follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached(pub u32);

impl Reply for Attached {
    const SIZE: usize = 8;

    fn decode(bytes: &[u8]) -> Result<Attached, ProtocolError> {
        let mut fields = Fields(bytes);
        let reason = match fields.word()? {
            1 => return fields.count("streams").map(Attached),
            2 => "another viewer reads this session",
            3 => "the session is not there any more",
            4 => "the session is not a live one; create it with `lttng create --live`",
            5 => "it can't go to the session's beginning",
            6 => "there is no viewer session",
            _ => "it does not attach to the session, for a reason that it does not say",
        };
        Err(ProtocolError(reason.to_owned()))
    }
}

/// A stream of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its id, for requests.
    pub id: u64,
    /// Which of the session's traces it belongs to.
    pub trace: u64,
    /// Whether it holds metadata.
    pub is_metadata: bool,
    /// The folder of its trace.
    pub path: String,
    /// Its channel.
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

/// What a session got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewStreams {
    /// So many streams, which follow.
    Streams(u32),
    /// Nothing, and it gets no more.
    Ended,
}

impl Reply for NewStreams {
    const SIZE: usize = 8;

    fn decode(bytes: &[u8]) -> Result<NewStreams, ProtocolError> {
        let mut fields = Fields(bytes);
        match fields.word()? {
            1 => fields.count("streams").map(NewStreams::Streams),
            2 => Ok(NewStreams::Streams(0)),
            // A session that is not known any more has ended, too.
            3 | 4 => Ok(NewStreams::Ended),
            status => Err(ProtocolError(format!("new streams with status {status}"))),
        }
    }
}

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexStatus {
    /// A packet.
    Packet,
    /// Nothing yet.
    Retry,
    /// Nothing any more.
    Ended,
    /// Nothing before `end`.
    Inactive,
}

/// The index of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// What comes next.
    pub status: IndexStatus,
    /// Where it begins in the daemon's file, in bytes.
    pub offset: u64,
    /// Bytes of the packet.
    pub length: u32,
    /// When it begins, in cycles.
    pub begin: u64,
    /// When it ends, in cycles.
    pub end: u64,
    /// Id of the class of its stream.
    pub stream_class: u64,
    /// Metadata was added that the packet may need.
    pub new_metadata: bool,
    /// The session got streams.
    pub new_streams: bool,
}

/// Flags of an index and of a packet.
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

/// What becomes of a packet that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketStatus {
    /// So many bytes of it follow.
    Bytes(u32),
    /// Not now: first comes what the flags say.
    Later,
    /// The daemon does not have it.
    Absent,
}

/// The head of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    /// Whether it follows.
    pub status: PacketStatus,
    /// Metadata was added that the packet may need.
    pub new_metadata: bool,
    /// The session got streams.
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

/// Whether there is metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataStatus {
    /// So many bytes of it follow.
    Bytes(u32),
    /// None that was not sent yet.
    NoNew,
}

/// The head of metadata.
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

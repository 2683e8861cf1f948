//! A connection to a relay daemon.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use hodo_formats::ctf::lttng_live::{
    Attached, Connected, Index, MetadataHead, MetadataStatus, NewStreams, PacketHead, PacketStatus,
    ProtocolError, Reply, Request, Session, SessionCount, SessionCreated, StreamInfo,
};

use super::LiveAddress;

/// The timeout of requests: a working daemon answers at once.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why reading a session failed.
#[derive(Debug)]
pub enum LiveError {
    /// The connection failed.
    Connection(LiveAddress, io::Error),
    /// The daemon violates the protocol, or refuses a request.
    Protocol(ProtocolError),
    /// The metadata can't be read.
    Metadata(hodo_formats::error::Error),
    /// No such session; the sessions that exist.
    NoSession(LiveAddress, Vec<String>),
    /// No event has this requested context.
    MissingContext(&'static str),
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::Connection(address, error) => write!(f, "{address}: {error}"),
            LiveError::Protocol(error) => error.fmt(f),
            LiveError::Metadata(error) => write!(f, "the session's metadata: {error}"),
            LiveError::NoSession(address, others) if others.is_empty() => {
                write!(f, "{address}: there is no such session; the relay daemon has no sessions")
            }
            LiveError::NoSession(address, others) => {
                write!(f, "{address}: no such session; there are {}", others.join(", "))
            }
            LiveError::MissingContext(name) => write!(f, "no event has the context `{name}`"),
        }
    }
}

impl std::error::Error for LiveError {}

impl From<ProtocolError> for LiveError {
    fn from(error: ProtocolError) -> LiveError {
        LiveError::Protocol(error)
    }
}

/// A connection to a relay daemon.
pub(super) struct Client {
    address: LiveAddress,
    stream: TcpStream,
}

impl Client {
    pub(super) fn connect(address: &LiveAddress) -> Result<Client, LiveError> {
        let failed = |error| LiveError::Connection(address.clone(), error);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for socket in (address.host.as_str(), address.port).to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&socket, REQUEST_TIMEOUT) {
                Ok(stream) => {
                    let set = stream
                        .set_nodelay(true)
                        .and_then(|()| stream.set_read_timeout(Some(REQUEST_TIMEOUT)));
                    set.map_err(failed)?;
                    let mut client = Client { address: address.clone(), stream };
                    client.ask::<Connected>(Request::Connect)?;
                    return Ok(client);
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    fn read(&mut self, count: usize) -> Result<Vec<u8>, LiveError> {
        // The buffer grows as bytes arrive: an announced size is not trusted.
        let mut bytes = Vec::new();
        let read = (&mut self.stream).take(count as u64).read_to_end(&mut bytes);
        match read {
            Ok(_) if bytes.len() == count => Ok(bytes),
            Ok(_) => Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: io::Error) -> LiveError {
        LiveError::Connection(self.address.clone(), error)
    }

    fn reply<R: Reply>(&mut self) -> Result<R, LiveError> {
        Ok(R::decode(&self.read(R::SIZE)?)?)
    }

    fn replies<R: Reply>(&mut self, count: u32) -> Result<Vec<R>, LiveError> {
        (0..count).map(|_| self.reply()).collect()
    }

    fn ask<R: Reply>(&mut self, request: Request) -> Result<R, LiveError> {
        self.stream.write_all(&request.encode()).map_err(|error| self.failed(error))?;
        self.reply()
    }

    pub(super) fn sessions(&mut self) -> Result<Vec<Session>, LiveError> {
        let SessionCount(count) = self.ask(Request::ListSessions)?;
        self.replies(count)
    }

    pub(super) fn create_session(&mut self) -> Result<(), LiveError> {
        self.ask::<SessionCreated>(Request::CreateSession).map(drop)
    }

    pub(super) fn attach(&mut self, session: u64) -> Result<Vec<StreamInfo>, LiveError> {
        let Attached(count) = self.ask(Request::Attach { session })?;
        self.replies(count)
    }

    /// Returns the new streams of a session; `None` if it has ended.
    pub(super) fn new_streams(&mut self, session: u64) -> Result<Option<Vec<StreamInfo>>, LiveError> {
        match self.ask(Request::NewStreams { session })? {
            NewStreams::Streams(count) => self.replies(count).map(Some),
            NewStreams::Ended => Ok(None),
        }
    }

    pub(super) fn next_index(&mut self, stream: u64) -> Result<Index, LiveError> {
        self.ask(Request::NextIndex { stream })
    }

    /// Requests `length` bytes of a packet. Returns the daemon's answer and the bytes: often all of them, and never
    /// more.
    pub(super) fn packet(
        &mut self,
        stream: u64,
        (offset, length): (u64, u32),
    ) -> Result<(PacketHead, Vec<u8>), LiveError> {
        let head: PacketHead = self.ask(Request::Packet { stream, offset, length })?;
        match head.status {
            PacketStatus::Bytes(count) if count <= length => Ok((head, self.read(count as usize)?)),
            PacketStatus::Bytes(count) => {
                Err(ProtocolError(format!("{count} bytes of a packet, but {length} were requested")).into())
            }
            PacketStatus::Later | PacketStatus::Absent => Ok((head, Vec::new())),
        }
    }

    /// Returns new metadata; empty if there is none.
    pub(super) fn metadata(&mut self, stream: u64) -> Result<Vec<u8>, LiveError> {
        match self.ask(Request::Metadata { stream })? {
            MetadataHead(MetadataStatus::Bytes(count)) => self.read(count as usize),
            MetadataHead(MetadataStatus::NoNew) => Ok(Vec::new()),
        }
    }

    /// Detaches from a session, so that the daemon can serve it to other viewers. Closing the connection has the same
    /// effect.
    pub(super) fn detach(&mut self, session: u64) {
        let _ = self.stream.write_all(&Request::Detach { session }.encode());
    }
}

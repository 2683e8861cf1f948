//! A viewer of a session: requests new packets, and holds them until they can be printed in order.

use std::{
    collections::BTreeMap,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use hodo_clock::OriginNanos;
use hodo_formats::ctf::{
    lttng_live::{Index, IndexStatus, PacketStatus, Session, StreamInfo},
    read_metadata,
};
use hodo_formats::events::{DataFile, Trace};
use hodo_model::{Cause, Loss};

use super::{
    LiveAddress, LiveError,
    client::{Client, REQUEST_TIMEOUT},
    stream::{Awaited, LiveStream, PacketTimes},
};
use crate::{
    events::{Traces, slices::Part},
    losses::Losses,
};

/// Maximum number of packet bytes to hold before some are printed.
const MOST_HELD: u64 = 32 << 20;
/// Maximum number of attempts to reconnect; `PAUSE` is the time between them.
const ATTEMPTS: u32 = 25;
const PAUSE: Duration = Duration::from_millis(200);

/// A viewer of a session.
pub(super) struct Viewer {
    address: LiveAddress,
    client: Client,
    /// Ids of the sessions with the requested name.
    sessions: Vec<u64>,
    /// By the daemon's trace id.
    traces: BTreeMap<u64, LiveTrace>,
    needs_streams: bool,
    has_ended: bool,
    pub(super) losses: Losses,
}

/// A trace of the session.
struct LiveTrace {
    name: String,
    metadata_stream: Option<u64>,
    metadata: Vec<u8>,
    needs_metadata: bool,
    /// The trace of the metadata, once it can be parsed.
    trace: Option<Trace<'static>>,
    streams: Vec<LiveStream>,
}

impl LiveTrace {
    /// Requests and parses new metadata; returns whether there was any.
    fn update(&mut self, client: &mut Client) -> Result<bool, LiveError> {
        let Some(stream) = self.metadata_stream else { return Ok(false) };
        let before = self.metadata.len();
        loop {
            let more = client.metadata(stream)?;
            if more.is_empty() {
                break;
            }
            self.metadata.extend(more);
        }
        if self.metadata.len() == before && self.trace.is_some() {
            self.needs_metadata = false;
            return Ok(false);
        }
        // Metadata that ends in the middle of a declaration fails to parse until the next piece arrives.
        if let Ok(class) = read_metadata(&self.metadata) {
            self.trace = Some(Trace::without_streams(self.name.clone(), class, Vec::new()));
            self.needs_metadata = false;
        }
        Ok(self.metadata.len() > before)
    }
}

impl Viewer {
    /// Attaches to the session of an address.
    pub(super) fn attach(address: &LiveAddress) -> Result<Viewer, LiveError> {
        let client = Client::connect(address)?;
        let mut viewer = Viewer {
            address: address.clone(),
            client,
            sessions: Vec::new(),
            traces: BTreeMap::new(),
            needs_streams: true,
            has_ended: false,
            losses: Losses::default(),
        };
        viewer.attach_all()?;
        Ok(viewer)
    }

    fn attach_all(&mut self) -> Result<(), LiveError> {
        let sessions = self.client.sessions()?;
        let named = |session: &&Session| {
            self.address
                .session
                .as_ref()
                .is_some_and(|(host, name)| session.host == *host && session.name == *name)
        };
        self.sessions = sessions.iter().filter(named).map(|session| session.id).collect();
        if self.sessions.is_empty() {
            let others = sessions.iter().map(|session| format!("/host/{}/{}", session.host, session.name));
            return Err(LiveError::NoSession(self.address.clone(), others.collect()));
        }
        self.client.create_session()?;
        for session in self.sessions.clone() {
            let streams = self.client.attach(session)?;
            self.add(streams);
        }
        Ok(())
    }

    fn add(&mut self, streams: Vec<StreamInfo>) {
        for info in streams {
            let trace = self.traces.entry(info.trace).or_insert_with(|| LiveTrace {
                name: info.path.clone(),
                metadata_stream: None,
                metadata: Vec::new(),
                needs_metadata: true,
                trace: None,
                streams: Vec::new(),
            });
            if info.is_metadata {
                trace.metadata_stream = Some(info.id);
                trace.needs_metadata = true;
            } else if !trace.streams.iter().any(|stream| stream.id == info.id) {
                trace.streams.push(LiveStream::new(info.id, info.channel));
            }
        }
    }

    /// Returns whether no more data can arrive.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Requests new data; returns whether there was any. Reconnects if the connection is lost.
    pub(super) fn gather(&mut self, keep_going: &dyn Fn() -> bool) -> Result<bool, LiveError> {
        let error = match self.gather_once(keep_going) {
            Err(LiveError::Connection(_, error)) => error,
            result => return result,
        };
        for _ in 0..ATTEMPTS {
            thread::sleep(PAUSE);
            if !keep_going() {
                return Ok(false);
            }
            // For a while the daemon may still consider the old connection attached.
            if self.reconnect().is_ok() {
                return Ok(true);
            }
        }
        self.has_ended = true;
        self.losses.add(Loss {
            stream: self.address.to_string(),
            cause: Cause::CutShort,
            bytes: 0..0,
            time: None,
            count: 1,
            detail: format!("the connection was lost, and the session is no longer available: {error}"),
        });
        Ok(false)
    }

    /// Reconnects and attaches again. The daemon then sends everything again, and packets that already arrived are
    /// skipped.
    fn reconnect(&mut self) -> Result<(), LiveError> {
        self.client = Client::connect(&self.address)?;
        for trace in self.traces.values_mut() {
            trace.metadata.clear();
            trace.needs_metadata = true;
            for stream in trace.streams.iter_mut().filter(|stream| !stream.has_ended) {
                (stream.resume, stream.awaited) = (stream.last, None);
            }
        }
        self.needs_streams = true;
        self.attach_all()
    }

    fn gather_once(&mut self, keep_going: &dyn Fn() -> bool) -> Result<bool, LiveError> {
        if self.needs_streams || self.streams().all(|stream| stream.has_ended) {
            self.new_streams()?;
        }
        let mut any = false;
        loop {
            let mut progressed = false;
            let horizon = self.horizon();
            for trace in self.traces.values_mut() {
                if trace.needs_metadata {
                    trace.update(&mut self.client)?;
                }
                for index in 0..trace.streams.len() {
                    let stream = &trace.streams[index];
                    // Only the streams that limit the horizon are fetched.
                    if !stream.has_ended && trace.trace.is_some() && stream.known_to <= horizon {
                        let next = fetch(trace, index, &mut self.client, &mut self.losses)?;
                        progressed |= next.progressed;
                        self.needs_streams |= next.new_streams;
                    }
                }
            }
            any |= progressed;
            let held: u64 = self.streams().map(LiveStream::bytes).sum();
            if !progressed || held > MOST_HELD || self.needs_streams || !keep_going() {
                return Ok(any);
            }
        }
    }

    fn streams(&self) -> impl Iterator<Item = &LiveStream> {
        self.traces.values().flat_map(|trace| &trace.streams)
    }

    /// Returns the number of streams that the session has had.
    pub(super) fn stream_count(&self) -> u64 {
        self.streams().count() as u64
    }

    fn new_streams(&mut self) -> Result<(), LiveError> {
        let mut ended = !self.sessions.is_empty();
        for session in self.sessions.clone() {
            if let Some(streams) = self.client.new_streams(session)? {
                self.add(streams);
                ended = false;
            }
        }
        self.needs_streams = false;
        self.has_ended = ended && self.streams().all(|stream| stream.has_ended);
        Ok(())
    }

    /// Returns the time up to which all streams are known; `None` if a stream has not reported a time yet.
    pub(super) fn horizon(&self) -> Option<OriginNanos> {
        let known = self.streams().filter(|stream| !stream.has_ended).map(|stream| stream.known_to);
        // Ended streams do not limit the horizon.
        let ended =
            self.streams().filter(|stream| stream.has_ended).filter_map(|stream| stream.known_to).max();
        known.min().unwrap_or(ended)
    }

    /// Returns the traces of the held packets, and the part of each stream to print: up to `to`, or to the end.
    pub(super) fn traces(&self, to: Option<OriginNanos>) -> (Traces<'_>, Vec<Part>) {
        let (mut traces, mut parts) = (Vec::new(), Vec::new());
        for live in self.traces.values() {
            let Some(known) = &live.trace else { continue };
            let file = |stream: &LiveStream| DataFile { name: stream.name.clone(), bytes: &[], index: None };
            let files = live.streams.iter().map(file).collect();
            let mut trace = Trace::without_streams(live.name.clone(), known.class.clone(), files);
            for stream in &live.streams {
                if let Some(held) = stream.stream() {
                    parts.push(stream.part(traces.len(), trace.streams.len(), to));
                    trace.streams.push(held);
                }
            }
            traces.push(trace);
        }
        (Traces { events: traces, ..Traces::default() }, parts)
    }

    /// Marks events as printed: up to `to`, or to the end.
    pub(super) fn mark_printed(&mut self, to: Option<OriginNanos>) {
        for trace in self.traces.values_mut() {
            trace.streams.iter_mut().for_each(|stream| stream.mark_printed(to));
        }
    }

    /// Detaches from all sessions.
    pub(super) fn detach(&mut self) {
        for session in self.sessions.clone() {
            self.client.detach(session);
        }
    }
}

/// The result of a request to a stream.
#[derive(Default)]
struct Fetched {
    progressed: bool,
    new_streams: bool,
}

/// Requests the next packet of a stream, or the rest of an announced one.
fn fetch(
    trace: &mut LiveTrace,
    index: usize,
    client: &mut Client,
    losses: &mut Losses,
) -> Result<Fetched, LiveError> {
    if let Some(awaited) = trace.streams[index].awaited.take() {
        return fetch_packet(trace, index, awaited, client, losses);
    }
    let next = client.next_index(trace.streams[index].id)?;
    let mut fetched = Fetched { progressed: false, new_streams: next.new_streams };
    trace.needs_metadata |= next.new_metadata;
    if trace.needs_metadata {
        trace.update(client)?;
    }
    match next.status {
        IndexStatus::Retry => {}
        IndexStatus::Ended => {
            let stream = &mut trace.streams[index];
            stream.has_ended = true;
            fetched.progressed = true;
            // After a reconnection, the daemon should have sent the earlier packets again, and then the rest.
            if stream.resume.take().is_some() {
                let detail = "the connection was lost, and restored too late to receive these packets";
                losses.add(lost(stream, Cause::CutShort, 0..0, detail.to_owned()));
            }
        }
        IndexStatus::Inactive => {
            let time = beacon(trace, &next);
            let stream = &mut trace.streams[index];
            fetched.progressed = time > stream.known_to;
            stream.known_to = stream.known_to.max(time);
        }
        IndexStatus::Packet => {
            let stream = &mut trace.streams[index];
            if stream.resume.is_some_and(|resume| PacketTimes::of(&next) <= resume) {
                return Ok(Fetched { progressed: true, ..fetched });
            }
            let awaited = Awaited { index: next, bytes: Vec::new(), stalled: None };
            let packet = fetch_packet(trace, index, awaited, client, losses)?;
            fetched.progressed = packet.progressed;
            fetched.new_streams |= packet.new_streams;
        }
    }
    Ok(fetched)
}

/// Requests the bytes of a packet while more arrive. An incomplete packet is requested again later.
fn fetch_packet(
    trace: &mut LiveTrace,
    index: usize,
    mut awaited: Awaited,
    client: &mut Client,
    losses: &mut Losses,
) -> Result<Fetched, LiveError> {
    let id = trace.streams[index].id;
    let mut fetched = Fetched::default();
    while awaited.bytes.len() < awaited.index.length as usize {
        let had = awaited.bytes.len() as u32;
        let rest = (awaited.index.offset.saturating_add(had.into()), awaited.index.length - had);
        let (head, bytes) = client.packet(id, rest)?;
        fetched.new_streams |= head.new_streams;
        trace.needs_metadata |= head.new_metadata;
        match head.status {
            PacketStatus::Bytes(count) if count > 0 => {
                (fetched.progressed, awaited.stalled) = (true, None);
                awaited.bytes.extend(bytes);
                continue;
            }
            PacketStatus::Later => {
                if head.new_metadata && trace.update(client)? {
                    continue;
                }
            }
            PacketStatus::Bytes(_)
                if awaited.stalled.get_or_insert_with(Instant::now).elapsed() < REQUEST_TIMEOUT => {}
            PacketStatus::Bytes(_) | PacketStatus::Absent => {
                let stream = &mut trace.streams[index];
                let (cause, detail) =
                    (Cause::CutShort, "the relay daemon does not have this packet any more");
                losses.add(lost(stream, cause, range(&awaited.index), detail.to_owned()));
                stream.last = Some(PacketTimes::of(&awaited.index));
                return Ok(Fetched { progressed: true, ..fetched });
            }
        }
        trace.streams[index].awaited = Some(awaited);
        return Ok(fetched);
    }
    let Some(known) = &trace.trace else { return Ok(fetched) };
    let stream = &mut trace.streams[index];
    (stream.last, stream.resume) = (Some(PacketTimes::of(&awaited.index)), None);
    if let Err(reason) = stream.take(known, index, awaited.bytes) {
        losses.add(lost(stream, Cause::Corrupt, range(&awaited.index), reason));
    }
    Ok(fetched)
}

/// Returns the byte range of a packet in the daemon's file.
fn range(index: &Index) -> Range<u64> {
    index.offset..index.offset.saturating_add(index.length.into())
}

fn lost(stream: &LiveStream, cause: Cause, bytes: Range<u64>, detail: String) -> Loss {
    Loss { stream: stream.name.clone(), cause, bytes, time: None, count: 1, detail }
}

/// Returns the time of a beacon: the stream has no further events before it.
fn beacon(trace: &LiveTrace, index: &Index) -> Option<OriginNanos> {
    let class = &trace.trace.as_ref()?.class;
    let clock = class.streams.get(&index.stream_class)?.clock?;
    Some(class.clocks.get(clock)?.cycles.nanos(index.end))
}

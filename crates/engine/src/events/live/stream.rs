//! A stream that is being recorded: its packets that are not shown yet.

use std::{collections::VecDeque, time::Instant};

use hodo_clock::OriginNanos;
use hodo_formats::ctf::lttng_live::Index;
use hodo_formats::events::{LivePacketReader, Stream, StreamPacket, Trace};

use crate::events::slices::Part;

/// A stream.
pub(super) struct LiveStream {
    /// Its id, for requests.
    pub(super) id: u64,
    /// Its channel.
    pub(super) name: String,
    pub(super) held: VecDeque<Held>,
    live_packets: LivePacketReader,
    /// Index of the packet in which what is not shown yet begins.
    start: usize,
    /// What comes before this time was shown.
    shown_to: Option<OriginNanos>,
    /// All that comes before this time is there.
    pub(super) known_to: Option<OriginNanos>,
    pub(super) has_ended: bool,
    /// End and beginning of the last packet that came.
    pub(super) last: Option<(u64, u64)>,
    /// After a new connection: packets up to this one came already.
    pub(super) resume: Option<(u64, u64)>,
    /// The packet that the daemon announced, and that is not there yet.
    pub(super) awaited: Option<Awaited>,
}

/// A packet of which not everything came yet.
pub(super) struct Awaited {
    pub(super) index: Index,
    /// Its first bytes.
    pub(super) bytes: Vec<u8>,
    /// Since when the daemon gives no bytes of it, and does not say why.
    pub(super) stalled: Option<Instant>,
}

/// A packet, with its bytes.
pub(super) struct Held {
    bytes: Vec<u8>,
    packet: StreamPacket<'static>,
}

impl LiveStream {
    pub(super) fn new(id: u64, name: String) -> LiveStream {
        LiveStream {
            id,
            name,
            held: VecDeque::new(),
            live_packets: LivePacketReader::default(),
            start: 0,
            shown_to: None,
            known_to: None,
            has_ended: false,
            last: None,
            resume: None,
            awaited: None,
        }
    }

    /// Takes a packet that came.
    ///
    /// # Errors
    /// Why it can't be read.
    pub(super) fn take(&mut self, trace: &Trace<'static>, file: usize, bytes: Vec<u8>) -> Result<(), String> {
        let StreamPacket { file, bytes: _, packet, clock, begin, end, events_lost, packets_lost, pieces } =
            self.live_packets.next(trace, file, &bytes)?;
        let packet =
            StreamPacket { file, bytes: &[], packet, clock, begin, end, events_lost, packets_lost, pieces };
        // A time that goes back does not make known what was not.
        self.known_to = self.known_to.max(end);
        self.held.push_back(Held { bytes, packet });
        Ok(())
    }

    /// Bytes that are held.
    pub(super) fn bytes(&self) -> u64 {
        self.held.iter().map(|held| held.bytes.len() as u64).sum()
    }

    /// The stream of its packets; `None` where there is none.
    pub(super) fn stream(&self) -> Option<Stream<'_>> {
        let first = self.held.front()?;
        let packets = self.held.iter().map(|held| StreamPacket { bytes: &held.bytes, ..held.packet.clone() });
        Some(Stream {
            class: first.packet.packet.stream_class,
            id: first.packet.packet.stream,
            name: self.name.clone(),
            packets: packets.collect(),
            had_pre_pass: false,
            number: None,
        })
    }

    /// Index of the packet that is open at a time.
    fn open_at(&self, time: OriginNanos) -> usize {
        self.held.partition_point(|held| held.packet.begin <= Some(time)).saturating_sub(1)
    }

    /// What is to be shown now: up to a time, or all.
    pub(super) fn part(&self, trace: usize, stream: usize, to: Option<OriginNanos>) -> Part {
        let last = to.map(|to| self.open_at(to).max(self.start));
        let end = last.map_or(self.held.len(), |last| (last + 1).min(self.held.len()));
        Part { trace, stream, packets: self.start..end, skip_before: self.shown_to, stop_at: last.zip(to) }
    }

    /// It was shown: up to a time, or all.
    pub(super) fn shown(&mut self, to: Option<OriginNanos>) {
        match to {
            Some(to) => {
                if !self.held.is_empty() {
                    self.start = self.open_at(to).max(self.start);
                    self.shown_to = Some(to);
                }
                // The packet before tells when what was lost was lost.
                let done = self.start.saturating_sub(1);
                self.held.drain(..done);
                self.start -= done;
            }
            None => {
                self.held.clear();
                (self.start, self.shown_to) = (0, None);
            }
        }
    }
}

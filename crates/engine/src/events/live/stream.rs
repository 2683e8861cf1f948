//! A live stream: its packets that are not printed yet.

use std::{collections::VecDeque, time::Instant};

use hodo_clock::OriginNanos;
use hodo_formats::ctf::lttng_live::Index;
use hodo_formats::events::{LivePacketReader, Stream, StreamPacket, Trace};

use crate::events::slices::Part;

/// A live stream.
pub(super) struct LiveStream {
    /// Its id, for requests.
    pub(super) id: u64,
    /// The name of its channel.
    pub(super) name: String,
    pub(super) held: VecDeque<Held>,
    live_packets: LivePacketReader,
    /// Index of the packet that contains the first event that is not printed yet.
    start: usize,
    /// Events before this time are printed.
    printed_to: Option<OriginNanos>,
    /// All events before this time have arrived.
    pub(super) known_to: Option<OriginNanos>,
    pub(super) has_ended: bool,
    /// The last packet that arrived.
    pub(super) last: Option<PacketTimes>,
    /// After a reconnection: packets up to this one have already arrived.
    pub(super) resume: Option<PacketTimes>,
    /// The announced packet that has not arrived completely.
    pub(super) awaited: Option<Awaited>,
}

/// The timestamps of a packet, in clock cycles, in the order in which packets of a stream are compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketTimes {
    pub(super) end: u64,
    pub(super) begin: u64,
}

impl PacketTimes {
    pub(super) fn of(index: &Index) -> PacketTimes {
        PacketTimes { end: index.end, begin: index.begin }
    }
}

/// An incomplete packet.
pub(super) struct Awaited {
    pub(super) index: Index,
    /// Its first bytes.
    pub(super) bytes: Vec<u8>,
    /// The time since which the daemon sends no bytes of the packet, without a reason.
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
            printed_to: None,
            known_to: None,
            has_ended: false,
            last: None,
            resume: None,
            awaited: None,
        }
    }

    /// Adds a packet that arrived.
    ///
    /// # Errors
    /// Returns the reason if it can't be decoded.
    pub(super) fn take(&mut self, trace: &Trace<'static>, file: usize, bytes: Vec<u8>) -> Result<(), String> {
        let StreamPacket { file, bytes: _, packet, clock, begin, end, events_lost, packets_lost, pieces } =
            self.live_packets.next(trace, file, &bytes)?;
        let packet =
            StreamPacket { file, bytes: &[], packet, clock, begin, end, events_lost, packets_lost, pieces };
        // `known_to` never decreases, even if packet times go back.
        self.known_to = self.known_to.max(end);
        self.held.push_back(Held { bytes, packet });
        Ok(())
    }

    /// Returns the number of bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.held.iter().map(|held| held.bytes.len() as u64).sum()
    }

    /// Returns the stream of its packets; `None` if there are none.
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

    /// Returns the index of the packet that is open at a time.
    fn open_at(&self, time: OriginNanos) -> usize {
        self.held.partition_point(|held| held.packet.begin <= Some(time)).saturating_sub(1)
    }

    /// Returns the part to print: up to `to`, or all.
    pub(super) fn part(&self, trace: usize, stream: usize, to: Option<OriginNanos>) -> Part {
        let last = to.map(|to| self.open_at(to).max(self.start));
        let end = last.map_or(self.held.len(), |last| (last + 1).min(self.held.len()));
        Part { trace, stream, packets: self.start..end, skip_before: self.printed_to, stop_at: last.zip(to) }
    }

    /// Marks events as printed: up to `to`, or all.
    pub(super) fn mark_printed(&mut self, to: Option<OriginNanos>) {
        match to {
            Some(to) => {
                if !self.held.is_empty() {
                    self.start = self.open_at(to).max(self.start);
                    self.printed_to = Some(to);
                }
                // The previous packet's end bounds the time of lost events.
                let done = self.start.saturating_sub(1);
                self.held.drain(..done);
                self.start -= done;
            }
            None => {
                self.held.clear();
                (self.start, self.printed_to) = (0, None);
            }
        }
    }
}

//! Reads packets: CTF 1.8 section 5, CTF 2 "Packet decoding procedure".

use std::{cell::Cell, ops::Range};

use hodo_model::event::Ignore;

use super::{
    read::{Roles, Walk},
    schema::{FieldClass, Member, Role, Structure, TraceClass},
    steps::{Content, Slots, Trouble},
    trace::DataFile,
};
use crate::ctf::index::{self, Entry};

/// The optional magic number of packets.
pub(crate) const MAGIC: u64 = 0xC1FC_1FC1;

/// A packet in its file. Sizes and positions are in bits from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Byte range in the file.
    pub bytes: Range<usize>,
    /// End of the content.
    pub content: u64,
    /// Beginning of the packet context.
    pub context: u64,
    /// Earliest position of the first event.
    pub events: u64,
    /// Id of the stream class.
    pub stream_class: u64,
    /// Id of the stream in its class.
    pub stream: Option<u64>,
    /// The clock at its beginning.
    pub begin: Option<SizedValue>,
    /// The clock at its end.
    pub end: Option<SizedValue>,
    /// Events discarded in the stream up to its end.
    pub discarded: Option<SizedValue>,
    /// Sequence number in the stream.
    pub sequence: Option<SizedValue>,
}

/// The value of an integer that may be shorter than what it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizedValue {
    /// The value.
    pub value: u64,
    /// Its size in bits.
    pub size: u32,
}

impl Packet {
    /// A packet of another format, which is all content.
    pub(crate) fn framed(bytes: Range<usize>, stream: Option<u64>) -> Packet {
        Packet {
            content: bytes.len() as u64 * 8,
            bytes,
            context: 0,
            events: 0,
            stream_class: 0,
            stream,
            begin: None,
            end: None,
            discarded: None,
            sequence: None,
        }
    }
}

/// Why a packet, and the rest of its file, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PacketTrouble {
    /// Byte range of the file that is not read.
    pub(crate) bytes: Range<usize>,
    /// The reason.
    pub reason: String,
    /// Whether the file ends within the packet, as after a killed tracer.
    pub cut_short: bool,
}

/// The packets of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FilePackets {
    pub(crate) packets: Vec<Packet>,
    pub(crate) troubles: Vec<PacketTrouble>,
    /// How the file was read, for people.
    pub(crate) note: Option<String>,
}

impl FilePackets {
    /// Reads the packets of a file, through its index if that is usable. Passes the size of each packet in bytes to
    /// `progress`, as the first access to the pages of a large file is slow.
    pub fn read(trace: &TraceClass, file: &DataFile<'_>, progress: &dyn Fn(usize)) -> FilePackets {
        let index = file.index.map(|index| index::read(index, file.bytes.len() as u64));
        let by_index = match index {
            None => return FilePackets::walk(trace, file.bytes, progress),
            Some(Ok(entries)) => FilePackets::read_by_index(&entries, trace, file.bytes, progress),
            Some(Err(reason)) => Err(reason),
        };
        by_index.unwrap_or_else(|reason| {
            let mut walked = FilePackets::walk(trace, file.bytes, progress);
            let more = walked.note.map(|note| format!("; {note}")).unwrap_or_default();
            walked.note = Some(format!("the index of this file was not used: {reason}{more}"));
            walked
        })
    }

    fn read_by_index(
        entries: &[Entry],
        trace: &TraceClass,
        file: &[u8],
        progress: &dyn Fn(usize),
    ) -> Result<FilePackets, String> {
        let mut read = FilePackets { packets: Vec::with_capacity(entries.len()), ..FilePackets::default() };
        let packets = Packets::new(trace, file);
        for (number, entry) in entries.iter().enumerate() {
            let bytes = entry.offset as usize..entry.file_end() as usize;
            match packets.packet(bytes.start) {
                Ok((packet, _)) if !entry.agrees(&packet) => {
                    return Err(format!(
                        "its entry {number} contradicts the packet at byte {}",
                        entry.offset
                    ));
                }
                Ok((packet, trouble)) => {
                    progress(bytes.len());
                    read.packets.push(packet);
                    read.troubles.extend(trouble);
                }
                Err(reason) => read.troubles.push(PacketTrouble { bytes, cut_short: false, reason }),
            }
        }
        read.note = packets.note();
        if read.packets.is_empty() && !entries.is_empty() {
            return Err("there is no packet at one of its offsets".to_owned());
        }
        Ok(read)
    }

    /// Reads the packets one after the other.
    fn walk(trace: &TraceClass, file: &[u8], progress: &dyn Fn(usize)) -> FilePackets {
        let mut walked = FilePackets::default();
        let mut packets = Packets::new(trace, file);
        while let Some(read) = packets.next_packet() {
            match read {
                Ok((packet, trouble)) => {
                    progress(packet.bytes.len());
                    walked.packets.push(packet);
                    walked.troubles.extend(trouble);
                }
                Err(trouble) => walked.troubles.push(trouble),
            }
        }
        if walked.packets.is_empty() && is_stray(trace, file) {
            let note = "this file is not a stream: no packet in it has the magic number c1fc1fc1".to_owned();
            return FilePackets { note: Some(note), ..FilePackets::default() };
        }
        walked.note = packets.note();
        walked
    }
}

/// Reads bytes that are a single packet.
pub(crate) fn single(trace: &TraceClass, bytes: &[u8]) -> Result<Packet, String> {
    let packets = Packets::new(trace, bytes);
    match (packets.packet(0)?, packets.note()) {
        ((packet, None), None) => Ok(packet),
        ((_, Some(trouble)), _) => Err(trouble.reason),
        // A daemon does not send packets of other traces.
        ((_, None), Some(note)) => Err(note),
    }
}

/// Whether packets should have a magic number but neither that nor the UUID is in the file.
fn is_stray(trace: &TraceClass, file: &[u8]) -> bool {
    let members = trace.packet_header.iter().flat_map(|header| &header.members);
    let magic = |member: &Member| matches!(&member.class, FieldClass::Integer(integer) if integer.roles.contains(&Role::PacketMagic));
    let mark = MAGIC as u32;
    let has = |bytes: &[u8]| memchr::memmem::find(file, bytes).is_some();
    let uuid = trace.uuid.is_some_and(|uuid| has(&uuid));
    members.into_iter().any(magic) && !uuid && !has(&mark.to_le_bytes()) && !has(&mark.to_be_bytes())
}

/// Iterates over the packets of a file.
struct Packets<'t, 'a> {
    trace: &'t TraceClass,
    file: &'a [u8],
    position: usize,
    slots: Slots,
    /// Number of packets with another UUID than the metadata's.
    foreign: Cell<u64>,
    /// The last other UUID.
    other: Cell<[u8; 16]>,
}

impl<'t, 'a> Packets<'t, 'a> {
    fn new(trace: &'t TraceClass, file: &'a [u8]) -> Packets<'t, 'a> {
        let slots = Slots::new(trace.slots);
        Packets { trace, file, position: 0, slots, foreign: Cell::new(0), other: Cell::default() }
    }

    /// The next packet; `None` at the end of the file, and after an error.
    fn next_packet(&mut self) -> Option<Result<(Packet, Option<PacketTrouble>), PacketTrouble>> {
        if self.position >= self.file.len() {
            return None;
        }
        let position = self.position;
        let read = self.packet(position);
        self.position = match &read {
            Ok((packet, None)) => packet.bytes.end,
            _ => self.file.len(),
        };
        let bytes = position..self.file.len();
        Some(read.map_err(|reason| PacketTrouble { bytes, cut_short: false, reason }))
    }

    /// Reads the packet at a position. A packet that the file cuts short comes with its trouble.
    fn packet(&self, position: usize) -> Result<(Packet, Option<PacketTrouble>), String> {
        let bytes = &self.file[position..];
        let content = Content { bytes, end: bytes.len() as u64 * 8 };
        let mut roles = Roles::default();
        let start = self.root(self.trace.packet_header.as_ref(), content, 0, &mut roles);
        let start = start.map_err(|trouble| format!("packet header: {trouble}"))?;
        self.check(&roles)?;
        let value = |role| roles.get(role).map(|read| read.value);
        let (stream_class, stream) = (value(Role::StreamClassId), value(Role::StreamId));
        let only = self.trace.streams.keys().next().copied().filter(|_| self.trace.streams.len() == 1);
        let stream_class = stream_class.or(only).unwrap_or(0);
        let class = self.trace.streams.get(&stream_class);
        let class = class.ok_or_else(|| format!("the metadata has no stream class {stream_class}"))?;
        let events = self.root(class.packet_context.as_ref(), content, start, &mut roles);
        let events = events.map_err(|trouble| format!("packet context: {trouble}"))?;
        let time = |role| roles.get(role).filter(|_| class.clock.is_some());
        let bits = |role| roles.get(role).map(|read| read.value);
        let (whole, filled) = (bits(Role::PacketTotalLength), bits(Role::PacketContentLength));
        // A packet with only a content size is as long as its content, and the next one follows.
        let size = whole.or_else(|| filled?.checked_next_multiple_of(8)).unwrap_or(content.end);
        let content_size = filled.unwrap_or(size);
        if size == 0 || !size.is_multiple_of(8) {
            return Err(format!("a packet of {size} bits; a positive number of whole bytes is expected"));
        }
        if content_size > size || content_size < events {
            return Err(format!(
                "a packet of {size} bits with a content of {content_size}; at least the {events} of its header and \
                 context, and no more than the packet has, expected"
            ));
        }
        let available = size.min(content.end);
        let packet = Packet {
            bytes: position..position + (available / 8) as usize,
            content: content_size.min(available),
            context: start,
            events,
            stream_class,
            stream,
            begin: time(Role::Timestamp),
            end: time(Role::PacketEndTimestamp),
            discarded: roles.get(Role::DiscardedEvents),
            sequence: roles.get(Role::PacketSequenceNumber),
        };
        let cut = (content_size > content.end).then(|| PacketTrouble {
            bytes: position..self.file.len(),
            cut_short: true,
            reason: format!(
                "the packet has {} bytes, but only {} of them are in the file",
                size / 8,
                bytes.len()
            ),
        });
        Ok((packet, cut))
    }

    /// Reads a structure at `position`. Returns its end, and adds the values of fields with roles to `roles`.
    fn root(
        &self,
        structure: Option<&Structure>,
        content: Content<'_>,
        position: u64,
        roles: &mut Roles,
    ) -> Result<u64, Trouble> {
        let Some(structure) = structure else { return Ok(position) };
        Walk::new(content, position, &self.slots, &mut Ignore).noting(roles).root(structure, position)
    }

    /// Checks the magic number, and counts packets with another UUID. Those are read, as babeltrace2 does: programs
    /// that copy or combine traces change the UUID of one side only.
    fn check(&self, roles: &Roles) -> Result<(), String> {
        match roles.get(Role::PacketMagic) {
            Some(magic) if magic.value != MAGIC => {
                return Err(format!("a packet begins with c1fc1fc1, and this with {:08x}", magic.value));
            }
            _ => {}
        }
        if let (Some(packet), Some(trace)) = (roles.uuid, self.trace.uuid)
            && packet != trace
        {
            self.foreign.set(self.foreign.get() + 1);
            self.other.set(packet);
        }
        Ok(())
    }

    /// A sentence about packets of another trace, if there are any.
    fn note(&self) -> Option<String> {
        let own = self.trace.uuid.filter(|_| self.foreign.get() > 0)?;
        let show = crate::ctf::uuid::show;
        Some(format!(
            "packets of another trace were read all the same: {}, of the trace {}; the metadata is that of {}",
            self.foreign.get(),
            show(&self.other.get()),
            show(&own)
        ))
    }
}

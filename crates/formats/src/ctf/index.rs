//! Reads LTTng's index of a stream file: the position and header fields of each packet.
//!
//! An index copies header fields of the packets. It determines where packets are, so that a damaged packet does not
//! hide the following ones. Each packet is then read, and an index that contradicts a packet is discarded. Layout:
//! LTTng's `ctf-index.h`; all numbers are big-endian.

use crate::events::packet::{Packet, SizedValue};

/// Magic number of an index.
const MAGIC: u32 = 0xC1F1_DCC1;
/// Size of the header in bytes: magic, major and minor version, entry size.
const HEADER: usize = 16;
/// Number of 64-bit words in an entry of version 1.0.
const WORDS: usize = 7;

/// A packet's entry in the index. Sizes are in bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Begin offset of the packet in its file, in bytes.
    pub(crate) offset: u64,
    size: u64,
    content: u64,
    begin: u64,
    end: u64,
    discarded: u64,
}

impl Entry {
    /// End offset of the packet in its file, in bytes.
    pub(crate) fn file_end(&self) -> u64 {
        self.offset + self.size / 8
    }

    /// Whether the entry matches the packet.
    pub(crate) fn agrees(&self, packet: &Packet) -> bool {
        // A field of the packet has as many bits as its class says, one of the index 64.
        let same = |field: Option<SizedValue>, value: u64| {
            field.is_none_or(|field| field.value == value & (u64::MAX >> (64 - field.size.clamp(1, 64))))
        };
        packet.bytes.end as u64 == self.file_end()
            && packet.content == self.content
            && same(packet.begin, self.begin)
            && same(packet.end, self.end)
            && same(packet.discarded, self.discarded)
    }
}

/// Reads the index of a file of `file` bytes.
///
/// # Errors
/// Why the index is unusable. LTTng itself leaves entries of zeros when a machine crashes.
pub(crate) fn read(bytes: &[u8], file: u64) -> Result<Vec<Entry>, String> {
    let (header, entries) = bytes.split_at_checked(HEADER).ok_or("it is cut short in its header")?;
    let header: Vec<u32> = header.as_chunks().0.iter().map(|&word| u32::from_be_bytes(word)).collect();
    if header[0] != MAGIC || header[1] != 1 {
        return Err(format!(
            "it begins with {:08x}, version {}; c1f1dcc1, version 1, expected",
            header[0], header[1]
        ));
    }
    let size = header[3] as usize;
    if size < WORDS * 8 || !entries.len().is_multiple_of(size) {
        return Err(format!("its {} bytes are not a whole number of entries of {size} bytes", entries.len()));
    }
    let mut packets = Vec::with_capacity(entries.len() / size);
    let mut described = 0;
    for (number, entry) in entries.chunks_exact(size).enumerate() {
        let words: Vec<u64> = entry.as_chunks().0.iter().map(|&word| u64::from_be_bytes(word)).collect();
        let &[offset, size, content, begin, end, discarded, ..] = words.as_slice() else {
            unreachable!("an entry has at least {WORDS} words")
        };
        let entry = Entry { offset, size, content, begin, end, discarded };
        let is_sound =
            offset == described && size > 0 && size.is_multiple_of(8) && content <= size && begin <= end;
        if !is_sound || entry.size / 8 > file - described {
            return Err(format!("its entry {number} is not that of a packet at byte {described}"));
        }
        described = entry.file_end();
        packets.push(entry);
    }
    if described != file {
        return Err(format!("it describes {described} bytes, but the file has {file}"));
    }
    Ok(packets)
}

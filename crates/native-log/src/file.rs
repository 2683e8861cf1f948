//! The file of a native recording: blocks that can be decoded alone.
//!
//! A file begins with [`MAGIC`], whose last byte is the version. Blocks follow, each with a header of 80 bytes, little
//! endian:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 4 | `0x4b434c42` ("BLCK") |
//! | 4 | 2 | kind: 1 log, 2 table, 3 clock, 4 loss, 5 end, 6 facts, 7 snapshot, 8 counted time |
//! | 6 | 2 | bit 0 words are packed, bit 1 compressed with LZ4 after that; bit 2 a snapshot's begin of a part that was not finished |
//! | 8 | 4 | bytes of its content |
//! | 12 | 4 | bytes before LZ4 |
//! | 16 | 4 | bytes stored |
//! | 20 | 4 | CRC-32 of the stored bytes |
//! | 24 | 8 | key of the stream: of a thread for a log, of a process for a table |
//! | 32 | 8 | key of the table that a log refers to |
//! | 40 | 8 | position in the stream, from 0 |
//! | 48 | 8 | time-stamp counter at its begin |
//! | 56 | 8 | time-stamp counter at its end |
//! | 64 | 8 | process |
//! | 72 | 8 | thread |
//!
//! A log holds words, a table holds records: see [`hodo_native_runtime::wire`]. A clock block holds pairs of a
//! time-stamp counter and the monotonic clock in nanoseconds. A loss block holds a note and says in its header which
//! thread lost what. A facts block is a JSON object of texts about the recording, such as its command. A snapshot block holds
//! the number of instructions of the execution that took too long (8 bytes) and the condition as text; its header says when that
//! was and in which thread. A block of counted time is empty: the time-stamp counter counts instructions instead. The end block is
//! empty: a file without it is incomplete.

use std::io::{self, Write};

use hodo_native_runtime::pack::{self, WORK};

/// The first bytes of a file.
pub const MAGIC: &[u8; 8] = b"HODONAT\x02";
/// The first bytes of a block.
const BLOCK: u32 = 0x4b43_4c42;
/// The length of a block's header.
const HEADER: usize = 80;
/// The first of this many equal parts of packed bytes shows whether they are worth compressing.
const SAMPLE_PARTS: usize = 8;
/// The largest content that a block may have.
const LARGEST: u32 = 1 << 24;

/// What a block contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Words of a thread's log.
    Log,
    /// Records of a process.
    Table,
    /// Pairs of clocks.
    Clock,
    /// A note about what was lost.
    Loss,
    /// The recording is complete.
    End,
    /// Facts about the recording, as a JSON object of texts.
    Facts,
    /// Why a snapshot was written.
    Snapshot,
    /// All times count instructions.
    CountedTime,
}

impl BlockKind {
    fn number(self) -> u16 {
        match self {
            BlockKind::Log => 1,
            BlockKind::Table => 2,
            BlockKind::Clock => 3,
            BlockKind::Loss => 4,
            BlockKind::End => 5,
            BlockKind::Facts => 6,
            BlockKind::Snapshot => 7,
            BlockKind::CountedTime => 8,
        }
    }

    fn of(number: u16) -> Option<BlockKind> {
        use BlockKind::{Clock, CountedTime, End, Facts, Log, Loss, Snapshot, Table};
        [Log, Table, Clock, Loss, End, Facts, Snapshot, CountedTime]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// How a block is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codec {
    /// The words are packed (`hodo_native_runtime::pack`).
    pub packed: bool,
    /// Compressed with LZ4 after that.
    pub lz4: bool,
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// What it contains.
    pub kind: BlockKind,
    /// How it is stored.
    pub codec: Codec,
    /// Whether it is the begin of a part of a log, taken for a snapshot. The whole part may come later, as another block with the
    /// same position.
    pub unfinished: bool,
    /// Bytes of its content.
    pub length: u32,
    /// Bytes before LZ4.
    pub packed_length: u32,
    /// Bytes stored.
    pub stored: u32,
    /// CRC-32 of the stored bytes.
    pub checksum: u32,
    /// The stream: a thread's or a process's number in the recording.
    pub key: u64,
    /// The process whose table a log refers to.
    pub table_key: u64,
    /// The position in the stream, from 0.
    pub sequence: u64,
    /// The time-stamp counter at its begin.
    pub first_tsc: u64,
    /// The time-stamp counter at its end.
    pub last_tsc: u64,
    /// ID of the process in the system.
    pub process: u64,
    /// ID of the thread in the system.
    pub thread: u64,
}

impl BlockHeader {
    /// The position of the part that continues this one; `None` if none does.
    pub fn next_sequence(&self) -> Option<u64> {
        (!self.unfinished).then(|| self.sequence.wrapping_add(1))
    }
}

/// Damage of a file, with its offset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Not a native recording, or one of another version.
    #[error("not a native recording of this version: it begins with {0:02x?}")]
    Magic(Vec<u8>),
    /// The file ends within a block.
    #[error("at byte {0}: the file ends within a block")]
    Cut(usize),
    /// Where a block should begin is something else.
    #[error("at byte {0}: no block begins here")]
    NoBlock(usize),
    /// A block's bytes do not match its checksum, or do not decode.
    #[error("at byte {0}: the block is damaged")]
    Damaged(usize),
}

/// Writes a file.
pub struct Writer<W> {
    out: W,
    scratch: Vec<u8>,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// The error of the output.
    pub fn new(mut out: W) -> io::Result<Writer<W>> {
        out.write_all(MAGIC)?;
        Ok(Writer { out, scratch: Vec::new(), written: MAGIC.len() as u64 })
    }

    /// Writes a block. The lengths, the checksum and the compression of `header` are set here; `packed` bytes become
    /// `header.length` bytes.
    ///
    /// # Errors
    /// The error of the output.
    pub fn block(&mut self, header: BlockHeader, bytes: &[u8]) -> io::Result<()> {
        self.scratch.resize(lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
        let mut compress =
            |bytes: &[u8]| lz4_flex::block::compress_into(bytes, &mut self.scratch).unwrap_or(usize::MAX);
        // Packed bytes are often dense already: a part of them shows whether compression is worth its time.
        let part = &bytes[..bytes.len() / SAMPLE_PARTS];
        let worthwhile = !header.codec.packed || compress(part) < part.len() / 4 * 3;
        let compressed = if worthwhile { compress(bytes) } else { usize::MAX };
        let lz4 = compressed < bytes.len();
        let stored = if lz4 { &self.scratch[..compressed] } else { bytes };
        let header = BlockHeader {
            codec: Codec { lz4, ..header.codec },
            packed_length: bytes.len() as u32,
            stored: stored.len() as u32,
            checksum: crc32fast::hash(stored),
            ..header
        };
        self.out.write_all(&encode(&header))?;
        self.out.write_all(stored)?;
        self.written += (HEADER + stored.len()) as u64;
        Ok(())
    }

    /// Returns the output without an end block.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Passes what was written to the system.
    ///
    /// # Errors
    /// The error of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the file; returns its length in bytes.
    ///
    /// # Errors
    /// The error of the output.
    pub fn finish(mut self) -> io::Result<u64> {
        self.block(empty(BlockKind::End), &[])?;
        self.out.flush()?;
        Ok(self.written)
    }
}

/// The header of a block that belongs to no stream.
pub fn empty(kind: BlockKind) -> BlockHeader {
    BlockHeader {
        kind,
        codec: Codec::default(),
        unfinished: false,
        length: 0,
        packed_length: 0,
        stored: 0,
        checksum: 0,
        key: 0,
        table_key: 0,
        sequence: 0,
        first_tsc: 0,
        last_tsc: 0,
        process: 0,
        thread: 0,
    }
}

fn encode(header: &BlockHeader) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(&BLOCK.to_le_bytes());
    bytes[4..6].copy_from_slice(&header.kind.number().to_le_bytes());
    let Codec { packed, lz4 } = header.codec;
    bytes[6] = u8::from(packed) | u8::from(lz4) << 1 | u8::from(header.unfinished) << 2;
    let words = [header.length, header.packed_length, header.stored, header.checksum];
    for (field, word) in bytes[8..24].chunks_exact_mut(4).zip(words) {
        field.copy_from_slice(&word.to_le_bytes());
    }
    let longs = [
        header.key,
        header.table_key,
        header.sequence,
        header.first_tsc,
        header.last_tsc,
        header.process,
        header.thread,
    ];
    for (field, long) in bytes[24..].chunks_exact_mut(8).zip(longs) {
        field.copy_from_slice(&long.to_le_bytes());
    }
    bytes
}

/// A block of a file, not yet decompressed.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Its header.
    pub header: BlockHeader,
    /// Where it begins in the file, in bytes.
    pub offset: usize,
    /// Its header and its stored bytes.
    whole: &'a [u8],
}

/// The blocks of a file, and whether the file is complete. Stops at the first damage.
///
/// # Errors
/// The file is of another kind. Damage further on is returned beside the blocks before it.
pub(crate) fn blocks(file: &[u8]) -> Result<(Vec<Block<'_>>, Option<FileError>), FileError> {
    if !file.starts_with(MAGIC) {
        return Err(FileError::Magic(file[..file.len().min(8)].to_vec()));
    }
    let mut found = Vec::new();
    let mut offset = MAGIC.len();
    loop {
        match block(file, offset) {
            Ok(block) if block.header.kind == BlockKind::End => return Ok((found, None)),
            Ok(block) => {
                offset += block.whole.len();
                found.push(block);
            }
            Err(error) => return Ok((found, Some(error))),
        }
    }
}

fn block(file: &[u8], offset: usize) -> Result<Block<'_>, FileError> {
    let head = file.get(offset..offset + HEADER).ok_or(FileError::Cut(offset))?;
    let word = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
    let long = |from: usize| u64::from(word(from)) | u64::from(word(from + 4)) << 32;
    let kind = BlockKind::of(word(4) as u16).ok_or(FileError::NoBlock(offset))?;
    let header = BlockHeader {
        kind,
        codec: Codec { packed: head[6] & 1 != 0, lz4: head[6] & 2 != 0 },
        unfinished: head[6] & 4 != 0,
        length: word(8),
        packed_length: word(12),
        stored: word(16),
        checksum: word(20),
        key: long(24),
        table_key: long(32),
        sequence: long(40),
        first_tsc: long(48),
        last_tsc: long(56),
        process: long(64),
        thread: long(72),
    };
    if word(0) != BLOCK || header.length > LARGEST || header.packed_length > LARGEST {
        return Err(FileError::NoBlock(offset));
    }
    let whole = file.get(offset..).and_then(|rest| rest.get(..HEADER + header.stored as usize));
    Ok(Block { header, offset, whole: whole.ok_or(FileError::Cut(offset))? })
}

impl<'a> Block<'a> {
    /// A block that is not in a file yet: its header, which says how it is stored, and its stored bytes.
    /// `memory` holds both.
    pub fn unwritten(header: BlockHeader, stored: &[u8], memory: &'a mut Vec<u8>) -> Block<'a> {
        let (length, checksum) = (stored.len() as u32, crc32fast::hash(stored));
        let header = BlockHeader { packed_length: length, stored: length, checksum, ..header };
        memory.clear();
        memory.extend_from_slice(&encode(&header));
        memory.extend_from_slice(stored);
        Block { header, offset: 0, whole: memory }
    }

    /// Its bytes in the file, with its header.
    pub fn whole(&self) -> &'a [u8] {
        self.whole
    }

    /// The content of a block.
    ///
    /// # Errors
    /// The block is damaged.
    pub fn content(&self) -> Result<Vec<u8>, FileError> {
        let damaged = || FileError::Damaged(self.offset);
        let bytes = self.decompressed()?;
        if !self.header.codec.packed {
            return Ok(bytes);
        }
        let mut words = vec![0; self.header.length as usize / 4];
        pack::unpack(&bytes, &mut words, &mut vec![0; WORK]).ok_or_else(damaged)?;
        Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    /// The words of a log.
    ///
    /// # Errors
    /// The block is damaged.
    pub fn words(&self) -> Result<Vec<u32>, FileError> {
        let bytes = self.decompressed()?;
        if self.header.codec.packed {
            let mut words = vec![0; self.header.length as usize / 4];
            let unpacked = pack::unpack(&bytes, &mut words, &mut vec![0; WORK]);
            return unpacked.map(|()| words).ok_or(FileError::Damaged(self.offset));
        }
        Ok(bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect())
    }

    fn decompressed(&self) -> Result<Vec<u8>, FileError> {
        let damaged = |_| FileError::Damaged(self.offset);
        let bytes = &self.whole[HEADER..];
        if crc32fast::hash(bytes) != self.header.checksum {
            return Err(FileError::Damaged(self.offset));
        }
        if self.header.codec.lz4 {
            return lz4_flex::block::decompress(bytes, self.header.packed_length as usize).map_err(damaged);
        }
        Ok(bytes.to_vec())
    }
}

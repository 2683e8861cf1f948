//! Writes blocks to the file, or keeps the last ones of the logs in memory until they are wanted.

use std::{
    collections::VecDeque,
    io::{self, Write},
};

use hodo_native_log::{BlockHeader, BlockKind, Codec, Writer};
use hodo_native_runtime::{pack, wire::note};
use rustc_hash::FxHashMap;

/// Packs a part of a log that its thread did not pack.
fn packed(header: BlockHeader, bytes: &[u8]) -> (BlockHeader, Vec<u8>) {
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let mut room = vec![0; pack::bound(words.len())];
    if header.codec.packed || words.len() > pack::MOST {
        return (header, bytes.to_vec());
    }
    let length = pack::pack(&words, &mut room, &mut vec![0; pack::WORK]);
    if length >= bytes.len() {
        return (header, bytes.to_vec());
    }
    room.truncate(length);
    (BlockHeader { codec: Codec { packed: true, ..header.codec }, ..header }, room)
}

/// Where blocks go.
pub(crate) struct Sink<W> {
    writer: Writer<W>,
    ring: Option<Ring>,
}

/// The last blocks of logs.
struct Ring {
    most: u64,
    held: u64,
    blocks: VecDeque<(BlockHeader, Vec<u8>)>,
    /// Streams of which blocks were overwritten, with the first of them.
    lost: FxHashMap<u64, BlockHeader>,
}

impl<W: Write> Sink<W> {
    /// Begins a file. With `ring`, logs are kept up to that many bytes.
    pub(crate) fn new(out: W, ring: Option<u64>) -> io::Result<Sink<W>> {
        let ring =
            ring.map(|most| Ring { most, held: 0, blocks: VecDeque::new(), lost: FxHashMap::default() });
        Ok(Sink { writer: Writer::new(out)?, ring })
    }

    /// Writes or keeps a block.
    pub(crate) fn block(&mut self, header: BlockHeader, bytes: &[u8]) -> io::Result<()> {
        let Some(ring) = self.ring.as_mut().filter(|_| header.kind == BlockKind::Log) else {
            return self.writer.block(header, bytes);
        };
        let (header, bytes) = packed(header, bytes);
        ring.held += bytes.len() as u64;
        ring.blocks.push_back((header, bytes));
        while ring.held > ring.most && ring.blocks.len() > 1 {
            let Some((header, bytes)) = ring.blocks.pop_front() else { break };
            ring.held -= bytes.len() as u64;
            ring.lost.entry(header.key).or_insert(header);
        }
        Ok(())
    }

    /// Writes a part of a log at once.
    pub(crate) fn write(&mut self, header: BlockHeader, bytes: &[u8]) -> io::Result<()> {
        let (header, bytes) = packed(header, bytes);
        self.writer.block(header, &bytes)
    }

    /// Whether blocks are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.ring.is_some()
    }

    /// Writes what is kept.
    pub(crate) fn dump(&mut self) -> io::Result<()> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let mut lost: Vec<BlockHeader> = ring.lost.drain().map(|(_, header)| header).collect();
        lost.sort_unstable_by_key(|header| header.key);
        for header in lost {
            let loss = BlockHeader { kind: BlockKind::Loss, codec: Codec::default(), length: 4, ..header };
            self.writer.block(loss, &note::OVERWRITTEN.to_le_bytes())?;
        }
        for (header, bytes) in ring.blocks.drain(..) {
            self.writer.block(header, &bytes)?;
        }
        ring.held = 0;
        Ok(())
    }

    /// Passes what was written to the system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// The number of bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Ends the file, with what is `kept` or without it; returns its length in bytes.
    pub(crate) fn finish(mut self, kept: bool) -> io::Result<u64> {
        if kept {
            self.dump()?;
        }
        self.writer.finish()
    }
}

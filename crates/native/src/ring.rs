//! Writes blocks to the file, or keeps the last ones of the logs in memory until they are wanted.
//!
//! What a ring needs does not grow with the threads that have ended: those of which nothing is kept are only counted.

use std::{
    collections::VecDeque,
    io::{self, Write},
};

use hodo_native_log::{BlockHeader, BlockKind, Codec, Writer, empty};
use hodo_native_runtime::{pack, wire::note};
use rustc_hash::FxHashMap;

use crate::names::{Name, Names};

/// What a kept block takes in memory and in the file, beside its bytes.
const OVERHEAD: u64 = size_of::<BlockHeader>() as u64;

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
    (BlockHeader { codec: Codec { packed: true, ..header.codec }, ..header }, room[..length].to_vec())
}

/// What was lost of a log: the header of one of its blocks, and a note.
type Loss = (BlockHeader, u32);

/// What happens to kept blocks at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Written,
    Dropped,
}

/// Where blocks go.
pub(crate) struct Sink<W> {
    writer: Writer<W>,
    ring: Option<Ring>,
}

/// The last blocks of logs.
struct Ring {
    /// The most bytes that are kept, and those that are.
    capacity: u64,
    held: u64,
    blocks: VecDeque<(BlockHeader, Vec<u8>)>,
    /// Threads that run, or of whose logs blocks are kept, by key.
    streams: FxHashMap<u64, Stream>,
    names: Names,
    /// How many threads ended of whose logs nothing is kept.
    forgotten: u64,
}

/// The log of a thread.
struct Stream {
    /// The number of its blocks that are kept.
    kept: u64,
    /// The first of its blocks that were overwritten.
    overwritten: Option<BlockHeader>,
    /// When the thread ended, and what was lost at its end.
    end: Option<(BlockHeader, Option<u32>)>,
    /// Whether the file has a part of it.
    is_in_file: bool,
}

impl Ring {
    fn new(capacity: u64) -> Ring {
        Ring {
            capacity,
            held: 0,
            blocks: VecDeque::new(),
            streams: FxHashMap::default(),
            names: Names::default(),
            forgotten: 0,
        }
    }

    fn stream(&mut self, header: &BlockHeader) -> &mut Stream {
        self.streams.entry(header.key).or_insert_with(|| {
            self.names.begin(header);
            Stream { kept: 0, overwritten: None, end: None, is_in_file: false }
        })
    }

    /// Keeps a block. Returns losses that the file needs now.
    fn push(&mut self, header: BlockHeader, bytes: Vec<u8>) -> Vec<Loss> {
        let mut losses = Vec::new();
        self.held += bytes.len() as u64 + OVERHEAD;
        self.stream(&header).kept += 1;
        self.blocks.push_back((header, bytes));
        while self.held > self.capacity && self.blocks.len() > 1 {
            let Some((header, bytes)) = self.blocks.pop_front() else { break };
            self.held -= bytes.len() as u64 + OVERHEAD;
            let stream = self.stream(&header);
            stream.kept -= 1;
            stream.overwritten.get_or_insert(header);
            self.forget_if_over(header.key, &mut losses);
        }
        losses
    }

    /// A thread ended. Returns losses that the file needs now.
    fn end(&mut self, header: BlockHeader, lost: Option<u32>) -> Vec<Loss> {
        let mut losses = Vec::new();
        match self.streams.get_mut(&header.key) {
            Some(stream) => {
                stream.end = Some((header, lost));
                self.forget_if_over(header.key, &mut losses);
            }
            // It had no log yet.
            None => {
                self.forgotten += u64::from(lost.is_some());
                self.names.end(&header);
            }
        }
        losses
    }

    /// Forgets a thread that ended, if nothing of it is kept.
    fn forget_if_over(&mut self, key: u64, losses: &mut Vec<Loss>) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if stream.kept != 0 || stream.end.is_none() {
            return;
        }
        if stream.is_in_file {
            losses.extend(stream.losses());
        } else {
            self.forgotten += u64::from(stream.losses().next().is_some());
        }
        if let Some((header, _)) = &stream.end {
            self.names.end(header);
        }
        self.streams.remove(&key);
    }

    /// Takes all losses, in a defined order. The caller writes all blocks after them.
    fn losses(&mut self) -> Vec<Loss> {
        let mut losses: Vec<_> = self.streams.values_mut().flat_map(|stream| stream.losses()).collect();
        losses.sort_unstable_by_key(|(header, lost)| (header.key, *lost));
        // The loss at the oldest block has the number of threads of which nothing is kept.
        if let Some((oldest, _)) = self.blocks.front() {
            while self.forgotten > 0 {
                let count = self.forgotten.min(note::MOST_FORGOTTEN);
                losses.push((*oldest, note::FORGOTTEN | (count as u32) << note::COUNT_SHIFT));
                self.forgotten -= count;
            }
        }
        losses
    }

    /// All blocks are in the file.
    fn written(&mut self) {
        self.held = 0;
        let names = &mut self.names;
        self.streams.retain(|_, stream| match &stream.end {
            Some((header, _)) => {
                names.end(header);
                false
            }
            None => {
                *stream = Stream { kept: 0, overwritten: None, end: None, is_in_file: true };
                true
            }
        });
    }
}

impl Stream {
    /// What is lost, once.
    fn losses(&mut self) -> impl Iterator<Item = Loss> + use<> {
        let overwritten = self.overwritten.take().map(|header| (header, note::OVERWRITTEN));
        let at_end = self.end.as_mut().and_then(|(header, lost)| Some((*header, lost.take()?)));
        overwritten.into_iter().chain(at_end)
    }
}

impl<W: Write> Sink<W> {
    /// Begins a file. With `ring`, logs are kept up to that many bytes.
    pub(crate) fn new(out: W, ring: Option<u64>) -> io::Result<Sink<W>> {
        Ok(Sink { writer: Writer::new(out)?, ring: ring.map(Ring::new) })
    }

    /// Writes or keeps a block.
    pub(crate) fn block(&mut self, header: BlockHeader, bytes: &[u8]) -> io::Result<()> {
        let Some(ring) = self.ring.as_mut().filter(|_| header.kind == BlockKind::Log) else {
            return self.writer.block(header, bytes);
        };
        let (header, bytes) = packed(header, bytes);
        let losses = ring.push(header, bytes);
        self.lose(losses)
    }

    /// Writes a part of a process's table. If logs are kept, names of threads are kept with them: `runs` says which threads
    /// run.
    pub(crate) fn table(
        &mut self,
        header: BlockHeader,
        bytes: &[u8],
        runs: impl Fn(&Name) -> bool,
    ) -> io::Result<()> {
        let Some(ring) = &mut self.ring else { return self.writer.block(header, bytes) };
        let rest = ring.names.take(&header, bytes, runs);
        if rest.is_empty() {
            return Ok(());
        }
        self.writer.block(BlockHeader { length: rest.len() as u32, ..header }, &rest)
    }

    /// A thread's log is over, and says what it `lost`.
    pub(crate) fn end(&mut self, header: BlockHeader, lost: Option<u32>) -> io::Result<()> {
        let losses = match &mut self.ring {
            Some(ring) => ring.end(header, lost),
            None => lost.map(|lost| (header, lost)).into_iter().collect(),
        };
        self.lose(losses)
    }

    fn lose(&mut self, losses: Vec<Loss>) -> io::Result<()> {
        for (header, lost) in losses {
            let loss = BlockHeader { kind: BlockKind::Loss, codec: Codec::default(), length: 4, ..header };
            self.writer.block(loss, &lost.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes a part of a log at once.
    pub(crate) fn write(&mut self, header: BlockHeader, bytes: &[u8]) -> io::Result<()> {
        if let Some(ring) = &mut self.ring {
            ring.stream(&header).is_in_file = true;
        }
        let (header, bytes) = packed(header, bytes);
        self.writer.block(header, &bytes)
    }

    /// Whether blocks are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.ring.is_some()
    }

    /// Writes what is kept, with the names of its threads.
    pub(crate) fn dump(&mut self) -> io::Result<()> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let (losses, names) = (ring.losses(), ring.names.drain());
        let blocks = std::mem::take(&mut ring.blocks);
        ring.written();
        for (table, bytes) in names {
            let (key, sequence, length) = (table, u64::MAX, bytes.len() as u32);
            let header = BlockHeader { key, table_key: table, sequence, length, ..empty(BlockKind::Table) };
            self.writer.block(header, &bytes)?;
        }
        self.lose(losses)?;
        for (header, bytes) in blocks {
            self.writer.block(header, &bytes)?;
        }
        Ok(())
    }

    /// Passes what was written to the system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Ends the file.
    pub(crate) fn finish(mut self, kept: Kept) -> io::Result<()> {
        if kept == Kept::Written {
            self.dump()?;
        } else if let Some(ring) = &mut self.ring {
            // Blocks that are not kept are no loss. Streams that are in the file may have losses at their end.
            ring.streams.retain(|_, stream| stream.is_in_file);
            ring.blocks.clear();
            let mut losses = ring.losses();
            losses.retain(|&(_, lost)| lost != note::OVERWRITTEN);
            self.lose(losses)?;
        }
        self.writer.finish().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use hodo_native_log::Recording;
    use hodo_native_runtime::wire::{escape, record};

    use super::*;

    const TABLE: u64 = 1;

    fn name(thread: u64, tsc: u64) -> [u8; 40] {
        let mut record = [0; 40];
        record[..8].copy_from_slice(&(u64::from(record::NAME) << 32 | 40).to_le_bytes());
        record[8..16].copy_from_slice(&tsc.to_le_bytes());
        record[16..24].copy_from_slice(&thread.to_le_bytes());
        record[24..28].copy_from_slice(b"name");
        record
    }

    fn log_of(key: u64) -> BlockHeader {
        // Numbers of threads are used again.
        let (thread, first_tsc) = (1 + key % 1000, key * 100);
        BlockHeader {
            key,
            table_key: TABLE,
            process: 1,
            thread,
            length: 4,
            first_tsc,
            last_tsc: first_tsc + 50,
            ..empty(BlockKind::Log)
        }
    }

    /// What a ring holds.
    #[derive(Debug, PartialEq)]
    struct Held {
        blocks: usize,
        /// Streams, and owners of names and their names.
        others: [usize; 3],
    }

    /// The state of a ring after threads have come and gone, of which one in ten was killed, and the file.
    fn after(threads: u64) -> (Held, Vec<u8>) {
        let mut file = Vec::new();
        let mut sink = Sink::new(&mut file, Some(20_000)).expect("a file");
        let mut names = Vec::new();
        for key in 2..2 + threads {
            let header = log_of(key);
            names.extend(name(header.thread, header.first_tsc + 10));
            sink.block(header, &escape::END.to_le_bytes()).expect("room");
            sink.end(header, (key % 10 == 0).then_some(note::KILLED)).expect("room");
            if key % 100 == 0 {
                let length = names.len() as u32;
                let table = BlockHeader { key: TABLE, sequence: key, length, ..empty(BlockKind::Table) };
                sink.table(table, &names, |_| false).expect("room");
                names.clear();
            }
        }
        let ring = sink.ring.as_ref().expect("a ring");
        let (owners, names) = ring.names.count();
        let held = Held { blocks: ring.blocks.len(), others: [ring.streams.len(), owners, names] };
        sink.finish(Kept::Written).expect("room");
        (held, file)
    }

    #[test]
    fn threads_that_ended_leave_nothing_but_their_number() {
        let (few, small) = after(3000);
        let (many, large) = after(30_000);
        assert_eq!(few, many);
        assert!(few.blocks > 100 && few.others.iter().all(|&count| count <= few.blocks + 100), "{few:?}");
        assert!(large.len().abs_diff(small.len()) < 100, "{} and {} bytes", small.len(), large.len());
        let recording = Recording::read(&large).expect("a readable recording");
        let threads = recording.threads();
        let losses = threads.iter().flat_map(|thread| &thread.losses).map(|&lost| note::counted(lost));
        let forgotten: u64 =
            losses.filter(|(lost, _)| *lost == note::FORGOTTEN).map(|(_, count)| count).sum();
        assert_eq!(forgotten + threads.len() as u64, 30_000);
        let killed = threads.iter().filter(|thread| thread.losses.contains(&note::KILLED)).count();
        assert!(killed.abs_diff(few.blocks / 10) <= 1, "{killed} of {} killed", few.blocks);
        let (_, table) = recording.tables()[0];
        assert!(table.names.iter().all(|name| name.name == b"name"));
        // All kept threads but the last, whose names did not come, have one.
        for thread in threads.iter().filter(|thread| thread.key <= 30_000) {
            let first = thread.blocks[0].header.first_tsc;
            let own = |name: &&hodo_native_log::Name| name.thread == thread.thread && name.tsc == first + 10;
            assert_eq!(table.names.iter().filter(own).count(), 1, "{}", thread.key);
        }
    }

    #[test]
    fn a_thread_that_is_in_the_file_already_keeps_its_losses() {
        let mut file = Vec::new();
        let mut sink = Sink::new(&mut file, Some(500)).expect("a file");
        sink.table(BlockHeader { key: TABLE, ..empty(BlockKind::Table) }, &name(1, 1), |_| true)
            .expect("room");
        let first = log_of(1000);
        sink.block(first, &escape::END.to_le_bytes()).expect("room");
        sink.dump().expect("room");
        sink.end(first, Some(note::KILLED)).expect("room");
        for key in 1001..1010 {
            sink.block(log_of(key), &escape::END.to_le_bytes()).expect("room");
        }
        sink.finish(Kept::Dropped).expect("room");
        let recording = Recording::read(&file).expect("a readable recording");
        assert_eq!(recording.threads().len(), 1);
        assert_eq!(recording.threads()[0].losses, [note::KILLED]);
        assert_eq!(recording.tables()[0].1.names.len(), 1);
    }
}

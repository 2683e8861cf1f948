//! Moves finished parts of logs and tables from the arena to the file.

use std::{
    cmp::Reverse,
    io::{self, Write},
    os::fd::OwnedFd,
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
    time::{Duration, Instant},
};

use hodo_native_log::{Block, BlockHeader, BlockKind, Clocks, Codec, empty};
use hodo_native_runtime::{
    context::Context,
    layout::{CHUNKS, chunk_state, kind, slot_state},
    wire::{escape, note},
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    arena::{Arena, Chunk},
    names::Name,
    process,
    record::Options,
    ring::{Kept, Sink},
    watch::{Fired, Watch},
};

/// What ended a thread's log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The thread or its process ended.
    Ended,
    /// The process executes another program.
    Executed,
    /// It runs its own code again.
    Left,
}

/// Writes what the arena contains.
pub(crate) struct Drain<W> {
    writer: Sink<W>,
    /// Recorded processes, with descriptors that become readable when they end.
    processes: FxHashMap<u32, Option<OwnedFd>>,
    /// Number of killed threads.
    pub(crate) killed: u64,
    /// How many threads' logs ended.
    pub(crate) threads: u64,
    begun: Instant,
    /// How often the clocks were written.
    clocks: u32,
    /// How much of the newest part of each table is written, by the table's key.
    tables: FxHashMap<u64, TablePosition>,
    watch: Option<Watch>,
    /// Executions that took too long, which no snapshot has yet.
    fired: Vec<(BlockHeader, Fired)>,
    /// How many snapshots conditions asked for.
    pub(crate) snapshots: u64,
}

/// A position in a table.
#[derive(Clone, Copy, Default)]
struct TablePosition {
    /// The part of the table.
    sequence: u64,
    /// Bytes of that part.
    bytes: usize,
}

impl<W: Write> Drain<W> {
    pub(crate) fn new(out: W, options: &Options) -> io::Result<Drain<W>> {
        let facts = &options.facts;
        let mut drain = Drain {
            writer: Sink::new(out, options.ring)?,
            processes: FxHashMap::default(),
            killed: 0,
            threads: 0,
            begun: Instant::now(),
            clocks: 0,
            tables: FxHashMap::default(),
            watch: (!options.conditions.is_empty()).then(|| Watch::new(options.conditions.clone())),
            fired: Vec::new(),
            snapshots: 0,
        };
        if !facts.is_empty() {
            let header = BlockHeader { length: facts.len() as u32, ..empty(BlockKind::Facts) };
            drain.writer.block(header, facts)?;
        }
        drain.clock()?;
        Ok(drain)
    }

    /// Writes the clocks from time to time: soon after the begin, and then each second, so that a file without an end has
    /// times too.
    fn clock_if_due(&mut self) -> io::Result<()> {
        const SOON: Duration = Duration::from_millis(20);
        let due = SOON + Duration::from_secs(1) * self.clocks.saturating_sub(1);
        if self.begun.elapsed() < due {
            return Ok(());
        }
        self.clock()?;
        self.writer.flush()
    }

    fn clock(&mut self) -> io::Result<()> {
        self.clocks += 1;
        let Clocks { tsc, nanos } = process::clocks();
        let bytes = [tsc.to_le_bytes(), nanos.to_le_bytes()].concat();
        let header = BlockHeader { length: 16, first_tsc: tsc, last_tsc: tsc, ..empty(BlockKind::Clock) };
        self.writer.block(header, &bytes)
    }

    /// Writes what is finished, and snapshots that are due. Returns how many chunks there were.
    pub(crate) fn chunks(&mut self, arena: &Arena) -> io::Result<usize> {
        let count = self.finished_parts(arena)?;
        self.write_fired(arena)?;
        Ok(count)
    }

    /// Writes what is finished. Returns how many chunks there were.
    fn finished_parts(&mut self, arena: &Arena) -> io::Result<usize> {
        let logs = full_chunks(arena, kind::LOG);
        // After the logs were looked for, as their exits are in tables by then.
        let parts = if logs.is_empty() { Vec::new() } else { live_tables(arena) };
        let tables = self.tables(arena, parts)?;
        for &index in &logs {
            let chunk = arena.chunk(index);
            self.log_part(header_of(&chunk, BlockKind::Log), chunk.bytes)?;
        }
        empty_chunks(arena, &logs);
        Ok(tables + logs.len())
    }

    /// Writes what tables contain so far: a file that ends early can be read as far as it goes.
    fn live_tables(&mut self, arena: &Arena) -> io::Result<()> {
        self.tables(arena, live_tables(arena)).map(drop)
    }

    /// Writes finished parts of tables, and these unfinished ones, which were looked for before: what is before an unfinished part is
    /// among the finished ones. Returns how many chunks there were.
    fn tables(&mut self, arena: &Arena, mut parts: Vec<(BlockHeader, Vec<u8>)>) -> io::Result<usize> {
        let finished = full_chunks(arena, kind::TABLE);
        parts.extend(finished.iter().map(|&index| {
            let chunk = arena.chunk(index);
            (header_of(&chunk, BlockKind::Table), chunk.bytes.to_vec())
        }));
        self.table_parts(arena, parts)?;
        empty_chunks(arena, &finished);
        Ok(finished.len())
    }

    /// Writes what is new in parts of tables, and passes it to the watch.
    fn table_parts(&mut self, arena: &Arena, mut parts: Vec<(BlockHeader, Vec<u8>)>) -> io::Result<()> {
        // A part that was handed over meanwhile is longer than what it was before.
        parts.sort_by_key(|(header, bytes)| (header.key, header.sequence, Reverse(bytes.len())));
        for (header, bytes) in parts {
            let written = self.tables.entry(header.key).or_default();
            if written.sequence != header.sequence {
                *written = TablePosition { sequence: header.sequence, bytes: 0 };
            }
            let Some(new) = bytes.get(written.bytes..).filter(|new| !new.is_empty()) else { continue };
            written.bytes = bytes.len();
            let block = BlockHeader { length: new.len() as u32, ..header };
            self.writer.table(block, new, running(arena))?;
            if let Some(watch) = &mut self.watch {
                watch.table_part(header.key, new);
            }
        }
        Ok(())
    }

    /// Writes a part of a log, and passes it to the watch.
    fn log_part(&mut self, header: BlockHeader, bytes: &[u8]) -> io::Result<()> {
        self.writer.block(header, bytes)?;
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let mut memory = Vec::new();
        let fired = watch.log_part(&Block::unwritten(header, bytes, &mut memory));
        self.fired.extend(fired.into_iter().map(|fired| (header, fired)));
        Ok(())
    }

    /// Writes a snapshot for each execution that took too long.
    fn write_fired(&mut self, arena: &Arena) -> io::Result<()> {
        let Some(watch) = &self.watch else { return Ok(()) };
        let mut blocks = Vec::new();
        for (header, Fired { condition, times, instructions }) in self.fired.drain(..) {
            let text = &watch.conditions()[condition].text;
            let content = [&instructions.to_le_bytes()[..], text.as_bytes()].concat();
            let (kind, codec, length) = (BlockKind::Snapshot, Codec::default(), content.len() as u32);
            let (first_tsc, last_tsc) = (times.start, times.end);
            blocks.push((BlockHeader { kind, codec, length, first_tsc, last_tsc, ..header }, content));
        }
        for (header, content) in blocks {
            self.writer.block(header, &content)?;
            self.snapshots += 1;
            self.write_kept(arena)?;
        }
        Ok(())
    }

    /// Looks for new and ended processes, and for threads that ended. Returns how many processes run.
    pub(crate) fn processes(&mut self, arena: &Arena) -> io::Result<usize> {
        self.clock_if_due()?;
        for index in arena.slots() {
            match arena.slot_state(index).load(Acquire) {
                slot_state::LIVE => {
                    let number = arena.slot(index).process.get();
                    self.processes.entry(number).or_insert_with(|| process::end_of(number));
                }
                slot_state::DONE => {
                    self.chunks(arena)?;
                    self.free(arena, index, End::Executed)?;
                }
                _ => {}
            }
        }
        let ended = |end: &Option<OwnedFd>| end.as_ref().is_none_or(process::readable);
        let over: Vec<u32> =
            self.processes.iter().filter(|(_, end)| ended(end)).map(|(&number, _)| number).collect();
        for number in over {
            self.retire(arena, number, End::Ended)?;
            self.processes.remove(&number);
        }
        Ok(self.processes.len())
    }

    /// A process runs its own code again.
    pub(crate) fn left(&mut self, arena: &Arena, number: u32) -> io::Result<()> {
        self.processes.remove(&number);
        self.retire(arena, number, End::Left)
    }

    /// Writes what the slots of a process contain, and frees them.
    pub(crate) fn retire(&mut self, arena: &Arena, number: u32, end: End) -> io::Result<()> {
        self.chunks(arena)?;
        if end == End::Executed {
            // It has no slot until its new program runs, and may not have been seen before.
            self.processes.entry(number).or_insert_with(|| process::end_of(number));
        }
        for index in arena.slots() {
            let live = arena.slot_state(index).load(Acquire) == slot_state::LIVE;
            if live && arena.slot(index).process.get() == number {
                self.free(arena, index, end)?;
            }
        }
        for index in 0..CHUNKS {
            let header = arena.chunk(index).header;
            let taken = header.state.load(Acquire) == chunk_state::TAKEN;
            if taken && header.process.load(Relaxed) == number {
                header.process.store(0, Relaxed);
                header.state.store(chunk_state::FREE, Release);
            }
        }
        self.write_fired(arena)
    }

    fn free(&mut self, arena: &Arena, index: u64, end: End) -> io::Result<()> {
        let slot = arena.slot(index);
        let rest = arena.rest(index);
        let is_log = slot.kind.get() == kind::LOG;
        let skips = slot.skips.load(Acquire) != 0;
        let is_recorded = !skips || slot.sequence.get() != 0;
        self.threads += u64::from(is_log && is_recorded);
        let kind = if is_log { BlockKind::Log } else { BlockKind::Table };
        let block = BlockHeader { length: rest.len() as u32, ..unfinished(slot, kind) };
        if !is_log {
            self.table_parts(arena, vec![(block, rest.clone())])?;
            self.tables.remove(&block.key);
        } else if !rest.is_empty() {
            self.live_tables(arena)?;
            self.log_part(block, &rest)?;
        }
        let word =
            |back: usize| rest.len().checked_sub(4 * back).and_then(|start| rest.get(start..start + 4));
        // A thread that ended, waited in a system call, or raised the signal that ended the program, ran nothing more. Its last
        // entry has this many words.
        let over = [(1, escape::END), (4, escape::CALL)];
        let cut = !over.iter().any(|&(back, escape)| word(back) == Some(&escape.to_le_bytes()));
        let cut = cut && !ends_with_death(&rest);
        let lost = match end {
            End::Ended if cut && !skips => Some(note::KILLED),
            End::Left if is_recorded => Some(note::CLOSED),
            _ => None,
        };
        if is_log {
            self.killed += u64::from(lost == Some(note::KILLED));
            self.writer.end(block, lost)?;
            if let Some(watch) = &mut self.watch {
                watch.ended(block.key);
            }
        }
        arena.slot_state(index).store(slot_state::FREE, Release);
        arena.header().emptied.fetch_add(1, Release);
        process::wake(&arena.header().emptied);
        Ok(())
    }

    /// Writes what is kept so far, and the current logs of running threads.
    pub(crate) fn snapshot(&mut self, arena: &Arena) -> io::Result<()> {
        if !self.writer.keeps() {
            return Ok(());
        }
        self.chunks(arena)?;
        self.write_kept(arena)
    }

    fn write_kept(&mut self, arena: &Arena) -> io::Result<()> {
        // Threads go on meanwhile. What is before these parts, and the exits in them, is found after they were copied.
        let current = current_parts(arena);
        self.finished_parts(arena)?;
        self.live_tables(arena)?;
        self.writer.dump()?;
        for (header, bytes) in current {
            self.writer.write(header, &bytes)?;
        }
        self.writer.flush()
    }

    /// Writes the end.
    pub(crate) fn finish(mut self, arena: &Arena) -> io::Result<()> {
        self.chunks(arena)?;
        let running: Vec<u32> = self.processes.keys().copied().collect();
        for number in running {
            self.retire(arena, number, End::Ended)?;
        }
        self.clock()?;
        // With conditions, only what they ask for is written.
        self.writer.finish(if self.watch.is_none() { Kept::Written } else { Kept::Dropped })
    }
}

/// Whether a log's last entry is a signal that has no handler, and so ended the program.
fn ends_with_death(log: &[u8]) -> bool {
    let last = log.last_chunk::<16>();
    last.is_some_and(|last| last[..4] == escape::SIGNAL.to_le_bytes() && last[8..] == [0; 8])
}

/// The slots that have this content, and are in use.
fn slots_of(arena: &Arena, kind: u32) -> impl Iterator<Item = (u64, &Context)> {
    let in_use = |state: u32| matches!(state, slot_state::LIVE | slot_state::DONE);
    let slots = arena.slots().filter(move |&index| in_use(arena.slot_state(index).load(Acquire)));
    slots.map(|index| (index, arena.slot(index))).filter(move |(_, slot)| slot.kind.get() == kind)
}

/// Returns a function that says whether a name is that of a running thread.
fn running(arena: &Arena) -> impl Fn(&Name) -> bool {
    let threads: FxHashSet<(u64, u64)> = slots_of(arena, kind::LOG)
        .map(|(_, slot)| (slot.table_key.get(), slot.thread.get().into()))
        .collect();
    move |name| threads.contains(&(name.table, name.thread))
}

/// The parts of their logs that running threads have not handed over yet, as far as they go.
fn current_parts(arena: &Arena) -> Vec<(BlockHeader, Vec<u8>)> {
    let live = arena.slots().filter(|&index| arena.slot_state(index).load(Acquire) == slot_state::LIVE);
    let current = |index| {
        let slot = arena.slot(index);
        // If it is handed over meanwhile, the content is none, or that of another part.
        let header = unfinished(slot, BlockKind::Log);
        let (sequence, bytes) = arena.current(index).filter(|_| slot.kind.get() == kind::LOG)?;
        let length = bytes.len() as u32;
        let is_wanted = sequence == header.sequence && length != 0;
        is_wanted.then_some((BlockHeader { unfinished: true, length, ..header }, bytes))
    };
    live.filter_map(current).collect()
}

/// Lets threads use these chunks again.
fn empty_chunks(arena: &Arena, chunks: &[u64]) {
    for &index in chunks {
        let header = arena.chunk(index).header;
        header.process.store(0, Relaxed);
        header.state.store(chunk_state::FREE, Release);
        arena.header().emptied.fetch_add(1, Release);
        process::wake(&arena.header().emptied);
    }
}

/// What tables contain that they have not handed over yet.
fn live_tables(arena: &Arena) -> Vec<(BlockHeader, Vec<u8>)> {
    let of_table = |(index, slot): (u64, &Context)| {
        let header = unfinished(slot, BlockKind::Table);
        let rest = arena.rest(index);
        // It may be handed over meanwhile, and then comes as a part.
        let is_whole = slot.sequence.get() == header.sequence && slot.staged.get() == slot.log();
        is_whole.then_some((header, rest))
    };
    slots_of(arena, kind::TABLE).filter_map(of_table).collect()
}

/// The chunks of this kind that were handed over, the parts of a stream in their order.
fn full_chunks(arena: &Arena, kind: u32) -> Vec<u64> {
    let is_full = |index: &u64| {
        let header = arena.chunk(*index).header;
        header.state.load(Acquire) == chunk_state::FULL && header.kind.load(Relaxed) == kind
    };
    let mut full: Vec<u64> = (0..CHUNKS).filter(is_full).collect();
    full.sort_unstable_by_key(|&index| {
        let header = arena.chunk(index).header;
        (header.key.load(Relaxed), header.sequence.load(Relaxed), index)
    });
    full
}

/// The header of a chunk's block.
fn header_of(chunk: &Chunk<'_>, kind: BlockKind) -> BlockHeader {
    let header = chunk.header;
    BlockHeader {
        codec: Codec { packed: header.packed.load(Relaxed) != 0, lz4: false },
        length: header.raw.load(Relaxed),
        key: header.key.load(Relaxed),
        table_key: header.table_key.load(Relaxed),
        sequence: header.sequence.load(Relaxed),
        first_tsc: header.first_tsc.load(Relaxed),
        last_tsc: header.last_tsc.load(Relaxed),
        process: header.process.load(Relaxed).into(),
        thread: header.thread.load(Relaxed),
        ..empty(kind)
    }
}

/// The header of a slot's unfinished block.
fn unfinished(slot: &Context, kind: BlockKind) -> BlockHeader {
    BlockHeader {
        key: slot.key.get(),
        table_key: slot.table_key.get(),
        sequence: slot.sequence.get(),
        first_tsc: slot.first_tsc.get(),
        last_tsc: process::clocks().tsc,
        process: slot.process.get().into(),
        thread: slot.thread.get().into(),
        ..empty(kind)
    }
}

//! Reads a native recording: its processes with their tables, and its threads with their items.
//!
//! ```text
//! file ──file::blocks──► Recording ─┬─ processes: Table: exits as paths of spans, mappings, notes, generated code
//!                                   └─ threads ──items──► Item: path, signal, system call, time, loss
//! ```

use std::{ops::Range, sync::Arc};

use hodo_native_runtime::wire::note;
use rustc_hash::FxHashMap;

use crate::{
    file::{Block, BlockKind, FileError, blocks},
    items::Items,
    packets::Log,
    table::Table,
};

/// A recording whose tables are read; the logs of its threads are still packed.
pub struct Recording<'a> {
    tables: FxHashMap<u64, Arc<Table>>,
    threads: Vec<Thread<'a>>,
    /// Pairs of clocks, in order of time.
    pub clocks: Vec<Clocks>,
    /// Whether all times count instructions; they are of the time-stamp counter otherwise.
    pub counts_time: bool,
    /// Facts about the recording, as a JSON object of texts; empty if there are none.
    pub facts: Vec<u8>,
    /// Why snapshots were written, in order.
    pub snapshots: Vec<Snapshot>,
    /// The damage at which reading stopped, or that of a table.
    pub damage: Option<FileError>,
}

/// Two clocks at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The time-stamp counter.
    pub tsc: u64,
    /// The monotonic clock in nanoseconds.
    pub nanos: u64,
}

/// Why a snapshot was written: an execution of a function took too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The condition, as the user wrote it.
    pub condition: String,
    /// Times within the execution, after its begin and before its end, by the time-stamp counter.
    pub times: Range<u64>,
    /// The instructions that it ran.
    pub instructions: u64,
    /// ID of the process in the system.
    pub process: u64,
    /// ID of the thread in the system.
    pub thread: u64,
}

/// A thread of a recording.
pub struct Thread<'a> {
    /// Its number in the recording.
    pub key: u64,
    /// The process whose table its log refers to.
    pub table_key: u64,
    /// ID of the process in the system.
    pub process: u64,
    /// ID of the thread in the system.
    pub thread: u64,
    /// The chunks of its log, in order.
    pub blocks: Vec<Block<'a>>,
    /// What was lost at its end: one of [`hodo_native_runtime::wire::note`].
    pub losses: Vec<u32>,
}

impl<'a> Recording<'a> {
    /// Reads the tables of a file.
    ///
    /// # Errors
    /// The file is of another kind, or one of its small blocks is damaged.
    pub fn read(file: &'a [u8]) -> Result<Recording<'a>, FileError> {
        let (blocks, mut damage) = blocks(file)?;
        let mut table_blocks: FxHashMap<u64, Vec<&Block<'a>>> = FxHashMap::default();
        let mut threads: FxHashMap<u64, Thread<'a>> = FxHashMap::default();
        let (mut clocks, mut facts, mut snapshots) = (Vec::new(), Vec::new(), Vec::new());
        let mut counts_time = false;
        for block in &blocks {
            let header = &block.header;
            match header.kind {
                BlockKind::Table => table_blocks.entry(header.key).or_default().push(block),
                BlockKind::Log | BlockKind::Loss => {
                    let thread = threads.entry(header.key).or_insert_with(|| Thread {
                        key: header.key,
                        table_key: header.table_key,
                        process: header.process,
                        thread: header.thread,
                        blocks: Vec::new(),
                        losses: Vec::new(),
                    });
                    if header.kind == BlockKind::Log {
                        thread.blocks.push(*block);
                    } else {
                        let words = block.words()?;
                        thread.losses.extend(words);
                    }
                }
                BlockKind::Clock => clocks.extend(clocks_of(&block.content()?)),
                BlockKind::Snapshot => {
                    let content = block.content()?;
                    let (instructions, text) = content.split_first_chunk().unwrap_or((&[0; 8], &[]));
                    snapshots.push(Snapshot {
                        condition: String::from_utf8_lossy(text).into_owned(),
                        times: header.first_tsc..header.last_tsc,
                        instructions: u64::from_le_bytes(*instructions),
                        process: header.process,
                        thread: header.thread,
                    });
                }
                BlockKind::Facts => facts = block.content()?,
                BlockKind::CountedTime => counts_time = true,
                BlockKind::End => {}
            }
        }
        let mut tables = FxHashMap::default();
        let mut keys: Vec<u64> = table_blocks.keys().copied().collect();
        // A process is numbered after its parent.
        keys.sort_unstable();
        for key in keys {
            let (table, damaged) = Table::read(&mut table_blocks.remove(&key).unwrap_or_default(), &tables);
            tables.insert(key, Arc::new(table));
            damage = damage.or(damaged);
        }
        let mut threads: Vec<Thread<'a>> = threads.into_values().collect();
        threads.sort_unstable_by_key(|thread| thread.key);
        for thread in &mut threads {
            // A snapshot may contain the begin of a part that was finished later, or that the next snapshot has more of.
            thread.blocks.sort_by_key(|Block { header, .. }| {
                (header.sequence, header.unfinished, std::cmp::Reverse(header.length))
            });
            thread.blocks.dedup_by_key(|block| block.header.sequence);
        }
        Ok(Recording { tables, threads, clocks, counts_time, facts, snapshots, damage })
    }

    /// The threads, in the order in which they started.
    pub fn threads(&self) -> &[Thread<'a>] {
        &self.threads
    }

    /// The tables of processes, by key, in order.
    pub fn tables(&self) -> Vec<(u64, &Table)> {
        let mut tables: Vec<(u64, &Table)> =
            self.tables.iter().map(|(&key, table)| (key, &**table)).collect();
        tables.sort_unstable_by_key(|&(key, _)| key);
        tables
    }

    /// The table that a thread's log refers to.
    pub fn table(&self, thread: &Thread<'a>) -> Option<&Table> {
        self.tables.get(&thread.table_key).map(|table| &**table)
    }

    /// The log of a thread. `None` if the table of its process is missing.
    pub fn log(&self, thread: &Thread<'a>) -> Option<Log<'a>> {
        Some(Log { table: self.tables.get(&thread.table_key)?.clone(), blocks: thread.blocks.clone() })
    }

    /// What a thread did. `None` if the table of its process is missing.
    pub fn items(&self, thread: &'a Thread<'a>) -> Option<Items<'_>> {
        let overwritten = thread.losses.contains(&note::OVERWRITTEN);
        Some(Items::new(self.table(thread)?, &thread.blocks, overwritten))
    }
}

fn clocks_of(bytes: &[u8]) -> Option<Clocks> {
    let (tsc, rest) = bytes.split_first_chunk::<8>()?;
    let (nanos, _) = rest.split_first_chunk::<8>()?;
    Some(Clocks { tsc: u64::from_le_bytes(*tsc), nanos: u64::from_le_bytes(*nanos) })
}

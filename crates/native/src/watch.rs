//! Watches what logs say for functions and system calls that take too long.
//!
//! ```text
//! parts of logs, as they are written ──items──► entry of the function … its return ──► too long: a snapshot
//! ```
//!
//! The time between two known times within the function is less than its own, so a function that fires a condition
//! certainly took so long. A return is control at the address after the call, at the call's depth. A function that is
//! entered by a jump, as by a tail call, returns where the function before it would have returned.

use std::{iter::successors, ops::Range, sync::Arc};

use hodo_native_log::{Block, Clocks, Item, Items, Path, Table, exit};
use rustc_hash::FxHashMap;

use crate::{process, record::Select};

/// A condition for a snapshot: an execution takes longer than a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// As the user wrote it.
    pub text: String,
    /// What is executed.
    pub watched: Watched,
    /// The limit.
    pub limit: Limit,
}

/// What a condition watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A function, by its code.
    Function(Select),
    /// The system call with this number.
    SystemCall(u32),
}

/// The limit of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// In nanoseconds.
    Nanoseconds(u64),
    /// In instructions that the thread runs.
    Instructions(u64),
}

/// An execution that took too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fired {
    /// The condition's index.
    pub(crate) condition: usize,
    /// Times within it, after its begin and before its end.
    pub(crate) times: Range<u64>,
    pub(crate) instructions: u64,
}

/// The most calls of which it is known where they return to.
const DEEPEST: usize = 1 << 16;

/// The state of all conditions.
pub(crate) struct Watch {
    conditions: Vec<Condition>,
    tables: FxHashMap<u64, KnownTable>,
    threads: FxHashMap<u64, WatchedThread>,
    begin: Clocks,
}

/// A table, as far as it is known.
#[derive(Default)]
struct KnownTable {
    table: Table,
    /// How many mappings were looked at for functions.
    maps: usize,
    /// Whether those of the processes that this one is a copy of were looked at.
    knows_inherited: bool,
    entries: Vec<FunctionEntry>,
}

/// The entry of a watched function.
struct FunctionEntry {
    address: u64,
    /// The condition's index.
    condition: usize,
}

#[derive(Default)]
struct WatchedThread {
    /// Where its log led so far; 0 if that is unknown.
    expected: u64,
    /// Where the calls that are going on return to, the outermost first.
    returns: Vec<u64>,
    /// The kind of the last branch.
    branch: u8,
    /// The system call that is going on, and its begin.
    call: Option<(u32, u64)>,
    instructions: u64,
    /// The last known time.
    now: u64,
    /// For each condition, the execution that is going on.
    open: Vec<Option<Open>>,
}

/// An execution that is going on.
#[derive(Clone, Copy)]
struct Open {
    returns_to: u64,
    depth: u32,
    instructions: u64,
    /// The first known time within it.
    since: Option<u64>,
}

impl Watch {
    pub(crate) fn new(conditions: Vec<Condition>) -> Watch {
        let (tables, threads) = (FxHashMap::default(), FxHashMap::default());
        Watch { conditions, tables, threads, begin: process::clocks() }
    }

    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Reads what a table got.
    pub(crate) fn table_part(&mut self, key: u64, bytes: &[u8]) {
        let mut known = self.tables.remove(&key).unwrap_or_default();
        let others = |key: u64| self.tables.get(&key).map(|known| Arc::new(known.table.clone()));
        known.table.extend(bytes, &others);
        self.tables.insert(key, known);
    }

    /// Reads a part of a log. Returns the executions that took too long.
    pub(crate) fn log_part(&mut self, block: &Block<'_>) -> Vec<Fired> {
        let Some(known) = self.tables.get_mut(&block.header.table_key) else { return Vec::new() };
        known.find_functions(&self.conditions);
        let thread = self.threads.entry(block.header.key).or_default();
        thread.open.resize(self.conditions.len(), None);
        let Ok(mut items) = Items::of_part(&known.table, block, thread.expected) else { return Vec::new() };
        let mut fired = Vec::new();
        thread.time(block.header.first_tsc);
        for item in &mut items {
            match item {
                Item::Path(path) if known.entries.is_empty() => thread.instructions += path.instructions,
                Item::Path(path) => thread.path(&path, &known.entries, &mut fired),
                Item::Call(number, time) => {
                    thread.time(time);
                    thread.call = Some((number, time));
                }
                Item::CallEnd(time) => thread.call_ended(time, &self.conditions, &mut fired),
                Item::Time(time) => thread.time(time),
                Item::Loss(_) | Item::Contradiction => thread.interrupted(),
                _ => {}
            }
        }
        thread.expected = items.leads_to();
        thread.time(block.header.last_tsc);
        let (from, to) = (self.begin, process::clocks());
        let nanos = |ticks: u64| {
            let scale = (to.nanos - from.nanos) as f64 / (to.tsc - from.tsc).max(1) as f64;
            (ticks as f64 * scale) as u64
        };
        fired.retain(|fired| match self.conditions[fired.condition].limit {
            Limit::Nanoseconds(limit) => nanos(fired.times.end.saturating_sub(fired.times.start)) > limit,
            Limit::Instructions(limit) => fired.instructions > limit,
        });
        fired
    }

    /// A thread ended.
    pub(crate) fn ended(&mut self, thread: u64) {
        self.threads.remove(&thread);
    }
}

impl KnownTable {
    /// Looks for the functions in mappings that are new.
    fn find_functions(&mut self, conditions: &[Condition]) {
        let parent = self.table.parent.as_ref().filter(|_| !self.knows_inherited);
        for ancestor in successors(parent, |parent| parent.table.parent.as_ref()) {
            ancestor.table.maps.iter().for_each(|map| find(map, conditions, &mut self.entries));
            self.knows_inherited = true;
        }
        for map in &self.table.maps[self.maps..] {
            find(map, conditions, &mut self.entries);
        }
        self.maps = self.table.maps.len();
    }
}

/// Adds the functions whose code a mapping contains.
fn find(map: &hodo_native_log::Map, conditions: &[Condition], entries: &mut Vec<FunctionEntry>) {
    for (index, condition) in conditions.iter().enumerate() {
        let Watched::Function(Select { file, offsets }) = &condition.watched else { continue };
        let within = offsets.start.checked_sub(map.offset).filter(|&within| within < map.length);
        if let Some(within) = within.filter(|_| map.name.ends_with(file.as_bytes())) {
            entries.push(FunctionEntry { address: map.address + within, condition: index });
        }
    }
}

impl WatchedThread {
    /// Something was not recorded: executions may have ended meanwhile.
    fn interrupted(&mut self) {
        self.open.fill(None);
        self.returns.clear();
        self.branch = exit::NONE;
        self.call = None;
    }

    fn time(&mut self, time: u64) {
        self.now = self.now.max(time);
        for open in self.open.iter_mut().flatten() {
            open.since.get_or_insert(time);
        }
    }

    fn call_ended(&mut self, time: u64, conditions: &[Condition], fired: &mut Vec<Fired>) {
        self.time(time);
        let Some((number, begin)) = self.call.take() else { return };
        for (condition, asked) in conditions.iter().enumerate() {
            if asked.watched == Watched::SystemCall(number) {
                fired.push(Fired { condition, times: begin..time, instructions: 0 });
            }
        }
    }

    fn path(&mut self, path: &Path<'_>, entries: &[FunctionEntry], fired: &mut Vec<Fired>) {
        for span in path.all() {
            for (condition, open) in self.open.iter_mut().enumerate() {
                // The last return led here.
                if let Some(ended) = open.take_if(|open| open.depth == 0 && open.returns_to == span.start) {
                    let instructions = self.instructions - ended.instructions;
                    let times = ended.since.unwrap_or(self.now)..self.now;
                    fired.push(Fired { condition, times, instructions });
                }
            }
            for entry in entries.iter().filter(|entry| entry.address == span.start) {
                if let Some(&returns_to) = self.returns.last().filter(|_| self.branch != exit::NONE) {
                    let instructions = self.instructions;
                    // Of executions in each other, the outermost counts.
                    self.open[entry.condition].get_or_insert(Open {
                        returns_to,
                        depth: 1,
                        instructions,
                        since: None,
                    });
                }
            }
            self.instructions += u64::from(span.count);
            self.branch = span.kind;
            if span.kind == exit::CALL && span.target != span.end || span.kind == exit::CALL_INDIRECT {
                self.open.iter_mut().flatten().for_each(|open| open.depth += 1);
                if self.returns.len() == DEEPEST {
                    self.returns.drain(..DEEPEST / 2);
                }
                self.returns.push(span.end);
            } else if span.kind == exit::RETURN {
                self.open.iter_mut().flatten().for_each(|open| open.depth = open.depth.saturating_sub(1));
                self.returns.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hodo_native_runtime::wire::record;

    use super::*;

    const FILE: &str = "/usr/bin/program";

    /// A record of a table.
    fn record(kind: u32, words: &[u64], name: &str) -> Vec<u8> {
        let length = (16 + 8 * words.len() + name.len()) as u64;
        let head = [length | u64::from(kind) << 32, 1];
        let words = head.iter().chain(words).flat_map(|word| word.to_le_bytes());
        words.chain(name.bytes()).collect()
    }

    #[test]
    fn a_copy_has_the_functions_of_all_its_ancestors_once() {
        let watched = Watched::Function(Select { file: FILE.to_owned(), offsets: 0x10..0x20 });
        let limit = Limit::Instructions(1);
        let mut watch = Watch::new(vec![Condition { text: String::new(), watched, limit }]);
        let map = [0x40_0000, 0x1000, 0, 0, FILE.len() as u64];
        watch.table_part(1, &record(record::MAP, &map, FILE));
        watch.table_part(2, &record(record::FORK, &[1, 0], ""));
        watch.table_part(3, &record(record::FORK, &[2, 0], ""));
        for key in [1, 2, 3] {
            let known = watch.tables.get_mut(&key).unwrap();
            // Once for each part of a log.
            known.find_functions(&watch.conditions);
            known.find_functions(&watch.conditions);
            let found: Vec<u64> = known.entries.iter().map(|entry| entry.address).collect();
            assert_eq!(found, [0x40_0010], "{key}");
        }
    }
}

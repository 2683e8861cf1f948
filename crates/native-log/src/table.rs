//! The table of a process: blocks and their exits, mappings and notes.

use std::sync::Arc;

use hodo_native_runtime::wire::{exit, flag, note, record};
use rustc_hash::FxHashMap;

use crate::{
    file::{Block, FileError},
    items::Digest,
};

/// Instructions that lie one after another, and how control flow leaves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The address of the first instruction.
    pub start: u64,
    /// The end of the last instruction.
    pub end: u64,
    /// The address of the last instruction.
    pub last: u64,
    /// The number of instructions.
    pub count: u32,
    /// The branch at its end: one of [`hodo_native_runtime::wire::exit`]. `NONE`: the next span follows in the path.
    pub kind: u8,
    /// Where it leads. 0 if only the next item says it: indirect branches and returns at the end of a path.
    pub target: u64,
}

/// What one entry of a log stands for: instructions from the begin of a block to an exit.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    /// All spans but the last.
    pub spans: &'a [Span],
    /// The last span, which ends at the exit.
    pub last: Span,
    /// The number of instructions.
    pub instructions: u64,
    /// The time-stamp counter when its code was translated, if that is in no file; 0 otherwise.
    pub since: u64,
    /// The numbers of the conditional branches within its spans, from 1, which were not taken. A branch at the
    /// path's end is not among them: it is that of the last span.
    pub not_taken: &'a [u16],
}

/// Code that is in no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The time-stamp counter when it was first translated.
    pub tsc: u64,
    /// Where it is.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Executable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The time-stamp counter when it was mapped.
    pub tsc: u64,
    /// Its address.
    pub address: u64,
    /// Its length.
    pub length: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// `PROT_*`.
    pub protection: u64,
    /// The file's name; empty for memory without a file, in brackets for the kernel's.
    pub name: Vec<u8>,
}

/// Executable memory that was unmapped, or whose code was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmap {
    /// The time-stamp counter.
    pub tsc: u64,
    /// Its address.
    pub address: u64,
    /// Its length.
    pub length: u64,
    /// Only the code was replaced; the mapping stays.
    pub replaced: bool,
}

/// The name that a thread gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The time-stamp counter.
    pub tsc: u64,
    /// ID of the thread in the system.
    pub thread: u64,
    /// The name.
    pub name: Vec<u8>,
}

/// What was refused or not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The time-stamp counter.
    pub tsc: u64,
    /// One of [`hodo_native_runtime::wire::note`].
    pub note: u32,
    /// An address or number that belongs to it.
    pub value: u64,
}

/// What an exit stands for, without its path.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The number of instructions before the exit.
    pub instructions: u64,
    /// Where it leads; 0 if only the next entry says it.
    pub target: u64,
    /// The digest of the addresses of the instructions.
    pub digest: Digest,
}

/// The first instructions of a block.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Their path; `None` if there are none.
    pub path: Option<Path<'a>>,
    /// The digest of their addresses.
    pub digest: Digest,
    /// The address of the next instruction.
    pub next: u64,
}

#[derive(Clone, Copy, Debug)]
struct ExitEntry {
    block: u32,
    instructions: u16,
    kind: u8,
    target: u64,
    /// The index of the span that ends at the exit, within the block's.
    span: u16,
    /// The address of the last instruction.
    last: u64,
    /// The end of the last instruction.
    end: u64,
    /// The number of instructions up to the exit within that span.
    in_span: u16,
    /// The digest up to the last instruction.
    digest: Digest,
}

/// What a path of a block consists of if it ends after a certain instruction; see [`ExitEntry`].
#[derive(Clone, Copy)]
struct InstructionEnd {
    span: u16,
    in_span: u16,
    last: u64,
    end: u64,
    digest: Digest,
}

#[derive(Clone, Debug)]
struct BlockEntry {
    pc: u64,
    spans: u32,
    /// The lengths of its instructions begin here.
    lengths: u32,
    instructions: u16,
    /// Its conditional branches that are not taken within it begin here.
    not_taken: u32,
    not_taken_count: u32,
    /// See [`Path::since`].
    since: u64,
}

/// The table of a process.
#[derive(Clone, Debug, Default)]
pub struct Table {
    exits: Vec<Option<ExitEntry>>,
    blocks: Vec<BlockEntry>,
    spans: Vec<Span>,
    lengths: Vec<u8>,
    not_taken: Vec<u16>,
    traces: usize,
    /// Executable memory, in order of time.
    pub maps: Vec<Map>,
    /// Memory that was unmapped or replaced, in order of time.
    pub unmaps: Vec<Unmap>,
    /// Notes, in order of time.
    pub notes: Vec<Note>,
    /// Generated code, in order of time.
    pub code: Vec<Code>,
    /// Names of threads, in order of time.
    pub names: Vec<Name>,
    /// The time-stamp counter of its first record.
    pub begin: u64,
    /// ID of the process in the system.
    pub pid: u64,
    /// The process that it is a copy of.
    pub parent: Option<Parent>,
    /// Only selected code is recorded.
    selected: bool,
    /// Exits below this number are the parent's.
    inherited: u32,
    /// The length of the chain of copies that leads to this process.
    depth: u32,
}

/// The most copies of copies.
const DEEPEST: u32 = 1000;

/// The process that another one is a copy of: all of its blocks, mappings and code before the copy was made.
#[derive(Clone, Debug)]
pub struct Parent {
    /// Its key.
    pub key: u64,
    /// The time-stamp counter when the copy was made.
    pub tsc: u64,
    /// Its table.
    pub table: Arc<Table>,
}

/// A record's words.
struct Words<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Words<'a> {
    fn long(&mut self) -> Option<u64> {
        let bytes = self.bytes.get(self.position..self.position + 8)?;
        self.position += 8;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.position..self.position.checked_add(length)?)?;
        self.position += length;
        Some(bytes)
    }

    fn pad(&mut self) {
        self.position = self.position.next_multiple_of(8);
    }
}

impl Path<'_> {
    /// All spans, in order.
    pub fn all(&self) -> impl Iterator<Item = Span> {
        self.spans.iter().copied().chain([self.last])
    }
}

impl Table {
    /// Reads the parts of a table up to the first that is damaged; `others` are the tables of processes that started before.
    pub(crate) fn read(
        parts: &mut [&Block<'_>],
        others: &FxHashMap<u64, Arc<Table>>,
    ) -> (Table, Option<FileError>) {
        parts.sort_by_key(|block| block.header.sequence);
        let mut table = Table::default();
        for part in parts {
            let bytes = match part.content() {
                Ok(bytes) => bytes,
                Err(error) => return (table, Some(error)),
            };
            if table.extend(&bytes, &|key| others.get(&key).cloned()) != bytes.len() {
                return (table, Some(FileError::Damaged(part.offset)));
            }
        }
        (table, None)
    }

    /// Adds records, up to the first that is damaged or not complete; returns their length. `others` returns the tables of
    /// processes that started before.
    pub fn extend(&mut self, bytes: &[u8], others: &dyn Fn(u64) -> Option<Arc<Table>>) -> usize {
        let mut read = 0;
        while let Some(length) = self.next_record(&bytes[read..], others) {
            read += length;
        }
        read
    }

    fn next_record(&mut self, bytes: &[u8], others: &dyn Fn(u64) -> Option<Arc<Table>>) -> Option<usize> {
        let head = u64::from_le_bytes(*bytes.first_chunk()?);
        let length = head as u32 as usize;
        if length < 16 || !length.is_multiple_of(8) {
            return None;
        }
        let mut words = Words { bytes: bytes.get(..length)?, position: 8 };
        self.record((head >> 32) as u32, &mut words, others)?;
        Some(length)
    }

    fn record(
        &mut self,
        kind: u32,
        words: &mut Words<'_>,
        others: &dyn Fn(u64) -> Option<Arc<Table>>,
    ) -> Option<()> {
        let tsc = words.long()?;
        if self.begin == 0 {
            self.begin = tsc;
        }
        match kind {
            record::BLOCK => self.block(tsc, words)?,
            record::MAP => {
                let (address, length, offset) = (words.long()?, words.long()?, words.long()?);
                let (protection, name) = (words.long()?, words.long()?);
                let name = words.take(usize::try_from(name).ok()?)?.to_vec();
                // A program is mapped before it runs.
                let tsc = if self.blocks.is_empty() && self.parent.is_none() { self.begin } else { tsc };
                self.maps.push(Map { tsc, address, length, offset, protection, name });
            }
            record::UNMAP | record::REPLACED => {
                let replaced = kind == record::REPLACED;
                self.unmaps.push(Unmap { tsc, address: words.long()?, length: words.long()?, replaced });
            }
            record::FORK => {
                let (parent, exits) = (words.long()?, words.long()?);
                self.inherited = u32::try_from(exits).ok()?;
                let table = others(parent)?;
                self.depth = table.depth + 1;
                self.selected = table.selected;
                // Damaged input must not make chains that are dropped too deep.
                if self.depth > DEEPEST {
                    return None;
                }
                self.parent = Some(Parent { key: parent, tsc, table });
            }
            record::NOTE => {
                let note = Note { tsc, note: words.long()? as u32, value: words.long()? };
                self.selected |= note.note == note::UNSELECTED;
                self.notes.push(note);
            }
            // Its second word is the ID of the parent in the system.
            record::IDENTITY => (self.pid, _) = (words.long()?, words.long()?),
            record::NAME => {
                let (thread, name) = (words.long()?, words.take(16)?);
                let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                self.names.push(Name { tsc, thread, name: name[..length].to_vec() });
            }
            _ => {}
        }
        Some(())
    }

    fn block(&mut self, tsc: u64, words: &mut Words<'_>) -> Option<()> {
        let pc = words.long()?;
        let (counts, sizes) = (words.long()?, words.long()?);
        let (first, exits, instructions) = (counts >> 32, counts >> 16 & 0xffff, counts & 0xffff);
        let number = self.blocks.len() as u32;
        let mut block = BlockEntry {
            pc,
            spans: self.spans.len() as u32,
            lengths: self.lengths.len() as u32,
            instructions: instructions as u16,
            not_taken: self.not_taken.len() as u32,
            not_taken_count: 0,
            since: 0,
        };
        let mut ends = Vec::with_capacity(instructions as usize);
        let mut digest = Digest::default();
        let mut span = Span { start: pc, end: pc, last: pc, count: 0, kind: exit::NONE, target: 0 };
        let mut span_index = 0;
        for _ in 0..instructions {
            let byte = words.take(1)?[0];
            let (length, kind) = (byte & 15, byte >> 4);
            self.lengths.push(length);
            digest.push(span.end);
            span.last = span.end;
            span.end += u64::from(length);
            span.count += 1;
            let in_span = span.count as u16;
            ends.push(InstructionEnd { span: span_index, in_span, last: span.last, end: span.end, digest });
            if kind != 0 {
                let target = words.long()?;
                self.spans.push(Span { kind, target, ..span });
                span = Span { start: target, end: target, last: target, count: 0, kind: 0, target: 0 };
                span_index += 1;
            }
        }
        self.spans.push(span);
        words.pad();
        for offset in 0..exits {
            let (packed, target) = (words.long()?, words.long()?);
            let ran = (packed >> 48) as u16;
            let InstructionEnd { span, in_span, last, end, digest } =
                *ends.get(usize::from(ran).checked_sub(1)?)?;
            let kind = (packed >> 40) as u8;
            if kind == exit::TAKEN {
                self.not_taken.push(ran);
                block.not_taken_count += 1;
            }
            let entry = ExitEntry {
                block: number,
                instructions: ran,
                kind,
                target,
                span,
                last,
                end,
                in_span,
                digest,
            };
            self.set_exit(first + offset, entry)?;
        }
        self.traces += usize::from((sizes >> 32) as u32 & flag::TRACE != 0);
        if sizes as u32 != 0 && (sizes >> 32) as u32 & flag::GENERATED != 0 {
            block.since = tsc;
            let addresses: Vec<u64> = ends.iter().map(|end| end.last).collect();
            self.generated(tsc, &block, &addresses, words)?;
        }
        self.blocks.push(block);
        Some(())
    }

    fn set_exit(&mut self, number: u64, entry: ExitEntry) -> Option<()> {
        const MOST: usize = 1 << 29;
        let own = number.checked_sub(self.inherited.into())?;
        let index = usize::try_from(own).ok().filter(|&index| index < MOST)?;
        // Numbers grow with few gaps, so the memory is bounded by the input.
        if index > self.exits.len() + 1024 {
            return None;
        }
        if index >= self.exits.len() {
            self.exits.resize(index + 1, None);
        }
        self.exits[index] = Some(entry);
        Some(())
    }

    /// Joins the bytes of instructions that lie one after another.
    fn generated(
        &mut self,
        tsc: u64,
        block: &BlockEntry,
        addresses: &[u64],
        words: &mut Words<'_>,
    ) -> Option<()> {
        for (index, &address) in addresses.iter().enumerate() {
            let length = *self.lengths.get(block.lengths as usize + index)?;
            let bytes = words.take(length.into())?;
            match self.code.last_mut() {
                Some(code) if index != 0 && code.address + code.bytes.len() as u64 == address => {
                    code.bytes.extend(bytes);
                }
                _ => self.code.push(Code { tsc, address, bytes: bytes.to_vec() }),
            }
        }
        Some(())
    }

    /// The number of blocks that were made of hot paths.
    pub fn traces(&self) -> usize {
        self.traces
    }

    /// The number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The table that has an exit: this one, or that of a process that it is a copy of.
    #[inline]
    fn home(&self, exit: u32) -> &Table {
        let mut table = self;
        while exit < table.inherited {
            match &table.parent {
                Some(parent) => table = &parent.table,
                None => break,
            }
        }
        table
    }

    #[inline]
    fn entry(&self, exit: u32) -> Option<&ExitEntry> {
        self.exits.get(exit.checked_sub(self.inherited)? as usize)?.as_ref()
    }

    /// The path that an exit stands for. `None` if there is no such exit.
    #[inline]
    pub fn path(&self, exit: u32) -> Option<Path<'_>> {
        let home = self.home(exit);
        let entry = home.entry(exit)?;
        let first = home.blocks[entry.block as usize].spans as usize;
        let last = home.spans[first + usize::from(entry.span)];
        let ends_with_branch = matches!(entry.kind, exit::TAKEN | exit::NOT_TAKEN);
        let not_taken = home.not_taken(entry.block, entry.instructions - u16::from(ends_with_branch));
        // A path may end behind a branch that leads on within its block.
        let leads_on = entry.kind == exit::NONE && u32::from(entry.in_span) == last.count;
        let (kind, target) = if leads_on && last.kind != exit::NONE {
            (last.kind, last.target)
        } else {
            (entry.kind, entry.target)
        };
        Some(Path {
            spans: &home.spans[first..first + usize::from(entry.span)],
            last: Span {
                end: entry.end,
                last: entry.last,
                count: entry.in_span.into(),
                kind,
                target,
                ..last
            },
            instructions: entry.instructions.into(),
            since: home.blocks[entry.block as usize].since,
            not_taken,
        })
    }

    /// The conditional branches of a block, up to an instruction, that are not taken within it.
    fn not_taken(&self, block: u32, most: u16) -> &[u16] {
        let block = &self.blocks[block as usize];
        let all = &self.not_taken[block.not_taken as usize..][..block.not_taken_count as usize];
        &all[..all.partition_point(|&number| number <= most)]
    }

    /// Where the block of an exit begins.
    #[inline]
    pub fn start(&self, exit: u32) -> Option<u64> {
        let home = self.home(exit);
        Some(home.blocks[home.entry(exit)?.block as usize].pc)
    }

    /// What an exit stands for. `None` if there is no such exit.
    #[inline]
    pub fn summary(&self, exit: u32) -> Option<Summary> {
        let entry = self.home(exit).entry(exit)?;
        Some(Summary { instructions: entry.instructions.into(), target: entry.target, digest: entry.digest })
    }

    /// Whether only selected code is recorded.
    pub fn is_of_selection(&self) -> bool {
        self.selected
    }

    /// The first `count` instructions of the block of an exit. `None` if it has fewer.
    pub fn part(&self, exit: u32, count: u32) -> Option<Part<'_>> {
        let home = self.home(exit);
        let block = &home.blocks[home.entry(exit)?.block as usize];
        if count > u32::from(block.instructions) {
            return None;
        }
        let mut digest = Digest::default();
        let mut left = count;
        let mut lengths = home.lengths[block.lengths as usize..].iter();
        for (index, span) in home.spans[block.spans as usize..].iter().enumerate() {
            let ran = span.count.min(left);
            let mut address = span.start;
            let mut last = address;
            for _ in 0..ran {
                digest.push(address);
                last = address;
                address += u64::from(*lengths.next()?);
            }
            left -= ran;
            if left == 0 {
                let whole = ran == span.count && span.kind != 0;
                let next = if whole { span.target } else { address };
                let first = block.spans as usize;
                let cut = if whole {
                    *span
                } else {
                    Span { end: address, last, count: ran, kind: 0, target: 0, ..*span }
                };
                let spans = &home.spans[first..first + index];
                let not_taken = home.not_taken(home.entry(exit)?.block, count as u16);
                let instructions = count.into();
                let path = Path { spans, last: cut, instructions, since: block.since, not_taken };
                return Some(Part { path: (count != 0).then_some(path), digest, next });
            }
        }
        None
    }
}

//! Records of the process: blocks, mappings and what was refused. See [`crate::wire`].

use core::sync::atomic::{
    Ordering::{Relaxed, Release},
    compiler_fence,
};

use crate::{
    context::Context,
    link, log, raw, regions,
    state::{BLOCKS, EXITS, RECORD_HEAP, STEPS, TABLE_SLOT, block_flag},
    sys,
    wire::{flag, record},
};

/// A record that is composed in the process's memory.
struct Record {
    length: u64,
}

impl Record {
    fn begin(kind: u32) -> Record {
        let mut record = Record { length: 0 };
        record.long(u64::from(kind) << 32);
        record.long(sys::tsc());
        record
    }

    fn byte(&mut self, value: u8) {
        raw::write(RECORD_HEAP + self.length, value);
        self.length += 1;
    }

    fn long(&mut self, value: u64) {
        raw::write(RECORD_HEAP + self.length, value);
        self.length += 8;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        raw::write_bytes(RECORD_HEAP + self.length, bytes);
        self.length += bytes.len() as u64;
    }

    fn pad(&mut self) {
        while self.length & 7 != 0 {
            self.byte(0);
        }
    }

    /// Appends the record to the process's table.
    fn end(mut self) {
        self.pad();
        let head: u64 = raw::read(RECORD_HEAP);
        raw::write(RECORD_HEAP, head | self.length);
        let slot: &Context = raw::shared(TABLE_SLOT.load(Relaxed));
        if slot.pointer.get() + self.length > slot.log_end() {
            log::flush(slot);
        }
        raw::write_bytes(slot.pointer.get(), raw::bytes(RECORD_HEAP, self.length as usize));
        // The recorder reads as far as the pointer at any time.
        compiler_fence(Release);
        slot.pointer.set(slot.pointer.get() + self.length);
    }
}

/// Records a block.
pub fn block(number: u32) {
    let block = BLOCKS.get(number);
    let generated = regions::generated(block.pc);
    let count = u32::from(block.instructions);
    let length: u32 = (0..count).map(|index| u32::from(STEPS.get(block.steps + index).length)).sum();
    let flags = if generated { flag::GENERATED } else { 0 }
        | if block.flags & block_flag::TRACE != 0 { flag::TRACE } else { 0 };
    let mut record = Record::begin(record::BLOCK);
    record.long(block.pc);
    record.long(
        u64::from(block.first_exit) << 32 | u64::from(block.exits) << 16 | u64::from(block.instructions),
    );
    record.long(u64::from(flags) << 32 | u64::from(if generated { length } else { 0 }));
    for index in 0..count {
        let step = STEPS.get(block.steps + index);
        record.byte(step.length | step.kind << 4);
        if step.kind != 0 {
            record.long(step.next);
        }
    }
    record.pad();
    for index in 0..u32::from(block.exits) {
        let exit = EXITS.get(block.first_exit + index);
        record.long(u64::from(exit.instructions) << 48 | u64::from(exit.kind) << 40);
        record.long(exit.target);
    }
    if generated {
        for index in 0..count {
            let pc = link::address_of(&block, index);
            let length = u64::from(STEPS.get(block.steps + index).length);
            raw::copy(RECORD_HEAP + record.length, pc, length);
            record.length += length;
        }
    }
    record.end();
}

fn words(kind: u32, words: &[u64]) {
    let mut record = Record::begin(kind);
    for &word in words {
        record.long(word);
    }
    record.end();
}

/// Records a mapping and its file's name.
pub fn map(address: u64, length: u64, offset: u64, protection: u64, name: &[u8]) {
    crate::select::mapped(address, length, offset, name);
    let mut record = Record::begin(record::MAP);
    for word in [address, length, offset, protection, name.len() as u64] {
        record.long(word);
    }
    record.bytes(name);
    record.end();
}

/// Records that memory was unmapped.
pub fn unmap(address: u64, length: u64) {
    crate::select::unmapped(address, address + length);
    words(record::UNMAP, &[address, length]);
}

/// Records that code was replaced.
pub fn replaced(address: u64, length: u64) {
    words(record::REPLACED, &[address, length]);
}

/// Records what was refused, or could not be recorded.
pub fn note(note: u32, value: u64) {
    words(record::NOTE, &[u64::from(note), value]);
}

/// Records which process this is.
pub fn identity(process: u64, parent: u64) {
    words(record::IDENTITY, &[process, parent]);
}

/// Records that this table continues another one.
pub fn fork(parent: u64, exits: u32) {
    words(record::FORK, &[parent, u64::from(exits)]);
}

/// Records the name of the calling thread.
pub fn name(thread: u32) {
    let name = own_name();
    words(record::NAME, &[thread.into(), name[0], name[1]]);
}

/// The name of the calling thread.
pub fn own_name() -> [u64; 2] {
    const GET_NAME: u64 = 16;
    let mut name = [0u64; 2];
    sys::call3(sys::nr::PRCTL, GET_NAME, name.as_mut_ptr() as u64, 0);
    name
}

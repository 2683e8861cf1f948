//! Writes machine code into a cache.

use crate::{
    context::offset,
    layout::{TARGETS, TO_PRIVATE},
    processor, raw, targets,
};

/// The number of `rcx`, which stubs borrow.
pub const RCX: u8 = 1;
/// The number of `rdx`, which stubs borrow.
pub const RDX: u8 = 2;

/// A position in a cache where code is written.
pub struct Emitter {
    /// The address of the next byte.
    pub address: u64,
    /// The end of the room. Beyond it nothing is written, and `full` is set.
    pub limit: u64,
    /// Whether something had no room.
    pub full: bool,
}

/// Values of `reload` in [`Emitter::log`]: `rcx` is loaded again, or left as it is.
pub const RELOAD: bool = true;
/// See [`RELOAD`].
pub const LEAVE: bool = false;

impl Emitter {
    /// Writes bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        if self.address + bytes.len() as u64 > self.limit {
            self.full = true;
            return;
        }
        raw::write_bytes(self.address, bytes);
        self.address += bytes.len() as u64;
    }

    /// Writes 32 bits.
    pub fn word(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes 64 bits.
    pub fn long(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Fills with no-operations until the address after `distance` bytes is a multiple of `alignment`.
    pub fn align(&mut self, distance: u64, alignment: u64) {
        const NOPS: [&[u8]; 8] = [
            &[],
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        ];
        let missing = (self.address + distance).wrapping_neg() & (alignment - 1);
        self.bytes(NOPS[(missing & 7) as usize]);
    }

    /// `mov` from or to a register: `opcode gs:[offset], register`.
    fn gs(&mut self, opcode: u8, register: u8, offset: u32) {
        self.bytes(&[0x65, 0x48 | (register >> 3) << 2, opcode, (register & 7) << 3 | 4, 0x25]);
        self.word(offset);
    }

    /// Stores a register in the context.
    pub fn save(&mut self, register: u8, offset: u32) {
        self.gs(0x89, register, offset);
    }

    /// Loads a register from the context.
    pub fn load(&mut self, register: u8, offset: u32) {
        self.gs(0x8b, register, offset);
    }

    /// `jmp` to an address within reach, whose displacement can be replaced in one store.
    pub fn patchable_jump(&mut self, to: u64) -> u64 {
        self.align(1, 4);
        let site = self.address;
        self.jump(to);
        site
    }

    /// `jmp` to an address within reach.
    pub fn jump(&mut self, to: u64) {
        let from = self.address + 5;
        self.bytes(&[0xe9]);
        self.word(to.wrapping_sub(from) as u32);
    }

    /// Writes the number of an exit to the log. `register` is free; without one, `rcx` is saved first, and loaded again
    /// if `reload`. Returns where the sequence that may fault or be interrupted begins.
    pub fn log(&mut self, number: u32, register: Option<u8>, reload: bool) -> u64 {
        let r = register.unwrap_or(RCX);
        if register.is_none() {
            self.save(RCX, offset::SAVED_RCX);
        }
        let begin = self.address;
        self.load(r, offset::POINTER);
        self.store_number(number, r);
        // lea r, [r+4]
        let rex = if r >= 8 { 0x4d } else { 0x48 };
        self.bytes(&[rex, 0x8d, 0x40 | (r & 7) << 3 | (r & 7), 4]);
        self.save(r, offset::POINTER);
        if register.is_none() && reload {
            self.load(RCX, offset::SAVED_RCX);
        }
        begin
    }

    /// As [`Emitter::log`], without an entry: only a waiting signal makes the write fault.
    pub fn silent(&mut self, number: u32, register: Option<u8>, reload: bool) -> u64 {
        let r = register.unwrap_or(RCX);
        if register.is_none() {
            self.save(RCX, offset::SAVED_RCX);
        }
        let begin = self.address;
        self.load(r, core::mem::offset_of!(crate::context::Context, silent) as u32);
        self.store_number(number, r);
        if register.is_none() && reload {
            self.load(RCX, offset::SAVED_RCX);
        }
        begin
    }

    /// `mov dword [r], number`.
    fn store_number(&mut self, number: u32, r: u8) {
        if r >= 8 {
            self.bytes(&[0x41]);
        }
        match r & 7 {
            // `rbp` and `r13` have no form without a displacement.
            5 => self.bytes(&[0xc7, 0x45, 0]),
            low => self.bytes(&[0xc7, low]),
        }
        self.word(number);
    }

    /// Jumps to where the table of targets leads for the target in `rcx`, which is stored first.
    pub fn jump_by_table(&mut self) {
        self.save(RDX, offset::SAVED_RDX);
        self.index_of_target();
        // jmp gs:[rdx*8 + table]
        self.bytes(&[0x65, 0xff, 0x24, 0xd5]);
        self.word((TO_PRIVATE + TARGETS) as u32);
    }

    /// Returns to where the table of targets leads for the return address on the stack.
    pub fn return_by_table(&mut self, pops: u16) {
        // mov rcx, [rsp]
        self.bytes(&[0x48, 0x8b, 0x0c, 0x24]);
        self.save(RCX, offset::TARGET);
        self.save(RDX, offset::SAVED_RDX);
        self.index_of_target();
        // mov rdx, gs:[rdx*8 + table]
        self.bytes(&[0x65, 0x48, 0x8b, 0x14, 0xd5]);
        self.word((TO_PRIVATE + TARGETS) as u32);
        // mov [rsp], rdx; ret
        self.bytes(&[0x48, 0x89, 0x14, 0x24]);
        self.ret(pops);
    }

    /// Loads `rdx` with the index in the table of targets of the target in `rcx`, without flags.
    fn index_of_target(&mut self) {
        if processor::has_rotation() {
            // rorx edx, ecx, ROTATION; movzx edx, dx
            self.bytes(&[0xc4, 0xe3, 0x7b, 0xf0, 0xd1, targets::ROTATION as u8, 0x0f, 0xb7, 0xd2]);
        } else {
            // movzx edx, cx
            self.bytes(&[0x0f, 0xb7, 0xd1]);
        }
    }

    fn ret(&mut self, pops: u16) {
        if pops == 0 {
            self.bytes(&[0xc3]);
        } else {
            let [low, high] = pops.to_le_bytes();
            self.bytes(&[0xc2, low, high]);
        }
    }

    /// The begin of a landing: continues if `rcx` is `pc`, with `rcx` and `rdx` loaded again; otherwise jumps to `miss`.
    /// Needs no flags.
    pub fn landing(&mut self, pc: u64, miss: u64) {
        // mov rdx, -pc; lea rcx, [rcx+rdx]; jrcxz over the jump
        self.bytes(&[0x48, 0xba]);
        self.long(pc.wrapping_neg());
        self.bytes(&[0x48, 0x8d, 0x0c, 0x11, 0xe3, 5]);
        self.jump(miss);
        self.load(RDX, offset::SAVED_RDX);
        self.load(RCX, offset::SAVED_RCX);
    }
}

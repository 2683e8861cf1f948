//! Makes superblocks: a path of the program's code with one entry and many exits, each of which writes its number.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{
    cache::{self, CACHES, Cache},
    context::offset,
    decode::{Flow, Instruction, LONGEST, decode},
    effect::dead_register,
    emit::{Emitter, LEAVE, RCX, RELOAD},
    link, pages, processor,
    raw::{self, bytes},
    regions, select,
    state::{
        BLOCK_AT, BLOCKS, BY_CACHE, BY_CACHE_ROOM, Block, EXITS, Exit, LINKS, Link, NEXT_BLOCK, NEXT_EXIT,
        NEXT_LINK, NEXT_STEP, SILENT_CALL, SPILLED, STEPS, Step, USED, block_flag, take,
    },
    table,
    wire::exit,
};

/// The most instructions of a superblock.
const MOST: u32 = 160;
/// The most side exits.
pub(crate) const SIDES: usize = 64;
/// The most calls within calls of a hot path.
pub(crate) const DEPTH: usize = 16;
/// The most bytes of one piece of code that are read at a time.
const WINDOW: usize = 128;
/// Bit of a link's number in the entry for system calls.
pub const CALL_BIT: u32 = 1 << 30;

/// Bit of a link's number in the entry for far returns.
pub const FAR_BIT: u32 = 1 << 29;

/// The number of branches in a first translation; the recorder sets it.
pub static BRANCHES: AtomicU32 = AtomicU32::new(2);

/// Bytes of the program's code.
pub struct Window {
    start: u64,
    length: usize,
    bytes: [u8; WINDOW],
}

impl Default for Window {
    fn default() -> Window {
        Window::new()
    }
}

impl Window {
    /// Nothing is read yet.
    pub const fn new() -> Window {
        Window { start: 0, length: 0, bytes: [0; WINDOW] }
    }

    /// The bytes from `pc` on, at least those of one instruction if memory is executable so far.
    pub fn from(&mut self, pc: u64) -> &[u8] {
        let inside = pc.wrapping_sub(self.start);
        if inside >= self.length as u64 || (self.length as u64 - inside) < LONGEST as u64 {
            let room = regions::executable_from(pc).min(WINDOW as u64);
            let missing = raw::copy(self.bytes.as_mut_ptr() as u64, pc, room);
            (self.start, self.length) = (pc, (room - missing) as usize);
        }
        &self.bytes[(pc - self.start) as usize..self.length]
    }
}

/// An instruction of a hot path, and the address that follows in the path.
#[derive(Clone, Copy)]
pub struct Planned {
    /// Its address.
    pub pc: u64,
    /// Where the path goes on.
    pub next: u64,
}

/// What a side exit does after its entry in the log.
#[derive(Clone, Copy, Default)]
pub(crate) enum Way {
    /// Continues at the target.
    #[default]
    Direct,
    /// Repeats an indirect jump, whose target is in the context.
    Jump,
    /// Repeats an indirect call of the instruction at this address with this length.
    Call(u64, u8),
    /// Repeats a return.
    Return(u16),
}

/// A side exit that is emitted after the path.
#[derive(Clone, Copy, Default)]
pub(crate) struct Side {
    /// Where the displacement of the jump to it is.
    pub(crate) jump: u64,
    pub(crate) target: u64,
    /// The number of the exit.
    pub(crate) number: u32,
    pub(crate) way: Way,
}

/// A superblock in the making.
pub struct Builder {
    pub(crate) emitter: Emitter,
    pub(crate) cache: Cache,
    pub(crate) window: Window,
    pub(crate) block: u32,
    pub(crate) begin: u64,
    pub(crate) first_exit: u32,
    pub(crate) first_step: u32,
    pub(crate) instructions: u16,
    pub(crate) branches: u32,
    pub(crate) sides: [Side; SIDES],
    pub(crate) side_count: usize,
    /// Addresses to which the path led.
    pub(crate) seen: [u64; SIDES],
    pub(crate) seen_count: usize,
    /// Whether its code is in a file, so that it does not change.
    pub(crate) stable: bool,
    /// Return addresses of calls that the path contains whole.
    pub(crate) calls: [u64; DEPTH],
    pub(crate) depth: usize,
    /// Whether its exits are not logged.
    pub(crate) silent: bool,
}

/// The block that begins at `pc`: an existing one, or a new one. `None` if no code is there, or no room is left.
pub fn block_at(pc: u64) -> Option<u32> {
    match BLOCK_AT.get(pc) {
        0 => translate(pc, MOST, IsFound::Yes),
        found => Some(found as u32),
    }
}

/// Translates the instruction at `pc` alone, for one execution.
pub fn translate_alone(pc: u64) -> Option<u32> {
    translate(pc, 1, IsFound::No)
}

/// Whether a block is found by its address, so that others may continue there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsFound {
    Yes,
    No,
}

/// Translates code at `pc`, at most `most` instructions.
fn translate(pc: u64, most: u32, is_found: IsFound) -> Option<u32> {
    let found = is_found == IsFound::Yes;
    if regions::executable_from(pc) == 0 || no_room() {
        return None;
    }
    let number = cache::near(pc)?;
    let mut builder = Builder::new(pc, CACHES.get(number));
    if builder.window.from(pc).is_empty() {
        return None;
    }
    if found {
        BLOCK_AT.set(pc, u64::from(builder.block));
        let block = Block { pc, cache: builder.begin, flags: block_flag::FOUND, ..EMPTY };
        BLOCKS.set(builder.block, block);
    }
    builder.run(pc, most);
    builder.finish(pc, number, is_found);
    let block = builder.block;
    if found {
        pages::register(block);
    }
    Some(block)
}

/// A block for the instruction at `pc` that raises the signal of an unknown one.
pub fn refused(pc: u64) -> Option<u32> {
    let number = cache::near(pc)?;
    let mut builder = Builder::new(pc, CACHES.get(number));
    builder.undecodable(pc);
    builder.emit_sides();
    builder.finish(pc, number, IsFound::No);
    Some(builder.block)
}

/// Translates the planned path that begins at `pc`.
pub fn translate_path(pc: u64, steps: u32) -> Option<u32> {
    if no_room() {
        return None;
    }
    let number = cache::near(pc)?;
    let mut builder = Builder::new(pc, CACHES.get(number));
    builder.follow(steps);
    BLOCKS.set(builder.block, Block { pc, flags: block_flag::TRACE, ..EMPTY });
    builder.finish(pc, number, IsFound::Yes);
    pages::register(builder.block);
    Some(builder.block)
}

/// Replaces a block by the planned path. Returns whether that was done.
pub fn trace(head: u32, steps: u32) -> bool {
    crate::guided::replace(head, steps)
}

const EMPTY: Block = Block {
    pc: 0,
    cache: 0,
    prologue: 0,
    cache_length: 0,
    first_exit: 0,
    steps: 0,
    incoming: 0,
    exits: 0,
    instructions: 0,
    flags: 0,
};

fn no_room() -> bool {
    crate::flush::exceeds(0)
}

impl Builder {
    fn new(pc: u64, cache: Cache) -> Builder {
        let begin = (cache.free + 15) & !15;
        let block = take(&NEXT_BLOCK);
        BLOCKS.set(block, Block { pc, ..EMPTY });
        Builder {
            emitter: Emitter { address: begin, limit: cache.cold, full: false },
            cache,
            window: Window::new(),
            block,
            begin,
            first_exit: NEXT_EXIT.load(Relaxed),
            first_step: NEXT_STEP.load(Relaxed),
            instructions: 0,
            branches: 0,
            sides: [Side::default(); SIDES],
            side_count: 0,
            seen: [pc; SIDES],
            seen_count: 1,
            stable: !regions::generated(pc),
            calls: [0; DEPTH],
            depth: 0,
            silent: !select::contains(pc),
        }
    }

    /// Emits the path from `pc` on, then the side exits.
    fn run(&mut self, mut pc: u64, most: u32) {
        loop {
            let mut code = [0; LONGEST];
            let there = self.window.from(pc);
            let length = there.len().min(LONGEST);
            code[..length].copy_from_slice(&there[..length]);
            let Some(instruction) = decode(&code[..length], pc) else {
                self.undecodable(pc);
                break;
            };
            let leaves_selection = self.instructions != 0 && select::contains(pc) == self.silent;
            // An instruction adds one side exit at most.
            if leaves_selection || u32::from(self.instructions) >= most || self.side_count == SIDES {
                self.leave(exit::NONE, pc);
                break;
            }
            let begin = self.emitter.address;
            let next = pc.wrapping_add(u64::from(instruction.length));
            self.instructions += 1;
            let continues = self.instruction(&instruction, &code[..instruction.length as usize], pc);
            let (kind, to) = continues.unwrap_or((exit::NONE, next));
            let cached = (self.emitter.address - begin) as u16;
            STEPS.set(take(&NEXT_STEP), Step { next: to, length: instruction.length, kind, cached });
            match continues {
                Some(_) => pc = to,
                None => break,
            }
        }
        self.emit_sides();
    }

    /// Emits an instruction. Returns the kind of branch and the address where the path continues, if it does.
    pub(crate) fn instruction(
        &mut self,
        instruction: &Instruction,
        code: &[u8],
        pc: u64,
    ) -> Option<(u8, u64)> {
        let next = pc.wrapping_add(u64::from(instruction.length));
        match instruction.flow {
            Flow::Next => {
                self.copy(instruction, code, pc);
                Some((exit::NONE, next))
            }
            Flow::Jump(target) => self.go_on(exit::JUMP, target),
            Flow::Conditional(condition, target) => self.conditional(condition, target, next),
            Flow::Counted(target) => {
                self.counted(instruction, code, target, next);
                None
            }
            Flow::Call(target) => {
                let register = self.dead_at(target);
                let number = self.exit(exit::CALL, target);
                self.log(number, register, RELOAD);
                self.call(pc, next, Some(target));
                None
            }
            Flow::CallIndirect | Flow::JumpIndirect => {
                let is_call = instruction.flow == Flow::CallIndirect;
                let number = self.exit(if is_call { exit::CALL_INDIRECT } else { exit::JUMP_INDIRECT }, 0);
                self.log(number, None, RELOAD);
                self.operand(instruction, code, pc);
                self.emitter.save(RCX, offset::TARGET);
                if is_call {
                    self.call(pc, next, None)
                } else {
                    self.emitter.jump_by_table()
                }
                None
            }
            Flow::Return(pops) => {
                let number = self.exit(exit::RETURN, 0);
                self.log(number, None, LEAVE);
                self.emitter.return_by_table(pops);
                None
            }
            Flow::Syscall => {
                let number = self.exit(exit::SYSCALL, next);
                self.log(number, None, LEAVE);
                self.enter_runtime(pc, next, CALL_BIT);
                None
            }
            Flow::Far => {
                self.far(instruction, code, pc);
                None
            }
            Flow::Transaction(target) if processor::has_transactions() => {
                // Its abort path: mov eax, 0
                self.emitter.bytes(&[0xb8, 0, 0, 0, 0]);
                self.go_on(exit::JUMP, target)
            }
            Flow::Transaction(_) => {
                // The processor does not know it.
                self.emitter.bytes(code);
                self.leave(exit::FAR, next);
                None
            }
        }
    }

    fn far(&mut self, instruction: &Instruction, code: &[u8], pc: u64) {
        let next = pc.wrapping_add(u64::from(instruction.length));
        match (instruction.map, instruction.opcode) {
            // The processor refuses what is not for programs.
            (0, 0xcd | 0xf4) | (1, 0x07 | 0x35) => self.emitter.bytes(code),
            (0, 0xca | 0xcb | 0xcf) => {
                let number = self.exit(exit::FAR_RETURN, 0);
                self.log(number, None, LEAVE);
                return self.enter_runtime(pc, next, FAR_BIT);
            }
            _ => {
                table::note(crate::wire::note::INSTRUCTION, pc);
                self.refuse();
            }
        }
        self.leave(exit::FAR, next);
    }

    /// The path goes on at `target`, unless it was there before.
    fn go_on(&mut self, kind: u8, target: u64) -> Option<(u8, u64)> {
        if self.seen[..self.seen_count].contains(&target) || self.branches >= BRANCHES.load(Relaxed) {
            self.leave(kind, target);
            return None;
        }
        self.seen[self.seen_count] = target;
        self.seen_count = (self.seen_count + 1).min(SIDES - 1);
        Some((kind, target))
    }

    /// Backward branches are likely taken, forward branches not.
    fn conditional(&mut self, condition: u8, target: u64, next: u64) -> Option<(u8, u64)> {
        self.branches += 1;
        let seen = self.seen[..self.seen_count].contains(&target);
        if target < next && !seen && self.branches < BRANCHES.load(Relaxed) {
            self.side(condition ^ 1, exit::NOT_TAKEN, next);
            return self.go_on(exit::TAKEN, target);
        }
        self.side(condition, exit::TAKEN, target);
        if self.branches >= BRANCHES.load(Relaxed) {
            self.leave(exit::NOT_TAKEN, next);
            return None;
        }
        Some((exit::NONE, next))
    }

    /// Emits a conditional branch to an exit that is emitted later.
    pub(crate) fn side(&mut self, condition: u8, kind: u8, target: u64) {
        let number = self.exit(kind, target);
        self.emitter.bytes(&[0x0f, 0x80 | condition]);
        let jump = self.emitter.address;
        self.emitter.word(0);
        self.sides[self.side_count] = Side { jump, target, number, way: Way::Direct };
        self.side_count += 1;
    }

    /// `LOOP` and its like have short displacements: if one is taken, it skips a jump to the other exit.
    fn counted(&mut self, instruction: &Instruction, code: &[u8], target: u64, next: u64) {
        self.branches += 1;
        let begin = self.emitter.address;
        self.emitter.bytes(code);
        let number = self.exit(exit::NOT_TAKEN, next);
        self.emitter.bytes(&[0xe9]);
        let jump = self.emitter.address;
        self.emitter.word(0);
        if !self.emitter.full {
            // The length of the jump.
            raw::write(begin + u64::from(instruction.length) - 1, 5u8);
        }
        self.sides[self.side_count] = Side { jump, target: next, number, way: Way::Direct };
        self.side_count += 1;
        self.leave(exit::TAKEN, target);
    }

    pub(crate) fn emit_sides(&mut self) {
        for n in 0..self.side_count {
            let side = self.sides[n];
            if self.emitter.full {
                return;
            }
            raw::write(side.jump, self.emitter.address.wrapping_sub(side.jump + 4) as u32);
            if !matches!(side.way, Way::Direct) {
                self.repeat(&side);
                continue;
            }
            let register = self.dead_at(side.target);
            self.log(side.number, register, RELOAD);
            self.link(side.target);
        }
    }

    /// Takes a number for an exit after the instructions so far.
    pub(crate) fn exit(&mut self, kind: u8, target: u64) -> u32 {
        let number = take(&NEXT_EXIT);
        let block = self.block;
        let instructions = self.instructions;
        EXITS.set(number, Exit { target, block, log_at: 0, instructions, kind, register: SPILLED });
        number
    }

    pub(crate) fn log(&mut self, number: u32, register: Option<u8>, reload: bool) {
        let entry = if self.silent {
            self.emitter.silent(number, register, reload)
        } else {
            self.emitter.log(number, register, reload)
        };
        let exit = EXITS.get(number);
        let log_at = (entry - self.begin) as u32;
        EXITS.set(number, Exit { log_at, register: register.unwrap_or(SPILLED), ..exit });
    }

    /// The path ends, and continues at `target`.
    pub(crate) fn leave(&mut self, kind: u8, target: u64) {
        let register = self.dead_at(target);
        let number = self.exit(kind, target);
        self.log(number, register, RELOAD);
        self.link(target);
    }

    /// A register that is free at `target`; `None` if there is none, or the code there may change.
    fn dead_at(&mut self, target: u64) -> Option<u8> {
        if !self.stable || regions::generated(target) {
            return None;
        }
        let mut window = Window::new();
        dead_register(window.from(target), target)
    }

    /// Emits a jump to the translation of `target`, which may not exist yet.
    fn link(&mut self, target: u64) {
        let number = take(&NEXT_LINK);
        let cold = cache::cold_stub(number, &mut self.cache);
        self.emitter.limit = cold;
        let site = self.emitter.patchable_jump(cold);
        LINKS.set(number, Link { site, cold, target, next: 0, linked: 0 });
        let block = BLOCK_AT.get(target);
        if block != 0 && !self.emitter.full {
            link::connect(number, block as u32);
        }
    }

    /// Emits a real call, so that the processor predicts the return; then the program's return address replaces the
    /// translated one. There is one for each call of the program.
    pub(crate) fn call(&mut self, pc: u64, next: u64, target: Option<u64>) {
        let there = link::call_at(pc);
        if there != 0 && there.abs_diff(self.emitter.address) < 1 << 30 {
            return self.emitter.jump(there);
        }
        self.emitter.align(5, 8);
        let begin = self.emitter.address;
        self.emitter.bytes(&[0xe8]);
        let over = self.emitter.address;
        self.emitter.word(0);
        let landing = self.emitter.address;
        self.emitter.landing(next, self.cache.base + cache::MISS);
        self.link(next);
        if self.emitter.full {
            return;
        }
        raw::write(over, (self.emitter.address - landing) as u32);
        // lea rsp, [rsp+8]
        self.emitter.bytes(&[0x48, 0x8d, 0x64, 0x24, 8]);
        self.push(next);
        match target {
            Some(target) => self.link(target),
            None => self.emitter.jump_by_table(),
        }
        link::set_call(pc, begin, next, landing);
    }

    /// Pushes a constant. One that the instruction has no room for lies at the end of the cache.
    pub(crate) fn push(&mut self, value: u64) {
        if value as i32 as i64 as u64 == value {
            // push value
            self.emitter.bytes(&[0x68]);
            self.emitter.word(value as u32);
            return;
        }
        let constant = cache::cold_word(value, &mut self.cache);
        self.emitter.limit = constant;
        // push [rip + distance]
        self.emitter.bytes(&[0xff, 0x35]);
        let after = self.emitter.address + 4;
        self.emitter.word(constant.wrapping_sub(after) as u32);
    }

    /// Leaves for the runtime, which does what the instruction at `pc` does.
    fn enter_runtime(&mut self, pc: u64, next: u64, bit: u32) {
        let number = take(&NEXT_LINK);
        let linked = if self.silent { SILENT_CALL } else { 0 };
        LINKS.set(number, Link { site: 0, cold: pc, target: next, next: 0, linked });
        self.emitter.bytes(&[0xb9]);
        self.emitter.word(number | bit);
        self.emitter.bytes(&[0xff, 0x25]);
        let after = self.emitter.address + 4;
        self.emitter.word(self.cache.base.wrapping_sub(after) as u32);
    }

    /// An instruction that must not run raises the signal of an unknown one.
    pub(crate) fn refuse(&mut self) {
        self.emitter.bytes(&[0x0f, 0x0b]);
    }

    /// What is no instruction raises a signal when it runs; the path before it ends.
    fn undecodable(&mut self, pc: u64) {
        if self.instructions != 0 {
            return self.leave(exit::NONE, pc);
        }
        let begin = self.emitter.address;
        self.instructions = 1;
        self.refuse();
        let cached = (self.emitter.address - begin) as u16;
        STEPS.set(take(&NEXT_STEP), Step { next: pc + 1, length: 1, kind: exit::NONE, cached });
        self.leave(exit::NONE, pc + 1);
    }

    fn finish(&mut self, pc: u64, number: u32, is_found: IsFound) {
        let old = BLOCKS.get(self.block);
        let block = Block {
            pc,
            cache: self.begin,
            cache_length: (self.emitter.address - self.begin) as u32,
            first_exit: self.first_exit,
            steps: self.first_step,
            exits: (NEXT_EXIT.load(Relaxed) - self.first_exit) as u16,
            instructions: self.instructions,
            flags: old.flags
                | if self.silent { block_flag::SILENT } else { 0 }
                | if is_found == IsFound::Yes { block_flag::FOUND } else { 0 },
            ..old
        };
        BLOCKS.set(self.block, block);
        let stubs = CACHES.get(number).cold - self.cache.cold;
        let code = self.emitter.address - self.cache.free + stubs;
        let about = size_of::<Block>() as u64
            + u64::from(block.exits) * (size_of::<Exit>() + size_of::<Link>()) as u64
            + u64::from(block.instructions) * size_of::<Step>() as u64;
        USED.fetch_add(code + about, Relaxed);
        self.cache.free = self.emitter.address;
        if self.cache.blocks < BY_CACHE_ROOM {
            BY_CACHE.set(number * BY_CACHE_ROOM + self.cache.blocks, self.block);
            self.cache.blocks += 1;
        }
        CACHES.set(number, self.cache);
        table::block(self.block);
    }
}

/// The bytes of a translation.
pub fn translation<'a>(block: &Block) -> &'a [u8] {
    bytes(block.cache, block.cache_length as usize)
}

//! Native code for blocks.
//!
//! Registers: `r8` branch outcomes, `r9` instruction count, `r10` the function run, `r11` the newest call's
//! offset in [`ReturnStack::codes`], whose low byte wraps, `rdx` the return stack, or the block's checked entry on exit before a block; `rcx` base address of the code, `rsi` the value
//! of `r8` that stops the walk at a checked entry, `rbx` the branch batch, `rdi` the [`State`].
//!
//! Code of the common path lies at the low end, block after block; exits lie at the high end.

use std::{
    io,
    mem::offset_of,
    sync::atomic::{AtomicU32, Ordering},
};

use super::{
    memory::{Memory, State},
    translate::Reference,
};
use crate::{
    BlockId, BranchBatch, CompactBlock, FunctionRun, NO_OUTCOMES, ReturnStack, Transfer, block::NOT_SEEN,
    returns::ReturnTarget,
};

// Why native code is left, in the highest bits of the returned word.

/// Before the block.
pub(super) const BEFORE: u32 = 0;
/// Behind the block, whose branch was not taken; the native code does not go on there.
pub(super) const NOT_TAKEN: u32 = 1 << 29;
/// At the target of the block's branch; the native code does not go on there.
pub(super) const TAKEN: u32 = 2 << 29;
/// At the return address of the call that was popped last, of which no native code is known.
pub(super) const LANDED: u32 = 3 << 29;
/// At the end of the block, before an indirect branch or an uncompressed return.
pub(super) const OVER: u32 = 4 << 29;
/// Mask of the reason; the other bits are the block.
pub(super) const WHY: u32 = 7 << 29;

/// Maximum code size for a block at either end, in bytes.
const MOST_BLOCK: u32 = 256;

/// An offset in the code; 0 means none.
pub(super) type CodeOffset = u32;

/// The entries into the code of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entries {
    /// Checked entry: first checks whether an outcome is left.
    pub(super) checked: CodeOffset,
    /// Unchecked entry: an outcome is known to be left.
    pub(super) body: CodeOffset,
    /// Entry for returns and indirect branches: begins a function run.
    pub(super) landing: CodeOffset,
}

/// A cached target of an indirect branch: its address, and the entry for returns of the block there.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Target {
    address: u64,
    offset: u64,
}

impl Target {
    /// The index is the top `BITS` bits of a 32-bit product of the address.
    const BITS: u32 = 12;
    const FACTOR: u32 = 0x9e37_79b1;

    const fn index(address: u64) -> usize {
        ((address as u32).wrapping_mul(Target::FACTOR) >> (u32::BITS - Target::BITS)) as usize
    }

    /// Returns an empty table: each slot holds an address that belongs in another slot.
    fn none() -> Box<[Target]> {
        const { assert!(Target::index(0) == 0 && Target::index(u64::MAX) != 0) };
        let mut all = vec![Target { address: 0, offset: 0 }; 1 << Target::BITS];
        all[0].address = u64::MAX;
        all.into_boxed_slice()
    }
}

/// Native code for some blocks of a graph.
#[derive(Debug)]
pub(crate) struct Code {
    memory: Memory,
    /// End of the code at the low end, and start of the exits at the high end.
    low: u32,
    high: u32,
    offsets: Vec<Entries>,
    enter: CodeOffset,
    exit: CodeOffset,
    /// Code that follows an indirect branch through the target cache.
    over: CodeOffset,
    /// Code that follows an uncompressed return.
    back: CodeOffset,
    targets: Box<[Target]>,
    /// A nonzero number, unique among all native code.
    generation: u32,
    /// The block of the last exit before a block, and its checked entry: the next walk mostly starts there.
    left: (BlockId, CodeOffset),
    /// The newest [jump for a branch that is not taken](Code::not_taken); 0 if it was removed.
    not_taken_jump: CodeOffset,
    /// Whether returns are compressed and take an outcome each.
    pub(super) are_returns_compressed: bool,
    /// References to code that is still to be generated.
    pub(super) references: Vec<Reference>,
    text: Vec<u8>,
}

impl Code {
    const ADDRESSES: u32 = offset_of!(ReturnStack, addresses) as u32;

    /// Allocates `size` bytes and generates the common code.
    ///
    /// # Errors
    /// As for [`Memory::new`].
    pub(super) fn new(size: usize, are_returns_compressed: bool) -> io::Result<Code> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let memory = Memory::new(size)?;
        let (high, generation) = (memory.size() as u32, NEXT.fetch_add(1, Ordering::Relaxed));
        let mut code = Code {
            memory,
            low: 1,
            high,
            offsets: Vec::new(),
            enter: 0,
            exit: 0,
            over: 0,
            back: 0,
            targets: Target::none(),
            generation,
            left: (NOT_SEEN, 0),
            not_taken_jump: 0,
            are_returns_compressed,
            references: Vec::new(),
            text: Vec::new(),
        };
        assert_eq!(code.low, ReturnTarget::UNKNOWN.code);
        code.text.extend([0xb8]); // mov eax, LANDED
        code.word(LANDED);
        code.exit = code.here();
        code.store_state();
        code.enter = code.here();
        code.load_state();
        code.over = code.here();
        code.pass_indirect();
        code.back = code.here();
        code.go_back();
        code.commit();
        Ok(code)
    }

    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Caches the return entry of a block as the target of indirect branches to `address`. Returns `false` if the
    /// block has none.
    pub(super) fn cache_target(&mut self, address: u64, id: BlockId) -> bool {
        let offset = self.offsets(id).landing;
        if offset != 0 {
            self.targets[Target::index(address)] = Target { address, offset: offset.into() };
        }
        offset != 0
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns whether there is no space for another block.
    pub(super) fn is_full(&self) -> bool {
        self.high - self.low < 2 * MOST_BLOCK
    }

    pub(super) fn size(&self) -> usize {
        self.memory.size()
    }

    #[inline]
    pub(super) fn offsets(&self, id: BlockId) -> Entries {
        self.offsets.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// Returns the checked entry of a block.
    #[inline]
    pub(super) fn checked_entry_of(&self, id: BlockId) -> CodeOffset {
        if self.left.0 == id { self.left.1 } else { self.offsets(id).checked }
    }

    /// Records that the last exit was before this block, which has this checked entry.
    #[inline]
    pub(super) fn leave_at(&mut self, id: BlockId, checked: CodeOffset) {
        self.left = (id, checked);
    }

    /// Returns the entries of a block, to be changed.
    pub(super) fn entries_of(&mut self, id: BlockId) -> &mut Entries {
        let index = id.0 as usize;
        if index >= self.offsets.len() {
            self.offsets.resize(index + 1, Entries::default());
        }
        &mut self.offsets[index]
    }

    /// Returns the address of an offset in the code.
    pub(super) fn address(&self, offset: CodeOffset) -> u64 {
        self.memory.address(offset)
    }

    /// Runs from the checked entry that `state` names. Returns the exit reason and the block.
    #[inline]
    #[allow(unsafe_code)]
    pub(super) fn run(&self, state: &mut State) -> u32 {
        // SAFETY: `Code` generated everything that runs here. It writes to function runs, of which the caller
        // provides the maximum that the batches lead to; to the return stack, whose index it wraps; and to a batch,
        // as it can't pass the empty one after the last. It reads the target cache, which has a slot for each index.
        unsafe { self.memory.call(self.enter, state) }
    }

    // The functions below append at the low end.

    pub(super) fn here(&self) -> CodeOffset {
        self.low + self.text.len() as u32
    }

    /// Copies the appended code to its offset.
    pub(super) fn commit(&mut self) {
        self.memory.put(self.low, &self.text);
        self.low += self.text.len() as u32;
        self.text.clear();
    }

    fn word(&mut self, word: u32) {
        self.text.extend(word.to_le_bytes());
    }

    /// Appends the distance to `offset`, the last operand of an instruction. Returns where the distance is.
    fn to(&mut self, offset: CodeOffset) -> CodeOffset {
        let site = self.here();
        self.word(offset.wrapping_sub(site + 4));
        site
    }

    /// Redirects the jump whose distance is at `site` to `offset`.
    pub(super) fn redirect(&mut self, site: CodeOffset, offset: CodeOffset) {
        self.memory.put(site, &offset.wrapping_sub(site + 4).to_le_bytes());
    }

    /// Writes `offset` itself to `site`.
    pub(super) fn write_offset(&mut self, site: CodeOffset, offset: CodeOffset) {
        self.memory.put(site, &offset.to_le_bytes());
    }

    // The functions below prepend at the high end.

    fn put_before<const N: usize>(&mut self, bytes: [u8; N]) -> CodeOffset {
        self.high -= N as u32;
        self.memory.put(self.high, &bytes);
        self.high
    }

    /// Prepends an instruction of one opcode byte and a 32-bit operand.
    fn put_word_before(&mut self, opcode: u8, word: u32) -> CodeOffset {
        let [one, two, three, four] = word.to_le_bytes();
        self.put_before([opcode, one, two, three, four])
    }

    fn put_jump_before(&mut self, offset: CodeOffset) -> CodeOffset {
        self.put_word_before(0xe9, offset.wrapping_sub(self.high)) // jmp offset
    }

    /// Prepends an exit, whose reason and block are `why`.
    fn put_exit(&mut self, why: u32) -> CodeOffset {
        let [to, why] = [self.exit.wrapping_sub(self.high), why].map(u32::to_le_bytes);
        self.put_before([
            0xb8, why[0], why[1], why[2], why[3], // mov eax, why
            0xe9, to[0], to[1], to[2], to[3], // jmp exit
        ])
    }

    /// Prepends an exit before a block, whose checked entry must be known.
    pub(super) fn leave_before(&mut self, id: BlockId) -> CodeOffset {
        let checked = self.offsets(id).checked;
        assert_ne!(checked, 0, "a walk continues at the checked entry");
        self.put_exit(BEFORE | id.0);
        self.put_word_before(0xba, checked) // mov edx, checked
    }

    fn load_state(&mut self) {
        self.text.extend([0x53]); // push rbx
        self.text.extend([0x48, 0x8b, 0x5f, offset_of!(State, batch) as u8]); // mov rbx, [rdi]
        self.text.extend([0x4c, 0x8b, 0x4f, offset_of!(State, instructions) as u8]); // mov r9, [rdi+8]
        self.text.extend([0x4c, 0x8b, 0x57, offset_of!(State, function_run) as u8]); // mov r10, [rdi+16]
        self.text.extend([0x4c, 0x8b, 0x5f, offset_of!(State, top) as u8]); // mov r11, [rdi+24]
        self.text.extend([0x48, 0x8b, 0x57, offset_of!(State, returns) as u8]); // mov rdx, [rdi+32]
        self.text.extend([0x48, 0x8b, 0x4f, offset_of!(State, base) as u8]); // mov rcx, [rdi+40]
        self.load_batch();
        self.text.extend([0xff, 0x67, offset_of!(State, target) as u8]); // jmp [rdi+48]
    }

    fn load_batch(&mut self) {
        self.text.extend([0x4c, 0x8b, 0x43, BranchBatch::OUTCOMES as u8]); // mov r8, [rbx]
        self.text.extend([0x48, 0x8b, 0x73, BranchBatch::STOP as u8]); // mov rsi, [rbx+8]
    }

    fn store_state(&mut self) {
        self.text.extend([0x4c, 0x89, 0x43, BranchBatch::OUTCOMES as u8]); // mov [rbx], r8
        self.text.extend([0x48, 0x89, 0x5f, offset_of!(State, batch) as u8]); // mov [rdi], rbx
        self.text.extend([0x4c, 0x89, 0x4f, offset_of!(State, instructions) as u8]); // mov [rdi+8], r9
        self.text.extend([0x4c, 0x89, 0x57, offset_of!(State, function_run) as u8]); // mov [rdi+16], r10
        self.text.extend([0x4c, 0x89, 0x5f, offset_of!(State, top) as u8]); // mov [rdi+24], r11
        self.text.extend([0x89, 0x57, offset_of!(State, checked) as u8]); // mov [rdi+64], edx
        self.text.extend([0x5b, 0xc3]); // pop rbx; ret
    }

    /// Generates the code that follows an indirect branch, after the end of its function run, to the next batch's
    /// code if the target is cached; else exits with the reason in `eax`.
    fn pass_indirect(&mut self) {
        const SHIFT: u8 = (u32::BITS - Target::BITS) as u8;
        /// Bytes of the code for a cached target, which `jne` skips.
        const KNOWN: u8 = 20;
        const { assert!(size_of::<Target>() == 1 << 4 && offset_of!(Target, address) == 0) };
        self.text.extend([0x4c, 0x8b, 0x43, BranchBatch::TO as u8]); // mov r8, [rbx+16]
        self.text.extend([0x41, 0x69, 0xf0]); // imul esi, r8d, FACTOR
        self.word(Target::FACTOR);
        self.text.extend([0xc1, 0xee, SHIFT]); // shr esi, SHIFT
        self.text.extend([0xc1, 0xe6, 4]); // shl esi, 4
        self.text.extend([0x48, 0x03, 0x77, offset_of!(State, targets) as u8]); // add rsi, [rdi+56]
        self.text.extend([0x4c, 0x39, 0x06]); // cmp [rsi], r8
        self.text.extend([0x75, KNOWN]); // jne unknown
        let from = self.text.len();
        self.text.extend([0x8b, 0x46, offset_of!(Target, offset) as u8]); // mov eax, [rsi+8]
        self.text.extend([0x48, 0x01, 0xc8]); // add rax, rcx
        self.next_batch();
        assert_eq!(self.text.len() - from, usize::from(KNOWN));
        self.text.extend([0x49, 0xb8]); // unknown: mov r8, NO_OUTCOMES
        self.text.extend(NO_OUTCOMES.to_le_bytes());
        self.jump(self.exit);
    }

    /// Generates the code that follows an uncompressed return, after the end of its function run, to the newest call
    /// if its address is the target; else continues as for any indirect branch.
    fn go_back(&mut self) {
        self.text.extend([0x4e, 0x8b, 0x84, 0x5a]); // mov r8, [rdx+r11*2+256]
        self.word(Code::ADDRESSES);
        self.text.extend([0x42, 0x8b, 0x34, 0x1a]); // mov esi, [rdx+r11]
        self.text.extend([0x85, 0xf6, 0x0f, 0x84]); // test esi, esi; je over
        self.to(self.over);
        self.text.extend([0x42, 0xc7, 0x04, 0x1a, 0, 0, 0, 0]); // mov dword [rdx+r11], 0
        self.text.extend([0x41, 0x80, 0xeb, 4]); // sub r11b, 4
        self.text.extend([0x4c, 0x3b, 0x43, BranchBatch::TO as u8, 0x0f, 0x85]); // cmp r8, [rbx+16]; jne over
        self.to(self.over);
        self.text.extend([0x48, 0x8d, 0x04, 0x31]); // lea rax, [rcx+rsi]
        self.next_batch();
    }

    /// Appends the switch to the next batch and the jump to `rax`.
    fn next_batch(&mut self) {
        self.text.extend([0x48, 0x83, 0xc3, size_of::<BranchBatch>() as u8]); // add rbx, 24
        self.load_batch();
        self.text.extend([0xff, 0xe0]); // jmp rax
    }

    pub(super) fn jump(&mut self, offset: CodeOffset) -> CodeOffset {
        self.text.extend([0xe9]); // jmp offset
        self.to(offset)
    }

    /// Appends the check of a checked entry: exits if no outcome is left and the batch stops there.
    pub(super) fn checked(&mut self, out: CodeOffset) {
        self.text.extend([0x49, 0x39, 0xf0, 0x0f, 0x84]); // cmp r8, rsi; je out
        self.to(out);
    }

    pub(super) fn count(&mut self, instructions: u16) {
        match i8::try_from(instructions) {
            Ok(few) => self.text.extend([0x45, 0x8d, 0x49, few as u8]), // lea r9d, [r9+few]
            Err(_) => {
                self.text.extend([0x45, 0x8d, 0x89]); // lea r9d, [r9+instructions]
                self.word(instructions.into());
            }
        }
    }

    /// Loads an address of the traced program. It mostly fits 32 bits if the program is not position-independent.
    fn load(&mut self, address: u64) {
        match u32::try_from(address) {
            Ok(short) => {
                self.text.extend([0xb8]); // mov eax, short
                self.word(short);
            }
            Err(_) => {
                self.text.extend([0x48, 0xb8]); // mov rax, address
                self.text.extend(address.to_le_bytes());
            }
        }
    }

    /// Completes a function run; the caller has stored its end address if it has one.
    fn end_function_run(&mut self, transfer: Transfer) {
        self.text.extend([0x45, 0x89, 0x4a, offset_of!(FunctionRun, until) as u8]); // mov [r10+12], r9d
        self.text.extend([0x41, 0xc6, 0x42, offset_of!(FunctionRun, transfer) as u8, transfer as u8]); // mov byte [r10+16], transfer
        self.text.extend([0x49, 0x83, 0xc2, size_of::<FunctionRun>() as u8]); // add r10, 32
    }

    /// Begins a function run at a block.
    pub(super) fn begin_function_run(&mut self, start: u64, compact: CompactBlock) {
        const { assert!(offset_of!(FunctionRun, start) == 0) };
        self.load(start);
        self.text.extend([0x49, 0x89, 0x02]); // mov [r10], rax
        self.text.extend([0x41, 0xc7, 0x42, offset_of!(FunctionRun, begins) as u8]); // mov dword [r10+8], begins
        self.word(compact.begins());
    }

    /// Appends the transition to another function, at a block of it.
    pub(super) fn enter_function(&mut self, start: u64, compact: CompactBlock) {
        self.end_function_run(Transfer::None);
        self.begin_function_run(start, compact);
    }

    const IF_TAKEN: u8 = 0x82;
    const IF_NOT_TAKEN: u8 = 0x83;

    /// Appends a conditional branch. It jumps to an exit if it is taken or not taken, as `jumps` selects, and falls
    /// through otherwise. Returns the offset of the jump's distance.
    pub(super) fn branch(&mut self, id: BlockId, instructions: u16, jumps: bool) -> CodeOffset {
        let out = self.leave_before(id);
        self.text.extend([0x4d, 0x01, 0xc0, 0x0f, 0x84]); // add r8, r8; jz out
        self.to(out);
        self.count(instructions);
        self.text.extend([0x0f, if jumps { Code::IF_TAKEN } else { Code::IF_NOT_TAKEN }]); // jc or jnc unmet
        let unmet = self.put_exit(if jumps { TAKEN } else { NOT_TAKEN } | id.0);
        self.to(unmet)
    }

    /// Appends a jump to the exit for a branch that is not taken. Returns where its distance is.
    pub(super) fn not_taken(&mut self, id: BlockId) -> CodeOffset {
        let unmet = self.put_exit(NOT_TAKEN | id.0);
        self.not_taken_jump = self.here();
        self.jump(unmet)
    }

    /// Returns where the jump of [`branch`](Code::branch) has its distance, in a block with this checked entry. If a second
    /// jump follows, its distance is five bytes later.
    fn distance_site(checked: CodeOffset, instructions: u16) -> CodeOffset {
        // The lengths of `add` and `jz`, of the count's `lea`, and of the opcode of the branch's own jump.
        const CHECK: u32 = 9;
        const OPCODE: u32 = 2;
        let count = if i8::try_from(instructions).is_ok() { 4 } else { 7 };
        checked + CHECK + count + OPCODE
    }

    /// Returns where the distance to the successor is, for the branch taken or not.
    pub(super) fn site_of(&self, checked: CodeOffset, instructions: u16, taken: bool) -> CodeOffset {
        let site = Code::distance_site(checked, instructions);
        let jumps_if_taken = self.memory.byte(site - 1) == Code::IF_TAKEN;
        debug_assert!(jumps_if_taken || !taken, "the code of a taken branch follows already");
        site + if taken == jumps_if_taken { 0 } else { 5 }
    }

    /// Makes a branch fall through, taken or not, by removing its jump if that is the last code. Returns whether this
    /// was possible.
    pub(super) fn continue_after(&mut self, checked: CodeOffset, instructions: u16, taken: bool) -> bool {
        let site = Code::distance_site(checked, instructions);
        let jump = site + 4;
        if jump + 5 != self.low || jump != self.not_taken_jump {
            return false;
        }
        self.low = jump;
        self.not_taken_jump = 0;
        if taken {
            let not_taken = self.memory.word(jump + 1).wrapping_add(jump + 5);
            self.memory.put(site - 1, &[Code::IF_NOT_TAKEN]);
            self.redirect(site, not_taken);
        }
        true
    }

    /// Appends an exit before a block, unless no outcome is left and the batch continues with an indirect branch.
    pub(super) fn exit_if_outcome_left(&mut self, id: BlockId) {
        let out = self.leave_before(id);
        self.text.extend([0x4c, 0x89, 0xc0]); // mov rax, r8
        self.text.extend([0x48, 0x01, 0xc0]); // add rax, rax
        self.text.extend([0x48, 0x09, 0xf0, 0x0f, 0x85]); // or rax, rsi; jnz out
        self.to(out);
    }

    /// Appends the code for the indirect branch at the end of a block.
    pub(super) fn over(&mut self, id: BlockId) {
        self.text.extend([0xb8]); // mov eax, OVER
        self.word(OVER | id.0);
        self.jump(self.over);
    }

    /// Appends an indirect jump, up to its target.
    pub(super) fn indirect(&mut self, instructions: u16) {
        self.count(instructions);
        self.end_function_run(Transfer::IndirectJump);
    }

    /// Appends a call, up to its target. Returns the offset at which its return entry is stored.
    pub(super) fn call(&mut self, compact: CompactBlock, back: BlockId, end: u64) -> CodeOffset {
        const BLOCKS: u32 = offset_of!(ReturnStack, blocks) as u32;
        const { assert!(offset_of!(ReturnStack, codes) == 0) };
        self.count(compact.instructions);
        self.load(end);
        self.text.extend([0x49, 0x89, 0x42, offset_of!(FunctionRun, end) as u8]); // mov [r10+24], rax
        self.end_function_run(compact.edge.transfer());
        self.text.extend([0x41, 0x80, 0xc3, 4]); // add r11b, 4
        self.text.extend([0x42, 0xc7, 0x04, 0x1a]); // mov dword [rdx+r11], code
        let site = self.here();
        self.word(ReturnTarget::UNKNOWN.code);
        self.text.extend([0x4a, 0x89, 0x84, 0x5a]); // mov [rdx+r11*2+256], rax
        self.word(Code::ADDRESSES);
        self.text.extend([0x42, 0xc7, 0x84, 0x1a]); // mov dword [rdx+r11+768], back
        self.word(BLOCKS);
        self.word(back.0);
        site
    }

    /// Appends a compressed return.
    pub(super) fn ret(&mut self, id: BlockId, instructions: u16) {
        let out = self.leave_before(id);
        // The exits restore the outcome that was shifted out.
        self.put_jump_before(out);
        let not_taken = self.put_before([0x49, 0xd1, 0xd8]); // rcr r8, 1
        self.put_jump_before(out);
        let no_call = self.put_before([0xf9, 0x49, 0xd1, 0xd8]); // stc; rcr r8, 1
        self.text.extend([0x4d, 0x01, 0xc0, 0x0f, 0x84]); // add r8, r8; jz out
        self.to(out);
        self.text.extend([0x0f, 0x83]); // jnc not_taken
        self.to(not_taken);
        self.text.extend([0x42, 0x8b, 0x04, 0x1a]); // mov eax, [rdx+r11]
        self.text.extend([0x85, 0xc0, 0x0f, 0x84]); // test eax, eax; jz no_call
        self.to(no_call);
        self.count(instructions);
        self.end_function_run(Transfer::Return);
        self.text.extend([0x42, 0xc7, 0x04, 0x1a, 0, 0, 0, 0]); // mov dword [rdx+r11], 0
        self.text.extend([0x41, 0x80, 0xeb, 4]); // sub r11b, 4
        self.text.extend([0x48, 0x01, 0xc8]); // add rax, rcx
        self.text.extend([0xff, 0xe0]); // jmp rax
    }

    /// Appends an uncompressed return: a TIP gives its address.
    pub(super) fn uncompressed_ret(&mut self, id: BlockId, instructions: u16) {
        self.count(instructions);
        self.end_function_run(Transfer::Return);
        self.text.extend([0xb8]); // mov eax, OVER
        self.word(OVER | id.0);
        self.jump(self.back);
    }

    /// Returns the disassembly of the code at the low end and of the exits.
    #[cfg(test)]
    pub(super) fn instructions<T>(&self, disassemble: impl Fn(&[u8], CodeOffset) -> Vec<T>) -> Vec<T> {
        let mut all = disassemble(self.memory.bytes(1..self.low), 1);
        all.extend(disassemble(self.memory.bytes(self.high..self.size() as u32), self.high));
        all
    }
}

//! Translated blocks: their begin, and their possible ends.

use std::sync::atomic::{AtomicU8, AtomicU64};

use hodo_isa::x86::branch_target;
use hodo_isa::x86::disassembler::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
};
use hodo_isa::{Isa, Terminator};

/// The effect of a block's last instruction on control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Continues at `taken`: a direct jump, or no branch.
    Direct,
    /// A direct near call of `taken`; pushes `fall`.
    Call,
    /// A direct near call of the next instruction, which return compression ignores.
    CallNext,
    /// A conditional branch: `taken` or `fall`.
    Conditional,
    /// A near return.
    Return,
    /// An indirect near jump.
    Jump,
    /// An indirect near call; pushes `fall`.
    CallIndirect,
    /// A system call, a software interrupt, or another far transfer.
    Far,
    /// A repeated string instruction: repeats at its own address `taken`, then continues at `fall`.
    Repeat,
    /// No block: the thread was outside the program, and may enter it anywhere.
    Outside,
}

/// The block begins at the address of a signal handler.
pub(crate) const HANDLER: u8 = 1;
/// One instruction that writes memory, which QEMU runs alone after it left a block in its middle.
pub(crate) const ALONE: u8 = 2;
/// The code replaced other code, and must not appear to run before it did.
pub(crate) const REPLACED: u8 = 4;

/// Instructions that QEMU translated together. Lives as long as the process.
pub(crate) struct Block {
    pub(crate) pc: u64,
    pub(crate) taken: u64,
    pub(crate) fall: u64,
    /// The number of instructions.
    pub(crate) count: u64,
    pub(crate) kind: Kind,
    /// [`HANDLER`], [`ALONE`], [`REPLACED`].
    pub(crate) flags: AtomicU8,
    /// With [`REPLACED`]: the virtual time since which the code was there.
    pub(crate) not_before: AtomicU64,
    /// The number of instructions that QEMU listed: one more than `count` if the last does not run.
    pub(crate) reads: usize,
    /// Distance of each instruction from `pc`.
    offsets: Vec<u16>,
}

/// One instruction as QEMU read it.
pub(crate) struct Read<'a> {
    pub(crate) address: u64,
    pub(crate) bytes: &'a [u8],
}

/// Stands for no block.
pub(crate) static OUTSIDE: Block = Block {
    pc: 0,
    taken: 0,
    fall: 0,
    count: 0,
    kind: Kind::Outside,
    flags: AtomicU8::new(0),
    not_before: AtomicU64::new(0),
    reads: 0,
    offsets: Vec::new(),
};

impl Block {
    /// The block of some instructions; there is at least one.
    ///
    /// QEMU lists, as a block's last, an instruction that crosses the end of a page, stops reading its bytes there, and
    /// then ends the block before it. No instruction is a prefix of another, so a last instruction that does not decode
    /// does not run here. If the only instruction of a block does not decode, the disassembler does not know it: either it
    /// raises an exception, or only QEMU knows it.
    pub(crate) fn new(pc: u64, instructions: &[Read<'_>], isa: Isa) -> Block {
        let mut offsets: Vec<u16> = instructions.iter().map(|read| (read.address - pc) as u16).collect();
        let last = instructions.last().and_then(|read| LastInstruction::decode(read, isa));
        let (kind, taken, fall) = match &last {
            Some(last) => (last.kind, last.taken, last.fall),
            None if offsets.len() == 1 => {
                let next = instructions.first().map_or(pc, |read| read.address + read.bytes.len() as u64);
                (Kind::Direct, next, next)
            }
            None => {
                offsets.pop();
                let end = instructions.last().map_or(pc, |read| read.address);
                (Kind::Direct, end, end)
            }
        };
        let alone = instructions.len() == 1 && last.is_some_and(|last| last.may_run_alone);
        Block {
            pc,
            taken,
            fall,
            count: offsets.len() as u64,
            kind,
            flags: AtomicU8::new(if alone { ALONE } else { 0 }),
            not_before: AtomicU64::new(0),
            reads: instructions.len(),
            offsets,
        }
    }

    /// The index of the instruction that begins at `address`.
    pub(crate) fn index_of(&self, address: u64) -> Option<u64> {
        let offset = u16::try_from(address.checked_sub(self.pc)?).ok()?;
        self.offsets.binary_search(&offset).ok().map(|index| index as u64)
    }

    /// The address of the instruction with this index.
    pub(crate) fn address(&self, index: u64) -> u64 {
        self.pc + u64::from(self.offsets[index as usize])
    }

    /// The addresses of its instructions.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.offsets.iter().map(|&offset| self.pc + u64::from(offset))
    }

    /// Whether its last instruction is an indirect branch.
    pub(crate) fn is_indirect(&self) -> bool {
        matches!(self.kind, Kind::Return | Kind::Jump | Kind::CallIndirect)
    }

    /// Whether control flow may continue at `address` after the whole block ran.
    pub(crate) fn may_continue_at(&self, address: u64) -> bool {
        match self.kind {
            Kind::Direct | Kind::Call | Kind::CallNext => address == self.taken,
            Kind::Conditional | Kind::Repeat => address == self.taken || address == self.fall,
            Kind::Return | Kind::Jump | Kind::CallIndirect | Kind::Far | Kind::Outside => true,
        }
    }
}

/// What a block's last instruction does to the flow.
struct LastInstruction {
    kind: Kind,
    taken: u64,
    fall: u64,
    /// Whether QEMU may leave a block to run this instruction alone. It does so on x86 for stores into code.
    may_run_alone: bool,
}

impl LastInstruction {
    /// Decodes the instruction if its bytes are complete.
    fn decode(read: &Read<'_>, isa: Isa) -> Option<LastInstruction> {
        let Isa::X86(bits) = isa else {
            let step = isa.instruction(read.bytes, read.address).ok()?.step();
            let fall = read.address.wrapping_add(step.length.into());
            let kind = match step.terminator {
                // In T32, an instruction before may have given it a condition.
                Terminator::Jump | Terminator::Call if isa == Isa::T32 => Kind::Conditional,
                terminator => kind_of(terminator, step.target == fall),
            };
            return Some(LastInstruction { kind, taken: step.target, fall, may_run_alone: false });
        };
        let mut decoder = Decoder::with_ip(bits as u32, read.bytes, read.address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let (kind, taken) = ending(&instruction);
        let (fall, may_run_alone) = (instruction.next_ip(), writes_memory(&instruction));
        Some(LastInstruction { kind, taken, fall, may_run_alone })
    }
}

/// The kind of an instruction of Arm or RISC-V.
fn kind_of(terminator: Terminator, leads_on: bool) -> Kind {
    match terminator {
        Terminator::None | Terminator::Barrier | Terminator::Wait | Terminator::Jump => Kind::Direct,
        Terminator::Call if leads_on => Kind::CallNext,
        Terminator::Call => Kind::Call,
        Terminator::Conditional => Kind::Conditional,
        Terminator::IndirectJump => Kind::Jump,
        Terminator::IndirectCall => Kind::CallIndirect,
        Terminator::Return => Kind::Return,
        Terminator::Far | Terminator::Trap => Kind::Far,
    }
}

/// How control flow continues after an instruction: the kind, and where it goes if that is known.
fn ending(last: &Instruction) -> (Kind, u64) {
    let next = last.next_ip();
    let target = branch_target(last);
    match last.flow_control() {
        FlowControl::UnconditionalBranch if last.is_jmp_far() => (Kind::Far, 0),
        FlowControl::UnconditionalBranch => (Kind::Direct, target),
        FlowControl::IndirectBranch if last.is_jmp_far_indirect() => (Kind::Far, 0),
        FlowControl::IndirectBranch => (Kind::Jump, 0),
        FlowControl::ConditionalBranch => (Kind::Conditional, target),
        FlowControl::Return if last.mnemonic() == Mnemonic::Ret => (Kind::Return, 0),
        FlowControl::Return => (Kind::Far, 0),
        // A far call, a system call, or the entry of a guest.
        FlowControl::Call if !last.is_call_near() => (Kind::Far, 0),
        FlowControl::Call if target == next => (Kind::CallNext, next),
        FlowControl::Call => (Kind::Call, target),
        FlowControl::IndirectCall if last.is_call_far_indirect() => (Kind::Far, 0),
        FlowControl::IndirectCall => (Kind::CallIndirect, 0),
        FlowControl::Interrupt => (Kind::Far, 0),
        FlowControl::Next if is_repeated(last) => (Kind::Repeat, last.ip()),
        FlowControl::Next | FlowControl::XbeginXabortXend | FlowControl::Exception => (Kind::Direct, next),
    }
}

fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

fn writes_memory(instruction: &Instruction) -> bool {
    if instruction.code() == Code::INVALID {
        return false;
    }
    InstructionInfoFactory::new().info(instruction).used_memory().iter().any(|used| {
        matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(pc: u64, instructions: &[&[u8]]) -> Block {
        let mut address = pc;
        let reads: Vec<_> = instructions
            .iter()
            .map(|&bytes| {
                let read = Read { address, bytes };
                address += bytes.len() as u64;
                read
            })
            .collect();
        Block::new(pc, &reads, Isa::X86_64)
    }

    #[test]
    fn the_last_instruction_decides_where_it_goes() {
        let ends = |bytes: &[u8]| {
            let block = block(0x1000, &[bytes]);
            (block.kind, block.taken, block.fall)
        };
        assert_eq!(ends(&[0x90]), (Kind::Direct, 0x1001, 0x1001));
        assert_eq!(ends(&[0xeb, 0x10]), (Kind::Direct, 0x1012, 0x1002));
        assert_eq!(ends(&[0x75, 0xfe]), (Kind::Conditional, 0x1000, 0x1002));
        assert_eq!(ends(&[0xe2, 0xfe]), (Kind::Conditional, 0x1000, 0x1002));
        assert_eq!(ends(&[0xe3, 0x00]), (Kind::Conditional, 0x1002, 0x1002));
        assert_eq!(ends(&[0xe8, 0, 0, 0, 0]), (Kind::CallNext, 0x1005, 0x1005));
        assert_eq!(ends(&[0xe8, 1, 0, 0, 0]), (Kind::Call, 0x1006, 0x1005));
        assert_eq!(ends(&[0xff, 0xd0]).0, Kind::CallIndirect);
        assert_eq!(ends(&[0xff, 0xe0]).0, Kind::Jump);
        assert_eq!(ends(&[0xf3, 0xc3]).0, Kind::Return);
        assert_eq!(ends(&[0x0f, 0x05]).0, Kind::Far);
        assert_eq!(ends(&[0xcc]).0, Kind::Far);
        // VMRUN.
        assert_eq!(ends(&[0x0f, 0x01, 0xd8]), (Kind::Far, 0, 0x1003));
        assert_eq!(ends(&[0xf3, 0xa4]), (Kind::Repeat, 0x1000, 0x1002));
        assert_eq!(ends(&[0xa4]).0, Kind::Direct);
    }

    #[test]
    fn instructions_of_arm_and_riscv_decide_too() {
        let ends = |isa, bytes: &[u8]| {
            let block = Block::new(0x1000, &[Read { address: 0x1000, bytes }], isa);
            (block.kind, block.taken, block.fall)
        };
        let arm = |word: u32| ends(Isa::A64, &word.to_le_bytes());
        assert_eq!(arm(0xd503_201f), (Kind::Direct, 0x1004, 0x1004)); // nop
        assert_eq!(arm(0x5400_0040), (Kind::Conditional, 0x1008, 0x1004)); // b.eq
        assert_eq!(arm(0x9400_0010), (Kind::Call, 0x1040, 0x1004)); // bl
        assert_eq!(arm(0x9400_0001), (Kind::CallNext, 0x1004, 0x1004));
        assert_eq!(arm(0xd65f_03c0).0, Kind::Return); // ret
        assert_eq!(arm(0xd63f_0020).0, Kind::CallIndirect); // blr x1
        assert_eq!(arm(0xd400_0001).0, Kind::Far); // svc
        let riscv = |bytes: &[u8]| ends(Isa::RV64, bytes);
        assert_eq!(riscv(&[0x01, 0x00]), (Kind::Direct, 0x1002, 0x1002)); // c.nop
        assert_eq!(riscv(&[0x82, 0x80]).0, Kind::Return); // c.jr ra
        assert_eq!(riscv(&0x0000_0073_u32.to_le_bytes()), (Kind::Far, 0x1004, 0x1004)); // ecall
        assert_eq!(riscv(&0xfe00_0ee3_u32.to_le_bytes()), (Kind::Conditional, 0xffc, 0x1004)); // beqz
    }

    #[test]
    fn an_instruction_cut_at_a_page_end_does_not_run() {
        let block = block(0x1ffd, &[&[0x90], &[0x48, 0x89]]);
        assert_eq!((block.count, block.taken), (1, 0x1ffe));
        assert_eq!(block.index_of(0x1ffe), None);
        assert!(block.may_continue_at(0x1ffe));
    }

    /// An operating system sees it as an exception (#UD) at its address.
    #[test]
    fn an_unknown_instruction_is_one_that_may_not_retire() {
        // The opcode 0x0f 0x04 does not exist.
        let block = block(0x1000, &[&[0x0f, 0x04]]);
        assert_eq!((block.count, block.kind, block.taken), (1, Kind::Direct, 0x1002));
        assert_eq!(block.index_of(0x1000), Some(0));
    }

    #[test]
    fn a_lone_store_is_marked() {
        let flags = |instructions: &[&[u8]]| block(0, instructions).flags.into_inner();
        // lock cmpxchg16b [rdi]; mov [rax], rbx; mov rbx, [rax]
        assert_eq!(flags(&[&[0xf0, 0x48, 0x0f, 0xc7, 0x0f]]), ALONE);
        assert_eq!(flags(&[&[0x48, 0x89, 0x18]]), ALONE);
        assert_eq!(flags(&[&[0x48, 0x8b, 0x18]]), 0);
        assert_eq!(flags(&[&[0x48, 0x89, 0x18], &[0x90]]), 0);
    }
}

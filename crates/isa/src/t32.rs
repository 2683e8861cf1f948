//! T32: instructions of two or four bytes of AArch32 state.
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), chapter F3.1, "T32 instruction set encoding"; for loops
//! of M-profile DDI 0553. An IT instruction gives conditions to the next four, so that any of them may run on.

use crate::{Step, Terminator, Undecodable};

/// The distance from an instruction to the value of the program counter that it reads.
const PC: u64 = 4;
/// The stack pointer and the link register.
const SP: u16 = 13;
const LR: u16 = 14;

/// Returns the halfwords of the first instruction of `bytes`; the second is 0 if it has none.
pub(crate) fn halfwords(bytes: &[u8]) -> Result<[u16; 2], Undecodable> {
    let halfword = |at: usize| {
        let bytes = bytes.get(at..at + 2).ok_or(Undecodable::CutShort)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    let first: u16 = halfword(0)?;
    let second = if is_wide(first) { halfword(2)? } else { 0 };
    Ok([first, second])
}

/// Returns whether an instruction that begins with this halfword has four bytes.
pub(crate) fn is_wide(first: u16) -> bool {
    first >= 0b11101 << 11
}

/// Returns whether an instruction is a call that changes to A32: BLX with an address.
pub(crate) fn calls_other_state([first, second]: [u16; 2]) -> bool {
    first & 0xf800 == 0xf000 && second & 0xd001 == 0xc000
}

/// Decodes the first instruction of `bytes`, which is at `address`.
///
/// # Errors
/// The bytes end within it.
pub fn decode(bytes: &[u8], address: u64) -> Result<Step, Undecodable> {
    let [first, second] = halfwords(bytes)?;
    Ok(match is_wide(first) {
        false => narrow(first, address),
        true => wide(first, second, address),
    })
}

/// Adds a displacement of `bits` bits to an address of 32 bits.
fn displaced(from: u64, value: u32, bits: u32) -> u64 {
    let offset = (value << (32 - bits)) as i32 >> (32 - bits);
    u64::from((from as u32).wrapping_add_signed(offset))
}

fn narrow(first: u16, address: u64) -> Step {
    let plain = Step::plain(2, address);
    let pc = address.wrapping_add(PC);
    let word = u32::from(first);
    match first {
        // B with a condition.
        0xd000..=0xddff => plain.to(Terminator::Conditional, displaced(pc, (word & 0xff) << 1, 9)),
        // UDF and SVC.
        0xde00..=0xdfff => plain.with(Terminator::Trap),
        // B.
        0xe000..=0xe7ff => plain.to(Terminator::Jump, displaced(pc, (word & 0x7ff) << 1, 12)),
        // CBZ and CBNZ only go forward.
        _ if first & 0xf500 == 0xb100 => {
            let offset = (word >> 9 & 1) << 6 | (word >> 3 & 0x1f) << 1;
            plain.to(Terminator::Conditional, displaced(pc, offset, 32))
        }
        // BX and BLX.
        0x4700..=0x47ff => plain.with(match first >> 3 & 0x1f {
            LR => Terminator::Return,
            0..=0xf => Terminator::IndirectJump,
            _ => Terminator::IndirectCall,
        }),
        // POP of the program counter.
        0xbd00..=0xbdff => plain.with(Terminator::Return),
        // MOV and ADD to the program counter.
        _ if first & 0xff87 == 0x4687 => plain.with(match first >> 3 & 0xf {
            LR => Terminator::Return,
            _ => Terminator::IndirectJump,
        }),
        _ if first & 0xff87 == 0x4487 => plain.with(Terminator::IndirectJump),
        // BKPT and HLT.
        0xbe00..=0xbeff | 0xba80..=0xbabf => plain.with(Terminator::Trap),
        // WFE and WFI.
        0xbf20 | 0xbf30 => plain.with(Terminator::Wait),
        _ => plain,
    }
}

fn wide(first: u16, second: u16, address: u64) -> Step {
    let plain = Step::plain(4, address);
    if first & 0xf800 == 0xf000 && second & 0x8000 != 0 {
        return branch(first, second, address, plain);
    }
    let loads_pc = second & 0x8000 != 0;
    plain.with(match first {
        // TBB and TBH.
        _ if first & 0xfff0 == 0xe8d0 && second & 0xffe0 == 0xf000 => Terminator::IndirectJump,
        // LDM of the program counter. With that as the base, it is CLRM of M-profile.
        _ if first & 0xffd0 == 0xe890 && loads_pc && first & 0xf != 0xf => {
            let is_pop = first & 0xf == SP && first & 0x20 != 0;
            if is_pop { Terminator::Return } else { Terminator::IndirectJump }
        }
        // LDMDB.
        _ if first & 0xffd0 == 0xe910 && loads_pc => Terminator::IndirectJump,
        // RFE.
        _ if matches!(first & 0xffd0, 0xe810 | 0xe990) => Terminator::Far,
        // LDR of the program counter; with the stack pointer and an increment of four, POP.
        0xf85d if second == 0xfb04 => Terminator::Return,
        _ if first & 0xff70 == 0xf850 && second >> 12 == 0xf => Terminator::IndirectJump,
        // The ISB of older processors.
        0xee07 if second & 0x0fff == 0x0f95 => Terminator::Barrier,
        _ => Terminator::None,
    })
}

/// "Branches and miscellaneous control".
fn branch(first: u16, second: u16, address: u64, plain: Step) -> Step {
    let pc = address.wrapping_add(PC);
    let (high, low) = (u32::from(first), u32::from(second));
    let sign = high >> 10 & 1;
    let (j1, j2) = (low >> 13 & 1, low >> 11 & 1);
    let far = sign << 24
        | (j1 ^ sign ^ 1) << 23
        | (j2 ^ sign ^ 1) << 22
        | (high & 0x3ff) << 12
        | (low & 0x7ff) << 1;
    match second & 0xd000 {
        // BL and BLX.
        0xd000 => plain.to(Terminator::Call, displaced(pc, far, 25)),
        0xc000 if second & 1 == 0 => plain.to(Terminator::Call, displaced(pc & !3, far, 25)),
        0xc000 if second & 0x2000 == 0 => loop_end(first, low, pc, plain),
        0xc000 => plain,
        // B.
        0x9000 => plain.to(Terminator::Jump, displaced(pc, far, 25)),
        // B with a condition.
        _ if high >> 7 & 0b111 != 0b111 => {
            let near = sign << 20 | j2 << 19 | j1 << 18 | (high & 0x3f) << 12 | (low & 0x7ff) << 1;
            plain.to(Terminator::Conditional, displaced(pc, near, 21))
        }
        _ => plain.with(control(first, second)),
    }
}

/// WLS and LE of M-profile: a loop's begin, which may skip it, and its end, which goes back.
fn loop_end(first: u16, low: u32, pc: u64, plain: Step) -> Step {
    let offset = (low >> 1 & 0x3ff) << 2 | (low >> 11 & 1) << 1;
    match first {
        0xf00f | 0xf02f | 0xf01f => {
            plain.to(Terminator::Conditional, u64::from((pc as u32).wrapping_sub(offset)))
        }
        _ if first & 0xfff0 == 0xf040 => plain.to(Terminator::Conditional, displaced(pc, offset, 32)),
        _ => plain,
    }
}

/// Barriers, hints and exceptions.
fn control(first: u16, second: u16) -> Terminator {
    match (first, second) {
        // ISB; WFE and WFI; BXJ.
        (0xf3bf, 0x8f60..=0x8f6f) => Terminator::Barrier,
        (0xf3af, 0x8002 | 0x8003) => Terminator::Wait,
        (0xf3c0..=0xf3cf, 0x8f00) => Terminator::IndirectJump,
        // SUBS PC, LR, and with 0 ERET.
        (0xf3de, 0x8f00..=0x8fff) => Terminator::Far,
        // DCPS1 to DCPS3; HVC and SMC; UDF.
        (0xf78f, 0x8001..=0x8003) => Terminator::Trap,
        (0xf7e0..=0xf7ff, 0x8000..=0x8fff) | (0xf7f0..=0xf7ff, 0xa000..=0xafff) => Terminator::Trap,
        _ => Terminator::None,
    }
}

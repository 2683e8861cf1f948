//! The kernel's frame of a signal, and the frame that the program's handler gets: arch/x86/include/asm/sigframe.h.

use crate::{
    calls::Outcome,
    context::{Context, register},
    layout::FRAME_ROOM,
    log, raw,
    signal::{self, Action, RAISED, flag},
    stubs,
};

/// The order of registers in a frame.
const ORDER: [usize; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];
// Offsets in a `ucontext`.
const STACK: u64 = 16;
const REGISTERS: u64 = 40;
const RIP: u64 = REGISTERS + 16 * 8;
const FLAGS: u64 = REGISTERS + 17 * 8;
const ERROR: u64 = REGISTERS + 19 * 8;
const VECTORS: u64 = 224;
const MASK: u64 = 296;
/// The length of a `ucontext`.
const LENGTH: u64 = 304;
const INFO_LENGTH: u64 = 128;
/// The length of a vector state as FXSAVE writes it.
const FXSAVE_LENGTH: u64 = 512;
/// Where the vector state contains its length: `struct _fpx_sw_bytes`.
const SOFTWARE: u64 = 464;
const MAGIC: u32 = 0x4650_5853;
/// The longest vector state that is handled.
const MOST_VECTORS: u64 = 0x4000;
/// Flag of an alternative stack that there is none (`SS_DISABLE`).
pub const DISABLED: u64 = 2;
/// Bits of the flags that a handler starts without: trap, direction, resume.
const CLEARED: u64 = 0x100 | 0x400 | 0x1_0000;

/// A `ucontext` that the kernel wrote, and reads again when the runtime's handler returns.
#[derive(Clone, Copy)]
pub struct Frame(u64);

impl Frame {
    /// The frame at an address.
    pub fn new(address: u64) -> Frame {
        Frame(address)
    }

    /// A general register.
    pub fn register(self, number: usize) -> u64 {
        raw::read(self.0 + REGISTERS + register_offset(number))
    }

    /// Sets a general register.
    pub fn set_register(self, number: usize, value: u64) {
        raw::write(self.0 + REGISTERS + register_offset(number), value);
    }

    /// The instruction pointer.
    pub fn rip(self) -> u64 {
        raw::read(self.0 + RIP)
    }

    /// Sets the instruction pointer.
    pub fn set_rip(self, value: u64) {
        raw::write(self.0 + RIP, value);
    }

    /// Whether a write to memory faulted.
    pub fn is_write(self) -> bool {
        const WRITE: u64 = 2;
        raw::read::<u64>(self.0 + ERROR) & WRITE != 0
    }

    /// The mask to which the kernel returns.
    pub fn mask(self) -> u64 {
        raw::read(self.0 + MASK)
    }

    /// Sets the mask to which the kernel returns.
    pub fn set_mask(self, mask: u64) {
        raw::write(self.0 + MASK, mask);
    }
}

fn register_offset(number: usize) -> u64 {
    ORDER.iter().position(|&n| n == number).unwrap_or(0) as u64 * 8
}

/// The length of the vector state at an address.
fn vector_length(address: u64) -> u64 {
    let [magic, length]: [u32; 2] = raw::read(address + SOFTWARE);
    if magic == MAGIC { u64::from(length).min(MOST_VECTORS) } else { FXSAVE_LENGTH }
}

/// Builds the frame of the program's handler from the program's state in `frame`, and makes `frame` start the handler.
/// `false` if the program's stack is inaccessible.
pub fn build(context: &Context, number: u32, info: u64, action: &Action, frame: Frame) -> bool {
    let rsp = frame.register(register::RSP);
    let [alternative, alternative_flags, size] = context.alternative.get();
    let inside = size != 0 && rsp.wrapping_sub(alternative) <= size;
    // Below the red zone.
    let mut top = rsp - 128;
    if action.flags & flag::ONSTACK != 0 && alternative_flags & DISABLED == 0 && size != 0 && !inside {
        top = alternative + size;
    }
    let vectors: u64 = raw::read(frame.0 + VECTORS);
    let length = if vectors == 0 { 0 } else { vector_length(vectors) };
    let vectors_at = (top - length) & !63;
    let handler_stack = ((vectors_at - LENGTH - INFO_LENGTH - 8) & !15) - 8;
    let user = handler_stack + 8;
    let mut copied = [0u8; LENGTH as usize];
    copied.copy_from_slice(raw::bytes(frame.0, LENGTH as usize));
    let own = copied.as_mut_ptr() as u64;
    raw::write(own + STACK, [alternative, alternative_flags, size]);
    raw::write(own + VECTORS, if vectors == 0 { 0 } else { vectors_at });
    let failed = raw::copy(handler_stack, &raw const action.restorer as u64, 8)
        + raw::copy(user, own, LENGTH)
        + raw::copy(user + LENGTH, info, INFO_LENGTH)
        + raw::copy(vectors_at, vectors, length);
    if failed != 0 {
        return false;
    }
    frame.set_register(register::RSP, handler_stack);
    frame.set_register(register::RDI, u64::from(number));
    frame.set_register(register::RSI, user + LENGTH);
    frame.set_register(register::RDX, user);
    frame.set_register(register::RAX, 0);
    let flags: u64 = raw::read(frame.0 + FLAGS);
    raw::write(frame.0 + FLAGS, flags & !CLEARED);
    true
}

/// `rt_sigreturn`: the kernel restores the program's registers from a copy of its frame, and then the runtime continues
/// at the program's address.
pub fn return_from_handler(context: &Context) -> Outcome {
    if signal::block(context).is_none() {
        return Outcome::Interrupted;
    }
    let user = context.register(register::RSP);
    let own = context.private() + FRAME_ROOM;
    let ucontext = own + 8;
    if raw::copy(ucontext, user, LENGTH) != 0 {
        crate::dispatch::go(context, 0);
        return Outcome::Elsewhere;
    }
    let frame = Frame(ucontext);
    let vectors: u64 = raw::read(ucontext + VECTORS);
    if vectors != 0 {
        // Behind the `ucontext`, aligned as XRSTOR requires.
        let room = (own + 0x400) & !63;
        raw::copy(room, vectors, FXSAVE_LENGTH);
        let length = vector_length(room);
        raw::copy(room, vectors, length);
        raw::write(ucontext + VECTORS, room);
    }
    let [stack, flags, size]: [u64; 3] = raw::read(ucontext + STACK);
    context.alternative.set([stack, flags & DISABLED, size]);
    raw::write(
        ucontext + STACK,
        [context.private() + crate::layout::SIGNAL_STACK, 0, crate::layout::SIGNAL_STACK_BYTES],
    );
    context.blocked.set(frame.mask() & RAISED);
    frame.set_mask(frame.mask() & !RAISED);
    context.pc.set(frame.rip());
    log::go_on_at(context, frame.rip());
    frame.set_rip(stubs::address(stubs::hodo_enter_pc));
    stubs::sigreturn(ucontext)
}

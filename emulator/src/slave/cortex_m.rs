//! A Cortex-M: its exceptions, by the vector table and the stack (Armv7-M Architecture Reference Manual, B1.5).
//!
//! ```text
//! exception:  eight words on the stack, the sixth the address to return to; lr = EXC_RETURN; the handler
//! its end:    a branch to EXC_RETURN ─┬─► the address on the stack
//!                                     └─► the handler of a pending exception (tail chaining): the stack stays
//! ```

use std::ffi::{c_int, c_void};

use super::{Core, State, Trap};
use crate::{block::Block, qemu::function};

/// Exceptions of the board, interrupts among them, from number 0 on.
const VECTORS: usize = 32;
/// The first number of a handler: 0 is the stack pointer, 1 the reset.
const FIRST_HANDLER: usize = 2;
/// `regs`, of 32 bits, with which QEMU's `CPUARMState` begins.
const STACK_POINTER: usize = 13;
const LINK: usize = 14;
/// Where the address to return to is in the frame of an exception.
const FRAME_RETURN: u64 = 0x18;
/// The timer from which the slave reads its time (`embedded/board/cortex-m3/board.c`): its control word, and the value behind it,
/// which counts down from the largest one.
const TIMER: u64 = 0x4000_0000;
/// Nanoseconds of a tick of the timer.
const TICK: i64 = 40;
/// `QEMU_CLOCK_VIRTUAL`.
const VIRTUAL: c_int = 1;

/// QEMU's functions that its plugin interface of Debian 12 lacks.
#[derive(Clone, Copy)]
struct Functions {
    /// `cpu_physical_memory_rw`.
    memory: extern "C" fn(u64, *mut c_void, u64, bool),
    /// `qemu_clock_get_ns`.
    clock: extern "C" fn(c_int) -> i64,
}

/// A processor.
pub(super) struct Processor {
    functions: Functions,
    /// By number: the address of the handler.
    handlers: Vec<u64>,
    /// Of each handler that did not return, the outermost first.
    active: Vec<Active>,
    /// The emulator's time when the slave's timer began.
    began: Option<i64>,
}

/// A handler that runs.
struct Active {
    /// The stack pointer at its begin.
    stack: u32,
    /// EXC_RETURN.
    link: u32,
}

impl Processor {
    pub(super) fn new() -> Result<Processor, String> {
        let functions = Functions {
            memory: function(c"cpu_physical_memory_rw")?,
            clock: function(c"qemu_clock_get_ns")?,
        };
        Ok(Processor { functions, handlers: Vec::new(), active: Vec::new(), began: None })
    }

    /// Words of the slave's memory.
    fn memory(&self, address: u64, count: usize) -> Vec<u32> {
        let mut bytes = vec![0u8; 4 * count];
        (self.functions.memory)(address, bytes.as_mut_ptr().cast(), bytes.len() as u64, false);
        words(&bytes)
    }
}

impl Core for Processor {
    /// Nanoseconds since the slave's timer began, which is its own time; 0 before.
    fn now(&mut self) -> u64 {
        let now = (self.functions.clock)(VIRTUAL);
        if self.began.is_none() {
            let [control, value] = self.memory(TIMER, 2)[..] else { return 0 };
            self.began = (control != 0).then(|| now - i64::from(!value) * TICK);
        }
        self.began.map_or(0, |began| (now - began).max(0).cast_unsigned())
    }

    /// A few microseconds.
    fn time_every(&self) -> u64 {
        4_000
    }

    fn is_recorded(&self, _: &Block) -> bool {
        true
    }

    fn note(&self, _: &[u8]) -> Option<usize> {
        None
    }

    fn enter(&mut self, _: Option<usize>, _: State) {
        if self.handlers.is_empty() {
            self.handlers = self.memory(0, VECTORS).into_iter().map(|entry| u64::from(entry & !1)).collect();
        }
    }

    fn trap(&mut self, previous: &Block, next: &Block, state: State) -> Option<Trap> {
        let (stack, link) = (state.register(STACK_POINTER), state.register(LINK));
        // Handlers whose frame is gone have returned.
        self.active.retain(|active| stack <= active.stack);
        let number = (FIRST_HANDLER..self.handlers.len()).find(|&number| self.handlers[number] == next.pc)?;
        let is_chained = previous.is_indirect() && self.active.last().is_some_and(|last| last.stack == stack);
        let from = match is_chained {
            // The last handler ended, and nothing else ran.
            true => u64::from(self.active.pop()?.link & !1),
            false => u64::from(*self.memory(u64::from(stack) + FRAME_RETURN, 1).first()? & !1),
        };
        self.active.push(Active { stack, link });
        let is_place = previous.may_continue_at(from) || previous.index_of(from).is_some();
        is_place.then_some(Trap { from, cause: number as u8 })
    }
}

impl State {
    /// A register of 32 bits.
    fn register(self, number: usize) -> u32 {
        // SAFETY: QEMU passes the processor's state, which begins with 16 of them.
        unsafe { self.0.cast::<u32>().add(number).read() }
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

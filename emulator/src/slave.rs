//! A slave of a board: one RISC-V hart without an operating system, under `qemu-system-riscv64`.
//!
//! ```text
//! QEMU enters a block ──► Hart: how did the previous end, was a trap taken? ──Encoder──► trace bytes in the spool
//! ```
//!
//! Times are readings of the host's time-stamp counter, which is also the hart's `mcycle`; the recorder converts them to the
//! slave's own clock. The packets of Intel PT say what the hart does: a branch was taken, an indirect branch or `mret` has a
//! target, a trap has a cause and an address.

use std::{
    ffi::{c_uint, c_void},
    io,
    path::Path,
    ptr, slice,
    sync::OnceLock,
};

use hodo_intel_pt::encoder::Encoder;
use rustc_hash::FxHashMap;

use crate::{
    block::{Block, Kind, OUTSIDE, Read},
    lock::Lock,
    memory,
    qemu::{self, Api, Id, Tb},
    settings::Settings,
    spool::{Identity, Thread},
    target, window,
};

/// The name of the cause of a trap in packets: an interrupt has the highest bit.
pub const INTERRUPT: u8 = 0x80;

/// The first address of the RAM; the code before it is QEMU's, in no file.
const RAM: u64 = 0x8000_0000;
/// Ticks between two times in the trace, at least: a few microseconds.
const TIME_EVERY: u64 = 10_000;
/// `csrrw x0, mtvec, rs1` without its register.
const WRITE_VECTOR: u32 = 0x3050_1073;
const REGISTER: u32 = 0x1f << 15;
/// Words of the processor's state before which its control registers are.
const STATE: usize = 2048;
/// The general registers, with which the state begins.
const REGISTERS: usize = 32;

static API: OnceLock<Api> = OnceLock::new();
static HART: Lock<Option<Hart>> = Lock::new(None);

/// A translated block.
struct Code {
    flow: Block,
    /// The number of the register that its last instruction writes to `mtvec`.
    vector: Option<usize>,
}

/// The code that a block was made from, and the block.
type Version = (Box<[u8]>, &'static Code);

struct Hart {
    settings: Settings,
    spool: std::path::PathBuf,
    /// The slave's number, counted from 1.
    number: u32,
    blocks: FxHashMap<u64, Vec<Version>>,
    thread: *mut Thread,
    /// The register of the last block that writes `mtvec`.
    writes: Option<usize>,
    /// The address of the trap handler.
    vector: u64,
    /// Where `mtvec` is in the processor's state, in words; `mepc` and `mcause` follow.
    place: Option<usize>,
    instructions: u64,
    /// The last time in the trace.
    stamped: u64,
}

// SAFETY: the thread's words are used under the lock only.
unsafe impl Send for Hart {}

/// A trap: the address to which a return goes, and its cause as the packets have it.
struct Trap {
    from: u64,
    cause: u8,
}

/// The general registers, with which QEMU's `CPURISCVState` begins.
#[repr(C)]
struct State([u64; REGISTERS]);

/// Installs the callbacks for a slave with this number.
pub(crate) fn install(id: Id, spool: &Path, number: u32) -> Result<(), String> {
    let settings = Settings::load(spool).map_err(|error| format!("{}: {error}", spool.display()))?;
    let api = Api::find()?;
    _ = API.set(api);
    window::configure(spool, settings.psb_period);
    *HART.lock() = Some(Hart {
        settings,
        spool: spool.to_owned(),
        number,
        blocks: FxHashMap::default(),
        thread: ptr::null_mut(),
        writes: None,
        vector: u64::MAX,
        place: None,
        instructions: 0,
        stamped: 0,
    });
    (api.on_translate)(id, translate);
    Ok(())
}

extern "C" fn translate(_: Id, tb: *mut Tb) {
    let Some(api) = API.get() else { return };
    let reads: Vec<_> = (0..(api.tb_length)(tb))
        .map(|index| {
            let insn = (api.tb_insn)(tb, index);
            // SAFETY: QEMU keeps the instruction's bytes while the block is being translated.
            let bytes = unsafe { slice::from_raw_parts((api.insn_data)(insn), (api.insn_size)(insn)) };
            Read { address: (api.insn_vaddr)(insn), bytes }
        })
        .collect();
    if let Some(hart) = HART.lock().as_mut()
        && !reads.is_empty()
    {
        let code = hart.translate(&reads);
        (api.on_execute)(tb, entered, qemu::NO_REGISTERS, (&raw const *code).cast_mut().cast());
    }
}

/// As for programs: the state of the processor is in `rbp`.
#[unsafe(naked)]
extern "C" fn entered(index: c_uint, code: *mut c_void) {
    std::arch::naked_asm!("mov rdx, rbp", "jmp {enter}", enter = sym enter)
}

extern "C" fn enter(_index: c_uint, code: &'static Code, state: &State) {
    // SAFETY: reading the counter has no effect.
    let now = unsafe { std::arch::x86_64::_rdtsc() };
    if let Some(hart) = HART.lock().as_mut() {
        hart.enter(code, state, now);
    }
}

impl Hart {
    fn translate(&mut self, reads: &[Read<'_>]) -> &'static Code {
        let bytes: Vec<u8> = reads.iter().flat_map(|read| read.bytes).copied().collect();
        let pc = reads[0].address;
        let known = self.blocks.entry(pc).or_default();
        if let Some((_, code)) =
            known.iter().find(|(old, code)| **old == bytes[..] && code.flow.reads == reads.len())
        {
            return code;
        }
        let last = reads.last().and_then(|read| Some(u32::from_le_bytes(read.bytes.try_into().ok()?)));
        let vector = last
            .filter(|word| word & !REGISTER == WRITE_VECTOR)
            .map(|word| (word >> REGISTER.trailing_zeros() & 0x1f) as usize);
        let flow = Block::new(pc, reads, target::current().isa());
        // Blocks are never freed: QEMU's code may call back with them at any time.
        let code: &'static Code = Box::leak(Box::new(Code { flow, vector }));
        known.push((bytes.into(), code));
        code
    }

    fn enter(&mut self, code: &'static Code, state: &State, now: u64) {
        if let Some(register) = self.writes.take() {
            // The lowest bits choose the mode; a slave has one handler for all traps.
            self.vector = state.0[register] & !3;
            let words = words_of(state, REGISTERS, STATE - REGISTERS);
            self.place =
                words.and_then(|words| find_vector(&words, state.0[register])).map(|at| REGISTERS + at);
        }
        self.writes = code.vector;
        if self.thread.is_null() && (code.flow.pc < RAM || self.begin(now).is_err()) {
            return;
        }
        // SAFETY: `begin` made it, and the lock is held.
        let thread = unsafe { &mut *self.thread };
        thread.begin_change();
        self.follow(thread, &code.flow, state, now);
        thread.previous = &code.flow;
        thread.pc = code.flow.pc;
        if thread.window.cursor >= thread.window.limit {
            thread.make_room();
        }
        thread.end_change();
    }

    /// Makes the thread's file.
    fn begin(&mut self, now: u64) -> io::Result<()> {
        let who = Identity { pid: self.number, tid: self.number, sequence: 0 };
        let encoder = Encoder::new(self.settings.encoder(), now);
        let thread = Thread::new(&who, self.settings.snapshot.unwrap_or(0), now, encoder, &OUTSIDE);
        self.thread = window::create(&self.spool, thread)?;
        // SAFETY: just made, and not shared yet.
        unsafe { (*self.thread).make_room() };
        Ok(())
    }

    /// Encodes how the previous block ended, now that the next one begins.
    fn follow(&mut self, thread: &mut Thread, next: &Block, state: &State, now: u64) {
        // SAFETY: `previous` is set to blocks only, and blocks are never freed.
        let previous: &'static Block = unsafe { &*thread.previous };
        thread.counts.now = now;
        let trap = if next.pc == self.vector { self.trap(previous, state) } else { None };
        let to = trap.as_ref().map_or(next.pc, |trap| trap.from);
        if previous.kind == Kind::Outside {
            thread.encoder.enable(next.pc, now, &mut thread.window);
            thread.tracing = 1;
        } else if previous.may_continue_at(to) {
            self.instructions += previous.count;
            thread.branch(previous, to);
        } else if let Some(index) = previous.index_of(to).filter(|_| trap.is_some()) {
            // The trap prevented an instruction of the block.
            self.instructions += index;
        } else {
            thread.flow_losses += 1;
            thread.encoder.overflow(Some(next.pc), now, &mut thread.window);
            return;
        }
        let is_due = now.saturating_sub(self.stamped) >= TIME_EVERY;
        if is_due || trap.is_some() {
            thread.encoder.set_clock(now, &mut thread.window);
            self.stamped = now;
        }
        if let Some(trap) = trap {
            thread.encoder.cause(trap.cause, now, &mut thread.window);
            thread.encoder.interrupt_to(trap.from, next.pc, now, &mut thread.window);
        }
        // Ticks in which no instruction ran.
        thread.counts.skipped = (now - thread.start).saturating_sub(self.instructions);
    }

    /// The trap whose handler begins, by the control registers.
    fn trap(&mut self, previous: &Block, state: &State) -> Option<Trap> {
        let words = words_of(state, self.place?, 3)?;
        let [vector, from, cause] = words[..] else { return None };
        let is_place = previous.may_continue_at(from) || previous.index_of(from).is_some();
        let interrupt = if cause >> 63 != 0 { INTERRUPT } else { 0 };
        let is_trap = vector & !3 == self.vector && cause & !(1 << 63) < 64 && is_place;
        is_trap.then_some(Trap { from, cause: interrupt | cause as u8 })
    }
}

/// Reads words of the processor's state.
fn words_of(state: &State, first: usize, count: usize) -> Option<Vec<u64>> {
    let mut bytes = vec![0; 8 * count];
    let start = (&raw const *state).addr() as u64 + 8 * first as u64;
    memory::read(start, &mut bytes)
        .then(|| bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect())
}

/// Returns the index of `mtvec`, which was written just now; `None` if several words have its value. At a trap the program counter has
/// it too, and what follows that may look like the other control registers.
fn find_vector(words: &[u64], written: u64) -> Option<usize> {
    let mut found = (0..words.len()).filter(|&at| words[at] == written);
    let first = found.next();
    first.filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_register_is_the_only_word_with_the_value_written() {
        let vector = 0x8000_0040;
        let mut words = vec![0; 100];
        assert_eq!(find_vector(&words, vector), None);
        words[40] = vector;
        assert_eq!(find_vector(&words, vector), Some(40));
        words[20] = vector;
        assert_eq!(find_vector(&words, vector), None);
    }
}

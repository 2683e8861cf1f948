//! A slave of a board: one processor without an operating system, under `qemu-system-riscv64` or `qemu-system-arm`.
//!
//! ```text
//! QEMU enters a block ──► Slave: how did the previous end? ──Encoder──► trace bytes in the spool
//!                         Core: which trap was taken, what time is it?
//! ```
//!
//! Times are readings of the slave's own counter before its oscillator changes them: of a RISC-V hart the host's time-stamp counter,
//! which is also `mcycle`; of a Cortex-M nanoseconds since its timer began. The recorder converts them to the slave's own clock. The
//! packets of Intel PT say what the processor does: a branch was taken, an indirect branch or a return from a trap has a
//! target, a trap has a cause and an address.

mod cortex_m;
mod riscv;

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
    qemu::{self, Api, Id, Tb},
    settings::Settings,
    spool::{Identity, Thread},
    target::{self, Target},
    window,
};

/// The name of the cause of a trap of RISC-V in packets: an interrupt has the highest bit. Of a Cortex-M, the cause is the number of
/// the exception.
pub const INTERRUPT: u8 = 0x80;

static API: OnceLock<Api> = OnceLock::new();
static SLAVE: Lock<Option<Slave>> = Lock::new(None);

/// What differs between processors.
trait Core {
    /// The time now.
    fn now(&mut self) -> u64;

    /// Time between two times in the trace, at least.
    fn time_every(&self) -> u64;

    /// Whether recording may begin with a block.
    fn is_recorded(&self, block: &Block) -> bool;

    /// Returns what to remember of a block, by its last instruction.
    fn note(&self, last: &[u8]) -> Option<usize>;

    /// A block is about to run, with its note.
    fn enter(&mut self, note: Option<usize>, state: State);

    /// The trap whose handler is the next block, if it is one.
    fn trap(&mut self, previous: &Block, next: &Block, state: State) -> Option<Trap>;
}

/// A trap: the address to which a return goes, and its cause as the packets have it.
struct Trap {
    from: u64,
    cause: u8,
}

/// The address of the processor's state, such as `CPURISCVState`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct State(*const c_void);

/// A translated block.
struct Code {
    flow: Block,
    /// What its core remembers of it.
    note: Option<usize>,
}

/// The code that a block was made from, and the block.
type Version = (Box<[u8]>, &'static Code);

struct Slave {
    core: Box<dyn Core + Send>,
    settings: Settings,
    spool: std::path::PathBuf,
    /// The slave's number, counted from 1.
    number: u32,
    blocks: FxHashMap<u64, Vec<Version>>,
    thread: *mut Thread,
    instructions: u64,
    /// The last time in the trace.
    stamped: u64,
}

// SAFETY: the thread's words are used under the lock only.
unsafe impl Send for Slave {}

/// Installs the callbacks for a slave with this number.
pub(crate) fn install(id: Id, spool: &Path, number: u32) -> Result<(), String> {
    let settings = Settings::load(spool).map_err(|error| format!("{}: {error}", spool.display()))?;
    let api = Api::find()?;
    _ = API.set(api);
    window::configure(spool, settings.psb_period);
    let core: Box<dyn Core + Send> = match target::current() {
        Target::CortexM => Box::new(cortex_m::Processor::new()?),
        _ => Box::new(riscv::Hart::new()),
    };
    *SLAVE.lock() = Some(Slave {
        core,
        settings,
        spool: spool.to_owned(),
        number,
        blocks: FxHashMap::default(),
        thread: ptr::null_mut(),
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
    if let Some(slave) = SLAVE.lock().as_mut()
        && !reads.is_empty()
    {
        let code = slave.translate(&reads);
        (api.on_execute)(tb, entered, qemu::NO_REGISTERS, (&raw const *code).cast_mut().cast());
    }
}

/// As for programs: the state of the processor is in `rbp`.
#[unsafe(naked)]
extern "C" fn entered(index: c_uint, code: *mut c_void) {
    std::arch::naked_asm!("mov rdx, rbp", "jmp {enter}", enter = sym enter)
}

extern "C" fn enter(_index: c_uint, code: &'static Code, state: State) {
    if let Some(slave) = SLAVE.lock().as_mut() {
        slave.enter(code, state);
    }
}

impl Slave {
    fn translate(&mut self, reads: &[Read<'_>]) -> &'static Code {
        let bytes: Vec<u8> = reads.iter().flat_map(|read| read.bytes).copied().collect();
        let pc = reads[0].address;
        let known = self.blocks.entry(pc).or_default();
        if let Some((_, code)) =
            known.iter().find(|(old, code)| **old == bytes[..] && code.flow.reads == reads.len())
        {
            return code;
        }
        let note = reads.last().and_then(|read| self.core.note(read.bytes));
        let flow = Block::new(pc, reads, target::current().isa());
        // Blocks are never freed: QEMU's code may call back with them at any time.
        let code: &'static Code = Box::leak(Box::new(Code { flow, note }));
        known.push((bytes.into(), code));
        code
    }

    fn enter(&mut self, code: &'static Code, state: State) {
        self.core.enter(code.note, state);
        let now = self.core.now();
        if self.thread.is_null() && (!self.core.is_recorded(&code.flow) || self.begin(now).is_err()) {
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
    fn follow(&mut self, thread: &mut Thread, next: &Block, state: State, now: u64) {
        // SAFETY: `previous` is set to blocks only, and blocks are never freed.
        let previous: &'static Block = unsafe { &*thread.previous };
        thread.counts.now = now;
        let trap = self.core.trap(previous, next, state);
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
        let is_due = now.saturating_sub(self.stamped) >= self.core.time_every();
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
}

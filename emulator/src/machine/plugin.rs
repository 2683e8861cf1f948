//! The interface between a machine and QEMU.

use std::{
    cell::{Cell, UnsafeCell},
    ffi::{c_int, c_uint, c_void},
    fs::File,
    io,
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use hodo_intel_pt::encoder::Encoder;
use hodo_isa::Terminator;

use super::{
    VCPUS,
    block::{Block, End},
    buffer::Buffer,
    code::Memory,
    filter::{Filter, Refusal},
    guest::{Mode, VMRUN},
    modules::Modules,
    processor::{Registers, processor},
    qemu::{
        self, ADD, Api, EXCEPTION, INTERRUPT, NO_REGISTERS, READ_REGISTERS, STORE, Scoreboard, ScoreboardWord,
    },
    settings::Settings,
    spool::{self, Machine, Progress},
    symbols::Symbols,
    trigger::Triggers,
    truth::Begun,
    vcpu::{Start, Vcpu},
    watch::{Arrival, Watch},
};
use hodo_isa::Step;

use crate::{
    block::Read,
    qemu::{Id, Tb},
    target::{self, Target},
};

/// What all callbacks share.
struct Shared {
    api: Api,
    settings: Settings,
    spool: PathBuf,
    memory: Memory,
    board: *mut Scoreboard,
}

// SAFETY: QEMU synchronizes its scoreboard; all other fields may be shared.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// What the vCPUs look for, if anything; known when recording begins.
static WATCH: OnceLock<Watch> = OnceLock::new();

/// Where the kernel loads modules; known when recording begins.
static MODULES: OnceLock<Modules> = OnceLock::new();

/// Whether the guest's command runs: 0 not yet, 1 now, 2 no longer.
static STATE: AtomicU8 = AtomicU8::new(WAITING);
const WAITING: u8 = 0;
const RECORDING: u8 = 1;
const ENDED: u8 = 2;

/// The vCPUs. A vCPU is used by the thread that runs it. When QEMU ends and no vCPU runs any more, a callback uses all.
struct Vcpus([UnsafeCell<Option<Vcpu>>; VCPUS]);

// SAFETY: each element has one user at a time, as described above.
unsafe impl Sync for Vcpus {}

static VCPU: Vcpus = Vcpus([const { UnsafeCell::new(None) }; VCPUS]);

thread_local! {
    /// The address of the state of the thread's vCPU, once it has run a block. Not updated while a vCPU is recorded: it stays
    /// the same.
    static STATE_OF_VCPU: Cell<*const u64> = const { Cell::new(std::ptr::null()) };
}

/// The registers of the thread's vCPU; `None` if it has run nothing yet.
fn present() -> Option<Registers> {
    let env = STATE_OF_VCPU.get();
    // SAFETY: QEMU keeps the state for as long as it runs, and only this thread changes it.
    (!env.is_null()).then(|| unsafe { Registers::new(env) })
}

/// The vCPU of the calling thread.
///
/// # Safety
/// The caller runs on behalf of this vCPU, or none runs any more; and it holds no other reference to it.
#[inline(always)]
unsafe fn vcpu(index: c_uint) -> Option<&'static mut Option<Vcpu>> {
    let cell = VCPU.0.get(index as usize)?;
    // SAFETY: as the caller promises.
    Some(unsafe { &mut *cell.get() })
}

/// Sets up the recording of a machine with this spool.
pub(crate) fn install(id: Id, spool: PathBuf) -> Result<(), String> {
    let wrong = |error: io::Error| format!("{}: {error}", spool.display());
    let settings = Settings::load(&spool).map_err(wrong)?;
    let api = Api::find()?;
    let file = |name: &str| File::create(spool.join(name)).map_err(wrong);
    let memory = Memory::new(file(spool::CODE)?, file(spool::SPACES)?, file(spool::STACKS)?);
    // Of each vCPU: the index of the instruction that it begins, and the number of PAUSE instructions.
    let board = (api.scoreboard)(2 * size_of::<u64>());
    let shared = Shared { api, settings, spool, memory, board };
    if SHARED.set(shared).is_err() {
        return Err("it is loaded twice".to_owned());
    }
    let nothing = std::ptr::null_mut();
    (api.on_translate)(id, translate, nothing);
    (api.on_discontinuity)(id, INTERRUPT | EXCEPTION, discontinuity, nothing);
    (api.on_exit)(id, exit, nothing);
    (api.on_vcpu)(id, vcpu_begins, nothing);
    Ok(())
}

extern "C" fn vcpu_begins(index: c_uint, _: *mut c_void) {
    if index as usize >= VCPUS {
        say!("hodo: the emulated processor can't start: a machine has at most {VCPUS} processors");
        std::process::exit(crate::FAILED);
    }
}

/// QEMU translates a block.
extern "C" fn translate(tb: *mut Tb, _: *mut c_void) {
    let Some(shared) = SHARED.get() else { return };
    let api = &shared.api;
    let insns: Vec<_> = (0..(api.tb_length)(tb)).map(|index| (api.tb_insn)(tb, index)).collect();
    let read = |&insn: &*mut crate::qemu::Insn| {
        let mut bytes = [0; 16];
        let size = (api.insn_data)(insn, bytes.as_mut_ptr(), (api.insn_size)(insn).min(bytes.len()));
        ((api.insn_vaddr)(insn), bytes, size)
    };
    let owned: Vec<_> = insns.iter().map(read).collect();
    let reads: Vec<_> = owned
        .iter()
        .map(|(address, bytes, size)| Read { address: *address, bytes: &bytes[..*size] })
        .collect();
    if reads.is_empty() {
        return;
    }
    let mode = present().map_or_else(Mode::at_start, Registers::mode);
    let block = Box::leak(Box::new(Block::new(&reads, mode)));
    (api.on_block)(tb, entered, NO_REGISTERS, (&raw const *block).cast_mut().cast());
    let (pc, processor) = (reads[0].address, processor());
    for ((&insn, read), index) in insns.iter().zip(&reads).zip(0..) {
        let word = ScoreboardWord { score: shared.board, offset: 0 };
        (api.before_insn)(insn, STORE, word, index);
        if processor.pauses.contains(&read.bytes) {
            let word = ScoreboardWord { offset: size_of::<u64>(), ..word };
            (api.before_insn)(insn, ADD, word, 1);
        }
        if shared.settings.witness {
            let data = Box::leak(Box::new(Witnessed::new(read, pc, mode)));
            (api.on_insn)(insn, witnessed, NO_REGISTERS, (&raw const *data).cast_mut().cast());
        }
        if read.bytes == VMRUN && target::current() == Target::X86_64 {
            (api.on_insn)(insn, entering, READ_REGISTERS, std::ptr::null_mut());
        }
        if read.bytes == processor.begin || read.bytes == processor.end {
            let state = if read.bytes == processor.begin { RECORDING } else { ENDED };
            (api.on_insn)(insn, marked, READ_REGISTERS, std::ptr::without_provenance_mut(state.into()));
        }
    }
}

/// QEMU's code calls this before each block. It keeps the address of the vCPU's state in `rbp` (TCG_AREG0). Blocks are
/// translated for any address at which their page is mapped; only the program counter in that state is the present address.
/// Reading it through the interface would take longer than the block. [`marked`] checks that the state is as expected.
#[unsafe(naked)]
extern "C" fn entered(index: c_uint, block: *mut c_void) {
    std::arch::naked_asm!("mov rdx, rbp", "jmp {enter}", enter = sym enter)
}

extern "C" fn enter(index: c_uint, block: &'static Block, env: *const u64) {
    // SAFETY: the callback is for this vCPU.
    let Some(slot) = (unsafe { vcpu(index) }) else { return };
    let state = STATE.load(Ordering::Relaxed);
    if slot.is_none() {
        STATE_OF_VCPU.set(env);
        if state != RECORDING || !is_time() {
            return;
        }
    }
    // SAFETY: `env` is the address of the state, see `entered`.
    let registers = unsafe { Registers::new(env) };
    let (pc, cr3) = (registers.pc(block.mode), registers.space());
    let Some(shared) = SHARED.get() else { return };
    match slot {
        Some(vcpu) if vcpu.has_ended() => {}
        Some(vcpu) if state == ENDED => vcpu.end(Some(pc), requests()),
        Some(vcpu) => {
            let previous = vcpu.previous();
            vcpu.enter(block, pc, cr3, &shared.memory);
            if let Some(watch) = WATCH.get() {
                watch.before_block(vcpu, Arrival { pc, previous }, registers, read);
            }
        }
        None => {
            if let Some(vcpu) = begin(shared, index, (cr3, block.mode), registers) {
                slot.insert(vcpu).enter(block, pc, cr3, &shared.memory);
            }
        }
    }
}

/// The tick at which recording begins. With a log it is later than the log's begin: each vCPU must have left its chain of
/// blocks of several instructions.
static BEGIN_AT: AtomicU64 = AtomicU64::new(0);
/// The ticks between them, about a tenth of a second: each interrupt of the guest's timer ends such a chain.
const SETTLES: u64 = 1 << 28;

/// Whether the time at which recording begins has come.
#[cold]
fn is_time() -> bool {
    let begin = BEGIN_AT.load(Ordering::Relaxed);
    begin == 0 || SHARED.get().is_some_and(|shared| (shared.api.ticks)() as u64 >= begin)
}

/// Begins to record a vCPU.
#[cold]
fn begin(
    shared: &'static Shared,
    index: u32,
    (cr3, mode): (u64, Mode),
    registers: Registers,
) -> Option<Vcpu> {
    let path = spool::trace_path(&shared.spool, index);
    let files = File::create(&path).and_then(|file| Ok((file, Progress::create(&shared.spool, index)?)));
    let (file, progress) = files
        .map_err(|error| {
            say!("hodo: {}: {error}", path.display());
            give_up();
        })
        .ok()?;
    let now = (shared.api.ticks)() as u64;
    let watch = WATCH.get();
    let scope = watch.and_then(|watch| watch.scope.as_ref());
    let places = scope.map(|scope| &scope.places).into_iter().chain(watch.map(|watch| &watch.files));
    let start = Start {
        index,
        encoder: Encoder::new(shared.settings.encoder(), now),
        buffer: Buffer::new(file, shared.settings.psb_period, shared.settings.ring),
        ticks: shared.api.ticks,
        privilege: shared.settings.privilege,
        filter: scope.map(|scope| Filter::new(scope, cr3)),
        places: places.filter(|places| !places.is_empty()).collect(),
        read,
        read_physical,
        registers,
        memory: &shared.memory,
        modules: MODULES.get(),
        progress,
        give_up,
        on_request: watch.is_some_and(|watch| watch.triggers.is_some()),
        exact: shared.settings.cyc_threshold.is_some(),
        time_every: shared.settings.time_every,
        overflow: shared.settings.overflow.clone(),
        begun: (shared.api.scoreboard_find)(shared.board, index).cast(),
        cr3,
        mode,
    };
    Some(Vcpu::new(start))
}

/// Quits QEMU in the regular way: it writes what it can.
#[cold]
fn give_up() {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
}

extern "C" fn discontinuity(index: c_uint, kind: c_int, from: u64, to: u64, _: *mut c_void) {
    // QEMU 11.1 reports a fault twice: when it is raised, without a destination, and when it is delivered.
    if from == to && kind != INTERRUPT {
        return;
    }
    // SAFETY: the callback is for this vCPU.
    if let Some(Some(vcpu)) = unsafe { vcpu(index) }
        && !vcpu.has_ended()
    {
        vcpu.witness.interrupt(from);
        let mut cause = None;
        if let Some((registers, shared)) = present().zip(SHARED.get()) {
            let mode = registers.mode();
            cause = registers.cause(kind == INTERRUPT);
            vcpu.deliver(from, mode, registers.space(), &shared.memory);
        }
        vcpu.interrupt(from, to, cause);
        let returns_to = cause.and_then(|cause| Registers::after_exception(cause, from));
        if let Some(((watch, registers), returns_to)) = WATCH.get().zip(present()).zip(returns_to) {
            watch.system_call(vcpu, registers.stack_of_program(), returns_to);
        }
    }
}

/// An instruction that is counted separately.
struct Witnessed {
    /// Its distance from the block's start.
    offset: u64,
    mode: Mode,
    to_itself: bool,
    raises: bool,
}

impl Witnessed {
    fn new(read: &Read<'_>, block: u64, mode: Mode) -> Witnessed {
        let step = mode.isa().instruction(read.bytes, read.address).map(|insn| insn.step()).ok();
        let branches = |step: &Step| {
            matches!(step.terminator, Terminator::Conditional | Terminator::Jump | Terminator::Call)
        };
        Witnessed {
            offset: read.address - block,
            mode,
            to_itself: step.is_some_and(|step| branches(&step) && step.target == read.address),
            raises: End::of(read, mode) == End::SoftwareInterrupt,
        }
    }
}

/// QEMU's code calls this before each instruction that is counted separately; see [`entered`].
#[unsafe(naked)]
extern "C" fn witnessed(index: c_uint, insn: *mut c_void) {
    std::arch::naked_asm!("mov rdx, rbp", "jmp {witness}", witness = sym witness)
}

extern "C" fn witness(index: c_uint, insn: &'static Witnessed, env: *const u64) {
    // SAFETY: the callback is for this vCPU.
    let Some(Some(vcpu)) = (unsafe { vcpu(index) }) else { return };
    if vcpu.has_ended() {
        return;
    }
    if insn.offset == 0 {
        // SAFETY: `env` is as in `entered`. QEMU updates the program counter when it enters a block, and not within it.
        vcpu.witness_base = unsafe { Registers::new(env) }.pc(insn.mode);
    }
    let address = vcpu.witness_base.wrapping_add(insn.offset);
    vcpu.witness.begin(Begun { address, to_itself: insn.to_itself, raises: insn.raises });
}

/// VMRUN begins.
#[unsafe(naked)]
extern "C" fn entering(index: c_uint, _: *mut c_void) {
    std::arch::naked_asm!("mov rdx, rbp", "jmp {enter}", enter = sym enter_guest)
}

extern "C" fn enter_guest(index: c_uint, _: *mut c_void, env: *const u64) {
    // SAFETY: `env` is as in `entered`.
    let vmcb = unsafe { Registers::new(env) }.control_block();
    // A guest's own VMRUN exits.
    let in_guest = present().is_some_and(|registers| registers.mode().in_guest);
    // SAFETY: the callback is for this vCPU.
    if let Some(Some(vcpu)) = unsafe { vcpu(index) }
        && !vcpu.has_ended()
        && !in_guest
    {
        vcpu.begin_entry(vmcb);
    }
}

/// The guest begins or ends the recording.
#[unsafe(naked)]
extern "C" fn marked(index: c_uint, state: *mut c_void) {
    std::arch::naked_asm!("mov rdx, rbp", "jmp {mark}", mark = sym mark)
}

extern "C" fn mark(_: c_uint, state: *mut c_void, env: *const u64) {
    let Some(shared) = SHARED.get() else { return };
    let state = state.addr() as u8;
    // SAFETY: `env` is as in `entered`.
    let registers = unsafe { Registers::new(env) };
    if !registers.are_as_expected(|name| register(&shared.api, name)) {
        say!(
            "hodo: the emulated processor can't start: this QEMU keeps its registers elsewhere than 11.1 does"
        );
        std::process::exit(crate::FAILED);
    }
    if state == RECORDING {
        prepare(shared);
    }
    // The log begins before the recording, and ends after it.
    if shared.settings.log && state == RECORDING {
        BEGIN_AT.store((shared.api.ticks)() as u64 + SETTLES, Ordering::Relaxed);
    }
    let log = |on| if shared.settings.log { qemu::set_log(on) } else { Ok(()) };
    let (before, begun) = match state {
        RECORDING => (WAITING, log(true)),
        _ => (RECORDING, Ok(())),
    };
    _ = STATE.compare_exchange(before, state, Ordering::AcqRel, Ordering::Relaxed);
    let ended = if state == ENDED { log(false) } else { Ok(()) };
    if let Err(error) = begun.and(ended) {
        say!("hodo: {error}");
    }
}

/// Recording is about to begin: finds what the settings name in the guest's kernel.
fn prepare(shared: &Shared) {
    let settings = &shared.settings;
    let symbols = match Symbols::load(&shared.spool) {
        Ok(symbols) => symbols,
        Err(error) => refuse(
            shared,
            Refusal::Other(format!(
                "the guest wrote no symbols ({error}); if its first process is of an older version, `cargo xtask setup \
                 --machine` replaces it"
            )),
        ),
    };
    let modules = settings.modules.map_or(Ok(None), |layout| Modules::new(layout, &symbols, &shared.spool));
    match modules {
        Ok(Some(modules)) => _ = MODULES.set(modules),
        Ok(None) => {}
        Err(error) => refuse(shared, Refusal::Other(format!("{}: {error}", spool::LOADED))),
    }
    if !(settings.filter.is_empty() && settings.process.is_none() && settings.triggers.is_empty()) {
        // With a clock that counts instructions, each is a nanosecond.
        let ticks_per_second = super::ticks_per_second(target::current(), settings.counts_time);
        match Watch::new(settings, &symbols, ticks_per_second) {
            Ok(watch) => _ = WATCH.set(watch),
            Err(refusal) => refuse(shared, refusal),
        }
    }
    // If QEMU does not end properly, this is all that is there of it.
    if let Err(error) = machine().save(&shared.spool) {
        refuse(shared, Refusal::Other(error.to_string()));
    }
}

/// Recording can't begin.
fn refuse(shared: &Shared, refusal: Refusal) -> ! {
    match refusal {
        Refusal::NoFunction(name) => _ = std::fs::write(shared.spool.join(spool::REFUSED), name),
        Refusal::Other(reason) => say!("hodo: the emulated processor can't start: {reason}"),
    }
    std::process::exit(crate::FAILED);
}

/// The accounts, without those of the vCPUs.
fn machine() -> Machine {
    let mut machine = Machine::default();
    if let Some(watch) = WATCH.get() {
        machine.filter = watch.scope.as_ref().map_or_else(Vec::new, |scope| scope.addresses.clone());
        machine.snapshots = watch.triggers.as_ref().map_or_else(Vec::new, Triggers::snapshots);
        machine.unmeasured = watch.triggers.as_ref().map_or(0, Triggers::forgotten);
    }
    machine
}

/// The number of snapshots that triggers asked for.
fn requests() -> u64 {
    WATCH.get().and_then(|watch| watch.triggers.as_ref()).map_or(0, Triggers::requested)
}

/// Reads memory of the calling vCPU's address space.
fn read(address: u64, into: &mut [u8]) -> bool {
    read_by(|api, bytes, length| (api.read_memory)(address, bytes, length), into)
}

/// Reads physical memory of the machine.
fn read_physical(address: u64, into: &mut [u8]) -> bool {
    read_by(|api, bytes, length| (api.read_physical)(address, bytes, length) == 0, into)
}

fn read_by(read: impl Fn(&Api, *mut qemu::GArray, usize) -> bool, into: &mut [u8]) -> bool {
    let Some(Shared { api, .. }) = SHARED.get() else { return false };
    let bytes = (api.byte_array)();
    let was_read = read(api, bytes, into.len());
    if was_read {
        // SAFETY: QEMU fills the array with as many bytes as it says.
        let content = unsafe { std::slice::from_raw_parts((*bytes).data, (*bytes).length as usize) };
        into.iter_mut().zip(content).for_each(|(to, from)| *to = *from);
    }
    let free_content = true.into();
    (api.free_bytes)(bytes, free_content);
    was_read
}

/// Reads a register of the calling vCPU.
fn register(api: &Api, name: &str) -> Option<u64> {
    let registers = (api.registers)();
    if registers.is_null() {
        return None;
    }
    // SAFETY: QEMU returns an array of descriptors, which the caller owns.
    let registers = unsafe {
        std::slice::from_raw_parts(
            (*registers).data.cast::<qemu::RegisterDescriptor>(),
            (*registers).length as usize,
        )
    };
    // SAFETY: names are NUL-terminated.
    let is_it = |found: &&qemu::RegisterDescriptor| unsafe {
        !found.name.is_null() && std::ffi::CStr::from_ptr(found.name).to_bytes() == name.as_bytes()
    };
    let found = registers.iter().find(is_it)?;
    let bytes = (api.byte_array)();
    (api.set_size)(bytes, 0);
    if !(api.read_register)(found.handle, bytes) {
        return None;
    }
    // SAFETY: QEMU fills the array with the register's bytes.
    let value = unsafe { std::slice::from_raw_parts((*bytes).data, (*bytes).length as usize) };
    Some(value.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
}

/// QEMU ends.
extern "C" fn exit(_: *mut c_void) {
    let Some(shared) = SHARED.get() else { return };
    let mut machine = machine();
    for index in 0..VCPUS as u32 {
        // SAFETY: no vCPU runs any more.
        if let Some(Some(vcpu)) = unsafe { vcpu(index) } {
            if !vcpu.has_ended() {
                vcpu.end(None, requests());
            }
            machine.cpus.push(vcpu.written(shared.settings.witness));
        }
    }
    machine.failed = shared.memory.flush();
    machine.complete = true;
    if let Err(error) = machine.save(&shared.spool) {
        say!("hodo: {}: {error}", shared.spool.display());
    }
}

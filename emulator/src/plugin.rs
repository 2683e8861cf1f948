//! The plugin's interface to QEMU.

use std::{
    ffi::{CStr, OsStr, OsString, c_char, c_int, c_uint, c_void},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    slice,
    sync::{
        OnceLock,
        atomic::{AtomicI32, Ordering},
    },
};

use crate::{
    block::{Block, Read},
    filter, machine, memory, messages,
    process::{PROCESS, Process},
    qemu::{self, Api, Id, Info, Tb},
    settings::Settings,
    signal::Registers,
    slave,
    spool::Thread,
    syscall,
    target::{self, Target},
    threads, window,
};

static API: OnceLock<Api> = OnceLock::new();

/// The interface version, which QEMU reads before it installs the plugin: the version for machines if QEMU reports
/// interrupts, else the version for programs.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(qemu::VERSION);

/// Runs when the library is loaded, which is before QEMU reads the version.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    if qemu::has(c"qemu_plugin_register_vcpu_discon_cb") {
        qemu_plugin_version.store(machine::VERSION, Ordering::Relaxed);
    }
}

/// QEMU calls this when it loads the plugin, with the plugin's arguments as `name=value`.
///
/// # Safety
/// As in QEMU's header: `info` is valid, and `arguments` are `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the caller promises it.
    let (info, arguments) = unsafe {
        let arguments = match count {
            0 => &[],
            _ => slice::from_raw_parts(arguments, count as usize),
        };
        let strings: Vec<_> = arguments.iter().map(|&argument| CStr::from_ptr(argument)).collect();
        (&*info.cast::<Info>(), strings)
    };
    match install(id, info, &arguments) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("hodo: the emulated processor can't start: {error}");
            1
        }
    }
}

fn install(id: Id, info: &Info, arguments: &[&CStr]) -> Result<(), String> {
    // SAFETY: QEMU passes a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(info.target_name) };
    let target = Target::from_name(name.to_bytes())
        .filter(|&target| target != Target::CortexM || info.system_emulation)
        .ok_or_else(|| format!("it does not emulate {}", name.to_string_lossy()))?;
    target::set(target);
    let option = |name: &str| {
        let value = |argument: &&CStr| {
            argument.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec)
        };
        arguments.iter().find_map(value)
    };
    let slave = option("slave").and_then(|number| String::from_utf8(number).ok()?.parse().ok());
    let is_machine = info.system_emulation && slave.is_none() && target != Target::CortexM;
    let version = if is_machine { machine::VERSION } else { qemu::VERSION };
    if !(info.version_min..=info.version_current).contains(&version) {
        return Err(format!(
            "this QEMU speaks plugin interface versions {} to {}, and version {version} is needed ({})",
            info.version_min,
            info.version_current,
            if is_machine { "QEMU 11.1 has it" } else { "Debian 12's QEMU 7.2 has it" }
        ));
    }
    let spool =
        PathBuf::from(OsString::from_vec(option("spool").ok_or("the option spool=DIRECTORY is missing")?));
    if is_machine {
        return machine::install(id, spool);
    }
    if info.system_emulation {
        return slave::install(id, &spool, slave.ok_or("the option slave=NUMBER is missing")?);
    }
    let clock = option("clock").and_then(|clock| String::from_utf8(clock).ok()?.parse().ok()).unwrap_or(0);
    let settings = match Settings::load(&spool) {
        // The recording ended while this program was being executed; the program runs unrecorded.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        settings => settings.map_err(|error| format!("{}: {error}", spool.display()))?,
    };
    let api = Api::find()?;
    _ = API.set(api);
    messages::divert(&spool);
    window::configure(&spool, settings.psb_period);
    filter::configure(&settings.filter, settings.overflow.clone());
    *PROCESS.lock() = Some(Process::new(spool, settings, clock));
    (api.on_translate)(id, translate);
    (api.on_syscall)(id, syscall::entered);
    // SAFETY: the handlers live as long as the process.
    unsafe {
        libc::pthread_atfork(Some(syscall::before_fork), Some(syscall::after_fork), Some(syscall::in_child));
    }
    Ok(())
}

/// The program's own file, according to QEMU.
pub(crate) fn program() -> Option<PathBuf> {
    let name = (API.get()?.program)();
    if name.is_null() {
        return None;
    }
    // SAFETY: QEMU returns a NUL-terminated string, which is not freed elsewhere.
    let name = unsafe { CStr::from_ptr(name) };
    std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}

/// QEMU translates a block.
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
    if let Some(process) = PROCESS.lock().as_mut() {
        let block = process.translate(&reads, &threads::later);
        (api.on_execute)(tb, entered, qemu::NO_REGISTERS, (&raw const *block).cast_mut().cast());
    }
}

/// QEMU's code calls this before each block with the number of the vCPU and the block. It keeps the address of
/// the emulated processor's state (such as `CPUX86State`) in `rbp` (TCG_AREG0 of its x86-64 backend), and at the start of a
/// block all its registers are in there; plugin interface version 1 has no other way to read them. [`program_begins`] checks that
/// this is so.
#[unsafe(naked)]
extern "C" fn entered(index: c_uint, block: *mut c_void) {
    std::arch::naked_asm!("mov rdx, rbp", "jmp {enter}", enter = sym enter)
}

extern "C" fn enter(index: c_uint, block: &'static Block, registers: &Registers) {
    let thread = match threads::get(index) {
        Some(thread) => thread,
        None => match threads::find(index, registers) {
            Some(thread) => thread,
            None => return,
        },
    };
    // SAFETY: the callback is for this thread, so no other code uses its words.
    let thread: &mut Thread = unsafe { &mut *thread };
    thread.enter(block, registers);
}

/// A program's first block is about to run. Its stack begins with argc and argv on all targets (System V ABI, "Initial
/// Process Stack"), which shows whether `registers` are the emulated processor's, and whether guest addresses are host
/// addresses.
pub(crate) fn program_begins(registers: &Registers) {
    let stack = registers.stack_pointer();
    let plausible = memory::word(stack).is_some_and(|argc| {
        let end = stack.wrapping_add(8 * (argc.wrapping_add(1)));
        argc < 1 << 24
            && memory::word(end) == Some(0)
            && (argc == 0 || memory::word(end - 8).is_some_and(|last| memory::string(last).is_some()))
    });
    if !plausible {
        eprintln!(
            "hodo: the emulated processor can't start: the program's stack is not where it should be; this QEMU differs from the one that was tested (Debian 12's 7.2)"
        );
        std::process::exit(crate::FAILED);
    }
}

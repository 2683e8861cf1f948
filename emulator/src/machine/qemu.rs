//! The parts of QEMU's plugin interface, version 7 (QEMU 11.1's `include/plugins/qemu-plugin.h`), that a whole machine
//! needs.

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
};

use crate::{
    qemu::{Id, Insn, Tb, function},
    target::{self, Target},
};

/// The interface version of this module.
pub(crate) const VERSION: c_int = 7;

/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_CB_R_REGS`.
pub(crate) const READ_REGISTERS: c_int = 1;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
pub(crate) const ADD: c_int = 0;
/// `QEMU_PLUGIN_INLINE_STORE_U64`.
pub(crate) const STORE: c_int = 1;
/// `QEMU_PLUGIN_DISCON_INTERRUPT`.
pub(crate) const INTERRUPT: c_int = 1;
/// `QEMU_PLUGIN_DISCON_EXCEPTION`.
pub(crate) const EXCEPTION: c_int = 2;

/// `struct qemu_plugin_scoreboard`, opaque.
#[repr(C)]
pub(crate) struct Scoreboard {
    _opaque: [u8; 0],
}

/// `qemu_plugin_u64`: a word of each element of a scoreboard.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ScoreboardWord {
    pub(crate) score: *mut Scoreboard,
    pub(crate) offset: usize,
}

/// `GArray` and `GByteArray`, their public fields.
#[repr(C)]
pub(crate) struct GArray {
    pub(crate) data: *mut u8,
    pub(crate) length: c_uint,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
pub(crate) struct RegisterDescriptor {
    pub(crate) handle: *mut c_void,
    pub(crate) name: *const c_char,
    pub(crate) feature: *const c_char,
    pub(crate) read_only: bool,
}

pub(crate) type VcpuCallback = extern "C" fn(c_uint, *mut c_void);
pub(crate) type TranslateCallback = extern "C" fn(*mut Tb, *mut c_void);
pub(crate) type ExitCallback = extern "C" fn(*mut c_void);
pub(crate) type DiscontinuityCallback = extern "C" fn(c_uint, c_int, u64, u64, *mut c_void);

/// The bits of QEMU's log level for interrupts (`CPU_LOG_INT`) and for each block that it enters (`CPU_LOG_EXEC`).
const LOGGED: i32 = 1 << 4 | 1 << 5;

/// Turns QEMU's own log of executed blocks and interrupts on or off, with one instruction per block. A vCPU may finish a
/// chain of longer blocks first.
///
/// # Errors
/// This QEMU has no such log.
pub(crate) fn set_log(on: bool) -> Result<(), String> {
    let level: *const AtomicI32 = function(c"qemu_loglevel")?;
    let one_by_one: *const AtomicBool = function(c"one_insn_per_tb")?;
    // SAFETY: QEMU's `int` and `bool` of these names live as long as QEMU does.
    let (level, one_by_one) = unsafe { (&*level, &*one_by_one) };
    one_by_one.store(on, Ordering::SeqCst);
    if on {
        level.fetch_or(LOGGED, Ordering::SeqCst)
    } else {
        level.fetch_and(!LOGGED, Ordering::SeqCst)
    };
    Ok(())
}

/// `qemu_clock_get_ns`, and `QEMU_CLOCK_VIRTUAL`.
static CLOCK: OnceLock<extern "C" fn(c_int) -> i64> = OnceLock::new();
const VIRTUAL: c_int = 1;
/// Nanoseconds in a tick of the counter of QEMU's RISC-V machine.
const RISCV64_TICK: i64 = 100;

/// The function that reads the counter.
fn ticks() -> Result<extern "C" fn() -> i64, String> {
    match target::current() {
        Target::X86_64 | Target::CortexM => return function(c"cpus_get_elapsed_ticks"),
        Target::Aarch64 | Target::Riscv64 => {}
    }
    _ = CLOCK.set(function(c"qemu_clock_get_ns")?);
    Ok(match target::current() {
        Target::Riscv64 => riscv64_ticks,
        _ => nanoseconds,
    })
}

extern "C" fn nanoseconds() -> i64 {
    CLOCK.get().map_or(0, |clock| clock(VIRTUAL))
}

extern "C" fn riscv64_ticks() -> i64 {
    nanoseconds() / RISCV64_TICK
}

/// QEMU's functions.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    pub(crate) on_vcpu: extern "C" fn(Id, VcpuCallback, *mut c_void),
    pub(crate) on_translate: extern "C" fn(Id, TranslateCallback, *mut c_void),
    pub(crate) on_discontinuity: extern "C" fn(Id, c_int, DiscontinuityCallback, *mut c_void),
    pub(crate) on_exit: extern "C" fn(Id, ExitCallback, *mut c_void),
    pub(crate) on_block: extern "C" fn(*mut Tb, VcpuCallback, c_int, *mut c_void),
    pub(crate) on_insn: extern "C" fn(*mut Insn, VcpuCallback, c_int, *mut c_void),
    pub(crate) before_insn: extern "C" fn(*mut Insn, c_int, ScoreboardWord, u64),
    pub(crate) scoreboard: extern "C" fn(usize) -> *mut Scoreboard,
    pub(crate) scoreboard_find: extern "C" fn(*mut Scoreboard, c_uint) -> *mut c_void,
    pub(crate) tb_length: extern "C" fn(*const Tb) -> usize,
    pub(crate) tb_insn: extern "C" fn(*const Tb, usize) -> *mut Insn,
    pub(crate) insn_data: extern "C" fn(*const Insn, *mut u8, usize) -> usize,
    pub(crate) insn_size: extern "C" fn(*const Insn) -> usize,
    pub(crate) insn_vaddr: extern "C" fn(*const Insn) -> u64,
    pub(crate) registers: extern "C" fn() -> *mut GArray,
    pub(crate) read_register: extern "C" fn(*mut c_void, *mut GArray) -> bool,
    pub(crate) byte_array: extern "C" fn() -> *mut GArray,
    pub(crate) set_size: extern "C" fn(*mut GArray, c_uint) -> *mut GArray,
    pub(crate) free_bytes: extern "C" fn(*mut GArray, c_int) -> *mut u8,
    pub(crate) read_memory: extern "C" fn(u64, *mut GArray, usize) -> bool,
    /// Returns 0 if it was read.
    pub(crate) read_physical: extern "C" fn(u64, *mut GArray, usize) -> c_int,
    /// The counter that gives guests their time: of x86 the time-stamp counter, unless they set it.
    pub(crate) ticks: extern "C" fn() -> i64,
}

impl Api {
    /// Looks up the functions in the running QEMU.
    pub(crate) fn find() -> Result<Api, String> {
        Ok(Api {
            on_vcpu: function(c"qemu_plugin_register_vcpu_init_cb")?,
            on_translate: function(c"qemu_plugin_register_vcpu_tb_trans_cb")?,
            on_discontinuity: function(c"qemu_plugin_register_vcpu_discon_cb")?,
            on_exit: function(c"qemu_plugin_register_atexit_cb")?,
            on_block: function(c"qemu_plugin_register_vcpu_tb_exec_cb")?,
            on_insn: function(c"qemu_plugin_register_vcpu_insn_exec_cb")?,
            before_insn: function(c"qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu")?,
            scoreboard: function(c"qemu_plugin_scoreboard_new")?,
            scoreboard_find: function(c"qemu_plugin_scoreboard_find")?,
            tb_length: function(c"qemu_plugin_tb_n_insns")?,
            tb_insn: function(c"qemu_plugin_tb_get_insn")?,
            insn_data: function(c"qemu_plugin_insn_data")?,
            insn_size: function(c"qemu_plugin_insn_size")?,
            insn_vaddr: function(c"qemu_plugin_insn_vaddr")?,
            registers: function(c"qemu_plugin_get_registers")?,
            read_register: function(c"qemu_plugin_read_register")?,
            byte_array: function(c"g_byte_array_new")?,
            set_size: function(c"g_byte_array_set_size")?,
            free_bytes: function(c"g_byte_array_free")?,
            read_memory: function(c"qemu_plugin_read_memory_vaddr")?,
            read_physical: function(c"qemu_plugin_read_memory_hwaddr")?,
            ticks: ticks()?,
        })
    }
}

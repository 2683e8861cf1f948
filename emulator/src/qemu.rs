//! The used parts of QEMU's plugin interface, version 1 (QEMU's `include/qemu/qemu-plugin.h`).
//!
//! Functions are looked up by name when the plugin is installed, not linked. So the error names a missing function, and the
//! recorder can link this crate for its file formats.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The interface version of this module.
pub(crate) const VERSION: c_int = 1;

/// `qemu_plugin_id_t`.
pub(crate) type Id = u64;

/// `struct qemu_plugin_tb`, opaque.
#[repr(C)]
pub(crate) struct Tb {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`, opaque.
#[repr(C)]
pub(crate) struct Insn {
    _opaque: [u8; 0],
}

/// `qemu_info_t`, its first fields.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) target_name: *const c_char,
    pub(crate) version_min: c_int,
    pub(crate) version_current: c_int,
    pub(crate) system_emulation: bool,
}

pub(crate) type TranslateCallback = extern "C" fn(Id, *mut Tb);
pub(crate) type ExecuteCallback = extern "C" fn(c_uint, *mut c_void);
#[rustfmt::skip]
pub(crate) type SyscallCallback = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);

/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGISTERS: c_int = 0;

/// QEMU's functions.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    pub(crate) on_translate: extern "C" fn(Id, TranslateCallback),
    pub(crate) on_execute: extern "C" fn(*mut Tb, ExecuteCallback, c_int, *mut c_void),
    pub(crate) on_syscall: extern "C" fn(Id, SyscallCallback),
    pub(crate) tb_length: extern "C" fn(*const Tb) -> usize,
    pub(crate) tb_insn: extern "C" fn(*const Tb, usize) -> *const Insn,
    pub(crate) insn_data: extern "C" fn(*const Insn) -> *const u8,
    pub(crate) insn_size: extern "C" fn(*const Insn) -> usize,
    pub(crate) insn_vaddr: extern "C" fn(*const Insn) -> u64,
    pub(crate) program: extern "C" fn() -> *const c_char,
}

impl Api {
    /// Looks up the functions in the running QEMU.
    pub(crate) fn find() -> Result<Api, String> {
        Ok(Api {
            on_translate: function(c"qemu_plugin_register_vcpu_tb_trans_cb")?,
            on_execute: function(c"qemu_plugin_register_vcpu_tb_exec_cb")?,
            on_syscall: function(c"qemu_plugin_register_vcpu_syscall_cb")?,
            tb_length: function(c"qemu_plugin_tb_n_insns")?,
            tb_insn: function(c"qemu_plugin_tb_get_insn")?,
            insn_data: function(c"qemu_plugin_insn_data")?,
            insn_size: function(c"qemu_plugin_insn_size")?,
            insn_vaddr: function(c"qemu_plugin_insn_vaddr")?,
            program: function(c"qemu_plugin_path_to_binary")?,
        })
    }
}

/// Whether the running QEMU has a function.
pub(crate) fn has(name: &CStr) -> bool {
    // SAFETY: dlsym accepts any name.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}

/// Looks up a function of type `F`, a function pointer.
pub(crate) fn function<F: Copy>(name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: dlsym accepts any name; the result is checked before use.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return Err(format!("this QEMU has no function {}", name.to_string_lossy()));
    }
    // SAFETY: `F` has the size of a pointer, and each caller names the type of this function in QEMU's header.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

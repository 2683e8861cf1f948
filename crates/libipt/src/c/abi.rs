//! The structures of `intel-pt.h` (version 2.0.5) with their layout in C. Bit fields are integers here; the first field is
//! the lowest bit.

use std::ffi::{c_char, c_int, c_void};

/// `pt_version`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) major: u8,
    pub(crate) minor: u8,
    pub(crate) patch: u16,
    pub(crate) build: u32,
    pub(crate) extension: *const c_char,
}

/// `pt_cpu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    /// 0 unknown, 1 Intel.
    pub(crate) vendor: u32,
    pub(crate) family: u16,
    pub(crate) model: u8,
    pub(crate) stepping: u8,
}

/// `pt_errata`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errata {
    pub(crate) bits: u32,
    pub(crate) reserved: [u32; 15],
}

/// `pt_conf_addr_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressFilter {
    /// Four bits for each of up to sixteen ranges: 0 unused, 1 filter, 2 stop.
    pub(crate) kinds: u64,
    /// First and last address of each range.
    pub(crate) ranges: [[u64; 2]; 4],
    pub(crate) reserved: [u64; 8],
}

/// `pt_packet_unknown`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownPacket {
    pub(crate) bytes: *const u8,
    pub(crate) private: *mut c_void,
}

/// The callback for packets that the library does not know.
pub(crate) type DecodeCallback =
    unsafe extern "C" fn(*mut UnknownPacket, *const Config, *const u8, *mut c_void) -> c_int;

/// `pt_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) size: usize,
    pub(crate) begin: *mut u8,
    pub(crate) end: *mut u8,
    pub(crate) decode: Option<DecodeCallback>,
    pub(crate) decode_context: *mut c_void,
    pub(crate) cpu: Cpu,
    pub(crate) errata: Errata,
    pub(crate) cpuid_15_eax: u32,
    pub(crate) cpuid_15_ebx: u32,
    pub(crate) mtc_frequency: u8,
    pub(crate) nominal_frequency: u8,
    pub(crate) flags: [u32; 4],
    pub(crate) filter: AddressFilter,
}

/// `pt_packet`. The payload is a union of structures of at most 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) kind: u32,
    pub(crate) size: u8,
    pub(crate) payload: [u64; 2],
}

/// `pt_event`. `variant` is a union of structures of at most 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) kind: u32,
    /// From the lowest bit: ip_suppressed, status_update, has_tsc.
    pub(crate) flags: u32,
    pub(crate) tsc: u64,
    pub(crate) lost_mtc: u32,
    pub(crate) lost_cyc: u32,
    pub(crate) reserved: [u64; 2],
    pub(crate) variant: [u64; 3],
}

/// `pt_asid`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asid {
    pub(crate) size: usize,
    pub(crate) cr3: u64,
    pub(crate) vmcs: u64,
}

/// The longest instruction.
pub(crate) const MAX_INSTRUCTION: usize = 15;

/// `pt_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub(crate) ip: u64,
    pub(crate) isid: c_int,
    pub(crate) mode: u32,
    pub(crate) class: u32,
    pub(crate) raw: [u8; MAX_INSTRUCTION],
    pub(crate) size: u8,
    /// From the lowest bit: speculative, truncated.
    pub(crate) flags: u32,
}

/// `pt_block`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) ip: u64,
    pub(crate) end_ip: u64,
    pub(crate) isid: c_int,
    pub(crate) mode: u32,
    pub(crate) class: u32,
    pub(crate) instructions: u16,
    pub(crate) raw: [u8; MAX_INSTRUCTION],
    pub(crate) size: u8,
    /// From the lowest bit: speculative, truncated. In C they share a word with what comes before.
    pub(crate) flags: u8,
    pub(crate) unused: u8,
}

/// The callback that reads memory.
pub(crate) type ReadMemory = unsafe extern "C" fn(*mut u8, usize, *const Asid, u64, *mut c_void) -> c_int;

// What the header of the C library says on x86-64.
const _: () = assert!(size_of::<Config>() == 280 && size_of::<Packet>() == 24 && size_of::<Event>() == 64);
const _: () = assert!(size_of::<Instruction>() == 40 && size_of::<Block>() == 48 && size_of::<Asid>() == 24);

//! The settings of an emulated machine: a small file in the spool, written by the recorder.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use hodo_intel_pt::encoder::{self, Timing};
use serde::{Deserialize, Serialize};

use super::trigger::Trigger;

/// The settings of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Bytes of trace between PSB packets.
    pub psb_period: u64,
    /// Whether to emit TSC packets.
    pub tsc: bool,
    /// The period of MTC packets: one per `2^period` ticks of the crystal clock.
    pub mtc_period: Option<u8>,
    /// The threshold of CYC packets: the minimum number of cycles between two. A cycle is a tick.
    pub cyc_threshold: Option<u64>,
    /// The ticks between two TSC packets, at least, if the recorder makes the trace of another unit of the packets. `None` for Intel
    /// PT, which has other packets for the time between them.
    pub time_every: Option<u64>,
    /// Lose the packets of these instructions of each vCPU, as if a buffer had overflowed.
    pub overflow: Option<Range<u64>>,
    /// Whether returns are compressed.
    pub return_compression: bool,
    /// The recorded code.
    pub privilege: Privilege,
    /// The recorded parts of that code; empty for all.
    pub filter: Vec<Part>,
    /// The recorded process; `None` for all.
    pub process: Option<Process>,
    /// The last bytes of each vCPU's trace that are kept, instead of all.
    pub ring: Option<u64>,
    /// The conditions under which these are written; if there are none, they are written at the end.
    pub triggers: Vec<Trigger>,
    /// Whether to count instructions one by one as well, which doubles the time.
    pub witness: bool,
    /// Whether the clock counts instructions: one is a nanosecond.
    pub counts_time: bool,
    /// Whether QEMU logs what it executes and why it leaves it, while the guest's command runs.
    pub log: bool,
    /// How the guest's kernel describes a module; `None` if that is unknown.
    pub modules: Option<ModuleLayout>,
}

/// Offsets in the kernel's descriptions of a module, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleLayout {
    /// In `struct module`: the name.
    pub name: u64,
    /// In `struct module`: the address of its `struct mod_kallsyms`.
    pub kallsyms: u64,
    /// In `struct mod_kallsyms`: the address of the symbols.
    pub symbols: u64,
    /// In `struct mod_kallsyms`: their number.
    pub count: u64,
    /// In `struct mod_kallsyms`: the address of their names.
    pub names: u64,
    /// In `struct mod_kallsyms`: the address of their types.
    pub types: u64,
}

/// The privilege levels whose code is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Privilege {
    /// All.
    #[default]
    All,
    /// The kernel: addresses of the upper half.
    Kernel,
    /// User space: addresses of the lower half.
    User,
}

impl Privilege {
    /// Whether code at this address is recorded.
    #[inline(always)]
    pub fn holds(self, address: u64) -> bool {
        match self {
            Privilege::All => true,
            Privilege::Kernel => address >> 63 == 1,
            Privilege::User => address >> 63 == 0,
        }
    }
}

/// A part of the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Addresses of the kernel, or of every process.
    Addresses(Range<u64>),
    /// Functions of the kernel.
    Kernel {
        /// The first function.
        first: String,
        /// The end of the part.
        end: KernelEnd,
    },
    /// Bytes of a file, wherever a process maps them.
    File {
        /// The file's path, without symbolic links.
        path: PathBuf,
        /// Offsets in the file.
        range: Range<u64>,
    },
}

/// The end of a part of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelEnd {
    /// The end of the first function.
    OfFirst,
    /// The end of this function.
    Of(String),
    /// This many bytes after the begin of the first function.
    After(u64),
}

/// A process whose address space is recorded, as by a processor that compares CR3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Process {
    /// The process of the guest's command.
    Command,
    /// Each process that executes a program with this name.
    Named(String),
}

const FILE: &str = "settings.json";

impl Settings {
    /// Reads the settings of a spool.
    ///
    /// # Errors
    /// The system's error, or what is wrong with the file.
    pub fn load(spool: &Path) -> io::Result<Settings> {
        Ok(serde_json::from_slice(&std::fs::read(spool.join(FILE))?)?)
    }

    /// Writes the settings of a spool.
    ///
    /// # Errors
    /// The system's error.
    pub fn save(&self, spool: &Path) -> io::Result<()> {
        std::fs::write(spool.join(FILE), serde_json::to_vec(self)?)
    }

    pub(crate) fn encoder(&self) -> encoder::Settings {
        encoder::Settings {
            return_compression: self.return_compression,
            timing: Timing { tsc: self.tsc, mtc_period: self.mtc_period, cyc_threshold: self.cyc_threshold },
        }
    }
}

//! The settings of an emulated machine: a small file in the spool, written by the recorder.

use std::{io, ops::Range, path::Path};

use hodo_intel_pt::encoder::{self, Timing};
use serde::{Deserialize, Serialize};

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
    /// Lose the packets of these instructions of each vCPU, as if a buffer had overflowed.
    pub overflow: Option<Range<u64>>,
    /// Whether returns are compressed.
    pub return_compression: bool,
    /// The recorded code.
    pub privilege: Privilege,
    /// Whether to count instructions one by one as well, which doubles the time.
    pub witness: bool,
    /// Whether QEMU logs what it executes and why it leaves it, while the guest's command runs.
    pub log: bool,
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

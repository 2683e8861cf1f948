//! The settings of the emulated processor: a small file in the spool, written by the recorder.

use std::{io, ops::Range, path::Path};

use hodo_intel_pt::encoder::{self, Timing};
use serde::{Deserialize, Serialize};

use crate::FilterRange;

/// The settings of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Path of this plugin, for programs that the traced program executes.
    pub plugin: Vec<u8>,
    /// Where QEMU looks first for the files that programs open, such as their libraries.
    pub sysroot: Option<Vec<u8>>,
    /// Bytes of trace between PSB packets.
    pub psb_period: u64,
    /// Whether to emit TSC packets.
    pub tsc: bool,
    /// The period of MTC packets: one per `2^period` ticks of the crystal clock.
    pub mtc_period: Option<u8>,
    /// The threshold of CYC packets: the minimum number of cycles between two.
    pub cyc_threshold: Option<u64>,
    /// Whether returns are compressed.
    pub return_compression: bool,
    /// Keep only the last bytes of each thread's trace; a multiple of the page size.
    pub snapshot: Option<u64>,
    /// The traced ranges; everything if empty.
    pub filter: Vec<FilterRange>,
    /// Lose the packets of these instructions of each thread, as if a buffer had overflowed.
    pub overflow: Option<Range<u64>>,
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

    /// Whether the spool exists, and the recording continues.
    pub(crate) fn are_in(spool: &Path) -> bool {
        spool.join(FILE).exists()
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

//! Inputs, the options for opening them, and why one can't be opened.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use hodo_formats::{error::Error, raw};
use hodo_intel_pt::Config;

use crate::programs::{find::FileSearchPaths, guests::GuestFiles, kernel::KernelFiles};

/// An input to open.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file or a folder in one of the formats; `-` is standard input.
    File(PathBuf),
    /// A raw buffer and its code.
    Raw(RawInput),
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

impl Input {
    /// Returns the file, the folder or the buffer.
    pub fn path(&self) -> &Path {
        match self {
            Input::File(path) => path,
            Input::Raw(raw) => &raw.trace,
        }
    }
}

/// A raw buffer and the options that describe it.
#[derive(Clone, Debug, Default)]
pub struct RawInput {
    /// The buffer.
    pub trace: PathBuf,
    /// Code in flat files.
    pub code: Vec<(raw::Owner, raw::Code)>,
    /// Code in ELF files.
    pub elf: Vec<(raw::Owner, raw::Elf)>,
    /// What wrote the buffer.
    pub unit: RawUnit,
}

/// What wrote a raw buffer.
#[derive(Clone, Debug)]
pub enum RawUnit {
    /// Intel PT, with settings of the processor and its clocks.
    IntelPt(Config),
    /// A trace encoder of RISC-V.
    RiscV {
        /// The file with its [settings](hodo_etrace::Settings); `None` for the defaults.
        settings: Option<PathBuf>,
    },
    /// Trace units of Arm.
    Etm {
        /// The file with their [settings](hodo_formats::coresight::RawUnits).
        settings: PathBuf,
    },
}

impl Default for RawUnit {
    fn default() -> RawUnit {
        RawUnit::IntelPt(Config::default())
    }
}

/// Options for opening an input.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The places to search for the traced system's files.
    pub places: FileSearchPaths,
    /// Files of the traced system's kernel.
    pub kernel: KernelFiles,
    /// The location of its guests' code.
    pub guests: GuestFiles,
    /// Threads to select; all if empty.
    pub tids: Vec<u32>,
    /// Processes to select; all if empty.
    pub pids: Vec<u32>,
    /// Names of threads to select, while they have them; all if empty.
    pub comms: Vec<String>,
    /// Whether to leave out what a recorded machine does for the recorder.
    pub without_recorder: bool,
    /// Clock frequency in Hz for CTF traces that describe no clock.
    pub clock_frequency: Option<u64>,
}

impl Options {
    /// Returns these options with the recording's folder added.
    pub(crate) fn beside(&self, input: &Input) -> Options {
        let mut options = self.clone();
        if let Input::File(path) = input {
            let folder = if path.is_dir() { Some(path.as_path()) } else { path.parent() };
            options.places.beside = folder.map(Path::to_owned);
        }
        options
    }
}

/// An error of opening an input.
#[derive(Debug)]
pub struct OpenError {
    /// The file.
    pub file: PathBuf,
    /// The reason.
    pub reason: OpenErrorReason,
}

/// Why an input can't be opened.
#[derive(Debug)]
pub enum OpenErrorReason {
    /// An error of the system.
    System(io::Error),
    /// An error in the format.
    Format(Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            OpenErrorReason::System(error) => write!(f, "{}: {error}", self.file.display()),
            OpenErrorReason::Format(error) => write!(f, "{}: {error}", self.file.display()),
        }
    }
}

impl std::error::Error for OpenError {}

pub(crate) fn system_error(path: &Path, error: io::Error) -> OpenError {
    OpenError { file: path.to_owned(), reason: OpenErrorReason::System(error) }
}

pub(crate) fn format_error(path: &Path, error: Error) -> OpenError {
    OpenError { file: path.to_owned(), reason: OpenErrorReason::Format(error) }
}

//! The spool of a machine: a folder of files through which the plugin tells the recorder what happened.
//!
//! ```text
//! settings.json     recorder → plugin
//! cpu-N.pt          trace bytes
//! code              code as it became known: CodeNote, its bytes, and so on
//! spaces            address spaces of virtual processors: SpaceNote, and so on
//! machine.json      what really ran; written last
//! ```

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::truth::Account;

/// Name of the file of code.
pub(crate) const CODE: &str = "code";
/// Name of the file of address spaces.
pub(crate) const SPACES: &str = "spaces";
/// Name of the file of accounts.
pub(crate) const MACHINE: &str = "machine.json";

/// The file of a virtual processor's trace bytes.
pub fn trace_path(spool: &Path, cpu: u32) -> PathBuf {
    spool.join(format!("cpu-{cpu}.pt"))
}

/// Code that became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeNote {
    /// The virtual processor that was about to run it.
    pub cpu: u32,
    /// Something else was there before.
    pub changed: bool,
    /// When, in ticks.
    pub time: u64,
    /// Its address space, by CR3; 0 for the kernel's half of all of them.
    pub space: u64,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// A virtual processor has another address space from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceNote {
    /// The virtual processor.
    pub cpu: u32,
    /// When, in ticks.
    pub time: u64,
    /// The address space, by CR3.
    pub space: u64,
}

impl CodeNote {
    const WORDS: usize = 5;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let who = u64::from(self.cpu) << 1 | u64::from(self.changed);
        let words: [u64; Self::WORDS] = [who, self.time, self.space, self.address, self.length];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

impl SpaceNote {
    const WORDS: usize = 3;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let words: [u64; Self::WORDS] = [self.cpu.into(), self.time, self.space];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// Reads the code of a spool, in the order in which it became known, with its bytes. A note that was cut short ends
/// it.
///
/// # Errors
/// What the system says.
pub fn read_code(spool: &Path) -> io::Result<Vec<(CodeNote, Vec<u8>)>> {
    let mut file = BufReader::new(File::open(spool.join(CODE))?);
    let mut notes = Vec::new();
    while let Some([who, time, space, address, length]) = words::<{ CodeNote::WORDS }>(&mut file)? {
        let mut bytes = Vec::new();
        file.by_ref().take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            break;
        }
        let cpu = (who >> 1) as u32;
        notes.push((CodeNote { cpu, changed: who & 1 != 0, time, space, address, length }, bytes));
    }
    Ok(notes)
}

/// Reads the address spaces of a spool, in order of time for each processor.
///
/// # Errors
/// What the system says.
pub fn read_spaces(spool: &Path) -> io::Result<Vec<SpaceNote>> {
    let mut file = BufReader::new(File::open(spool.join(SPACES))?);
    let mut notes = Vec::new();
    while let Some([cpu, time, space]) = words::<{ SpaceNote::WORDS }>(&mut file)? {
        notes.push(SpaceNote { cpu: cpu as u32, time, space });
    }
    Ok(notes)
}

/// The next words of a file; `None` at its end, also where it comes early.
fn words<const N: usize>(file: &mut impl Read) -> io::Result<Option<[u64; N]>> {
    let mut words = [0; N];
    for word in &mut words {
        let mut bytes = [0; 8];
        match file.read_exact(&mut bytes) {
            Ok(()) => *word = u64::from_le_bytes(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(words))
}

/// What really ran on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its virtual processors, as far as they ran anything.
    pub cpus: Vec<Cpu>,
    /// Why files lack something, if they do.
    pub failed: Option<String>,
}

/// What really ran on a virtual processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// All that ran.
    pub account: Account,
    /// What of it is recorded.
    pub traced: Account,
    /// The same as `account`, counted one by one, where that was asked for.
    pub witness: Option<Account>,
    /// See there.
    pub counters: Counters,
}

/// What else is known of a virtual processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// When recording began, in ticks.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Bytes of trace.
    pub bytes: u64,
    /// Near calls retired.
    pub calls: u64,
    /// Blocks entered.
    pub blocks: u64,
    /// Interrupts and exceptions.
    pub interrupts: u64,
    /// Changes of CR3.
    pub switches: u64,
    /// Code found changed.
    pub changes: u64,
    /// Blocks left in their middle without an exception.
    pub left_early: u64,
    /// Instructions begun again.
    pub restarted: u64,
    /// Block successions that no rule explains; 0 unless the emulator is wrong.
    pub surprises: u64,
    /// Why trace bytes are missing, if some are.
    pub failed: Option<String>,
}

impl Machine {
    /// Reads the accounts of a spool.
    ///
    /// # Errors
    /// What the system says: the file is not there where QEMU did not come to its end.
    pub fn load(spool: &Path) -> io::Result<Machine> {
        Ok(serde_json::from_slice(&std::fs::read(spool.join(MACHINE))?)?)
    }

    pub(crate) fn save(&self, spool: &Path) -> io::Result<()> {
        std::fs::write(spool.join(MACHINE), serde_json::to_vec(self)?)
    }
}

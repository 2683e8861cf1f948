//! The spool of a machine: a folder of files that the plugin writes for the recorder.
//!
//! ```text
//! settings.json     recorder → plugin
//! symbols           guest → plugin, recorder: the kernel's symbols, before the command starts
//! refused           plugin → recorder: the kernel has no function of this name
//! cpu-N.pt          trace bytes
//! cpu-N.progress    what really ran, after each write of trace bytes: a line of JSON, and so on
//! code              code in order of discovery: CodeNote, its bytes, and so on
//! spaces            address spaces of vCPUs: SpaceNote, and so on
//! stacks            changes of the kernel's stack: StackNote, and so on
//! loaded            modules that the kernel loaded: a line of JSON, and so on
//! machine.json      what really ran; written when recording begins, and last
//! ```
//!
//! QEMU may end at any time, and the disk may be full: then [`Machine::load`] puts together what was written until then.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    ops::Range,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{VCPUS, trigger::Snapshot, truth::Account};

/// Name of the code file.
pub(crate) const CODE: &str = "code";
/// Name of the file of address spaces.
pub(crate) const SPACES: &str = "spaces";
/// Name of the file of stack changes.
pub(crate) const STACKS: &str = "stacks";
/// Name of the file with the kernel's symbols at the begin of the recording.
pub const SYMBOLS: &str = "symbols";
/// Name of the file of loaded modules.
pub(crate) const LOADED: &str = "loaded";
/// Name of the file with the name of a function that the kernel does not have.
pub const REFUSED: &str = "refused";
/// Name of the file of accounts.
pub(crate) const MACHINE: &str = "machine.json";

/// The file of a vCPU's trace bytes.
pub fn trace_path(spool: &Path, cpu: u32) -> PathBuf {
    spool.join(format!("cpu-{cpu}.pt"))
}

/// The file of a vCPU's accounts.
fn progress_path(spool: &Path, cpu: u32) -> PathBuf {
    spool.join(format!("cpu-{cpu}.progress"))
}

/// Bit of a space that is a guest's.
pub const GUEST: u64 = 1;

/// Bit of a VM exit's reason in the trace: it is AMD's (EXITCODE), and not one of VMX, which has 32 bits.
pub const SVM: u64 = 1 << 32;

/// Code that was discovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeNote {
    /// The vCPU that was about to run it.
    pub cpu: u32,
    /// Whether it replaced other code.
    pub changed: bool,
    /// The time, in ticks.
    pub time: u64,
    /// Its address space, by CR3; 0 for the kernel half of all of them; of a guest, [`GUEST`] and the address of its
    /// VMCB.
    pub space: u64,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A vCPU changes its address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceNote {
    /// The vCPU.
    pub cpu: u32,
    /// The time, in ticks.
    pub time: u64,
    /// The address space, by CR3.
    pub space: u64,
}

/// A vCPU changes from the kernel stack of one thread to that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNote {
    /// The vCPU.
    pub cpu: u32,
    /// The time, in ticks: that of a TSC packet right before the code that changes it.
    pub time: u64,
}

impl StackNote {
    const WORDS: usize = 2;

    pub(crate) fn encode(&self) -> Vec<u8> {
        [u64::from(self.cpu), self.time].iter().flat_map(|word| word.to_le_bytes()).collect()
    }
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

/// Reads the code of a spool in order of discovery, with its bytes. A truncated note ends the list.
///
/// # Errors
/// The system's error.
pub fn read_code(spool: &Path) -> io::Result<Vec<(CodeNote, Vec<u8>)>> {
    let mut file = BufReader::new(File::open(spool.join(CODE))?);
    std::iter::from_fn(|| next_code(&mut file).transpose()).collect()
}

/// Reads the next code and its bytes; `None` at the end, or if the rest is truncated.
pub(crate) fn next_code(file: &mut impl Read) -> io::Result<Option<(CodeNote, Vec<u8>)>> {
    let Some([who, time, space, address, length]) = words::<{ CodeNote::WORDS }>(file)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    let cpu = (who >> 1) as u32;
    let note = CodeNote { cpu, changed: who & 1 != 0, time, space, address, length };
    Ok(Some((note, bytes)).filter(|(_, bytes)| bytes.len() as u64 == length))
}

/// Reads the address spaces of a spool, in order of time for each vCPU.
///
/// # Errors
/// The system's error.
pub fn read_spaces(spool: &Path) -> io::Result<Vec<SpaceNote>> {
    let mut file = BufReader::new(File::open(spool.join(SPACES))?);
    let mut notes = Vec::new();
    while let Some([cpu, time, space]) = words::<{ SpaceNote::WORDS }>(&mut file)? {
        notes.push(SpaceNote { cpu: cpu as u32, time, space });
    }
    Ok(notes)
}

/// Reads the stack changes of a spool, in order of time for each vCPU.
///
/// # Errors
/// The system's error.
pub fn read_stacks(spool: &Path) -> io::Result<Vec<StackNote>> {
    let mut file = BufReader::new(File::open(spool.join(STACKS))?);
    let mut notes = Vec::new();
    while let Some([cpu, time]) = words::<{ StackNote::WORDS }>(&mut file)? {
        notes.push(StackNote { cpu: cpu as u32, time });
    }
    Ok(notes)
}

/// A module that the kernel loaded while it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// Its name.
    pub name: String,
    /// The time, in ticks: before its first instruction.
    pub time: u64,
    /// Its functions. Those that run once, when it is loaded, are among them.
    pub functions: Vec<ModuleFunction>,
}

/// A function of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModuleFunction {
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Its name.
    pub name: String,
}

/// Reads the modules that the kernel loaded, in order of time. A truncated line ends the list.
///
/// # Errors
/// The system's error.
pub fn read_loaded(spool: &Path) -> io::Result<Vec<Loaded>> {
    match File::open(spool.join(LOADED)) {
        Ok(file) => lines(file).collect(),
        // None was loaded.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The values in the lines of a file, up to one that is cut off.
fn lines<T: DeserializeOwned>(file: File) -> impl Iterator<Item = io::Result<T>> {
    let lines = BufReader::new(file).split(b'\n');
    lines.map_while(|line| line.map(|line| serde_json::from_slice(&line).ok()).transpose())
}

/// Removes all files except those of the trace and those that the guest's tracers wrote, as far as possible.
pub fn remove_notes(spool: &Path) {
    for entry in std::fs::read_dir(spool).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().ends_with(b".pt") {
            // A folder stays.
            _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The next words of a file; `None` at its end, even in the middle of a word.
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

/// The execution counts of a machine, which are the ground truth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The vCPUs that ran anything.
    pub cpus: Vec<Cpu>,
    /// The snapshots that triggers asked for.
    pub snapshots: Vec<Snapshot>,
    /// Latencies of triggers that were not measured, as too many functions did not return.
    pub unmeasured: u64,
    /// The addresses of the filter that belong to no file.
    pub filter: Vec<Range<u64>>,
    /// Why files are incomplete, if they are.
    pub failed: Option<String>,
    /// Whether QEMU ended properly: all that was recorded is there.
    #[serde(default)]
    pub complete: bool,
}

/// The execution counts of a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// Everything that ran.
    pub account: Account,
    /// The recorded part of it.
    pub traced: Account,
    /// The pieces of its file.
    pub pieces: Vec<TracePiece>,
    /// What was traced before each PSB of its file; nothing if the file consists of snapshots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<Checkpoint>,
    /// Like `account`, but counted one by one, if requested.
    pub witness: Option<Account>,
    /// Further counters.
    pub counters: Counters,
    /// Packets to append: they end a trace that nothing else ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closing: Vec<u8>,
}

/// What was traced before a position in a vCPU's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The position, in bytes.
    pub position: u64,
    /// The instructions before it.
    pub instructions: u64,
    /// The sum of their addresses.
    pub sum: u64,
}

impl Checkpoint {
    pub(crate) fn new(position: u64, before: Account) -> Checkpoint {
        Checkpoint { position, instructions: before.instructions, sum: before.sum }
    }
}

/// Bytes of a vCPU's file: a snapshot, or what was written since the last line of its progress; [`Cpu::in_one_piece`] joins
/// the latter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracePiece {
    /// The position in the trace of the first byte of a snapshot, which may repeat bytes of the one before.
    #[serde(default)]
    pub begin: u64,
    /// Length in bytes.
    pub length: u64,
    /// Its end, in ticks.
    pub end: u64,
}

/// Counters of a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Begin of the recording, in ticks.
    pub start: u64,
    /// End of the recording, in ticks.
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
    /// VM entries.
    #[serde(default)]
    pub entries: u64,
    /// Code found changed.
    pub changes: u64,
    /// Blocks left in their middle without an exception.
    pub left_early: u64,
    /// Instructions that began again.
    pub restarted: u64,
    /// Unexplained block successions; 0 unless the emulator is wrong.
    pub flow_losses: u64,
    /// PAUSE instructions: a processor executes them while it waits for another.
    #[serde(default)]
    pub pauses: u64,
    /// Instructions of blocks that are never recorded: of firmware, and of 32-bit programs on Arm.
    #[serde(default)]
    pub hidden: u64,
    /// Why trace bytes are missing, if any are.
    pub failed: Option<String>,
}

impl Machine {
    /// Reads the accounts of a spool; if QEMU did not end properly, those of what was written until then.
    ///
    /// # Errors
    /// The system's error: the file does not exist if recording did not begin.
    pub fn load(spool: &Path) -> io::Result<Machine> {
        let mut machine: Machine = serde_json::from_slice(&std::fs::read(spool.join(MACHINE))?)?;
        if !machine.complete {
            for cpu in 0..VCPUS as u32 {
                if let Ok(file) = File::open(progress_path(spool, cpu)) {
                    machine
                        .cpus
                        .extend(lines(file).collect::<io::Result<Vec<Cpu>>>()?.into_iter().reduce(Cpu::then));
                }
            }
        }
        Ok(machine)
    }

    /// Writes the accounts. If the disk is full, the older ones stay.
    pub(crate) fn save(&self, spool: &Path) -> io::Result<()> {
        let new = spool.join(MACHINE).with_extension("new");
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        std::fs::rename(new, spool.join(MACHINE))
    }
}

impl Cpu {
    /// Joins the record of a CPU with the next one of the same CPU.
    fn then(mut self, next: Cpu) -> Cpu {
        self.pieces.extend(next.pieces);
        self.checkpoints.extend(next.checkpoints);
        Cpu { pieces: self.pieces, checkpoints: self.checkpoints, ..next }
    }

    /// What was traced before each PSB and before the end of the trace; nothing if it consists of snapshots.
    pub fn all_checkpoints(&self) -> Vec<Checkpoint> {
        let mut all = self.checkpoints.clone();
        if !all.is_empty() {
            let written: u64 = self.pieces.iter().map(|piece| piece.length).sum();
            all.push(Checkpoint::new(written + self.closing.len() as u64, self.traced));
        }
        all
    }

    /// Joins the pieces, which follow one another.
    pub fn in_one_piece(mut self) -> Cpu {
        let length = self.pieces.iter().map(|piece| piece.length).sum();
        if let Some(last) = self.pieces.last().copied() {
            self.pieces = vec![TracePiece { length, ..last }];
        }
        self
    }
}

/// The file of a vCPU's accounts, while it grows.
pub(crate) struct Progress {
    file: File,
    /// What is in it.
    saved: Option<Cpu>,
}

impl Progress {
    pub(crate) fn create(spool: &Path, cpu: u32) -> io::Result<Progress> {
        Ok(Progress { file: File::create(progress_path(spool, cpu))?, saved: None })
    }

    /// Adds the state of the vCPU; its pieces and checkpoints are those since the last call.
    pub(crate) fn save(&mut self, cpu: Cpu) -> io::Result<()> {
        let mut line = serde_json::to_vec(&cpu)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.saved = Some(match self.saved.take() {
            Some(saved) => saved.then(cpu),
            None => cpu,
        });
        Ok(())
    }

    /// What was saved.
    pub(crate) fn saved(&self) -> Option<&Cpu> {
        self.saved.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_proper_end_the_accounts_up_to_the_last_write_are_joined() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        Machine::default().save(folder).unwrap();
        let mut progress = Progress::create(folder, 1).unwrap();
        let checkpoint =
            |position, instructions| Checkpoint { position, instructions, sum: 2 * instructions };
        let mut save = |instructions, length, checkpoints: &[Checkpoint], closing: &[u8]| {
            let traced = Account { instructions, digest: 0, sum: 2 * instructions };
            let pieces = vec![TracePiece { begin: 0, length, end: instructions }];
            let (checkpoints, closing) = (checkpoints.to_vec(), closing.to_vec());
            progress.save(Cpu { cpu: 1, traced, pieces, checkpoints, closing, ..Cpu::default() }).unwrap();
        };
        save(10, 100, &[checkpoint(0, 0), checkpoint(60, 7)], &[1, 2, 3]);
        save(20, 40, &[checkpoint(120, 15)], &[4, 5]);
        let whole = progress.saved().unwrap().clone();
        // The next line is cut off.
        progress.file.write_all(b"{\"cpu\":1,").unwrap();
        let machine = Machine::load(folder).unwrap();
        assert_eq!(machine.cpus, std::slice::from_ref(&whole));
        let expected = [(0, 0), (60, 7), (120, 15), (142, 20)];
        assert_eq!(
            whole.all_checkpoints(),
            expected.map(|(position, instructions)| checkpoint(position, instructions))
        );
        assert_eq!(whole.clone().in_one_piece().all_checkpoints(), whole.all_checkpoints());
        assert_eq!(whole.in_one_piece().pieces, [TracePiece { begin: 0, length: 140, end: 20 }]);
        // Snapshots have none.
        assert_eq!(
            Cpu { pieces: vec![TracePiece { begin: 0, length: 9, end: 9 }], ..Cpu::default() }
                .all_checkpoints(),
            []
        );
    }
}

//! What a program for another processor runs under QEMU's user mode, as the plugin `lab/judges/account.c` writes it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{Outcome, command};

const SYSTEM_CALL: u32 = 0xffff_ffff;
const SIGNAL: u32 = 0xffff_fffe;
const DISCONTINUITY: u32 = 0xffff_fffd;
/// The kind of an interrupt.
const INTERRUPT: u32 = 1;
/// The kind of a call that the emulator itself serves.
const HOST_CALL: u32 = 4;
/// Words of a translated instruction in the file of the code.
const ENTRY: usize = 5;

/// An instruction that the emulator translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// Its address, without the bit that marks T32.
    pub address: u64,
    /// Its length in bytes.
    pub length: u32,
    /// Its bytes; those beyond its length are zero.
    pub bytes: [u8; 4],
}

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The translated instruction with this number began.
    Began(u32),
    /// The instruction that began last called the system.
    SystemCall,
    /// A signal's handler was entered; it returns to this address. The instruction that began last did not retire if it is
    /// the one at this address, and does not jump to itself.
    Signal(u64),
    /// In a machine: an exception, before the instruction at `from`, which begins a handler at `to`. The instruction that began
    /// last did not retire if it is the one at `from`, does not jump to itself, and this is no interrupt.
    Exception {
        /// Where the processor would have gone on.
        from: u64,
        /// Where it does.
        to: u64,
        /// Whether it does not come from an instruction.
        is_interrupt: bool,
    },
}

/// The files of a program that ran.
pub struct Account {
    /// All translated instructions; one that is translated again has another number.
    pub translated: Vec<Translated>,
    threads: Vec<Vec<u32>>,
}

impl Account {
    /// Runs a program under an emulator, without output, and reads what it did, whatever its exit code. The files, of `base`
    /// with several suffixes, are removed.
    ///
    /// # Errors
    /// The emulator can't be started, or a signal ends it.
    pub fn record(mut emulator: Command, program: &[&Path], plugin: &Path, base: &Path) -> Outcome<Account> {
        emulator.arg("-plugin").arg(format!("{},out={}", plugin.display(), base.display())).args(program);
        Account::of(emulator, base)
    }

    /// Runs a machine under an emulator from the moment on when a processor reaches the instruction at `from`, and at most `most`
    /// instructions of each processor. Else as [`Account::record`].
    ///
    /// # Errors
    /// As [`Account::record`].
    pub fn record_machine(
        mut emulator: Command,
        (from, most): (u64, u64),
        plugin: &Path,
        base: &Path,
    ) -> Outcome<Account> {
        let options = format!("{},out={},from={from},most={most}", plugin.display(), base.display());
        emulator.arg("-plugin").arg(options);
        let mut account = Account::of(emulator, base)?;
        account.drop_others();
        Ok(account)
    }

    fn of(mut emulator: Command, base: &Path) -> Outcome<Account> {
        let status = emulator.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        if status.code().is_none() {
            return Err(format!("{emulator:?} ended: {status}").into());
        }
        let code = base.with_extension("code");
        let word = |entry: &[u32], index: usize| u64::from(entry[index]);
        let translated = words(&code)?
            .chunks_exact(ENTRY)
            .map(|entry| Translated {
                address: word(entry, 1) | word(entry, 2) << 32,
                length: entry[3],
                bytes: entry[4].to_le_bytes(),
            })
            .collect();
        fs::remove_file(code)?;
        let mut threads = Vec::new();
        loop {
            let file = base.with_extension(threads.len().to_string());
            if !file.exists() {
                break;
            }
            threads.push(words(&file)?);
            fs::remove_file(file)?;
        }
        Ok(Account { translated, threads })
    }

    /// Drops instructions that did not begin: those of a machine before the account was opened.
    fn drop_others(&mut self) {
        let mut kept = Vec::new();
        let mut numbers = vec![None; self.translated.len()];
        for words in &mut self.threads {
            let mut at = 0;
            while at < words.len() {
                at += match words[at] {
                    SYSTEM_CALL => 2,
                    SIGNAL => 3,
                    DISCONTINUITY => 6,
                    number => {
                        words[at] = *numbers[number as usize].get_or_insert_with(|| {
                            kept.push(self.translated[number as usize]);
                            kept.len() as u32 - 1
                        });
                        1
                    }
                };
            }
        }
        self.translated = kept;
    }

    /// The number of threads that ran.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// What happened to a thread, in order.
    pub fn events(&self, thread: usize) -> impl Iterator<Item = Event> {
        let mut words = self.threads[thread].iter().copied();
        std::iter::from_fn(move || {
            let mut next = words.next()?;
            // What the emulator serves itself ends as any instruction.
            while next == DISCONTINUITY && words.clone().next() == Some(HOST_CALL) {
                next = words.by_ref().nth(5)?;
            }
            Some(match next {
                SYSTEM_CALL => {
                    // The call's number.
                    words.next()?;
                    Event::SystemCall
                }
                SIGNAL => Event::Signal(address(&mut words)?),
                DISCONTINUITY => {
                    let is_interrupt = words.next()? == INTERRUPT;
                    Event::Exception { from: address(&mut words)?, to: address(&mut words)?, is_interrupt }
                }
                number => Event::Began(number),
            })
        })
    }
}

/// Compiles a plugin of `lab/judges`: `account`, or `machine_account`.
///
/// # Errors
/// The compiler fails.
pub fn compile_plugin(name: &str, folder: &Path) -> Outcome<PathBuf> {
    let plugin = folder.join(name).with_extension("so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&plugin);
    command::quietly(gcc.arg(command::root().join("lab/judges").join(name).with_extension("c")))?;
    Ok(plugin)
}

fn address(words: &mut impl Iterator<Item = u32>) -> Option<u64> {
    Some(u64::from(words.next()?) | u64::from(words.next()?) << 32)
}

fn words(file: &Path) -> Outcome<Vec<u32>> {
    let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Ok(bytes.chunks_exact(4).map(word).collect())
}

//! What an emulator ran: each instruction of each thread, and the code.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use crate::Outcome;

/// Instruction words by address.
pub(crate) type Code = BTreeMap<u64, u32>;

/// The account of a program.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) code: Code,
    /// The addresses of the instructions that began, by the emulator's number of the thread.
    pub(crate) threads: BTreeMap<u32, Vec<u64>>,
}

impl Account {
    /// Runs a program in qemu-aarch64, which translates each instruction apart and logs each that begins.
    pub(crate) fn record(command: &[String]) -> Outcome<Account> {
        let mut child = Command::new("qemu-aarch64")
            .args(["-singlestep", "-d", "in_asm,exec,nochain"])
            .args(command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child.stderr.take().ok_or("the emulator has no log")?;
        let mut account = Account::default();
        let (mut lines, mut line) = (BufReader::with_capacity(1 << 20, log), Vec::new());
        while lines.read_until(b'\n', &mut line)? > 0 {
            account.take(&line)?;
            line.clear();
        }
        child.wait()?;
        match account.threads.is_empty() {
            true => Err("the emulator logged no instruction".into()),
            false => Ok(account),
        }
    }

    /// Reads `0x00400640:  d503201f  nop`, or `Trace 0: 0x7f35bf800100 [flags/address/…] symbol`. Other lines are the
    /// program's.
    fn take(&mut self, line: &[u8]) -> Outcome {
        if let Some(rest) = line.strip_prefix(b"Trace ") {
            let text = std::str::from_utf8(rest)?;
            let (thread, rest) = text.split_once(':').ok_or("a line without a thread")?;
            let address = rest.split('/').nth(1).ok_or("a line without an address")?;
            self.threads.entry(thread.parse()?).or_default().push(u64::from_str_radix(address, 16)?);
        } else if let Some(rest) = line.strip_prefix(b"0x") {
            let Ok(text) = std::str::from_utf8(rest) else { return Ok(()) };
            let mut words = text.split_whitespace();
            let (Some(address), Some(word)) = (words.next(), words.next()) else { return Ok(()) };
            let address = u64::from_str_radix(address.trim_end_matches(':'), 16)?;
            let word = u32::from_str_radix(word, 16)?;
            if self.code.insert(address, word).is_some_and(|before| before != word) {
                return Err(format!("the code at {address:x} changes").into());
            }
        }
        Ok(())
    }
}

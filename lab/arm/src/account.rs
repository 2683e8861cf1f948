//! What an emulator ran: each instruction of each thread, and the code.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use hodo_code::Isa;

use crate::Outcome;

/// Instructions by address.
pub(crate) type Code = BTreeMap<u64, Encoded>;

/// The bytes of an instruction, and its set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) isa: Isa,
    pub(crate) bytes: Vec<u8>,
}

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
        let is_32 = is_of_32_bits(command)?;
        let mut child = Command::new(if is_32 { "qemu-arm" } else { "qemu-aarch64" })
            // Where Debian's cross compilers have the shared libraries.
            .args(["-L", "/usr/aarch64-linux-gnu"])
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
            account.take(&line, is_32)?;
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
    fn take(&mut self, line: &[u8], is_32: bool) -> Outcome {
        if let Some(rest) = line.strip_prefix(b"Trace ") {
            let text = std::str::from_utf8(rest)?;
            let (thread, rest) = text.split_once(':').ok_or("a line without a thread")?;
            let address = rest.split('/').nth(1).ok_or("a line without an address")?;
            self.threads.entry(thread.parse()?).or_default().push(u64::from_str_radix(address, 16)?);
        } else if let Some(rest) = line.strip_prefix(b"0x") {
            let Ok(text) = std::str::from_utf8(rest) else { return Ok(()) };
            let mut words = text.split_whitespace();
            let (Some(address), Some(word)) = (words.next(), words.next()) else { return Ok(()) };
            let Some(encoded) = encoded(word, words.next().unwrap_or_default(), is_32) else { return Ok(()) };
            let address = u64::from_str_radix(address.trim_end_matches(':'), 16)?;
            if self.code.insert(address, encoded.clone()).is_some_and(|before| before != encoded) {
                return Err(format!("the code at {address:x} changes").into());
            }
        }
        Ok(())
    }
}

/// Reads a word, or one or two halfwords of T32; the second may be the mnemonic.
fn encoded(first: &str, second: &str, is_32: bool) -> Option<Encoded> {
    /// Instructions of four bytes begin with a halfword from here on.
    const WIDE: u16 = 0xe800;
    if first.len() == 8 {
        let isa = if is_32 { Isa::A32 } else { Isa::A64 };
        return Some(Encoded { isa, bytes: u32::from_str_radix(first, 16).ok()?.to_le_bytes().to_vec() });
    }
    let halfword = u16::from_str_radix(first, 16).ok()?;
    let mut bytes = halfword.to_le_bytes().to_vec();
    if halfword >= WIDE {
        bytes.extend(u16::from_str_radix(second, 16).ok()?.to_le_bytes());
    }
    Some(Encoded { isa: Isa::T32, bytes })
}

/// Returns whether a program is an ELF file of 32 bits.
fn is_of_32_bits(command: &[String]) -> Outcome<bool> {
    let program = command.first().ok_or("no program")?;
    Ok(std::fs::read(program)?.get(4) == Some(&1))
}

//! What an emulated machine ran, from QEMU's own log instead of our plugin's account.
//!
//! ```text
//! QEMU, one instruction per block ──► log: each block entered, each interrupt ──► addresses that ran ──┐
//!                  └──► plugin: blocks, their ends ──► account of each vCPU ───────────────────────────┴─ equal?
//! ```
//!
//! The log begins a little before the account, and ends a little after it: some stretch of the log's addresses must have
//! the account's number and digest.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use workbench::Outcome;

use super::machine::{Account, FACTOR};

/// Addresses that a vCPU ran, as digests of all prefixes.
#[derive(Debug)]
struct Ran {
    digests: Vec<u64>,
    /// The last instruction that began, if its end is unknown.
    begun: Option<u64>,
}

impl Default for Ran {
    fn default() -> Ran {
        Ran { digests: vec![0], begun: None }
    }
}

impl Ran {
    fn retire(&mut self, address: u64) {
        let last = self.digests[self.digests.len() - 1];
        self.digests.push(last.wrapping_mul(FACTOR).wrapping_add(address));
    }

    /// An instruction begins, so the one before has retired, unless it is the same one: QEMU enters a repeated string
    /// instruction, or an access to a device, more than once.
    fn begin(&mut self, address: u64) {
        if let Some(before) = self.begun.replace(address).filter(|&before| before != address) {
            self.retire(before);
        }
    }

    /// An interrupt or an exception leaves before the instruction at `address`; `raised`: it is INT that did so.
    fn interrupt(&mut self, address: u64, raised: bool) {
        if let Some(before) = self.begun.take().filter(|&before| raised || before != address) {
            self.retire(before);
        }
    }

    /// QEMU took back that it would enter the block at `address`.
    fn stop(&mut self, address: u64) {
        self.begun = self.begun.filter(|&begun| begun != address);
    }

    /// Whether a stretch of the addresses has this number and digest.
    fn has(&self, &Account { instructions, digest }: &Account) -> bool {
        let length = instructions as usize;
        let power = (0..instructions).fold(1u64, |power, _| power.wrapping_mul(FACTOR));
        let starts = self.digests.len().saturating_sub(length);
        (0..starts).any(|start| {
            self.digests[start + length].wrapping_sub(self.digests[start].wrapping_mul(power)) == digest
        })
    }
}

/// Compares QEMU's logs in a spool with the account of each vCPU. Returns the instructions that are equal.
///
/// # Errors
/// A log is missing, or contains other addresses.
pub(super) fn judge(spool: &Path, truth: &BTreeMap<u32, Account>) -> Outcome<u64> {
    let mut logged: BTreeMap<u32, Ran> = BTreeMap::new();
    for entry in fs::read_dir(spool)?.flatten() {
        // Each thread of QEMU has its log, and each vCPU its thread.
        if entry.file_name().to_string_lossy().starts_with("log-")
            && let Some((cpu, ran)) = read(&entry.path())?
        {
            logged.insert(cpu, ran);
        }
    }
    for (cpu, account) in truth {
        let ran = logged.get(cpu).ok_or(format!("QEMU's log says nothing of processor {cpu}"))?;
        let count = ran.digests.len() - 1;
        if !ran.has(account) {
            return Err(format!(
                "processor {cpu}: QEMU's log of {count} instructions has no stretch of {} with digest {:x}",
                account.instructions, account.digest
            )
            .into());
        }
    }
    Ok(truth.values().map(|account| account.instructions).sum())
}

/// Reads the log of a thread; `None` if it ran no vCPU.
fn read(path: &Path) -> Outcome<Option<(u32, Ran)>> {
    let mut log = BufReader::with_capacity(1 << 20, File::open(path)?);
    let (mut ran, mut cpu, mut line) = (Ran::default(), None, Vec::new());
    loop {
        line.clear();
        if log.read_until(b'\n', &mut line)? == 0 {
            // The account ends before an instruction that may not be in the log.
            ran.begun.take().into_iter().for_each(|last| ran.retire(last));
            return Ok(cpu.map(|cpu| (cpu, ran)));
        }
        let Ok(text) = std::str::from_utf8(&line) else { continue };
        match event(text) {
            Some(Event::Begin { cpu: entered, address }) => {
                cpu = Some(entered);
                ran.begin(address);
            }
            Some(Event::Stop(address)) => ran.stop(address),
            Some(Event::Interrupt { address, raised }) => ran.interrupt(address, raised),
            None => {}
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Begin { cpu: u32, address: u64 },
    Stop(u64),
    Interrupt { address: u64, raised: bool },
}

/// Parses `Trace 1: 0x7f… [00000000/ADDRESS/flags/flags] `, `Stopped execution of TB chain before 0x7f… [ADDRESS] ` and
/// `     1: v=0e e=0004 i=0 cpl=3 IP=0033:ADDRESS pc=… `.
fn event(line: &str) -> Option<Event> {
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    if let Some(rest) = line.strip_prefix("Trace ") {
        let (cpu, rest) = rest.split_once(':')?;
        return Some(Event::Begin { cpu: cpu.parse().ok()?, address: hexadecimal(rest.split('/').nth(1)?)? });
    }
    if let Some(rest) = line.strip_prefix("Stopped execution of TB chain before ") {
        return Some(Event::Stop(hexadecimal(rest.split(['[', ']']).nth(1)?)?));
    }
    let (_, rest) = line.split_once(": v=")?;
    let address = rest.split_once(" IP=")?.1.split([':', ' ']).nth(1)?;
    Some(Event::Interrupt { address: hexadecimal(address)?, raised: rest.contains(" i=1 ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log_are_read() {
        let begin = "Trace 1: 0x7fb8f4911cc0 [00000000/ffffffff81000cd3/18c0c2b3/ff028201] \n";
        assert_eq!(event(begin), Some(Event::Begin { cpu: 1, address: 0xffff_ffff_8100_0cd3 }));
        let stop = "Stopped execution of TB chain before 0x7fb8f4912d40 [0000000000247d04] \n";
        assert_eq!(event(stop), Some(Event::Stop(0x24_7d04)));
        let interrupt = "     1: v=ec e=0000 i=0 cpl=3 IP=0033:0000000000247d04 pc=0000000000247d04 SP=002b:00007ffd428b5fa0\n";
        assert_eq!(event(interrupt), Some(Event::Interrupt { address: 0x24_7d04, raised: false }));
        assert_eq!(event("Servicing hardware INT=0xec\n"), None);
    }

    #[test]
    fn what_was_left_before_its_end_did_not_run() {
        let mut ran = Ran::default();
        [1, 2, 2, 3].into_iter().for_each(|address| ran.begin(address));
        let [by_int, by_hardware] = [true, false];
        // A page fault at 3, whose handler is stopped before its second instruction.
        ran.interrupt(3, by_hardware);
        [100, 101].into_iter().for_each(|address| ran.begin(address));
        ran.stop(101);
        ran.interrupt(101, by_hardware);
        [200, 101, 3, 4].into_iter().for_each(|address| ran.begin(address));
        ran.interrupt(4, by_int);
        // The stop took back 101 only, so 100 ran.
        let expected = [1u64, 2, 100, 200, 101, 3, 4];
        let without_100 = [1u64, 2, 200, 101, 3, 4];
        let account = |addresses: &[u64]| Account {
            instructions: addresses.len() as u64,
            digest: addresses
                .iter()
                .fold(0, |digest: u64, &address| digest.wrapping_mul(FACTOR).wrapping_add(address)),
        };
        assert_eq!(ran.digests.len() - 1, expected.len());
        assert!(ran.has(&account(&expected[1..6])));
        assert!(!ran.has(&account(&without_100)));
    }
}

//! perf's decoder as a judge of an emulated machine: `lab/judges/perf_cpus.c` in `perf script`.
//!
//! ```text
//! recording ────────────────────► FOLDER/data ────────────────────────────────┐
//! spool: code of the kernel ────► FOLDER/kcore_dir/kcore ─────────────────────┴─ perf ──► account of each vCPU
//!        kallsyms, modules ─────► FOLDER/kcore_dir/{kallsyms,modules}
//! ```
//!
//! perf takes the kernel's code from the folder, as it does for `perf record --kcore`. Its code must not change while the
//! trace runs: the guest's records have no notes of changes.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use workbench::{Outcome, command};

use super::machine::Account;

const PAGE: u64 = 4096;
/// Length of a note of code: flags, time, address space, address and length.
const NOTE: usize = 40;

/// perf's account of each vCPU of a recording; `folder` receives the files that it needs.
///
/// # Errors
/// perf or the compiler fails, or the spool lacks a file.
pub(super) fn read(recording: &Path, spool: &Path, folder: &Path) -> Outcome<BTreeMap<u32, Account>> {
    let library = folder.join("judge-perf-cpus.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library);
    command::quietly(gcc.arg(command::root().join("lab/judges/perf_cpus.c")))?;
    let recorded = arrange(recording, spool, folder)?;
    let accounts = folder.join("perf-accounts");
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=i0ns", "--dlfilter"]).arg(&library).arg("--dlarg").arg(&accounts);
    let notices = command::capture(perf.arg("-i").arg(&recorded))?;
    notices.lines().take(10).for_each(|line| println!("  perf: {line}"));
    let account = |line: &str| -> Option<(u32, Account)> {
        let mut words = line.split(' ');
        let cpu = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse().ok();
        Some((cpu, Account { instructions: number()?, digest: number()? }))
    };
    Ok(fs::read_to_string(&accounts)?.lines().filter_map(account).collect())
}

/// Makes the folder that perf reads as a recording.
fn arrange(recording: &Path, spool: &Path, folder: &Path) -> Outcome<PathBuf> {
    let recorded = folder.join("for-perf");
    let kernel = recorded.join("kcore_dir");
    _ = fs::remove_dir_all(&recorded);
    fs::create_dir_all(&kernel)?;
    fs::hard_link(recording, recorded.join("data"))?;
    for (name, as_perf_names_it) in [("symbols", "kallsyms"), ("modules", "modules")] {
        fs::copy(spool.join(name), kernel.join(as_perf_names_it))?;
    }
    let symbols = fs::read_to_string(spool.join("symbols"))?;
    // A line is the address in 16 digits, a letter between spaces, and the name.
    let symbol = |name: &str| -> Outcome<u64> {
        let line = symbols.lines().find(|line| line.get(19..) == Some(name));
        let digits =
            line.and_then(|line| line.get(..16)).ok_or(format!("the guest's kernel has no symbol {name}"))?;
        Ok(u64::from_str_radix(digits, 16)?)
    };
    let image = symbol("_text")?..symbol("_einittext")?.next_multiple_of(PAGE);
    fs::write(kernel.join("kcore"), core(&segments(&fs::read(spool.join("code"))?, image)))?;
    Ok(recorded)
}

/// The first code at each address of the kernel, whose address space is number 0, by address: the image as one segment,
/// and the other pages.
fn segments(notes: &[u8], image: Range<u64>) -> Vec<(u64, Vec<u8>)> {
    let mut bytes_of_image = vec![0; (image.end - image.start) as usize];
    let mut known = vec![false; bytes_of_image.len()];
    let mut others: BTreeMap<u64, u8> = BTreeMap::new();
    let mut rest = notes;
    while let Some((note, bytes)) = rest.split_at_checked(NOTE) {
        let word = |index: usize| u64::from_le_bytes(note[index * 8..][..8].try_into().expect("eight bytes"));
        let [space, address, length] = [2, 3, 4].map(word);
        let Some((code, after)) = bytes.split_at_checked(length as usize) else { break };
        rest = after;
        for (address, &byte) in (address..).zip(code).filter(|_| space == 0) {
            let offset = address.wrapping_sub(image.start) as usize;
            if !image.contains(&address) {
                others.entry(address).or_insert(byte);
            } else if !known[offset] {
                (bytes_of_image[offset], known[offset]) = (byte, true);
            }
        }
    }
    let mut segments = vec![(image.start, bytes_of_image)];
    let mut last = None;
    for (address, byte) in others {
        let page = address / PAGE * PAGE;
        match segments.last_mut().filter(|_| last.is_some_and(|last| page <= last + PAGE)) {
            Some((first, bytes)) => {
                bytes.resize((page + PAGE - *first) as usize, 0);
                bytes[(address - *first) as usize] = byte;
            }
            None => {
                let mut bytes = vec![0; PAGE as usize];
                bytes[(address - page) as usize] = byte;
                segments.push((page, bytes));
            }
        }
        last = Some(page);
    }
    segments
}

/// An ELF core file with these segments.
fn core(segments: &[(u64, Vec<u8>)]) -> Vec<u8> {
    const HEADER: u64 = 64;
    const ENTRY: u64 = 56;
    let start = (HEADER + ENTRY * segments.len() as u64).next_multiple_of(PAGE);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let mut put = |bytes: &[u8]| file.extend(bytes);
    // ET_CORE, EM_X86_64, EV_CURRENT; no entry; the program headers follow.
    [4u16, 62].iter().for_each(|half| put(&half.to_le_bytes()));
    put(&1u32.to_le_bytes());
    [0, HEADER, 0].iter().for_each(|word: &u64| put(&word.to_le_bytes()));
    put(&0u32.to_le_bytes());
    let halves = [HEADER as u16, ENTRY as u16, segments.len() as u16, 0, 0, 0];
    halves.iter().for_each(|half| put(&half.to_le_bytes()));
    let mut offset = start;
    for (address, bytes) in segments {
        let length = bytes.len() as u64;
        // PT_LOAD, readable, writable and executable; without a physical address.
        [1u32, 7].iter().for_each(|word| put(&word.to_le_bytes()));
        [offset, *address, u64::MAX, length, length, PAGE].iter().for_each(|word| put(&word.to_le_bytes()));
        offset += length;
    }
    file.resize(start as usize, 0);
    segments.iter().for_each(|(_, bytes)| file.extend(bytes));
    file
}

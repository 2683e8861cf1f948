//! The address spaces of a process.
//!
//! The guest's kernel names a process when it executes a program, at which time CR3 is already that of the new program;
//! and it frees the page that CR3 points to when the last user of the address space is gone.

use std::{
    collections::HashSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{code::CR3_PAGE, processor::processor, settings::Process, symbols::Symbols};

/// The kernel's function that names a thread: `__set_task_comm(task, name, exec)`.
pub(crate) const NAMES: &str = "__set_task_comm";
/// The kernel's function that frees the root of page tables: `pgd_free(mm, pgd)`.
const FREES: &str = "pgd_free";
/// The most bytes of a thread's name, with the NUL at its end.
pub(crate) const NAME: usize = 16;

/// The recorded address spaces.
pub(crate) struct Processes {
    /// The program's name; `None` for the process of the command.
    name: Option<Vec<u8>>,
    /// Where the kernel frees page tables.
    pub(crate) frees_at: Vec<u64>,
    inner: Mutex<Inner>,
    version: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// The kernel's address of the command's thread.
    command: Option<u64>,
    spaces: HashSet<u64>,
}

impl Processes {
    /// # Errors
    /// The name of a function that the kernel does not have.
    pub(crate) fn new(process: &Process, symbols: &Symbols) -> Result<Processes, String> {
        let name = match process {
            Process::Command => None,
            Process::Named(name) => Some(name.bytes().take(NAME - 1).collect()),
        };
        Ok(Processes {
            name,
            frees_at: symbols.entries(FREES)?,
            inner: Mutex::default(),
            version: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes when an address space is added or removed.
    #[inline(always)]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether an address space is recorded.
    pub(crate) fn records(&self, space: u64) -> bool {
        self.lock().spaces.contains(&space)
    }

    /// A thread has executed a program, whose address space CR3 now shows. The first is the command: recording begins
    /// right before.
    pub(crate) fn executed(&self, thread: u64, name: &[u8], cr3: u64) {
        let mut inner = self.lock();
        let held = match &self.name {
            Some(wanted) => wanted == name,
            None => *inner.command.get_or_insert(thread) == thread,
        };
        if held {
            inner.spaces.insert(cr3 & CR3_PAGE)
        } else {
            inner.spaces.remove(&(cr3 & CR3_PAGE))
        };
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The page tables at this address of the kernel are gone.
    pub(crate) fn freed(&self, tables: u64) {
        if self.lock().spaces.remove(&tables.wrapping_sub(processor().physical)) {
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHYSICAL: u64 = 0xffff_8880_0000_0000;

    fn processes(name: Option<&str>) -> Processes {
        let name = name.map(|name| name.as_bytes().to_vec());
        Processes { name, frees_at: Vec::new(), inner: Mutex::default(), version: AtomicU64::new(0) }
    }

    #[test]
    fn the_command_keeps_its_thread() {
        let command = processes(None);
        command.executed(7, b"sh", 0x5006);
        command.executed(8, b"ls", 0x6006);
        assert!(command.records(0x5000) && !command.records(0x6000));
        command.executed(7, b"gzip", 0x7006);
        command.freed(PHYSICAL + 0x5000);
        assert!(command.records(0x7000) && !command.records(0x5000));
    }

    #[test]
    fn programs_of_a_name_are_held_until_they_end() {
        let named = processes(Some("ls"));
        named.executed(7, b"sh", 0x5006);
        named.executed(8, b"ls", 0x6006);
        named.executed(9, b"ls", 0x7006);
        assert!(!named.records(0x5000) && named.records(0x6000) && named.records(0x7000));
        let version = named.version();
        named.freed(PHYSICAL + 0x6000);
        assert!(!named.records(0x6000) && named.version() != version);
        // The same page tables, of another program.
        named.executed(8, b"cat", 0x7006);
        assert!(!named.records(0x7000));
    }
}

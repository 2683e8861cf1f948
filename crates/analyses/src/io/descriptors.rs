//! Determines the files of descriptors, from the beginning of the trace.
//!
//! A descriptor belongs to the table of a process. It gets its name from the call that opened it, from the state dump,
//! or from another descriptor (by `dup`, its variants and `fork`); it loses the name when it is closed, by `close` or
//! by exec. A descriptor without any of these events has no name. A descriptor of a thread whose process is unknown has
//! no name either, because another thread of the process could have closed it.

use hodo_model::kernel::Thread;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{
    Operation,
    action::{Action, CLOSE_ON_EXEC, FileCallExit, OpenFileCall},
};
use crate::{
    deferred_ops::StateMachine,
    durations::{Add, add_fields},
    system_calls::is_error,
};

/// Operations on tables and files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum FileStep {
    Enter {
        cpu: u32,
        entry: OpenFileCall,
    },
    /// The thread on a CPU is not in a call that concerns files.
    Idle {
        cpu: u32,
    },
    Exit {
        cpu: u32,
        exit: FileCallExit,
    },
    /// A whole call: no switch lies between its entry and its exit.
    Call {
        cpu: u32,
        entry: OpenFileCall,
        exit: FileCallExit,
    },
    /// A switch. `is_idle`: the previous thread is not in a call that concerns files.
    Switch {
        cpu: u32,
        is_idle: bool,
        prev: i64,
        next: i64,
    },
    /// From the state dump: the process of a thread, and the address of its table.
    Belongs {
        tid: i64,
        pid: u32,
        table: Option<u64>,
    },
    /// A process begins with a copy of the table of another.
    Fork {
        parent: u32,
        child: u32,
    },
    /// A thread whose process is unknown begins.
    Begins {
        tid: i64,
    },
    /// From the state dump: an open file in the table at an address, or of a process.
    Dumped {
        table: Option<u64>,
        pid: Option<u32>,
        fd: i32,
        file: Box<str>,
        flags: i64,
    },
}

/// A file's index in the list of names; index 0 stands for files without a name.
pub(super) type FileId = u32;
/// The file whose name is unknown.
pub(super) const UNKNOWN: FileId = 0;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct OpenDescriptor {
    file: FileId,
    /// Whether exec closes it.
    closes: bool,
}

/// Who used a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct FileUser {
    pub(super) thread: Thread,
    pub(super) cpu: u32,
    pub(super) fd: Option<i32>,
    pub(super) file: FileId,
}

/// The uses of a file.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct FileUse {
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) operations: u64,
    /// Number of operations that also count to another file, such as copies.
    pub(super) shared: u64,
    pub(super) opens: u64,
    pub(super) errors: u64,
    pub(super) time: u64,
}

add_fields!(FileUse { operations, shared, opens, errors, time } wrapping { read, written });

/// The tables of descriptors, and the uses of files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Descriptors {
    running: FxHashMap<u32, Thread>,
    /// Open calls, on CPUs and of threads that do not run.
    on_cpus: FxHashMap<u32, OpenFileCall>,
    of_threads: FxHashMap<Thread, OpenFileCall>,
    processes: FxHashMap<Thread, u32>,
    tables: FxHashMap<u32, FxHashMap<i32, OpenDescriptor>>,
    /// Processes by the address of their table in the state dump.
    addresses: FxHashMap<u64, Vec<u32>>,
    files: FxHashMap<Box<str>, FileId>,
    pub(super) uses: FxHashMap<FileUser, FileUse>,
}

impl StateMachine<FileStep> for Descriptors {
    fn apply(&mut self, step: FileStep) {
        match step {
            FileStep::Enter { cpu, entry } => drop(self.on_cpus.insert(cpu, entry)),
            FileStep::Exit { cpu, exit } => {
                if let Some(entry) = self.on_cpus.remove(&cpu) {
                    self.complete(cpu, entry, &exit);
                }
            }
            FileStep::Call { cpu, entry, exit } => {
                self.on_cpus.remove(&cpu);
                self.complete(cpu, entry, &exit);
            }
            FileStep::Idle { cpu } => drop(self.on_cpus.remove(&cpu)),
            FileStep::Switch { cpu, is_idle, prev, next } => {
                if is_idle {
                    self.on_cpus.remove(&cpu);
                }
                self.switch(cpu, prev, next);
            }
            FileStep::Belongs { tid, pid, table } => {
                self.processes.insert(Thread::new(tid, 0), pid);
                // Kernel threads have no table.
                if let Some(address) = table.filter(|&address| address != 0) {
                    let processes = self.addresses.entry(address).or_default();
                    if !processes.contains(&pid) {
                        processes.push(pid);
                    }
                }
            }
            FileStep::Fork { parent, child } => {
                let table = self.tables.get(&parent).cloned().unwrap_or_default();
                self.tables.insert(child, table);
                self.processes.insert(Thread::new(child.into(), 0), child);
            }
            FileStep::Begins { tid } => drop(self.processes.remove(&Thread::new(tid, 0))),
            FileStep::Dumped { table, pid, fd, file, flags } => {
                let slot = OpenDescriptor { file: self.file(&file), closes: flags & CLOSE_ON_EXEC != 0 };
                let processes =
                    table.and_then(|table| self.addresses.get(&table)).cloned().unwrap_or_default();
                for pid in processes.into_iter().chain(pid) {
                    self.tables.entry(pid).or_default().insert(fd, slot);
                }
            }
        }
    }
}

/// Commands of `fcntl`.
const F_DUPFD: i64 = 0;
const F_SETFD: i64 = 2;
const F_DUPFD_CLOEXEC: i64 = 1030;
/// The flag of `F_SETFD`.
const FD_CLOEXEC: i64 = 1;
/// The error of `close` for a descriptor that was not open; with any other result, the descriptor is closed.
const EBADF: i64 = 9;

impl Descriptors {
    fn file(&mut self, name: &str) -> FileId {
        if let Some(&known) = self.files.get(name) {
            return known;
        }
        let new = self.files.len() as FileId + 1;
        self.files.insert(name.into(), new);
        new
    }

    /// The names of files by index.
    pub(super) fn names(&self) -> Vec<Option<&str>> {
        let mut names = vec![None; self.files.len() + 1];
        self.files.iter().for_each(|(name, &file)| names[file as usize] = Some(&**name));
        names
    }

    fn switch(&mut self, cpu: u32, prev: i64, next: i64) {
        let (prev, next) = (Thread::new(prev, cpu), Thread::new(next, cpu));
        match self.on_cpus.remove(&cpu) {
            Some(entry) => drop(self.of_threads.insert(prev, entry)),
            None => drop(self.of_threads.remove(&prev)),
        }
        if let Some(entry) = self.of_threads.remove(&next) {
            self.on_cpus.insert(cpu, entry);
        }
        self.running.insert(cpu, next);
    }

    /// Applies a call that has ended.
    fn complete(&mut self, cpu: u32, entry: OpenFileCall, exit: &FileCallExit) {
        if entry.call != exit.call {
            return;
        }
        let thread = exit.thread.or(self.running.get(&cpu).copied()).unwrap_or(Thread::before(cpu));
        let process = self.processes.get(&thread).copied();
        let failed = is_error(exit.result);
        let mut used = FileUse { operations: 1, errors: failed.into(), ..FileUse::default() };
        used.time = exit.time.0.saturating_sub(entry.time.0);
        let bytes = if failed { 0 } else { exit.result as u64 };
        let user = |descriptors: &Descriptors, fd: Option<i32>| {
            let slot = process.and_then(|pid| descriptors.tables.get(&pid)?.get(&fd?));
            FileUser { thread, cpu, fd, file: slot.map_or(UNKNOWN, |slot| slot.file) }
        };
        match entry.action {
            Action::Transfer { operation, has_bytes } => {
                let bytes = if has_bytes { bytes } else { 0 };
                match operation {
                    Operation::Read => used.read = bytes,
                    Operation::Write => used.written = bytes,
                    _ => {}
                }
                self.used(user(self, entry.fd), used);
            }
            Action::Copy => {
                let (from, to) =
                    (FileUse { read: bytes, ..used }, FileUse { written: bytes, shared: 1, ..used });
                self.used(user(self, entry.fd), from);
                self.used(user(self, entry.other), to);
            }
            Action::SyncOther => self.used(user(self, None), used),
            Action::Open => {
                let file = entry.file.as_deref().map_or(UNKNOWN, |name| self.file(name));
                let fd = (!failed).then_some(exit.result as i32);
                let opener = FileUser { thread, cpu, fd, file };
                self.used(opener, FileUse { opens: (!failed).into(), ..used });
                self.set(process, fd, Some(OpenDescriptor { file, closes: entry.closes }));
            }
            Action::Close => {
                self.used(user(self, entry.fd), used);
                if exit.result != -EBADF {
                    self.set(process, entry.fd, None);
                }
            }
            _ if failed => {}
            _ => self.change(process, &entry, exit),
        }
    }

    fn used(&mut self, user: FileUser, used: FileUse) {
        self.uses.entry(user).or_default().add(used);
    }

    fn set(&mut self, process: Option<u32>, fd: Option<i32>, slot: Option<OpenDescriptor>) {
        let Some((pid, fd)) = process.zip(fd) else { return };
        let table = self.tables.entry(pid).or_default();
        match slot.filter(|slot| slot.file != UNKNOWN) {
            Some(slot) => drop(table.insert(fd, slot)),
            None => drop(table.remove(&fd)),
        }
    }

    /// Applies calls that only change the table.
    fn change(&mut self, process: Option<u32>, entry: &OpenFileCall, exit: &FileCallExit) {
        let Some(pid) = process else { return };
        let made = Some(exit.result as i32);
        let duplicated = |descriptors: &Descriptors| descriptors.tables.get(&pid)?.get(&entry.fd?).copied();
        let copy = |slot: Option<OpenDescriptor>, closes| slot.map(|slot| OpenDescriptor { closes, ..slot });
        match entry.action {
            Action::Make(nameless) => {
                let file = self.file(nameless.label());
                self.set(process, made, Some(OpenDescriptor { file, closes: entry.closes }));
            }
            Action::MakeTwo(nameless) => {
                let file = self.file(nameless.label());
                for fd in exit.made {
                    self.set(process, fd, Some(OpenDescriptor { file, closes: entry.closes }));
                }
            }
            Action::Duplicate => {
                let closes = false;
                self.set(process, made, copy(duplicated(self), closes));
            }
            // dup2 of a descriptor to itself does nothing.
            Action::DuplicateTo if made != entry.fd => {
                self.set(process, made, copy(duplicated(self), entry.closes));
            }
            Action::Control => match entry.command {
                F_DUPFD | F_DUPFD_CLOEXEC => {
                    self.set(process, made, copy(duplicated(self), entry.command == F_DUPFD_CLOEXEC));
                }
                F_SETFD => self.set(process, entry.fd, copy(duplicated(self), entry.value & FD_CLOEXEC != 0)),
                _ => {}
            },
            Action::CloseRange => {
                let (Some(first), Some(last)) = (entry.fd, entry.other) else { return };
                // The last is unsigned, and often the maximum.
                let is_in = |fd: i32| (first as u32..=last as u32).contains(&(fd as u32));
                let table = self.tables.entry(pid).or_default();
                if entry.closes {
                    table.iter_mut().filter(|(fd, _)| is_in(**fd)).for_each(|(_, slot)| slot.closes = true);
                } else {
                    table.retain(|&fd, _| !is_in(fd));
                }
            }
            Action::Execute => self.tables.entry(pid).or_default().retain(|_, slot| !slot.closes),
            _ => {}
        }
    }
}

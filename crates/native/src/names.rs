//! Names of threads, kept with the logs that are kept.
//!
//! A name comes in the table of its process, often long after its thread ended. It is needed as long as something of its
//! thread's log is.

use hodo_native_log::BlockHeader;
use hodo_native_runtime::wire::record;
use rustc_hash::FxHashMap;

/// The length of a name's record.
const BYTES: usize = 40;

/// The name that a thread gets.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    /// The key of its process's table.
    pub(crate) table: u64,
    /// The thread in the system.
    pub(crate) thread: u64,
    tsc: u64,
    record: [u8; BYTES],
}

/// Names of threads that run, or of whose logs something is kept.
#[derive(Default)]
pub(crate) struct Names {
    /// By the key of the process's table, and the thread in the system.
    owners: FxHashMap<(u64, u64), Owner>,
}

/// The threads that had one thread number in a process, one after another.
#[derive(Default)]
struct Owner {
    /// How many logs it has.
    logs: u32,
    names: Vec<Name>,
}

impl Names {
    /// A log begins.
    pub(crate) fn begin(&mut self, header: &BlockHeader) {
        self.owners.entry((header.table_key, header.thread)).or_default().logs += 1;
    }

    /// A log is over, and nothing of it is kept.
    pub(crate) fn end(&mut self, header: &BlockHeader) {
        let key = (header.table_key, header.thread);
        let Some(owner) = self.owners.get_mut(&key) else { return };
        owner.logs = owner.logs.saturating_sub(1);
        // A later thread with this number may have its name already.
        owner.names.retain(|name| name.tsc > header.last_tsc);
        if owner.logs == 0 && owner.names.is_empty() {
            self.owners.remove(&key);
        }
    }

    /// Keeps a name that is needed: of a thread that has a log here, or `runs`.
    pub(crate) fn keep(&mut self, name: Name, runs: impl Fn(&Name) -> bool) {
        let key = (name.table, name.thread);
        if self.owners.contains_key(&key) || runs(&name) {
            self.owners.entry(key).or_default().names.push(name);
        }
    }

    /// Takes the names out of a part of a table, and keeps those that are needed. Returns the rest of the part. The first
    /// name of a process stays there.
    pub(crate) fn take(
        &mut self,
        header: &BlockHeader,
        bytes: &[u8],
        runs: impl Fn(&Name) -> bool,
    ) -> Vec<u8> {
        let is_first = header.sequence == 0;
        let (names, rest) = split(header.key, bytes, |name| is_first && name.thread == header.process);
        names.into_iter().for_each(|name| self.keep(name, &runs));
        rest
    }

    /// All names as records, for each table in order.
    pub(crate) fn drain(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut names: Vec<Name> =
            self.owners.values_mut().flat_map(|owner| std::mem::take(&mut owner.names)).collect();
        self.owners.retain(|_, owner| owner.logs != 0);
        names.sort_unstable_by_key(|name| (name.table, name.tsc, name.thread));
        let records = |names: &[Name]| names.iter().flat_map(|name| name.record).collect();
        names
            .chunk_by(|one, next| one.table == next.table)
            .map(|names| (names[0].table, records(names)))
            .collect()
    }

    /// The number of threads and of names.
    #[cfg(test)]
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.owners.len(), self.owners.values().map(|owner| owner.names.len()).sum())
    }
}

/// Names in a part of the table with this key, and its other records, with the names that `stays` wants there.
pub(crate) fn split(table: u64, bytes: &[u8], stays: impl Fn(&Name) -> bool) -> (Vec<Name>, Vec<u8>) {
    let (mut names, mut others) = (Vec::new(), Vec::with_capacity(bytes.len()));
    let mut rest = bytes;
    while let Some((head, _)) = rest.split_first_chunk() {
        let head = u64::from_le_bytes(*head);
        let length = head as u32 as usize;
        let Some((whole, next)) = rest.split_at_checked(length).filter(|_| length >= 8) else { break };
        match name(table, (head >> 32) as u32, whole).filter(|name| !stays(name)) {
            Some(name) => names.push(name),
            None => others.extend(whole),
        }
        rest = next;
    }
    // Readers say where a table is damaged.
    others.extend(rest);
    (names, others)
}

fn name(table: u64, kind: u32, whole: &[u8]) -> Option<Name> {
    let record: [u8; BYTES] = whole.try_into().ok().filter(|_| kind == record::NAME)?;
    let [_, tsc, thread, ..] = record.as_chunks::<8>().0 else { return None };
    Some(Name { table, tsc: u64::from_le_bytes(*tsc), thread: u64::from_le_bytes(*thread), record })
}

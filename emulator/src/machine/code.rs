//! The code that a machine runs: by address, address space and time.
//!
//! The kernel half of the addresses is the same in all address spaces. CR3 identifies an address space; the recorder
//! determines its process from the thread that ran at the time.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufWriter, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::spool::{CodeNote, GUEST, SpaceNote, StackNote};

const PAGE: u64 = 4096;
/// The bits of CR3 that identify an address space.
pub(crate) const CR3_PAGE: u64 = !0xfff;

/// An address space. Lives as long as the machine runs.
pub(crate) struct Space {
    /// As [`CodeNote::space`].
    key: u64,
    /// The number of changes of its code.
    epoch: AtomicU64,
}

impl Space {
    /// A number that stands for the code at an address in this space: it changes when the space's code does; never 0.
    #[inline(always)]
    pub(crate) fn code_number(&self, pc: u64) -> u64 {
        let epoch = self.epoch.load(Ordering::Relaxed);
        (pc ^ self.key.rotate_left(20)).wrapping_add(epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1 << 62
    }
}

/// The known content of a page.
struct Page {
    bytes: [u8; PAGE as usize],
    /// Bitmap of the known bytes.
    known: [u64; PAGE as usize / 64],
    /// Tick of its last change; 0 if it never changed.
    changed: u64,
    /// The greatest time of the notes about its first content, see [`NextCode::since`]; 0 in the kernel and in guests.
    first_noted: u64,
}

/// The known code of the machine, and the files that record it.
pub(crate) struct Memory {
    kernel: &'static Space,
    inner: Mutex<Inner>,
}

struct Inner {
    spaces: HashMap<u64, &'static Space>,
    pages: HashMap<(u64, u64), Box<Page>>,
    code: BufWriter<File>,
    switches: BufWriter<File>,
    stacks: BufWriter<File>,
    failed: Option<String>,
}

/// Code that is about to run.
pub(crate) struct NextCode<'a> {
    pub(crate) index: u32,
    pub(crate) space: &'static Space,
    pub(crate) pc: u64,
    pub(crate) bytes: &'a [u8],
    /// The time of the vCPU's last TSC packet. New code is recorded as there since then: without that, a decoder would read
    /// the file that is mapped at this address, whose bytes may differ. `None` in the kernel and in guests, where it reads none.
    pub(crate) since: Option<u64>,
    pub(crate) clock: extern "C" fn() -> i64,
}

/// Result of comparing code with the known code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) known: Known,
    /// The tick of the last change on its pages; 0 if they never changed.
    pub(crate) changed: u64,
    /// The greatest time of the notes about the first content of its pages, see [`NextCode::since`].
    pub(crate) first_noted: u64,
}

/// What was known of code before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// All of it.
    All,
    /// Some of it was unknown.
    NotAll,
    /// Other code was there until now.
    OtherCode,
}

impl Memory {
    pub(crate) fn new(code: File, switches: File, stacks: File) -> Memory {
        let kernel = Box::leak(Box::new(Space { key: 0, epoch: AtomicU64::new(0) }));
        let inner = Inner {
            spaces: HashMap::new(),
            pages: HashMap::new(),
            code: BufWriter::with_capacity(1 << 18, code),
            switches: BufWriter::new(switches),
            stacks: BufWriter::new(stacks),
            failed: None,
        };
        Memory { kernel, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn kernel(&self) -> &'static Space {
        self.kernel
    }

    /// The user half of the address space of a CR3.
    pub(crate) fn space(&self, cr3: u64) -> &'static Space {
        self.of_key(cr3 & CR3_PAGE)
    }

    /// The memory of the guest with this VMCB.
    pub(crate) fn guest(&self, vmcb: u64) -> &'static Space {
        self.of_key(vmcb | GUEST)
    }

    fn of_key(&self, key: u64) -> &'static Space {
        let mut inner = self.lock();
        inner
            .spaces
            .entry(key)
            .or_insert_with(|| Box::leak(Box::new(Space { key, epoch: AtomicU64::new(0) })))
    }

    /// Records a new CR3 of a vCPU.
    pub(crate) fn switched(&self, index: u32, time: u64, cr3: u64) {
        let note = SpaceNote { cpu: index, time, space: cr3 & CR3_PAGE };
        self.lock().write(|inner| inner.switches.write_all(&note.encode()));
    }

    /// Records that a vCPU is about to run on the stack of another thread.
    pub(crate) fn changes_stack(&self, index: u32, time: u64) {
        self.lock().write(|inner| inner.stacks.write_all(&StackNote { cpu: index, time }.encode()));
    }

    /// Code is about to run; records what is new.
    pub(crate) fn compare_and_record(&self, code: &NextCode<'_>) -> Comparison {
        let mut inner = self.lock();
        let comparison = inner.compare(code);
        if comparison.known == Known::All {
            return comparison;
        }
        let changed = comparison.known == Known::OtherCode;
        if changed {
            // Before the clock is read: a vCPU that still finds the old number has read its own clock earlier.
            code.space.epoch.fetch_add(1, Ordering::SeqCst);
        }
        // Nothing else ran at this address since that packet, unless its pages have changed.
        let since = code.since.filter(|&since| !changed && comparison.changed < since);
        let time = since.unwrap_or_else(|| (code.clock)() as u64);
        inner.keep(code, time, changed);
        let length = code.bytes.len() as u64;
        let note =
            CodeNote { cpu: code.index, changed, time, space: code.space.key, address: code.pc, length };
        inner.write(|inner| {
            inner.code.write_all(&note.encode()).and_then(|()| inner.code.write_all(code.bytes))
        });
        Comparison { changed: if changed { time } else { comparison.changed }, ..comparison }
    }

    /// Writes the remaining bytes. Returns why some are missing, if any are.
    pub(crate) fn flush(&self) -> Option<String> {
        let mut inner = self.lock();
        inner.write(|inner| {
            inner.code.flush().and_then(|()| inner.switches.flush()).and_then(|()| inner.stacks.flush())
        });
        inner.failed.clone()
    }
}

impl Inner {
    /// Writes to the files. After a failure nothing more is written: a note may be there in part.
    fn write(&mut self, write: impl FnOnce(&mut Inner) -> io::Result<()>) {
        if self.failed.is_none()
            && let Err(error) = write(self)
        {
            self.failed = Some(error.to_string());
        }
    }

    fn compare(&self, code: &NextCode<'_>) -> Comparison {
        let mut comparison = Comparison { known: Known::All, changed: 0, first_noted: 0 };
        for (address, piece) in pieces(code.pc, code.bytes) {
            let Some(page) = self.pages.get(&(code.space.key, address / PAGE)) else {
                comparison.known = Known::NotAll;
                continue;
            };
            comparison.changed = page.changed.max(comparison.changed);
            comparison.first_noted = page.first_noted.max(comparison.first_noted);
            let start = (address % PAGE) as usize;
            for (offset, &byte) in (start..).zip(piece) {
                if page.known[offset / 64] >> (offset % 64) & 1 == 0 {
                    comparison.known = Known::NotAll;
                } else if page.bytes[offset] != byte {
                    return Comparison { known: Known::OtherCode, ..comparison };
                }
            }
        }
        comparison
    }

    fn keep(&mut self, code: &NextCode<'_>, time: u64, changed: bool) {
        for (address, piece) in pieces(code.pc, code.bytes) {
            let page = self.pages.entry((code.space.key, address / PAGE)).or_insert_with(|| {
                let (bytes, known) = ([0; PAGE as usize], [0; PAGE as usize / 64]);
                Box::new(Page { bytes, known, changed: 0, first_noted: 0 })
            });
            let start = (address % PAGE) as usize;
            page.bytes[start..start + piece.len()].copy_from_slice(piece);
            (start..start + piece.len()).for_each(|offset| page.known[offset / 64] |= 1 << (offset % 64));
            match (changed, code.since) {
                (true, _) => page.changed = time,
                (false, Some(_)) => page.first_noted = page.first_noted.max(time),
                (false, None) => {}
            }
        }
    }
}

/// Splits bytes at page borders, with their addresses.
fn pieces(address: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let first = (PAGE - address % PAGE) as usize;
    let (head, tail) = bytes.split_at(first.min(bytes.len()));
    let tails = tail.chunks(PAGE as usize).zip(0u64..);
    std::iter::once((address, head))
        .chain(tails.map(move |(piece, index)| (address + first as u64 + index * PAGE, piece)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::{NamedTempFile, tempfile};

    extern "C" fn noon() -> i64 {
        12
    }

    #[test]
    fn code_is_known_unknown_or_changed() {
        let file = || tempfile().unwrap();
        let memory = Memory::new(file(), file(), file());
        let see = |space, pc, bytes: &[u8]| {
            memory.compare_and_record(&NextCode { index: 0, space, pc, bytes, since: None, clock: noon })
        };
        let (kernel, user) = (memory.kernel(), memory.space(0x5007));
        let before = kernel.code_number(0xffe);
        let comparison = |known, changed| Comparison { known, changed, first_noted: 0 };
        assert_eq!(see(kernel, 0xffe, b"abcd"), comparison(Known::NotAll, 0));
        assert_eq!(see(kernel, 0xfff, b"bc"), comparison(Known::All, 0));
        assert_eq!(see(kernel, 0x1000, b"cde"), comparison(Known::NotAll, 0));
        assert_eq!(see(user, 0xffe, b"xx"), comparison(Known::NotAll, 0));
        assert_eq!(kernel.code_number(0xffe), before);
        assert_eq!(see(kernel, 0x1001, b"D"), comparison(Known::OtherCode, 12));
        assert_eq!(see(kernel, 0x1000, b"cDe"), comparison(Known::All, 12));
        assert_eq!(see(kernel, 0x1002, b"ef"), comparison(Known::NotAll, 12));
        assert_eq!(see(kernel, 0xffe, b"ab"), comparison(Known::All, 0));
        assert_ne!(kernel.code_number(0xffe), before);
        assert_eq!(memory.space(0x5000).key, user.key);
    }

    /// A debugger may have written what runs for the first time: the decoder must not read the file instead.
    #[test]
    fn new_code_is_there_since_the_last_time_that_the_trace_shows() {
        let written = NamedTempFile::new().unwrap();
        let memory = Memory::new(written.reopen().unwrap(), tempfile().unwrap(), tempfile().unwrap());
        let user = memory.space(0x5000);
        let see = |pc, bytes: &[u8], since| {
            memory.compare_and_record(&NextCode {
                index: 0,
                space: user,
                pc,
                bytes,
                since: Some(since),
                clock: noon,
            })
        };
        let comparison = |known, changed, first_noted| Comparison { known, changed, first_noted };
        assert_eq!(see(0x1000, b"ab", 7), comparison(Known::NotAll, 0, 0));
        // Another processor, whose last time is earlier, has to show a later one.
        assert_eq!(see(0x1000, b"ab", 3), comparison(Known::All, 0, 7));
        assert_eq!(see(0x1000, b"AB", 9), comparison(Known::OtherCode, 12, 7));
        // Part of it was changed after the last time.
        assert_eq!(see(0x1000, b"ABc", 10), comparison(Known::NotAll, 12, 7));
        assert_eq!(see(0x1003, b"d", 14), comparison(Known::NotAll, 12, 12));
        assert_eq!(memory.flush(), None);
        let mut file = std::io::BufReader::new(written);
        let mut times = Vec::new();
        while let Some((note, _)) = super::super::spool::next_code(&mut file).unwrap() {
            times.push(note.time);
        }
        assert_eq!(times, [7, 12, 12, 14]);
    }
}

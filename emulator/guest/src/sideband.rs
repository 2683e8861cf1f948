//! The guest kernel's records about its processes: the perf records of each CPU.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::fs::FileExt,
    },
    sync::atomic::{AtomicU64, Ordering},
};

use crate::system::{Error, check, map};

const PAGE: usize = 4096;
/// Ring size per CPU in bytes: enough for many switches, so that it is rarely emptied while the command runs.
const RING: usize = 16 << 20;
/// The used part of a perf_event_attr (linux/perf_event.h, PERF_ATTR_SIZE_VER7).
const ATTR_SIZE: usize = 128;
/// TID, TIME, CPU and IDENTIFIER: the trailer that the recorder expects after each record.
const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 16;
/// mmap, comm, task, watermark, sample_id_all, mmap2, comm_exec, context_switch, ksymbol.
const FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 14 | 1 << 18 | 1 << 23 | 1 << 24 | 1 << 26 | 1 << 29;
/// PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY.
const TYPE: u32 = 1;
const CONFIG: u64 = 9;
/// Offsets in a perf_event_mmap_page.
const TIME_SHIFT: usize = 50;
const TIME_MULT: usize = 52;
const CAPABILITIES: usize = 40;
const TIME_ZERO: usize = 64;
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
/// `cap_user_time_zero`.
const HAS_TIME_ZERO: u64 = 1 << 4;

/// The rings of all CPUs.
pub(crate) struct Rings(Vec<Ring>);

struct Ring {
    event: OwnedFd,
    page: *mut u8,
    out: File,
}

impl Rings {
    /// Starts recording on each CPU.
    pub(crate) fn open(spool: &str) -> Result<Rings, Error> {
        let mut rings = Vec::new();
        for cpu in 0.. {
            let event = match open(cpu) {
                Ok(event) => event,
                // The CPU does not exist.
                Err(_) if cpu > 0 => break,
                Err(error) => return Err(Error::of("perf_event_open")(error)),
            };
            let page = map(event.as_raw_fd(), PAGE + RING).map_err(Error::of("perf ring"))?;
            let out = File::create(format!("{spool}/sideband-{cpu}")).map_err(Error::of("sideband"))?;
            rings.push(Ring { event, page, out });
        }
        let clock = rings[0].clock();
        fs::write(format!("{spool}/clock"), clock).map_err(Error::of("clock"))?;
        let rings = Rings(rings);
        rings.locate(spool).map_err(Error::of("rings"))?;
        Ok(rings)
    }

    /// Writes where the rings are in the machine's memory: for each ring the numbers of its pages' frames, from
    /// `/proc/self/pagemap` (Linux, Documentation/admin-guide/mm/pagemap.rst). The recorder finds there what this process
    /// did not live to write.
    fn locate(&self, spool: &str) -> io::Result<()> {
        const FRAME: u64 = (1 << 55) - 1;
        let map = File::open("/proc/self/pagemap")?;
        let mut frames = Vec::new();
        for ring in &self.0 {
            let mut entries = vec![0; (PAGE + RING) / PAGE * 8];
            map.read_exact_at(&mut entries, (ring.page.addr() / PAGE * 8) as u64)?;
            let entries =
                entries.chunks_exact(8).map(|entry| u64::from_ne_bytes(entry.try_into().unwrap_or_default()));
            frames.extend(entries.flat_map(|entry| (entry & FRAME).to_le_bytes()));
        }
        fs::write(format!("{spool}/rings"), frames)
    }

    /// The events that become readable when a ring must be emptied.
    pub(crate) fn events(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().map(|ring| ring.event.as_raw_fd())
    }

    /// Empties all rings into the spool.
    pub(crate) fn drain(&mut self) -> Result<(), Error> {
        self.0.iter_mut().try_for_each(Ring::drain).map_err(Error::of("sideband"))
    }
}

fn open(cpu: i32) -> io::Result<OwnedFd> {
    let mut attr = [0u8; ATTR_SIZE];
    let mut put = |at: usize, bytes: &[u8]| attr[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &TYPE.to_ne_bytes());
    put(4, &(ATTR_SIZE as u32).to_ne_bytes());
    put(8, &CONFIG.to_ne_bytes());
    put(24, &SAMPLE_TYPE.to_ne_bytes());
    put(40, &FLAGS.to_ne_bytes());
    put(48, &(RING as u32 / 2).to_ne_bytes());
    const CLOSE_ON_EXEC: u64 = 1 << 3;
    // SAFETY: the attr has the length that it contains.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), -1, cpu, -1, CLOSE_ON_EXEC)
    })?;
    // SAFETY: it was just opened, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

impl Ring {
    fn word<T: Copy>(&self, offset: usize) -> T {
        // SAFETY: the first page is mapped, the kernel's layout is aligned, and offsets are the constants above.
        unsafe { self.page.add(offset).cast::<T>().read_volatile() }
    }

    fn pointer(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as in `word`; the kernel writes these words atomically.
        unsafe { AtomicU64::from_ptr(self.page.add(offset).cast()) }
    }

    /// The conversion of ticks to the records' nanoseconds: shift, multiplier, zero, and whether they are valid.
    fn clock(&self) -> String {
        let valid = self.word::<u64>(CAPABILITIES) & HAS_TIME_ZERO != 0;
        let (shift, multiplier) = (self.word::<u16>(TIME_SHIFT), self.word::<u32>(TIME_MULT));
        format!("{shift} {multiplier} {} {}\n", self.word::<u64>(TIME_ZERO), u8::from(valid))
    }

    fn drain(&mut self) -> io::Result<()> {
        let head = self.pointer(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.pointer(DATA_TAIL).load(Ordering::Relaxed);
        let (from, to) = (tail as usize % RING, head as usize % RING);
        // SAFETY: the ring is mapped after the first page, and the kernel does not write between tail and head.
        let ring = unsafe { std::slice::from_raw_parts(self.page.add(PAGE), RING) };
        if head != tail {
            match from < to {
                true => self.out.write_all(&ring[from..to])?,
                false => {
                    self.out.write_all(&ring[from..])?;
                    self.out.write_all(&ring[..to])?;
                }
            }
        }
        self.pointer(DATA_TAIL).store(head, Ordering::Release);
        Ok(())
    }
}

/// Writes the existing threads, as no record announces them.
pub(crate) fn list_threads(spool: &str) -> Result<(), Error> {
    let numbers = |folder: &str| -> Vec<u32> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    let mut list = Vec::new();
    for pid in numbers("/proc") {
        for tid in numbers(&format!("/proc/{pid}/task")) {
            let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
            list.extend(format!("{pid} {tid} ").bytes());
            list.extend(name.trim_ascii_end());
            list.push(b'\n');
        }
    }
    fs::write(format!("{spool}/threads"), list).map_err(Error::of("threads"))
}

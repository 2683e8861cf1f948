//! The guest kernel's records about its processes: the perf records of each CPU.

use std::{
    fs::{self, File},
    io::{self, Seek, Write},
    mem,
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
pub(crate) struct Rings {
    spool: String,
    all: Vec<Ring>,
    /// Becomes readable when the kernel announces a device. `None` if the kernel can't announce them.
    devices: Option<OwnedFd>,
}

struct Ring {
    event: OwnedFd,
    page: *mut u8,
    out: File,
    /// The number of bytes in that file before those of this ring.
    begin: u64,
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
            rings.push(Ring { event, page, out, begin: 0 });
        }
        let clock = rings[0].clock();
        fs::write(format!("{spool}/clock"), clock).map_err(Error::of("clock"))?;
        let rings = Rings { spool: spool.to_owned(), all: rings, devices: devices().ok() };
        rings.locate().map_err(Error::of("rings"))?;
        Ok(rings)
    }

    /// Writes where the rings are in the machine's memory: for each ring the number of bytes in the spool that precede its
    /// own, and the numbers of its pages' frames, from `/proc/self/pagemap` (Linux,
    /// Documentation/admin-guide/mm/pagemap.rst). If this process is killed, the recorder reads the rest from there.
    fn locate(&self) -> io::Result<()> {
        const FRAME: u64 = (1 << 55) - 1;
        let map = File::open("/proc/self/pagemap")?;
        let mut words = Vec::new();
        for ring in &self.all {
            let mut entries = vec![0; (PAGE + RING) / PAGE * 8];
            map.read_exact_at(&mut entries, (ring.page.addr() / PAGE * 8) as u64)?;
            let entries =
                entries.chunks_exact(8).map(|entry| u64::from_ne_bytes(entry.try_into().unwrap_or_default()));
            words.extend(ring.begin.to_le_bytes());
            words.extend(entries.flat_map(|entry| (entry & FRAME).to_le_bytes()));
        }
        let new = format!("{}/rings.new", self.spool);
        fs::write(&new, words)?;
        fs::rename(new, format!("{}/rings", self.spool))
    }

    /// The events that become readable when a ring must be emptied.
    pub(crate) fn events(&self) -> impl Iterator<Item = RawFd> {
        self.all
            .iter()
            .map(|ring| ring.event.as_raw_fd())
            .chain(self.devices.as_ref().map(AsRawFd::as_raw_fd))
    }

    /// Empties all rings into the spool.
    pub(crate) fn drain(&mut self) -> Result<(), Error> {
        while let Some(cpu) = self.devices.as_ref().and_then(started) {
            if cpu < self.all.len() {
                self.open_again(cpu).map_err(Error::of("perf ring"))?;
            }
        }
        self.all.iter_mut().try_for_each(Ring::drain).map_err(Error::of("sideband"))
    }

    /// Opens the event of a CPU that was offline: the kernel has detached the old event. The old ring stays until the
    /// recorder can find the new one.
    fn open_again(&mut self, cpu: usize) -> io::Result<()> {
        let ring = &mut self.all[cpu];
        ring.drain()?;
        ring.begin = ring.out.stream_position()?;
        let event = open(cpu as i32)?;
        let page = map(event.as_raw_fd(), PAGE + RING)?;
        let old_event = mem::replace(&mut ring.event, event);
        let old_page = mem::replace(&mut ring.page, page);
        self.locate()?;
        drop(old_event);
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        unsafe { libc::munmap(old_page.cast(), PAGE + RING) };
        Ok(())
    }
}

/// Opens a socket that receives the kernel's announcements of devices.
fn devices() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved.
    let fd = check(i64::from(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) }))?;
    // SAFETY: it was just opened, and this is its only owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    // SAFETY: all-zero bytes are a valid address.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    // Group 1 receives what the kernel itself announces.
    (address.nl_family, address.nl_groups) = (libc::AF_NETLINK as u16, 1);
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length describe `address`.
    check(i64::from(unsafe { libc::bind(fd as RawFd, (&raw const address).cast(), length) }))?;
    Ok(socket)
}

/// The next CPU that has started, in the announcements that have arrived.
fn started(devices: &OwnedFd) -> Option<usize> {
    let mut message = [0; 4096];
    loop {
        // SAFETY: the pointer and the length describe `message`.
        let read = unsafe { libc::recv(devices.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), 0) };
        let text = message.get(..usize::try_from(read).ok()?)?;
        if let Some(cpu) = started_in(text) {
            return Some(cpu);
        }
    }
}

/// The CPU that an announcement says has started: `online@/devices/system/cpu/cpu1`, and a NUL.
fn started_in(announcement: &[u8]) -> Option<usize> {
    let first = announcement.split(|&byte| byte == 0).next()?;
    let number = first.strip_prefix(b"online@/devices/system/cpu/cpu")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn open(cpu: i32) -> io::Result<OwnedFd> {
    let mut attr = [0u8; ATTR_SIZE];
    let mut put = |offset: usize, bytes: &[u8]| attr[offset..offset + bytes.len()].copy_from_slice(bytes);
    // `type`, `size`, `config`, `sample_type`, the bits, `wakeup_watermark`.
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
            if from < to {
                self.out.write_all(&ring[from..to])?
            } else {
                self.out.write_all(&ring[from..])?;
                self.out.write_all(&ring[..to])?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_starts_is_announced() {
        let text = b"online@/devices/system/cpu/cpu1\0ACTION=online\0SEQNUM=1703\0";
        assert_eq!(started_in(text), Some(1));
        for other in [&b"offline@/devices/system/cpu/cpu1\0"[..], b"add@/devices/virtual/bdi/0:41\0", b""] {
            assert_eq!(started_in(other), None);
        }
    }
}

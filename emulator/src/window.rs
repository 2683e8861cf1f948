//! The part of a thread's file that is mapped for writing.

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering, compiler_fence},
    },
};

use crate::spool::{HEADER, Thread, Window};

/// Bytes that are mapped at a time.
const WINDOW: u64 = 1 << 20;
/// Bytes that may be written before the next check of the limit.
pub(crate) const SLACK: usize = 4096;

static PSB_PERIOD: AtomicU64 = AtomicU64::new(2048);
static SPOOL: OnceLock<PathBuf> = OnceLock::new();

/// Sets what all windows share.
pub(crate) fn configure(spool: &Path, psb_period: u64) {
    PSB_PERIOD.store(psb_period, Ordering::Relaxed);
    _ = SPOOL.set(spool.to_owned());
}

pub(crate) fn psb_period() -> u64 {
    PSB_PERIOD.load(Ordering::Relaxed)
}

fn path(spool: &Path, pid: u64, tid: u64, sequence: u64) -> PathBuf {
    spool.join(format!("thread-{pid}-{tid}-{sequence}"))
}

/// Makes the file of `thread` with the next free sequence number, and moves the thread into it.
pub(crate) fn create(spool: &Path, mut thread: Thread) -> io::Result<*mut Thread> {
    let file = loop {
        let path = path(spool, thread.pid, thread.tid, thread.sequence);
        match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => thread.sequence += 1,
            other => break other?,
        }
    };
    let size = if thread.ring == 0 { WINDOW } else { thread.ring };
    allocate(&file, 0, HEADER + size)?;
    let home = map(&file, 0, HEADER)?.cast::<Thread>();
    let ring = thread.ring;
    thread.window.base = match ring {
        0 => map(&file, HEADER, WINDOW)?,
        // The ring is mapped twice in a row, so that bytes beyond its end wrap around to its start.
        _ => {
            let base = map_nothing(2 * ring)?;
            map_at(&file, HEADER, ring, Some(base))?;
            map_at(&file, HEADER, ring, Some(base.wrapping_add(ring as usize)))?;
            base
        }
    };
    thread.window.cursor = thread.window.base;
    thread.window.end = thread.window.base.wrapping_add(if ring == 0 { WINDOW } else { 2 * ring } as usize);
    set_limit(&mut thread.window);
    // SAFETY: `home` is a mapping of HEADER bytes, more than a `Thread` has, and page-aligned.
    unsafe { thread.publish(home) };
    Ok(home)
}

/// Unmaps the thread and its window; the file stays.
///
/// # Safety
/// `thread` came from [`create`] and is not used any more.
pub(crate) unsafe fn close(thread: *mut Thread) {
    // SAFETY: the caller promises it; `create` and `advance` made the mappings.
    unsafe {
        let window = &(*thread).window;
        libc::munmap(window.base.cast(), window.end as usize - window.base as usize);
        libc::munmap(thread.cast(), HEADER as usize);
    }
}

/// Makes sure that there is space between the cursor and the end of the mapping.
///
/// # Errors
/// The disk is full, or the recorder and its spool are gone.
pub(crate) fn advance(thread: &mut Thread) -> io::Result<()> {
    let (ring, window) = (thread.ring, &mut thread.window);
    if ring != 0 {
        let into = window.cursor as u64 - window.base as u64;
        if into >= ring {
            // A reader that sees only the first update takes the ring for newer than it is, and reads nothing old as
            // new.
            window.offset += ring;
            compiler_fence(Ordering::SeqCst);
            window.cursor = window.cursor.wrapping_sub(ring as usize);
        }
        return Ok(());
    }
    if (window.end as usize) - (window.cursor as usize) > 2 * SLACK {
        return Ok(());
    }
    let position = window.position();
    let page = position & !0xfff;
    let spool = SPOOL.get().ok_or(io::ErrorKind::NotFound)?;
    let base = extend(&path(spool, thread.pid, thread.tid, thread.sequence), page)?;
    // SAFETY: the old window is not used any more.
    unsafe { libc::munmap(window.base.cast(), window.end as usize - window.base as usize) };
    window.base = base;
    window.offset = page;
    window.end = base.wrapping_add(WINDOW as usize);
    window.cursor = base.wrapping_add((position - page) as usize);
    Ok(())
}

/// Maps the file from trace byte `offset`, after making it long enough.
fn extend(path: &Path, offset: u64) -> io::Result<*mut u8> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    allocate(&file, HEADER + offset, WINDOW)?;
    map(&file, HEADER + offset, WINDOW)
}

/// Extends the file, and allocates disk space for it if the file system can: writing to a mapping without disk space
/// would raise SIGBUS in the program.
fn allocate(file: &File, offset: u64, length: u64) -> io::Result<()> {
    // SAFETY: plain numbers and an open file.
    let error =
        unsafe { libc::posix_fallocate(file.as_raw_fd(), offset as libc::off_t, length as libc::off_t) };
    match error {
        0 => Ok(()),
        libc::EOPNOTSUPP | libc::EINVAL => file.set_len(offset + length),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Sets the next stop: a PSB or the end of the window.
pub(crate) fn set_limit(window: &mut Window) {
    let end = window.end.wrapping_sub(2 * SLACK);
    let psb = window.next_psb.saturating_sub(window.offset).min(end as u64 - window.base as u64);
    window.limit = window.base.wrapping_add(psb as usize).min(end);
}

fn map(file: &File, offset: u64, length: u64) -> io::Result<*mut u8> {
    map_at(file, offset, length, None)
}

/// Maps a part of a file, at a fixed address if one is given.
fn map_at(file: &File, offset: u64, length: u64, address: Option<*mut u8>) -> io::Result<*mut u8> {
    let fixed = if address.is_some() { libc::MAP_FIXED } else { 0 };
    // SAFETY: without an address the kernel chooses a free one; an address is inside a mapping that `map_nothing` made
    // for this.
    let mapped = unsafe {
        libc::mmap(
            address.unwrap_or(ptr::null_mut()).cast(),
            length as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | fixed,
            file.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    check(mapped)
}

/// Reserves addresses.
fn map_nothing(length: u64) -> io::Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses free addresses.
    check(unsafe { libc::mmap(ptr::null_mut(), length as usize, libc::PROT_NONE, flags, -1, 0) })
}

fn check(address: *mut libc::c_void) -> io::Result<*mut u8> {
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address.cast()) }
}

/// A path for a system call.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

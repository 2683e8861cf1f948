//! Survives the loss of mapped pages: a file that shrinks while it is read, or a disk that fails.
//!
//! ```text
//! access beyond the end ──SIGBUS──► a map of ours? ──► pages of zeros from there to its end; the offset is kept
//!                                        └─no──► the handler that was installed before
//! ```

#![allow(unsafe_code)]

use std::{
    path::{Path, PathBuf},
    ptr,
    sync::{
        Mutex, Once, OnceLock, PoisonError,
        atomic::{AtomicPtr, AtomicUsize, Ordering},
    },
};

/// A file that could not be read from some offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The file; empty for a pipe.
    pub path: PathBuf,
    /// Offset of the first unreadable page.
    pub offset: u64,
}

/// A guarded range of memory. The handler of the signal reads it at any moment, so its fields are atomic, and guards are
/// reused instead of freed.
struct Guard {
    /// Address of the first byte; 0 while the guard is free.
    base: AtomicUsize,
    length: AtomicUsize,
    /// Offset of the first unreadable page, or [`READABLE`].
    unreadable: AtomicUsize,
    path: Mutex<PathBuf>,
    next: Option<&'static Guard>,
}

const READABLE: usize = usize::MAX;

/// All guards, the newest first.
static GUARDS: AtomicPtr<Guard> = AtomicPtr::new(ptr::null_mut());
/// Held while guards are taken.
static TAKING: Mutex<()> = Mutex::new(());
/// The handler of SIGBUS that was installed before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Guards a map until it is dropped. A guard whose map was hit stays taken, so that the offset remains known.
#[derive(Debug)]
pub(crate) struct Guarded(&'static Guard);

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("base", &self.base)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Guarded {
    /// Guards `length` bytes at `base`, which map a file.
    pub(crate) fn new(path: &Path, base: usize, length: usize) -> Guarded {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |guard: &&Guard| guard.base.load(Ordering::Relaxed) == 0;
        let guard = guards().find(is_free).unwrap_or_else(add);
        path.clone_into(&mut guard.path.lock().unwrap_or_else(PoisonError::into_inner));
        guard.unreadable.store(READABLE, Ordering::Relaxed);
        guard.length.store(length, Ordering::Relaxed);
        // The handler reads the base first.
        guard.base.store(base, Ordering::Release);
        Guarded(guard)
    }

    /// Returns the file and the offset of the first page that could not be read, if there is one.
    pub(crate) fn unreadable(&self) -> Option<Unreadable> {
        self.0.unreadable()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        match self.0.unreadable() {
            // No address is in an empty range.
            Some(_) => self.0.length.store(0, Ordering::Release),
            None => self.0.base.store(0, Ordering::Release),
        }
    }
}

impl Guard {
    fn unreadable(&self) -> Option<Unreadable> {
        let offset = self.unreadable.load(Ordering::Acquire);
        let path = || self.path.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (offset != READABLE).then(|| Unreadable { path: path(), offset: offset as u64 })
    }

    /// Replaces the guarded pages from an address on by zeros. Returns `false` if the address is not guarded, or the
    /// system refuses.
    fn put_zeros(&self, address: usize) -> bool {
        let base = self.base.load(Ordering::Acquire);
        let length = self.length.load(Ordering::Acquire);
        if base == 0 || !(base..base + length).contains(&address) {
            return false;
        }
        // SAFETY: asks the kernel for a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
        let offset = (address - base) / page * page;
        self.unreadable.fetch_min(offset, Ordering::AcqRel);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the range lies within a map of ours, which stays mapped and readable; nothing but the content of its
        // pages changes, which can't be read any more.
        let zeros = unsafe {
            libc::mmap((base + offset) as *mut libc::c_void, length - offset, libc::PROT_READ, flags, -1, 0)
        };
        zeros != libc::MAP_FAILED
    }
}

/// Returns what could not be read of the maps of this process, including those that were dropped since, the oldest first.
pub fn unreadable() -> Vec<Unreadable> {
    let mut all: Vec<Unreadable> = guards().filter_map(Guard::unreadable).collect();
    all.reverse();
    all
}

fn guards() -> impl Iterator<Item = &'static Guard> {
    // SAFETY: guards are never freed.
    let mut next = unsafe { GUARDS.load(Ordering::Acquire).as_ref() };
    std::iter::from_fn(move || {
        let guard = next?;
        next = guard.next;
        Some(guard)
    })
}

/// Adds a free guard; the caller holds the lock of [`TAKING`].
fn add() -> &'static Guard {
    let guard = Box::leak(Box::new(Guard {
        base: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        unreadable: AtomicUsize::new(READABLE),
        path: Mutex::default(),
        // SAFETY: guards are never freed.
        next: unsafe { GUARDS.load(Ordering::Acquire).as_ref() },
    }));
    GUARDS.store(guard, Ordering::Release);
    guard
}

/// Installs the handler of SIGBUS.
fn install() {
    // SAFETY: `sigaction` is given a handler of the type that SA_SIGINFO asks for, and room for the previous one. An
    // all-zero `sigaction` is valid: the default action without flags and without masked signals.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, ptr::null(), &mut before);
        // This comes before our handler is installed, which reads it.
        let _ = BEFORE.set(before);
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
}

/// Handles SIGBUS: puts zeros in place of what can't be read. A handler of a signal may call only the kernel, and take no
/// lock.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`, whose address is set for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    if !guards().any(|guard| guard.put_zeros(address)) {
        pass_on(signal, info, context);
    }
}

/// Calls the handler that was installed before ours; without one, the signal ends the process when it is raised again.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE
        .get()
        .filter(|before| before.sa_sigaction > libc::SIG_IGN && before.sa_flags & libc::SA_SIGINFO != 0);
    match before {
        Some(before) => {
            // SAFETY: a handler that was installed with SA_SIGINFO has this type.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(before.sa_sigaction) };
            handler(signal, info, context);
        }
        // SAFETY: sets the default action; the access that failed is made again and raises the signal again.
        None => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

//! System calls without a function in the standard library.

use std::{
    ffi::{CStr, CString},
    fmt, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
};

/// An operation that failed.
#[derive(Debug)]
pub(crate) struct Error {
    what: String,
    error: io::Error,
}

impl Error {
    /// For `map_err`: adds what the operation was about.
    pub(crate) fn of(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error { what, error }
    }

    /// Replaces what the operation was about.
    pub(crate) fn about(self, what: impl Into<String>) -> Error {
        Error { what: what.into(), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.what, self.error)
    }
}

/// Converts the result of a system call in C.
pub(crate) fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn c_string(text: &str) -> io::Result<CString> {
    Ok(CString::new(text)?)
}

/// mount(2), without flags and options.
pub(crate) fn mount_plainly(source: &str, target: &str, kind: &str) -> Result<(), Error> {
    let (no_flags, no_options) = (0, "");
    mount(source, target, kind, no_flags, no_options)
}

/// mount(2), at a folder that is made if it is missing.
pub(crate) fn mount(
    source: &str,
    target: &str,
    kind: &str,
    flags: libc::c_ulong,
    options: &str,
) -> Result<(), Error> {
    let mounted = (|| {
        std::fs::create_dir_all(target).or_else(|error| match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })?;
        let (source, target) = (c_string(source)?, c_string(target)?);
        let (kind, options) = (c_string(kind)?, c_string(options)?);
        // SAFETY: all strings end in NUL and outlive the call.
        check(i64::from(unsafe {
            libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
        }))
    })();
    mounted.map(drop).map_err(Error::of(format!("mounting {kind} on {target}")))
}

/// finit_module(2). A module that is already loaded is no error.
pub(crate) fn load_module(file: &std::fs::File) -> io::Result<()> {
    // SAFETY: the parameters are an empty string.
    let loaded = check(unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) });
    match loaded {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other.map(drop),
    }
}

/// Brings up a network interface: netdevice(7), `SIOCSIFFLAGS`.
pub(crate) fn bring_up(interface: &str) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let socket =
        check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) }.into())?;
    // SAFETY: it was just opened, and this is its only owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket as i32) };
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name.iter_mut().zip(interface.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request has the form that this call reads.
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) };
    check(set.into()).map(drop)
}

/// sethostname(2).
pub(crate) fn set_host_name(name: &str) -> Result<(), Error> {
    // SAFETY: the pointer and the length describe `name`.
    let set = check(i64::from(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }));
    set.map(drop).map_err(Error::of("sethostname"))
}

/// uname(2): system, host, release and machine, as `uname -a` begins.
pub(crate) fn uname() -> String {
    // SAFETY: all-zero bytes are a valid `utsname`.
    let names = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&mut names);
        names
    };
    let text = |text: &[libc::c_char]| {
        // SAFETY: each text of a `utsname` ends in NUL.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
    };
    [&names.sysname, &names.nodename, &names.release, &names.machine].map(|name| text(name)).join(" ")
}

/// pidfd_open(2): a descriptor that becomes readable when the process ends.
pub(crate) fn process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: it was just opened, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The ends of a pipe.
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
}

/// pipe2(2).
pub(crate) fn pipe() -> io::Result<Pipe> {
    let mut ends = [0; 2];
    // SAFETY: `ends` is a valid place for two numbers.
    check(i64::from(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    // SAFETY: both were just opened, and this is their only owner.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    Ok(Pipe { read, write })
}

/// Powers off the guest, which ends QEMU.
pub(crate) fn power_off() -> ! {
    // SAFETY: no memory is involved.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
        libc::_exit(0)
    }
}

/// Keeps this process on the first CPU, which never goes offline. Without effect if that fails.
pub(crate) fn stay_on_first_cpu() {
    // SAFETY: all-zero bytes are an empty set, and the pointer and the length describe it.
    unsafe {
        let mut first: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut first);
        libc::sched_setaffinity(0, size_of_val(&first), &raw const first);
    }
}

/// Maps a file for reading and writing, with all of its pages in memory.
pub(crate) fn map(fd: i32, length: usize) -> io::Result<*mut u8> {
    // SAFETY: the kernel chooses free addresses.
    let address = unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        libc::mmap(ptr::null_mut(), length, access, flags, fd, 0)
    };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address.cast()) }
}

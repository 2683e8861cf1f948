//! The command that is recorded.

use std::{
    arch::asm,
    ffi::{CString, OsStr},
    fs, io,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
};

use crate::{
    streams::Streams,
    system::{Error, check, stay_on_first_cpu},
};

/// The recorder's request.
pub(crate) struct Request {
    folder: CString,
    user: u32,
    group: u32,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It was not executed because of this error.
    NotStarted(i32),
}

impl Request {
    /// Reads `request` from the spool, a sequence of NUL-terminated strings: folder, user and group, number of
    /// arguments, arguments, and environment.
    pub(crate) fn read(spool: &str) -> Result<Request, Error> {
        let parse = || -> io::Result<Request> {
            let bytes = fs::read(format!("{spool}/request"))?;
            let mut strings = bytes.split_inclusive(|&byte| byte == 0).map(|string| {
                CString::from_vec_with_nul(string.to_vec())
                    .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
            });
            let mut next = || strings.next().unwrap_or(Err(io::ErrorKind::UnexpectedEof.into()));
            let number = |text: CString| {
                text.to_str().ok().and_then(|text| text.parse().ok()).ok_or(io::ErrorKind::InvalidData)
            };
            let folder = next()?;
            let (user, group, count) = (number(next()?)?, number(next()?)?, number(next()?)?);
            let arguments = (0..count).map(|_| next()).collect::<io::Result<_>>()?;
            let environment = strings.collect::<io::Result<_>>()?;
            Ok(Request { folder, user, group, arguments, environment })
        };
        parse().map_err(Error::of("request"))
    }
}

/// Starts the command in the root, and returns its pid; recording begins right before its exec.
pub(crate) fn start(request: &Request, root: &str, streams: &mut Streams) -> Result<i32, Error> {
    let root = CString::new(root).map_err(io::Error::from).map_err(Error::of("root"))?;
    let pointers = |strings: &[CString]| {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (arguments, environment) = (pointers(&request.arguments), pointers(&request.environment));
    let program = request.arguments.first().map_or(&[][..], |name| name.as_bytes());
    let candidates = candidates(program, &request.environment);
    // SAFETY: this process has one thread, so the child may call any function.
    match check(i64::from(unsafe { libc::fork() })).map_err(Error::of("fork"))? {
        0 => {
            let error = become_command(request, &root, streams, &candidates, &arguments, &environment);
            streams.report(error);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(127) }
        }
        child => {
            // A CPU that starts is recorded completely only once this process has noticed it, so this process stays on the
            // CPU that always runs.
            stay_on_first_cpu();
            streams.started();
            Ok(child as i32)
        }
    }
}

/// The candidate files for a program name, as a shell searches for it.
fn candidates(program: &[u8], environment: &[CString]) -> Vec<CString> {
    if program.contains(&b'/') {
        return CString::new(program).into_iter().collect();
    }
    let path = environment.iter().find_map(|variable| variable.as_bytes().strip_prefix(b"PATH="));
    let folders = path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin").split(|&byte| byte == b':');
    let files = folders.filter_map(|folder| {
        CString::new(
            std::path::Path::new(OsStr::from_bytes(folder))
                .join(OsStr::from_bytes(program))
                .into_os_string()
                .as_bytes(),
        )
        .ok()
    });
    files.collect()
}

/// Executes the command in the child. Returns the error if that fails.
fn become_command(
    request: &Request,
    root: &CString,
    streams: &Streams,
    candidates: &[CString],
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
) -> i32 {
    // SAFETY: strings end in NUL, arrays of them in a null pointer, and all of them outlive the calls.
    unsafe {
        libc::setsid();
        for (end, number) in streams.of_command().into_iter().zip(0..) {
            libc::dup2(end.as_raw_fd(), number);
        }
        // A folder that exists only on the host (a mount below its root) can't be entered.
        let entered = libc::chroot(root.as_ptr()) == 0
            && (libc::chdir(request.folder.as_ptr()) == 0 || libc::chdir(c"/".as_ptr()) == 0);
        let is_user = libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(request.group) == 0
            && libc::setuid(request.user) == 0;
        if !entered || !is_user {
            return io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM);
        }
        let mut denied = None;
        mark_begin();
        for candidate in candidates {
            libc::execve(candidate.as_ptr(), arguments.as_ptr(), environment.as_ptr());
            let error = io::Error::last_os_error().raw_os_error();
            if error != Some(libc::ENOENT) && error != Some(libc::ENOTDIR) {
                denied = error;
            }
        }
        denied.unwrap_or(libc::ENOENT)
    }
}

/// Marks the begin of the recording. The plugin recognizes the instruction by its bytes; it has no effect:
///
/// * x86-64: `nop` with an operand whose displacement is `hodo` in ASCII;
/// * AArch64: a move of 0x686f, `ho` in ASCII, to the zero register;
/// * RISC-V: a HINT for custom use (Unprivileged ISA, "HINT Instructions") with the immediate 0x686.
fn mark_begin() {
    // SAFETY: the instruction has no effect.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("nop dword ptr [rax + rax + 0x6f646f68]");
        #[cfg(target_arch = "aarch64")]
        asm!("movz xzr, #0x686f");
        #[cfg(target_arch = "riscv64")]
        asm!("slti zero, a0, 0x686");
    }
}

/// Marks the end of the recording: the instruction of [`mark_begin`] with the next number.
pub(crate) fn mark_end() {
    // SAFETY: the instruction has no effect.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("nop dword ptr [rax + rax + 0x6f646f69]");
        #[cfg(target_arch = "aarch64")]
        asm!("movz xzr, #0x6870");
        #[cfg(target_arch = "riscv64")]
        asm!("slti zero, a0, 0x687");
    }
}

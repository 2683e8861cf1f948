//! Programs of the host that run beside the command, in its root.

use std::{
    ffi::{CStr, CString},
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
};

use crate::system::{check, mount};

/// A folder of these programs, in memory. What they write there is copied to the spool in the end: while they record,
/// each message to the spool would be an event too.
pub(super) const FOLDER: &str = "/events";
/// Where the programs see that folder; the recorded command does not see it.
pub(super) const PROGRAMS_FOLDER: &str = "/run/hodo";
/// Signals for the command, which init sends to all processes.
const COMMANDS_SIGNALS: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// A program to start.
pub(super) struct Program<'a> {
    /// The command's root.
    pub(super) root: &'a str,
    pub(super) path: &'a str,
    /// Without the program's name.
    pub(super) arguments: &'a [&'a str],
    pub(super) environment: &'a [&'a CStr],
    /// Folders in [`PROGRAMS_FOLDER`], and where else the program sees them.
    pub(super) binds: &'a [(&'a str, &'a str)],
}

impl Program<'_> {
    /// Starts it with these files as its descriptors from 0 on, and returns its process id.
    pub(super) fn start<const N: usize>(&self, files: [OwnedFd; N]) -> io::Result<i32> {
        let text = |text: &str| CString::new(text).map_err(io::Error::from);
        let (root, path) = (text(self.root)?, text(self.path)?);
        let arguments: Vec<CString> = [self.path]
            .iter()
            .chain(self.arguments)
            .map(|argument| text(argument))
            .collect::<io::Result<_>>()?;
        let arguments: Vec<_> = arguments.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        let environment: Vec<_> =
            self.environment.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        // SAFETY: this process has one thread, so the child may call any function.
        let child = check(i64::from(unsafe { libc::fork() }))?;
        if child != 0 {
            return Ok(child as i32);
        }
        let error = self.become_program(&root, &path, &arguments, &environment, &files);
        let message = format!("{} can't be executed: {error}\n", self.path);
        // SAFETY: the pointer and the length describe `message`.
        unsafe {
            libc::write(2, message.as_ptr().cast(), message.len());
            libc::_exit(127)
        }
    }

    /// Executes the program in the child. Returns the error if that fails.
    fn become_program(
        &self,
        root: &CStr,
        path: &CStr,
        arguments: &[*const libc::c_char],
        environment: &[*const libc::c_char],
        files: &[OwnedFd],
    ) -> io::Error {
        let entered = || {
            // The command must not see the folders.
            // SAFETY: no memory is involved.
            check(i64::from(unsafe { libc::unshare(libc::CLONE_NEWNS) }))?;
            bind(FOLDER, &format!("{}{PROGRAMS_FOLDER}", self.root))?;
            // SAFETY: both strings end in NUL.
            check(i64::from(unsafe { libc::chroot(root.as_ptr()) | libc::chdir(c"/".as_ptr()) }))?;
            self.binds
                .iter()
                .try_for_each(|(folder, target)| bind(&format!("{PROGRAMS_FOLDER}/{folder}"), target))
        };
        let entered: io::Result<()> = entered();
        // SAFETY: strings end in NUL, arrays of them in a null pointer, and all of them outlive the calls.
        unsafe {
            let mut blocked = std::mem::zeroed();
            libc::sigemptyset(&mut blocked);
            COMMANDS_SIGNALS.iter().for_each(|&signal| _ = libc::sigaddset(&mut blocked, signal));
            libc::sigprocmask(libc::SIG_BLOCK, &blocked, ptr::null_mut());
            // Copied to high numbers first, so that no `dup2` replaces a file that is still to be copied.
            let moved: Vec<_> =
                files.iter().map(|file| libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 16)).collect();
            for (file, number) in moved.into_iter().zip(0..) {
                libc::dup2(file, number);
            }
            if let Err(error) = entered {
                return error;
            }
            libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        }
        io::Error::last_os_error()
    }
}

fn bind(folder: &str, target: &str) -> io::Result<()> {
    mount(folder, target, "none", libc::MS_BIND, "").map_err(|error| io::Error::other(error.to_string()))
}

/// Returns a program's messages from their file, in one line.
pub(super) fn messages_of(messages: &str) -> String {
    let messages = fs::read_to_string(messages).unwrap_or_default();
    messages.split_whitespace().collect::<Vec<_>>().join(" ")
}

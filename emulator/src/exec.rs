//! Programs that a traced program executes: each starts under the emulator again.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::File,
    io::Read,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use crate::{
    launch::{Launch, Program},
    memory,
    process::PROCESS,
    settings::Settings,
    spool::NoteKind,
    syscall::Call,
    target, threads, window,
};

/// Replaces the process by an emulator that runs the program. Returns if that is impossible: QEMU then makes the
/// original call, which fails as it should, or runs the program untraced.
pub(crate) fn execute(call: &Call, is_execveat: bool) {
    let Some(ExecRequest { path, arguments, environment }) = request(call, is_execveat) else { return };
    let (spool, settings) = match PROCESS.lock().as_ref() {
        Some(process) => (process.spool.clone(), process.settings.clone()),
        None => return,
    };
    if !Settings::are_in(&spool) {
        // The recording has ended, and the program continues untraced.
        return;
    }
    let program = match Program::find(&path, arguments) {
        Ok(Some(program)) if program.target == target::current() => program,
        Ok(Some(program)) => {
            return untraced(call, &path, &format!("it is a program for {}", program.target.name()));
        }
        Ok(None) => return,
        Err(reason) => return untraced(call, &path, &reason),
    };
    let Ok(qemu) = std::fs::read_link("/proc/self/exe") else { return };
    let plugin = OsString::from_vec(settings.plugin);
    let others = threads::park_others(call.index);
    let clock = others.later(call.now);
    let sysroot = settings.sysroot.map(OsString::from_vec);
    let sysroot = sysroot.as_ref().map(Path::new);
    let launch = Launch { qemu: &qemu, sysroot, plugin: Path::new(&plugin), spool: &spool, clock };
    let (arguments, environment) = launch.command(&program, environment);
    run(&qemu, arguments, environment);
    drop(others);
}

fn untraced(call: &Call, path: &Path, reason: &str) {
    if let Some(process) = PROCESS.lock().as_ref() {
        let reason = format!("{} ran outside the emulator: {reason}", path.display());
        process.note(call.now, call.tid, NoteKind::Untraced { reason });
    }
}

type Strings = Vec<Vec<u8>>;

struct ExecRequest {
    path: PathBuf,
    arguments: Strings,
    environment: Strings,
}

/// What an execve or execveat requests; `None` if it is unreadable.
fn request(call: &Call, is_execveat: bool) -> Option<ExecRequest> {
    let [a1, a2, a3, a4, a5, _] = call.arguments;
    let (path, arguments, environment) = if is_execveat {
        (resolve_at(a1 as i32, &memory::string(a2)?, a5 as i32)?, a3, a4)
    } else {
        (memory::string(a1)?, a2, a3)
    };
    let path = own_program(PathBuf::from(OsStr::from_bytes(&path)));
    let (arguments, environment) = (memory::strings(arguments)?, memory::strings(environment)?);
    Some(ExecRequest { path, arguments, environment })
}

/// The path that an execveat(2) refers to.
fn resolve_at(directory: i32, path: &[u8], flags: i32) -> Option<Vec<u8>> {
    if path.starts_with(b"/") || directory == libc::AT_FDCWD {
        return Some(path.to_vec());
    }
    let mut whole = format!("/proc/self/fd/{directory}").into_bytes();
    if path.is_empty() {
        let target = std::fs::read_link(OsStr::from_bytes(&whole)).ok()?;
        return (flags & libc::AT_EMPTY_PATH != 0).then(|| target.into_os_string().into_vec());
    }
    whole.push(b'/');
    whole.extend_from_slice(path);
    Some(whole)
}

/// `/proc/self/exe` is the emulated program, not the emulator.
fn own_program(path: PathBuf) -> PathBuf {
    let of_process = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    match path == Path::new("/proc/self/exe") || path == of_process {
        true => crate::program().unwrap_or(path),
        false => path,
    }
}

/// execve(2); returns only if it fails.
fn run(path: &Path, arguments: Vec<OsString>, environment: Strings) {
    let c_strings = |strings: Vec<Vec<u8>>| -> Vec<CString> {
        strings.into_iter().filter_map(|string| CString::new(string).ok()).collect()
    };
    let arguments = c_strings(arguments.into_iter().map(OsString::into_vec).collect());
    let environment = c_strings(environment);
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let Ok(path) = window::c_path(path) else { return };
    // SAFETY: the path and both vectors are NUL-terminated, and live until the call returns.
    unsafe { libc::execve(path.as_ptr(), pointers(&arguments).as_ptr(), pointers(&environment).as_ptr()) };
}

/// The first bytes of an executable file.
pub(crate) fn head(path: &Path) -> Option<Vec<u8>> {
    let path_bytes = window::c_path(path).ok()?;
    // SAFETY: a NUL-terminated path.
    let executable = unsafe { libc::access(path_bytes.as_ptr(), libc::X_OK) } == 0;
    if !executable || !path.is_file() {
        return None;
    }
    let mut head = Vec::new();
    File::open(path).ok()?.take(4096).read_to_end(&mut head).ok()?;
    Some(head)
}

/// Whether executing the file changes the user or group of this process.
pub(crate) fn gives_rights(path: &Path) -> bool {
    // SAFETY: no arguments, no memory.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    std::fs::metadata(path).is_ok_and(|metadata| {
        metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != user
            || metadata.mode() & libc::S_ISGID != 0 && metadata.gid() != group
    })
}

//! The messages of QEMU itself.
//!
//! QEMU writes its messages, for example the signal that ended the program, through C's `stderr` into the same file as
//! the program, whose output must contain nothing else. The program writes there by system calls, so redirecting that
//! stream does not affect it.

use std::{
    ffi::{c_char, c_int, c_long, c_void},
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    slice,
    sync::OnceLock,
};

/// Name of the file with the messages, in the spool.
pub const FILE: &str = "messages";

static MESSAGES: OnceLock<PathBuf> = OnceLock::new();

/// The functions of a stream (fopencookie(3)).
#[repr(C)]
struct Functions {
    read: Option<extern "C" fn(*mut c_void, *mut c_char, usize) -> isize>,
    write: Option<extern "C" fn(*mut c_void, *const c_char, usize) -> isize>,
    seek: Option<extern "C" fn(*mut c_void, *mut c_long, c_int) -> c_int>,
    close: Option<extern "C" fn(*mut c_void) -> c_int>,
}

unsafe extern "C" {
    static mut stderr: *mut libc::FILE;
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut libc::FILE;
}

/// Redirects QEMU's `stderr` into the spool.
pub(crate) fn divert(spool: &Path) {
    _ = MESSAGES.set(spool.join(FILE));
    let functions = Functions { read: None, write: Some(append), seek: None, close: None };
    // SAFETY: the mode is a NUL-terminated string, and the function fits its declaration; QEMU has one
    // thread while it loads plugins, and only reads the variable afterwards.
    unsafe {
        let stream = fopencookie(std::ptr::null_mut(), c"w".as_ptr(), functions);
        if !stream.is_null() {
            libc::setvbuf(stream, std::ptr::null_mut(), libc::_IONBF, 0);
            stderr = stream;
        }
    }
}

/// Appends to the file, which is open only while it is written: so the program's own descriptors keep their numbers.
extern "C" fn append(_: *mut c_void, text: *const c_char, length: usize) -> isize {
    // SAFETY: the stream passes `length` bytes.
    let text = unsafe { slice::from_raw_parts(text.cast::<u8>(), length) };
    if let Some(path) = MESSAGES.get() {
        let file = OpenOptions::new().create(true).append(true).open(path);
        _ = file.and_then(|mut file| file.write_all(text));
    }
    length as isize
}

//! Messages on standard error.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::failure::UNREADABLE;

/// Whether a message could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints a line after `hodo: ` on standard error; the arguments are those of `format!`.
///
/// `eprintln!` would panic where standard error is closed or full.
macro_rules! message {
    ($($text:tt)*) => {
        $crate::message::print(format_args!($($text)*))
    };
}

/// Prints a line after `hodo: ` on standard error.
///
/// The reader of a pipe may close it when it has seen enough. A message that is lost for another reason, such as a full disk,
/// is an error of the command: see [`checked`].
pub fn print(text: fmt::Arguments<'_>) {
    // At once, so that lines of several threads are not mixed.
    let line = format!("hodo: {text}\n");
    if let Err(error) = io::stderr().write_all(line.as_bytes())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        LOST.store(true, Relaxed);
    }
}

/// Returns the exit code of a command: an error if it succeeded, but a message could not be written.
pub fn checked(code: ExitCode) -> ExitCode {
    if LOST.swap(false, Relaxed) && code == ExitCode::SUCCESS { UNREADABLE.into() } else { code }
}

//! Ends a recording while its program continues: from here on no thread writes to its file, and the spool gets no new
//! files.
//!
//! ```text
//! recorder: sets SEALED in each thread's file ──► waits until none is within a change ──► moves the spool away
//! thread:   at its next block or system call: sees SEALED, and leaves its file for good
//! others:   a new thread, program or note finds no spool, and is not recorded
//! ```
//!
//! A thread sets `busy` before it reads the seal. Some time after the seal was set, a thread that is not busy has seen
//! the seal, or will see it before it changes anything.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io,
    mem::offset_of,
    os::unix::fs::FileExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::spool::{MAGIC, SEALED, Thread};

/// Far longer than a processor delays a store.
const VISIBLE: Duration = Duration::from_millis(2);
/// The longest wait for a thread in the middle of a change that has no processor.
const CHANGE_TIMEOUT: Duration = Duration::from_millis(500);

/// A thread's file that is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedThread {
    /// The name of the file.
    pub name: OsString,
    /// Whether the thread's words are consistent. If not, the thread died in the middle of a change, or is stopped
    /// there.
    pub settled: bool,
}

/// Ends the recording in `spool`, and moves it to `to`, which is on the same file system. Returns the recorded threads.
/// `may_run`: whether some of them may still run.
///
/// # Errors
/// The system's error about the folder.
pub fn seal(spool: &Path, to: &Path, may_run: bool) -> io::Result<Vec<SealedThread>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(spool)? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(b"thread-") {
            // The recorder can't read such a file either, and reports that.
            _ = set_seal(&spool.join(&name));
            threads.push(SealedThread { name, settled: false });
        }
    }
    if may_run {
        thread::sleep(VISIBLE);
    }
    let start = Instant::now();
    for thread in &mut threads {
        let path = spool.join(&thread.name);
        thread.settled = is_settled(&path);
        while may_run && !thread.settled && start.elapsed() < CHANGE_TIMEOUT {
            thread::sleep(VISIBLE);
            thread.settled = is_settled(&path);
        }
    }
    std::fs::rename(spool, to)?;
    Ok(threads)
}

/// Sets the seal in a thread's file, unless the thread has not begun to run.
fn set_seal(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if word(&file, offset_of!(Thread, magic))? == MAGIC {
        let offset = offset_of!(Thread, careful);
        let careful = word(&file, offset)? | SEALED;
        file.write_all_at(&careful.to_ne_bytes(), offset as u64)?;
    }
    Ok(())
}

/// Whether the thread is not in the middle of a change.
fn is_settled(path: &Path) -> bool {
    File::open(path).and_then(|file| word(&file, offset_of!(Thread, busy))).is_ok_and(|busy| busy == 0)
}

/// A word of the thread; 0 if the file ends before it.
fn word(file: &File, offset: usize) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, offset as u64) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        other => other.map(|()| u64::from_ne_bytes(bytes)),
    }
}

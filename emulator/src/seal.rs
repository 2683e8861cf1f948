//! The end of a recording whose program may go on: from here on no thread writes to its file, and no file
//! comes to the spool.
//!
//! ```text
//! recorder: sets SEALED in each thread's file ──► waits until none is within a change ──► moves the spool away
//! thread:   at its next block or system call: sees SEALED, and leaves its file for good
//! others:   a thread, a program or a note that is new finds no spool, and goes unrecorded
//! ```
//!
//! A thread says that it changes its words before it looks for the seal. Some time after the seal was set, a thread
//! that does not say so has seen it, or will before it changes anything.

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

/// Far longer than a processor keeps a store to itself.
const VISIBLE: Duration = Duration::from_millis(2);
/// How long a thread may be in the middle of a change, for want of a processor.
const PATIENCE: Duration = Duration::from_millis(500);

/// A thread's file that is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedThread {
    /// The name of the file.
    pub name: OsString,
    /// Whether the thread's words agree, and will. Else it died in the middle of a change, or stands still there.
    pub settled: bool,
}

/// Ends the recording in `spool`, and moves it to `to`, which is on the same file system. Gives the threads that
/// the recording has. `goes_on` where some of them may live.
///
/// # Errors
/// What the system says of the folder.
pub fn seal(spool: &Path, to: &Path, goes_on: bool) -> io::Result<Vec<SealedThread>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(spool)? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(b"thread-") {
            // A file that can't be sealed is one that the recorder can't read either, and says so.
            _ = set_seal(&spool.join(&name));
            threads.push(SealedThread { name, settled: false });
        }
    }
    if goes_on {
        thread::sleep(VISIBLE);
    }
    let start = Instant::now();
    for thread in &mut threads {
        let path = spool.join(&thread.name);
        thread.settled = is_settled(&path);
        while goes_on && !thread.settled && start.elapsed() < PATIENCE {
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
        let place = offset_of!(Thread, careful);
        let careful = word(&file, place)? | SEALED;
        file.write_all_at(&careful.to_ne_bytes(), place as u64)?;
    }
    Ok(())
}

/// Whether the thread is not in the middle of a change.
fn is_settled(path: &Path) -> bool {
    File::open(path).and_then(|file| word(&file, offset_of!(Thread, busy))).is_ok_and(|busy| busy == 0)
}

/// A word of the thread's; 0 where the file has not got that long.
fn word(file: &File, place: usize) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, place as u64) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        other => other.map(|()| u64::from_ne_bytes(bytes)),
    }
}

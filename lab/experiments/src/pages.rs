//! Reads the pages of a trace with a given amount of work per page, to simulate an analysis of a given decoding speed
//! with the trace in memory or on disk.

use std::{
    fs::{self, File},
    hint::black_box,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use rustix::fs::{Advice, fadvise};
use workbench::Outcome;

/// Bytes per read.
const PIECE: u64 = 1 << 20;
/// Bytes of a page.
const PAGE: usize = 4096;

/// Where the trace is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// In the page cache.
    Memory,
    /// On disk, and not in the page cache.
    Cold,
}

impl Storage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Storage::Memory => "memory",
            Storage::Cold => "disk",
        }
    }
}

/// The files below a folder.
pub(super) fn files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let (mut found, mut left) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { &mut left } else { &mut found }.push(path);
        }
    }
    Ok(found)
}

/// The total size of some files.
pub(super) fn bytes(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum()
}

/// Reads whole files on several threads, with `work` seconds of work per 10^12 bytes.
pub(super) fn simulate(files: &[PathBuf], storage: Storage, threads: usize, work: f64) -> Outcome {
    let files: Vec<File> = files.iter().map(File::open).collect::<Result<_, _>>()?;
    if storage == Storage::Cold {
        files.iter().try_for_each(|file| fadvise(file, 0, None, Advice::DontNeed))?;
    }
    let mut pieces = Vec::new();
    for file in &files {
        let size = file.metadata()?.len();
        pieces.extend((0..size.div_ceil(PIECE)).map(|piece| (file, piece * PIECE)));
    }
    let steps = (work * 1e-12 * PAGE as f64 * steps_in_a_second()) as u64;
    let next = AtomicUsize::new(0);
    let read = || -> io::Result<()> {
        let mut buffer = vec![0; PIECE as usize];
        while let Some((file, offset)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let count = file.read_at(&mut buffer, *offset)?;
            buffer[..count].chunks(PAGE).for_each(|page| {
                black_box(turn(page[0].into(), steps));
            });
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
        threads.into_iter().try_for_each(|thread| Ok(thread.join().map_err(|_| "a thread panicked")??))
    })
}

/// Steps of work, each dependent on the one before.
fn turn(begin: u64, steps: u64) -> u64 {
    (0..steps).fold(begin, |value, step| black_box(value.rotate_left(5) ^ step))
}

fn steps_in_a_second() -> f64 {
    static STEPS: OnceLock<f64> = OnceLock::new();
    *STEPS.get_or_init(|| {
        const STEPS: u64 = 200_000_000;
        let begin = Instant::now();
        black_box(turn(1, STEPS));
        STEPS as f64 / begin.elapsed().as_secs_f64()
    })
}

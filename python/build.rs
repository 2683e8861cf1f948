//! Identifies the source of this build, so that workers of a cluster can compare it.
//!
//! That is `HODO_COMMIT` if it is set, else the commit that is checked out; with changes, or without git, a checksum of the
//! source. The version alone does not tell two builds apart.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The source, relative to this package.
const SOURCE: [&str; 5] = ["../Cargo.toml", "../Cargo.lock", "../crates", "src", "hodoscope"];

fn main() {
    println!("cargo:rerun-if-env-changed=HODO_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    SOURCE.iter().filter(|path| Path::new(path).exists()).for_each(|path| {
        println!("cargo:rerun-if-changed={path}");
    });
    // It changes with each commit and each switch to another.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| Path::new(path).exists())
    {
        println!("cargo:rerun-if-changed={log}");
    }
    let named = env::var("HODO_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = named.or_else(clean_commit).unwrap_or_else(|| format!("source.{:016x}", checksum()));
    println!("cargo:rustc-env=HODO_BUILD={}+{commit}", env!("CARGO_PKG_VERSION"));
}

/// Returns what git prints; `None` without git, or where this is no checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns the commit, if nothing was changed since.
fn clean_commit() -> Option<String> {
    // An archive of the source may lie in a checkout of something else.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let changes =
        git(&["status", "--porcelain", "--", SOURCE[0], SOURCE[1], SOURCE[2], SOURCE[3], SOURCE[4]])?;
    changes.is_empty().then(|| git(&["rev-parse", "--short=12", "HEAD"])).flatten()
}

/// Returns a checksum of the names and contents of all source files: FNV-1a.
fn checksum() -> u64 {
    let mut files = Vec::new();
    SOURCE.iter().for_each(|path| add_files(Path::new(path), &mut files));
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for file in files {
        add(file.to_string_lossy().as_bytes());
        add(&fs::read(&file).unwrap_or_default());
    }
    hash
}

fn add_files(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_file() {
        // Python's caches are made by running it.
        files.extend(
            (path.extension().is_none_or(|extension| extension != "pyc" && extension != "so"))
                .then(|| path.to_owned()),
        );
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        add_files(&entry.path(), files);
    }
}

//! Names of the files that a guest maps: a file that the guest sees in place of this system's has another path here.
//!
//! Source: Linux, `include/uapi/linux/perf_event.h`, PERF_RECORD_MMAP and PERF_RECORD_MMAP2.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Sizes in bytes: of a record's head, and of what follows its body, as the guest asks for it.
const HEAD: usize = 8;
const TRAILER: usize = 32;
/// Where the name is in the body.
const MMAP: (u32, usize) = (1, 32);
const MMAP2: (u32, usize) = (10, 64);

/// The records of a ring with the paths that their files have here. What follows a damaged record stays as it is.
pub(super) fn with_paths_here(ring: &[u8], sysroot: &Path) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(ring.len()), ring);
    while let Some(head) = rest.first_chunk::<HEAD>() {
        let size = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let Some((record, after)) = rest.split_at_checked(size).filter(|_| size >= HEAD) else { break };
        match renamed(record, sysroot) {
            Some(renamed) => out.extend(renamed),
            None => out.extend_from_slice(record),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

/// The record with another name, if it is of a file in the folder.
fn renamed(record: &[u8], sysroot: &Path) -> Option<Vec<u8>> {
    let kind = u32::from_le_bytes(*record.first_chunk()?);
    let (_, name_at) = [MMAP, MMAP2].into_iter().find(|&(known, _)| known == kind)?;
    let (fixed, rest) = record.split_at_checked(HEAD + name_at)?;
    let (name, trailer) = rest.split_at_checked(rest.len().checked_sub(TRAILER)?)?;
    let name = name.split(|&byte| byte == 0).next()?;
    let path = here(Path::new(OsStr::from_bytes(name)), sysroot)?;
    let mut out = fixed.to_vec();
    out.extend_from_slice(path.as_os_str().as_bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(8), 0);
    out.extend_from_slice(trailer);
    let size = u16::try_from(out.len()).ok()?;
    out[6..8].copy_from_slice(&size.to_le_bytes());
    Some(out)
}

/// The path of a guest's file in the folder, if it is there.
fn here(path: &Path, sysroot: &Path) -> Option<PathBuf> {
    let here = sysroot.join(path.strip_prefix("/").ok()?);
    here.is_file().then_some(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_folder_has_its_path_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("lib")).unwrap();
        std::fs::write(folder.path().join("lib/libc.so.6"), "").unwrap();
        let record = |kind: u32, name: &[u8]| {
            let mut body = vec![7; 64];
            body.extend(name);
            body.push(0);
            body.resize(body.len().next_multiple_of(8), 0);
            body.extend([9; TRAILER]);
            let size = (HEAD + body.len()) as u16;
            [&kind.to_le_bytes()[..], &[2, 0], &size.to_le_bytes(), &body].concat()
        };
        let here = folder.path().join("lib/libc.so.6");
        let ring =
            [record(10, b"/lib/libc.so.6"), record(10, b"/bin/x"), record(3, b"/lib/libc.so.6")].concat();
        let expected =
            [record(10, here.as_os_str().as_bytes()), record(10, b"/bin/x"), record(3, b"/lib/libc.so.6")]
                .concat();
        assert_eq!(with_paths_here(&ring, folder.path()), expected);
        // A record that says that it is longer than the ring.
        let torn = &ring[..ring.len() - 8];
        assert!(with_paths_here(torn, folder.path()).ends_with(&torn[torn.len() - 64..]));
    }
}

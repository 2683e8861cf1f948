//! Archives of tar, whose bytes depend on nothing but their files and one time.

use std::collections::BTreeSet;

use tar::{Builder, EntryType, Header};
use workbench::Outcome;

use crate::contents::{self, File};

/// Returns an archive of files in which all entries belong to root and have the same time; compressed with gzip.
/// Folders come before what is in them.
pub(crate) fn compressed(files: &[File], time: u32) -> Outcome<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let mut known = BTreeSet::new();
    for file in files {
        for (end, _) in file.path.match_indices('/') {
            let folder = &file.path[..=end];
            if known.insert(folder) {
                let mut header = header(EntryType::Directory, 0o755, time);
                archive.append_data(&mut header, format!("./{folder}"), &[][..])?;
            }
        }
        let mut header = header(EntryType::Regular, file.mode, time);
        header.set_size(file.bytes.len() as u64);
        archive.append_data(&mut header, format!("./{}", file.path), &file.bytes[..])?;
    }
    contents::compressed(&archive.into_inner()?)
}

fn header(kind: EntryType, mode: u16, time: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode.into());
    header.set_mtime(time.into());
    header.set_size(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

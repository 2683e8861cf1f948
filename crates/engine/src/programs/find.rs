//! Finds the files of the traced system: at their paths, below another root, or by build id.
//!
//! ```text
//! code:   SYMFS/path ─► BUILD-ID-DIR/.build-id/xx/yyyy/elf
//! debug:  the file itself ─► SYMFS/usr/lib/debug/.build-id/xx/yyyy.debug ─► BUILD-ID-DIR/…/debug ─► .gnu_debuglink
//! ```

use std::path::{Path, PathBuf};

use hodo_formats::recording::Mapping;
use hodo_symbols::debug_references;

use crate::files::Files;

/// The places to search for files.
#[derive(Clone, Debug, Default)]
pub struct FileSearchPaths {
    /// Root folder of the traced system's files.
    pub symfs: Option<PathBuf>,
    /// perf's cache of files by their build ids (perf-buildid-cache(1)).
    pub build_ids: Option<PathBuf>,
    /// The recording's folder, which may contain copies of files.
    pub beside: Option<PathBuf>,
}

/// A file that code was mapped from.
#[derive(Debug, Default)]
pub(crate) struct FoundFile<'f> {
    /// Its bytes; empty if unavailable.
    pub(crate) bytes: &'f [u8],
    /// Why the bytes are unavailable.
    pub(crate) problem: Option<String>,
    /// The files with its debug information.
    pub(crate) debug: DebugFiles<'f>,
}

/// Files with the debug information of another file; empty if there is none or none is needed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DebugFiles<'f> {
    /// The separate file with its symbols and DWARF.
    pub(crate) separate: &'f [u8],
    /// The debug file shared by several files (`.gnu_debugaltlink`).
    pub(crate) shared: &'f [u8],
}

/// Returns whether a mapping's name is that of a file. Anonymous memory and kernel-provided code have names such as
/// `//anon` and `[vdso]`.
pub(crate) fn is_file(name: &str) -> bool {
    !name.starts_with("//") && !name.starts_with('[') && !name.is_empty()
}

impl FileSearchPaths {
    /// Translates a path of the traced system to a path on this system.
    pub(crate) fn path(&self, traced_path: &str) -> PathBuf {
        match &self.symfs {
            Some(root) => root.join(traced_path.trim_start_matches('/')),
            None => PathBuf::from(traced_path),
        }
    }

    /// Returns the path of a file in perf's cache: `elf`, `vdso`, `kallsyms` or `debug`.
    pub(crate) fn cached(&self, build_id: &[u8], kind: &str) -> Option<PathBuf> {
        let cache = self.build_ids.as_ref().filter(|_| !build_id.is_empty())?;
        Some(cache.join(".build-id").join(by_build_id(build_id)).join(kind))
    }

    /// Opens a file that the traced program wrote: at its path, or copied to the recording's folder.
    pub(crate) fn written<'f>(&self, files: &'f Files, path: &str) -> Result<(PathBuf, &'f [u8]), String> {
        let there = self.path(path);
        let name = Path::new(path).file_name();
        let copied = self.beside.as_ref().zip(name).map(|(folder, name)| folder.join(name));
        match (files.bytes(&there), copied) {
            (Ok(bytes), _) => Ok((there, bytes)),
            (Err(error), copied) => copied
                .and_then(|path| files.bytes(&path).ok().map(|bytes| (path, bytes)))
                .ok_or_else(|| format!("{}: {error}", there.display())),
        }
    }

    /// Finds the file of a mapping, and its debug information.
    pub(crate) fn find<'f>(&self, files: &'f Files, mapping: &Mapping<'_>) -> FoundFile<'f> {
        let name = String::from_utf8_lossy(mapping.name);
        let mut problem = "no file holds it".to_owned();
        let by_path = is_file(&name).then(|| self.path(&name));
        let kind = if name == "[vdso]" { "vdso" } else { "elf" };
        let cached = self.cached(mapping.build_id, kind);
        for (index, path) in by_path.iter().chain(&cached).enumerate() {
            match files.bytes(path) {
                Ok(bytes) if is_build(bytes, mapping.build_id) => {
                    return FoundFile { bytes, problem: None, debug: self.debug_files(files, path, bytes) };
                }
                Ok(_) => problem = "the file is not the executed one: its build id differs".to_owned(),
                // Report the path only: an entry in the cache is optional.
                Err(error) if index == 0 && by_path.is_some() => {
                    problem = format!("{}: {error}", path.display());
                }
                Err(_) => {}
            }
        }
        FoundFile { problem: Some(problem), ..FoundFile::default() }
    }

    /// Finds the debug information of a file.
    fn debug_files<'f>(&self, files: &'f Files, path: &Path, bytes: &[u8]) -> DebugFiles<'f> {
        let references = debug_references(bytes);
        let own = references.build_id.as_slice();
        let matches = |bytes: &&[u8]| debug_references(bytes).build_id == own;
        let by_id = self.debug_of(own).into_iter().chain(self.cached(own, "debug"));
        let by_id = by_id.filter_map(|path| Some((files.bytes(&path).ok()?, path)));
        let mut found = by_id.filter(|(bytes, _)| matches(bytes)).map(|(bytes, path)| (path, bytes)).next();
        if let (None, Some((name, checksum))) = (&found, &references.link) {
            let linked = self.linked(path, name).into_iter();
            let linked = linked.filter_map(|path| Some((files.bytes(&path).ok()?, path)));
            let sound = |bytes: &[u8]| crc32fast::hash(bytes) == *checksum;
            found = linked.filter(|(bytes, _)| sound(bytes)).map(|(bytes, path)| (path, bytes)).next();
        }
        // A file with its own DWARF may also share some.
        let (path, separate) = found.unwrap_or((path.to_owned(), &[]));
        let references = if separate.is_empty() { references } else { debug_references(separate) };
        let shared = references.shared.and_then(|(name, id)| {
            let relative = path.parent().map(|folder| folder.join(&name));
            let candidates = relative.into_iter().chain([self.path(&name)]).chain(self.debug_of(&id));
            let mut bytes = candidates.filter_map(|path| files.bytes(&path).ok());
            bytes.find(|bytes| debug_references(bytes).build_id == id)
        });
        DebugFiles { separate, shared: shared.unwrap_or_default() }
    }

    /// Returns the path where distributions install the debug file of a build (gdb, "Separate Debug Files").
    fn debug_of(&self, build_id: &[u8]) -> Option<PathBuf> {
        let name = format!("{}.debug", by_build_id(build_id).display());
        (!build_id.is_empty()).then(|| self.path("/usr/lib/debug/.build-id").join(name))
    }

    /// Returns the possible paths of a file's `.gnu_debuglink`: in the same folder, in `.debug`, below
    /// `/usr/lib/debug`.
    fn linked(&self, path: &Path, name: &str) -> Vec<PathBuf> {
        let Some(folder) = path.parent() else { return Vec::new() };
        let traced_folder =
            self.symfs.as_ref().and_then(|root| folder.strip_prefix(root).ok()).unwrap_or(folder);
        let global =
            self.path("/usr/lib/debug").join(traced_folder.strip_prefix("/").unwrap_or(traced_folder));
        // A name with a path could point outside of these folders.
        let name = Path::new(name).file_name().unwrap_or_default();
        vec![folder.join(name), folder.join(".debug").join(name), global.join(name)]
    }
}

/// Returns whether a file may be the build with this id. Old perf.data truncates build ids or pads them with zeros.
fn is_build(bytes: &[u8], build_id: &[u8]) -> bool {
    let own = debug_references(bytes).build_id;
    build_id.is_empty() || own.is_empty() || own.starts_with(build_id) || build_id.starts_with(&own)
}

/// Formats a build id as `xx/yyyy`: the first byte, and the others.
fn by_build_id(build_id: &[u8]) -> PathBuf {
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (first, rest) = build_id.split_at(build_id.len().min(1));
    Path::new(&hexadecimal(first)).join(hexadecimal(rest))
}

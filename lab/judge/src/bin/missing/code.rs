//! The code of a process, in pieces that can be withheld.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use hodo_engine::Trace;
use hodo_formats::{
    raw,
    recording::{KeptCode, Mapping, SidebandKind, Thread},
};

/// The origin of the code at some addresses.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) addresses: Range<u64>,
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
    /// Index of the file among the experiment's modules; `None` for code that no file contains.
    pub(crate) module: Option<u32>,
}

impl Piece {
    /// In the format of `--code`.
    pub(crate) fn option(&self) -> raw::Code {
        raw::Code {
            file: self.file.to_string_lossy().into_owned(),
            address: self.addresses.start,
            offset: self.offset,
            size: Some(self.addresses.end - self.addresses.start),
        }
    }

    /// A part of it.
    pub(crate) fn part(&self, addresses: Range<u64>) -> Piece {
        Piece { offset: self.offset + (addresses.start - self.addresses.start), addresses, ..self.clone() }
    }
}

/// The available files of a recording: the recorded path, and the path here.
pub(crate) fn files(trace: &Trace<'_>, symfs: Option<&Path>) -> Vec<(String, PathBuf)> {
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for module in trace.modules.list() {
        let here = match symfs {
            Some(root) => root.join(module.name.trim_start_matches('/')),
            None => PathBuf::from(&module.name),
        };
        if module.name.starts_with('/') && !module.name.starts_with("//") && here.is_file() {
            files.push((module.name.clone(), here));
        }
    }
    files
}

/// The code of one process, if it never changes; code that the recording keeps is written to files in a folder.
pub(crate) fn of_process(
    trace: &Trace<'_>,
    thread: Thread,
    symfs: Option<&Path>,
    folder: &Path,
) -> Result<Option<Vec<Piece>>, String> {
    let files = files(trace, symfs);
    let mut pieces: Vec<Piece> = Vec::new();
    if changes_program(trace, thread) {
        return Ok(None);
    }
    let mappings = trace.recording.sideband.iter().filter(|sideband| sideband.thread.pid == thread.pid);
    let mappings = mappings.filter_map(|sideband| match &sideband.kind {
        SidebandKind::Map(mapping) => Some(mapping),
        _ => None,
    });
    for mapping in mappings {
        let Some(piece) = of_mapping(trace, mapping, &files) else { continue };
        if pieces.iter().any(|other| overlap(&other.addresses, &piece.addresses)) {
            return Ok(None);
        }
        pieces.push(piece);
    }
    let kept = trace.recording.recorder.iter().flat_map(|emulated| &emulated.code);
    for (index, code) in kept.filter(|code| code.pid == thread.pid).enumerate() {
        let piece = keep(code, &folder.join(format!("kept-{}-{index}", thread.pid)))?;
        if pieces.iter().any(|other| overlap(&other.addresses, &piece.addresses)) {
            return Ok(None);
        }
        pieces.push(piece);
    }
    pieces.sort_by_key(|piece| piece.addresses.start);
    Ok(Some(pieces))
}

/// Whether a process began with the code of another, or executed another program.
fn changes_program(trace: &Trace<'_>, thread: Thread) -> bool {
    let sideband = trace.recording.sideband.iter().filter(|sideband| sideband.thread.pid == thread.pid);
    let mut executed = 0;
    for sideband in sideband {
        match sideband.kind {
            SidebandKind::Fork { parent } if parent.pid != thread.pid => return true,
            SidebandKind::Comm { exec: true, .. } => executed += 1,
            _ => {}
        }
    }
    executed > 1
}

fn of_mapping(trace: &Trace<'_>, mapping: &Mapping<'_>, files: &[(String, PathBuf)]) -> Option<Piece> {
    let name = String::from_utf8_lossy(mapping.name);
    let (_, file) = files.iter().find(|(recorded_path, _)| *recorded_path == name)?;
    let module = trace.modules.list().iter().position(|module| module.name == name)?;
    let left = std::fs::metadata(file).ok()?.len().checked_sub(mapping.file_offset)?;
    Some(Piece {
        addresses: mapping.address..mapping.address + mapping.length.min(left),
        file: file.clone(),
        offset: mapping.file_offset,
        module: Some(module as u32),
    })
}

fn keep(code: &KeptCode<'_>, file: &Path) -> Result<Piece, String> {
    std::fs::write(file, code.bytes).map_err(|error| format!("{}: {error}", file.display()))?;
    let addresses = code.address..code.address + code.bytes.len() as u64;
    Ok(Piece { addresses, file: file.to_owned(), offset: 0, module: None })
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

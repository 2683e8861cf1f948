//! Lists the files of a tree that are ours.

use std::{fs, io, path::Path};

/// A file of the tree.
pub(crate) struct File {
    /// Its path from the root, with `/`.
    pub(crate) path: String,
    /// Its size in bytes.
    pub(crate) size: u64,
}

impl File {
    /// The end of the name after the last dot; empty without one.
    pub(crate) fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|extension| extension.to_str()).unwrap_or("")
    }
}

/// Folders of built or downloaded files.
const NOT_OURS: &[&str] = &["target", "artifacts", "corpus", "node_modules", "dist"];

/// Folders with a leading dot that contain our text.
const OURS: &[&str] = &[".ci", ".cargo"];

/// All files under `root`, in order of path; links are not followed.
pub(crate) fn list(root: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let metadata = entry.metadata()?;
        if metadata.is_file() {
            files.push(File { path, size: metadata.len() });
        } else if metadata.is_dir() {
            let ours = !name.starts_with('.') && !NOT_OURS.contains(&name.as_str());
            if ours || OURS.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{path}/"), files)?;
            }
        }
    }
    Ok(())
}

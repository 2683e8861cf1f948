//! Where the counts to compare with come from.

use std::{fs, io, path::Path, process::Command};

use hodo_check::Baseline;

use crate::failure::Failure;

/// Reads a file; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<Baseline>, Failure> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::unreadable(format!("{}: {error}", path.display()))),
    };
    parse(&text, &path.display().to_string()).map(Some)
}

/// Reads a file as it was where the current branch left a revision; `None` if there was none.
pub fn at_merge_base(path: &Path, revision: &str) -> Result<Option<Baseline>, Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let base = git(folder, &["merge-base", "--end-of-options", revision, "HEAD"])?;
    let base = base.trim();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let object = format!("{base}:./{name}");
    let is_there = Command::new("git").arg("-C").arg(folder).args(["cat-file", "-e", &object]).output();
    if !is_there.is_ok_and(|answer| answer.status.success()) {
        return Ok(None);
    }
    let text = git(folder, &["show", &object])?;
    parse(&text, &format!("{} at {base}", path.display())).map(Some)
}

fn parse(text: &str, named: &str) -> Result<Baseline, Failure> {
    Baseline::parse(text).map_err(|error| Failure::unreadable(format!("{named}: {error}")))
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let failed = |reason: String| Failure::unreadable(format!("git {}: {reason}", arguments.join(" ")));
    let answer = Command::new("git").arg("-C").arg(folder).args(arguments).output();
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    if !answer.status.success() {
        let reason = String::from_utf8_lossy(&answer.stderr);
        let help = "; a shallow clone has no history: fetch it, in GitHub's checkout with `fetch-depth: 0`";
        return Err(failed(format!("{}{help}", reason.trim())));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}

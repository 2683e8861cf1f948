//! Starting other programs, and where things lie in the repository.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::Outcome;

/// The root of the repository.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// The folder that cargo builds into.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// The release build of `hodo`.
pub fn hodo() -> PathBuf {
    target().join("release/hodo")
}

/// `cargo` with these arguments, in the root of the repository.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Builds the release `hodo` and the emulator's plugin, which lies beside it.
pub fn build_hodo() -> Outcome {
    run(&mut cargo(&["build", "--release", "-p", "hodo", "-p", "hodo-emulator"]))
}

/// Says what is started, starts it, and waits for its success.
pub fn run(command: &mut Command) -> Outcome {
    eprintln!("$ {}", line(command));
    quietly(command)
}

/// Starts it and waits for its success.
pub fn quietly(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| format!("can't start `{}`: {error}", line(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", line(command)).into()) }
}

/// What a successful run prints on its standard output; what it says on the other goes to ours.
pub fn capture(command: &mut Command) -> Outcome<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("can't start `{}`: {error}", line(command)))?;
    if !output.status.success() {
        return Err(format!("`{}` failed: {}", line(command), output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is found in `PATH`.
pub fn installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// The command as one would type it.
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

//! Starts other programs, and knows the paths in the repository.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
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

/// The `hodo` that tests start: `cargo test` builds it.
pub fn tested_hodo() -> PathBuf {
    target().join("debug/hodo")
}

/// The emulated processor of the same build, which cargo leaves in the folder of libraries.
pub fn tested_emulator() -> PathBuf {
    target().join("debug/deps/libhodo_emulator.so")
}

/// `cargo` with these arguments, in the root of the repository.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Builds the release `hodo` and the emulator's plugin in the same folder.
pub fn build_hodo() -> Outcome {
    run(&mut cargo(&["build", "--release", "-p", "hodo", "-p", "hodo-emulator"]))
}

/// Prints the command, starts it, and waits for its success.
pub fn run(command: &mut Command) -> Outcome {
    eprintln!("$ {}", line(command));
    quietly(command)
}

/// Starts the command and waits for its success.
pub fn quietly(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| format!("can't start `{}`: {error}", line(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", line(command)).into()) }
}

/// The standard output of a successful run; its standard error goes to ours.
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

/// Runs the command and passes on its output line by line, each with its newline.
///
/// # Errors
/// It can't be started, or fails.
pub fn each_line(mut command: Command, mut take: impl FnMut(&[u8])) -> Outcome {
    let name = line(&command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| format!("can't start `{name}`: {error}"))?;
    let mut output = BufReader::with_capacity(1 << 20, child.stdout.take().ok_or("the output is not piped")?);
    let mut cut = Vec::new();
    loop {
        let bytes = output.fill_buf()?;
        let length = bytes.len();
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        // Lines are not copied, except a line across the buffer's end.
        let (lines, rest) = bytes.split_at(whole);
        lines.split_inclusive(|&byte| byte == b'\n').for_each(|line| match cut.is_empty() {
            true => take(line),
            false => {
                cut.extend_from_slice(line);
                take(&cut);
                cut.clear();
            }
        });
        cut.extend_from_slice(rest);
        output.consume(length);
        if length == 0 {
            break;
        }
    }
    if !cut.is_empty() {
        take(&cut);
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("`{name}` failed: {status}").into()) }
}

/// Whether a program is in `PATH`.
pub fn installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// The command as typed.
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("Cargo.lock").is_file() && root().join("lab/workloads").is_dir());
    }

    #[test]
    fn output_comes_line_by_line_and_failure_is_an_error() {
        let lines = |script: &str| {
            let (mut lines, mut shell) = (Vec::new(), Command::new("sh"));
            shell.args(["-c", script]);
            let end = each_line(shell, |line| lines.push(String::from_utf8_lossy(line).into_owned()));
            (lines, end.map_err(|error| error.to_string()))
        };
        // The parts of the second line arrive separately.
        let (found, end) = lines("printf 'one\\ntw'; sleep 0.1; printf 'o\\nthree'");
        assert_eq!((found, end), (["one\n", "two\n", "three"].map(str::to_owned).to_vec(), Ok(())));
        let (found, end) = lines("echo one; exit 3");
        assert_eq!(found, ["one\n"]);
        assert!(end.is_err_and(|error| error.contains("exit status: 3")));
    }
}

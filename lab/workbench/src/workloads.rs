//! Compiles the programs of `lab/workloads`, and generates input for programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Outcome, command};

/// The path of a program's source.
pub fn source(name: &str) -> PathBuf {
    command::root().join("lab/workloads").join(name)
}

/// Compiles a source of the lab, optimised and with debug information, into `folder`; returns the program, which has
/// the name of its source.
pub fn compile(name: &str, flags: &[&str], folder: &Path) -> Outcome<PathBuf> {
    fs::create_dir_all(folder)?;
    let (stem, extension) = name.rsplit_once('.').ok_or_else(|| format!("{name} has no extension"))?;
    let (compiler, optimise) = match extension {
        "c" => ("gcc", "-O2"),
        "cpp" => ("g++", "-O2"),
        "rs" => ("rustc", "-O"),
        other => return Err(format!("no compiler for .{other}").into()),
    };
    let program = folder.join(stem);
    let mut compile = Command::new(compiler);
    // The linker looks up only what it needs already: libraries come after the source.
    compile.args([optimise, "-g", "-o"]).arg(&program).arg(source(name)).args(flags).current_dir(folder);
    command::quietly(&mut compile)?;
    Ok(program)
}

/// Writes the generated input of this kind and size; returns its path.
pub fn generate(kind: &str, size: u32, folder: &Path) -> Outcome<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("generated.{kind}"));
    let mut python = Command::new("python3");
    python.arg(source("generate.py")).arg(kind).arg(&path).arg(size.to_string());
    command::quietly(&mut python)?;
    Ok(path)
}

/// Writes a database with `rows` rows for sqlite3; returns its path.
pub fn database(rows: u32, folder: &Path) -> Outcome<PathBuf> {
    let script = generate("sql", rows, folder)?;
    let database = folder.join("events.db");
    if fs::exists(&database)? {
        fs::remove_file(&database)?;
    }
    command::capture(Command::new("sqlite3").arg(&database).stdin(fs::File::open(script)?))?;
    Ok(database)
}

/// The real python3, even if the first one in `PATH` is a script that searches for it.
pub fn python() -> Outcome<String> {
    let mut find = Command::new("python3");
    Ok(command::capture(find.args(["-c", "import sys; print(sys.executable)"]))?.trim().to_owned())
}

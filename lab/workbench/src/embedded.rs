//! Compiles the C code of `embedded/`, without make or configuration.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome,
    command::{self, quietly},
};

/// A processor for which the library is compiled.
pub struct Target {
    /// Its name in reports.
    pub name: &'static str,
    /// Its compiler, which `cargo xtask setup` installs.
    pub compiler: &'static str,
    /// The program that prints the sizes of sections.
    pub size: &'static str,
    /// The flags that select the processor.
    pub flags: &'static [&'static str],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "x86-64", compiler: "gcc", size: "size", flags: &[] },
    Target {
        name: "riscv64",
        compiler: "riscv64-unknown-elf-gcc",
        size: "riscv64-unknown-elf-size",
        flags: &["-march=rv64imac", "-mabi=lp64", "-mcmodel=medany"],
    },
    Target {
        name: "Cortex-M3",
        compiler: "arm-none-eabi-gcc",
        size: "arm-none-eabi-size",
        flags: &["-mcpu=cortex-m3", "-mthumb"],
    },
];

/// The compiler flags for all C code here.
pub const STRICT: &[&str] = &["-std=c99", "-Wall", "-Wextra", "-Werror"];

/// The parts of the library.
pub const LIBRARY: &[&str] = &["sync", "ring", "platform"];

/// Returns the path of a file of `embedded/`.
pub fn source(path: &str) -> PathBuf {
    command::root().join("embedded").join(path)
}

/// The size of a part of the library.
#[derive(Debug)]
pub struct PartSize {
    /// The part.
    pub part: &'static str,
    /// Bytes of code and constants.
    pub code: u64,
    /// Bytes of variables.
    pub variables: u64,
}

/// Compiles the library for a target into `folder`, optimised for size. Returns the size of each part.
///
/// # Errors
/// If the compiler or the program for sizes fails or is missing.
pub fn sizes(target: &Target, folder: &Path) -> Outcome<Vec<PartSize>> {
    fs::create_dir_all(folder)?;
    let mut sizes = Vec::new();
    for &part in LIBRARY {
        let object = folder.join(format!("{part}-{}.o", target.name));
        let mut compile = Command::new(target.compiler);
        compile.args(target.flags).args(STRICT).args(["-pedantic", "-Os", "-ffreestanding", "-c", "-o"]);
        quietly(compile.arg(&object).arg(source(&format!("hodo/{part}.c"))))?;
        let report = command::capture(Command::new(target.size).arg(&object))?;
        let numbers: Vec<u64> =
            report.lines().nth(1).unwrap_or("").split_whitespace().flat_map(str::parse).collect();
        let [text, data, bss, ..] = numbers[..] else {
            return Err(format!("{} says `{report}`", target.size).into());
        };
        sizes.push(PartSize { part, code: text, variables: data + bss });
    }
    Ok(sizes)
}

/// Compiles the enumeration of all protocol states with the library in folder `library`, and runs it.
///
/// # Errors
/// The violated property, as the program prints it, or the compiler's error.
pub fn enumerate(library: &Path, folder: &Path) -> Outcome<String> {
    let sources = [source("tests/enumerate.c"), library.join("sync.c"), library.join("ring.c")];
    run("enumerate", &sources, library, folder)
}

/// Compiles and runs the tests of the parts that the enumeration does not visit.
///
/// # Errors
/// The failed check, or the compiler's error.
pub fn test_parts(folder: &Path) -> Outcome<String> {
    let names = ["tests/parts.c", "hodo/sync.c", "hodo/ring.c", "hodo/platform.c", "board/oscillator.c"];
    run("parts", &names.map(source), &source("hodo"), folder)
}

fn run(name: &str, sources: &[PathBuf], library: &Path, folder: &Path) -> Outcome<String> {
    fs::create_dir_all(folder)?;
    let program = folder.join(name);
    let mut compile = Command::new("gcc");
    compile.args(STRICT).args(["-O2", "-o"]).arg(&program).arg("-I").arg(library);
    quietly(compile.args(sources))?;
    let output = Command::new(&program).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(text.into()) }
}

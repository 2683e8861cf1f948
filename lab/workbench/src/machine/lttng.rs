//! LTTng's modules for the guest's kernel, compiled from Debian's packages.
//!
//! ```text
//! headers of that kernel (unpacked) ─┐
//! lttng-modules-dkms (unpacked) ─────┼──► make ──► kernel/lttng/*.ko
//! emulator/guest/lttng/hodo-clock.c ─┘
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::architecture::X86_64;
use crate::{
    Outcome,
    apt::{Apt, Archive, unpack},
    command::{self, installed, quietly},
};

/// The package with the source of the modules.
const SOURCE: &str = "lttng-modules-dkms";
/// Our module, in the repository.
const CLOCK: &str = "emulator/guest/lttng/hodo-clock.c";

/// Makes sure that the modules exist; quick if they do.
pub(super) fn ensure(folder: &Path) -> Outcome {
    let kernel = folder.join("kernel");
    let target = kernel.join("lttng");
    if target.exists() {
        return Ok(());
    }
    for tool in ["make", "gcc", "strip"] {
        if !installed(tool) {
            return Err(format!("{tool} is missing (Debian: apt install make gcc binutils)").into());
        }
    }
    let release = release(&kernel)?;
    let fresh = folder.join("fresh");
    _ = fs::remove_dir_all(&fresh);
    let apt = Apt::new(&folder.join("apt/lttng"), Archive::Packages, X86_64.debian, &[X86_64.suite])?;
    let headers = format!("linux-headers-{release}");
    let needed = apt.needed(&headers).map_err(|error| {
        format!(
            "{error}; Debian may have a newer kernel by now: remove {}, and set up again",
            kernel.display()
        )
    })?;
    unpack(&apt.fetch_alone(&[needed, vec![headers.clone(), SOURCE.to_owned()]].concat())?, &fresh)?;
    let source = source(&fresh)?;
    let headers = fresh.join("usr/src").join(headers);
    relocate(&headers, &fresh)?;
    adapt(&source, &headers)?;
    eprintln!("compiling LTTng's modules for Linux {release}");
    let log = fresh.join("log");
    let mut make = Command::new("make");
    make.arg(format!("-j{}", std::thread::available_parallelism()?)).arg("-C").arg(&source);
    make.arg(format!("KERNELDIR={}", headers.display())).arg("modules");
    let output = fs::File::create(&log)?;
    make.stdout(Stdio::null()).stderr(output);
    quietly(&mut make).map_err(|error| format!("{error}; see {}", log.display()))?;
    let made = fresh.join("lttng");
    install(&source.join("src"), &made)?;
    fs::rename(made, target)?;
    _ = fs::remove_dir_all(fresh);
    _ = fs::remove_dir_all(folder.join("apt"));
    Ok(())
}

/// The release of the guest's kernel, which each of its modules contains.
fn release(kernel: &Path) -> Outcome<String> {
    const MARK: &[u8] = b"vermagic=";
    let modules = kernel.join("modules");
    let order = fs::read_to_string(modules.join("modules.order"))?;
    let bytes = fs::read(modules.join(order.lines().next().ok_or("the kernel has no modules")?))?;
    let mark = bytes.windows(MARK.len()).position(|window| window == MARK);
    let text = mark.map(|mark| bytes[mark + MARK.len()..].iter().take_while(|byte| !b" \0".contains(byte)));
    let text = text.ok_or("a module of the kernel does not contain its version")?;
    Ok(String::from_utf8(text.copied().collect())?)
}

/// The folder of LTTng's source, whose name contains its version.
fn source(unpacked: &Path) -> Outcome<PathBuf> {
    let entries = fs::read_dir(unpacked.join("usr/src"))?.flatten().map(|entry| entry.path());
    let is_source = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lttng-modules-"))
    };
    let found = entries.into_iter().find(is_source);
    found.ok_or_else(|| format!("{SOURCE} has no source of LTTng").into())
}

/// Lets the headers refer to each other where they are unpacked.
fn relocate(headers: &Path, unpacked: &Path) -> Outcome {
    let path = headers.join("Makefile");
    let text = fs::read_to_string(&path)?;
    Ok(fs::write(path, text.replace("/usr/src/", &format!("{}/usr/src/", unpacked.display())))?)
}

/// Adds our module to LTTng's, and the argument that Linux 6.1.175 added to a tracepoint.
fn adapt(source: &Path, headers: &Path) -> Outcome {
    fs::copy(command::root().join(CLOCK), source.join("src/hodo-clock.c"))?;
    let kbuild = source.join("src/Kbuild");
    fs::write(&kbuild, fs::read_to_string(&kbuild)? + "\nobj-$(CONFIG_LTTNG) += hodo-clock.o\n")?;
    let common = headers.display().to_string().replace("-amd64", "-common");
    let kernels = fs::read_to_string(Path::new(&common).join("include/trace/events/timer.h"))?;
    if kernels.contains("was_armed") {
        let path = source.join("include/instrumentation/events/timer.h");
        let text = fs::read_to_string(&path)?;
        let text = text.replace(
            "TP_PROTO(struct hrtimer *hrtimer, enum hrtimer_mode mode),",
            "TP_PROTO(struct hrtimer *hrtimer, enum hrtimer_mode mode, bool was_armed),",
        );
        fs::write(path, text.replace("TP_ARGS(hrtimer, mode),", "TP_ARGS(hrtimer, mode, was_armed),"))?;
    }
    Ok(())
}

/// Copies all modules but those for tests, without what debuggers need.
fn install(from: &Path, to: &Path) -> Outcome {
    fs::create_dir_all(to)?;
    for folder in [from.to_owned(), from.join("probes"), from.join("lib")] {
        for entry in fs::read_dir(folder)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".ko") {
                let to = to.join(name);
                fs::copy(entry.path(), &to)?;
                quietly(Command::new("strip").arg("--strip-debug").arg(to))?;
            }
        }
    }
    Ok(())
}

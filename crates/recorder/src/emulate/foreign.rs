//! Programs for other processors than this machine's.

use std::path::{Path, PathBuf};

use hodo_emulator::{Program, Target};
use object::{
    Endianness,
    elf::FileHeader64,
    read::elf::{FileHeader, ProgramHeader},
};

use super::find_program;
use crate::{Error, Request};

/// The processor of the requested command, if it is another one than this machine's.
pub(crate) fn target_of(request: &Request) -> Option<Target> {
    let program = find_program(&request.command).ok()?;
    (program.target != Target::X86_64).then_some(program.target)
}

/// Returns the processor of the program, and refuses what is not possible on it.
///
/// # Errors
/// The request names another processor, or has options that need x86.
pub(super) fn check(request: &Request, program: &Program) -> Result<Target, Error> {
    let target = program.target;
    let path = program.path.display();
    if let Some(wanted) = request.target.filter(|&wanted| wanted != target) {
        let (wanted, actual) = (wanted.name(), target.name());
        return Err(Error::Missing(format!("{path} is a program for {actual}, not for {wanted}")));
    }
    let has_options = !request.events.is_empty() || request.filter.is_some();
    match target {
        Target::X86_64 if request.sysroot.is_some() => Err(Error::Missing(format!(
            "--sysroot is for programs of other processors, and {path} is for x86_64"
        ))),
        Target::Aarch64 | Target::Riscv64 if has_options => Err(Error::Missing(format!(
            "-e and --filter are for Intel PT, and {path} is a program for {}",
            target.name()
        ))),
        _ => Ok(target),
    }
}

/// The folder with the libraries of the program's system; `None` if they are this system's, or if it needs none.
///
/// # Errors
/// The program needs a loader, and there is none.
pub(crate) fn sysroot(request: &Request, program: &Program) -> Result<Option<PathBuf>, Error> {
    let (triple, package) = match program.target {
        Target::X86_64 | Target::CortexM => return Ok(None),
        Target::Aarch64 => ("aarch64-linux-gnu", "libc6-arm64-cross"),
        Target::Riscv64 => ("riscv64-linux-gnu", "libc6-riscv64-cross"),
    };
    if request.sysroot.is_some() {
        return Ok(request.sysroot.clone());
    }
    let Some(loader) = interpreter(&program.path) else { return Ok(None) };
    let within = |folder: &Path| folder.join(loader.strip_prefix("/").unwrap_or(&loader)).exists();
    let named = std::env::var_os("QEMU_LD_PREFIX").map(PathBuf::from);
    let folders = named.into_iter().chain([PathBuf::from("/"), Path::new("/usr").join(triple)]);
    for folder in folders {
        if within(&folder) {
            return Ok((folder != Path::new("/")).then_some(folder));
        }
    }
    Err(Error::Missing(format!(
        "{} needs {}, which is not here; on Debian: apt-get install {package}; or name the folder of its system with \
         --sysroot or QEMU_LD_PREFIX",
        program.path.display(),
        loader.display()
    )))
}

/// The loader that a program names; `None` if it is linked statically.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let bytes = std::fs::read(program).ok()?;
    let header = FileHeader64::<Endianness>::parse(&*bytes).ok()?;
    let endian = header.endian().ok()?;
    let headers = header.program_headers(endian, &*bytes).ok()?;
    let path = headers.iter().find_map(|header| header.interpreter(endian, &*bytes).ok().flatten())?;
    Some(PathBuf::from(std::str::from_utf8(path).ok()?))
}

//! The command line that runs a program under the emulator, for the recorder and for programs that the traced program
//! executes.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::{
    exec::{gives_rights, head},
    target::Target,
};

/// The maximum nesting of scripts as interpreters, as in the kernel.
const DEPTH: usize = 4;

/// A program that the emulator can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The ELF file.
    pub path: PathBuf,
    /// The processor that it is for.
    pub target: Target,
    /// argv, the program's name included.
    pub arguments: Vec<Vec<u8>>,
}

impl Program {
    /// The ELF program of `path`: itself, or the interpreter of a script (execve(2), "Interpreter scripts"). `Ok(None)`
    /// if executing it fails anyway.
    ///
    /// # Errors
    /// Why the emulator can't run it although the system could.
    pub fn find(path: &Path, arguments: Vec<Vec<u8>>) -> Result<Option<Program>, String> {
        let mut program = Program { path: path.to_owned(), target: Target::default(), arguments };
        for _ in 0..=DEPTH {
            let Some(head) = head(&program.path) else { return Ok(None) };
            if gives_rights(&program.path) {
                return Err("it runs with the rights of its owner".to_owned());
            }
            if let Some(target) = Target::of_elf(&head) {
                return Ok(Some(Program { target, ..program }));
            }
            if head.starts_with(b"\x7fELF") {
                let names = "x86, Arm or RISC-V, little-endian";
                return Err(format!("it is no 64-bit program for {names}"));
            }
            match head.strip_prefix(b"#!") {
                Some(line) => program = program.interpreter(line),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The interpreter that the rest of a script's first line names, with the script as its argument.
    fn interpreter(self, line: &[u8]) -> Program {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or(&[]).trim_ascii();
        let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
        let (name, argument) = line.split_at(end);
        let argument = argument.trim_ascii();
        let mut arguments = vec![name.to_vec()];
        if !argument.is_empty() {
            arguments.push(argument.to_vec());
        }
        arguments.push(self.path.into_os_string().into_vec());
        arguments.extend(self.arguments.into_iter().skip(1));
        Program { path: PathBuf::from(OsStr::from_bytes(name)), target: self.target, arguments }
    }
}

/// How to start the emulator.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The executable of QEMU's user mode for the program's processor.
    pub qemu: &'a Path,
    /// Where QEMU looks first for the files that the program opens, such as its libraries.
    pub sysroot: Option<&'a Path>,
    /// This plugin's file.
    pub plugin: &'a Path,
    /// The spool, an absolute path.
    pub spool: &'a Path,
    /// The begin of the virtual clock, in ticks.
    pub clock: u64,
}

impl Launch<'_> {
    /// The emulator's argv, and its environment.
    ///
    /// Variables that would change the emulator itself are passed to it as options, so that only the program sees them.
    /// QEMU splits such an option at commas, so a variable with a comma stays in the environment.
    pub fn command(&self, program: &Program, environment: Vec<Vec<u8>>) -> (Vec<OsString>, Vec<Vec<u8>>) {
        let mut plugin = escape(self.plugin.as_os_str());
        plugin.push(",spool=");
        plugin.push(escape(self.spool.as_os_str()));
        plugin.push(format!(",clock={}", self.clock));
        let mut arguments = vec![self.qemu.into(), "-plugin".into(), plugin];
        if let Some(sysroot) = self.sysroot {
            arguments.extend(["-L".into(), sysroot.into()]);
        }
        let (aside, environment): (Vec<_>, Vec<_>) = environment.into_iter().partition(|variable| {
            !variable.contains(&b',')
                && ["LD_", "QEMU_", "GLIBC_TUNABLES="]
                    .iter()
                    .any(|name| variable.starts_with(name.as_bytes()))
        });
        for variable in aside {
            arguments.extend(["-E".into(), OsString::from_vec(variable)]);
        }
        let mut rest = program.arguments.iter().map(|argument| OsString::from_vec(argument.clone()));
        arguments.extend(["-0".into(), rest.next().unwrap_or_default()]);
        arguments.push(program.path.clone().into_os_string());
        arguments.extend(rest);
        (arguments, environment)
    }
}

impl Launch<'_> {
    /// Whether an emulator that was started with these `-plugin` options records into `spool`.
    pub fn records_into(options: &[u8], spool: &Path) -> bool {
        let mut wanted = OsString::from(",spool=");
        wanted.push(escape(spool.as_os_str()));
        wanted.push(",clock=");
        let wanted = wanted.into_vec();
        options.windows(wanted.len()).any(|part| part == wanted)
    }
}

/// Escapes a value for QEMU's comma-separated options.
fn escape(value: &OsStr) -> OsString {
    let mut escaped = Vec::new();
    for &byte in value.as_bytes() {
        escaped.push(byte);
        if byte == b',' {
            escaped.push(byte);
        }
    }
    OsString::from_vec(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_would_change_the_emulator_are_set_aside() {
        let launch = Launch {
            qemu: Path::new("/usr/bin/qemu-aarch64"),
            sysroot: Some(Path::new("/usr/aarch64-linux-gnu")),
            plugin: Path::new("/a,b.so"),
            spool: Path::new("/s"),
            clock: 5,
        };
        let arguments = vec![b"l".to_vec(), b"-R".to_vec()];
        let program = Program { path: "/bin/ls".into(), target: Target::Aarch64, arguments };
        let variables = [&b"LD_PRELOAD=/x.so"[..], b"HOME=/", b"LD_AUDIT=a,b"].map(<[u8]>::to_vec);
        let (arguments, environment) = launch.command(&program, variables.to_vec());
        let expected = "/usr/bin/qemu-aarch64 -plugin /a,,b.so,spool=/s,clock=5 -L /usr/aarch64-linux-gnu -E LD_PRELOAD=/x.so -0 l /bin/ls -R";
        assert_eq!(arguments.join(OsStr::new(" ")), expected);
        assert_eq!(environment, [&b"HOME=/"[..], b"LD_AUDIT=a,b"]);
        let options = arguments[2].as_bytes();
        assert!(Launch::records_into(options, Path::new("/s")));
        assert!(
            !Launch::records_into(options, Path::new("/"))
                && !Launch::records_into(options, Path::new("/sp"))
        );
    }

    #[test]
    fn a_script_is_its_interpreter() {
        let arguments = vec![b"s".to_vec(), b"x".to_vec()];
        let script = Program { path: "/s".into(), target: Target::default(), arguments };
        let program = script.interpreter(b" /usr/bin/env  python3 -u \nprint()");
        assert_eq!(program.path, Path::new("/usr/bin/env"));
        assert_eq!(program.arguments, [&b"/usr/bin/env"[..], b"python3 -u", b"/s", b"x"]);
    }
}

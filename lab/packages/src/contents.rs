//! The files of a package.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use flate2::{Compression, GzBuilder};
use workbench::{Outcome, command};

use crate::LARGEST;

/// The version of the packages.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The emulated processor, a plugin of QEMU.
const PLUGIN: &str = "libhodo_emulator.so";
/// The name of a symbol's version, before the number of the C library that first had it.
const LIBRARY_VERSION: &[u8] = b"GLIBC_2.";

/// Built programs.
pub(crate) struct Programs {
    hodo: PathBuf,
    plugin: PathBuf,
}

impl Programs {
    /// The programs in a folder that cargo built into.
    ///
    /// # Errors
    /// One is missing.
    pub(crate) fn shared(folder: &Path) -> Outcome<Programs> {
        let programs = Programs { hodo: folder.join("hodo"), plugin: folder.join(PLUGIN) };
        for path in [&programs.hodo, &programs.plugin] {
            if !path.is_file() {
                return Err(format!("{} is not there: cargo xtask release builds it", path.display()).into());
            }
        }
        Ok(programs)
    }

    /// The same with a `hodo` that needs no libraries. The plugin still shares the C library of the QEMU that loads it.
    pub(crate) fn with_static(self, hodo: &Path) -> Programs {
        Programs { hodo: hodo.to_owned(), ..self }
    }
}

/// A file of a package.
#[derive(Clone)]
pub(crate) struct File {
    /// The path from the root, without a slash in front.
    pub(crate) path: String,
    /// Permissions.
    pub(crate) mode: u16,
    pub(crate) bytes: Vec<u8>,
}

/// The files of a package, sorted by path, and what they need.
pub(crate) struct Contents {
    pub(crate) files: Vec<File>,
    /// The oldest version 2.N of the C library that has all used symbols; `None` if none is needed.
    pub(crate) library: Option<u32>,
}

impl Contents {
    /// Strips the programs, and has `hodo` write its man pages and completions.
    ///
    /// # Errors
    /// A program fails. One that is larger than [`LARGEST`] is only named.
    pub(crate) fn of(programs: &Programs) -> Outcome<Contents> {
        let folder = tempfile::tempdir()?;
        let hodo = stripped(&programs.hodo, folder.path())?;
        if hodo.len() as u64 > LARGEST {
            eprintln!("packages: {} has {} bytes, more than {LARGEST}", programs.hodo.display(), hodo.len());
        }
        println!("{:>10} bytes  {}, stripped", hodo.len(), programs.hodo.display());
        let plugin = stripped(&programs.plugin, folder.path())?;
        let library = [&hodo, &plugin].into_iter().filter_map(|bytes| needed(bytes)).max();
        let mut files =
            vec![file("usr/bin/hodo", 0o755, hodo), file(&format!("usr/lib/hodo/{PLUGIN}"), 0o644, plugin)];
        files.extend(pages(&programs.hodo, folder.path())?);
        for (shell, path) in [
            ("bash", "usr/share/bash-completion/completions/hodo"),
            ("zsh", "usr/share/zsh/vendor-completions/_hodo"),
            ("fish", "usr/share/fish/vendor_completions.d/hodo.fish"),
        ] {
            let script = command::capture(Command::new(&programs.hodo).args(["completions", shell]))?;
            files.push(file(path, 0o644, script.into_bytes()));
        }
        let root = command::root();
        for schema in sorted(&root.join("docs/schemas"))? {
            let name = schema.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push(file(&format!("usr/share/hodo/schemas/{name}"), 0o644, fs::read(schema)?));
        }
        files.push(file("usr/share/doc/hodo/copyright", 0o644, copyright(&root)?));
        let changes = compressed(&fs::read(root.join("CHANGELOG.md"))?)?;
        files.push(file("usr/share/doc/hodo/changelog.gz", 0o644, changes));
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Contents { files, library })
    }

    /// Puts the files of `usr` into a folder with this name, to be unpacked anywhere.
    pub(crate) fn portable(mut self, name: &str) -> Contents {
        for file in &mut self.files {
            file.path = file.path.replacen("usr", name, 1);
        }
        self
    }
}

fn file(path: &str, mode: u16, bytes: Vec<u8>) -> File {
    File { path: path.to_owned(), mode, bytes }
}

/// Returns a program without symbols for debuggers.
fn stripped(program: &Path, folder: &Path) -> Outcome<Vec<u8>> {
    let output = folder.join("stripped");
    command::quietly(Command::new("strip").arg("--strip-unneeded").arg("-o").arg(&output).arg(program))?;
    Ok(fs::read(output)?)
}

/// Returns N of the latest version 2.N of the C library that a program's symbols need.
fn needed(program: &[u8]) -> Option<u32> {
    let windows = program.windows(LIBRARY_VERSION.len()).enumerate();
    let ends =
        windows.filter(|(_, window)| *window == LIBRARY_VERSION).map(|(start, window)| start + window.len());
    let number = |start: usize| {
        let digits = program[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&program[start..start + digits]).ok()?.parse().ok()
    };
    ends.filter_map(number).max()
}

/// Returns the man pages, compressed.
fn pages(hodo: &Path, folder: &Path) -> Outcome<Vec<File>> {
    let folder = folder.join("man");
    command::quietly(Command::new(hodo).arg("manual").arg(&folder))?;
    let page = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(file(&format!("usr/share/man/man1/{name}.gz"), 0o644, compressed(&fs::read(&path)?)?))
    };
    sorted(&folder)?.into_iter().map(page).collect()
}

/// Returns the paths in a folder, in order.
fn sorted(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Outcome<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

/// Compresses bytes with gzip, without time or name.
pub(crate) fn compressed(bytes: &[u8]) -> Outcome<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Returns Debian's description of the licences, with the text of one of the two.
/// Source: "Machine-readable debian/copyright file", version 1.0.
fn copyright(root: &Path) -> Outcome<Vec<u8>> {
    let licence = fs::read_to_string(root.join("LICENSE-MIT"))?;
    let holder = licence.lines().find(|line| line.starts_with("Copyright")).unwrap_or_default();
    let text = licence
        .trim_end()
        .lines()
        .map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") });
    let text = text.collect::<Vec<_>>().join("\n");
    let format = "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/";
    let apache = " On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.";
    Ok(format!(
        "Format: {format}\nUpstream-Name: hodoscope\n\nFiles: *\nCopyright: {holder}\nLicense: MIT or Apache-2.0\n\n\
         License: MIT\n{text}\n\nLicense: Apache-2.0\n{apache}\n"
    )
    .into_bytes())
}

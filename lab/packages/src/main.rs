//! Packages of the built programs: `.deb`, `.rpm`, an archive of the static program, recipes of other package managers and a
//! container image. The same programs and the same commit give the same bytes, the image's excepted.
//!
//! ```text
//! hodo, plugin ──strip, man pages, completions──► Contents ──► deb, rpm ──► image
//! static hodo ──────────────────────────────────► Contents ──► tar.gz ──► recipes
//! all of them, and the wheel ──trial──► installed in clean systems: record, report, view
//! ```

mod archive;
mod contents;
mod deb;
mod image;
mod recipes;
mod rpm;
mod trial;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use workbench::{Outcome, command, release};

use self::contents::{Contents, Programs};

const USAGE: &str = "usage: packages make PROGRAMS [STATIC] FOLDER   write the packages of built programs
       packages check PROGRAMS                make them twice, compare, and read them with dpkg-deb
       packages recipes FOLDER REPOSITORY     write recipes that fetch the static program from a release of the repository
       packages image FOLDER                  write a container image with the .deb of the folder
       packages sums FOLDER                   write SHA256SUMS of all files, and read it again
       packages try FOLDER [SYSTEM]…          install each package of a folder in clean systems, record, report and view
       packages try FOLDER --reachable        the same in systems whose packages can be fetched from here, and say which can't

PROGRAMS is a folder with hodo and libhodo_emulator.so, STATIC a program that needs no libraries.";

/// The largest program that is shipped, stripped.
const LARGEST: u64 = 40_000_000;
/// The file of checksums.
const SUMS: &str = "SHA256SUMS";

fn main() -> ExitCode {
    workbench::main("packages", run)
}

fn run(arguments: &[String]) -> Outcome {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["make", programs, folder] => make(Path::new(programs), None, Path::new(folder)),
        ["make", programs, fixed, folder] => {
            make(Path::new(programs), Some(Path::new(fixed)), Path::new(folder))
        }
        ["check", programs] => check(Path::new(programs)),
        ["recipes", folder, repository] => recipes::make(Path::new(folder), repository),
        ["image", folder] => image::make(Path::new(folder)),
        ["sums", folder] => sums(Path::new(folder)),
        ["try", folder, ref systems @ ..] => trial::run(systems, Path::new(folder)),
        _ => Err(USAGE.into()),
    }
}

/// Writes the checksums of all files in a folder, and has `sha256sum` compare them.
fn sums(folder: &Path) -> Outcome {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Outcome<Vec<String>>>()?;
    names.retain(|name| name != SUMS);
    names.sort();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fs::write(folder.join(SUMS), recipes::sums(folder, &names)?)?;
    command::run(Command::new("sha256sum").args(["--check", "--strict", SUMS]).current_dir(folder))
}

/// A package as a file.
#[derive(PartialEq, Eq)]
struct Package {
    name: String,
    bytes: Vec<u8>,
}

/// Makes the packages; prints the size of the programs.
fn build(programs: &Path, static_program: Option<&Path>) -> Outcome<Vec<Package>> {
    let time = release::commit_time()?;
    let contents = Contents::of(&Programs::shared(programs)?)?;
    let version = contents::VERSION;
    let mut packages = vec![
        Package { name: format!("hodo_{version}_amd64.deb"), bytes: deb::package(&contents, time)? },
        Package { name: format!("hodo-{version}-1.x86_64.rpm"), bytes: rpm::package(&contents, time)? },
    ];
    if let Some(program) = static_program {
        let name = format!("hodo-{version}-x86_64-linux-static");
        let contents = Contents::of(&Programs::shared(programs)?.with_static(program))?.portable(&name);
        let bytes = archive::compressed(&contents.files, time)?;
        packages.push(Package { name: format!("{name}.tar.gz"), bytes });
    }
    Ok(packages)
}

fn make(programs: &Path, static_program: Option<&Path>, folder: &Path) -> Outcome {
    fs::create_dir_all(folder)?;
    for Package { name, bytes } in build(programs, static_program)? {
        let path = folder.join(name);
        fs::write(&path, &bytes)?;
        println!("{:>10} bytes  {}", bytes.len(), path.display());
    }
    Ok(())
}

/// Makes the packages twice, and reads the first ones with Debian's own program.
fn check(programs: &Path) -> Outcome {
    let (first, second) = (build(programs, None)?, build(programs, None)?);
    if let Some((package, _)) = first.iter().zip(&second).find(|(one, other)| one != other) {
        return Err(format!("{}: two runs made different bytes", package.name).into());
    }
    let folder = tempfile::tempdir()?;
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    for Package { name, bytes } in &first {
        fs::write(path(name), bytes)?;
    }
    let Package { name, .. } = first.first().ok_or("nothing was made")?;
    let root = path("root");
    command::quietly(Command::new("dpkg-deb").arg("--extract").arg(path(name)).arg(&root))?;
    let fields = command::capture(Command::new("dpkg-deb").arg("--field").arg(path(name)))?;
    for needed in ["Package: hodo\n", "Architecture: amd64\n", "Depends: libc6 (>= "] {
        if !fields.contains(needed) {
            return Err(format!("{name}: no `{}` in its fields:\n{fields}", needed.trim_end()).into());
        }
    }
    // Sums of all files, as `dpkg --verify` compares them.
    command::quietly(Command::new("dpkg-deb").arg("--control").arg(path(name)).arg(path("control")))?;
    let mut sums = Command::new("md5sum");
    command::quietly(sums.args(["--check", "--quiet"]).arg(path("control/md5sums")).current_dir(&root))?;
    let version = command::capture(Command::new(root.join("usr/bin/hodo")).arg("--version"))?;
    if version.trim() != format!("hodo {}", contents::VERSION) {
        return Err(format!("the packaged program says `{}`", version.trim()).into());
    }
    println!(
        "packages: the same bytes twice: {}",
        first.iter().map(|package| package.name.as_str()).collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

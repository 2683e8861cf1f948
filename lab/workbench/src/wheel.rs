//! The wheel of the Python package: the engine, the command `hodo`, the emulated processor and the schemas.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Outcome, command, release, setup};

/// The program that builds wheels.
const MATURIN: &str = "maturin==1.16.0";
/// The emulated processor, a plugin of QEMU.
const PLUGIN: &str = "libhodo_emulator.so";

/// Builds the wheel with these arguments of maturin and writes it into `output`, in place of older ones.
///
/// # Errors
/// The plugin is missing, or a program fails.
pub fn build(plugin: &Path, arguments: &[&str], flags: Option<&str>, output: &Path) -> Outcome<PathBuf> {
    let maturin = maturin()?;
    furnish(plugin)?;
    fs::create_dir_all(output)?;
    for old in wheels(output)? {
        fs::remove_file(old)?;
    }
    let mut build = Command::new(maturin);
    build.args(["build", "--quiet", "--interpreter", "python3", "--manifest-path"]);
    build.arg(command::root().join("python/Cargo.toml")).args(arguments).arg("--out").arg(output);
    // All files of the wheel have this time.
    build.env("SOURCE_DATE_EPOCH", release::commit_time()?.to_string());
    build.envs(flags.map(|flags| ("RUSTFLAGS", flags)));
    command::run(&mut build)?;
    wheels(output)?.pop().ok_or_else(|| format!("maturin wrote no wheel into {}", output.display()).into())
}

/// Installs maturin in a virtual environment of its own; returns its path.
fn maturin() -> Outcome<PathBuf> {
    let folder = command::target().join("maturin");
    let list = folder.join("installed");
    if !fs::read_to_string(&list).is_ok_and(|known| known == MATURIN) {
        setup::virtual_environment(&folder)?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", MATURIN]);
        command::run(&mut pip)?;
        fs::write(list, MATURIN)?;
    }
    Ok(folder.join("bin/maturin"))
}

/// Puts what the wheel takes from elsewhere in the repository into the folder of the package, where git ignores it.
fn furnish(plugin: &Path) -> Outcome {
    let package = command::root().join("python/hodoscope");
    let mut strip = Command::new("strip");
    command::quietly(strip.arg("--strip-unneeded").arg("-o").arg(package.join(PLUGIN)).arg(plugin))?;
    let schemas = package.join("schemas");
    if schemas.exists() {
        fs::remove_dir_all(&schemas)?;
    }
    fs::create_dir(&schemas)?;
    for schema in fs::read_dir(command::root().join("docs/schemas"))? {
        let schema = schema?;
        fs::copy(schema.path(), schemas.join(schema.file_name()))?;
    }
    Ok(())
}

fn wheels(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Outcome<Vec<PathBuf>>>()?;
    Ok(paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect())
}

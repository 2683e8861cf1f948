//! Packages tried in clean systems: installed, programs recorded, reported and viewed.

mod musl;
pub(crate) mod root;
mod ways;

use std::{
    fs,
    path::{Path, PathBuf},
};

use workbench::{Outcome, command, setup};

use self::{
    root::{Root, SYSTEMS, System},
    ways::{ARCHIVE, BESIDE, SESSION, WAYS, Way},
};
use crate::image;

/// The systems that are no distribution with apt: one with musl and busybox alone, and the container image.
const MUSL: &str = "musl";
const IMAGE: &str = "image";

/// Instead of names: those whose packages can be fetched from here.
const REACHABLE: &str = "--reachable";

/// Tries the packages of a folder in the systems of these names, in all, or in those that can be reached.
///
/// # Errors
/// A step fails; its output is on standard error.
pub(crate) fn run(names: &[&str], folder: &Path) -> Outcome {
    setup::trial()?;
    let only_reachable = names == [REACHABLE];
    let names: &[&str] = if only_reachable { &[] } else { names };
    let known = || SYSTEMS.iter().map(|system| system.name).chain([MUSL, IMAGE]);
    if let Some(name) = names.iter().find(|name| known().all(|known| known != **name)) {
        return Err(
            format!("no system `{name}`; there are {}", known().collect::<Vec<_>>().join(", ")).into()
        );
    }
    let mut left_out = Vec::new();
    for name in known().filter(|name| names.is_empty() || names.contains(name)) {
        match SYSTEMS.iter().find(|system| system.name == name) {
            Some(system) if only_reachable && !root::is_reachable(*system)? => left_out.push(name),
            Some(system) => with_apt(*system, folder)?,
            None if name == MUSL => musl::run(&package(folder, ARCHIVE)?)?,
            None => image::try_it(&package(folder, image::ENDING)?)?,
        }
    }
    for name in left_out {
        println!("packages: not tried here: {name}, whose packages can't be fetched");
    }
    Ok(())
}

/// Tries each package in a clean system, one after the other.
fn with_apt(system: System, folder: &Path) -> Outcome {
    let root = Root::new(system)?;
    root.shell(BESIDE, "")?;
    root.receive(&command::root().join("lab/packages/recipes/homebrew.rb"))?;
    let ways = WAYS.iter().filter(|way| way.systems.is_empty() || way.systems.contains(&system.name));
    for Way { name, ending, beside, install, programs, check, remove, .. } in ways {
        let file = package(folder, ending)?;
        println!("── {}, {name}: {}, {} bytes", system.name, file.display(), fs::metadata(&file)?.len());
        let inside = root.receive(&file)?;
        let beside = match beside {
            Some(ending) => root.receive(&package(folder, ending)?)?,
            None => String::new(),
        };
        let script = format!(
            "set -- \"$1\" '{beside}'\n{install}\nbin=$(echo {programs})\n{SESSION}\n{check}\n{remove}"
        );
        root.shell(&script, &inside)?;
        println!("packages: the {name} works in a clean {}", system.name);
    }
    Ok(())
}

/// The one package of a folder whose name ends so.
fn package(folder: &Path, ending: &str) -> Outcome<PathBuf> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Outcome<Vec<PathBuf>>>()?;
    let mut found = paths.into_iter().filter(|path| path.to_string_lossy().ends_with(ending));
    match (found.next(), found.next()) {
        (Some(package), None) => Ok(package),
        (None, _) => Err(format!("{}: no file ends with {ending}", folder.display()).into()),
        _ => Err(format!("{}: several files end with {ending}", folder.display()).into()),
    }
}

//! `cargo xtask crates`: the libraries as package registries would get them.
//!
//! ```text
//! members that may be published ──cargo publish --dry-run──► packages, built from their own files
//!                                                               └─► a crate outside of the repository uses them
//! ```

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    Outcome,
    command::{self, cargo},
};

/// The program of the crate outside, and the libraries that it uses.
const NEWCOMER: &str = include_str!("newcomer/main.rs");
const USED: &[&str] = &["hodo-clock", "hodo-code", "hodo-formats", "hodo-intel-pt"];

/// Packs and builds every library, then a program that uses them.
pub(crate) fn run(_: &[String]) -> Outcome {
    let packages = publishable()?;
    let mut publish = cargo(&["publish", "--dry-run", "--allow-dirty"]);
    for package in &packages {
        publish.args(["-p", &package.name]);
    }
    command::run(&mut publish)?;
    newcomer(&packages)
}

/// A member that may be published.
struct Package {
    name: String,
    version: String,
}

/// Returns the members that cargo would publish. Each needs what registries ask for.
fn publishable() -> Outcome<Vec<Package>> {
    let metadata = command::capture(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let mut packages = Vec::new();
    for package in metadata["packages"].as_array().ok_or("cargo lists no packages")? {
        if !package["publish"].is_null() {
            continue;
        }
        let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
        let name = text("name");
        for field in ["description", "readme", "license", "repository", "rust_version"] {
            if text(field).is_empty() {
                return Err(format!("{name} may be published, but has no {field}").into());
            }
        }
        packages.push(Package { name, version: text("version") });
    }
    Ok(packages)
}

/// Builds and runs a crate outside of the repository that takes the packages in place of the registry's.
fn newcomer(packages: &[Package]) -> Outcome {
    let folder = tempfile::tempdir()?;
    let packed = command::target().join("package");
    let mut manifest = String::from("[package]\nname = \"newcomer\"\nedition = \"2024\"\n\n[dependencies]\n");
    for Package { name, version } in packages.iter().filter(|package| USED.contains(&&*package.name)) {
        manifest += &format!("{name} = \"{version}\"\n");
    }
    manifest += "\n[patch.crates-io]\n";
    for Package { name, version } in packages {
        let path = packed.join(format!("{name}-{version}"));
        manifest += &format!("{name} = {{ path = {:?} }}\n", path.display().to_string());
    }
    write(folder.path(), "Cargo.toml", &manifest)?;
    write(folder.path(), "src/main.rs", NEWCOMER)?;
    let mut newcomer = cargo(&["run", "--manifest-path"]);
    newcomer.arg(folder.path().join("Cargo.toml")).arg("--target-dir").arg(packed.join("newcomer"));
    command::run(newcomer.arg("--").arg(command::root().join("fixtures/perf/tiny.data")))
}

fn write(folder: &Path, name: &str, text: &str) -> Outcome {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap_or(folder))?;
    Ok(fs::write(path, text)?)
}

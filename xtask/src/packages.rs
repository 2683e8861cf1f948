//! `cargo xtask crates`: the libraries as package registries would get them.
//!
//! ```text
//! members that may be published ─┬─cargo publish --dry-run──► packages, built from their own files
//!                                │                              └─► a crate outside of the repository uses them
//!                                └─cargo semver-checks──► no change that breaks users since the last release, but with a version that says so
//! ```
//!
//! All of it runs with the oldest compiler that the crates state, which is that of `rust-toolchain.toml`.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    Outcome,
    command::{self, cargo},
};

/// The program of the crate outside, and the libraries that it uses.
const NEWCOMER: &str = include_str!("newcomer/main.rs");
const USED: &[&str] = &["hodo-clock", "hodo-code", "hodo-formats", "hodo-intel-pt"];

/// The most crates that the decoder of Intel PT consists of: who embeds it compiles and trusts all of them.
const DECODER_CRATES: usize = 15;

/// The program that compares interfaces, in the tested version.
const SEMVER_CHECKS: &str = "cargo-semver-checks@0.51.0";

/// Packs and builds every library, then a program that uses them, and compares their interfaces with those of a commit: by
/// default the last release.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let packages = publishable()?;
    match arguments {
        [] => {}
        [option, revision] if option == "--against" => return compare(&packages, revision),
        _ => return Err("usage: cargo xtask crates [--against REVISION]".into()),
    }
    forget_earlier(&packages)?;
    let mut publish = cargo(&["publish", "--dry-run", "--allow-dirty", "--target-dir"]);
    publish.arg(build_folder());
    for package in &packages {
        publish.args(["-p", &package.name]);
    }
    command::run(&mut publish)?;
    check_decoder_crates()?;
    newcomer(&packages)?;
    match last_release()? {
        Some(tag) => compare(&packages, &tag),
        None => {
            println!("crates: there is no release yet whose interfaces could break");
            Ok(())
        }
    }
}

fn build_folder() -> PathBuf {
    command::target().join("crates")
}

/// Removes what an earlier run packed and unpacked: cargo takes a package of a registry for unchanged as long as its version is.
fn forget_earlier(packages: &[Package]) -> Outcome {
    remove(&build_folder())?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let Some(Ok(registries)) = home.map(|home| fs::read_dir(home.join("registry/src"))) else {
        return Ok(());
    };
    for registry in registries {
        let registry = registry?;
        // The registry of a dry run has no host, with which the names of others begin.
        if registry.file_name().as_encoded_bytes().starts_with(b"-") {
            for package in packages {
                remove(&registry.path().join(format!("{}-{}", package.name, package.version)))?;
            }
        }
    }
    Ok(())
}

/// Removes a folder, if it is there.
fn remove(folder: &Path) -> Outcome {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Counts the crates of which the decoder of Intel PT consists.
fn check_decoder_crates() -> Outcome {
    let words =
        ["tree", "-p", "hodo-intel-pt", "-e", "normal", "--prefix", "none", "--no-dedupe", "-f", "{p}"];
    let tree = command::capture(&mut cargo(&words))?;
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    match crates.len() {
        0..=DECODER_CRATES => Ok(()),
        count => {
            Err(format!("hodo-intel-pt has {count} crates, at most {DECODER_CRATES}: {crates:?}").into())
        }
    }
}

/// Returns the tag of the last release before this commit.
fn last_release() -> Outcome<Option<String>> {
    let mut git = Command::new("git");
    git.args(["tag", "--merged", "HEAD", "--list", "v[0-9]*", "--sort=-version:refname"]);
    let tags = command::capture(git.current_dir(command::root()))?;
    Ok(tags.lines().next().map(str::to_owned))
}

/// Checks that the libraries' interfaces changed since a revision only as their versions say.
fn compare(packages: &[Package], revision: &str) -> Outcome {
    if !command::installed("cargo-semver-checks") {
        command::run(&mut cargo(&["install", "--locked", SEMVER_CHECKS]))?;
    }
    let mut check = cargo(&["semver-checks", "--baseline-rev", revision]);
    command::run(check.args(packages.iter().flat_map(|package| ["-p", &package.name])))
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
    let packed = build_folder().join("package");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stated_compiler_is_the_one_that_tests_run_with() {
        let read = |name: &str| fs::read_to_string(command::root().join(name)).expect("a file");
        let (manifest, toolchain) = (read("Cargo.toml"), read("rust-toolchain.toml"));
        let value = |text: &str, key: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
            line.expect("a value").to_owned()
        };
        let stated = value(&manifest, "rust-version");
        assert!(value(&toolchain, "channel").starts_with(&stated), "{stated}");
        assert!(read("docs/libraries.md").contains(&format!("Rust {stated}")));
    }
}

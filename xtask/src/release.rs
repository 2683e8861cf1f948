//! `cargo xtask release STEP…`: builds and packs what is released. `.github/workflows/release.yml` runs these steps on a tag, and
//! `--check` runs the workflow's steps here, in a clean clone.
//!
//! ```text
//! programs ─┬─► packages (.deb, .rpm) ──► image ─┐
//! static ───┴─► packages (.tar.gz) ─► recipes ───┼─► target/packages ─► sums ─► try: clean systems
//! wheel ─────────────────────────────────────────┘
//! ```

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use workbench::{
    Outcome, command, release,
    setup::{self, Need},
    wheel,
};

use crate::command::cargo;

const WORKFLOW: &str = ".github/workflows/release.yml";
/// How the workflow calls a step.
const CALL: &str = "run: cargo xtask release ";
/// The option that builds programs in a tenth of the time, to try the packages.
const QUICK: &str = "--quick";
/// The option that leaves systems out whose packages can't be fetched from here.
const REACHABLE: &str = "--reachable";
/// The target of a program that needs no libraries.
const STATIC: &str = "x86_64-unknown-linux-musl";

/// A step of a release: its name, and what it does with its other arguments.
struct Step {
    name: &'static str,
    help: &'static str,
    run: fn(Build, &[&str]) -> Outcome,
}

const STEPS: &[Step] = &[
    Step {
        name: "version",
        help: "the tag, Cargo.toml and CHANGELOG.md name one version",
        run: |_, _| version(),
    },
    Step {
        name: "programs",
        help: "hodo and the emulated processor, for glibc",
        run: |build, _| {
            println!("{}", build.programs()?.join("hodo").display());
            Ok(())
        },
    },
    Step {
        name: "static",
        help: "hodo without libraries",
        run: |build, _| {
            println!("{}", build.static_program()?.display());
            Ok(())
        },
    },
    Step {
        name: "wheel",
        help: "the Python package",
        run: |build, _| {
            let wheel = build.wheel(&folder())?;
            println!("{:>10} bytes  {}", fs::metadata(&wheel)?.len(), wheel.display());
            Ok(())
        },
    },
    Step {
        name: "packages",
        help: ".deb, .rpm, and an archive of the static program",
        run: |build, _| {
            let (programs, alone) = (build.programs()?, build.static_program()?);
            build.packages(&["make", text(&programs)?, text(&alone)?, text(&folder())?])
        },
    },
    Step {
        name: "recipes",
        help: "a formula of Homebrew, and a PKGBUILD for the AUR",
        run: |build, _| build.packages(&["recipes", text(&folder())?, &repository()?]),
    },
    Step {
        name: "image",
        help: "a container image, as an archive of OCI",
        run: |build, _| build.packages(&["image", text(&folder())?]),
    },
    Step {
        name: "sums",
        help: "SHA256SUMS of all of them",
        run: |build, _| build.packages(&["sums", text(&folder())?]),
    },
    Step {
        name: "try",
        help: "install them in clean systems (all, those named after it, or with --reachable those that can be fetched)",
        run: |build, systems| build.packages(&[&["try", text(&folder())?], systems].concat()),
    },
];

/// Runs steps, or the whole workflow in a clean clone.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let build = if words.contains(&QUICK) { Build::Quick } else { Build::Optimised };
    words.retain(|word| *word != QUICK);
    match words[..] {
        [] => step("programs")?.run(build, &[]),
        ["--check"] => check(build),
        ["try", ref systems @ ..] => step("try")?.run(build, systems),
        _ => words
            .iter()
            .map(|name| step(name))
            .collect::<Outcome<Vec<_>>>()?
            .iter()
            .try_for_each(|step| step.run(build, &[])),
    }
}

fn step(name: &str) -> Outcome<&'static Step> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        let steps: Vec<String> = STEPS.iter().map(|step| format!("  {:9} {}", step.name, step.help)).collect();
        format!(
            "usage: cargo xtask release [{QUICK}] [STEP…] | --check\n\nThe steps, of which `programs` is the usual one:\n{}",
            steps.join("\n")
        )
        .into()
    })
}

impl Step {
    fn run(&self, build: Build, arguments: &[&str]) -> Outcome {
        eprintln!("── {}", self.name);
        let begin = Instant::now();
        (self.run)(build, arguments)?;
        eprintln!("── {}: {} s", self.name, begin.elapsed().as_secs());
        Ok(())
    }
}

/// How programs are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    /// As they are shipped.
    Optimised,
    /// Without optimisation, as for tests.
    Quick,
}

impl Build {
    /// Returns the folder of `hodo` and the emulated processor.
    fn programs(self) -> Outcome<PathBuf> {
        match self {
            Build::Optimised => {
                release::build()?;
                Ok(release::shipped("hodo").parent().ok_or("the programs are in no folder")?.to_owned())
            }
            Build::Quick => {
                setup::ensure(Need::Release)?;
                command::run(&mut cargo(&["build", "-p", "hodo", "-p", "hodo-emulator"]))?;
                Ok(command::target().join("debug"))
            }
        }
    }

    /// Returns the program that needs no libraries.
    fn static_program(self) -> Outcome<PathBuf> {
        match self {
            Build::Optimised => release::static_program(),
            Build::Quick => {
                command::run(Command::new("rustup").args(["target", "add", STATIC]))?;
                command::run(&mut cargo(&["build", "--profile", "quick", "--target", STATIC, "-p", "hodo"]))?;
                Ok(command::target().join(STATIC).join("quick/hodo"))
            }
        }
    }

    /// Runs the program that makes and tries packages.
    fn packages(self, arguments: &[&str]) -> Outcome {
        let mut run = cargo(&["run", "--quiet", "--package", "packages"]);
        run.args((self == Build::Optimised).then_some("--release"));
        command::run(run.arg("--").args(arguments))
    }

    /// Writes the wheel into a folder; returns its path.
    fn wheel(self, folder: &Path) -> Outcome<PathBuf> {
        match self {
            Build::Optimised => {
                release::build()?;
                release::wheel(folder)
            }
            Build::Quick => {
                let plugin = self.programs()?.join("libhodo_emulator.so");
                wheel::build(&plugin, &["--profile", "dev", "--strip"], None, folder)
            }
        }
    }
}

/// The folder of what is released.
fn folder() -> PathBuf {
    command::target().join("packages")
}

fn text(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| format!("{} is no text", path.display()).into())
}

/// The repository that publishes: that of the workflow, or the one in `Cargo.toml`.
fn repository() -> Outcome<String> {
    if let (Ok(server), Ok(name)) = (env::var("GITHUB_SERVER_URL"), env::var("GITHUB_REPOSITORY")) {
        return Ok(format!("{server}/{name}"));
    }
    manifest_value("repository")
}

/// A value of `[workspace.package]`.
fn manifest_value(key: &str) -> Outcome<String> {
    let manifest = fs::read_to_string(command::root().join("Cargo.toml"))?;
    let package = manifest.split_once("[workspace.package]").ok_or("Cargo.toml describes no packages")?.1;
    let start = format!("{key} = \"");
    let value = package.lines().find_map(|line| line.strip_prefix(&start)?.strip_suffix('"'));
    Ok(value.ok_or_else(|| format!("Cargo.toml has no {key}"))?.to_owned())
}

/// Checks that the tag of the workflow is the version of the packages, and that the change log describes it. Without a tag, changes
/// may be listed as unreleased.
fn version() -> Outcome {
    let version = manifest_value("version")?;
    let changes = fs::read_to_string(command::root().join("CHANGELOG.md"))?;
    let tag = env::var("GITHUB_REF_NAME")
        .ok()
        .filter(|_| env::var("GITHUB_REF_TYPE").is_ok_and(|kind| kind == "tag"));
    version_of_tag(&version, tag.as_deref(), &changes)?;
    println!("version {version}");
    Ok(())
}

fn version_of_tag(version: &str, tag: Option<&str>, changes: &str) -> Outcome {
    let is_described = |name: &str| changes.lines().any(|line| line.starts_with(&format!("## [{name}]")));
    match tag {
        Some(tag) if tag != format!("v{version}") => {
            Err(format!("the tag is {tag}, and Cargo.toml has version {version}").into())
        }
        Some(_) if !is_described(version) => Err(format!("CHANGELOG.md has no `## [{version}]`").into()),
        None if !is_described(version) && !is_described("Unreleased") => {
            Err(format!("CHANGELOG.md has neither `## [{version}]` nor `## [Unreleased]`").into())
        }
        _ => Ok(()),
    }
}

/// Runs the workflow's own steps in a clean clone, all of them even if one fails, and lists what runs only there.
fn check(build: Build) -> Outcome {
    let begin = Instant::now();
    let folder = command::target().join("release-check");
    let clone = folder.join("hodoscope");
    if clone.exists() {
        fs::remove_dir_all(&clone)?;
    }
    fs::create_dir_all(&folder)?;
    if !command::capture(Command::new("git").args(["status", "--porcelain"]).current_dir(command::root()))?
        .is_empty()
    {
        eprintln!("release: what is not committed is not checked");
    }
    command::run(Command::new("git").args(["clone", "--quiet"]).arg(command::root()).arg(&clone))?;
    let workflow = fs::read_to_string(clone.join(WORKFLOW))?;
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or(folder.join("target"), |given| command::root().join(given));
    let steps = calls(&workflow);
    let mut failed = Vec::new();
    for &call in &steps {
        let mut step = cargo(&["xtask", "release"]);
        step.args(call.split_whitespace()).args((call == "try").then_some(REACHABLE));
        step.args((build == Build::Quick).then_some(QUICK));
        if let Err(error) = command::run(step.current_dir(&clone).env("CARGO_TARGET_DIR", &target)) {
            eprintln!("release: {error}");
            failed.push(call);
        }
    }
    for action in
        workflow.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("uses: "))
    {
        println!("not run here: {action}");
    }
    let (passed, seconds) = (steps.len() - failed.len(), begin.elapsed().as_secs());
    println!("release: {passed} of {} steps passed in {seconds} s", steps.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("steps failed: {}", failed.join(", ")).into()) }
}

/// The arguments of the workflow's calls, in order.
fn calls(workflow: &str) -> Vec<&str> {
    workflow.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(CALL)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workflow_runs_every_step_in_order() {
        let workflow = fs::read_to_string(command::root().join(WORKFLOW)).expect("a workflow");
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(calls(&workflow), names);
        // Commands of other kinds are calls of no step of ours.
        assert_eq!(workflow.matches("run: cargo xtask").count(), names.len());
    }

    #[test]
    fn a_tag_is_the_version_and_described() {
        let changes = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2030-01-01\n";
        assert!(version_of_tag("1.2.0", Some("v1.2.0"), changes).is_ok());
        assert!(version_of_tag("1.2.0", Some("v1.2.1"), changes).is_err());
        assert!(version_of_tag("1.3.0", Some("v1.3.0"), changes).is_err());
        assert!(version_of_tag("1.3.0", None, changes).is_ok());
        assert!(version_of_tag("1.3.0", None, "# Changelog\n").is_err());
    }
}

//! Checks the layout of the repository: dependencies, lists of extensions, architecture map, fixtures.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use super::{Finding, files::File, rust};
use crate::{Outcome, command};

/// The workspace crates that each crate may use, separated by spaces; every crate must have an entry.
const MAY_USE: &[(&str, &str)] = &[
    ("hodo-clock", ""),
    ("hodo-bytes", ""),
    ("hodo-sync", ""),
    ("hodo-store", ""),
    ("hodo-isa", ""),
    ("hodo-code", "hodo-isa"),
    ("hodo-model", "hodo-clock hodo-code"),
    ("hodo-flow", "hodo-clock hodo-code"),
    ("hodo-intel-pt", "hodo-clock hodo-code hodo-flow"),
    ("hodo-libipt", "hodo-intel-pt hodo-isa"),
    ("hodo-etrace", "hodo-clock hodo-code hodo-flow hodo-isa"),
    ("hodo-etm", "hodo-clock hodo-code hodo-flow"),
    ("hodo-cases", "hodo-clock hodo-code hodo-formats hodo-intel-pt"),
    ("hodo-symbols", "hodo-bytes hodo-model hodo-code"),
    (
        "hodo-formats",
        "hodo-model hodo-clock hodo-bytes hodo-etm hodo-etrace hodo-intel-pt hodo-code hodo-native-log",
    ),
    ("hodo-analyses", "hodo-clock hodo-isa hodo-model hodo-symbols"),
    (
        "hodo-engine",
        "hodo-analyses hodo-bytes hodo-clock hodo-code hodo-etm hodo-etrace hodo-flow hodo-formats hodo-intel-pt \
         hodo-native-log hodo-store hodo-symbols hodo-sync hodo-model",
    ),
    (
        "hodo-script",
        "hodo-analyses hodo-clock hodo-code hodo-engine hodo-etm hodo-flow hodo-formats hodo-intel-pt hodo-model \
         hodo-symbols",
    ),
    ("hodo-stepping", "hodo-analyses hodo-clock hodo-code hodo-engine hodo-flow hodo-intel-pt hodo-model"),
    ("hodo-dap", "hodo-engine hodo-stepping"),
    ("hodo-mcp", ""),
    ("hodo-tsp", "hodo-store"),
    ("hodo-exports", "hodo-model"),
    ("hodo-compare", "hodo-model"),
    ("hodo-check", "hodo-compare hodo-model"),
    ("hodo-views", "hodo-model"),
    ("hodo-findings", "hodo-model"),
    ("hodo-server", "hodo-model hodo-store hodo-views"),
    ("hodo-sql", "hodo-bytes hodo-model"),
    // The writer of perf.data is next to its reader; filters name functions; the emulator's spool is read with the
    // types that write it.
    (
        "hodo-recorder",
        "hodo-bytes hodo-clock hodo-code hodo-emulator hodo-etm hodo-etrace hodo-formats hodo-intel-pt hodo-isa hodo-model \
         hodo-native hodo-symbols",
    ),
    // The lists of analyses and views make the help; the others provide the types of arguments.
    (
        "hodo",
        "hodo-analyses hodo-check hodo-clock hodo-compare hodo-dap hodo-engine hodo-findings hodo-formats hodo-intel-pt \
         hodo-mcp hodo-recorder hodo-script hodo-server hodo-sql hodo-stepping hodo-sync hodo-model hodo-store \
         hodo-exports hodo-tsp hodo-views",
    ),
    ("hodoscope", "hodo hodo-engine hodo-model hodo-views"),
    ("hodo-emulator", "hodo-formats hodo-intel-pt hodo-isa"),
    // The image that is put into programs shares its layout and formats with the recorder.
    ("hodo-native", "hodo-native-log hodo-native-runtime"),
    ("hodo-native-log", "hodo-intel-pt hodo-native-runtime"),
    ("hodo-native-runtime", ""),
    ("hodo-guest", ""),
    ("hodo-repack", "hodo-clock hodo-formats hodo-intel-pt"),
    ("hodo-speed", "hodo-analyses hodo-code hodo-engine hodo-formats hodo-intel-pt hodo-model hodo-script"),
    ("arm-judge", "hodo-clock hodo-code hodo-etm hodo-flow hodo-formats workbench"),
    ("riscv-judge", "hodo-code hodo-etrace hodo-flow hodo-isa workbench"),
    ("workbench", ""),
    (
        "judge",
        "hodo-analyses hodo-check hodo-clock hodo-code hodo-engine hodo-flow hodo-formats hodo-intel-pt hodo-model hodo-native \
         hodo-native-log hodo-recorder hodo-stepping hodo-sync workbench",
    ),
    ("bench", "hodo-store judge workbench"),
    ("packages", "workbench"),
    ("lab", "bench judge workbench"),
    ("xtask", "workbench"),
];

/// A crate whose folders are extensions, all of which its list names.
struct ExtensionPoint {
    /// The folder of the crate in `crates/`.
    name: &'static str,
    /// What its list begins with, and what it ends with.
    begin: &'static str,
    end: &'static str,
    /// Folders that are not extensions.
    others: &'static [&'static str],
}

const EXTENSION_POINTS: &[ExtensionPoint] = &[
    // `events` is shared by the formats of events.
    ExtensionPoint { name: "formats", begin: "const FORMATS:", end: ";", others: &["events"] },
    // `calls` is a stream of calls for `hodo script --calls`, and makes no table.
    ExtensionPoint { name: "analyses", begin: "fn reports<", end: "\n}", others: &["calls"] },
    ExtensionPoint { name: "views", begin: "const VIEWS:", end: ";", others: &[] },
];

/// The architecture map.
const MAP: &str = "ARCHITECTURE.md";

/// The maximum size of `fixtures/`, in bytes.
const FIXTURES: u64 = 30 << 20;

/// Adds the findings about the layout.
pub(crate) fn check(root: &Path, files: &[File], findings: &mut Vec<Finding>) -> Outcome {
    let members = members(root)?;
    for member in &members {
        dependencies(member, findings);
    }
    map(root, &members, findings);
    for point in EXTENSION_POINTS {
        listed(root, files, point, findings)?;
    }
    let weight: u64 =
        files.iter().filter(|file| file.path.starts_with("fixtures/")).map(|file| file.size).sum();
    if weight > FIXTURES {
        findings.push(Finding::at("fixtures", None, format!("{weight} bytes, at most {FIXTURES}")));
    }
    Ok(())
}

/// A crate of the workspace.
struct Member {
    name: String,
    /// Its folder, from the root.
    folder: String,
    /// The workspace crates that it uses outside of its tests.
    uses: Vec<String>,
}

/// The crates of the workspace, according to cargo.
fn members(root: &Path) -> Outcome<Vec<Member>> {
    let mut cargo = command::cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&command::capture(cargo.current_dir(root))?)?;
    let top = metadata["workspace_root"].as_str().ok_or("cargo metadata names no workspace_root")?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let member = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let dependencies = package["dependencies"].as_array()?.iter();
        // Only workspace crates come from a path; dependencies of tests are unrestricted.
        let ours = dependencies.filter(|used| used["path"].is_string() && used["kind"] != "dev");
        Some(Member {
            name: package["name"].as_str()?.to_owned(),
            folder: manifest.parent()?.strip_prefix(top).ok()?.to_str()?.to_owned(),
            uses: ours.filter_map(|used| used["name"].as_str()).map(str::to_owned).collect(),
        })
    };
    let members: Option<Vec<Member>> = packages.iter().map(member).collect();
    Ok(members.ok_or("cargo metadata describes a package without name, path or dependencies")?)
}

fn dependencies(member: &Member, findings: &mut Vec<Finding>) {
    let manifest = format!("{}/Cargo.toml", member.folder);
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == member.name) else {
        findings.push(Finding::at(
            &manifest,
            None,
            format!("{} is not in the table of who may use whom", member.name),
        ));
        return;
    };
    for used in member.uses.iter().filter(|used| !allowed.split(' ').any(|name| name == *used)) {
        findings.push(Finding::at(&manifest, None, format!("{} may not use {used}", member.name)));
    }
}

/// The map shows every crate, and no crate that does not exist.
fn map(root: &Path, members: &[Member], findings: &mut Vec<Finding>) {
    let text = fs::read_to_string(root.join(MAP)).unwrap_or_default();
    let named: BTreeSet<&str> =
        text.split('`').skip(1).step_by(2).map(|name| name.trim_end_matches('/')).collect();
    for member in members.iter().filter(|member| !named.contains(member.folder.as_str())) {
        findings.push(Finding::at(MAP, None, format!("`{}` is not on the map", member.folder)));
    }
    for name in named.iter().filter(|name| name.starts_with("crates/") && !root.join(name).exists()) {
        findings.push(Finding::at(MAP, None, format!("`{name}` is on the map but not in the tree")));
    }
}

/// Every folder of an extension point is in its list.
fn listed(root: &Path, files: &[File], point: &ExtensionPoint, findings: &mut Vec<Finding>) -> Outcome {
    let ExtensionPoint { name, begin, end, others } = *point;
    let source = format!("crates/{name}/src/");
    let folders: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| file.path.strip_prefix(&source)?.split_once('/').map(|(folder, _)| folder))
        .collect();
    if folders.is_empty() {
        return Ok(());
    }
    let path = format!("{source}lib.rs");
    let text = rust::mask(&fs::read_to_string(root.join(&path))?);
    let list = text.find(begin).and_then(|start| text[start..].split_once(end));
    let entries = list.map_or("", |(entries, _)| entries);
    // A whole word: `syscalls::` does not list the folder `calls`.
    let is_listed = |folder: &str| {
        rust::occurrences(entries, folder).any(|start| entries[start + folder.len()..].starts_with("::"))
    };
    for folder in folders.iter().filter(|folder| !is_listed(folder) && !others.contains(*folder)) {
        findings.push(Finding::at(
            &path,
            None,
            format!("the folder {folder}/ is not in the list `{}`", begin.trim_end_matches([':', '<'])),
        ));
    }
    Ok(())
}

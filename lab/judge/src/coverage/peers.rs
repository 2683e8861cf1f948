//! gcov and llvm-cov: they compile the program, and count what ran of it.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::programs::Program;
use crate::{Outcome, command};

/// A program that measures coverage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Gcov,
    LlvmCov,
}

/// What it counted of a source file.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) lines: BTreeMap<u64, u64>,
    /// By name.
    pub(super) functions: BTreeMap<String, u64>,
    /// The functions that lines declare.
    pub(super) declared: BTreeMap<u64, Vec<String>>,
    /// Of gcov, counts of the ways of the branches of each line, without exceptions.
    pub(super) branches: BTreeMap<u64, Vec<u64>>,
}

impl Counted {
    /// Why the counts of a line that declares a function are different: the peer's own count of the function is ours of the line.
    pub(super) fn why_declaration_differs(&self, line: u64, own: u64, count: u64) -> Option<&'static str> {
        let declared = self.declared.get(&line)?;
        let entries: u64 = declared.iter().filter_map(|name| self.functions.get(name)).sum();
        (own == entries && count != entries)
            .then_some("gcov adds a loop or label at the begin of a function to the line that declares it")
    }
}

/// The counters of a program that Clang compiled.
const RAW_PROFILE: &str = "counters.profraw";

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Gcov => "gcov",
            Peer::LlvmCov => "llvm-cov",
        }
    }

    /// Compiles a program that counts for this peer.
    pub(super) fn compile(self, program: &Program, sources: &[PathBuf], folder: &Path) -> Outcome<PathBuf> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        let binary = folder.join(program.name);
        let (compiler, counting): (&str, &[&str]) = match (self, program.is_cpp) {
            (Peer::Gcov, false) => ("gcc", &["--coverage", "-fprofile-update=atomic"]),
            (Peer::Gcov, true) => ("g++", &["--coverage", "-fprofile-update=atomic"]),
            (Peer::LlvmCov, _) => {
                ("clang-19", &["-fprofile-instr-generate", "-fcoverage-mapping", "-fprofile-update=atomic"])
            }
        };
        let mut compile = Command::new(compiler);
        compile.args(["-O0", "-g", "-o"]).arg(&binary).args(counting).current_dir(folder);
        for source in sources {
            // The headers of a source are beside it.
            compile.arg("-I").arg(source.parent().unwrap_or(Path::new("/")));
        }
        command::quietly(compile.args(sources).args(program.flags))?;
        Ok(binary)
    }

    /// Records the program, which writes its counters.
    pub(super) fn record(self, program: &Program, binary: &Path, folder: &Path) -> Outcome<PathBuf> {
        program.prepare(folder)?;
        let recording = folder.join("recording.perf.data");
        let mut record = Command::new(command::hodo());
        record.args(["record", "--engine", "native", "-q", "-o"]).arg(&recording).arg("--").arg(binary);
        record.args(program.arguments).env("LLVM_PROFILE_FILE", folder.join(RAW_PROFILE)).current_dir(folder);
        command::capture(&mut record)?;
        Ok(recording)
    }

    /// Reads the counts of each source.
    pub(super) fn counted(self, binary: &Path, folder: &Path, sources: &[PathBuf]) -> Outcome<Vec<Counted>> {
        match self {
            Peer::Gcov => gcov(folder, sources),
            Peer::LlvmCov => llvm_cov(binary, folder, sources),
        }
    }

    /// Why a line that the peer counts may have no code; `None` if it should have.
    pub(super) fn why_no_code(self, source: &str) -> Option<&'static str> {
        match self {
            Peer::Gcov if source.starts_with("case ") || source.ends_with(':') => {
                Some("gcov counts labels, which have no code")
            }
            Peer::Gcov if source.ends_with('(') => {
                Some("gcov counts a declaration on several lines; its code begins later")
            }
            Peer::Gcov if ["continue;", "break;"].contains(&source) || source.starts_with("goto ") => {
                Some("gcov counts a jump, which the compiler joined with the end of a condition or loop")
            }
            Peer::Gcov => Some("gcov counts a statement of which the compiler left nothing"),
            Peer::LlvmCov => {
                Some("llvm-cov counts every line of a region: braces, declarations, macros, labels")
            }
        }
    }

    /// Why the counts of a line are different; `None` if they should be equal.
    pub(super) fn why_line_differs(self, text: &[&str], line: usize) -> Option<&'static str> {
        let source = without_comment(text.get(line - 1).map_or("", |line| line.trim()));
        let before = without_comment(text.get(line.wrapping_sub(2)).map_or("", |line| line.trim()));
        let has_letters = source.chars().any(char::is_alphanumeric);
        match self {
            _ if is_continued(source) || is_continued(before) => {
                Some("a statement on several lines, whose code goes back and forth between them")
            }
            Peer::LlvmCov if is_loop(source) => Some(
                "llvm-cov gives a line the largest count of the regions that begin in it: of a loop, its condition's or body's",
            ),
            Peer::LlvmCov if !has_letters || source.starts_with('}') => {
                Some("llvm-cov counts the region that ends at a brace; its code is the way out")
            }
            _ => None,
        }
    }

    /// Why a function of the peer is none of ours; `None` if it should be.
    pub(super) fn why_no_function(self) -> Option<&'static str> {
        match self {
            Peer::Gcov => None,
            Peer::LlvmCov => Some("a function that Clang always inlines is none in the machine code"),
        }
    }
}

/// Whether a line begins a loop.
fn is_loop(source: &str) -> bool {
    ["for", "while", "do"].iter().any(|word| {
        let rest = source.strip_prefix(word).map(str::trim_start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['(', '{']))
    })
}

/// Whether the statement of a line goes on in the next one.
pub(super) fn is_continued(line: &str) -> bool {
    // The colon of `a ? b : c`, not of a label.
    line.ends_with(" :") || !line.ends_with([';', '{', '}', ':', '/']) && !line.is_empty()
}

/// A line without the comment at its end.
pub(super) fn without_comment(line: &str) -> &str {
    let code = line.strip_suffix("*/").and_then(|line| line.rsplit_once("/*")).map_or(line, |(code, _)| code);
    if code.trim().is_empty() { line } else { code.trim_end() }
}

/// The place of a source among `sources`.
fn place(file: &str, sources: &[PathBuf]) -> Option<usize> {
    let path = Path::new(file).canonicalize().ok()?;
    sources.iter().position(|source| *source == path)
}

/// Reads gcov's counts from the files of counters in a folder.
fn gcov(folder: &Path, sources: &[PathBuf]) -> Outcome<Vec<Counted>> {
    let mut all: Vec<Counted> = sources.iter().map(|_| Counted::default()).collect();
    let counters = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    for counters in counters.filter(|path| path.extension() == Some(OsStr::new("gcda"))) {
        let mut gcov = Command::new("gcov");
        gcov.args(["--branch-probabilities", "--json-format", "--stdout"]).arg(&counters).current_dir(folder);
        let json: Value = serde_json::from_str(&command::capture(&mut gcov)?)?;
        for file in json["files"].as_array().into_iter().flatten() {
            let Some(index) = file["file"].as_str().and_then(|name| place(name, sources)) else { continue };
            add_gcov(&mut all[index], file);
        }
    }
    if all.iter().all(|counted| counted.lines.is_empty()) {
        return Err("the program wrote no counters".into());
    }
    Ok(all)
}

/// Adds what gcov says of a source file.
fn add_gcov(counted: &mut Counted, file: &Value) {
    let count = |value: &Value| value["count"].as_u64().unwrap_or(0);
    for line in file["lines"].as_array().into_iter().flatten() {
        let number = line["line_number"].as_u64().unwrap_or(0);
        *counted.lines.entry(number).or_default() += count(line);
        let ways = line["branches"].as_array().into_iter().flatten();
        let ways: Vec<u64> = ways.filter(|way| way["throw"] == false).map(count).collect();
        // A call that may throw has a way on and a way out.
        if ways.len() > 1 {
            counted.branches.entry(number).or_default().extend(ways);
        }
    }
    for function in file["functions"].as_array().into_iter().flatten() {
        let name = function["demangled_name"].as_str().unwrap_or_default().to_owned();
        let line = function["start_line"].as_u64().unwrap_or(0);
        counted.declared.entry(line).or_default().push(name.clone());
        *counted.functions.entry(name).or_default() += function["execution_count"].as_u64().unwrap_or(0);
    }
}

/// Reads llvm-cov's counts of lines and functions.
fn llvm_cov(binary: &Path, folder: &Path, sources: &[PathBuf]) -> Outcome<Vec<Counted>> {
    let (raw, merged) = (folder.join(RAW_PROFILE), folder.join("counters.profdata"));
    command::quietly(Command::new("llvm-profdata-19").arg("merge").arg(raw).arg("-o").arg(&merged))?;
    let mut export = Command::new("llvm-cov-19");
    export.args(["export", "--format=lcov", "--instr-profile"]).arg(&merged).arg(binary);
    let text = command::capture(&mut export)?;
    let mut all: Vec<Counted> = sources.iter().map(|_| Counted::default()).collect();
    let mut current = None;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        if key == "SF" {
            current = place(value, sources);
        }
        let (Some(index), Some((first, second))) = (current, value.split_once(',')) else { continue };
        match key {
            "DA" => *all[index].lines.entry(first.parse()?).or_default() += second.parse::<u64>()?,
            "FNDA" => {
                // The name of a function that only its file knows follows the file's.
                let name = second.rsplit(':').next().unwrap_or(second);
                *all[index].functions.entry(demangled(name)?).or_default() += first.parse::<u64>()?;
            }
            _ => {}
        }
    }
    Ok(all)
}

/// Returns the readable name of a function of C++.
fn demangled(name: &str) -> Outcome<String> {
    if !name.starts_with("_Z") {
        return Ok(name.to_owned());
    }
    Ok(command::capture(Command::new("c++filt").arg(name))?.trim().to_owned())
}

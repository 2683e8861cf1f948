//! `cargo judge check`: the gate, over programs that do not change and over seeded regressions.
//!
//! ```text
//! commands of check/steady.list ──hodo check, 20 runs each──► none fails
//!
//! libraries' sources + check/NAME.c ──► program ──hodo check --save──► baseline
//!             │ a function that does more        └──hodo check──► fails, and names the function
//!             └──────────────────────────► changed program
//! ```
//!
//! The libraries are C sources of crates, fetched by name. A program is a file of `check`, whose first lines say what it needs:
//!
//! | key | value |
//! |---|---|
//! | `crate` | the crate with the library's sources, and its version |
//! | `sources` | files of the crate, as patterns; `!NAME` leaves a file out |
//! | `flags` | of the compiler |
//! | `config` | the content of a `config.h` |

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fastrand::Rng;
use hodo_check::{Baseline, Quantity};
use serde_json::Value;

use crate::{
    Outcome, command,
    setup::{self, Need},
};

/// Regressions of each program.
const REGRESSIONS: usize = 20;
/// The share of regressions whose function must be named.
const NAMED: f64 = 0.975;
/// Runs of each steady command for the baseline, and as many again that are compared with it.
const RUNS: u32 = 10;
/// Tries to make a regression that compiles and leaves the program's result as it is.
const TRIES: usize = 40;
/// Instructions of a round of the added loops, compiled as the programs are.
const ROUND: u64 = 4;
const STEADY: &str = include_str!("../check/steady.list");

/// Judges the gate: over steady commands if `names` is empty or has `steady`, and over the regressions of the programs named, or
/// of all.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/check");
    fs::create_dir_all(&folder)?;
    let is_named = |name: &str| names.is_empty() || names.iter().any(|named| named == name);
    let mut problems = Vec::new();
    if is_named("steady") {
        problems.extend(steady(&folder)?);
    }
    let programs: Vec<Program> = programs()?.into_iter().filter(|program| is_named(&program.name)).collect();
    if !programs.is_empty() {
        let crates = fetch(&folder, &programs)?;
        let (mut made, mut named) = (0, 0);
        for (seed, program) in (0..).zip(&programs) {
            let result = program.judge(&folder, &crates, seed)?;
            println!(
                "{:12} {} of {} regressions found, and their functions named",
                program.name, result.named, result.made
            );
            made += result.made;
            named += result.named;
        }
        println!("{named} of {made} regressions");
        if (named as f64) < NAMED * made as f64 {
            problems.push(format!("{named} of {made} regressions: expected {:.1} %", NAMED * 100.0));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// Measures commands that do not change twice, and returns those that fail.
fn steady(folder: &Path) -> Outcome<Vec<String>> {
    let folder = folder.join("steady");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("text"), STEADY.repeat(20))?;
    let mut toml = String::new();
    let lines: Vec<&str> = STEADY.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    for line in &lines {
        toml.push_str(&format!("[[case]]\nname = {line:?}\ncommand = {line:?}\nruns = {RUNS}\n"));
    }
    fs::write(folder.join("hodo.toml"), toml)?;
    command::quietly(check(&folder).arg("--save"))?;
    let verdict = verdict(&folder)?;
    let mut failed = Vec::new();
    for case in verdict["cases"].as_array().ok_or("no cases")? {
        let name = case["name"].as_str().unwrap_or_default();
        let varying = case["varying"].as_array().into_iter().flatten();
        let varying: Vec<&str> = varying.filter_map(|varying| varying["function"]["name"].as_str()).collect();
        let passed = case["passed"] == true;
        println!("{} {name:44} {}", if passed { "ok  " } else { "FAIL" }, varying.join(", "));
        if !passed {
            failed.push(format!("`{name}` fails without a change"));
        }
    }
    println!("{} commands, {} runs of each, {} fail", lines.len(), 2 * RUNS, failed.len());
    Ok(failed)
}

fn check(folder: &Path) -> Command {
    let mut check = Command::new(command::hodo());
    check.args(["check", "--quiet", "--config"]).arg(folder.join("hodo.toml"));
    check
}

/// The verdicts of `hodo check`, whether it passes or fails.
fn verdict(folder: &Path) -> Outcome<Value> {
    let answer = check(folder).args(["--format", "json"]).output()?;
    if !matches!(answer.status.code(), Some(0 | 1)) {
        return Err(String::from_utf8_lossy(&answer.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&answer.stdout)?)
}

/// A program with a library whose sources are changed.
#[derive(Clone, Debug, Default)]
struct Program {
    name: String,
    driver: PathBuf,
    needs: BTreeMap<String, String>,
}

fn programs() -> Outcome<Vec<Program>> {
    let folder = command::root().join("lab/judge/check");
    let mut programs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let driver = entry?.path();
        if driver.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let text = fs::read_to_string(&driver)?;
        let header = text.lines().map_while(|line| line.strip_prefix("// ")?.split_once(": "));
        let needs = header.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let name = driver.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        programs.push(Program { name, driver, needs });
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// Fetches the crates with the sources; returns the folder of their folders.
fn fetch(folder: &Path, programs: &[Program]) -> Outcome<PathBuf> {
    let project = folder.join("crates");
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("src/lib.rs"), "")?;
    let mut toml =
        "[workspace]\n[package]\nname = \"sources\"\nversion = \"0.1.0\"\n[dependencies]\n".to_owned();
    for program in programs {
        let (name, version) = program.needs["crate"].split_once(' ').ok_or("a crate and its version")?;
        toml.push_str(&format!("{name} = \"={version}\"\n"));
    }
    fs::write(project.join("Cargo.toml"), toml)?;
    command::quietly(Command::new("cargo").args(["vendor", "--quiet", "vendor"]).current_dir(&project))?;
    Ok(project.join("vendor"))
}

/// How many regressions were made, and of how many the function was named.
#[derive(Default)]
struct Regressions {
    made: usize,
    named: usize,
}

/// A function that does more than before.
struct Regression {
    function: String,
    what: &'static str,
    file: PathBuf,
    text: String,
}

impl Program {
    fn judge(&self, folder: &Path, crates: &Path, seed: u64) -> Outcome<Regressions> {
        let built = Built::new(self, folder, crates)?;
        command::quietly(check(&built.folder).arg("--save"))?;
        let baseline = Baseline::parse(&fs::read_to_string(built.folder.join("hodo.baseline"))?)?;
        let mut random = Rng::with_seed(seed);
        let mut result = Regressions::default();
        for _ in 0..TRIES * REGRESSIONS {
            if result.made == REGRESSIONS {
                break;
            }
            let Some(regression) = built.regression(&baseline, &mut random) else { continue };
            if !built.compiles_with(&regression)? {
                continue;
            }
            result.made += 1;
            let case = &verdict(&built.folder)?["cases"][0];
            let causes = case["causes"].as_array().into_iter().flatten();
            let causes: Vec<&str> = causes.filter_map(|cause| cause["function"]["name"].as_str()).collect();
            let is_named = case["passed"] == false && causes.contains(&regression.function.as_str());
            result.named += usize::from(is_named);
            if !is_named {
                let Regression { function, what, .. } = &regression;
                println!(
                    "{:12} {function}: {what}; passed: {}, named: {causes:?}",
                    self.name, case["passed"]
                );
            }
        }
        Ok(result)
    }
}

/// A program that was compiled, each file to an object.
struct Built {
    folder: PathBuf,
    /// The folder of the crate.
    root: PathBuf,
    flags: Vec<String>,
    /// The library's files, and their objects.
    objects: BTreeMap<PathBuf, PathBuf>,
    driver: PathBuf,
}

impl Built {
    fn new(program: &Program, folder: &Path, crates: &Path) -> Outcome<Built> {
        let (name, _) = program.needs["crate"].split_once(' ').ok_or("a crate and its version")?;
        let root = crates.join(name);
        let folder = folder.join(&program.name);
        fs::create_dir_all(&folder)?;
        let mut flags: Vec<String> = program.needs["flags"].split(' ').map(str::to_owned).collect();
        if let Some(config) = program.needs.get("config") {
            fs::write(folder.join("config.h"), config.replace("\\n", "\n").replace("\\\"", "\"") + "\n")?;
            flags.push(format!("-I{}", folder.display()));
        }
        let headers = program.driver.parent().ok_or("a folder of programs")?;
        flags.push(format!("-I{}", headers.display()));
        let patterns = program.needs["sources"].split(' ');
        let (without, patterns): (Vec<&str>, Vec<&str>) =
            patterns.partition(|pattern| pattern.starts_with('!'));
        let list = format!("printf '%s\\n' {}", patterns.join(" "));
        let files = command::capture(Command::new("sh").args(["-c", &list]).current_dir(&root))?;
        let is_left_out = |file: &Path| without.iter().any(|name| file.ends_with(&name[1..]));
        let files = files.lines().map(PathBuf::from).filter(|file| !is_left_out(file));
        let object = |file: &Path| folder.join(file.to_string_lossy().replace('/', "-")).with_extension("o");
        let mut objects: BTreeMap<PathBuf, PathBuf> =
            files.map(|file| (file.clone(), object(&file))).collect();
        let driver = folder.join("driver.o");
        objects.insert(program.driver.clone(), driver.clone());
        let built = Built { folder, root, flags, objects, driver };
        for (file, object) in &built.objects {
            if !built.compile(file, object)? {
                return Err(format!("{}: can't be compiled", file.display()).into());
            }
        }
        built.link(&built.objects.values().collect::<Vec<_>>())?;
        let toml = format!("[[case]]\nname = {:?}\ncommand = [\"./program\"]\nruns = 2\n", program.name);
        fs::write(built.folder.join("hodo.toml"), toml)?;
        Ok(built)
    }

    fn compile(&self, file: &Path, object: &Path) -> Outcome<bool> {
        let flags = self.flags.iter().filter(|flag| !flag.starts_with("-l"));
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-w", "-c", "-o"]).arg(object).args(flags).arg(file);
        Ok(compiler.current_dir(&self.root).output()?.status.success())
    }

    fn link(&self, objects: &[&PathBuf]) -> Outcome {
        let libraries = self.flags.iter().filter(|flag| flag.starts_with("-l"));
        let mut linker = Command::new("cc");
        linker.arg("-o").arg(self.folder.join("program")).args(objects).args(libraries);
        command::quietly(&mut linker)
    }

    /// Compiles the program with a regression; returns whether that works and the program ends as before.
    fn compiles_with(&self, regression: &Regression) -> Outcome<bool> {
        let original = self.root.join(&regression.file);
        let object = self.folder.join("changed.o");
        let kept = fs::read(&original)?;
        // In its folder, as it includes its neighbours.
        fs::write(&original, &regression.text)?;
        let compiled = self.compile(&regression.file, &object);
        fs::write(&original, kept)?;
        if !compiled? {
            return Ok(false);
        }
        let objects: Vec<&PathBuf> = self
            .objects
            .iter()
            .map(|(file, unchanged)| if *file == regression.file { &object } else { unchanged })
            .collect();
        self.link(&objects)?;
        let limited = Command::new("timeout").arg("10").arg(self.folder.join("program")).output()?;
        Ok(limited.status.success())
    }

    /// A function of the library that does a few per cent of the program's work once more.
    fn regression(&self, baseline: &Baseline, random: &mut Rng) -> Option<Regression> {
        let counts = baseline.cases.values().next()?;
        let instructions = counts.totals.get(&Quantity::Instructions)?.middle;
        let own = counts.functions.iter().filter(|(name, function)| {
            name.module == "program"
                && name.function != "main"
                && (1..instructions / 1000).contains(&function.calls.middle)
        });
        let functions: Vec<_> = own.collect();
        let (name, function) = functions.get(random.usize(0..functions.len().max(1)))?;
        let share = random.u64(2..=8);
        let rounds = instructions * share / 100 / (function.calls.middle * ROUND) + 1;
        let (file, body, text) = self.definition(&name.function)?;
        let callees = counts.functions.iter().filter(|(_, callee)| callee.callers.contains_key(*name));
        let callees: Vec<&str> = callees.map(|(name, _)| name.function.as_str()).collect();
        let (what, text) = match random.u8(0..3) {
            0 => {
                let looped =
                    format!("{{ volatile unsigned hodo_n = 0; while (hodo_n < {rounds}u) hodo_n++; }}");
                ("a loop", insert(&text, body.start, &looped))
            }
            1 => {
                let called = insert(&text, body.start, &format!("hodo_more({rounds}u);"));
                let callee = "static __attribute__((noinline)) void hodo_more(unsigned most) { volatile unsigned n = 0; while (n < most) n++; }\n";
                ("a new callee", format!("{callee}{called}"))
            }
            _ => {
                let callee = callees.get(random.usize(0..callees.len().max(1)))?;
                let statement = statement(&text[body.clone()], callee)?;
                let range = body.start + statement.start..body.start + statement.end;
                // Often enough to be seen, if each time costs as much as now.
                let callee = counts.functions.iter().find(|(name, _)| name.function == *callee)?.1;
                let cost = callee.total.middle / callee.calls.middle.max(1) * function.calls.middle;
                let times = (instructions * share / 100 / cost.max(1) + 1).min(1000);
                let repeated = format!(
                    "{{ int hodo_n; for (hodo_n = 0; hodo_n < {times}; hodo_n++) {} }}",
                    &text[range.clone()]
                );
                ("a call that is repeated", insert(&text, range.start, &repeated))
            }
        };
        Some(Regression { function: name.function.clone(), what, file, text })
    }

    /// The only definition of a function: its file, where its body lies, and the file's text.
    fn definition(&self, name: &str) -> Option<(PathBuf, std::ops::Range<usize>, String)> {
        let mut found = None;
        for file in self.objects.keys().filter(|file| self.objects[*file] != self.driver) {
            let text = fs::read_to_string(self.root.join(file)).ok()?;
            for body in bodies(&text, name) {
                if found.is_some() {
                    return None;
                }
                found = Some((file.clone(), body, text.clone()));
            }
        }
        found
    }
}

fn insert(text: &str, position: usize, added: &str) -> String {
    format!("{}{added}{}", &text[..position], &text[position..])
}

/// Where the bodies of definitions of a C function lie: behind `{`, up to `}`.
fn bodies(text: &str, name: &str) -> Vec<std::ops::Range<usize>> {
    let mut bodies = Vec::new();
    for (position, _) in text.match_indices(name) {
        let before = text[..position].chars().next_back();
        let rest = &text[position + name.len()..];
        if before.is_some_and(is_word) || !rest.trim_start().starts_with('(') {
            continue;
        }
        let open = position + name.len() + (rest.len() - rest.trim_start().len());
        let Some(end) = matching(text, open, b'(', b')') else { continue };
        let after = text[end + 1..].trim_start();
        if after.starts_with('{') {
            let begin = text.len() - after.len();
            bodies.extend(matching(text, begin, b'{', b'}').map(|end| begin + 1..end));
        }
    }
    bodies
}

/// A statement of a body that is nothing but a call of `callee`.
fn statement(body: &str, callee: &str) -> Option<std::ops::Range<usize>> {
    for (position, _) in body.match_indices(callee) {
        let before = body[..position].trim_end();
        let rest = &body[position + callee.len()..];
        if !before.ends_with([';', '{', '}']) || !rest.starts_with('(') {
            continue;
        }
        let end = matching(body, position + callee.len(), b'(', b')')? + 1;
        if body[end..].starts_with(';') {
            return Some(position..end + 1);
        }
    }
    None
}

/// The position of what closes the bracket at `open`.
fn matching(text: &str, open: usize, opening: u8, closing: u8) -> Option<usize> {
    let mut depth = 0;
    for (position, byte) in text.bytes().enumerate().skip(open) {
        depth += i32::from(byte == opening) - i32::from(byte == closing);
        if depth == 0 {
            return Some(position);
        }
    }
    None
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "int f(int n);\nstatic int f(int n)\n{ g(n); if (f(n - 1)) { h(f(2)); } return of(n); }\nint of(int n) { return n; }\n";

    #[test]
    fn definitions_and_calls_are_found() {
        let bodies = bodies(SOURCE, "f");
        let [body] = bodies.as_slice() else { panic!("{bodies:?}") };
        let body = &SOURCE[body.clone()];
        assert!(body.starts_with(" g(n);") && body.ends_with("return of(n); "), "{body}");
        assert_eq!(statement(body, "h").map(|found| &body[found]), Some("h(f(2));"));
        assert_eq!(statement(body, "of"), None);
    }

    #[test]
    fn a_hundred_commands_are_steady_and_ten_libraries_are_changed() {
        let commands = STEADY.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        assert!(commands.count() >= 100);
        let programs = programs().expect("programs");
        assert!(programs.len() >= 10);
        for program in programs {
            assert!(
                ["crate", "sources", "flags"].iter().all(|key| program.needs.contains_key(*key)),
                "{program:?}"
            );
        }
    }
}

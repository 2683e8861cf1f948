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
//! `times` measures the same programs' processor time, many rounds in one run, bare, under `hodo check` and under Valgrind's tools.
//!
//! The libraries are C sources of crates, fetched by name. A program is a file of `check`, whose first lines say what it needs:
//!
//! | key | value |
//! |---|---|
//! | `crate` | the crate with the library's sources, and its version |
//! | `sources` | files of the crate, as patterns; `!NAME` leaves a file out |
//! | `flags` | of the compiler |
//! | `config` | the content of a `config.h` |

mod source;
mod steady;
mod times;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use fastrand::Rng;
use hodo_check::{Baseline, Quantity};
use serde_json::Value;

use crate::{
    Outcome, command, crates,
    setup::{self, Need},
};

/// Regressions of each program.
const REGRESSIONS: usize = 20;
/// The share of regressions whose function must be named.
const NAMED: f64 = 0.975;
/// Tries to make a regression that compiles and leaves the program's result as it is.
const TRIES: usize = 40;
/// Instructions of a round of the added loops, compiled as the programs are.
const ROUND: u64 = 4;

/// Judges the gate: over steady commands if `names` is empty or has `steady`, the times of programs if it is empty or has `times`,
/// and over the regressions of the programs named, or of all.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/check");
    fs::create_dir_all(&folder)?;
    let is_named = |name: &str| names.is_empty() || names.iter().any(|named| named == name);
    let mut problems = Vec::new();
    if is_named("steady") {
        problems.extend(steady::judge(&folder)?);
    }
    // A program's seed is its place among all, so that each part of the judge repeats.
    let all: Vec<(u64, Program)> = (0..).zip(programs()?).collect();
    let programs: Vec<(u64, Program)> =
        all.iter().filter(|(_, program)| is_named(&program.name)).cloned().collect();
    if is_named("times") {
        times::measure(&folder, all.iter().map(|(_, program)| program))?;
    }
    if !programs.is_empty() {
        problems.extend(regressions(&folder, &programs)?);
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// Judges the regressions of programs; returns what is wrong.
fn regressions(folder: &Path, programs: &[(u64, Program)]) -> Outcome<Option<String>> {
    let crates = fetch(folder, programs.iter().map(|(_, program)| program))?;
    let (mut made, mut named) = (0, 0);
    for (seed, program) in programs {
        let result = program.judge(folder, &crates, *seed)?;
        println!(
            "{:12} {} of {} regressions found, and their functions named",
            program.name, result.named, result.made
        );
        made += result.made;
        named += result.named;
    }
    println!("{named} of {made} regressions");
    let too_few = (named as f64) < NAMED * made as f64;
    Ok(too_few.then(|| format!("{named} of {made} regressions: expected {:.1} %", NAMED * 100.0)))
}

fn check(folder: &Path) -> Command {
    let mut check = Command::new(command::hodo());
    check.args(["check", "--quiet", "--config"]).arg(folder.join("hodo.toml"));
    check
}

/// The verdicts of `hodo check`, whether it passes or fails.
fn verdict(folder: &Path) -> Outcome<Value> {
    let answer = check(folder).args(["--format", "json"]).output()?;
    // A case that can't be counted is named on standard error; the others are judged.
    io::stderr().write_all(&answer.stderr)?;
    if answer.stdout.is_empty() {
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

/// Fetches the crates with the sources of programs; returns the folder of their folders.
fn fetch<'p>(folder: &Path, programs: impl Iterator<Item = &'p Program>) -> Outcome<PathBuf> {
    let crates = programs.filter_map(|program| program.needs["crate"].split_once(' '));
    crates::fetch(folder, crates)
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
        let built = Built::compiled(self, folder, crates)?;
        built.link_all()?;
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
    /// Compiles the files of a program, and lists it as a case.
    fn compiled(program: &Program, folder: &Path, crates: &Path) -> Outcome<Built> {
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

    fn link_all(&self) -> Outcome {
        self.link(&self.objects.values().collect::<Vec<_>>())
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
                ("a loop", source::insert(&text, body.start, &looped))
            }
            1 => {
                let called = source::insert(&text, body.start, &format!("hodo_more({rounds}u);"));
                let callee = "static __attribute__((noinline)) void hodo_more(unsigned most) { volatile unsigned n = 0; while (n < most) n++; }\n";
                ("a new callee", format!("{callee}{called}"))
            }
            _ => {
                let callee = callees.get(random.usize(0..callees.len().max(1)))?;
                let statement = source::statement(&text[body.clone()], callee)?;
                let range = body.start + statement.start..body.start + statement.end;
                // Often enough to be seen, if each time costs as much as now.
                let callee = counts.functions.iter().find(|(name, _)| name.function == *callee)?.1;
                let cost = callee.total.middle / callee.calls.middle.max(1) * function.calls.middle;
                let times = (instructions * share / 100 / cost.max(1) + 1).min(1000);
                let repeated = format!(
                    "{{ int hodo_n; for (hodo_n = 0; hodo_n < {times}; hodo_n++) {} }}",
                    &text[range.clone()]
                );
                ("a call that is repeated", source::insert(&text, range.start, &repeated))
            }
        };
        Some(Regression { function: name.function.clone(), what, file, text })
    }

    /// The only definition of a function: its file, where its body lies, and the file's text.
    fn definition(&self, name: &str) -> Option<(PathBuf, std::ops::Range<usize>, String)> {
        let mut found = None;
        for file in self.objects.keys().filter(|file| self.objects[*file] != self.driver) {
            let text = fs::read_to_string(self.root.join(file)).ok()?;
            for body in source::bodies(&text, name) {
                if found.is_some() {
                    return None;
                }
                found = Some((file.clone(), body, text.clone()));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_commands_are_steady_and_ten_libraries_are_changed() {
        assert!(steady::commands().count() >= 100);
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

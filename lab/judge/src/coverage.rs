//! `cargo judge coverage`: compares lines, functions and branches with gcov's and llvm-cov's, on the same runs of the same
//! programs.
//!
//! ```text
//! gcc -O0 --coverage ────────────► program ─hodo record─┬─► recording ─► hodo report coverage ─┐
//! clang -O0 -fcoverage-mapping ──► program ─hodo record─┴─► counters ──► gcov, llvm-cov ───────┴─► equal, or each line
//! ```
//!
//! A line that a peer counts and that has no code of ours is explained only if the compiler's line table, as `objdump` reads it,
//! has no code for it either.
//!
//! Branches are compared with gcov's only, and of these only those that are one conditional jump of the machine: pairs.

mod branches;
mod line_table;
mod ours;
mod peers;
mod programs;

use std::{collections::BTreeMap, fs, path::Path};

use self::{
    line_table::LineTable,
    ours::Covered,
    peers::{Counted, Peer},
    programs::{PROGRAMS, Program},
};
use crate::{
    Outcome, command,
    setup::{self, Need},
};

/// What a comparison found.
#[derive(Default)]
struct Judged {
    /// Compared and equal: lines, functions, branches.
    lines: Tally,
    functions: Tally,
    branches: Tally,
    explained: BTreeMap<&'static str, Vec<String>>,
    different: Vec<String>,
}

/// A number of things, and how many of them are equal.
#[derive(Clone, Copy, Default)]
struct Tally {
    all: u64,
    equal: u64,
}

const INLINED: &str =
    "a function that the compiler always inlines: its code leaves the line and enters it again";
const CONTRADICTS: &str = "the peer contradicts itself: it counts a line otherwise than the line that always runs directly before or after it";
const ADDED: &str = "functions that gcc adds for its counting have the line, and ran";
const OTHER_JUMPS: &str = "the disassembly has as many conditional jumps at the line as hodo: gcov puts those of inlined functions elsewhere";
const LONE_JUMP: &str = "a jump of the line is alone: the line table does not say whether it is a statement or the way out of a block";

/// Examples of a reason that are printed.
const SHOWN: usize = 3;

/// Judges every program, or those that are named.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Bench)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/coverage");
    println!(
        "{:12} {:9} {:>15} {:>13} {:>15}  explained",
        "program", "with", "lines", "functions", "branches"
    );
    let mut different = Vec::new();
    for program in PROGRAMS.iter().filter(|program| match names {
        [] => !program.is_long,
        names => names.iter().any(|name| name == program.name),
    }) {
        for peer in [Peer::Gcov, Peer::LlvmCov] {
            let judged = judge(program, peer, &folder.join(program.name).join(peer.name()))?;
            let part = |tally: Tally| format!("{}/{}", tally.equal, tally.all);
            println!(
                "{:12} {:9} {:>15} {:>13} {:>15}  {}",
                program.name,
                peer.name(),
                part(judged.lines),
                part(judged.functions),
                part(judged.branches),
                judged.explained.values().map(Vec::len).sum::<usize>()
            );
            for (why, found) in &judged.explained {
                println!("    {} × {why}", found.len());
                found.iter().take(SHOWN).for_each(|line| println!("        {line}"));
            }
            judged.different.iter().for_each(|line| println!("    DIFFERENT {line}"));
            different.extend(judged.different);
        }
    }
    match different.as_slice() {
        [] => Ok(()),
        some => Err(format!("{} differences", some.len()).into()),
    }
}

fn judge(program: &Program, peer: Peer, folder: &Path) -> Outcome<Judged> {
    let sources = program.sources()?;
    let binary = peer.compile(program, &sources, folder)?;
    let recording = peer.record(program, &binary, folder)?;
    let (ours, theirs) =
        (ours::covered(&recording, &binary, &sources)?, peer.counted(&binary, folder, &sources)?);
    let tables = line_table::read(&binary, &sources)?;
    let mut judged = Judged::default();
    for (number, source) in sources.iter().enumerate() {
        let text = fs::read_to_string(source)?;
        let source_lines: Vec<&str> = text.lines().collect();
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let source = Source { name: &name, lines: &source_lines, table: &tables[number] };
        judged.compare(program.known, peer, &source, (&ours[number], &theirs[number]));
    }
    Ok(judged)
}

/// A source file.
struct Source<'s> {
    name: &'s str,
    lines: &'s [&'s str],
    table: &'s LineTable,
}

/// Whether a line calls a function that the peer knows and that is none in the machine code.
fn calls_inlined(source: &str, ours: &Covered, theirs: &Counted) -> bool {
    let mut inlined = theirs.functions.keys().filter(|name| !ours.functions.contains_key(*name));
    inlined.any(|name| source.contains(&format!("{name}(")))
}

/// Whether the line before or after always runs as often, hodo counts it as often, and the peer does not.
fn contradicts(table: &LineTable, line: u64, ours: &Covered, theirs: &Counted) -> bool {
    let before = table.always_next.iter().filter(|&(_, &next)| next == line).map(|(&before, _)| before);
    let after = table.always_next.get(&line).copied();
    before.chain(after).any(|other| {
        theirs.lines.get(&other).is_some_and(|count| Some(count) != theirs.lines.get(&line))
            && ours.lines.get(&other).is_some_and(|own| Some(own) == ours.lines.get(&line))
    })
}

impl Judged {
    fn compare(
        &mut self,
        known: &[(&str, &'static str)],
        peer: Peer,
        &Source { name, lines: text, table }: &Source<'_>,
        (ours, theirs): (&Covered, &Counted),
    ) {
        for (&line, &count) in &theirs.lines {
            let source = text.get(line as usize - 1).map_or("", |line| line.trim());
            let own = ours.lines.get(&line).or_else(|| ours.brace_of(line, theirs)).copied();
            // What has no code has no count of ours: a brace, or a comment within a region of llvm-cov.
            let Some(own) = own.or((peer == Peer::Gcov && count == 0).then_some(0)) else {
                let why = peer.why_no_code(source).filter(|_| !table.with_code.contains(&line));
                self.note(why, format!("{name}:{line}: hodo has no code, {} {count}: {source}", peer.name()));
                continue;
            };
            self.lines.all += 1;
            let shown = || format!("{name}:{line}: hodo {own}, {} {count}: {source}", peer.name());
            match own == count {
                true => self.lines.equal += 1,
                false => {
                    let why = known.iter().find(|(part, _)| source.contains(part)).map(|(_, why)| *why);
                    let why = why.or_else(|| peer.why_line_differs(text, line as usize));
                    let why = why.or_else(|| calls_inlined(source, ours, theirs).then_some(INLINED));
                    let why = why.or_else(|| table.with_lone_jump.contains(&line).then_some(LONE_JUMP));
                    let why = why.or_else(|| table.with_added_function.contains(&line).then_some(ADDED));
                    let contradicts = contradicts(table, line, ours, theirs);
                    let why = why.or_else(|| contradicts.then_some(CONTRADICTS));
                    let why = why.or_else(|| theirs.why_declaration_differs(line, own, count));
                    self.note(why, shown());
                }
            }
        }
        for (function, &count) in &theirs.functions {
            self.functions.all += 1;
            match ours.functions.get(function) {
                Some(&own) if own == count => self.functions.equal += 1,
                Some(own) => {
                    self.different.push(format!("{name}: {function}: hodo {own}, {} {count}", peer.name()));
                }
                None => {
                    let shown = format!("{name}: {function}: hodo has none, {} {count}", peer.name());
                    self.note(peer.why_no_function(), shown);
                }
            }
        }
        for (&line, counts) in &theirs.branches {
            self.branches.all += 1;
            let source = text.get(line as usize - 1).map_or("", |line| line.trim());
            let own = ours.branches.get(&line).map_or(&[][..], Vec::as_slice);
            match branches::are_equal(own, counts) {
                true => self.branches.equal += 1,
                false => {
                    let shown = format!("{name}:{line}: hodo {own:?}, gcov {counts:?}: {source}");
                    let why = branches::why_different(text, line as usize, own, counts);
                    let jumps = table.conditional_jumps.get(&line).copied().unwrap_or(0);
                    let elsewhere = own.len() * 2 != counts.len() && own.len() == jumps;
                    self.note(why.or(elsewhere.then_some(OTHER_JUMPS)), shown);
                }
            }
        }
    }

    /// Adds a difference, with its reason if it has one.
    fn note(&mut self, why: Option<&'static str>, shown: String) {
        match why {
            Some(why) => self.explained.entry(why).or_default().push(shown),
            None => self.different.push(shown),
        }
    }
}

//! Callgrind's profile format: the cost of each line of each function, and of the calls between each two functions.
//!
//! Costs of calls that recurse count once for each open call, as Callgrind's do. Source: "Callgrind Format
//! Specification" of Valgrind's manual.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use hodo_model::Loss;

use crate::{
    Content, Export, Output, SourceProfile, loss_line,
    paths::printable,
    sources::{CallsBetween, Cost, SourceLine, add},
};

pub(crate) const EXPORT: Export = Export {
    name: "callgrind",
    help: "functions by source line, and the calls between them, for kcachegrind and callgrind_annotate",
    content: Content::Sources(write),
};

/// The name of an unknown file.
const UNKNOWN: &str = "???";
/// The line of a call whose line is unknown.
static NO_LINE: SourceLine = SourceLine { file: String::new(), line: 0 };

/// Numbers the names of files. A number is followed by its name where it is first used.
#[derive(Default)]
struct Names<'n> {
    numbers: BTreeMap<&'n str, usize>,
}

impl<'n> Names<'n> {
    /// Returns the number of a name in parentheses; at its first use, also the name.
    fn numbered(&mut self, name: &'n str) -> String {
        let next = self.numbers.len() + 1;
        match self.numbers.get(name) {
            Some(number) => format!("({number})"),
            None => {
                self.numbers.insert(name, next);
                format!("({next}) {}", printable(name))
            }
        }
    }
}

/// Writes the functions one after the other.
struct Writer<'p, 'o> {
    profile: &'p SourceProfile,
    out: Output<'o>,
    files: Names<'p>,
    /// The functions whose names were written, by number: functions of several modules may have the same name.
    named: BTreeSet<usize>,
}

fn write(profile: &SourceProfile, losses: &[Loss], out: Output<'_>) -> io::Result<()> {
    out.write_all(b"# callgrind format\nversion: 1\ncreator: hodo\n")?;
    for loss in losses {
        writeln!(out, "desc: Note: {}", printable(&loss_line(loss)))?;
    }
    out.write_all(b"positions: line\nevent: Ir : Instructions\nevent: ns : Nanoseconds\nevents: Ir ns\n")?;
    let mut sum: Cost = [0; 2];
    profile.sources.iter().flat_map(|source| source.lines.values()).for_each(|cost| add(&mut sum, *cost));
    writeln!(out, "summary: {} {}", sum[0], sum[1])?;
    let mut writer = Writer { profile, out, files: Names::default(), named: BTreeSet::new() };
    for function in 0..profile.sources.len() {
        writer.function(function)?;
    }
    let Writer { out, .. } = writer;
    writeln!(out, "\ntotals: {} {}", sum[0], sum[1])?;
    out.flush()
}

fn name_of(file: &str) -> &str {
    if file.is_empty() { UNKNOWN } else { file }
}

impl<'p> Writer<'p, '_> {
    /// The file and the line of a function's first instruction.
    fn first_line(&self, function: usize) -> (&'p str, u64) {
        let first = self.profile.sources[function].first.as_ref();
        first.map_or((UNKNOWN, 0), |(_, source_line)| (name_of(&source_line.file), source_line.line))
    }

    /// Returns the number of a function in parentheses; at its first use, also its name.
    fn numbered(&mut self, function: usize) -> String {
        let number = function + 1;
        if self.named.insert(function) {
            format!("({number}) {}", printable(&self.profile.functions.list[function].name))
        } else {
            format!("({number})")
        }
    }

    fn function(&mut self, function: usize) -> io::Result<()> {
        let profile = self.profile;
        let module = printable(&profile.functions.list[function].module);
        let (own_file, _) = self.first_line(function);
        let (name, numbered_file) = (self.numbered(function), self.files.numbered(own_file));
        writeln!(self.out, "\nob={module}\nfl={numbered_file}\nfn={name}")?;
        let calls = profile.calls.range((function, 0)..=(function, usize::MAX));
        let mut calls_of_line: BTreeMap<&'p SourceLine, Vec<(usize, &CallsBetween)>> = BTreeMap::new();
        for (&(_, callee), calls) in calls {
            let site = profile.call_site(function, callee).unwrap_or(&NO_LINE);
            calls_of_line.entry(site).or_default().push((callee, calls));
        }
        let costs = &profile.sources[function].lines;
        let lines: BTreeSet<&'p SourceLine> = costs.keys().chain(calls_of_line.keys().copied()).collect();
        let mut current_file = own_file;
        for source_line in lines {
            let line = source_line.line;
            // Code without a line counts for the function's file.
            let file = if line == 0 { own_file } else { name_of(&source_line.file) };
            if file != current_file {
                let key = if file == own_file { "fe" } else { "fi" };
                let numbered_file = self.files.numbered(file);
                writeln!(self.out, "{key}={numbered_file}")?;
                current_file = file;
            }
            if let Some([instructions, time]) = costs.get(source_line) {
                writeln!(self.out, "{line} {instructions} {time}")?;
            }
            for (callee, calls) in calls_of_line.get(source_line).into_iter().flatten() {
                self.call(*callee, line, calls)?;
            }
        }
        Ok(())
    }

    fn call(&mut self, callee: usize, line: u64, calls: &CallsBetween) -> io::Result<()> {
        let module = printable(&self.profile.functions.list[callee].module);
        let (file, target) = self.first_line(callee);
        let (name, file) = (self.numbered(callee), self.files.numbered(file));
        writeln!(self.out, "cob={module}\ncfi={file}\ncfn={name}")?;
        writeln!(self.out, "calls={} {target}\n{line} {} {}", calls.count, calls.cost[0], calls.cost[1])
    }
}

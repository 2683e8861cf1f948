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
/// Where a call from an unknown line is.
static NOWHERE: SourceLine = (String::new(), 0);

/// Numbers the names of one kind. A number is followed by its name where it is first used.
#[derive(Default)]
struct Names<'n> {
    numbers: BTreeMap<&'n str, usize>,
}

impl<'n> Names<'n> {
    fn of(&mut self, name: &'n str) -> String {
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
    /// The functions whose names were written. Functions of several modules may have one name.
    known: BTreeSet<usize>,
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
    let mut writer = Writer { profile, out, files: Names::default(), known: BTreeSet::new() };
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
    fn begin(&self, function: usize) -> (&'p str, u64) {
        let first = self.profile.sources[function].first.as_ref();
        first.map_or((UNKNOWN, 0), |(_, (file, line))| (name_of(file), *line))
    }

    fn name(&mut self, function: usize) -> String {
        match self.known.insert(function) {
            true => format!("({}) {}", function + 1, printable(&self.profile.functions.list[function].1)),
            false => format!("({})", function + 1),
        }
    }

    fn function(&mut self, function: usize) -> io::Result<()> {
        let profile = self.profile;
        let module = printable(&profile.functions.list[function].0);
        let (file, _) = self.begin(function);
        let (name, of_file) = (self.name(function), self.files.of(file));
        writeln!(self.out, "\nob={module}\nfl={of_file}\nfn={name}")?;
        let calls = profile.calls.range((function, 0)..=(function, usize::MAX));
        let mut calls_of: BTreeMap<&'p SourceLine, Vec<(usize, &CallsBetween)>> = BTreeMap::new();
        for (&(_, callee), calls) in calls {
            let site = profile.site(function, callee).unwrap_or(&NOWHERE);
            calls_of.entry(site).or_default().push((callee, calls));
        }
        let costs = &profile.sources[function].lines;
        let lines: BTreeSet<&'p SourceLine> = costs.keys().chain(calls_of.keys().copied()).collect();
        // Code without a line counts for the function's file.
        let file_of = |line: &'p SourceLine| if line.1 == 0 { file } else { name_of(&line.0) };
        let mut now = file;
        for line in lines {
            let here = file_of(line);
            if here != now {
                let which = if here == file { "fe" } else { "fi" };
                let of_file = self.files.of(here);
                writeln!(self.out, "{which}={of_file}")?;
                now = here;
            }
            if let Some([instructions, time]) = costs.get(line) {
                writeln!(self.out, "{} {instructions} {time}", line.1)?;
            }
            for (callee, calls) in calls_of.get(line).into_iter().flatten() {
                self.call(*callee, line.1, calls)?;
            }
        }
        Ok(())
    }

    fn call(&mut self, callee: usize, line: u64, calls: &CallsBetween) -> io::Result<()> {
        let module = printable(&self.profile.functions.list[callee].0);
        let (file, target) = self.begin(callee);
        let (name, file) = (self.name(callee), self.files.of(file));
        writeln!(self.out, "cob={module}\ncfi={file}\ncfn={name}")?;
        writeln!(self.out, "calls={} {target}\n{line} {} {}", calls.count, calls.cost[0], calls.cost[1])
    }
}

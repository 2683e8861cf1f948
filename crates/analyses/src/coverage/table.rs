//! The tables of coverage, in the order of the source.

use std::collections::BTreeMap;

use hodo_model::{Column, Shape, Summary, Table, Unit, Value};

use super::measured::{BranchCoverage, FunctionCoverage, Location, Measured, ModuleCoverage};
use crate::columns::share;

/// A number of things, and how many of them ran.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    all: u64,
    ran: u64,
}

impl Reached {
    fn add(&mut self, executions: u64) {
        self.all += 1;
        self.ran += u64::from(executions > 0);
    }
}

/// The coverage of a source file, or of everything.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    lines: Reached,
    functions: Reached,
    /// Both ways of each conditional branch.
    ways: Reached,
}

/// A row of the table of everything.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry<'m> {
    at: &'m Location,
    kind: Kind,
    address: Option<u64>,
    module: &'m str,
    function: &'m str,
    executions: u64,
    /// Of a branch: how often it was taken, and how often not.
    ways: Option<(u64, u64)>,
}

/// What a row is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Function,
    Line,
    Branch,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Function => "function",
            Kind::Line => "line",
            Kind::Branch => "branch",
        }
    }
}

impl Measured {
    /// Makes the table of a view.
    pub(super) fn table(&self, view: &str) -> Table {
        match view {
            "function" => self.entries(&[Kind::Function]),
            "line" => self.entries(&[Kind::Line]),
            "branch" => self.entries(&[Kind::Branch]),
            "all" => self.entries(&[Kind::Function, Kind::Line, Kind::Branch]),
            _ => self.files(),
        }
    }

    /// Two modules may contain code of the same line: it counts once.
    fn sums(&self) -> BTreeMap<&str, Sums> {
        let mut lines: BTreeMap<&Location, u64> = BTreeMap::new();
        let mut files: BTreeMap<&str, Sums> = BTreeMap::new();
        for module in self.modules.values() {
            for (at, executions) in &module.lines {
                let sum = lines.entry(at).or_default();
                *sum = sum.saturating_add(*executions);
            }
            for FunctionCoverage { at, entries, .. } in module.functions.values() {
                files.entry(&at.file).or_default().functions.add(*entries);
            }
            for BranchCoverage { at, taken, not_taken, .. } in module.branches.values() {
                let sums = files.entry(&at.file).or_default();
                sums.ways.add(*taken);
                sums.ways.add(*not_taken);
            }
        }
        for (at, executions) in lines {
            files.entry(&at.file).or_default().lines.add(executions);
        }
        files
    }

    fn summary(&self, files: &BTreeMap<&str, Sums>) -> Summary {
        let sum = |part: fn(&Sums) -> u64| Value::from(files.values().map(part).sum::<u64>());
        vec![
            ("recordings", self.recordings.into()),
            ("files", (files.len() as u64).into()),
            ("lines", sum(|sums| sums.lines.all)),
            ("lines_run", sum(|sums| sums.lines.ran)),
            ("functions", sum(|sums| sums.functions.all)),
            ("functions_run", sum(|sums| sums.functions.ran)),
            ("branch_ways", sum(|sums| sums.ways.all)),
            ("branch_ways_run", sum(|sums| sums.ways.ran)),
        ]
    }

    fn files(&self) -> Table {
        let files = self.sums();
        let columns = vec![
            Column::real("line_share", Unit::Share),
            Column::integer("lines", Unit::Count),
            Column::integer("lines_run", Unit::Count),
            Column::integer("functions", Unit::Count),
            Column::integer("functions_run", Unit::Count),
            Column::integer("branch_ways", Unit::Count),
            Column::integer("branch_ways_run", Unit::Count),
            Column::text("file"),
        ];
        let rows = files.iter().map(|(file, Sums { lines, functions, ways })| {
            vec![
                share(lines.ran, lines.all),
                lines.all.into(),
                lines.ran.into(),
                functions.all.into(),
                functions.ran.into(),
                ways.all.into(),
                ways.ran.into(),
                Value::from(*file),
            ]
        });
        Table::new("coverage", Shape::Counters, self.summary(&files), columns, rows)
    }

    fn entries(&self, kinds: &[Kind]) -> Table {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for (name, module) in &self.modules {
            module.entries(name, &mut entries);
        }
        entries.retain(|entry| kinds.contains(&entry.kind));
        entries.sort_unstable();
        let columns = vec![
            Column::name("kind").secondary(),
            Column::integer("executions", Unit::Count),
            Column::integer("taken", Unit::Count),
            Column::integer("not_taken", Unit::Count),
            Column::text("line"),
            Column::name("function"),
            Column::integer("address", Unit::Address).secondary(),
            Column::name("module").secondary(),
        ];
        let rows = entries.iter().map(|entry| {
            let ways = entry.ways;
            vec![
                entry.kind.name().into(),
                entry.executions.into(),
                ways.map(|(taken, _)| taken).into(),
                ways.map(|(_, not_taken)| not_taken).into(),
                format!("{}:{}", entry.at.file, entry.at.line).into(),
                Some(entry.function).filter(|name| !name.is_empty()).map(str::to_owned).into(),
                entry.address.into(),
                entry.module.into(),
            ]
        });
        Table::new("coverage", Shape::Counters, self.summary(&self.sums()), columns, rows)
    }
}

impl ModuleCoverage {
    fn entries<'m>(&'m self, module: &'m str, entries: &mut Vec<Entry<'m>>) {
        for (at, &executions) in &self.lines {
            let (kind, function, address, ways) = (Kind::Line, "", None, None);
            entries.push(Entry { at, kind, address, module, function, executions, ways });
        }
        for (&address, FunctionCoverage { name, at, entries: executions }) in &self.functions {
            let (kind, address, ways) = (Kind::Function, Some(address), None);
            entries.push(Entry { at, kind, address, module, function: name, executions: *executions, ways });
        }
        for (&address, branch) in &self.branches {
            entries.push(Entry {
                at: &branch.at,
                kind: Kind::Branch,
                address: Some(address),
                module,
                function: &branch.function,
                executions: branch.executions,
                ways: Some((branch.taken, branch.not_taken)),
            });
        }
    }
}

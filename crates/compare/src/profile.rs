//! Compares call paths: which grew and which shrank.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use hodo_model::{
    Column, Shape, Summary, Table, Unit, Value,
    table::{Cell, cells},
};

use crate::{
    Sides,
    statistics::{ConfidenceInterval, SIGNIFICANT, benjamini_hochberg, bootstrap, mann_whitney},
    union::{Amount, Function, Union},
};

/// The kind of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// Functions, summed over their callers.
    #[default]
    Functions,
    /// Call paths.
    Paths,
}

/// What a side's amounts are divided by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// The number of recordings.
    Recording,
    /// The number of executions of the function or system call with this name.
    Execution(String),
}

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kind of rows.
    pub rows: Rows,
    /// What each side's amounts are divided by.
    pub divisor: Divisor,
}

/// Instructions executed inline in other functions, by the name of the inlined function.
pub type Inlined = BTreeMap<String, u64>;

/// Frames of a path at most; the innermost are shown.
const FRAMES: usize = 64;

/// The change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    New,
    Grown,
    Vanished,
    Shrunk,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::New => "new",
            Change::Grown => "grown",
            Change::Vanished => "vanished",
            Change::Shrunk => "shrunk",
        }
    }

    fn is_more(self) -> bool {
        matches!(self, Change::New | Change::Grown)
    }
}

/// A row of the comparison.
#[derive(Clone, Debug)]
struct ComparedRow {
    change: Change,
    function: usize,
    /// The frames, if rows are paths.
    path: Option<String>,
    amounts: Sides<Amount>,
    /// The test of times, for groups.
    test: Option<Test>,
    /// The p-value of the test, adjusted for the number of rows.
    adjusted: Option<f64>,
}

/// The test of the times of two groups.
#[derive(Clone, Copy, Debug)]
struct Test {
    /// Of the difference of the times.
    interval: Option<ConfidenceInterval>,
    /// The p-value.
    p: f64,
}

/// The differences between two sides.
#[derive(Debug)]
pub struct Comparison {
    options: Options,
    union: Union,
    /// Grown rows, then shrunk rows; each sorted by the size of the change.
    rows: Vec<ComparedRow>,
    totals: Sides<Amount>,
    /// The instructions of each recording.
    executed: Sides<Vec<u64>>,
    /// The divisor of each recording.
    weights: Sides<Vec<u64>>,
    inlined: Sides<Inlined>,
}

/// A growth from A to B, and how certain it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The growth of the mean, relative to A.
    pub share: f64,
    /// The p-value of the test, if both sides are groups whose recordings vary.
    pub p: Option<f64>,
}

impl Growth {
    /// Returns whether the growth is unlikely to be chance. Without groups, it counts as significant.
    pub fn is_significant(&self) -> bool {
        self.p.is_none_or(|p| p < SIGNIFICANT)
    }
}

/// Compares tables of call paths, one table per recording of each side. `weights` holds the number of executions of
/// each recording.
///
/// # Panics
/// If a table does not hold call paths, or the numbers of recordings and weights differ.
pub fn paths(tables: Sides<&[Table]>, weights: Sides<Vec<u64>>, options: Options) -> Comparison {
    assert_eq!(tables.map(<[Table]>::len), weights.each().map(Vec::len), "a weight for each recording");
    let union = Union::of(tables);
    let executed = tables.map(|tables| tables.iter().map(instructions).collect());
    let mut totals = Sides::<Amount>::default();
    for node in &union.nodes {
        totals.a.add(&node.amounts.a);
        totals.b.add(&node.amounts.b);
    }
    let mut comparison =
        Comparison { options, union, rows: Vec::new(), totals, executed, weights, inlined: Sides::default() };
    comparison.rows = comparison.make_rows();
    comparison.sort();
    comparison.adjust();
    comparison
}

impl Comparison {
    fn make_rows(&self) -> Vec<ComparedRow> {
        let row = |function: u32, path: Option<u32>, amounts: &Sides<Amount>| {
            let change = self.change(amounts)?;
            let (path, function) = (path.map(|node| self.union.path(node, FRAMES)), function as usize);
            let test = self.test(amounts);
            Some(ComparedRow { change, function, path, amounts: amounts.clone(), test, adjusted: None })
        };
        let nodes = self.union.nodes.iter().zip(0..);
        if self.options.rows == Rows::Paths {
            return nodes.filter_map(|(node, id)| row(node.function, Some(id), &node.amounts)).collect();
        }
        let mut by_function = vec![Sides::<Amount>::default(); self.union.functions.len()];
        for (node, _) in nodes {
            let sum = &mut by_function[node.function as usize];
            sum.a.add(&node.amounts.a);
            sum.b.add(&node.amounts.b);
        }
        by_function.iter().zip(0..).filter_map(|(amounts, function)| row(function, None, amounts)).collect()
    }

    /// Returns the change of amounts per execution; `None` if they are equal.
    fn change(&self, amounts: &Sides<Amount>) -> Option<Change> {
        let [executions_a, executions_b] =
            [&self.weights.a, &self.weights.b].map(|weights| weights.iter().sum::<u64>());
        // Cross products are exact; quotients are not.
        let compare = |a: u64, b: u64| {
            (u128::from(b) * u128::from(executions_a)).cmp(&(u128::from(a) * u128::from(executions_b)))
        };
        let more = compare(amounts.a.instructions, amounts.b.instructions);
        let more = more.then(compare(amounts.a.calls, amounts.b.calls));
        match (amounts.a.is_there, amounts.b.is_there, more) {
            (false, true, _) => Some(Change::New),
            (true, false, _) => Some(Change::Vanished),
            (_, _, Ordering::Greater) => Some(Change::Grown),
            (_, _, Ordering::Less) => Some(Change::Shrunk),
            (_, _, Ordering::Equal) => None,
        }
    }

    /// Returns the time per execution of each recording.
    fn times(&self, amounts: &Sides<Amount>) -> Sides<Vec<f64>> {
        let rates = |amount: &Amount, weights: &[u64]| {
            let mut times: Vec<u64> = vec![0; weights.len()];
            amount.times.iter().for_each(|&(recording, time)| times[recording as usize] = time);
            let executed = times.iter().zip(weights).filter(|(_, weight)| **weight > 0);
            executed.map(|(&time, &weight)| time as f64 / weight as f64).collect()
        };
        Sides::new(rates(&amounts.a, &self.weights.a), rates(&amounts.b, &self.weights.b))
    }

    /// Returns whether both sides are groups of recordings, which permit statistics.
    fn are_groups(&self) -> bool {
        self.weights.a.len() > 1 && self.weights.b.len() > 1
    }

    fn test(&self, amounts: &Sides<Amount>) -> Option<Test> {
        let times = self.times(amounts);
        let p = mann_whitney(&times.a, &times.b).filter(|_| self.are_groups())?;
        Some(Test { interval: bootstrap(&times.a, &times.b), p })
    }

    fn adjust(&mut self) {
        let values: Vec<Option<f64>> = self.rows.iter().map(|row| row.test.map(|test| test.p)).collect();
        for (row, adjusted) in self.rows.iter_mut().zip(benjamini_hochberg(&values)) {
            row.adjusted = adjusted;
        }
    }

    fn sort(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        let size = |row: &ComparedRow| self.instructions(&row.amounts).difference().abs();
        let name = |row: &ComparedRow| {
            let Function { name, module, .. } = &self.union.functions[row.function];
            (row.path.clone(), name.clone(), module.clone())
        };
        rows.sort_by(|x, y| {
            let more = y.change.is_more().cmp(&x.change.is_more());
            more.then_with(|| size(y).total_cmp(&size(x))).then_with(|| name(x).cmp(&name(y)))
        });
        self.rows = rows;
    }

    fn rate(&self, amounts: &Sides<Amount>, amount_of: impl Fn(&Amount) -> u64) -> Rate {
        let per = |amount: &Amount, weights: &[u64]| {
            amount_of(amount) as f64 / weights.iter().sum::<u64>().max(1) as f64
        };
        Rate { a: per(&amounts.a, &self.weights.a), b: per(&amounts.b, &self.weights.b) }
    }

    fn instructions(&self, amounts: &Sides<Amount>) -> Rate {
        self.rate(amounts, |amount| amount.instructions)
    }

    /// Returns the names of functions that only one side executed, on any path.
    pub fn only_in(&self) -> Sides<BTreeSet<String>> {
        let mut ran = vec![Sides::new(false, false); self.union.functions.len()];
        for node in &self.union.nodes {
            let ran = &mut ran[node.function as usize];
            ran.a |= node.amounts.a.is_there;
            ran.b |= node.amounts.b.is_there;
        }
        let mut only = Sides::<BTreeSet<String>>::default();
        for (function, ran) in self.union.functions.iter().zip(ran).filter(|(_, ran)| ran.a != ran.b) {
            let names = if ran.b { &mut only.b } else { &mut only.a };
            names.insert(function.name.clone());
        }
        only
    }

    /// Adds the inlined instructions of functions that a side executed only inline.
    pub fn with_inlined(self, inlined: Sides<Inlined>) -> Comparison {
        Comparison { inlined, ..self }
    }

    /// Returns whether the sides are equal.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the growth of instructions from A to B; `None` if A has none.
    pub fn growth(&self) -> Option<Growth> {
        let rates = |executed: &[u64], weights: &[u64]| -> Vec<f64> {
            let known = executed.iter().zip(weights).filter(|(_, weight)| **weight > 0);
            known.map(|(&instructions, &weight)| instructions as f64 / weight as f64).collect()
        };
        let a = rates(&self.executed.a, &self.weights.a);
        let b = rates(&self.executed.b, &self.weights.b);
        // Where each side executes the same number every time, chance has no part in the difference.
        let varies = |values: &[f64]| values.iter().any(|value| *value != values[0]);
        let p = mann_whitney(&a, &b).filter(|_| self.are_groups() && (varies(&a) || varies(&b)));
        let share = self.instructions(&self.totals).growth()?;
        Some(Growth { share, p })
    }

    /// Returns the growth of times, if both sides are groups.
    pub fn growth_of_time(&self) -> Option<Growth> {
        let p = self.test(&self.totals)?.p;
        Some(Growth { share: self.rate(&self.totals, |amount| amount.time).growth()?, p: Some(p) })
    }

    /// Returns notes on the matching of the sides.
    pub fn notes(&self) -> &[String] {
        &self.union.notes
    }

    /// Returns the first `most` grown rows, with their numbers of instructions.
    pub fn worst(&self, most: usize) -> Vec<String> {
        let more = self.rows.iter().filter(|row| row.change.is_more()).take(most);
        more.map(|row| {
            let name = row.path.as_ref().unwrap_or(&self.union.functions[row.function].name);
            format!("{name} {}", signed(self.instructions(&row.amounts).difference()))
        })
        .collect()
    }

    /// Returns what amounts are divided by, to append to them.
    fn per_divisor(&self) -> String {
        match &self.options.divisor {
            Divisor::Recording if self.weights.a.len() + self.weights.b.len() > 2 => {
                " a recording".to_owned()
            }
            Divisor::Recording => String::new(),
            Divisor::Execution(name) => format!(" an execution of {name}"),
        }
    }

    /// Returns the result in one sentence.
    pub fn verdict(&self) -> String {
        let total = self.instructions(&self.totals);
        let count = |change| self.rows.iter().filter(|row| row.change == change).count();
        if self.is_empty() {
            let instructions = number(total.a);
            return format!("no difference: {instructions} instructions{} on both sides", self.per_divisor());
        }
        let what = if self.options.rows == Rows::Paths { "paths" } else { "functions" };
        let share = total.growth().map_or(String::new(), |growth| format!(" ({:+.2} %)", growth * 100.0));
        format!(
            "{} instructions{}{share}: {} → {}; {what}: {} grown, {} shrunk, {} new, {} vanished",
            signed(total.difference()),
            self.per_divisor(),
            number(total.a),
            number(total.b),
            count(Change::Grown),
            count(Change::Shrunk),
            count(Change::New),
            count(Change::Vanished),
        )
    }

    /// Returns the summary of the comparison.
    pub fn summary(&self) -> Summary {
        let instructions = self.instructions(&self.totals);
        let calls = self.rate(&self.totals, |amount| amount.calls);
        let time = self.rate(&self.totals, |amount| amount.time);
        let test = self.test(&self.totals);
        let weight = |weights: &[u64]| weights.iter().sum::<u64>();
        let mut summary: Summary = vec![("verdict", self.verdict().into())];
        if let Divisor::Execution(name) = &self.options.divisor {
            summary.extend([
                ("per", name.as_str().into()),
                ("a_executions", weight(&self.weights.a).into()),
                ("b_executions", weight(&self.weights.b).into()),
            ]);
        }
        summary.extend([
            ("a_recordings", (self.weights.a.len() as u64).into()),
            ("b_recordings", (self.weights.b.len() as u64).into()),
            ("a_instructions", instructions.a.into()),
            ("b_instructions", instructions.b.into()),
            ("delta_instructions", instructions.difference().into()),
            ("delta_calls", calls.difference().into()),
            ("a_time_ns", time.a.into()),
            ("b_time_ns", time.b.into()),
            ("delta_time_ns", time.difference().into()),
        ]);
        if let Some(Test { interval, p }) = test {
            summary.extend([
                ("low_time_ns", interval.map(|interval| interval.low).into()),
                ("high_time_ns", interval.map(|interval| interval.high).into()),
                ("p_value", p.into()),
                ("test", "Mann–Whitney U; p_adjusted of rows: Benjamini and Hochberg".into()),
            ]);
        }
        summary.into_iter().chain(self.notes().iter().map(|note| ("note", note.as_str().into()))).collect()
    }

    /// Returns the grown and the shrunk rows as two tables, for people.
    pub fn tables(&self) -> [Table; 2] {
        let (grown, shrunk): (Vec<&ComparedRow>, Vec<&ComparedRow>) =
            self.rows.iter().partition(|row| row.change.is_more());
        let table = |name, summary, rows: Vec<&ComparedRow>| {
            let cells = rows.into_iter().map(|row| self.cells(row));
            Table::new(name, Shape::Counters, summary, self.columns(), cells)
        };
        [table("grown", self.summary(), grown), table("shrunk", Vec::new(), shrunk)]
    }

    /// Returns all rows in one table, for programs.
    pub fn table(&self) -> Table {
        let rows = self.rows.iter().map(|row| self.cells(row));
        Table::new("diff", Shape::Counters, self.summary(), self.columns(), rows)
    }

    /// Returns the call paths of both sides as one tree, depth first: amounts of each path without its callees.
    pub fn tree(&self) -> Table {
        let amount = |name| Column::real(name, Unit::Instructions);
        let columns = vec![
            Column::integer("depth", Unit::None),
            Column::name("function"),
            Column::name("module").secondary(),
            amount("a_self_instructions"),
            amount("b_self_instructions"),
            Column::name("change"),
            Column::real("a_calls", Unit::Count),
            Column::real("b_calls", Unit::Count),
            Column::text("matched"),
        ];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.union.nodes.len()];
        let mut waiting: Vec<(usize, u64)> = Vec::new();
        for (index, node) in self.union.nodes.iter().enumerate().rev() {
            match node.parent {
                Some(parent) => children[parent as usize].push(index),
                None => waiting.push((index, 0)),
            }
        }
        let mut rows: Vec<Vec<Value>> = Vec::new();
        while let Some((index, depth)) = waiting.pop() {
            let node = &self.union.nodes[index];
            let (own, function) =
                (self.instructions(&node.amounts), &self.union.functions[node.function as usize]);
            let calls = self.rate(&node.amounts, |amount| amount.calls);
            rows.push(vec![
                depth.into(),
                function.name.as_str().into(),
                function.module.as_str().into(),
                own.a.into(),
                own.b.into(),
                self.change(&node.amounts).map_or("same", Change::name).into(),
                calls.a.into(),
                calls.b.into(),
                names(function).into(),
            ]);
            waiting.extend(children[index].iter().map(|&child| (child, depth + 1)));
        }
        Table::new("diff_paths", Shape::Tree, self.summary(), columns, rows)
    }

    fn columns(&self) -> Vec<Column> {
        let instructions = |name| Column::real(name, Unit::Instructions);
        let time = |name| Column::real(name, Unit::Nanoseconds);
        let mut columns = vec![
            instructions("delta_instructions"),
            Column::real("growth", Unit::Share),
            instructions("a_instructions").secondary(),
            instructions("b_instructions").secondary(),
            Column::real("delta_calls", Unit::Count),
            Column::real("a_calls", Unit::Count).secondary(),
            Column::real("b_calls", Unit::Count).secondary(),
            time("delta_time_ns"),
        ];
        if self.are_groups() {
            columns.extend([
                time("low_time_ns").secondary(),
                time("high_time_ns").secondary(),
                Column::real("p_value", Unit::None).secondary(),
                Column::real("p_adjusted", Unit::None),
            ]);
        }
        columns.push(Column::name("change"));
        columns.extend((self.options.rows == Rows::Paths).then_some(Column::text("path")));
        columns.extend([
            Column::name("function"),
            Column::name("module").secondary(),
            Column::text("matched"),
        ]);
        columns
    }

    fn cells(&self, row: &ComparedRow) -> Vec<Value> {
        let instructions = self.instructions(&row.amounts);
        let calls = self.rate(&row.amounts, |amount| amount.calls);
        let time = self.rate(&row.amounts, |amount| amount.time);
        let function = &self.union.functions[row.function];
        let mut cells: Vec<Value> = vec![
            instructions.difference().into(),
            instructions.growth().into(),
            instructions.a.into(),
            instructions.b.into(),
            calls.difference().into(),
            calls.a.into(),
            calls.b.into(),
            time.difference().into(),
        ];
        if self.are_groups() {
            let interval = row.test.and_then(|test| test.interval);
            cells.extend([
                Value::from(interval.map(|interval| interval.low)),
                interval.map(|interval| interval.high).into(),
                row.test.map(|test| test.p).into(),
                row.adjusted.into(),
            ]);
        }
        cells.push(row.change.name().into());
        cells.extend(row.path.as_deref().map(Value::from));
        cells.extend([function.name.as_str().into(), function.module.as_str().into()]);
        cells.push(self.matched(row, function).into());
        cells
    }

    /// Describes how the function was matched if not by name, and where it runs inlined.
    fn matched(&self, row: &ComparedRow, function: &Function) -> Option<String> {
        let (inlined, side) = match row.change {
            Change::Vanished => (&self.inlined.b, "B"),
            _ => (&self.inlined.a, "A"),
        };
        let is_alone = matches!(row.change, Change::Vanished | Change::New);
        if let Some(&instructions) = inlined.get(&function.name).filter(|_| is_alone) {
            return Some(format!("inlined in {side}: {} instructions", number(instructions as f64)));
        }
        names(function)
    }
}

/// Describes how a function was matched, if not by its name.
fn names(function: &Function) -> Option<String> {
    let Sides { a, b } = &function.names;
    let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let is_plain = |names: &BTreeSet<String>| names.iter().all(|name| *name == function.name);
    let differ = a != b && !a.is_empty() && !b.is_empty() || !is_plain(a) || !is_plain(b);
    let both = || format!("{} → {}", list(a), list(b));
    differ.then(|| match (a.is_empty(), b.is_empty()) {
        _ if function.is_renamed => format!("renamed? {}", both()),
        (false, true) => list(a),
        (true, false) => list(b),
        _ => both(),
    })
}

/// An amount of each side per execution.
#[derive(Clone, Copy, Debug)]
struct Rate {
    a: f64,
    b: f64,
}

impl Rate {
    fn difference(self) -> f64 {
        self.b - self.a
    }

    fn growth(self) -> Option<f64> {
        (self.a > 0.0).then(|| self.difference() / self.a)
    }
}

/// Returns the instructions of a table of call paths.
fn instructions(table: &Table) -> u64 {
    let Some(index) = table.columns().iter().position(|column| column.name == "self_instructions") else {
        return 0;
    };
    let mut sum = 0u64;
    for batch in table.batches() {
        let columns = cells(batch);
        for row in 0..batch.num_rows() {
            if let Cell::Integer(own) = columns[index].cell(row) {
                sum = sum.saturating_add(own);
            }
        }
    }
    sum
}

/// Formats a number with at most two decimals, and commas between thousands.
fn number(value: f64) -> String {
    let text = format!("{:.2}", value.abs());
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in whole.chars().enumerate() {
        grouped.extend((index > 0 && (whole.len() - index).is_multiple_of(3)).then_some(','));
        grouped.push(digit);
    }
    let decimals = decimals.trim_end_matches('0');
    if decimals.is_empty() { grouped } else { format!("{grouped}.{decimals}") }
}

fn signed(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", number(value))
}

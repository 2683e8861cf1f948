//! The path with the functions that ran in it: pieces from events, functions from control flow.

use std::{cmp::Reverse, collections::BTreeMap};

use hodo_clock::Nanos;
use hodo_model::{Column, Shape, Summary, Table, Unit, Value};

use super::{
    functions::ThreadStretch,
    tree::{self, PathLeaf},
};

/// What a function ran in one or several stretches, without its callees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FunctionOfStretch {
    /// `FUNCTION@MODULE`, as `hodo latency --function` takes it.
    pub(super) name: String,
    pub(super) instructions: u64,
    /// In nanoseconds.
    pub(super) time: u64,
}

impl FunctionOfStretch {
    pub(super) fn add(&mut self, other: &FunctionOfStretch) {
        self.instructions = self.instructions.saturating_add(other.instructions);
        self.time = self.time.saturating_add(other.time);
    }
}

/// A row below a stretch.
pub(super) struct RowBelow {
    /// The stable name of its kind.
    pub(super) kind: &'static str,
    pub(super) label: String,
    pub(super) time: u64,
    pub(super) instructions: Option<u64>,
}

/// Returns the rows below what ran for `length`: the `most` heaviest functions, the others as one row, and the time that
/// control flow does not cover. They add up to `length`. No rows if no function is known.
pub(super) fn below(mut functions: Vec<FunctionOfStretch>, length: u64, most: usize) -> Vec<RowBelow> {
    if functions.is_empty() || most == 0 {
        return Vec::new();
    }
    let untraced = functions.iter().fold(length, |rest, function| rest.saturating_sub(function.time));
    functions.sort_by(|x, y| {
        let weight = |function: &FunctionOfStretch| Reverse((function.time, function.instructions));
        weight(x).cmp(&weight(y)).then_with(|| x.name.cmp(&y.name))
    });
    let others = functions.split_off(most.min(functions.len()));
    let row = |FunctionOfStretch { name, instructions, time }| RowBelow {
        kind: "function",
        label: name,
        time,
        instructions: Some(instructions),
    };
    let mut rows: Vec<RowBelow> = functions.into_iter().map(row).collect();
    if !others.is_empty() {
        let mut sum = FunctionOfStretch::default();
        others.iter().for_each(|function| sum.add(function));
        let label = match others.len() {
            1 => "1 more function".to_owned(),
            count => format!("{count} more functions"),
        };
        rows.push(RowBelow { kind: "functions", label, ..row(sum) });
    }
    if untraced > 0 {
        let label = "not in the control flow".to_owned();
        rows.push(RowBelow { kind: "untraced", label, time: untraced, instructions: None });
    }
    rows
}

/// The columns of the view `stretch` that are read here.
struct StretchColumns {
    begin: usize,
    duration: usize,
    depth: usize,
    tid: usize,
    host: usize,
    cause: usize,
    detail: usize,
    what: usize,
}

impl StretchColumns {
    fn of(table: &Table) -> Option<StretchColumns> {
        let column = |name| table.columns().iter().position(|column| column.name == name);
        Some(StretchColumns {
            begin: column("begin_ns")?,
            duration: column("duration_ns")?,
            depth: column("depth")?,
            tid: column("tid")?,
            host: column("host")?,
            cause: column("cause")?,
            detail: column("detail")?,
            what: column("what")?,
        })
    }

    /// The stretch of a row, if a thread of the only host ran.
    fn stretch(&self, row: &[Value]) -> Option<ThreadStretch> {
        let ran = row[self.cause] == Value::from("running") && row[self.host] == Value::Null;
        let [begin, duration, tid] =
            [self.begin, self.duration, self.tid].map(|column| integer(&row[column]));
        let (begin, end) = (Nanos(begin), Nanos(begin.saturating_add(duration)));
        ran.then_some(ThreadStretch { begin, end, tid: u32::try_from(tid).ok()? })
    }
}

fn integer(value: &Value) -> u64 {
    match value {
        Value::Integer(integer) => *integer,
        _ => 0,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    }
}

/// Returns the stretches of a table of the view `stretch` in which a thread ran, in order; an empty list if it has several hosts,
/// because the host of the control flow is unknown.
pub fn running(table: &Table) -> Vec<ThreadStretch> {
    let Some(columns) = StretchColumns::of(table) else { return Vec::new() };
    table.rows().iter().filter_map(|row| columns.stretch(row)).collect()
}

/// Makes the table of a `view`, `tree` or `piece`, from that of the view `stretch` and from what ran in each of its
/// stretches, one table for each trace of control flow. At most `most` functions are listed below what ran, the heaviest.
///
/// # Panics
/// If the table is of another view.
pub fn with_functions(table: Table, executed: &[Table], view: &str, most: usize) -> Table {
    let columns = StretchColumns::of(&table).expect("a table of the view `stretch`");
    let rows = table.rows();
    let stretches = rows.iter().filter(|row| columns.stretch(row).is_some()).count();
    let mut ran = by_stretch(stretches, executed).into_iter();
    let mut pieces: Vec<(Vec<Value>, Vec<FunctionOfStretch>)> = Vec::with_capacity(rows.len());
    for row in rows {
        let functions = columns.stretch(&row).and_then(|_| ran.next()).unwrap_or_default();
        pieces.push((row, functions));
    }
    let functions = || pieces.iter().flat_map(|(_, functions)| functions);
    let instructions: u64 = functions().map(|function| function.instructions).sum();
    let (loss, mut summary) = (table.loss.clone(), table.summary.clone());
    let known: u64 = functions().map(|function| function.time).sum();
    let running = pieces.iter().filter_map(|(row, _)| columns.stretch(row));
    let running: u64 = running.map(|stretch| stretch.end.0 - stretch.begin.0).sum();
    let pieces_figure = summary.iter().position(|(name, _)| *name == "pieces");
    let after_pieces = pieces_figure.map_or(summary.len(), |index| index + 1);
    summary.splice(
        after_pieces..after_pieces,
        [("instructions", instructions.into()), ("untraced_ns", running.saturating_sub(known).into())],
    );
    let made = match view {
        "piece" => by_piece(&table, summary, &columns, &pieces, most),
        _ => {
            let leaves = pieces.iter().map(|(row, functions)| PathLeaf {
                labels: labels(&row[columns.what]),
                length: integer(&row[columns.duration]),
                functions,
            });
            tree::table(summary, leaves, Some(most))
        }
    };
    made.with_loss(loss)
}

/// The functions that ran in each stretch. Functions of one name and module are one here.
fn by_stretch(stretches: usize, executed: &[Table]) -> Vec<Vec<FunctionOfStretch>> {
    let mut ran: Vec<BTreeMap<String, FunctionOfStretch>> = vec![BTreeMap::new(); stretches];
    for row in executed.iter().flat_map(Table::rows) {
        let [stretch, function, module, instructions, time] = &row[..] else { continue };
        let Some(functions) = ran.get_mut(integer(stretch) as usize) else { continue };
        let name = format!("{}@{}", text(function), text(module));
        let sum = functions
            .entry(name.clone())
            .or_insert_with(|| FunctionOfStretch { name, ..FunctionOfStretch::default() });
        sum.instructions = sum.instructions.saturating_add(integer(instructions));
        sum.time = sum.time.saturating_add(integer(time));
    }
    ran.into_iter().map(|functions| functions.into_values().collect()).collect()
}

fn labels(value: &Value) -> Vec<String> {
    match value {
        Value::List(labels) => labels.iter().map(text).collect(),
        _ => Vec::new(),
    }
}

fn by_piece(
    table: &Table,
    summary: Summary,
    columns: &StretchColumns,
    pieces: &[(Vec<Value>, Vec<FunctionOfStretch>)],
    most: usize,
) -> Table {
    let mut headings = table.columns().to_vec();
    headings[columns.what] = Column::integer("instructions", Unit::Count);
    let mut rows = Vec::new();
    for (row, functions) in pieces {
        let ran: u64 = functions.iter().map(|function| function.instructions).sum();
        let mut piece = row.clone();
        piece[columns.what] = Some(ran).filter(|_| !functions.is_empty()).into();
        rows.push(piece);
        let length = integer(&row[columns.duration]);
        for RowBelow { kind, label, time, instructions } in below(functions.clone(), length, most) {
            let mut own = vec![Value::Null; row.len()];
            own[columns.duration] = time.into();
            own[columns.depth] = (integer(&row[columns.depth]) + 1).into();
            own[columns.cause] = kind.into();
            own[columns.detail] = label.into();
            own[columns.what] = instructions.into();
            rows.push(own);
        }
    }
    Table::new("critical-path", Shape::Intervals, summary, headings, rows)
}

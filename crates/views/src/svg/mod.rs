//! A plot of any table in SVG, by its shape and columns:
//!
//! ```text
//! begin_ns and a duration or an end ──► lanes over time, one for each thread or CPU
//! at_ns, time_ns or begin_ns alone  ──► values over time
//! all others                        ──► a bar for each of the greatest rows
//! ```
//!
//! Pointing at a part shows its row. The size of a plot is bounded by its pixels, not by the table.

use std::io;

use arrow_schema::{Field, Schema};
use hodo_model::{
    Table, Unit,
    table::{
        Cell,
        metadata::{ColumnMetadata, TableMetadata},
    },
};

use crate::{
    End, Options, Output, Reader, View,
    cell::{cut, instant, show},
    rows::{BatchRow, Rows, keep},
    xml::escaped,
};

mod bars;
mod lanes;
mod values;

pub(crate) const VIEW: View = View {
    name: "svg",
    help: "a plot, in SVG: bars, lanes or values over time: `-o plot.svg`",
    reader: Reader::ProgramsOfBytes,
    shows_loss: false,
    several: None,
    begin: |schema, options, out| Ok(keep(schema, options, out, draw)),
};

/// Width of a plot.
const WIDTH: f64 = 760.0;
/// Where the part right of the labels begins.
const LEFT: f64 = 230.0;
/// Where that part ends.
const RIGHT: f64 = WIDTH - 20.0;
/// Height of a row and of a line of text.
const ROW_HEIGHT: f64 = 20.0;
/// Characters of a label at most.
const LABEL: usize = 33;
/// Names in a line of the legend, and characters of a name at most.
const LEGEND_COLUMNS: usize = 4;
const LEGEND_NAME: usize = 24;
/// Maximum number of bars, lanes or series that are drawn.
const SHOWN: usize = 20;
/// Colours of series. People with any colour vision tell the first six apart (M. Okabe and K. Ito, 2008).
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#666666"];

/// Columns that place a row in time.
const TIMES: [&str; 4] = ["begin_ns", "at_ns", "time_ns", "end_ns"];

/// Returns a plot of a table. `value` names the plotted column; without it, that is the first column of counts, times or
/// other numbers with a unit.
///
/// # Errors
/// If `value` does not name a column of numbers.
pub fn plot(table: &Table, value: Option<&str>) -> Result<String, String> {
    let rows = Rows::of(table);
    let mut text = Vec::new();
    let value = match value {
        None => first_number(&rows.schema),
        Some(name) => Some(number_called(&rows.schema, name)?),
    };
    write(&rows, value, &mut text).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(text).expect("a plot is text"))
}

fn draw(rows: &Rows, _: &End<'_>, _: &Options, out: Output<'_>) -> io::Result<()> {
    write(rows, first_number(&rows.schema), out)
}

fn write(rows: &Rows, value: Option<usize>, out: Output<'_>) -> io::Result<()> {
    let find = |name: &str| position(&rows.schema, name);
    let begin = find("begin_ns").or_else(|| find("at_ns")).or_else(|| find("time_ns"));
    let until = find("end_ns").or_else(|| find("duration_ns"));
    let plot = match (begin, until, value) {
        (Some(begin), Some(until), _) => lanes::plot(rows, begin, until),
        (Some(time), None, Some(value)) => values::plot(rows, time, value),
        (_, _, Some(value)) => bars::plot(rows, value),
        _ => Plot { title: format!("{}: no column of numbers", rows.schema.table_name()), ..Plot::default() },
    };
    plot.write(out)
}

/// The parts of a drawing.
#[derive(Default)]
struct Plot {
    title: String,
    /// The names of the series, in the order of [`COLOURS`].
    legend: Vec<String>,
    /// Height below title and legend.
    height: f64,
    /// SVG, whose origin is below title and legend.
    body: String,
}

impl Plot {
    fn write(&self, out: Output<'_>) -> io::Result<()> {
        let lines = self.legend.len().div_ceil(LEGEND_COLUMNS) as f64;
        let top = ROW_HEIGHT * (1.5 + lines);
        let height = top + self.height + 10.0;
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} \
             {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" \
             fill=\"white\"/>\n<text x=\"10\" y=\"18\" font-weight=\"bold\">{}</text>",
            escaped(&self.title)
        )?;
        for (index, name) in self.legend.iter().enumerate() {
            let (line, column) = (index / LEGEND_COLUMNS, index % LEGEND_COLUMNS);
            let [x, y] = [10.0 + 185.0 * column as f64, ROW_HEIGHT * (1.3 + line as f64)];
            writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.1}\" \
                 y=\"{:.1}\">{}</text>",
                colour(index),
                x + 17.0,
                y + 10.0,
                escaped(&cut(name, LEGEND_NAME))
            )?;
        }
        writeln!(out, "<g transform=\"translate(0 {top:.1})\">\n{}</g>\n</svg>", self.body)?;
        out.flush()
    }

    /// Adds the label of a row that begins at `y`.
    fn label(&mut self, y: f64, label: &str) {
        self.body += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT - 8.0,
            y + 14.0,
            escaped(&cut(label, LABEL))
        );
    }

    /// Adds a rectangle that shows `about` when pointed at.
    fn rectangle(&mut self, [x, y, width, height]: [f64; 4], fill: &str, about: &str) {
        self.body += &format!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
             fill=\"{fill}\"><title>{}</title></rect>\n",
            escaped(about)
        );
    }

    /// Adds an axis of time below the rows: the first instant, and round times after it.
    fn time_axis(&mut self, span: (u64, u64), y: f64) {
        let mut first = String::new();
        instant(span.0, &mut first);
        let length = span.1 - span.0;
        let step = round_step(length);
        let later = (1..=length / step).map(|tick| (tick * step, after(tick * step)));
        let ticks: Vec<(f64, String)> = [(0, first)]
            .into_iter()
            .chain(later)
            .map(|(offset, text)| (across(span.0 + offset, span), text))
            .collect();
        let marks: String = ticks.iter().map(|(x, _)| format!("M{x:.1} {y:.1}v4")).collect();
        self.body += &format!(
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}{marks}\" stroke=\"#888\" stroke-width=\"1\" fill=\"none\"/>\n"
        );
        for (x, text) in ticks {
            // At the edge of the picture, text in the middle of its mark would be cut.
            let (x, anchor) = if x > RIGHT - 15.0 { (WIDTH - 4.0, "end") } else { (x, "middle") };
            self.body += &format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"10\" \
                 fill=\"#444\">{text}</text>\n",
                y + 14.0
            );
        }
    }
}

/// The step between marks of an axis of this length: 1, 2 or 5 times a power of ten, and two to five steps in all.
fn round_step(length: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        let steps = [1, 2, 5].map(|factor| power.saturating_mul(factor));
        if let Some(step) = steps.into_iter().find(|step| length / step < 5 || length == step * 5) {
            return step;
        }
        power = power.saturating_mul(10);
    }
}

/// A round time after the first instant.
fn after(nanoseconds: u64) -> String {
    let mut text = String::new();
    show("duration_ns", Unit::Nanoseconds, Cell::Integer(nanoseconds), &mut text);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("+{number} {unit}")
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// The x of an instant.
fn across(time: u64, (begin, end): (u64, u64)) -> f64 {
    let share = time.saturating_sub(begin) as f64 / (end - begin).max(1) as f64;
    LEFT + (RIGHT - LEFT) * share.min(1.0)
}

fn position(schema: &Schema, name: &str) -> Option<usize> {
    schema.fields().iter().position(|field| field.name() == name)
}

fn is_number(field: &Field) -> bool {
    matches!(field.type_name(), "integer" | "number")
}

/// The first column of numbers with a unit, or else of any numbers, that is no time.
fn first_number(schema: &Schema) -> Option<usize> {
    let has_unit = |field: &Field| !matches!(field.unit(), Unit::None | Unit::Address | Unit::Share);
    let is_value = |field: &Field| is_number(field) && !TIMES.contains(&field.name().as_str());
    let find = |wanted: &dyn Fn(&Field) -> bool| schema.fields().iter().position(|field| wanted(field));
    find(&|field| is_value(field) && has_unit(field)).or_else(|| find(&is_value))
}

fn number_called(schema: &Schema, name: &str) -> Result<usize, String> {
    let column = position(schema, name).filter(|&index| is_number(schema.field(index)));
    column.ok_or_else(|| {
        let fields = schema.fields().iter().filter(|field| is_number(field));
        let names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
        format!("no column of numbers is called {name}; there are {}", names.join(", "))
    })
}

/// A cell as a number; 0 if it is none.
fn number(cell: Cell<'_>) -> f64 {
    match cell {
        Cell::Integer(integer) => integer as f64,
        Cell::Signed(integer) => integer as f64,
        Cell::Real(real) if real.is_finite() => real,
        _ => 0.0,
    }
}

/// A cell as an instant or a duration.
fn nanoseconds(cell: Cell<'_>) -> Option<u64> {
    match cell {
        Cell::Integer(integer) => Some(integer),
        Cell::Signed(integer) => u64::try_from(integer).ok(),
        _ => None,
    }
}

/// A cell in words, with its unit.
fn words(schema: &Schema, row: BatchRow<'_>, column: usize) -> String {
    let (field, mut text) = (schema.field(column), String::new());
    show(field.name(), field.unit(), row.cell(column), &mut text);
    text
}

/// The names and cells of a row, separated by semicolons.
fn about(schema: &Schema, row: BatchRow<'_>) -> String {
    let fields = schema.fields().iter().enumerate();
    let cells = fields.map(|(column, field)| format!("{}: {}", field.name(), words(schema, row, column)));
    cells.collect::<Vec<_>>().join("; ")
}

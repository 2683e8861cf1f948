//! A bar for each row: the greatest ones first, if the rows have no order of their own.

use hodo_model::{
    Shape,
    table::metadata::{ColumnMetadata, TableMetadata},
};

use super::{COLOURS, LEFT, Plot, RIGHT, ROW_HEIGHT, SHOWN, about, is_number, number, position, words};
use crate::rows::Rows;

/// Room for the number at the end of a bar, in pixels.
const NUMBER: f64 = 90.0;
/// Deeper rows of a tree are not indented further.
const MOST_INDENT: f64 = 20.0;
const POSITIVE: &str = COLOURS[0];
const NEGATIVE: &str = COLOURS[5];

/// A row that is drawn.
struct Bar {
    label: String,
    number: f64,
    text: String,
    about: String,
}

pub(super) fn plot(rows: &Rows, value: usize) -> Plot {
    let schema = &rows.schema;
    let bins = bins(rows);
    let texts = schema.fields().iter().enumerate().filter(|(_, field)| field.type_name() == "string");
    // The texts name a bin: its measure and its scale.
    let texts = texts.map(|(column, _)| column).take(if bins.is_some() { usize::MAX } else { 1 });
    let numbers = ["tid", "cpu"].iter().filter_map(|name| position(schema, name)).chain(bins);
    let labels: Vec<usize> = texts.chain(numbers.filter(|&column| column != value)).collect();
    let depth = position(schema, "depth");
    let has_order = schema.shape() == Shape::Tree || bins.is_some();
    let (chosen, count) = chosen(rows, value, has_order);
    let mut bars: Vec<(usize, Bar)> = Vec::new();
    let mut index = 0;
    rows.each(|row| {
        if let Some(rank) = chosen.iter().position(|&chosen| chosen == index) {
            let label = labels.iter().map(|&column| words(schema, row, column)).collect::<Vec<_>>().join(" ");
            let indent = depth.map_or(0, |depth| number(row.cell(depth)).min(MOST_INDENT) as usize);
            let label = format!("{}{label}", "· ".repeat(indent));
            let (number, text) = (number(row.cell(value)), words(schema, row, value));
            bars.push((rank, Bar { label, number, text, about: about(schema, row) }));
        }
        index += 1;
    });
    bars.sort_by_key(|(rank, _)| *rank);
    let most = bars.iter().map(|(_, bar)| bar.number.abs()).fold(0.0, f64::max);
    let shown = match bars.len() {
        all if all == count => String::new(),
        some if has_order => format!(", first {some} of {count} rows"),
        some => format!(", {some} greatest of {count} rows"),
    };
    let title = format!("{}: {}{shown}", schema.table_name(), schema.field(value).name().replace('_', " "));
    let mut plot = Plot { title, height: ROW_HEIGHT * bars.len() as f64, ..Plot::default() };
    for (rank, Bar { label, number, text, about }) in &bars {
        let y = ROW_HEIGHT * *rank as f64;
        let width = if most > 0.0 { (RIGHT - LEFT - NUMBER) * number.abs() / most } else { 0.0 };
        plot.label(y, label);
        let fill = if *number < 0.0 { NEGATIVE } else { POSITIVE };
        plot.rectangle([LEFT, y + 2.0, width.max(0.5), ROW_HEIGHT - 4.0], fill, about);
        plot.body += &format!("<text x=\"{:.1}\" y=\"{:.1}\">{text}</text>\n", LEFT + width + 6.0, y + 14.0);
    }
    plot
}

/// The column with the begin of each bin, if the rows are bins, which keep their order.
fn bins(rows: &Rows) -> Option<usize> {
    let schema = &rows.schema;
    let begin =
        position(schema, "from_ns").or_else(|| position(schema, "until").and(position(schema, "from")));
    begin.filter(|&column| is_number(schema.field(column)))
}

/// The rows that are drawn, in the order of their bars, and the number of all rows.
fn chosen(rows: &Rows, value: usize, has_order: bool) -> (Vec<usize>, usize) {
    let mut numbers = Vec::new();
    rows.each(|row| numbers.push(number(row.cell(value)).abs()));
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    if !has_order {
        // Stable: equal ones keep the order of the table.
        order.sort_by(|&x, &y| numbers[y].total_cmp(&numbers[x]));
    }
    order.truncate(SHOWN);
    (order, numbers.len())
}

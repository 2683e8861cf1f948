//! A bar for each of the first rows.

use hodo_model::table::metadata::{ColumnMetadata, TableMetadata};

use super::{COLOURS, LEFT, Plot, RIGHT, ROW, SHOWN, about, number, place, words};
use crate::rows::Rows;

/// Room for the number at the end of a bar.
const NUMBER: f64 = 90.0;

pub(super) fn plot(rows: &Rows, value: usize) -> Plot {
    let schema = &rows.schema;
    let texts = schema.fields().iter().enumerate().filter(|(_, field)| field.type_name() == "string");
    let mut labels: Vec<usize> = texts.map(|(column, _)| column).take(1).collect();
    labels.extend(
        ["tid", "cpu"].iter().filter_map(|name| place(schema, name)).filter(|&column| column != value),
    );
    let depth = place(schema, "depth");
    let (mut bars, mut count) = (Vec::new(), 0_usize);
    rows.each(|row| {
        count += 1;
        if bars.len() < SHOWN {
            let label = labels.iter().map(|&column| words(schema, row, column)).collect::<Vec<_>>().join(" ");
            let indent = depth.map_or(0, |depth| number(row.cell(depth)).min(20.0) as usize);
            let label = format!("{}{label}", "· ".repeat(indent));
            bars.push((label, number(row.cell(value)), words(schema, row, value), about(schema, row)));
        }
    });
    let most = bars.iter().map(|(_, number, ..)| number.abs()).fold(0.0, f64::max);
    let shown =
        if bars.len() < count { format!(", first {} of {count} rows", bars.len()) } else { String::new() };
    let title = format!("{}: {}{shown}", schema.table_name(), schema.field(value).name().replace('_', " "));
    let mut plot = Plot { title, height: ROW * bars.len() as f64, ..Plot::default() };
    for (index, (label, number, text, about)) in bars.iter().enumerate() {
        let y = ROW * index as f64;
        let width = if most > 0.0 { (RIGHT - LEFT - NUMBER) * number.abs() / most } else { 0.0 };
        plot.label(y, label);
        let fill = if *number < 0.0 { COLOURS[5] } else { COLOURS[0] };
        plot.rectangle([LEFT, y + 2.0, width.max(0.5), ROW - 4.0], fill, about);
        plot.body += &format!("<text x=\"{:.1}\" y=\"{:.1}\">{text}</text>\n", LEFT + width + 6.0, y + 14.0);
    }
    plot
}

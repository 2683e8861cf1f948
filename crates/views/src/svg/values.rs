//! Values over time: for each pixel with values, a line from zero to the farthest ones.

use hodo_model::table::metadata::TableMetadata;

use super::{LEFT, Plot, RIGHT, ROW_HEIGHT, across, colour, nanoseconds, number, words};
use crate::rows::Rows;

/// Height of the plot.
const HEIGHT: f64 = 220.0;
/// The widest line.
const WIDEST: f64 = 12.0;

pub(super) fn plot(rows: &Rows, time: usize, value: usize) -> Plot {
    let schema = &rows.schema;
    let mut span = (u64::MAX, 0);
    // The least and the greatest value, in words too. Zero is always on the axis.
    let (mut low, mut high, mut labels) = (0.0_f64, 0.0_f64, [String::from("0"), String::from("0")]);
    rows.each(|row| {
        let Some(at) = nanoseconds(row.cell(time)) else { return };
        span = (span.0.min(at), span.1.max(at));
        let number = number(row.cell(value));
        if number < low {
            (low, labels[0]) = (number, words(schema, row, value));
        }
        if number > high {
            (high, labels[1]) = (number, words(schema, row, value));
        }
    });
    // Without rows it is still `u64::MAX..0`.
    span.0 = span.0.min(span.1);
    let range = if high > low { high - low } else { 1.0 };
    let y_of = |number: f64| HEIGHT * (high - number) / range;
    let mut pixels: Vec<Option<(f64, f64)>> = vec![None; (RIGHT - LEFT) as usize + 1];
    rows.each(|row| {
        let Some(at) = nanoseconds(row.cell(time)) else { return };
        let (pixel, y) = ((across(at, span) - LEFT) as usize, y_of(number(row.cell(value))));
        let (top, bottom) = pixels[pixel].get_or_insert((y_of(0.0), y_of(0.0)));
        (*top, *bottom) = (top.min(y), bottom.max(y));
    });
    let name = schema.field(value).name().replace('_', " ");
    let title = format!("{}: {name} over time", schema.table_name());
    let mut plot = Plot { title, height: HEIGHT + ROW_HEIGHT, ..Plot::default() };
    for (y, label) in [(HEIGHT - 14.0, &labels[0]), (-6.0, &labels[1])] {
        plot.label(y, label);
    }
    let lines = pixels.iter().enumerate().filter_map(|(pixel, range)| Some((pixel, (*range)?)));
    let line = |(pixel, (top, bottom)): (usize, (f64, f64))| {
        format!("M{:.1} {:.1}V{:.1}", LEFT + pixel as f64, top - 0.5, bottom + 0.5)
    };
    let path: String = lines.clone().map(line).collect();
    let width = ((RIGHT - LEFT) / lines.count().max(1) as f64 * 0.6).clamp(1.0, WIDEST);
    let colour = colour(0);
    plot.body +=
        &format!("<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"{width:.1}\" fill=\"none\"/>\n");
    if span.1 > 0 {
        plot.time_axis(span, HEIGHT + 2.0);
    }
    plot
}

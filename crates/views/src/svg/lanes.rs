//! Intervals over time, in a lane for each thread, CPU or name.

use std::collections::HashMap;

use hodo_model::table::metadata::{ColumnMetadata, TableMetadata};

use super::{LEFT, Plot, ROW_HEIGHT, SHOWN, about, across, colour, nanoseconds, position, words};
use crate::rows::{BatchRow, Rows};

/// Narrower gaps between intervals of one colour are not drawn.
const GAP: f64 = 0.5;
/// Colours with names; the others share the last colour.
const NAMED: usize = 8;

/// An interval, drawn from pixel to pixel.
struct Bar {
    lane: usize,
    colour: usize,
    begin: f64,
    end: f64,
    about: String,
}

/// Plots intervals, given the columns with their begins and with their ends or durations.
pub(super) fn plot(rows: &Rows, begin: usize, end_or_duration: usize) -> Plot {
    let schema = &rows.schema;
    let is_end = schema.field(end_or_duration).name() == "end_ns";
    let span_of = |row: BatchRow<'_>| {
        let (begin, value) = (nanoseconds(row.cell(begin))?, nanoseconds(row.cell(end_or_duration))?);
        Some((begin, if is_end { value } else { begin.saturating_add(value) }.max(begin)))
    };
    let mut span = (u64::MAX, 0);
    rows.each(|row| {
        if let Some((begin, end)) = span_of(row) {
            span = (span.0.min(begin), span.1.max(end));
        }
    });
    // Without rows it is still `u64::MAX..0`.
    span.0 = span.0.min(span.1);
    let (lane, value) = columns(rows);
    let (mut lanes, mut names) = (Numbers::default(), Numbers::default());
    let mut bars: Vec<Bar> = Vec::new();
    // The last bar of each lane.
    let mut last: Vec<Option<usize>> = Vec::new();
    rows.each(|row| {
        let Some((from, to)) = span_of(row) else { return };
        let text = |columns: &[usize]| {
            columns.iter().map(|&column| words(schema, row, column)).collect::<Vec<_>>().join(" ")
        };
        let lane = lanes.of(text(&lane));
        let colour = names.of(text(&value)).min(NAMED - 1);
        if lane >= SHOWN {
            return;
        }
        last.resize(last.len().max(lane + 1), None);
        let (from, to) = (across(from, span), across(to, span));
        match last[lane].map(|index| &mut bars[index]) {
            Some(before) if before.colour == colour && from < before.end + GAP => {
                before.end = before.end.max(to)
            }
            // Of another colour, but hidden by the bar before.
            Some(before) if to < before.end + GAP && from >= before.begin => {}
            _ => {
                last[lane] = Some(bars.len());
                bars.push(Bar { lane, colour, begin: from, end: to, about: about(schema, row) });
            }
        }
    });
    let count = lanes.0.len();
    let shown = if count > SHOWN { format!(", first {SHOWN} of {count} lanes") } else { String::new() };
    let mut legend = names.names();
    if legend.len() > NAMED {
        legend.truncate(NAMED - 1);
        legend.push("others".to_owned());
    }
    legend.retain(|name| !name.is_empty());
    let title = format!("{} over time{shown}", schema.table_name());
    let drawn = count.min(SHOWN);
    let mut plot = Plot { title, legend, height: ROW_HEIGHT * (drawn as f64 + 1.0), ..Plot::default() };
    for (index, label) in lanes.names().iter().take(SHOWN).enumerate() {
        plot.label(ROW_HEIGHT * index as f64, label);
    }
    for Bar { lane, colour: number, begin, end, about } in &bars {
        let shape = [*begin, ROW_HEIGHT * *lane as f64 + 3.0, (end - begin).max(GAP), ROW_HEIGHT - 6.0];
        plot.rectangle(shape, colour(*number), about);
    }
    if span.1 > 0 {
        plot.time_axis(span, ROW_HEIGHT * drawn as f64);
    }
    debug_assert!(bars.iter().all(|bar| bar.begin >= LEFT));
    plot
}

/// The columns that identify a lane, and those that name what it shows.
fn columns(rows: &Rows) -> (Vec<usize>, Vec<usize>) {
    let schema = &rows.schema;
    let find =
        |names: &[&str]| names.iter().filter_map(|name| position(schema, name)).collect::<Vec<usize>>();
    let texts: Vec<usize> =
        (0..schema.fields().len()).filter(|&column| schema.field(column).type_name() == "string").collect();
    let threads = position(schema, "tid").is_some();
    let lane = if threads { find(&["comm", "tid"]) } else { find(&["cpu"]) };
    let lane = if lane.is_empty() { texts.iter().copied().take(1).collect() } else { lane };
    let value = texts.into_iter().filter(|column| !lane.contains(column)).take(1).collect();
    (lane, value)
}

/// Numbers of names, in the order of their first use.
#[derive(Default)]
struct Numbers(HashMap<String, usize>);

impl Numbers {
    fn of(&mut self, name: String) -> usize {
        let next = self.0.len();
        *self.0.entry(name).or_insert(next)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<(&String, &usize)> = self.0.iter().collect();
        names.sort_by_key(|(_, number)| **number);
        names.into_iter().map(|(name, _)| name.clone()).collect()
    }
}

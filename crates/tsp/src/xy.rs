//! Charts over time: counters at evenly spaced times.

use hodo_store::{Budget, Error, Kind, Lanes, Record, Slices, Table, Wanted};

use crate::{
    Service,
    model::{Axis, Chart, RequestedParameters, Series, Style},
    output::{Outcome, SampledSpan, title},
};

/// The most records that are read for exact values; where more are in view, cells of time have their greatest number.
const MOST_RECORDS: u64 = 1 << 20;
/// Records that are read at a time.
const RECORDS_AT_A_TIME: usize = 1 << 16;

impl Service {
    /// Returns a series for each counter: its number at each time; where too many changes are in view, the greatest
    /// number since the time before.
    pub(crate) fn chart(
        &self,
        number: usize,
        asked: &RequestedParameters,
        budget: &Budget,
    ) -> Outcome<Chart> {
        let (table, span) = (self.table(number), asked.requested_timerange.span());
        let lanes = self.tree.lanes(number, &asked.requested_items);
        let numbers: Vec<u32> = lanes.iter().map(|(lane, _)| *lane).collect();
        let times = times(span, span.slices(numbers.len()));
        let changes = table.count_before(span.behind, budget)? - table.count_before(span.begin, budget)?;
        let is_exact = changes <= MOST_RECORDS;
        let values = if is_exact {
            exact(table, &numbers, span, &times, budget)?
        } else {
            greatest(table, &numbers, span, &times, budget)?
        };
        let value = &table.schema().value;
        let label = if is_exact { value.name.clone() } else { format!("greatest {}", value.name) };
        let series = lanes.iter().zip(values).map(|(&(lane, node), y_values)| Series {
            series_id: node,
            series_name: self.store.path(table, lane).join("/"),
            style: Style::default(),
            x_values: times.clone(),
            y_values,
            x_values_description: axis("time", "ns", "TIMESTAMP"),
            y_values_description: axis(&label, &value.unit, "NUMBER"),
        });
        Ok((Chart { title: title(table.schema()).to_owned(), series: series.collect() }, String::new()))
    }
}

fn axis(label: &str, unit: &str, data_type: &'static str) -> Axis {
    Axis { label: label.to_owned(), unit: unit.to_owned(), data_type }
}

/// Returns `count` times from the first instant of a span to its last.
fn times(span: SampledSpan, count: usize) -> Vec<u64> {
    let (width, steps) = (u128::from(span.behind - 1 - span.begin), (count as u128 - 1).max(1));
    (0..count as u128).map(|step| span.begin + (width * step / steps) as u64).collect()
}

/// Returns a counter's number; 0 if it has none.
fn number(kind: Kind, bits: Option<u64>) -> f64 {
    let Some(bits) = bits else { return 0.0 };
    match kind {
        Kind::Signed => bits as i64 as f64,
        Kind::Real => f64::from_bits(bits),
        _ => bits as f64,
    }
}

/// Returns the number of each lane at each time.
fn exact(
    table: Table<'_>,
    lanes: &[u32],
    span: SampledSpan,
    times: &[u64],
    budget: &Budget,
) -> Result<Vec<Vec<f64>>, Error> {
    let kind = table.schema().value.kind;
    let index = |lane: u32| lanes.binary_search(&lane).ok();
    let mut now = vec![0.0; lanes.len()];
    for record in table.at(span.begin, Lanes::Some(lanes), budget)? {
        if let Some(index) = index(record.lane) {
            now[index] = number(kind, record.value);
        }
    }
    let wanted = Wanted { lanes: Lanes::Some(lanes), span: (span.begin, span.behind), ..Wanted::ALL };
    let mut values = vec![Vec::with_capacity(times.len()); lanes.len()];
    let mut reached = 0;
    // Adds the numbers at the times before `time`; at all times left without it.
    let mut add_until = |time: Option<u64>, now: &[f64]| {
        while reached < times.len() && time.is_none_or(|time| times[reached] < time) {
            values.iter_mut().zip(now).for_each(|(values, now)| values.push(*now));
            reached += 1;
        }
    };
    let mut last: Option<Record> = None;
    loop {
        let records = table.records(&wanted, last.as_ref(), RECORDS_AT_A_TIME, budget)?;
        for record in &records {
            add_until(Some(record.begin), &now);
            if let Some(index) = index(record.lane) {
                now[index] = number(kind, record.value);
            }
        }
        if records.len() < RECORDS_AT_A_TIME { break } else { last = records.into_iter().next_back() }
    }
    add_until(None, &now);
    Ok(values)
}

/// Returns the greatest number of each lane since the time before each time.
fn greatest(
    table: Table<'_>,
    lanes: &[u32],
    span: SampledSpan,
    times: &[u64],
    budget: &Budget,
) -> Result<Vec<Vec<f64>>, Error> {
    let kind = table.schema().value.kind;
    let found = table.slices((span.begin, span.behind), Lanes::Some(lanes), times.len().max(2), budget)?;
    let of_lane = |lane: &u32| {
        let mut values: Vec<Option<f64>> = vec![None; times.len()];
        let mut add = |time: u64, value: f64| {
            let index = times.partition_point(|own| *own < time).min(times.len() - 1);
            values[index] = Some(values[index].map_or(value, |known| known.max(value)));
        };
        let slices = found.iter().find(|slices| slices.lane == *lane).map(|slices| &slices.slices);
        match slices {
            Some(Slices::Records(records)) => {
                records.iter().for_each(|record| add(record.begin, number(kind, record.value)));
            }
            Some(Slices::Cells(cells)) => {
                cells.iter().for_each(|cell| add(cell.last, number(kind, cell.range.map(|(_, most)| most))));
            }
            None => {}
        }
        values.into_iter().map(Option::unwrap_or_default).collect()
    };
    Ok(lanes.iter().map(of_lane).collect())
}

#[cfg(test)]
mod tests {
    use hodo_store::{Field, Naming, Schema, Shape, Store, Writer};

    use super::*;

    #[test]
    fn the_greatest_of_negative_numbers_is_negative() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(folder.path(), "test").unwrap();
        let schema = Schema {
            name: "temperatures".to_owned(),
            shape: Shape::Counters,
            key: vec![Field::new("cpu", Kind::Integer)],
            value: Field::new("degrees", Kind::Signed),
            columns: Vec::new(),
            naming: Naming { title: "temperatures".to_owned(), path: vec!["CPU {cpu}".to_owned()] },
        };
        let mut feed = writer.feed(writer.table(&schema).unwrap());
        let lane = feed.lane(&[Some(0)]).unwrap();
        for (time, degrees) in [(3, -9_i64), (5, -4), (12, -6)] {
            feed.push(lane, (time, time), Some(degrees as u64), &[]).unwrap();
        }
        feed.flush().unwrap();
        drop(feed);
        writer.finish(1).unwrap();
        let store = Store::open(folder.path()).unwrap();
        let table = store.table("temperatures").unwrap();
        let span = SampledSpan { begin: 0, behind: 21, times: 3 };
        let values = greatest(table, &[lane], span, &[0, 10, 20], &Budget::default()).unwrap();
        assert_eq!(values, [[0.0, -4.0, -6.0]]);
    }
}

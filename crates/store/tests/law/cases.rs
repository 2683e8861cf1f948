//! Tables of random records, and ways to write stores of them.

use std::path::Path;

use fastrand::Rng;
use hodo_store::{Error, Field, Kind, Naming, Record, Schema, Shape, Store, Writer};

use crate::plain::Plain;

/// The properties of a table of random records.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub shape: Shape,
    pub value: Kind,
    pub lanes: u32,
    pub rows: usize,
    /// Number of distinct values.
    pub values: u64,
    /// Whether the records of a lane follow each other; else they are at random times and may overlap.
    pub one_after_another: bool,
    /// Maximum number of bits of a duration.
    pub duration_bits: u32,
    /// The earliest time.
    pub from: u64,
    pub columns: &'static [Kind],
}

impl Case {
    fn schema(&self) -> Schema {
        let field = |(index, kind): (usize, &Kind)| Field::new(&format!("column {index}"), *kind);
        Schema {
            name: self.name.to_owned(),
            shape: self.shape,
            key: vec![Field::new("number", Kind::Integer), Field::new("name", Kind::Name)],
            value: Field::new("value", self.value),
            columns: self.columns.iter().enumerate().map(field).collect(),
            naming: self.naming(),
        }
    }

    fn naming(&self) -> Naming {
        Naming {
            title: "numbers".to_owned(),
            path: ["Lanes", "{name} ({number})"].map(str::to_owned).to_vec(),
        }
    }

    fn number(&self, kind: Kind, rng: &mut Rng) -> Option<u64> {
        let number = rng.u64(0..self.values);
        let bits = match kind {
            Kind::Name | Kind::Integer => number,
            Kind::Lane => rng.u64(0..self.lanes.into()),
            Kind::Signed => (number as i64 - self.values as i64 / 2) as u64,
            Kind::Real => (number as f64 - self.values as f64 / 2.0).to_bits(),
            Kind::Boolean => number & 1,
        };
        (rng.u32(0..50) != 0).then_some(bits)
    }

    /// Returns its records, the same in each run.
    pub fn plain(&self) -> Plain {
        let mut rng = Rng::with_seed(self.rows as u64);
        let mut free: Vec<u64> = (0..self.lanes).map(|_| self.from + rng.u64(0..1 << 10)).collect();
        let records = (0..self.rows).map(|_| {
            // Some lanes are busier than others.
            let lane = rng.u32(0..self.lanes).min(rng.u32(0..self.lanes));
            let duration = rng.u64(..) >> (64 - rng.u32(0..=self.duration_bits).max(1));
            let duration = if self.shape.has_duration() { duration } else { 0 };
            let pause = if rng.bool() { 0 } else { rng.u64(0..1 << (self.duration_bits / 2)) };
            let begin = match self.one_after_another {
                true => free[lane as usize].saturating_add(pause),
                false => self.from.saturating_add(rng.u64(0..1 << 34)),
            };
            let end = begin.saturating_add(duration);
            free[lane as usize] = end;
            let value = self.number(self.value, &mut rng);
            let cells = self.columns.iter().map(|kind| self.number(*kind, &mut rng)).collect();
            Record { lane, begin, end, value, cells }
        });
        Plain { records: records.collect(), schema: self.schema() }
    }
}

/// A way to write a store.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    pub threads: usize,
    pub run_rows: usize,
    /// Whether the records are in random order.
    pub shuffled: bool,
    /// Number of parts; after each, the store is finished if `finished` is set, and the next part is appended.
    pub steps: usize,
    /// Whether it is finished.
    pub finished: bool,
    /// Whether names and lanes, which are added before the first record, are in order.
    pub in_order: bool,
}

/// Returns the name with a number; names sort by number.
fn name(number: u64) -> String {
    format!("name {number:08}")
}

impl Writing {
    /// Writes a store of records.
    pub fn write(&self, folder: &Path, case: &Case, plain: &Plain) -> Store {
        let mut order: Vec<usize> = (0..plain.records.len()).collect();
        if self.shuffled {
            Rng::with_seed(7).shuffle(&mut order);
        }
        for (step, part) in order.chunks(order.len().div_ceil(self.steps)).enumerate() {
            let writer = match step {
                0 => Writer::create(folder, "a case").unwrap(),
                _ => Writer::append(folder).unwrap(),
            };
            let writer = writer.with_run_rows(self.run_rows);
            if step == 0 {
                self.declare(&writer, case, plain).unwrap();
            }
            std::thread::scope(|scope| {
                for part in part.chunks(part.len().div_ceil(self.threads)) {
                    let writer = &writer;
                    scope.spawn(move || feed(writer, case, plain, part).unwrap());
                }
            });
            if self.finished {
                writer.finish(self.threads).unwrap();
            }
        }
        Store::open(folder).unwrap()
    }

    fn declare(&self, writer: &Writer, case: &Case, plain: &Plain) -> Result<(), Error> {
        let mut feed = writer.feed(writer.table(&plain.schema)?);
        // Lanes have two names.
        let (mut names, mut lanes): (Vec<u64>, Vec<u32>) =
            ((0..case.values.clamp(2, 64)).collect(), (0..case.lanes).collect());
        if !self.in_order {
            Rng::with_seed(8).shuffle(&mut names);
            Rng::with_seed(9).shuffle(&mut lanes);
        }
        names.into_iter().try_for_each(|number| feed.name(&name(number)).map(drop))?;
        lanes.into_iter().try_for_each(|lane| lane_of(&mut feed, lane).map(drop))
    }
}

fn lane_of(feed: &mut hodo_store::Feed, lane: u32) -> Result<u32, Error> {
    let name = feed.name(&name(u64::from(lane) & 1))?;
    feed.lane(&[Some(lane.into()), Some(name)])
}

fn feed(writer: &Writer, case: &Case, plain: &Plain, part: &[usize]) -> Result<(), Error> {
    let mut feed = writer.feed(writer.table(&plain.schema)?);
    for &index in part {
        let record = &plain.records[index];
        let lane = lane_of(&mut feed, record.lane)?;
        let mut numbered = |kind: Kind, cell: Option<u64>| -> Result<Option<u64>, Error> {
            Ok(match (kind, cell) {
                (Kind::Name, Some(number)) => Some(feed.name(&name(number))?),
                (Kind::Lane, Some(lane)) => Some(lane_of(&mut feed, lane as u32)?.into()),
                (_, cell) => cell,
            })
        };
        let value = numbered(case.value, record.value)?;
        let cells = case.columns.iter().zip(&record.cells).map(|(kind, cell)| numbered(*kind, *cell));
        let cells: Vec<Option<u64>> = cells.collect::<Result<_, _>>()?;
        feed.push(lane, (record.begin, record.end), value, &cells)?;
    }
    feed.flush()
}

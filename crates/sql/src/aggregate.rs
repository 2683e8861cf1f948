//! Aggregates that SQLite lacks: `median(x)` and `percentile(x, p)`.

use rusqlite::{
    Connection, Error, Result,
    functions::{Aggregate, Context, FunctionFlags},
};

/// The smallest value that at least `p` percent of the values do not exceed (nearest rank). Nulls do not count.
struct Percentile {
    /// The percent, if it is no argument.
    fixed: Option<f64>,
}

/// Values, and the percent.
type Seen = (Vec<Number>, f64);

/// A number of SQLite.
#[derive(Clone, Copy, Debug)]
enum Number {
    Integer(i64),
    Real(f64),
}

impl Number {
    fn real(self) -> f64 {
        match self {
            Number::Integer(integer) => integer as f64,
            Number::Real(real) => real,
        }
    }

    fn compare(&self, other: &Number) -> std::cmp::Ordering {
        match (self, other) {
            (Number::Integer(one), Number::Integer(other)) => one.cmp(other),
            _ => self.real().total_cmp(&other.real()),
        }
    }
}

impl Aggregate<Seen, rusqlite::types::Value> for Percentile {
    fn init(&self, _: &mut Context<'_>) -> Result<Seen> {
        Ok((Vec::new(), self.fixed.unwrap_or_default()))
    }

    fn step(&self, context: &mut Context<'_>, (values, percent): &mut Seen) -> Result<()> {
        match context.get::<rusqlite::types::Value>(0)? {
            rusqlite::types::Value::Integer(integer) => values.push(Number::Integer(integer)),
            rusqlite::types::Value::Real(real) => values.push(Number::Real(real)),
            rusqlite::types::Value::Null => {}
            _ => return Err(Error::UserFunctionError("percentile of a text: it needs numbers".into())),
        }
        if self.fixed.is_none() {
            *percent = context.get(1)?;
        }
        match (0.0..=100.0).contains(percent) {
            true => Ok(()),
            false => Err(Error::UserFunctionError("a percentile is from 0 to 100".into())),
        }
    }

    fn finalize(&self, _: &mut Context<'_>, seen: Option<Seen>) -> Result<rusqlite::types::Value> {
        let (mut values, percent) = seen.unwrap_or_default();
        let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
        let place = rank.max(1) - 1;
        if place >= values.len() {
            return Ok(rusqlite::types::Value::Null);
        }
        let (_, value, _) = values.select_nth_unstable_by(place, Number::compare);
        Ok(match value {
            Number::Integer(integer) => (*integer).into(),
            Number::Real(real) => (*real).into(),
        })
    }
}

/// Registers the aggregates.
pub(crate) fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_aggregate_function(c"median", 1, flags, Percentile { fixed: Some(50.0) })?;
    connection.create_aggregate_function(c"percentile", 2, flags, Percentile { fixed: None })
}

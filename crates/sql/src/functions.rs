//! Functions that SQLite lacks: the aggregates `median(x)` and `percentile(x, p)`, and `regexp`.

use std::{
    cmp::Ordering,
    sync::{Mutex, MutexGuard, PoisonError},
};

use regex::{Regex, RegexBuilder};
use rusqlite::{
    Connection, Error, Result,
    functions::{Aggregate, Context, FunctionFlags},
    types::{Value, ValueRef},
};

/// Most bytes of a compiled regular expression.
const PATTERN_BYTES: usize = 1 << 20;

/// The percentile by nearest rank: the smallest value with at least the requested share of all values at or below it.
/// Nulls do not count.
struct Percentile {
    /// The share of `median`; `percentile` has it as an argument.
    fixed_share: Option<f64>,
    /// The room of samples that are done: groups mostly follow each other.
    rooms: Mutex<Vec<Vec<i64>>>,
}

impl Percentile {
    fn new(fixed_share: Option<f64>) -> Percentile {
        Percentile { fixed_share, rooms: Mutex::default() }
    }

    fn rooms(&self) -> MutexGuard<'_, Vec<Vec<i64>>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the aggregate.
#[derive(Default)]
struct Sample {
    integers: Vec<i64>,
    reals: Vec<f64>,
    share: f64,
}

/// Converts the second argument of `percentile`: up to 1 it is a share, as in PostgreSQL and DuckDB, and above a percentage.
fn share(argument: f64) -> Result<f64> {
    match argument {
        0.0..=1.0 => Ok(argument),
        1.0..=100.0 => Ok(argument / 100.0),
        _ => Err(Error::UserFunctionError(
            "a percentile is a share from 0 to 1, or a percentage above 1 up to 100".into(),
        )),
    }
}

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

    fn integer(self) -> Option<i64> {
        match self {
            Number::Integer(integer) => Some(integer),
            Number::Real(_) => None,
        }
    }

    /// Compares two numbers. Integers that round to the same real differ, and follow that real: else the order would not be
    /// total.
    fn compare(&self, other: &Number) -> Ordering {
        self.real().total_cmp(&other.real()).then(self.integer().cmp(&other.integer()))
    }
}

impl Aggregate<Sample, Value> for Percentile {
    fn init(&self, _: &mut Context<'_>) -> Result<Sample> {
        let integers = self.rooms().pop().unwrap_or_default();
        Ok(Sample { share: self.fixed_share.unwrap_or_default(), integers, ..Sample::default() })
    }

    fn step(&self, context: &mut Context<'_>, sample: &mut Sample) -> Result<()> {
        match context.get_raw(0) {
            ValueRef::Integer(integer) => sample.integers.push(integer),
            ValueRef::Real(real) => sample.reals.push(real),
            ValueRef::Null => {}
            _ => return Err(Error::UserFunctionError("percentile of a text: it needs numbers".into())),
        }
        // It is mostly the same for all rows, and read once.
        if self.fixed_share.is_none() && (sample.integers.len() + sample.reals.len() <= 1) {
            sample.share = share(context.get(1)?)?;
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sample: Option<Sample>) -> Result<Value> {
        let Sample { mut integers, reals, share } = sample.unwrap_or_default();
        let count = integers.len() + reals.len();
        let rank = (share * count as f64).ceil() as usize;
        let index = rank.max(1) - 1;
        if index >= count {
            return Ok(Value::Null);
        }
        if reals.is_empty() {
            let value = *integers.select_nth_unstable(index).1;
            integers.clear();
            self.rooms().push(integers);
            return Ok(value.into());
        }
        let mut values: Vec<Number> = integers.into_iter().map(Number::Integer).collect();
        values.extend(reals.into_iter().map(Number::Real));
        let (_, value, _) = values.select_nth_unstable_by(index, Number::compare);
        Ok(match value {
            Number::Integer(integer) => (*integer).into(),
            Number::Real(real) => (*real).into(),
        })
    }
}

/// `text regexp pattern`, which SQLite calls as `regexp(pattern, text)`: whether the pattern matches a part of the text.
fn regexp(context: &Context<'_>) -> Result<Option<bool>> {
    let text = match context.get_raw(1) {
        ValueRef::Null => return Ok(None),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Integer(integer) => integer.to_string(),
        ValueRef::Real(real) => real.to_string(),
        ValueRef::Blob(_) => return Err(Error::UserFunctionError("regexp of bytes: it needs a text".into())),
    };
    if let ValueRef::Null = context.get_raw(0) {
        return Ok(None);
    }
    // A constant pattern is compiled once.
    let pattern = context.get_or_create_aux(0, |pattern| -> Result<Regex, String> {
        let pattern = pattern.as_str().map_err(|error| error.to_string())?;
        let built =
            RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES).build();
        built.map_err(|error| format!("regexp: {error}"))
    })?;
    Ok(Some(pattern.is_match(&text)))
}

/// Registers the functions.
pub(crate) fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function(c"regexp", 2, flags, |context| regexp(context))?;
    connection.create_aggregate_function(c"median", 1, flags, Percentile::new(Some(0.5)))?;
    connection.create_aggregate_function(c"percentile", 2, flags, Percentile::new(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_reals_have_one_order() {
        let large = 1i64 << 53;
        let ascending = [
            Number::Real(-0.5),
            Number::Integer(1),
            Number::Real(large as f64),
            Number::Integer(large),
            Number::Integer(large + 1),
        ];
        for (index, one) in ascending.iter().enumerate() {
            for (other_index, other) in ascending.iter().enumerate() {
                assert_eq!(one.compare(other), index.cmp(&other_index), "{one:?} {other:?}");
            }
        }
    }
}

//! The aggregates `median(x)` and `percentile(x, p)`.
//!
//! SQLite calls them for each row, which through rusqlite's interface takes a sixth of a question's time: so it calls them
//! directly.

#![allow(unsafe_code, reason = "SQLite's interface is C")]

use std::{
    cmp::Ordering,
    ffi::{CStr, c_int, c_void},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rusqlite::{
    Connection, Error, Result,
    ffi::{self, sqlite3_context, sqlite3_value},
};

const NOT_A_SHARE: &CStr = c"a percentile is a share from 0 to 1, or a percentage above 1 up to 100";
const NOT_A_NUMBER: &CStr = c"percentile of a text: it needs numbers";

/// The percentile by nearest rank: the smallest value with at least the requested share of all values at or below it.
/// Nulls do not count.
struct Percentile {
    /// The share of `median`; `percentile` has it as an argument.
    fixed_share: Option<f64>,
    /// The room of samples that are done: groups mostly follow each other.
    rooms: Mutex<Vec<Vec<i64>>>,
}

impl Percentile {
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

impl Sample {
    /// The value of nearest rank; `None` if there are no values.
    fn value(&mut self) -> Option<Number> {
        let count = self.integers.len() + self.reals.len();
        let rank = (self.share * count as f64).ceil() as usize;
        let index = rank.max(1) - 1;
        if index >= count {
            return None;
        }
        if self.reals.is_empty() {
            return Some(Number::Integer(*self.integers.select_nth_unstable(index).1));
        }
        let mut values: Vec<Number> = self.integers.iter().copied().map(Number::Integer).collect();
        values.extend(self.reals.iter().copied().map(Number::Real));
        Some(*values.select_nth_unstable_by(index, Number::compare).1)
    }
}

/// Converts the second argument of `percentile`: up to 1 it is a share, as in PostgreSQL and DuckDB, and above a percentage.
fn share(argument: f64) -> Option<f64> {
    match argument {
        0.0..=1.0 => Some(argument),
        1.0..=100.0 => Some(argument / 100.0),
        _ => None,
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

/// Registers an aggregate; with a fixed share it has one argument.
pub(crate) fn register(connection: &Connection, name: &CStr, fixed_share: Option<f64>) -> Result<()> {
    let arguments = if fixed_share.is_some() { 1 } else { 2 };
    let percentile = Box::into_raw(Box::new(Percentile { fixed_share, rooms: Mutex::default() }));
    let flags = ffi::SQLITE_UTF8 | ffi::SQLITE_DETERMINISTIC;
    // SAFETY: the connection is open, and SQLite calls `forget` for the data once, also if it fails.
    let code = unsafe {
        let (step, finish, forget) = (Some(step as _), Some(finish as _), Some(forget as _));
        let (connection, data) = (connection.handle(), percentile.cast());
        ffi::sqlite3_create_function_v2(
            connection,
            name.as_ptr(),
            arguments,
            flags,
            data,
            None,
            step,
            finish,
            forget,
        )
    };
    match code {
        ffi::SQLITE_OK => Ok(()),
        code => Err(Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

unsafe extern "C" fn forget(percentile: *mut c_void) {
    // SAFETY: it is the data of `register`, and this its last use.
    drop(unsafe { Box::from_raw(percentile.cast::<Percentile>()) });
}

/// Where SQLite keeps the sample of the present group; null at first.
///
/// # Safety
/// `context` is that of a step or of the end of an aggregate.
unsafe fn place(context: *mut sqlite3_context) -> *mut *mut Sample {
    // SAFETY: as the caller promises. The room is aligned to eight bytes, and zeros at first.
    unsafe { ffi::sqlite3_aggregate_context(context, size_of::<*mut Sample>() as c_int).cast() }
}

/// Adds the values of a row.
unsafe extern "C" fn step(context: *mut sqlite3_context, _: c_int, arguments: *mut *mut sqlite3_value) {
    // SAFETY: SQLite gives as many arguments as `register` said; `place` has a sample or null.
    unsafe {
        let place = place(context);
        if place.is_null() {
            return ffi::sqlite3_result_error_nomem(context);
        }
        if (*place).is_null() {
            let percentile = &*ffi::sqlite3_user_data(context).cast::<Percentile>();
            // It is that of the first row.
            let share = percentile.fixed_share.or_else(|| share(number(*arguments.add(1))?.real()));
            let Some(share) = share else {
                return ffi::sqlite3_result_error(context, NOT_A_SHARE.as_ptr(), -1);
            };
            let integers = percentile.rooms().pop().unwrap_or_default();
            *place = Box::into_raw(Box::new(Sample { share, integers, reals: Vec::new() }));
        }
        let sample = &mut **place;
        match number(*arguments) {
            Some(Number::Integer(integer)) => sample.integers.push(integer),
            Some(Number::Real(real)) => sample.reals.push(real),
            None if ffi::sqlite3_value_type(*arguments) == ffi::SQLITE_NULL => {}
            None => ffi::sqlite3_result_error(context, NOT_A_NUMBER.as_ptr(), -1),
        }
    }
}

/// Gives the value of a group.
unsafe extern "C" fn finish(context: *mut sqlite3_context) {
    // SAFETY: `place` has the sample of `step`, and this is its last use; null if there were no rows.
    unsafe {
        let place = place(context);
        if place.is_null() || (*place).is_null() {
            return ffi::sqlite3_result_null(context);
        }
        let mut sample = Box::from_raw(*place);
        match sample.value() {
            None => ffi::sqlite3_result_null(context),
            Some(Number::Integer(integer)) => ffi::sqlite3_result_int64(context, integer),
            Some(Number::Real(real)) => ffi::sqlite3_result_double(context, real),
        }
        sample.integers.clear();
        let percentile = &*ffi::sqlite3_user_data(context).cast::<Percentile>();
        percentile.rooms().push(sample.integers);
    }
}

/// A value, if it is a number.
///
/// # Safety
/// It is an argument of the present call.
#[inline]
unsafe fn number(value: *mut sqlite3_value) -> Option<Number> {
    // SAFETY: as the caller promises.
    unsafe {
        match ffi::sqlite3_value_type(value) {
            ffi::SQLITE_INTEGER => Some(Number::Integer(ffi::sqlite3_value_int64(value))),
            ffi::SQLITE_FLOAT => Some(Number::Real(ffi::sqlite3_value_double(value))),
            _ => None,
        }
    }
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

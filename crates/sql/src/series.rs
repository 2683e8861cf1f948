//! `generate_series(start, stop, step)`: a table of integers.

#![allow(unsafe_code, reason = "SQLite's traits are unsafe to implement")]

use std::{
    borrow::Cow,
    ffi::{CStr, c_int},
};

use rusqlite::{
    Connection, Error, Result,
    types::ValueRef,
    vtab::{
        Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor,
        sqlite3_vtab, sqlite3_vtab_cursor,
    },
};

/// Registers `generate_series(start, stop)` and `generate_series(start, stop, step)`: the column `value`.
pub(crate) fn register(connection: &Connection) -> Result<()> {
    const MODULE: Module<'static, Series> = Module::eponymous_only_module();
    connection.create_module(c"generate_series", &MODULE, None)
}

/// The hidden columns of a series, after `value`.
const ARGUMENTS: [&str; 3] = ["start", "stop", "step"];

#[repr(C)]
struct Series {
    /// SQLite's part, which is first.
    base: sqlite3_vtab,
}

// SAFETY: the layout is C's, and SQLite's part is first.
unsafe impl<'vtab> VTab<'vtab> for Series {
    type Aux = ();
    type Cursor = SeriesCursor;

    fn connect(
        connection: &mut VTabConnection,
        _: Option<&()>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Series)> {
        connection.config(VTabConfig::Innocuous)?;
        let schema = c"CREATE TABLE x(value INTEGER, start HIDDEN, stop HIDDEN, step HIDDEN)";
        Ok((schema.into(), Series { base: sqlite3_vtab::default() }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut constraints: [Option<usize>; ARGUMENTS.len()] = [None; ARGUMENTS.len()];
        let mut is_unusable = false;
        for (index, constraint) in info.constraints().enumerate() {
            let argument = usize::try_from(constraint.column() - 1).ok();
            let Some(argument) = argument.filter(|&argument| argument < ARGUMENTS.len()) else { continue };
            is_unusable |= !constraint.is_usable();
            if constraint.is_usable()
                && constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ
            {
                constraints[argument] = Some(index);
            }
        }
        let count = constraints.iter().take_while(|index| index.is_some()).count();
        // An argument comes from a table that this plan joins later; SQLite then tries another order.
        if is_unusable {
            return Ok(false);
        }
        if count < 2 || count < constraints.iter().flatten().count() {
            let reason = "generate_series needs a start and a stop: generate_series(start, stop, step)";
            return Err(Error::ModuleError(reason.to_owned()));
        }
        for (number, index) in (1..).zip(constraints.into_iter().flatten()) {
            let mut usage = info.constraint_usage(index);
            usage.set_argv_index(number);
            usage.set_omit(true);
        }
        info.set_estimated_cost(10.0);
        info.set_estimated_rows(1_000);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<SeriesCursor> {
        let (base, bounds) = (sqlite3_vtab_cursor::default(), [0; ARGUMENTS.len()]);
        Ok(SeriesCursor { base, bounds, count: 0, position: 0 })
    }
}

/// An iterator over the values of a series.
#[repr(C)]
struct SeriesCursor {
    /// SQLite's part, which is first.
    base: sqlite3_vtab_cursor,
    /// Start, stop and step.
    bounds: [i64; ARGUMENTS.len()],
    count: u64,
    position: u64,
}

// SAFETY: the layout is C's, and SQLite's part is first.
unsafe impl VTabCursor for SeriesCursor {
    fn filter(&mut self, _: c_int, _: Option<&str>, arguments: &Filters<'_>) -> Result<()> {
        self.bounds = [0, 0, 1];
        (self.count, self.position) = (0, 0);
        for ((name, bound), value) in ARGUMENTS.iter().zip(&mut self.bounds).zip(arguments.iter()) {
            *bound = match value {
                ValueRef::Integer(integer) => integer,
                ValueRef::Real(real) if real.fract() == 0.0 && real.abs() < 9e18 => real as i64,
                ValueRef::Null => return Ok(()),
                _ => return Err(Error::ModuleError(format!("generate_series: {name} must be an integer"))),
            };
        }
        let [start, stop, step] = self.bounds.map(i128::from);
        if step == 0 {
            return Err(Error::ModuleError("generate_series: step must not be 0".to_owned()));
        }
        let steps = (stop - start) / step;
        let is_empty = (stop - start).signum() == -step.signum();
        self.count = if is_empty { 0 } else { u64::try_from(steps + 1).unwrap_or(u64::MAX) };
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.position += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.position >= self.count
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let [start, _, step] = self.bounds;
        let value = match usize::try_from(column - 1).ok().and_then(|argument| self.bounds.get(argument)) {
            Some(&argument) => argument,
            // The step times the position may overflow; the value, between start and stop, is right even then.
            None => start.wrapping_add(step.wrapping_mul(self.position as i64)),
        };
        context.set_result(value)
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.position as i64)
    }
}

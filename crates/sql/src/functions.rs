//! Functions that SQLite lacks: `regexp`, and the aggregates `median(x)` and `percentile(x, p)`.

use regex::{Regex, RegexBuilder};
use rusqlite::{
    Connection, Error, Result,
    functions::{Context, FunctionFlags},
    types::ValueRef,
};

use crate::percentile;

/// Most bytes of a compiled regular expression.
const PATTERN_BYTES: usize = 1 << 20;

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
    percentile::register(connection, c"median", Some(0.5))?;
    percentile::register(connection, c"percentile", None)
}

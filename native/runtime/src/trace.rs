//! Hot paths.

use crate::context::Context;

/// Looks for hot paths in a log that was just given away.
pub fn look(_context: &Context) {}

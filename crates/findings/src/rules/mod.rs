//! The rules: each looks for one kind of cause.

pub(crate) mod allocation;
pub(crate) mod calls;
pub(crate) mod contention;
pub(crate) mod exceptions;
pub(crate) mod expiring;
pub(crate) mod first;
pub(crate) mod growth;
pub(crate) mod hot;
pub(crate) mod interrupts;
pub(crate) mod lost;
pub(crate) mod migrations;
pub(crate) mod path;
pub(crate) mod recorder;
pub(crate) mod recursion;
pub(crate) mod rhythm;
pub(crate) mod small;
pub(crate) mod tails;
pub(crate) mod unequal;
pub(crate) mod waits;

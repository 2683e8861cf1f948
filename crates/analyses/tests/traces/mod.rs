//! Random traces, their tables, and how many there are of them.

pub(crate) mod events;
pub(crate) mod flow;
pub(crate) mod parts;
pub(crate) mod tables;

use proptest::prelude::ProptestConfig;

/// Runs this many random cases, or as many as `PROPTEST_CASES` says. Failures are not kept in a file, as the trials of the law
/// have no file of their own.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { asked } else { ProptestConfig { cases, ..asked } }
}

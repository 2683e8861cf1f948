//! Random traces, their tables, and how many there are of them.

pub(crate) mod events;
pub(crate) mod flow;
pub(crate) mod tables;

use proptest::prelude::ProptestConfig;

/// Runs this many cases, other ones each time, or as many as `PROPTEST_CASES` says; keeps no failures in a file, as the list of
/// reports is not a file.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { asked } else { ProptestConfig { cases, ..asked } }
}

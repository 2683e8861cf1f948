//! Random traces, their tables, and how many there are of them.

pub(crate) mod events;
pub(crate) mod flow;
pub(crate) mod tables;

use proptest::prelude::ProptestConfig;

/// Runs this many cases, or as many as `PROPTEST_CASES` says if that is more; keeps no failures in a file, as the list of
/// reports is not a file.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig { failure_persistence: None, cases: asked.cases.max(cases), ..asked }
}

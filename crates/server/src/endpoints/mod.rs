//! What the page may ask: a folder for each group of questions.

mod about;
mod diff;
mod execution;
mod findings;
mod latency;
mod paths;
pub(crate) mod session;
mod source;
mod sql;
mod tables;
pub(crate) mod timeline;

use crate::answer::Endpoint;

/// Every group.
const GROUPS: &[&[Endpoint]] = &[
    session::ENDPOINTS,
    about::ENDPOINTS,
    tables::ENDPOINTS,
    findings::ENDPOINTS,
    timeline::ENDPOINTS,
    paths::ENDPOINTS,
    latency::ENDPOINTS,
    diff::ENDPOINTS,
    source::ENDPOINTS,
    execution::ENDPOINTS,
    sql::ENDPOINTS,
];

/// Every endpoint.
pub(crate) fn all() -> impl Iterator<Item = &'static Endpoint> {
    GROUPS.iter().copied().flatten()
}

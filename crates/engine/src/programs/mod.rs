//! Which code was where, and when: the files of the traced system, its kernel, its run-time compilers and its guests.
//!
//! ```text
//! sideband ──process_history──► address spaces, threads of each stream
//! mapped names ──find──► files ──► modules: bytes, functions, lines
//! copies of /proc/kcore, jitdump files, guests' kernels ──kernel, generated, guests──► modules as well
//! ```

pub(crate) mod find;
pub(crate) mod generated;
pub(crate) mod guests;
pub(crate) mod kernel;
pub(crate) mod modules;
pub(crate) mod names;
pub(crate) mod process_history;
mod sources;

//! perf.data: what `perf record` writes, and what the emulated processor's recorder writes too.

pub mod layout;

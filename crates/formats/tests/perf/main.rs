//! Tests of the reader of perf.data.

mod damage;
mod file;
mod forms;
mod parts;
mod round_trip;

//! Tests of the perf.data reader.

mod damage;
mod file;
mod forms;
mod parts;
mod round_trip;

//! Tests of the reader of perf.data.

mod damage;
mod file;
mod parts;
mod round_trip;

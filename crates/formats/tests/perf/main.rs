//! Tests of the perf.data reader.

mod coresight;
mod damage;
mod file;
mod forms;
mod parts;
mod round_trip;
#[allow(dead_code, reason = "the tests of CTF use all of it")]
#[path = "../ctf/show.rs"]
mod show;
mod texts;

//! Analyses of the same random trace agree with each other.

mod events;
mod flow;
mod sums;

#[path = "../traces/mod.rs"]
mod traces;

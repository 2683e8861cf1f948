//! The trace server protocol (TSP 0.6) over a store, for the trace viewers of VS Code and Theia.
//!
//! ```text
//! HTTP ──router: Host, Origin, path, JSON──► Service: a query in a budget ──► Store
//!   ◄────────── JSON of the protocol ◄──────────┘
//! ```
//!
//! A table of the store becomes outputs by its shape, so this crate knows no table: intervals are a time graph and a
//! data tree, counters a chart over time, links arrows between rows, and each is a table of its records. The losses are
//! annotations. The protocol: <https://github.com/eclipse-cdt-cloud/trace-server-protocol>.

mod annotations;
mod data_tree;
mod http;
mod model;
mod output;
mod service;
mod style;
mod table;
mod time_graph;
mod tree;
mod xy;

#[cfg(test)]
mod tests;

pub use http::{PREFIX, router, serve};
pub use service::Service;

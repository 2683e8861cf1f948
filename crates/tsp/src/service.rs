//! The store that is served, its traces and its only experiment.

use std::{fs, path::Path, path::PathBuf};

use hodo_store::{Store, Table};
use uuid::Uuid;

use crate::{
    model::{Experiment, Map, Trace},
    tree::Tree,
};

/// A store and what the protocol calls its traces and its experiment.
#[derive(Debug)]
pub struct Service {
    pub(crate) store: Store,
    pub(crate) tree: Tree,
    pub(crate) experiment: Experiment,
}

impl Service {
    /// Serves the store of some inputs.
    pub fn new(store: Store, inputs: &[PathBuf]) -> Service {
        let tree = Tree::new(&store);
        let spans = || store.tables().filter_map(|table| table.span());
        let start = spans().map(|(first, _)| first).min().unwrap_or(0);
        let end = spans().map(|(_, last)| last).max().unwrap_or(start);
        let records: u64 = store.tables().map(|table| table.rows()).sum();
        // The store is of all inputs together: what each has alone is not known.
        let nb_events = if inputs.len() == 1 { records } else { 0 };
        let trace = |path: &PathBuf| {
            let path = absolute(path);
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            let path = path.to_string_lossy().into_owned();
            let properties = Map::new();
            let indexing_status = "COMPLETED";
            Trace { uuid: uuid(&path), name, path, start, end, nb_events, indexing_status, properties }
        };
        let traces: Vec<Trace> = inputs.iter().map(trace).collect();
        let names: Vec<&str> = traces.iter().map(|trace| trace.name.as_str()).collect();
        let paths: Vec<&str> = traces.iter().map(|trace| trace.path.as_str()).collect();
        let experiment = Experiment {
            uuid: uuid(&format!("experiment\n{}", paths.join("\n"))),
            name: names.join(", "),
            start,
            end,
            nb_events: records,
            indexing_status: "COMPLETED",
            traces,
        };
        Service { store, tree, experiment }
    }

    /// Returns the table with a number.
    pub(crate) fn table(&self, number: usize) -> Table<'_> {
        self.store.tables().nth(number).expect("an output is of a table")
    }

    /// Returns the trace with an identifier.
    pub(crate) fn trace(&self, uuid: &str) -> Option<&Trace> {
        self.experiment.traces.iter().find(|trace| trace.uuid == uuid)
    }

    /// Returns the trace at a path or a `file:` address.
    pub(crate) fn trace_at(&self, uri: &str) -> Option<&Trace> {
        let path = absolute(Path::new(uri.strip_prefix("file://").unwrap_or(uri)));
        self.experiment.traces.iter().find(|trace| Path::new(&trace.path) == path)
    }
}

/// Returns a path from the root, without links.
fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns an identifier that depends on a name only, so that a viewer finds a trace again.
fn uuid(name: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).to_string()
}

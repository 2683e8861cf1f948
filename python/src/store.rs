//! A store on disk, as Python sees it.

use std::path::PathBuf;

use hodo::tables::{self, Store};
use pyo3::{
    exceptions::{PyKeyboardInterrupt, PyTypeError},
    prelude::*,
};

use crate::{
    attend::{NO_PROGRESS, attended},
    raised,
    table::PyTable,
};

/// The records of inputs by time, on disk: what a timeline shows.
#[pyclass(frozen, name = "Store", module = "hodoscope")]
pub(crate) struct PyStore(pub(crate) Store);

#[pymethods]
impl PyStore {
    /// The folder on disk.
    #[getter]
    fn folder(&self) -> PathBuf {
        self.0.folder().to_owned()
    }

    /// The tables: name, what the records are, number of records.
    fn tables(&self) -> Vec<(String, String, u64)> {
        let about = |table: tables::StoredTable<'_>| {
            let schema = table.schema();
            let title = if schema.naming.title.is_empty() { &schema.name } else { &schema.naming.title };
            (schema.name.clone(), title.clone(), table.rows())
        };
        self.0.tables().map(about).collect()
    }

    /// The records of a table that have an instant from `begin` to `end`, in nanoseconds, the first `limit` of them.
    #[pyo3(signature = (table, begin=0, end=u64::MAX, *, limit=None))]
    fn records(
        &self,
        py: Python<'_>,
        table: &str,
        begin: u64,
        end: u64,
        limit: Option<usize>,
    ) -> PyResult<PyTable> {
        let limit = limit.unwrap_or(usize::MAX);
        let read = attended(py, NO_PROGRESS, |progress| {
            tables::records(&self.0, table, (begin, end), limit, progress)
        })?;
        read.map_err(raised)?.map(PyTable).ok_or_else(|| PyKeyboardInterrupt::new_err(()))
    }

    fn __repr__(&self) -> String {
        format!("<hodoscope.Store {}>", self.0.folder().display())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a Store can't be pickled: Trace.store() opens it again"))
    }
}

//! Events, batch by batch.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use arrow_array::{RecordBatch, RecordBatchIterator};
use hodo::tables::Events;
use hodo_model::Table;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PyCapsule,
};

use crate::table::{PyTable, capsule};

/// Time between two looks for signals.
const PAUSE: Duration = Duration::from_millis(50);

/// Events while they are read: an iterator of tables, or a stream of Arrow batches; each can be taken once.
#[pyclass(frozen, name = "Events", module = "hodoscope")]
pub(crate) struct PyEvents {
    /// The table without rows.
    empty: Table,
    /// The batches to come; `None` once they were taken.
    batches: Mutex<Option<Receiver<RecordBatch>>>,
}

impl PyEvents {
    pub(crate) fn new(events: Events) -> PyEvents {
        PyEvents { empty: events.empty, batches: Mutex::new(Some(events.batches)) }
    }

    fn taken() -> PyErr {
        PyValueError::new_err("these events were read already or closed: events() reads them again")
    }

    fn table(&self, batch: &RecordBatch) -> PyTable {
        let mut builder = hodo_model::TableBuilder::new(
            self.empty.name(),
            self.empty.shape(),
            self.empty.columns().to_vec(),
        );
        builder.add_batch(batch);
        PyTable(builder.finish(Vec::new()))
    }
}

#[pymethods]
impl PyEvents {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&'static str> {
        self.empty.columns().iter().map(|column| column.name).collect()
    }

    /// A table of these columns without rows.
    #[getter]
    fn empty(&self) -> PyTable {
        PyTable(self.empty.clone())
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next batch.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyTable>> {
        loop {
            let next = py.detach(|| {
                let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
                batches.as_ref().map(|batches| batches.recv_timeout(PAUSE))
            });
            match next {
                None => return Err(PyEvents::taken()),
                Some(Ok(batch)) => return Ok(Some(self.table(&batch))),
                Some(Err(RecvTimeoutError::Disconnected)) => return Ok(None),
                Some(Err(RecvTimeoutError::Timeout)) => py.check_signals()?,
            }
        }
    }

    /// Stops the reading.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.batches.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Bound<'_, PyAny>,
        _error: Bound<'_, PyAny>,
        _trace: Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    /// The batches to come, by the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore the request; the consumer then casts.
        let _ = requested_schema;
        let taken = py.detach(|| self.batches.lock().unwrap_or_else(PoisonError::into_inner).take());
        let batches = taken.ok_or_else(PyEvents::taken)?;
        let schema = self.empty.schema();
        let of = Arc::clone(&schema);
        let batches = batches.into_iter().map(move |batch| batch.with_schema(Arc::clone(&of)));
        capsule(py, Box::new(RecordBatchIterator::new(batches, schema)))
    }

    fn __repr__(&self) -> String {
        format!("<hodoscope.Events {}: {}>", self.empty.name(), self.columns().join(", "))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("events can't be pickled while they are read: pickle the Trace, which can"))
    }
}

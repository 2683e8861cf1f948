//! A table, as Python sees it.

use std::{collections::BTreeMap, path::PathBuf};

use arrow_array::{RecordBatchIterator, RecordBatchReader, ffi_stream::FFI_ArrowArrayStream};
use hodo_model::{Table, table::metadata};
use hodo_views::{Options, VIEWS};
use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError},
    prelude::*,
    types::PyCapsule,
};

use crate::UsageError;

/// Rows that a notebook shows.
const SHOWN: u64 = 20;

/// A table. Every reader of the Arrow PyCapsule interface takes its columns without a copy.
#[pyclass(frozen, name = "Table", module = "hodoscope")]
pub(crate) struct PyTable(pub(crate) Table);

#[pymethods]
impl PyTable {
    /// The stable name, such as `functions`.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The shape: `counters`, `tree`, `intervals` or `points`.
    #[getter]
    fn shape(&self) -> &'static str {
        self.0.shape().name()
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&'static str> {
        self.0.columns().iter().map(|column| column.name).collect()
    }

    /// The units of the columns by name, without columns that have none.
    #[getter]
    fn units(&self) -> BTreeMap<&'static str, &'static str> {
        let units = self.0.columns().iter().map(|column| (column.name, column.unit.name()));
        units.filter(|(_, unit)| !unit.is_empty()).collect()
    }

    /// Figures of the whole table.
    #[getter]
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        parsed(py, &metadata::summary_json(&self.0.summary))
    }

    /// What is missing from the rows, with its place and cause.
    #[getter]
    fn loss<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        parsed(py, &metadata::loss_json(&self.0.loss))
    }

    /// The table as `hodo report --format json` prints it.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        self.drawn(py, "json", None)
    }

    /// A plot: bars, lanes of intervals, or values over time. `value` is the column of numbers that it shows.
    #[pyo3(signature = (value=None))]
    fn plot(&self, py: Python<'_>, value: Option<&str>) -> PyResult<PyPlot> {
        let svg = py.detach(|| hodo_views::plot(&self.0, value)).map_err(UsageError::new_err)?;
        Ok(PyPlot { svg })
    }

    /// The batches, by the Arrow PyCapsule interface. Other types than those of the table are not made.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore the request; the consumer then casts.
        let _ = requested_schema;
        let schema = self.0.schema();
        let batches: Vec<_> =
            self.0.batches().iter().cloned().map(|batch| batch.with_schema(schema.clone())).collect();
        capsule(py, Box::new(RecordBatchIterator::new(batches, schema)))
    }

    fn __len__(&self) -> usize {
        self.0.row_count()
    }

    fn __repr__(&self) -> String {
        format!(
            "<hodoscope.Table {}: {} rows × {} columns>",
            self.0.name(),
            self.0.row_count(),
            self.0.columns().len()
        )
    }

    /// The first rows as HTML, with units, the summary and losses.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        self.drawn(py, "html", Some(SHOWN))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Table can't be pickled: convert it first, such as by pyarrow.table(table)",
        ))
    }
}

impl PyTable {
    /// Returns the table as text, by the view of this name.
    fn drawn(&self, py: Python<'_>, view: &str, limit: Option<u64>) -> PyResult<String> {
        let view = VIEWS.iter().find(|known| known.name == view).expect("it is listed");
        let options = Options { width: None, colour: false, limit };
        let mut text = Vec::new();
        let drawn = py.detach(|| view.draw(&self.0, &options, &mut text));
        drawn.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(String::from_utf8(text).expect("views write text"))
    }
}

/// A plot, which notebooks show.
#[pyclass(frozen, name = "Plot", module = "hodoscope")]
pub(crate) struct PyPlot {
    /// The picture, as SVG.
    #[pyo3(get)]
    svg: String,
}

#[pymethods]
impl PyPlot {
    /// Writes the picture into a file.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        Ok(std::fs::write(path, &self.svg)?)
    }

    fn _repr_svg_(&self) -> &str {
        &self.svg
    }

    fn __repr__(&self) -> String {
        format!("<hodoscope.Plot: {} bytes of SVG>", self.svg.len())
    }
}

/// A stream of batches as consumers of Arrow take it.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    batches: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new(py, FFI_ArrowArrayStream::new(batches), Some(c"arrow_array_stream".to_owned()))
}

fn parsed<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

//! A table, as Python sees it.

use std::{collections::BTreeMap, path::PathBuf};

use arrow_array::{RecordBatchIterator, RecordBatchReader, ffi_stream::FFI_ArrowArrayStream};
use hodo_model::{
    Cell, Table,
    table::{Cells, metadata},
};
use hodo_views::{Options, VIEWS};
use pyo3::{
    IntoPyObjectExt,
    exceptions::{PyRuntimeError, PyTypeError},
    prelude::*,
    types::{PyCapsule, PyDict},
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

    /// The table as a `polars.DataFrame`.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.getattr("DataFrame")?.call1((slf,))
    }

    /// The table as a `pandas.DataFrame`, which pyarrow makes.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.getattr("table")?.call1((slf,))?.call_method0("to_pandas")
    }

    /// The rows, each a dictionary with the names of the columns.
    fn __iter__(slf: Bound<'_, Self>) -> PyRows {
        PyRows { table: slf.unbind(), batch: 0, row: 0 }
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

/// The rows of a table, one after the other.
#[pyclass(name = "Rows", module = "hodoscope")]
pub(crate) struct PyRows {
    table: Py<PyTable>,
    /// The place of the next row.
    batch: usize,
    row: usize,
}

#[pymethods]
impl PyRows {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let table = &self.table.get().0;
        while let Some(batch) = table.batches().get(self.batch) {
            if self.row == batch.num_rows() {
                (self.batch, self.row) = (self.batch + 1, 0);
                continue;
            }
            let row = PyDict::new(py);
            for (column, array) in table.columns().iter().zip(batch.columns()) {
                row.set_item(column.name, value(py, Cells::of(array.as_ref()).cell(self.row))?)?;
            }
            self.row += 1;
            return Ok(Some(row));
        }
        Ok(None)
    }
}

/// Returns a cell as a value of Python.
fn value<'py>(py: Python<'py>, cell: Cell<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match cell {
        Cell::Null => py.None().into_bound(py),
        Cell::Text(text) => text.into_bound_py_any(py)?,
        Cell::Integer(integer) => integer.into_bound_py_any(py)?,
        Cell::Signed(integer) => integer.into_bound_py_any(py)?,
        Cell::Real(real) => real.into_bound_py_any(py)?,
        Cell::Boolean(boolean) => boolean.into_bound_py_any(py)?,
        Cell::List(items) => {
            let items = items.iter().map(|item| value(py, item)).collect::<PyResult<Vec<_>>>()?;
            items.into_bound_py_any(py)?
        }
    })
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

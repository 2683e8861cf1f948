//! `hodoscope._native`: the engine, as the Python package calls it.
//!
//! ```text
//! arguments of a command ──► hodo::tables ──► Table ──__arrow_c_stream__──► pyarrow, polars, pandas, DuckDB
//!        (a thread of its own; the caller's thread waits without the GIL, for signals and progress)
//! ```

mod attend;
mod events;
mod store;
mod table;

use std::{ffi::OsString, process::ExitCode};

use hodo::tables::{self, Error};
use pyo3::{
    create_exception,
    exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError},
    prelude::*,
};

use crate::{
    attend::{NO_PROGRESS, attended},
    events::PyEvents,
    store::PyStore,
    table::{PyPlot, PyTable},
};

create_exception!(
    hodoscope,
    UsageError,
    PyValueError,
    "Wrong arguments, or arguments that do not fit the inputs."
);
create_exception!(
    hodoscope,
    InputError,
    PyOSError,
    "An input can't be read: its file, the offset, what was expected."
);

fn raised(error: Error) -> PyErr {
    match error {
        Error::Usage(message) => UsageError::new_err(in_python(&message)),
        Error::Unreadable(message) => InputError::new_err(message),
    }
}

/// Names options as Python does: `cpu_list` for `--cpu-list <CPU,…>`.
fn in_python(message: &str) -> String {
    let mut parts = message.split("--");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        if name.is_empty() {
            text.push_str("--");
        }
        text.push_str(&name.replace('-', "_"));
        // Python's own words.
        if ["for", "from", "with"].contains(&name) {
            text.push('_');
        }
        let value = rest.strip_prefix(" <").and_then(|rest| rest.split_once('>'));
        text.push_str(value.map_or(rest, |(_, rest)| rest));
    }
    text
}

/// Makes the tables of a command; `progress` receives the bytes done and the bytes to do.
#[pyfunction]
#[pyo3(signature = (arguments, progress=None))]
fn make(py: Python<'_>, arguments: Vec<OsString>, progress: Option<Py<PyAny>>) -> PyResult<Vec<PyTable>> {
    let made = attended(py, progress.as_ref(), |progress| tables::tables(&arguments, progress))?;
    let outcome = made.map_err(raised)?.ok_or_else(|| PyKeyboardInterrupt::new_err(()))?;
    Ok(outcome.tables.into_iter().map(PyTable).collect())
}

/// Reads the events that `script` selects: those of this name, or all.
#[pyfunction]
fn read_events(py: Python<'_>, arguments: Vec<OsString>, name: Option<String>) -> PyResult<PyEvents> {
    let events =
        attended(py, NO_PROGRESS, |_| tables::events(&arguments, name.as_deref()))?.map_err(raised)?;
    Ok(PyEvents::new(events))
}

/// Opens the store of the inputs of `index`, which is built if there is none.
#[pyfunction]
fn open_store(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<PyStore> {
    let store = attended(py, NO_PROGRESS, |progress| tables::store(&arguments, progress))?.map_err(raised)?;
    store.map(PyStore).ok_or_else(|| PyKeyboardInterrupt::new_err(()))
}

/// Describes the inputs of `info`, as JSON.
#[pyfunction]
fn describe(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<String> {
    attended(py, NO_PROGRESS, |_| tables::description(&arguments))?.map_err(raised)
}

/// Checks that the inputs of `info` exist and have a known format.
#[pyfunction]
fn check(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<()> {
    attended(py, NO_PROGRESS, |_| tables::check(&arguments))?.map_err(raised)
}

/// Divides a report into tasks: the lines that `hodo plan` prints. The arguments are those of `plan`.
#[pyfunction]
fn plan(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<Vec<String>> {
    attended(py, NO_PROGRESS, |_| tables::plan(&arguments))?.map_err(raised)
}

/// Folds a task into a part. The inputs stay open for the next task of the same plan, if it has a name.
#[pyfunction]
#[pyo3(signature = (task, plan=None))]
fn fold(py: Python<'_>, task: String, plan: Option<String>) -> PyResult<Vec<u8>> {
    let part = attended(py, NO_PROGRESS, |progress| tables::fold(&task, plan, progress))?.map_err(raised)?;
    part.ok_or_else(|| PyKeyboardInterrupt::new_err(()))
}

/// Merges parts of one request into one.
#[pyfunction]
fn merge(py: Python<'_>, parts: Vec<Vec<u8>>) -> PyResult<Vec<u8>> {
    attended(py, NO_PROGRESS, |_| tables::merge(&parts))?.map_err(raised)
}

/// Makes the tables of the merged parts.
#[pyfunction]
fn finish(py: Python<'_>, part: Vec<u8>) -> PyResult<Vec<PyTable>> {
    let outcome = attended(py, NO_PROGRESS, |_| tables::finish(&part))?.map_err(raised)?;
    Ok(outcome.tables.into_iter().map(PyTable).collect())
}

/// Lists the reports: name, what it shows, kinds of rows.
#[pyfunction]
fn reports() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let reports = hodo_engine::reports().iter().map(|report| report.description());
    reports.map(|about| (about.name, about.help, about.views.to_vec())).collect()
}

/// Runs `hodo` with these arguments, the first of which is the program's name; returns the exit code.
#[pyfunction]
fn run(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    let code = py.detach(|| hodo::run(&arguments));
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).unwrap_or(u8::MAX)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTable>()?;
    module.add_class::<PyPlot>()?;
    module.add_class::<PyEvents>()?;
    module.add_class::<PyStore>()?;
    module.add("UsageError", module.py().get_type::<UsageError>())?;
    module.add("InputError", module.py().get_type::<InputError>())?;
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    // The version and the commit; see `build.rs`.
    module.add("build", env!("HODO_BUILD"))?;
    module.add_function(wrap_pyfunction!(make, module)?)?;
    module.add_function(wrap_pyfunction!(read_events, module)?)?;
    module.add_function(wrap_pyfunction!(open_store, module)?)?;
    module.add_function(wrap_pyfunction!(describe, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    module.add_function(wrap_pyfunction!(fold, module)?)?;
    module.add_function(wrap_pyfunction!(merge, module)?)?;
    module.add_function(wrap_pyfunction!(finish, module)?)?;
    module.add_function(wrap_pyfunction!(reports, module)?)?;
    module.add_function(wrap_pyfunction!(run, module)?)
}

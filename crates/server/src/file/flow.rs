//! The views of control flow in a file: what their pages ask first, of each recording and of the functions that run most.

use hodo_model::table::{Cell, cells};

use super::{FIRST_RECORDING, File, Parameters};
use crate::answer::Failure;

/// Functions whose code and latencies a file has. Each takes two passes over the first recording.
const FUNCTIONS: usize = 8;
/// Measures of executions.
const MEASURES: [&str; 3] = ["time_ns", "instructions", "cycles"];

impl File<'_> {
    /// Adds flame graphs, the comparison of the first two recordings, and the code and latencies of the functions with
    /// most instructions, in at most half of the room.
    pub(super) fn flow(&mut self) -> Result<(), Failure> {
        let recordings = self.session.inputs.recordings();
        if recordings.is_empty() {
            return Ok(());
        }
        let kept_free = self.room / 2;
        self.room -= kept_free;
        self.ask("recordings", &[])?;
        self.ask("latency/pairs", &[])?;
        for (number, recording) in recordings.iter().enumerate() {
            // The page names no recording for the first one.
            let parameters = (number > 0).then(|| ("recording", number.to_string()));
            self.ask_or_note(
                "paths",
                parameters.as_slice(),
                &format!("The flame graph of {}", recording.name),
            )?;
        }
        if recordings.len() > 1 {
            self.ask_or_note("diff/paths", &[], "The comparison of the recordings by path")?;
            self.ask_or_note("diff/functions", &[], "The comparison of the recordings by function")?;
            self.ask_or_note("diff/divergence", &[], "The first divergence of the recordings")?;
        }
        let functions = self.functions()?;
        for function in &functions {
            self.function(function)?;
        }
        self.left_out.push(format!(
            "Latency and source are here for the functions that run most ({}), and flame graphs for all threads \
             and all of the time. `hodo view` has all functions, pairs of markers, threads and spans.",
            functions.join(", ")
        ));
        self.room += kept_free;
        Ok(())
    }

    /// Returns the functions with most instructions, as the page names them.
    fn functions(&self) -> Result<Vec<String>, Failure> {
        let keep_going = self.keep_going;
        let made = self
            .session
            .inputs
            .table("functions", "", FIRST_RECORDING, FUNCTIONS, &mut |_, _| keep_going())?;
        let Some(rows) = made else { return Ok(Vec::new()) };
        let index = |name| rows.table.columns().iter().position(|column| column.name == name);
        let (Some(function), Some(module)) = (index("function"), index("module")) else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for batch in rows.table.batches() {
            let columns = cells(batch);
            for row in 0..batch.num_rows() {
                let Cell::Text(function) = columns[function].cell(row) else { continue };
                let module = match columns[module].cell(row) {
                    Cell::Text(module) => module,
                    _ => "",
                };
                names.push(format!("{function}@{module}"));
            }
        }
        names.truncate(FUNCTIONS);
        Ok(names)
    }

    /// Adds the code and the latencies of a function.
    fn function(&mut self, name: &str) -> Result<(), Failure> {
        if !(self.keep_going)() {
            return Ok(());
        }
        let parameters = [("function", name.to_owned())];
        self.ask_or_note("source", &parameters, &format!("The source of {name}"))?;
        let what = format!("The latency of {name}");
        let mut fits = self.ask_or_note("latency/histogram", &parameters, &what)?;
        fits = fits && self.ask_or_note("latency/percentiles", &parameters, &what)?;
        for measure in MEASURES.into_iter().filter(|_| fits) {
            let all = [
                ("from_value", "0".to_owned()),
                ("function", name.to_owned()),
                ("measure", measure.to_owned()),
                ("until_value", u64::MAX.to_string()),
            ];
            self.ask_or_note("latency/executions", &all, &what)?;
        }
        Ok(())
    }

    /// Asks a question; notes in the file if the answer is refused or does not fit. Returns whether it is in the file.
    fn ask_or_note(&mut self, path: &str, parameters: Parameters<'_>, what: &str) -> Result<bool, Failure> {
        if !(self.keep_going)() {
            return Ok(false);
        }
        let why = match self.ask(path, parameters) {
            Ok(true) => return Ok(true),
            Ok(false) => "there was no room".to_owned(),
            Err(Failure::Refused(why)) => why,
            Err(failure) => return Err(failure),
        };
        self.left_out.push(format!("{what} is not here: {why}."));
        Ok(false)
    }
}

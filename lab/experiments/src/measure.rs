//! Records a program on the emulated processor, and reads what `hodo report resolution` says of it.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use workbench::{
    Outcome,
    command::{self, hodo},
};

/// What was measured of a recording, or the difference of two.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) instructions: f64,
    /// Bytes of trace.
    pub(super) bytes: f64,
    pub(super) conditional: f64,
    /// Indirect jumps.
    pub(super) indirect: f64,
    pub(super) returns: f64,
    /// Branches of all kinds.
    pub(super) branches: f64,
    /// The mean length of the intervals between clock readings, in nanoseconds.
    pub(super) interval: f64,
    /// The median length of these intervals in nanoseconds, and their median number of instructions.
    pub(super) medians: [f64; 2],
}

impl Measured {
    /// What ran in addition to `idle`, such as a run without iterations.
    pub(super) fn without(&self, idle: &Measured) -> Measured {
        Measured {
            instructions: self.instructions - idle.instructions,
            bytes: self.bytes - idle.bytes,
            conditional: self.conditional - idle.conditional,
            indirect: self.indirect - idle.indirect,
            returns: self.returns - idle.returns,
            branches: self.branches - idle.branches,
            interval: self.interval,
            medians: self.medians,
        }
    }

    /// Bytes of trace per instruction.
    pub(super) fn density(&self) -> f64 {
        self.bytes / self.instructions
    }
}

/// Records a program with this event, in perf's syntax.
pub(super) fn record(event: &str, program: &[&str], recording: &Path) -> Outcome {
    let mut record = Command::new(hodo());
    record.args(["record", "--engine", "emulate", "-q", "-e", event, "-o"]).arg(recording);
    record.arg("--").args(program);
    command::quietly(record.stdout(Stdio::null()))
}

/// Records a program with this event, and measures the recording.
pub(super) fn measure(event: &str, program: &[&str], recording: &Path) -> Outcome<Measured> {
    record(event, program, recording)?;
    let table = json(&["report", "resolution"], recording)?;
    let figure = |name: &str| table["summary"][name].as_f64().ok_or_else(|| format!("no {name}: {table}"));
    let conditional = figure("conditional_branches")?;
    let [indirect, returns] = [figure("indirect_jumps")?, figure("returns")?];
    let others = figure("calls")? + figure("direct_jumps")? + figure("far_transfers")?;
    Ok(Measured {
        instructions: figure("instructions")?,
        bytes: figure("trace_bytes")?,
        conditional,
        indirect,
        returns,
        branches: conditional + indirect + returns + others,
        interval: cell(&table, 0, "average").unwrap_or(0.0),
        medians: [0, 1].map(|measure| cell(&table, measure, "p50").unwrap_or(0.0)),
    })
}

/// A cell of the table, by row: the lengths of intervals in nanoseconds, and their instructions.
fn cell(table: &Value, row: usize, column: &str) -> Option<f64> {
    let at = table["columns"].as_array()?.iter().position(|known| known["name"] == column)?;
    table["rows"][row][at].as_f64()
}

/// The output of `hodo` for a recording.
pub(super) fn json(arguments: &[&str], recording: &Path) -> Outcome<Value> {
    let mut hodo = Command::new(hodo());
    hodo.args(arguments).args(["-q", "--format", "json"]).arg(recording);
    Ok(serde_json::from_str(&command::capture(&mut hodo)?)?)
}

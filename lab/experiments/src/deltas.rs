//! `cargo run -p lab -- deltas`: histograms of instructions and time between two markers, and sunbursts of call paths with and
//! without a software tracer.
//!
//! Sharma and Dagenais, "Hardware-assisted instruction profiling and latency detection", 2016, Figures 6, 10 and 11, in
//! user space: the markers are the begin and the end of a function. The paper's markers turn interrupts off and on, which
//! only a recording of the kernel has. Writes plots to `docs/reproduction`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use bench::plot::{self, Axes, Bar};
use serde_json::Value;
use workbench::{
    Outcome, command,
    lttng::Session,
    setup::{self, Need},
    workloads,
};

use super::measure::{json, record};

/// Measures, columns and units of the two histograms.
const FIGURES: [(u32, &str, &str); 2] =
    [(10, "instructions", "instructions"), (11, "time_ns", "nanoseconds of virtual time")];

/// Records, and writes all plots.
pub(super) fn run(_arguments: &[String]) -> Outcome {
    setup::ensure(Need::Test)?;
    command::build_hodo()?;
    let folder = command::target().join("lab/deltas");
    fs::create_dir_all(&folder)?;
    histograms(&folder)?;
    sunbursts()
}

/// A file of `docs/reproduction`.
pub(super) fn docs(name: &str) -> PathBuf {
    command::root().join("docs/reproduction").join(name)
}

/// Instructions and time between the begin and the end of an insertion in `slowpath`.
fn histograms(folder: &Path) -> Outcome {
    let program = workloads::compile("slowpath.c", &[], folder)?;
    let recording = folder.join("slowpath.perf.data");
    record("intel_pt/cyc/u", &[program.to_str().ok_or("a path is not in UTF-8")?], &recording)?;
    let latency = ["latency", "--from", "entry:insert", "--to", "exit:insert", "--bins", "log"];
    let table = json(&latency, &recording)?;
    println!("`hodo {}` of `slowpath`: {} intervals", latency.join(" "), table["summary"]["count"]);
    draw_histograms(&table, "user")
}

/// Draws both histograms of a table of `hodo latency --bins log`; `space` is where the markers are.
pub(super) fn draw_histograms(table: &Value, space: &str) -> Outcome {
    for (figure, measure, unit) in FIGURES {
        let bars = bars(table, measure).ok_or_else(|| format!("no histogram of {measure}: {table}"))?;
        plot::histogram(
            &docs(&format!("pt-figure-{figure}-{space}.svg")),
            &Axes { across: unit, up: "intervals" },
            &bars,
        )?;
        for bar in bars.iter().filter(|bar| bar.count > 0) {
            println!("  {measure} from {} to {}: {}", bar.from, bar.until, bar.count);
        }
    }
    Ok(())
}

/// The logarithmic bins of a measure.
fn bars(table: &Value, measure: &str) -> Option<Vec<Bar>> {
    let column = |name: &str| table["columns"].as_array()?.iter().position(|column| column["name"] == name);
    let (measures, scale) = (column("measure")?, column("bins")?);
    let (from, until, count) = (column("from")?, column("until")?, column("count")?);
    let is_shown = |row: &&Value| row[measures] == measure && row[scale] == "logarithmic";
    let bar = |row: &Value| {
        Some(Bar { from: row[from].as_u64()?, until: row[until].as_u64()?, count: row[count].as_u64()? })
    };
    table["rows"].as_array()?.iter().filter(is_shown).map(bar).collect()
}

/// What a call of `step` runs, without a tracepoint and with one.
fn sunbursts() -> Outcome {
    // The home of LTTng has sockets, whose paths must be short.
    let folder = std::env::temp_dir().join(format!("hodo-lab-{}", std::process::id()));
    let session = Session::start(&folder)?;
    let drawn = [("plain", &[][..]), ("traced", &["-DTRACED", "-llttng-ust", "-ldl"])]
        .into_iter()
        .try_for_each(|(name, flags)| sunburst(&session, &folder, name, flags));
    drop(session);
    fs::remove_dir_all(&folder)?;
    drawn
}

fn sunburst(session: &Session, folder: &Path, name: &str, flags: &[&str]) -> Outcome {
    let program = workloads::compile("traced_step.c", flags, &folder.join(name))?;
    let recording = folder.join(format!("{name}.perf.data"));
    let mut record = session.command(command::hodo())?;
    record.args(["record", "--engine", "emulate", "-q", "-o"]).arg(&recording).arg("--").arg(program);
    // QEMU's user mode fails when a process with LTTng's threads exits. What is drawn ran before that.
    record.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let mut paths = Command::new(command::hodo());
    paths.args(["report", "paths", "-q", "--function", "main", "--format", "sunburst", "-o"]);
    command::quietly(paths.arg(docs(&format!("pt-figure-6-{name}.svg"))).arg(&recording))
}

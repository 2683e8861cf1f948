//! `cargo run -p lab -- resolution`: the distance between timestamps, by the enabled packets.
//!
//! An instruction ran no later than the timestamp after it. How much earlier is not measured: the processor holds
//! branches back until their packet, which follows the timing packets of that time. One program is recorded on the
//! emulated processor, which runs one instruction per nanosecond, with one setting after the other.

use std::{fs, path::Path, process::Command, process::Stdio};

use workbench::{
    Outcome,
    command::{self, each_line, hodo},
    setup::{self, Need},
};

/// A program with system calls, sorting and printing.
const PROGRAM: &[&str] = &["ls", "-l", "/usr/lib/x86_64-linux-gnu"];

const EVENTS: &[&str] = &[
    "intel_pt//u",
    "intel_pt/mtc_period=0/u",
    "intel_pt/mtc_period=9/u",
    "intel_pt/mtc=0/u",
    "intel_pt/mtc=0,psb_period=0/u",
    "intel_pt/cyc/u",
    "intel_pt/cyc,cyc_thresh=4/u",
    "intel_pt/cyc,cyc_thresh=9/u",
    "intel_pt/cyc,mtc=0/u",
];

/// Prints a row for each setting.
pub(super) fn run(_arguments: &[String]) -> Outcome {
    setup::ensure(Need::Test)?;
    command::build_hodo()?;
    let folder = command::target().join("resolution");
    fs::create_dir_all(&folder)?;
    println!(
        "| `{}` | median | 90 % | longest | bytes per 1000 instructions |\n|---|---|---|---|---|",
        PROGRAM.join(" ")
    );
    for event in EVENTS {
        println!("{}", row(event, &folder.join("recording.perf.data"))?);
    }
    Ok(())
}

fn row(event: &str, recording: &Path) -> Outcome<String> {
    let mut record = Command::new(hodo());
    record
        .args(["record", "--engine", "emulate", "-q", "-e", event, "-o"])
        .arg(recording)
        .arg("--")
        .args(PROGRAM);
    command::quietly(record.stdout(Stdio::null()))?;
    let mut script = Command::new(hodo());
    script.args(["script", "--insns", "-q", "--fields", "time"]).arg(recording);
    let (mut spans, mut last, mut instructions) = (Vec::new(), None, 0u64);
    each_line(script, |line| {
        let time = std::str::from_utf8(line).ok().and_then(|line| line.trim().replace('.', "").parse().ok());
        if time != last {
            spans.extend(
                time.zip(last).map(|(time, last): (u64, u64)| Span { nanos: time - last, instructions }),
            );
            (last, instructions) = (time, 0);
        }
        instructions += 1;
    })?;
    spans.sort_unstable_by_key(|span| span.nanos);
    let total: u64 = spans.iter().map(|span| span.instructions).sum();
    let bytes = fs::metadata(recording)?.len() as f64 / total as f64 * 1000.0;
    let [half, most, all] = [50, 90, 100].map(|percent| within(&spans, total * percent / 100));
    Ok(format!("| `{event}` | {half} ns | {most} ns | {all} ns | {bytes:.0} |"))
}

/// The time between two timestamps.
struct Span {
    nanos: u64,
    /// The instructions that ran in it.
    instructions: u64,
}

/// The accuracy of the times of this many instructions, by spans in order of length.
fn within(spans: &[Span], instructions: u64) -> u64 {
    let mut sum = 0;
    let found = spans.iter().find(|span| {
        sum += span.instructions;
        sum >= instructions
    });
    found.map_or(0, |span| span.nanos)
}

#[cfg(test)]
mod tests {
    use super::{Span, within};

    #[test]
    fn spans_are_weighed_by_their_instructions() {
        let spans = [(1, 10), (5, 80), (900, 10)].map(|(nanos, instructions)| Span { nanos, instructions });
        assert_eq!([50, 90, 100].map(|count| within(&spans, count)), [5, 5, 900]);
    }
}

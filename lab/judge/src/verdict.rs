//! The results for a recording, and for all of them.

use std::{fmt, path::PathBuf, thread, time::Duration};

use super::{
    difference,
    libipt::{self, Opinion},
    perf,
    record::Recorded,
    streams::{Streams, read_hodo},
    times::Times,
    totals,
};
use crate::Outcome;

/// The foreign decoders, ready to run.
pub(super) struct Judges {
    /// The library that perf loads.
    pub(super) perf: PathBuf,
    /// The harness of libipt.
    pub(super) libipt: PathBuf,
}

/// The result for one recording.
pub(super) struct Verdict {
    recorded: Recorded,
    findings: Result<Findings, String>,
}

#[derive(Default)]
struct Findings {
    instructions: u64,
    calls: u64,
    threads: usize,
    times: Times,
    libipt: Opinion,
    /// The differences.
    complaints: Vec<String>,
}

/// Judges one recording.
pub(super) fn judge(recorded: Recorded, judges: &Judges) -> Verdict {
    let findings = find(&recorded, judges).map_err(|error| error.to_string());
    Verdict { recorded, findings }
}

fn find(recorded: &Recorded, judges: &Judges) -> Outcome<Findings> {
    let recording = &recorded.path;
    let (ours, libipt, theirs) = thread::scope(|scope| {
        let perf = scope.spawn(|| perf::read(recording, &judges.perf).map_err(|error| error.to_string()));
        let mut libipt = libipt::Judge::new(&judges.libipt, recording)?;
        let ours = read_hodo(recording, |instruction| libipt.take(&instruction))?;
        let perf = perf.join().map_err(|_| "reading perf's output failed")??;
        Ok::<_, Box<dyn std::error::Error>>((ours, libipt.end()?, perf))
    })?;
    let truth = totals::truth(recording)?;
    let mut findings = Findings {
        instructions: ours.threads.values().map(|thread| thread.instructions).sum(),
        calls: truth.values().map(|truth| truth.calls).sum(),
        threads: ours.threads.len(),
        complaints: totals::compare(recording, &truth, &ours)?,
        libipt,
        ..Findings::default()
    };
    findings.complaints.append(&mut findings.libipt.complaints);
    findings.compare(recorded, &ours, &theirs)?;
    Ok(findings)
}

impl Findings {
    /// Adds the threads that differ, each with its first difference, and the times of those that do not.
    fn compare(&mut self, recorded: &Recorded, ours: &Streams, theirs: &Streams) -> Outcome {
        for (who, streams) in [("hodo", ours), ("perf", theirs)] {
            if let Some(first) = streams.notices.first() {
                let count = streams.notice_count;
                self.complaints.push(format!("  {who} reports {count} interruptions, first: {first}"));
            }
        }
        let mut tids: Vec<u32> = ours.threads.keys().chain(theirs.threads.keys()).copied().collect();
        tids.sort();
        tids.dedup();
        let has_cyc = recorded.job.event.contains("cyc");
        for tid in tids {
            match (ours.threads.get(&tid), theirs.threads.get(&tid)) {
                (Some(our), Some(their)) if our.agrees(their) => self.times.add(tid, our, their, has_cyc),
                (our, their) => self.complaints.push(difference::explain(&recorded.path, tid, our, their)?),
            }
        }
        Ok(())
    }
}

const HEADING: &str = "program           instructions        calls threads slow-down  recording  ns from perf    only by perf  result";

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recorded = &self.recorded;
        let findings = match &self.findings {
            Ok(findings) => findings,
            Err(error) => return write!(f, "{:14} {error}", recorded.job.program.name),
        };
        write!(
            f,
            "{:14} {:15} {:12} {:7} {:8.1}× {:7.1} MB  {:14} {:10}  {}",
            recorded.job.program.name,
            findings.instructions,
            findings.calls,
            findings.threads,
            recorded.slow_down(),
            recorded.bytes as f64 / 1e6,
            findings.times.to_string(),
            findings.libipt.left + findings.libipt.changing,
            if findings.complaints.is_empty() { "equal" } else { "DIFFERENT" },
        )?;
        findings.complaints.iter().try_for_each(|complaint| write!(f, "\n{complaint}"))
    }
}

/// The totals over all verdicts.
#[derive(Default)]
pub(super) struct Total {
    configuration: Option<&'static str>,
    judged: usize,
    instructions: u64,
    slow_downs: Vec<f64>,
    times: Times,
    libipt: Opinion,
    failed: Vec<String>,
}

impl Total {
    /// Prints a verdict, and adds it to the totals.
    pub(super) fn show(&mut self, verdict: Verdict) {
        let job = &verdict.recorded.job;
        if self.configuration != Some(job.configuration.name) {
            self.end_configuration();
            self.configuration = Some(job.configuration.name);
            println!("\n{}: {}, {}\n{HEADING}", job.configuration.name, job.event, job.configuration.what);
        }
        println!("{verdict}");
        self.judged += 1;
        self.slow_downs.push(verdict.recorded.slow_down());
        if let Ok(findings) = &verdict.findings {
            self.instructions += findings.instructions;
            self.times.merge(&findings.times);
            self.libipt.merge(&findings.libipt);
        }
        if !verdict.findings.is_ok_and(|findings| findings.complaints.is_empty()) {
            self.failed.push(format!("{} {}", job.configuration.name, job.program.name));
        }
    }

    /// Prints a summary of the times of a configuration.
    fn end_configuration(&mut self) {
        let times = std::mem::take(&mut self.times);
        for line in times.explain() {
            println!("  {line}");
        }
    }

    /// Prints the totals; the error names what differs.
    pub(super) fn end(mut self, took: Duration) -> Outcome {
        self.end_configuration();
        self.slow_downs.sort_by(f64::total_cmp);
        let median = self.slow_downs.get(self.slow_downs.len() / 2).copied().unwrap_or(0.0);
        let libipt = &self.libipt;
        println!(
            "\nlibipt decodes {} instructions as hodo does. At {} returns it goes back to a call that the \
             processor took off its stack at an earlier return, and is lost up to the next PSB: {} instructions. It \
             does not know when code is mapped: {} instructions of threads whose code changes",
            libipt.same, libipt.stale, libipt.left, libipt.changing
        );
        println!(
            "{} of {} recordings equal, {} instructions; median slow-down of the recorded program {median:.1}×; \
             {} s",
            self.judged - self.failed.len(),
            self.judged,
            self.instructions,
            took.as_secs(),
        );
        if self.failed.is_empty() && self.judged > 0 {
            Ok(())
        } else {
            Err(format!("not equal: {}", self.failed.join(", ")).into())
        }
    }
}

//! The judge: compares our decoding with foreign programs. Each `cargo judge KIND` has its own module; the benchmark
//! uses the judge to inspect recordings.
//!
//! `cargo judge pt` compares our decoding of real programs, instruction by instruction, with perf's decoder, and our
//! totals with the emulated processor's count, in several configurations of the trace.
//!
//! ```text
//! programs × configurations ──record──► recordings
//!
//! recording ─┬─► hodo script --insns ─┐ per thread: the same instructions, or the first difference;
//!            ├─► perf's decoder ──────┴─► how far the times of the same instruction are apart
//!            ├─► hodo report functions ─┐
//!            └─► hodo info: truth ──────┴─► equal, or both numbers
//! ```

mod analyses;
mod arm;
mod cases;
mod check;
mod configurations;
mod containers;
mod coverage;
mod crates;
mod ctf;
mod damage;
mod deltas;
mod diff;
mod difference;
mod events;
mod explain;
mod interface;
mod latency;
mod libipt;
mod libipt_tools;
mod lines;
mod machine;
mod machine_log;
mod machine_others;
mod machine_perf;
mod machine_stacks;
mod maps;
mod mcp;
mod missing;
mod models;
mod native;
mod native_account;
mod path;
mod perf;
mod processor_time;
mod programs;
mod record;
mod riscv;
mod sqlite;
mod streams;
mod sync;
mod tcp;
mod times;
mod totals;
mod verdict;

use std::{
    path::Path,
    sync::{Mutex, mpsc},
    thread,
    time::Instant,
};

use configurations::{CONFIGURATIONS, Configuration};
pub use ctf::unpacked;
pub use libipt::harness_arguments;
use programs::PROGRAMS;
use record::{Job, Recorded};
use verdict::{Judges, Total, Verdict, judge};

use workbench::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

const USAGE: &str = "usage: cargo judge pt [--list] [--all] [--config NAME]… [--only PROGRAM]… [-e EVENT]
       cargo judge arm [PROGRAM]… | --snapshot FOLDER
       cargo judge cases [NAME]…
       cargo judge check [steady | times | PROGRAM]…
       cargo judge containers [FILE]…
       cargo judge coverage [PROGRAM]…
       cargo judge libipt [tools | MUTATIONS [JOBS]…]
       cargo judge lines [PROGRAM]…
       cargo judge models [PROGRAM]…
       cargo judge latency
       cargo judge deltas [PROGRAM]…
       cargo judge explain [TROUBLE]…
       cargo judge diff
       cargo judge machine [WORKLOAD]…
       cargo judge mcp [CAUSE]…
       cargo judge stacks
       cargo judge damage [--count N] [--seed N] [--only NUMBER] [--without-perf]
       cargo judge native [PROGRAM]…
       cargo judge missing [--count N] [--seed N] [--only PROGRAM]…
       cargo judge ctf [FOLDER | ARCHIVE]…
       cargo judge events [--count N | FILE…]
       cargo judge analyses [FOLDER | ARCHIVE]
       cargo judge path [SCENARIO]…
       cargo judge riscv [PROGRAM | MODE]…
       cargo judge sqlite [PROGRAM | TEST]…
       cargo judge tcp
       cargo judge tracepoints
       cargo judge sync [--seconds N] [--only PROTOCOL | --only slews]… [--board SETTINGS] [--keep FOLDER | --read FOLDER] [--seed N]";

/// The parsed command line.
#[derive(Default)]
struct Options {
    only: Vec<String>,
    configurations: Vec<String>,
    event: Option<String>,
    all: bool,
    list: bool,
}

/// Judges as requested; the error names what differs.
pub fn run(arguments: &[String]) -> Outcome {
    match arguments.split_first() {
        Some((first, names)) if first == "arm" => return arm::run(names),
        Some((first, names)) if first == "cases" => return cases::run(names),
        Some((first, names)) if first == "check" => return check::run(names),
        Some((first, rest)) if first == "libipt" => return interface::run(rest),
        Some((first, files)) if first == "containers" => return containers::run(files),
        Some((first, names)) if first == "coverage" => return coverage::run(names),
        Some((first, names)) if first == "models" => return models::run(names),
        Some((first, names)) if first == "lines" => return lines::run(names),
        Some((first, [])) if first == "latency" => return latency::run(),
        Some((first, names)) if first == "deltas" => return deltas::run(names),
        Some((first, names)) if first == "explain" => return explain::run(names),
        Some((first, [])) if first == "diff" => return diff::run(),
        Some((first, names)) if first == "machine" => return machine::run(names),
        Some((first, names)) if first == "mcp" => return mcp::run(names),
        Some((first, [])) if first == "stacks" => return machine_stacks::run(),
        Some((first, rest)) if first == "damage" => return damage::run(rest),
        Some((first, names)) if first == "native" => return native::run(names),
        Some((first, rest)) if first == "missing" => return missing::run(rest),
        Some((first, rest)) if first == "events" => return events::run(rest),
        Some((first, names)) if first == "path" => return path::run(names),
        Some((first, [])) if first == "tracepoints" => return tracepoints(),
        Some((first, names)) if first == "riscv" => return riscv::run(names),
        Some((first, names)) if first == "sqlite" => return sqlite::run(names),
        Some((first, rest)) if first == "tcp" => return tcp::run(rest),
        Some((first, rest)) if first == "sync" => return sync::run(rest),
        Some((first, traces)) if first == "ctf" => return ctf::run(traces),
        Some((first, trace)) if first == "analyses" => return analyses::run(trace),
        _ => {}
    }
    let options = parse(arguments)?;
    if options.list {
        list();
        return Ok(());
    }
    let begin = Instant::now();
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge");
    std::fs::create_dir_all(&folder)?;
    let judges = Judges { perf: perf::compile(&folder)?, libipt: libipt::compile(&folder)? };
    let recordings = record::all(options.jobs(), &folder)?;
    let mut total = Total::default();
    judge_all(recordings, &judges, |verdict| total.show(verdict));
    total.end(begin.elapsed())
}

/// Prints what tracepoints of barectf cost on an emulated board.
fn tracepoints() -> Outcome {
    println!("| bench | instructions without | with barectf | tracepoints | instructions a tracepoint |");
    println!("|---|---|---|---|---|\n{}", workbench::board::bench()?.trim_end());
    Ok(())
}

/// The instructions that the emulated processor counted in a recording.
pub fn instructions(recording: &Path) -> Outcome<u64> {
    Ok(totals::truth(recording)?.values().map(|truth| truth.instructions).sum())
}

fn parse(arguments: &[String]) -> Outcome<Options> {
    let mut arguments = arguments.iter().map(String::as_str);
    if arguments.next() != Some("pt") {
        return Err(USAGE.into());
    }
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().map(str::to_owned).ok_or(USAGE);
        match argument {
            "--list" => options.list = true,
            "--all" => options.all = true,
            "--only" => options.only.push(value()?),
            "--config" => options.configurations.push(value()?),
            "-e" => options.event = Some(value()?),
            _ => return Err(USAGE.into()),
        }
    }
    known("program", &options.only, PROGRAMS.iter().map(|program| program.name))?;
    known(
        "configuration",
        &options.configurations,
        CONFIGURATIONS.iter().map(|configuration| configuration.name),
    )?;
    Ok(options)
}

fn known<'n>(kind: &str, asked: &[String], names: impl Iterator<Item = &'n str> + Clone) -> Outcome {
    match asked.iter().find(|asked| names.clone().all(|name| name != **asked)) {
        Some(name) => Err(format!("no {kind} `{name}`; `--list` names them").into()),
        None => Ok(()),
    }
}

fn list() {
    println!("configurations:");
    for Configuration { name, event, what, .. } in CONFIGURATIONS {
        println!("  {name:14} {event}: {what}");
    }
    println!("programs:");
    for program in PROGRAMS {
        println!("  {:14} {}", program.name, program.what);
    }
}

impl Options {
    /// The recordings to make. An explicit event replaces the configuration's.
    fn jobs(&self) -> Vec<Job> {
        let asked = |names: &[String], name: &str| names.iter().any(|asked| asked == name);
        let is_used = |name: &str| match self.configurations.is_empty() {
            true => self.event.is_none() || name == CONFIGURATIONS[0].name,
            false => asked(&self.configurations, name),
        };
        let jobs = CONFIGURATIONS.iter().filter(|known| is_used(known.name)).flat_map(|configuration| {
            let named = PROGRAMS.iter().filter(|program| asked(&self.only, program.name));
            let usual = PROGRAMS.iter().filter(|program| self.all || configuration.takes(program.name));
            let programs: Vec<_> = if self.only.is_empty() { usual.collect() } else { named.collect() };
            let event = self.event.clone().unwrap_or(configuration.event.to_owned());
            programs.into_iter().map(move |program| Job { program, configuration, event: event.clone() })
        });
        jobs.collect()
    }
}

/// Judges recordings on all cores, the longest first, and passes on the verdicts in the order of the recordings.
fn judge_all(recordings: Vec<Recorded>, judges: &Judges, mut take: impl FnMut(Verdict)) {
    let count = recordings.len();
    let mut order: Vec<(usize, Recorded)> = recordings.into_iter().enumerate().collect();
    order.sort_by_key(|(_, recorded)| recorded.instructions);
    let waiting = Mutex::new(order);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (sender, waiting) = (sender.clone(), &waiting);
            scope.spawn(move || {
                let next = || waiting.lock().ok()?.pop();
                while let Some((index, recorded)) = next() {
                    eprintln!("judge: {} {}", recorded.job.configuration.name, recorded.job.program.name);
                    let verdict = judge(recorded, judges);
                    if sender.send((index, verdict)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut verdicts: Vec<Option<Verdict>> = (0..count).map(|_| None).collect();
        let mut shown = 0;
        for (index, verdict) in receiver {
            verdicts[index] = Some(verdict);
            while let Some(verdict) = verdicts.get_mut(shown).and_then(Option::take) {
                take(verdict);
                shown += 1;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(line: &str) -> Vec<Job> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parse(&words).expect("a right line").jobs()
    }

    #[test]
    fn each_program_is_judged_in_at_least_three_configurations() {
        let jobs = jobs("pt");
        for program in PROGRAMS {
            let count = jobs.iter().filter(|job| job.program.name == program.name).count();
            assert!(count >= 3, "{} only in {count}", program.name);
        }
        assert_eq!(super::tests::jobs("pt --all").len(), PROGRAMS.len() * CONFIGURATIONS.len());
    }

    #[test]
    fn what_is_named_is_judged() {
        let found = |line| -> Vec<(&str, &str, String)> {
            jobs(line).into_iter().map(|job| (job.configuration.name, job.program.name, job.event)).collect()
        };
        assert_eq!(found("pt --config cyc --only gzip"), [("cyc", "gzip", "intel_pt/cyc=1/u".to_owned())]);
        assert_eq!(found("pt --only ls -e intel_pt/cyc/u"), [("default", "ls", "intel_pt/cyc/u".to_owned())]);
        assert!(parse(&["pt".to_owned(), "--only".to_owned(), "lss".to_owned()]).is_err());
    }
}

//! Arguments of `hodo diff`, and the recordings that they select.

use std::path::PathBuf;

use clap::Args;
use hodo_compare::{Divisor, Rows, Sides};
use hodo_model::Root;

use crate::{
    arguments::{Input, Output, PeriodArguments},
    failure::Failure,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo diff old.data new.data                                two builds, function by function
  hodo diff --by path --per handle_request old.data new.data for each request, path by path
  hodo diff --a 'old-*.data' --b 'new-*.data'                groups: times with statistics
  hodo diff --a-time 0%-50% --b-time 50%-100% perf.data      two halves of one recording
  hodo diff --function handle_request --nth 3,1537 --divergence perf.data
                                                             two requests, and the branch where they diverge
  hodo diff --fail-over 5% --format markdown old.data new.data
                                                             exit code 1 if instructions grew by more
  hodo diff ./old-trace ./new-trace                          latencies of system calls, interrupts, threads

Functions are matched by symbol and module, so code may have moved; a compiler's clones, such as
f.constprop.0 and f.cold, count as f. Instruction counts are exact. Times of groups get Mann-Whitney's test.")]
pub struct Diff {
    /// Recordings of the baseline: names or patterns (repeatable)
    #[arg(long, value_name = "PATTERN", requires = "b")]
    pub a: Vec<String>,
    /// Recordings to compare with the baseline: names or patterns (repeatable)
    #[arg(long, value_name = "PATTERN", requires = "a")]
    pub b: Vec<String>,
    /// Only this span of A, in the syntax of --time
    #[arg(long, value_name = "SPAN", requires = "b_time", conflicts_with = "time")]
    pub a_time: Option<String>,
    /// Only this span of B
    #[arg(long, value_name = "SPAN", requires = "a_time")]
    pub b_time: Option<String>,
    /// Only executions of this function; NAME@FILE if several files have it
    #[arg(long, value_name = "FUNC", conflicts_with = "per")]
    pub function: Option<String>,
    /// Only the N-th execution of --function by each thread in A, and the M-th in B
    #[arg(long, value_name = "N,M", value_parser = numbers, requires = "function", conflicts_with = "call")]
    pub nth: Option<(u64, u64)>,
    /// Show amounts per execution of a function or system call: FUNC, `syscall` for any system call, `syscall:NAME`
    #[arg(long, value_name = "WHAT")]
    pub per: Option<String>,
    /// Kind of rows
    #[arg(long, value_name = "WHAT", value_parser = ["function", "path"], default_value = "function")]
    pub by: String,
    /// Also find the branch at which two executions diverge, with its source line: executions of --function, else of
    /// main; the first ones unless --nth is given
    #[arg(long)]
    pub divergence: bool,
    /// Exit with code 1 if instructions, times of groups, or median latencies grew by more than this
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_over: Option<f64>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub period: PeriodArguments,
}

/// Parses `N,M`, two numbers of executions.
fn numbers(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| text.parse().ok().filter(|&number: &u64| number > 0);
    let both = text.split_once(',').and_then(|(n, m)| number(n).zip(number(m)));
    both.ok_or("expected N,M, where executions are counted from 1".to_owned())
}

/// Parses a percentage to a share.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    let share = number.filter(|number| number.is_finite() && *number >= 0.0).map(|number| number / 100.0);
    share.ok_or("expected a percentage, such as 5%".to_owned())
}

impl Diff {
    /// Returns the root of call paths.
    pub fn root(&self) -> Option<Root> {
        if let Some(function) = &self.function {
            return Some(Root::Function(function.clone()));
        }
        Some(match self.per.as_deref()? {
            "syscall" => Root::SystemCall(String::new()),
            what => match what.strip_prefix("syscall:") {
                Some(name) => Root::SystemCall(name.to_owned()),
                None => Root::Function(what.to_owned()),
            },
        })
    }

    /// Returns the divisor of amounts.
    pub fn divisor(&self) -> Divisor {
        match self.root() {
            None => Divisor::Recording,
            Some(Root::SystemCall(name)) if name.is_empty() => {
                Divisor::Execution("any system call".to_owned())
            }
            Some(root) => Divisor::Execution(root.name().to_owned()),
        }
    }

    /// Returns the kind of rows.
    pub fn rows(&self) -> Rows {
        if self.by == "path" { Rows::Paths } else { Rows::Functions }
    }

    /// Returns the inputs of each side, one per recording.
    pub fn sides(&self) -> Result<Sides<Vec<Input>>, Failure> {
        if self.input.buffer().is_some() {
            return Err(Failure::usage("hodo diff reads recordings, not raw buffers"));
        }
        let files = self.files()?;
        let nth = Sides::new(self.nth.map(|(n, _)| n), self.nth.map(|(_, m)| m));
        let side = |files: Vec<PathBuf>, time: &Option<String>, nth: Option<u64>| {
            let input = |file: PathBuf| Input {
                time: time.clone().or_else(|| self.input.time.clone()),
                call: match (&self.function, nth) {
                    (Some(function), Some(nth)) => Some(format!("{function}#{nth}")),
                    _ => self.input.call.clone(),
                },
                ..self.input.of_files(vec![file])
            };
            files.into_iter().map(input).collect()
        };
        Ok(Sides::new(side(files.a, &self.a_time, nth.a), side(files.b, &self.b_time, nth.b)))
    }

    fn files(&self) -> Result<Sides<Vec<PathBuf>>, Failure> {
        let is_default = self.input.files == [PathBuf::from("perf.data")];
        if !self.a.is_empty() {
            if !is_default {
                return Err(Failure::usage("hodo diff takes either A and B, or --a and --b"));
            }
            return Ok(Sides::new(expand("--a", &self.a)?, expand("--b", &self.b)?));
        }
        match self.input.files.as_slice() {
            [a, b] => Ok(Sides::new(vec![a.clone()], vec![b.clone()])),
            [both] if self.a_time.is_some() || self.nth.is_some() => {
                Ok(Sides::new(vec![both.clone()], vec![both.clone()]))
            }
            _ => Err(Failure::usage(
                "hodo diff needs two sides: A B, --a and --b, --a-time and --b-time of one recording, or --function F --nth N,M",
            )),
        }
    }
}

/// Returns the files that the patterns match, in order, each once.
fn expand(option: &str, patterns: &[String]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for pattern in patterns {
        let wrong = |why: &dyn std::fmt::Display| Failure::usage(format!("{option} {pattern}: {why}"));
        // The name of an existing file is not a pattern, even with wildcard characters.
        if std::fs::exists(pattern).unwrap_or(false) {
            files.push(PathBuf::from(pattern));
            continue;
        }
        let matching = glob::glob(pattern).map_err(|error| wrong(&error))?;
        let matching = matching.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(&error))?;
        if matching.is_empty() {
            return Err(wrong(&"no file matches"));
        }
        files.extend(matching);
    }
    files.sort();
    files.dedup();
    Ok(files)
}

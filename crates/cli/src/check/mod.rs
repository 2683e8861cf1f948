//! `hodo check`: the gate of a pull request.
//!
//! ```text
//! hodo.toml ──► cases ──record, several times──► recordings ──► counts ──┐
//! baseline: a file, or the same file at a revision of git ───────────────┴─► verdicts, exit code
//! ```

mod baseline;
mod measure;

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, builder::PossibleValuesParser};
use hodo_check::{
    Baseline, Case, CaseCounts, Configuration, Verdict, judge,
    report::{FORMATS, Report},
};

use crate::{
    failure::{Failure, INTERRUPTED, LOSS, written},
    output::Destination,
    progress::CtrlC,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo check --save                    measure the cases of hodo.toml and write hodo.baseline
  hodo check                           measure again; exit code 1 if a case grew beyond its limit
  hodo check --against origin/main     compare with the baseline where the branch left origin/main
  hodo check --format markdown -o comment.md
  hodo check --save -- ./prog arg      a command instead of the cases of hodo.toml

hodo.toml:
  [[case]]
  name = \"parse\"
  command = [\"./parser\", \"big.json\"]
  limits = { instructions = \"1%\", allocations = 0 }
  functions = { parse_value = \"2%\" }

Counts are exact, and each case runs several times: only what is more in every run than in any run of the baseline counts as
growth.")]
pub struct Check {
    /// Write the counts to the baseline. What grew is reported and does not fail
    #[arg(long)]
    pub save: bool,
    /// Configuration
    #[arg(long, value_name = "FILE", default_value = "hodo.toml")]
    pub config: PathBuf,
    /// Baseline [default: hodo.baseline beside the configuration, or what that names]
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Read the baseline from git, as it was where the current branch left this revision
    #[arg(long, value_name = "REVISION", conflicts_with = "save")]
    pub against: Option<String>,
    /// Only these cases
    #[arg(long = "case", value_name = "NAME,…", value_delimiter = ',')]
    pub cases: Vec<String>,
    /// How often each case runs [default: 3, or what the configuration says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Keep the recordings in this folder
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = formats())]
    pub format: String,
    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// No messages about progress
    #[arg(short, long)]
    pub quiet: bool,
    /// A command instead of the configuration's cases
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

fn formats() -> PossibleValuesParser {
    PossibleValuesParser::new(
        FORMATS.iter().map(|format| clap::builder::PossibleValue::new(format.name).help(format.help)),
    )
}

/// Runs the command.
pub fn run(command: &Check) -> Result<ExitCode, Failure> {
    let mut configuration = configuration(command)?;
    for case in &mut configuration.cases {
        case.runs = command.runs.unwrap_or(case.runs);
    }
    let folder = command.config.parent().unwrap_or(Path::new(""));
    let path = command.baseline.clone().unwrap_or_else(|| folder.join(&configuration.baseline));
    let known = match &command.against {
        Some(revision) => baseline::at_merge_base(&path, revision)?,
        None => baseline::read(&path)?,
    };
    let mut baseline = known.unwrap_or_default();
    let Some(Judged { verdicts, failure }) = judged(command, &configuration, folder, &mut baseline) else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let has_written = command.save && !baseline.cases.is_empty();
    if has_written {
        write(&path, &baseline)?;
    }
    let format = FORMATS.iter().find(|format| format.name == command.format).expect("clap knows the formats");
    let named = command.config.display().to_string();
    let report = Report { verdicts: &verdicts, configuration: &named };
    if !verdicts.is_empty() {
        let mut out = Destination::open(command.output.as_deref())?;
        written(out.write_all((format.write)(&report).as_bytes()))?;
        out.finish()?;
    }
    if has_written && !command.quiet {
        message!("wrote {}", path.display());
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    if command.save {
        return Ok(ExitCode::SUCCESS);
    }
    let unknown: Vec<&str> =
        verdicts.iter().filter(|verdict| !verdict.is_known).map(|verdict| verdict.case.as_str()).collect();
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        message!("{} has no counts of {names}: `hodo check --save` writes them", path.display());
    }
    let passes = verdicts.iter().all(Verdict::passes);
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::from(LOSS) })
}

/// What the cases gave.
#[derive(Default)]
struct Judged {
    verdicts: Vec<Verdict>,
    /// Of the last case that could not be counted.
    failure: Option<Failure>,
}

/// Measures and judges the cases; if their counts are saved, they replace those of the baseline. `None` if interrupted.
fn judged(
    command: &Check,
    configuration: &Configuration,
    folder: &Path,
    baseline: &mut Baseline,
) -> Option<Judged> {
    let interrupted = CtrlC::watch();
    let mut judged = Judged::default();
    for case in &configuration.cases {
        let counts = match counts(command, configuration, case, folder, &interrupted) {
            Ok(counts) => counts?,
            // The other cases took their time too: their counts are saved and judged.
            Err(error) => {
                if let Some(earlier) = judged.failure.replace(error) {
                    message!("{earlier}");
                }
                continue;
            }
        };
        let known = baseline.cases.get(&case.name);
        // What is saved for the first time has nothing to be compared with.
        if known.is_some() || !command.save {
            judged.verdicts.push(judge(configuration, case, known, &counts));
        }
        if command.save {
            baseline.cases.insert(case.name.clone(), counts);
        }
    }
    Some(judged)
}

fn configuration(command: &Check) -> Result<Configuration, Failure> {
    if !command.command.is_empty() {
        return Ok(Configuration::of_command(command.command.clone()));
    }
    let path = &command.config;
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!(
            "{}: {error}; write a [[case]] with a name and a command, or give a command after --",
            path.display()
        ))
    })?;
    let mut configuration = Configuration::parse(&text)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    for name in &command.cases {
        if configuration.cases.iter().all(|case| case.name != *name) {
            return Err(Failure::usage(format!("{}: no case is named `{name}`", path.display())));
        }
    }
    if !command.cases.is_empty() {
        configuration.cases.retain(|case| command.cases.contains(&case.name));
    }
    Ok(configuration)
}

/// Runs a case as often as it says; `None` if interrupted.
fn counts(
    command: &Check,
    configuration: &Configuration,
    case: &Case,
    folder: &Path,
    interrupted: &CtrlC,
) -> Result<Option<CaseCounts>, Failure> {
    let mut executions = Vec::new();
    for run in 1..=case.runs {
        if !command.quiet {
            message!("{}: run {run} of {}", case.name, case.runs);
        }
        let Some(execution) = measure::execution(configuration, case, folder, command.keep.as_deref(), run)?
        else {
            return Ok(None);
        };
        executions.push(execution);
        if interrupted.is_pressed() {
            return Ok(None);
        }
    }
    let kept: BTreeSet<&str> = case.functions.keys().map(String::as_str).collect();
    Ok(Some(CaseCounts::of(&executions, &kept)))
}

fn write(path: &Path, baseline: &Baseline) -> Result<(), Failure> {
    let mut out = Destination::open(Some(path))?;
    written(out.write_all(baseline.text().as_bytes()))?;
    out.finish()
}

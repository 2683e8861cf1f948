//! Functions as named on the command line.

use std::collections::BTreeSet;

use hodo_engine::{Experiment, NthCalls, Trace, latency};
use hodo_model::{FunctionId, Root};

use crate::failure::Failure;
use clap::Args;

/// Number of functions that a message names.
const SHOWN: usize = 20;

/// The root of the call paths of `hodo report paths`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Call paths")]
pub struct RootArguments {
    /// Only executions of this function; NAME@FILE if several files have it
    #[arg(long, value_name = "FUNC", conflicts_with = "syscall")]
    pub function: Option<String>,
    /// Only the kernel's executions of this system call, such as mmap: from its entry to its return to user space
    #[arg(long, value_name = "NAME")]
    pub syscall: Option<String>,
}

impl RootArguments {
    /// Returns the function or system call, if one is named.
    pub fn root(&self) -> Option<Root> {
        let function = self.function.clone().map(Root::Function);
        function.or_else(|| self.syscall.clone().map(Root::SystemCall))
    }
}

/// Returns the only function named `name`: as in tables, or as in the file, with `@FILE` if several files have one.
pub fn find(name: &str, trace: &Trace<'_>) -> Result<FunctionId, Failure> {
    Ok(latency::function(trace, name)?)
}

/// Returns the root of call paths that the user's root stands for in the recordings: itself, or one with a full name.
/// Rejects a root that is in no recording, or is short for several functions.
pub fn root(root: &Root, experiment: &Experiment) -> Result<Root, Failure> {
    let (mut roots, mut alike) = (BTreeSet::new(), BTreeSet::new());
    experiment.with(|traces| {
        for flow in &traces.flows {
            match flow.modules.find_roots(root) {
                Ok(found) => roots.extend(found),
                Err(names) => alike.extend(names),
            }
        }
    });
    match roots.len() {
        0 => {}
        _ if roots.contains(root) => return Ok(root.clone()),
        1 => return Ok(roots.into_iter().next().expect("it has one")),
        count => {
            let names = roots.iter().take(SHOWN).map(|root| format!("\n  {}", root.name()));
            let more = if count > SHOWN { "\n  …" } else { "" };
            return Err(Failure::usage(format!(
                "{count} functions are called `{}`; write more of the name:{}{more}",
                root.name(),
                names.collect::<String>()
            )));
        }
    }
    let (what, help) = match root {
        Root::Function(name) => (format!("no function `{name}` in the programs of the recording"), ""),
        Root::SystemCall(name) => (
            format!("no kernel function in the recording implements the system call `{name}`"),
            "; `hodo record --engine machine` records the kernel too, and --function names the function of a library",
        ),
    };
    let alike: Vec<String> = alike.into_iter().collect();
    let alike =
        if alike.is_empty() { String::new() } else { format!("; did you mean {}?", alike.join(", ")) };
    Err(Failure::usage(format!("{what}{help}{alike}")))
}

/// Returns the calls named by `FUNC`, `FUNC#N` or `FUNC#N..M`: all, the N-th, or the N-th to the M-th.
pub fn calls(text: &str, trace: &Trace<'_>) -> Result<NthCalls, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "--call {text}: expected FUNC, FUNC#N or FUNC#N..M, where calls are counted from 1"
        ))
    };
    let (name, numbers) = match text.rsplit_once('#') {
        None => (text, 1..=u64::MAX),
        Some((name, numbers)) => {
            let (from, to) = numbers.split_once("..").unwrap_or((numbers, numbers));
            let number = |text: &str| text.parse::<u64>().ok().filter(|&number| number > 0);
            let (from, to) = number(from).zip(number(to)).ok_or_else(wrong)?;
            (name, from..=to)
        }
    };
    if numbers.is_empty() {
        return Err(wrong());
    }
    Ok(NthCalls { function: find(name, trace)?, numbers })
}

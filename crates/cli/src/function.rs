//! Functions as named on the command line.

use hodo_engine::{FlowTrace, NthCalls};
use hodo_model::{FunctionId, Names};

use crate::failure::Failure;

/// Returns the only function named `name`: as in tables, or as in the file, with `@FILE` if several files have one.
pub fn find(name: &str, experiment: &FlowTrace<'_>) -> Result<FunctionId, Failure> {
    const SHOWN: usize = 20;
    match experiment.modules.functions_named(name)[..] {
        [function] => Ok(function),
        [] => Err(Failure::usage(format!(
            "no function `{name}` in the programs of the recording; `hodo report functions` lists them"
        ))),
        ref several => {
            let lines = several.iter().take(SHOWN).map(|&function| {
                let (name, module) = experiment.modules.names(function);
                let address = experiment.modules.start(function);
                format!("\n  {name}@{module} at {address:#x}")
            });
            let more = if several.len() > SHOWN { "\n  …" } else { "" };
            let list = lines.collect::<String>() + more;
            Err(Failure::usage(format!(
                "{} functions are called `{name}`; write NAME@FILE, or 0xADDRESS@FILE:{list}",
                several.len()
            )))
        }
    }
}

/// Returns the calls named by `FUNC`, `FUNC#N` or `FUNC#N..M`: all, the N-th, or the N-th to the M-th.
pub fn calls(text: &str, experiment: &FlowTrace<'_>) -> Result<NthCalls, Failure> {
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
    Ok(NthCalls { function: find(name, experiment)?, numbers })
}

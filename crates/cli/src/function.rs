//! Functions, as the command line names them.

use hodo_engine::{FlowTrace, NthCalls, latency};
use hodo_model::FunctionId;

use crate::failure::Failure;

/// The one function that people call `name`: as it is in tables, or as the file has it, and with
/// `@FILE` where several files have one.
pub fn find(name: &str, experiment: &FlowTrace<'_>) -> Result<FunctionId, Failure> {
    Ok(latency::function(experiment, name)?)
}

/// The calls that `FUNC`, `FUNC#N` or `FUNC#N..M` names: all, the N-th, or the N-th to the M-th.
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

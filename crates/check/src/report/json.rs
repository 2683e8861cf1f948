//! Verdicts as JSON.

use serde_json::{Value, json};

use super::Report;
use crate::{
    FunctionName, Spread, Verdict,
    causes::{Cause, What},
    verdict::{Change, Outcome, Subject},
};

pub(super) fn write(report: &Report<'_>) -> String {
    let value = json!({
        "schema": "hodo-check-1",
        "passed": report.verdicts.iter().all(Verdict::passes),
        "cases": report.verdicts.iter().map(verdict).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

fn verdict(verdict: &Verdict) -> Value {
    json!({
        "name": verdict.case,
        "runs": verdict.runs,
        "passed": verdict.passes(),
        "has_baseline": verdict.is_known,
        "counts": verdict.changes.iter().map(change).collect::<Vec<_>>(),
        "causes": verdict.causes.iter().map(cause).collect::<Vec<_>>(),
        "varying": verdict.varying.iter().map(|varying| json!({
            "function": function(&varying.function),
            "instructions": varying.width,
        })).collect::<Vec<_>>(),
    })
}

fn change(change: &Change) -> Value {
    let (quantity, of) = match &change.subject {
        Subject::Total(quantity) => (quantity.name(), Value::Null),
        Subject::Function(name) => ("instructions", function(name)),
    };
    let share = change.before.change(&change.now);
    json!({
        "quantity": quantity,
        "function": of,
        "before": spread(&change.before),
        "now": spread(&change.now),
        "change": share.is_finite().then_some(share),
        "limit": change.limit.map(|limit| limit.to_string()),
        "outcome": match change.outcome {
            Outcome::Over => "over",
            Outcome::Changed => "changed",
            Outcome::Same => "same",
        },
    })
}

fn spread(spread: &Spread) -> Value {
    json!({ "low": spread.low, "median": spread.middle, "high": spread.high })
}

fn function(name: &FunctionName) -> Value {
    json!({ "name": name.function, "module": name.module })
}

fn cause(cause: &Cause) -> Value {
    let what = match &cause.what {
        What::Own { calls, before, now } => json!({
            "kind": "own", "calls": calls, "instructions_per_call_before": before, "instructions_per_call": now,
        }),
        What::Calls { callee, before, now } => json!({
            "kind": "calls", "callee": function(callee), "calls_before": before, "calls": now,
        }),
    };
    json!({
        "function": function(&cause.function),
        "instructions": cause.instructions.round(),
        "what": what,
        "text": cause.sentence(),
    })
}

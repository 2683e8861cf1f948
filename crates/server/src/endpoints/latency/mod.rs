//! `latency/…`: executions of a function, or between markers.
//!
//! All take the parameters of a part of the inputs (`recording`, `t0`, `t1`, `thread`), and one of `function`, `pair`,
//! `from` with `to`, or `place`.
//!
//! | path | further parameters | answer |
//! |---|---|---|
//! | `latency/pairs` | none at all | JSON: the named pairs of markers |
//! | `latency/percentiles` | – | a row for each measure |
//! | `latency/histogram` | – | bins |
//! | `latency/executions` | measure, from_value, until_value | JSON: how many are in the range, and the greatest |
//! | `latency/groups` | measure, fast, slow | JSON: number and sum of those below `fast`, from `slow` on, and between |
//! | `latency/at` | after (may be missing) | JSON: all that begin from `after` on in order of time, at most 1,000 |
//! | `latency/trees` | nth | the call tree of an execution beside a typical one |

use std::{cmp::Reverse, sync::Arc};

use serde_json::{Value, json};

use super::paths::part;
use crate::{
    answer::{Answer, Endpoint, Failure, Question, Work},
    flow::{Execution, Latency, Measured},
};

/// Executions of an answer, at most.
const MOST: usize = 1000;
/// Rows of a tree, at most.
const MOST_PATHS: usize = 50_000;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "latency/pairs", work: Work::Query, answer: pairs },
    Endpoint { path: "latency/percentiles", work: Work::Pass, answer: percentiles },
    Endpoint { path: "latency/histogram", work: Work::Pass, answer: histogram },
    Endpoint { path: "latency/executions", work: Work::Pass, answer: executions },
    Endpoint { path: "latency/groups", work: Work::Pass, answer: groups },
    Endpoint { path: "latency/at", work: Work::Pass, answer: at },
    Endpoint { path: "latency/trees", work: Work::Pass, answer: trees },
];

fn pairs(question: &Question<'_>) -> Result<Answer, Failure> {
    Answer::json(&question.session.inputs.pairs())
}

fn percentiles(question: &Question<'_>) -> Result<Answer, Failure> {
    Answer::table(&measured(question)?.percentiles, MOST)
}

fn histogram(question: &Question<'_>) -> Result<Answer, Failure> {
    Answer::table(&measured(question)?.histogram, MOST)
}

fn executions(question: &Question<'_>) -> Result<Answer, Failure> {
    let latency = measured(question)?;
    let (from, until): (u64, u64) = (question.number("from_value")?, question.number("until_value")?);
    let all = values(question, &latency)?;
    let mut inside: Vec<(u64, &Execution)> =
        all.into_iter().filter(|(value, _)| (from..until).contains(value)).collect();
    inside.sort_by_key(|(value, execution)| (Reverse(*value), execution.nth));
    let list: Vec<Value> = inside.iter().take(MOST).map(|(_, execution)| shown(execution)).collect();
    Answer::json(&json!({ "count": inside.len(), "executions": list }))
}

/// Returns the complete executions with their values of the question's measure.
fn values<'l>(question: &Question<'_>, latency: &'l Latency) -> Result<Vec<(u64, &'l Execution)>, Failure> {
    let value: fn(&Execution) -> Option<u64> = match question.text("measure") {
        "time_ns" => |execution| execution.time,
        "instructions" => |execution| execution.instructions,
        "cycles" => |execution| execution.cycles,
        other => {
            return Err(Failure::Refused(format!(
                "measure={other}: expected time_ns, instructions or cycles"
            )));
        }
    };
    let complete = latency.executions.iter().filter(|execution| execution.is_complete);
    Ok(complete.filter_map(|execution| Some((value(execution)?, execution))).collect())
}

/// Counts and sums the fast, the typical and the slow executions.
fn groups(question: &Question<'_>) -> Result<Answer, Failure> {
    let latency = measured(question)?;
    let (fast, slow): (u64, u64) = (question.number("fast")?, question.number("slow")?);
    let mut sums = [(0u64, 0u64); 3];
    for (value, _) in values(question, &latency)? {
        let group = usize::from(value >= fast) + usize::from(value >= slow.max(fast));
        let (count, sum) = sums[group];
        sums[group] = (count + 1, sum.saturating_add(value));
    }
    let sums = sums.map(|(count, sum)| json!({ "count": count, "sum": sum }));
    Answer::json(&json!({ "fast": sums[0], "typical": sums[1], "slow": sums[2] }))
}

fn at(question: &Question<'_>) -> Result<Answer, Failure> {
    let latency = measured(question)?;
    let after: u64 = if question.text("after").is_empty() { 0 } else { question.number("after")? };
    let mut all: Vec<&Execution> = latency
        .executions
        .iter()
        .filter(|execution| execution.begin.is_some_and(|begin| begin >= after))
        .collect();
    all.sort_by_key(|execution| (execution.begin, execution.nth));
    let list: Vec<Value> = all.iter().take(MOST).map(|execution| shown(execution)).collect();
    Answer::json(&json!({ "count": all.len(), "executions": list }))
}

/// An execution for the page; instants are text, because doubles do not hold them.
fn shown(execution: &Execution) -> Value {
    json!({
        "nth": execution.nth,
        "thread": &*execution.thread,
        "begin": execution.begin.map(|begin| begin.to_string()),
        "time_ns": execution.time,
        "instructions": execution.instructions,
        "cycles": execution.cycles,
        "caller": &*execution.caller,
    })
}

fn trees(question: &Question<'_>) -> Result<Answer, Failure> {
    let (part, what, nth) = (part(question)?, what(question)?, question.number("nth")?);
    question.kept_or(&format!("trees {part:?} {what:?} {nth}"), || {
        let table = question.session.inputs.trees(&part, &what, nth, question.stop)?;
        table.map(|table| Answer::table(&table, MOST_PATHS)).transpose()
    })
}

fn what(question: &Question<'_>) -> Result<Measured, Failure> {
    let text = |name| Some(question.text(name).to_owned()).filter(|text| !text.is_empty());
    let function = text("function").map(Measured::Function);
    let of_pair = || text("pair").map(Measured::Pair);
    let of_markers = || Some(Measured::Markers(text("from")?, text("to")?));
    let of_place = || text("place").map(Measured::Place);
    let what = function.or_else(of_pair).or_else(of_markers).or_else(of_place);
    what.ok_or_else(|| Failure::Refused("expected a function, a pair, two markers or a place".to_owned()))
}

/// Measures, or returns what was measured last.
fn measured(question: &Question<'_>) -> Result<Arc<Latency>, Failure> {
    let (part, what) = (part(question)?, what(question)?);
    let key = format!("{part:?} {what:?}");
    if let Some(known) = question.session.measured(&key) {
        return Ok(known);
    }
    let made = question.session.inputs.latency(&part, &what, question.stop)?;
    let latency = Arc::new(made.filter(|_| !question.is_stopped()).ok_or(Failure::Stopped)?);
    question.session.keep_measured(key, &latency);
    Ok(latency)
}

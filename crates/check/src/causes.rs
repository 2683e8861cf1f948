//! Why a case grew: the functions that do more than they did in each of their calls.
//!
//! A function that is called more often grows with its callers, without having changed. So each function's own instructions, and
//! its calls of others, are compared with what its calls in the baseline would have cost, had there been as many. What is beyond
//! that is the function's own doing.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    CaseCounts, FunctionName,
    baseline::FunctionSpread,
    report::{grouped, short},
};

/// Causes that are named, at most.
const MOST: usize = 3;
/// A cause is named if it accounts for at least this share of the largest.
const WORTH: f64 = 0.2;

/// What a function does more of.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Its own instructions, in each of its calls.
    Own {
        /// Calls of the function now.
        calls: u64,
        /// Instructions of a call before; `None` if the function is new.
        before: Option<f64>,
        /// Instructions of a call now.
        now: f64,
    },
    /// Calls of another function.
    Calls {
        /// The function that it calls.
        callee: FunctionName,
        /// Calls before.
        before: u64,
        /// Calls now.
        now: u64,
    },
}

/// A function that does more than before in each of its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// The function.
    pub function: FunctionName,
    /// What it does more of.
    pub what: What,
    /// The instructions that this costs.
    pub instructions: f64,
}

impl Cause {
    /// The cause as a clause.
    pub fn sentence(&self) -> String {
        let function = &self.function.function;
        match &self.what {
            What::Own { calls, before: Some(before), now } => format!(
                "`{function}` executes {} more instructions, {} instead of {} in each of {}",
                short(self.instructions),
                grouped(now.round() as u64),
                grouped(before.round() as u64),
                counted(*calls, "call")
            ),
            What::Own { before: None, .. } => {
                format!("`{function}` is new and executes {} instructions", short(self.instructions))
            }
            What::Calls { callee, before: 0, now } => format!(
                "`{function}` calls `{}` {} now, which costs {} instructions",
                callee.function,
                counted(*now, "time"),
                short(self.instructions)
            ),
            What::Calls { callee, before, now } => format!(
                "{} of `{}` from `{function}` ({} instead of {}), which cost {} instructions",
                match now.saturating_sub(*before) {
                    1 => "one more call".to_owned(),
                    more => format!("{} more calls", grouped(more)),
                },
                callee.function,
                grouped(*now),
                grouped(*before),
                short(self.instructions)
            ),
        }
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// The functions that account for the growth of a case, the largest first.
pub fn causes(before: &CaseCounts, now: &CaseCounts) -> Vec<Cause> {
    let callees_before = callees(before);
    let callees_now = callees(now);
    let mut causes = Vec::new();
    for (name, function) in &now.functions {
        let known = before.functions.get(name);
        own(name, known, function, &mut causes);
        let none = BTreeMap::new();
        let (old, new) = (callees_before.get(name).unwrap_or(&none), callees_now.get(name).unwrap_or(&none));
        // A new function's callees are its price, and its caller is the cause.
        let Some(known) = known else { continue };
        for callee in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let calls = |of: &BTreeMap<&FunctionName, u64>| of.get(*callee).copied().unwrap_or(0);
            let (before_calls, now_calls) = (calls(old), calls(new));
            let more = now_calls as f64 - before_calls as f64 * growth_of_calls(known, function);
            let price = price(name, callee, before, now);
            let what = What::Calls { callee: (*callee).clone(), before: before_calls, now: now_calls };
            causes.push(Cause { function: name.clone(), what, instructions: more * price });
        }
    }
    causes.retain(|cause| cause.instructions >= 1.0);
    causes
        .sort_by(|a, b| b.instructions.total_cmp(&a.instructions).then_with(|| a.function.cmp(&b.function)));
    let largest = causes.first().map_or(0.0, |cause| cause.instructions);
    causes.retain(|cause| cause.instructions >= largest * WORTH);
    causes.truncate(MOST);
    causes
}

/// Adds what a function's own instructions cost more.
fn own(name: &FunctionName, known: Option<&FunctionSpread>, now: &FunctionSpread, causes: &mut Vec<Cause>) {
    let calls = now.calls.middle.max(1);
    let each = now.own.middle as f64 / calls as f64;
    let (before, more) = match known {
        Some(known) => {
            let more = now.own.middle as f64 - known.own.middle as f64 * growth_of_calls(known, now);
            (Some(known.own.middle as f64 / known.calls.middle.max(1) as f64), more)
        }
        // What calls a new function is the cause, if the caller is known.
        None if !now.callers.is_empty() => return,
        None => (None, now.own.middle as f64),
    };
    let what = What::Own { calls, before, now: each };
    causes.push(Cause { function: name.clone(), what, instructions: more });
}

/// How many times as often a function is called as before.
fn growth_of_calls(before: &FunctionSpread, now: &FunctionSpread) -> f64 {
    now.calls.middle.max(1) as f64 / before.calls.middle.max(1) as f64
}

/// The instructions of a call: the fewer of before and now, as additional calls may be shorter or longer than the others.
fn price(caller: &FunctionName, callee: &FunctionName, before: &CaseCounts, now: &CaseCounts) -> f64 {
    let of = |counts: &CaseCounts| {
        let function = counts.functions.get(callee)?;
        // The total of a function that calls itself is in its outermost calls.
        let instructions = if caller == callee { function.own } else { function.total };
        (function.calls.middle > 0).then(|| instructions.middle as f64 / function.calls.middle as f64)
    };
    let prices = [of(before), of(now)];
    prices.into_iter().flatten().min_by(f64::total_cmp).unwrap_or(0.0)
}

/// How often each function calls each other one.
fn callees(counts: &CaseCounts) -> BTreeMap<&FunctionName, BTreeMap<&FunctionName, u64>> {
    let mut callees: BTreeMap<&FunctionName, BTreeMap<&FunctionName, u64>> = BTreeMap::new();
    for (name, function) in &counts.functions {
        for (caller, calls) in &function.callers {
            callees.entry(caller).or_default().insert(name, calls.middle);
        }
    }
    callees
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;

    /// A function, its own and its total instructions, its calls, and the calls by each caller.
    struct Row(&'static str, u64, u64, u64, &'static [(&'static str, u64)]);

    fn name(function: &str) -> FunctionName {
        FunctionName { function: function.to_owned(), module: "program".to_owned() }
    }

    fn counts(rows: &[Row]) -> CaseCounts {
        let function = |Row(_, own, total, calls, callers): &Row| FunctionSpread {
            own: Spread::exact(*own),
            total: Spread::exact(*total),
            calls: Spread::exact(*calls),
            callers: callers.iter().map(|(caller, calls)| (name(caller), Spread::exact(*calls))).collect(),
        };
        let functions = rows.iter().map(|row| (name(row.0), function(row))).collect();
        CaseCounts { runs: 1, functions, ..CaseCounts::default() }
    }

    fn sentences(before: &[Row], now: &[Row]) -> Vec<String> {
        causes(&counts(before), &counts(now)).iter().map(Cause::sentence).collect()
    }

    const BEFORE: &[Row] = &[
        Row("main", 100, 111_100, 1, &[]),
        Row("push", 10_000, 111_000, 100, &[("main", 100)]),
        Row("grow", 101_000, 101_000, 10, &[("push", 10)]),
    ];

    #[test]
    fn a_function_that_does_more_in_each_call_is_named() {
        let now = [
            Row("main", 100, 161_100, 1, &[]),
            Row("push", 60_000, 161_000, 100, &[("main", 100)]),
            Row("grow", 101_000, 101_000, 10, &[("push", 10)]),
        ];
        let expected = "`push` executes 50,000 more instructions, 600 instead of 100 in each of 100 calls";
        assert_eq!(sentences(BEFORE, &now), [expected]);
    }

    #[test]
    fn the_caller_that_calls_more_often_is_named_and_not_what_it_calls() {
        let now = [
            Row("main", 100, 323_200, 1, &[]),
            Row("push", 10_000, 323_100, 100, &[("main", 100)]),
            Row("grow", 313_100, 313_100, 31, &[("push", 31)]),
        ];
        let expected =
            "21 more calls of `grow` from `push` (31 instead of 10), which cost 212,100 instructions";
        assert_eq!(sentences(BEFORE, &now), [expected]);
        let now = [
            Row("main", 100, 121_200, 1, &[]),
            Row("push", 10_000, 121_100, 100, &[("main", 100)]),
            Row("grow", 111_100, 111_100, 11, &[("push", 11)]),
        ];
        let expected =
            "one more call of `grow` from `push` (11 instead of 10), which cost 10,100 instructions";
        assert_eq!(sentences(BEFORE, &now), [expected]);
    }

    #[test]
    fn a_new_callee_is_its_callers_doing() {
        let now = [
            Row("main", 100, 131_100, 1, &[]),
            Row("push", 10_000, 131_000, 100, &[("main", 100)]),
            Row("grow", 101_000, 101_000, 10, &[("push", 10)]),
            Row("check", 20_000, 20_000, 100, &[("push", 100)]),
        ];
        let expected = "`push` calls `check` 100 times now, which costs 20,000 instructions";
        assert_eq!(sentences(BEFORE, &now), [expected]);
    }

    #[test]
    fn functions_that_are_called_as_often_for_each_call_of_their_caller_have_not_changed() {
        let now = [
            Row("main", 100, 222_100, 1, &[]),
            Row("push", 20_000, 222_000, 200, &[("main", 200)]),
            Row("grow", 202_000, 202_000, 20, &[("push", 20)]),
        ];
        let expected =
            "100 more calls of `push` from `main` (200 instead of 100), which cost 111,000 instructions";
        assert_eq!(sentences(BEFORE, &now), [expected]);
    }
}

//! What changed between the baseline and the executions of a case.

use crate::{
    Case, CaseCounts, Configuration, FunctionName, Limit, Quantity, Spread,
    causes::{self, Cause},
};

/// Functions that are named as the source of variance, at most.
const VARYING: usize = 3;

/// What a change is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A sum over the whole case.
    Total(Quantity),
    /// A function's own instructions.
    Function(FunctionName),
}

impl Subject {
    /// Its name in reports.
    pub fn name(&self) -> String {
        match self {
            Subject::Total(quantity) => quantity.name().to_owned(),
            Subject::Function(name) => format!("instructions of `{}`", name.function),
        }
    }
}

/// How a change is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It grew beyond its limit, in every execution.
    Over,
    /// It grew or shrank in every execution, and may.
    Changed,
    /// Executions of one program differ as much.
    Same,
}

/// A count before and now.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What was counted.
    pub subject: Subject,
    /// The baseline's count.
    pub before: Spread,
    /// The count now.
    pub now: Spread,
    /// How much it may grow.
    pub limit: Option<Limit>,
    /// The judgement.
    pub outcome: Outcome,
}

/// A function whose instructions differ between equal executions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Varying {
    /// The function.
    pub function: FunctionName,
    /// The greatest difference, in instructions.
    pub width: u64,
}

/// What is said of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The case's name.
    pub case: String,
    /// How often it ran.
    pub runs: u32,
    /// Its counts; of one without a baseline, these are compared with themselves.
    pub changes: Vec<Change>,
    /// Whether there is a baseline, with all that is limited.
    pub is_known: bool,
    /// Why it grew, if it did.
    pub causes: Vec<Cause>,
    /// What differs between its executions, the largest first.
    pub varying: Vec<Varying>,
}

impl Verdict {
    /// Whether there is a baseline, and nothing grew beyond its limit.
    pub fn passes(&self) -> bool {
        self.is_known && self.changes.iter().all(|change| change.outcome != Outcome::Over)
    }
}

/// Compares the counts of a case with its baseline.
pub fn judge(
    configuration: &Configuration,
    case: &Case,
    before: Option<&CaseCounts>,
    now: &CaseCounts,
) -> Verdict {
    let known = before.unwrap_or(now);
    let mut changes = Vec::new();
    for (&quantity, &count) in &now.totals {
        let old = known.totals.get(&quantity).copied().unwrap_or(count);
        changes.push(change(Subject::Total(quantity), old, count, configuration.limit(case, quantity)));
    }
    for (name, &limit) in &case.functions {
        let of = |counts: &CaseCounts| {
            let named = counts.functions.iter().find(|(known, _)| known.function == *name);
            named.map(|(name, function)| (name.clone(), function.own))
        };
        if let Some((name, count)) = of(now) {
            let old = of(known).map_or(Spread::default(), |(_, count)| count);
            changes.push(change(Subject::Function(name), old, count, Some(limit)));
        }
    }
    let has_grown = changes
        .iter()
        .any(|change| change.outcome != Outcome::Same && change.before.middle < change.now.middle);
    Verdict {
        case: case.name.clone(),
        runs: now.runs,
        changes,
        is_known: before.is_some_and(|before| has_limited(configuration, case, before)),
        causes: if has_grown { causes::causes(known, now) } else { Vec::new() },
        varying: varying(now),
    }
}

/// Whether a baseline has every quantity that has a limit: one that was saved before the limit was written may not.
fn has_limited(configuration: &Configuration, case: &Case, before: &CaseCounts) -> bool {
    let mut limited = Quantity::ALL.iter().filter(|quantity| configuration.limit(case, **quantity).is_some());
    limited.all(|quantity| before.totals.contains_key(quantity))
}

fn change(subject: Subject, before: Spread, now: Spread, limit: Option<Limit>) -> Change {
    let growth = before.certain_growth(&now);
    let is_over = growth > 0 && limit.is_some_and(|limit| limit.is_exceeded(before.high, growth));
    let outcome = match is_over {
        true => Outcome::Over,
        false if growth > 0 || before.certain_shrinkage(&now) > 0 => Outcome::Changed,
        false => Outcome::Same,
    };
    Change { subject, before, now, limit, outcome }
}

fn varying(counts: &CaseCounts) -> Vec<Varying> {
    let mut varying: Vec<Varying> = counts
        .functions
        .iter()
        .filter(|(_, function)| function.own.width() > 0)
        .map(|(name, function)| Varying { function: name.clone(), width: function.own.width() })
        .collect();
    varying.sort_by(|a, b| b.width.cmp(&a.width).then_with(|| a.function.cmp(&b.function)));
    varying.truncate(VARYING);
    varying
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(before: [u64; 3], now: [u64; 3], limit: Option<Limit>) -> Outcome {
        change(Subject::Total(Quantity::Calls), Spread::of(before), Spread::of(now), limit).outcome
    }

    #[test]
    fn a_limit_that_is_newer_than_the_baseline_needs_another_one() {
        let mut configuration = Configuration::of_command(vec!["./prog".to_owned()]);
        let counts = |quantities: &[Quantity]| CaseCounts {
            totals: quantities.iter().map(|quantity| (*quantity, Spread::exact(7))).collect(),
            ..CaseCounts::default()
        };
        let (before, now) =
            (counts(&[Quantity::Instructions]), counts(&[Quantity::Instructions, Quantity::Branches]));
        let passes = |configuration: &Configuration, before: &CaseCounts| {
            judge(configuration, &configuration.cases[0], Some(before), &now).passes()
        };
        assert!(passes(&configuration, &before));
        configuration.limits.insert("branches".to_owned(), Limit::Count(0));
        assert!(!passes(&configuration, &before));
        assert!(passes(&configuration, &now));
    }

    #[test]
    fn only_growth_beyond_all_executions_and_the_limit_fails() {
        let limit = Some(Limit::Share(0.01));
        assert_eq!(outcome([1000; 3], [1011; 3], limit), Outcome::Over);
        assert_eq!(outcome([1000; 3], [1010; 3], limit), Outcome::Changed);
        assert_eq!(outcome([1000; 3], [990; 3], limit), Outcome::Changed);
        assert_eq!(outcome([1000; 3], [1000; 3], limit), Outcome::Same);
        // Executions vary by more than they grew.
        assert_eq!(outcome([1000, 1050, 1100], [1090, 1200, 1300], limit), Outcome::Same);
        assert_eq!(outcome([1000; 3], [9000; 3], None), Outcome::Changed);
        assert_eq!(outcome([0; 3], [1; 3], Some(Limit::Count(0))), Outcome::Over);
    }
}

//! The law for events: any cuts in time, and any grouping of merges, give the tables of one chunk.

use hodo_model::{AnyAnalysis, Selection, pass::Pass};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    cut,
    traces::{
        config,
        events::{NAMES, Plan, events, plan},
        tables,
    },
};

/// A trace that is cut, and whose parts are merged.
#[derive(Clone, Debug)]
struct Case {
    plan: Plan,
    /// Whether the trace is cut after each event.
    cuts: Vec<bool>,
    /// The order of merges.
    choices: Vec<usize>,
}

fn case() -> impl Strategy<Value = Case> {
    let cuts = prop::collection::vec(prop::bool::weighted(0.3), 80);
    (plan(), cuts, prop::collection::vec(0usize..80, 1..8)).prop_map(|(plan, cuts, choices)| Case {
        plan,
        cuts,
        choices,
    })
}

fn holds(
    analysis: &dyn AnyAnalysis,
    views: &[&str],
    Case { plan, cuts, choices }: &Case,
) -> Result<(), TestCaseError> {
    let mut events = events(plan);
    let names = NAMES.map(str::to_owned).to_vec();
    let (whole, merged) = cut::both((analysis, views), &mut events, &names, |end| cuts[end], choices);
    prop_assert_eq!(whole, merged);
    Ok(())
}

/// Checks that the tables of some views are the same for every cut, in `cases` cases.
pub(crate) fn holds_always(analysis: &dyn AnyAnalysis, views: &[&str], cases: u32) -> Result<(), String> {
    let mut runner = TestRunner::new(config(cases));
    runner.run(&case(), |case| holds(analysis, views, &case)).map_err(|error| error.to_string())
}

/// Whether a broken analysis is caught. The cases are fixed: with random ones, one run in many caught none.
pub(crate) fn is_caught(analysis: &dyn AnyAnalysis, views: &[&str]) -> bool {
    let always_the_same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    // `config` alone lets `PROPTEST_CASES` decide how many: too few may catch none.
    let config = ProptestConfig { cases: 2000, max_shrink_iters: 0, ..config(2000) };
    let mut runner = TestRunner::new_with_rng(config, always_the_same);
    runner.run(&case(), |case| holds(analysis, views, &case)).is_err()
}

/// Whether two analyses make the same table of a selection.
pub(crate) fn are_same(
    cheaper: &dyn AnyAnalysis,
    usual: &dyn AnyAnalysis,
    selection: &Selection,
) -> Result<(), String> {
    let mut runner = TestRunner::new(config(100));
    let same = runner.run(&plan(), |plan| {
        let names = NAMES.map(str::to_owned).to_vec();
        let table = |analysis| {
            let (pass, mut events) = (Pass::new(&[analysis]), events(&plan));
            let whole = tables::fold(&pass, &mut events, &names);
            tables::table(&pass, &whole, &events, &names, selection)
        };
        prop_assert_eq!(table(cheaper), table(usual));
        Ok(())
    });
    same.map_err(|error| error.to_string())
}

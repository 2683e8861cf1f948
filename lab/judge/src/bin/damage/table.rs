//! The results of all trials, one line per way to damage.

use crate::{
    mutation::{KINDS, Kind},
    recovered::Recovered,
    trial::Trial,
};

/// Prints the table; returns whether the median of what perf recovers, over all trials, is more than ours. For single
/// ways to damage it may be, as perf continues across a cut or up to the branch after the last proven one: the table
/// shows the wrong instructions as well.
pub(crate) fn print(trials: &[&Trial], perf: bool) -> bool {
    println!(
        "\n{:26} {:>6} {:>10} {:>7}   {:>9} {:>9} {:>9} {:>9}   {:>11} {:>11}",
        "damage", "trials", "violations", "gaps", "median", "perf's", "mean", "perf's", "wrong", "perf's"
    );
    let mut worse = false;
    let rows = KINDS.iter().map(|kind| (kind.name(), Some(*kind))).chain([("all", None)]);
    for (name, kind) in rows {
        let of_kind: Vec<&Trial> = trials.iter().copied().filter(|trial| wants(kind, trial)).collect();
        if of_kind.is_empty() {
            continue;
        }
        let ours = Shares::new(&of_kind, |trial| trial.ours);
        let theirs = Shares::new(&of_kind, |trial| trial.perf);
        println!(
            "{name:26} {:6} {:10} {:7}   {:8.3}% {:8.3}% {:8.3}% {:8.3}%   {:11} {:11}",
            of_kind.len(),
            of_kind.iter().filter(|trial| trial.violation.is_some()).count(),
            of_kind.iter().map(|trial| trial.gaps).sum::<u64>(),
            ours.median,
            theirs.median,
            ours.mean,
            theirs.mean,
            ours.wrong,
            theirs.wrong,
        );
        worse = perf && ours.median < theirs.median;
    }
    worse
}

fn wants(kind: Option<Kind>, trial: &Trial) -> bool {
    kind.is_none_or(|kind| kind == trial.kind)
}

/// The share of recovered instructions, in percent, over many trials.
struct Shares {
    median: f64,
    mean: f64,
    /// Instructions that are shown and did not run.
    wrong: u64,
}

impl Shares {
    fn new(trials: &[&Trial], recovered: impl Fn(&Trial) -> Recovered) -> Shares {
        let mut shares: Vec<f64> =
            trials.iter().map(|trial| 100.0 * recovered(trial).right as f64 / trial.ran as f64).collect();
        shares.sort_by(f64::total_cmp);
        let middle = shares.len() / 2;
        let median =
            if shares.len() % 2 == 1 { shares[middle] } else { (shares[middle - 1] + shares[middle]) / 2.0 };
        Shares {
            median,
            mean: shares.iter().sum::<f64>() / shares.len() as f64,
            wrong: trials.iter().map(|trial| recovered(trial).wrong).sum(),
        }
    }
}

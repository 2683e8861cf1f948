//! Simulates slewed clocks and compares their intervals with the truth: each must be covered, or refused as `hodo sync`
//! refuses it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use hodo_sync::{EdgeReport, Method};

use crate::{
    simulator::slews::{self, Slew},
    verdict::COVERED,
};

/// The name of the simulation for `--only`.
pub(crate) const NAME: &str = "slews";

/// Random times of the slewed clock that are compared.
const TIMES: usize = 20_000;

/// The assumed wander of each clock, in ppb per second.
const WANDER: u64 = 1_000;

/// How well the intervals of a slewed clock hold.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    /// The share of times whose interval contains the truth.
    covered: f64,
    refused: bool,
    breaks_bounds: bool,
}

/// Simulates all slews; prints a summary, and returns those that are neither covered nor refused.
pub(crate) fn judge(seed: u64) -> Vec<String> {
    let all = slews::all();
    let verdicts = simulate(&all, seed, Method::Bounded);
    let covered = verdicts.iter().filter(|verdict| verdict.covered >= COVERED).count();
    let refused = verdicts.iter().filter(|verdict| verdict.refused).count();
    let beyond = verdicts.iter().filter(|verdict| verdict.breaks_bounds).count();
    let least = verdicts.iter().map(|verdict| verdict.covered).fold(1.0, f64::min);
    println!(
        "{} simulated slews: {covered} covered, {refused} refused, {beyond} beyond the assumed bounds; least coverage {:.2} %",
        all.len(),
        least * 100.0
    );
    broken(&all, &verdicts)
}

fn broken(all: &[Slew], verdicts: &[Verdict]) -> Vec<String> {
    let missed =
        all.iter().zip(verdicts).filter(|(_, verdict)| verdict.covered < COVERED && !verdict.refused);
    let sentence = |(slew, verdict): (&Slew, &Verdict)| {
        format!("slewed by {slew}: {:.3} % of the intervals hold the truth", verdict.covered * 100.0)
    };
    missed.map(sentence).collect()
}

/// Simulates slews on all processors; returns their verdicts, in their order.
fn simulate(all: &[Slew], seed: u64, method: Method) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut verdicts = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slew) = all.get(index) else { return verdicts };
            verdicts.push((index, judge_slew(slew, seed, method)));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut verdicts: Vec<(usize, Verdict)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a simulation panicked")).collect()
    });
    verdicts.sort_unstable_by_key(|(index, _)| *index);
    verdicts.into_iter().map(|(_, verdict)| verdict).collect()
}

/// Simulates a slew and solves its clocks.
fn judge_slew(slew: &Slew, seed: u64, method: Method) -> Verdict {
    let mut world = slew.world(seed);
    let timeline = world.full_graph(WANDER).solve(method);
    let report = timeline.report();
    let refused = report.edges.iter().any(EdgeReport::is_refuted);
    let breaks_bounds = report.clocks.iter().any(|clock| clock.breaks_bounds);
    Verdict { covered: world.judge(&timeline, TIMES).coverage(), refused, breaks_bounds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slew_that_is_neither_covered_nor_refused_is_noticed() {
        let all: Vec<Slew> =
            slews::all().into_iter().filter(|slew| slew.ppm == 50.0 && slew.seconds == 6.0).take(4).collect();
        let mut verdicts = simulate(&all, 0, Method::Bounded);
        assert_eq!(broken(&all, &verdicts), [""; 0]);
        // A slewed clock does not follow one line.
        verdicts[1] = judge_slew(&all[1], 0, Method::Hull);
        let broken_now = broken(&all, &verdicts);
        assert!(broken_now.len() == 1 && broken_now[0].contains(&all[1].to_string()), "{broken_now:?}");
        verdicts[1].refused = true;
        assert_eq!(broken(&all, &verdicts), [""; 0]);
    }
}

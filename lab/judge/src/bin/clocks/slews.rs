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

/// How the intervals of a slewed clock fare.
#[derive(Clone, Copy, Debug)]
struct Fared {
    /// The share of times whose interval contains the truth.
    covered: f64,
    refused: bool,
    breaks_bounds: bool,
}

/// Simulates all slews; shows how they fare, and returns those that are neither covered nor refused.
pub(crate) fn judge(seed: u64) -> Vec<String> {
    let all = slews::all();
    let fared = simulate(&all, seed, Method::Bounded);
    let covered = fared.iter().filter(|fared| fared.covered >= COVERED).count();
    let refused = fared.iter().filter(|fared| fared.refused).count();
    let beyond = fared.iter().filter(|fared| fared.breaks_bounds).count();
    let least = fared.iter().map(|fared| fared.covered).fold(1.0, f64::min);
    println!(
        "{} simulated slews: {covered} covered, {refused} refused, {beyond} beyond the assumed bounds; least coverage {:.2} %",
        all.len(),
        least * 100.0
    );
    broken(&all, &fared)
}

fn broken(all: &[Slew], fared: &[Fared]) -> Vec<String> {
    let missed = all.iter().zip(fared).filter(|(_, fared)| fared.covered < COVERED && !fared.refused);
    let sentence = |(slew, fared): (&Slew, &Fared)| {
        format!("slewed by {slew}: {:.3} % of the intervals hold the truth", fared.covered * 100.0)
    };
    missed.map(sentence).collect()
}

/// Simulates slews on all processors; returns how each fares, in their order.
fn simulate(all: &[Slew], seed: u64, method: Method) -> Vec<Fared> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut fared = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slew) = all.get(index) else { return fared };
            fared.push((index, fare(slew, seed, method)));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut fared: Vec<(usize, Fared)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a simulation panicked")).collect()
    });
    fared.sort_unstable_by_key(|(index, _)| *index);
    fared.into_iter().map(|(_, fared)| fared).collect()
}

/// Simulates a slew and solves its clocks.
fn fare(slew: &Slew, seed: u64, method: Method) -> Fared {
    let mut world = slew.world(seed);
    let timeline = world.full_graph(WANDER).solve(method);
    let report = timeline.report();
    let refused = report.edges.iter().any(EdgeReport::is_refuted);
    let breaks_bounds = report.clocks.iter().any(|clock| clock.breaks_bounds);
    Fared { covered: world.judge(&timeline, TIMES).coverage(), refused, breaks_bounds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slew_that_is_neither_covered_nor_refused_is_noticed() {
        let all: Vec<Slew> =
            slews::all().into_iter().filter(|slew| slew.ppm == 50.0 && slew.seconds == 6.0).take(4).collect();
        let mut fared = simulate(&all, 0, Method::Bounded);
        assert_eq!(broken(&all, &fared), [""; 0]);
        // A slewed clock does not follow one line.
        fared[1] = fare(&all[1], 0, Method::Hull);
        let broken_now = broken(&all, &fared);
        assert!(broken_now.len() == 1 && broken_now[0].contains(&all[1].to_string()), "{broken_now:?}");
        fared[1].refused = true;
        assert_eq!(broken(&all, &fared), [""; 0]);
    }
}

//! Patterns in the sequence of a function's executions: growth, and a rhythm of slow ones.
//!
//! ```text
//! costs in order ──every pair──► is the later one larger? (Mann–Kendall)
//!              └──bins of equal counts──► medians ──every pair──► median of all slopes (Theil–Sen), strength (Kendall's tau)
//!                                              └──by number, by time──► which line is nearer?
//! numbers and begins of slow executions ──distances──► the most frequent one ──► how many keep to it?
//! ```
//!
//! Both are robust: a few extreme executions change no median and no most frequent distance. Neither finds anything in
//! shuffled executions.

use std::collections::BTreeSet;

use hodo_model::{Column, Shape, Table, Unit, Value};

/// An execution of a function. Executions come in order of their begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Its number, from 1.
    pub number: u64,
    /// Begin in nanoseconds, if known.
    pub begin: Option<u64>,
    /// End in nanoseconds, if known.
    pub end: Option<u64>,
    /// Number of instructions executed in it.
    pub instructions: u64,
    /// A number of the function that called it.
    pub caller: u64,
}

/// The executions of a function by one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executions {
    /// All, or every [`step`](Executions::step)th.
    pub all: Vec<Execution>,
    /// Of as many executions one is in `all`.
    pub step: u64,
    /// All slow ones; empty if there are none, or too many.
    pub slow: Vec<Execution>,
}

/// Fewer executions have no pattern.
pub(crate) const FEWEST: usize = 100;
/// Bins of executions, at most; more cost time and find little more.
const BINS: usize = 128;
/// The least number of executions in a bin.
const SMALLEST_BIN: usize = 6;
/// How many standard deviations of chance the order of the costs must exceed.
const GROWTH_SIGNIFICANCE: f64 = 5.0;
/// The same of slow executions that keep to a rhythm.
const RHYTHM_SIGNIFICANCE: f64 = 6.0;
/// The least number of slow executions with a rhythm.
const FEWEST_SLOW: usize = 5;
/// The least share of slow executions that keep to a rhythm, and of its beats that have one.
const KEEPS: f64 = 0.8;
/// How far distances in time may differ from their median.
const TOLERANCE: f64 = 0.05;

/// By how much nearer the line by time must be than the line by number.
const NEARER: f64 = 0.5;
/// How far the costs must be from the line by number, as a share of their growth, before the time may explain them.
const FAR: f64 = 0.02;
const MILLISECOND: f64 = 1e6;

/// The cost of executions grows with their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// Instructions by which an execution is costlier than the one before.
    pub(crate) slope: f64,
    /// Instructions by which an execution is costlier than one a millisecond before, if the time explains more than the
    /// number.
    pub(crate) by_time: Option<f64>,
    /// From 0, no order, to 1: each bin is costlier than all before (Kendall's tau).
    pub(crate) strength: f64,
    /// The medians of the first and of the last bin.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// What all executions together ran beyond the first ones.
    pub(crate) extra: u64,
}

/// Returns the growth of costs with their number, if they grow. One of `step` executions is given.
pub(crate) fn growth(executions: &[Execution], step: u64) -> Option<Growth> {
    if executions.len() < FEWEST {
        return None;
    }
    let costs: Vec<u64> = executions.iter().map(|execution| execution.instructions).collect();
    let bins = (costs.len() / SMALLEST_BIN).min(BINS);
    let bound = |bin: usize| bin * costs.len() / bins;
    let medians: Vec<u64> = (0..bins).map(|bin| median(costs[bound(bin)..bound(bin + 1)].to_vec())).collect();
    let mut order = 0i64;
    for (index, early) in medians.iter().enumerate() {
        for late in &medians[index + 1..] {
            order += i64::from(late > early) - i64::from(late < early);
        }
    }
    let width = costs.len() as f64 * step as f64 / bins as f64;
    let middle = |bin: usize| &executions[(bound(bin) + bound(bin + 1)) / 2];
    let numbers: Vec<f64> = (0..bins).map(|bin| middle(bin).number as f64).collect();
    let line = Line::through(&numbers, &medians);
    let count = costs.len() as f64;
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    if ascending_pairs(&costs) < GROWTH_SIGNIFICANCE * deviation || line.slope <= 0.0 {
        return None;
    }
    let (count, first, last) = (bins as f64, medians[0], medians[bins - 1]);
    let begins: Option<Vec<f64>> = (0..bins).map(|bin| Some(middle(bin).begin? as f64)).collect();
    let by_time = begins.map(|begins| Line::through(&begins, &medians)).filter(|other| {
        let is_far = line.distance > last.saturating_sub(first) as f64 * FAR;
        is_far && other.slope > 0.0 && other.distance < line.distance * NEARER
    });
    let extra = medians.iter().map(|median| median.saturating_sub(first) as f64 * width).sum::<f64>();
    Some(Growth {
        slope: line.slope,
        by_time: by_time.map(|line| line.slope * MILLISECOND),
        strength: order as f64 / (count * (count - 1.0) / 2.0),
        first,
        last,
        extra: extra as u64,
    })
}

/// A robust line through points.
struct Line {
    /// The median of the slopes of all pairs (Theil–Sen).
    slope: f64,
    /// The mean distance of a point from it.
    distance: f64,
}

impl Line {
    fn through(places: &[f64], values: &[u64]) -> Line {
        let middle = |mut values: Vec<f64>| {
            let middle = values.len() / 2;
            if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(middle, f64::total_cmp).1 }
        };
        let points: Vec<(f64, f64)> =
            places.iter().copied().zip(values.iter().map(|value| *value as f64)).collect();
        let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
        for (index, early) in points.iter().enumerate() {
            let later = points[index + 1..].iter().filter(|late| late.0 > early.0);
            slopes.extend(later.map(|late| (late.1 - early.1) / (late.0 - early.0)));
        }
        let slope = middle(slopes);
        let above = middle(points.iter().map(|(place, value)| value - slope * place).collect());
        let distances = points.iter().map(|(place, value)| (value - slope * place - above).abs());
        Line { slope, distance: distances.sum::<f64>() / points.len().max(1) as f64 }
    }
}

/// Returns the number of pairs of which the later one is larger, less those of which it is smaller.
fn ascending_pairs(costs: &[u64]) -> f64 {
    let mut sorted = costs.to_vec();
    let descending = sort(&mut sorted, &mut Vec::with_capacity(costs.len())) as f64;
    let pairs = |count: usize| count as f64 * (count as f64 - 1.0) / 2.0;
    let equal: f64 = sorted.chunk_by(|one, other| one == other).map(|same| pairs(same.len())).sum();
    pairs(costs.len()) - equal - 2.0 * descending
}

/// Sorts by merging, and returns the number of pairs of which the later one was smaller. `merged` is scratch.
fn sort(values: &mut [u64], merged: &mut Vec<u64>) -> u64 {
    if values.len() < 2 {
        return 0;
    }
    let middle = values.len() / 2;
    let (left, right) = values.split_at_mut(middle);
    let mut descending = sort(left, merged) + sort(right, merged);
    merged.clear();
    let mut from_left = 0;
    for later in right.iter() {
        while from_left < left.len() && left[from_left] <= *later {
            merged.push(left[from_left]);
            from_left += 1;
        }
        descending += (left.len() - from_left) as u64;
        merged.push(*later);
    }
    merged.extend_from_slice(&left[from_left..]);
    values.copy_from_slice(merged);
    descending
}

/// Returns the median, the upper one of two.
pub(crate) fn median(mut values: Vec<u64>) -> u64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable(middle).1
}

/// A distance at which slow executions come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distance {
    /// In executions.
    Executions(u64),
    /// In nanoseconds.
    Time(u64),
}

/// Slow executions at equal distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rhythm {
    pub(crate) distance: Distance,
    /// The share of slow executions that keep to it.
    pub(crate) strength: f64,
}

/// Returns the rhythm of the slow ones of `count` executions, if they have one.
pub(crate) fn rhythm(slow: &[Execution], count: u64) -> Option<Rhythm> {
    if slow.len() < FEWEST_SLOW || slow.len() as u64 * 4 > count * 3 {
        return None;
    }
    by_number(slow, count).or_else(|| by_time(slow))
}

fn by_number(slow: &[Execution], count: u64) -> Option<Rhythm> {
    let mut distances: Vec<u64> = slow.windows(2).map(|pair| pair[1].number - pair[0].number).collect();
    distances.sort_unstable();
    // Of equally frequent distances the shortest.
    let most = distances.chunk_by(|one, other| one == other).rev().max_by_key(|same| same.len())?;
    let every = most[0];
    if every < 2 {
        return None;
    }
    let mut phases: Vec<u64> = slow.iter().map(|execution| execution.number % every).collect();
    phases.sort_unstable();
    let in_phase = phases.chunk_by(|one, other| one == other).map(<[u64]>::len).max()?;
    let (all, chance) = (slow.len() as f64, 1.0 / every as f64);
    let strength = in_phase as f64 / all;
    let deviations = (strength - chance) * (all / (chance * (1.0 - chance))).sqrt();
    let beats = in_phase as f64 / (count as f64 / every as f64);
    let keeps = strength >= KEEPS && beats >= KEEPS && deviations >= RHYTHM_SIGNIFICANCE;
    keeps.then_some(Rhythm { distance: Distance::Executions(every), strength })
}

fn by_time(slow: &[Execution]) -> Option<Rhythm> {
    let begins: Option<Vec<u64>> = slow.iter().map(|execution| execution.begin).collect();
    let begins = begins?;
    let distances: Vec<u64> = begins.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    let middle = median(distances.clone());
    let near =
        distances.iter().filter(|&&own| own.abs_diff(middle) as f64 <= middle as f64 * TOLERANCE).count();
    let strength = near as f64 / distances.len() as f64;
    // Two distances that agree by chance are no rhythm.
    let is_enough = distances.len() >= 2 * FEWEST_SLOW && middle > 0;
    (is_enough && strength >= KEEPS).then_some(Rhythm { distance: Distance::Time(middle), strength })
}

/// Returns the share of slow executions whose caller called the function for slow ones only.
fn slow_by_caller(all: &[Execution], slow: &[Execution]) -> Option<f64> {
    let least = slow.iter().map(|execution| execution.instructions).min()?;
    let fast = all.iter().filter(|execution| execution.instructions < least);
    let of_fast: BTreeSet<u64> = fast.map(|execution| execution.caller).collect();
    let own = slow.iter().filter(|execution| !of_fast.contains(&execution.caller)).count();
    Some(own as f64 / slow.len() as f64)
}

/// Returns the patterns in the executions of a function as a table with one row, further evidence for
/// [`findings`](crate::findings).
pub fn patterns(function: &str, module: &str, executions: &Executions) -> Table {
    let Executions { all, step, slow } = executions;
    let count = all.len() as u64 * step;
    let growth = growth(all, *step);
    let rhythm = rhythm(slow, count);
    let [calls, time] = match rhythm.map(|rhythm| rhythm.distance) {
        Some(Distance::Executions(calls)) => [Some(calls), None],
        Some(Distance::Time(time)) => [None, Some(time)],
        None => [None, None],
    };
    let columns = vec![
        Column::name("function"),
        Column::name("module"),
        Column::integer("executions", Unit::Count),
        Column::integer("step", Unit::None),
        Column::real("growth", Unit::None),
        Column::real("growth_per_ms", Unit::None),
        Column::real("growth_strength", Unit::Share),
        Column::integer("growth_first", Unit::Count),
        Column::integer("growth_last", Unit::Count),
        Column::integer("growth_extra", Unit::Count),
        Column::integer("slow", Unit::Count),
        Column::integer("slow_every", Unit::Count),
        Column::integer("slow_every_ns", Unit::Nanoseconds),
        Column::real("slow_strength", Unit::Share),
        Column::real("slow_by_caller", Unit::Share),
        Column::integer("slowest_begin_ns", Unit::Nanoseconds),
        Column::integer("slowest_end_ns", Unit::Nanoseconds),
    ];
    let slowest = slow.iter().chain(all).max_by_key(|execution| execution.instructions);
    let slowest = slowest.and_then(|execution| execution.begin.zip(execution.end));
    let real = |value: Option<f64>| value.map_or(Value::Null, Value::from);
    let row = vec![
        function.into(),
        module.into(),
        count.into(),
        (*step).into(),
        real(growth.map(|growth| growth.slope)),
        real(growth.and_then(|growth| growth.by_time)),
        real(growth.map(|growth| growth.strength)),
        growth.map(|growth| growth.first).into(),
        growth.map(|growth| growth.last).into(),
        growth.map(|growth| growth.extra).into(),
        (slow.len() as u64).into(),
        calls.into(),
        time.into(),
        real(rhythm.map(|rhythm| rhythm.strength)),
        real(slow_by_caller(all, slow)),
        slowest.map(|(begin, _)| begin).into(),
        slowest.map(|(_, end)| end).into(),
    ];
    Table::new("patterns", Shape::Counters, Vec::new(), columns, [row])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    const COUNT: usize = 10_000;

    /// A reproducible sequence of numbers below `bound`.
    pub(crate) fn noise(seed: u64, bound: u64) -> impl FnMut() -> u64 {
        let mut state = seed | 1;
        move || {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
        }
    }

    pub(crate) fn shuffled<T>(mut items: Vec<T>, seed: u64) -> Vec<T> {
        let mut next = noise(seed, u64::from(u32::MAX >> 1));
        for last in (1..items.len()).rev() {
            items.swap(last, next() as usize % (last + 1));
        }
        items
    }

    /// Executions with these costs, one each millisecond.
    fn with(costs: &[u64]) -> Vec<Execution> {
        let execution = |(number, &instructions): (u64, &u64)| Execution {
            number,
            begin: Some(number * 1_000_000),
            end: None,
            instructions,
            caller: 0,
        };
        (1..).zip(costs).map(execution).collect()
    }

    fn slow(executions: &[Execution], from: u64) -> Vec<Execution> {
        executions.iter().filter(|execution| execution.instructions >= from).copied().collect()
    }

    /// Costs that vary by chance; the number of an execution explains 1 % of their variance.
    fn growing(seed: u64) -> Vec<u64> {
        // The sum of 12 even numbers below 1000 has a standard deviation of 1000.
        let mut next = noise(seed, 1000);
        let range = 1000.0 * (12.0f64 * 0.01).sqrt();
        let cost = |number: usize| {
            100_000 + (0..12).map(|_| next()).sum::<u64>() + (range * number as f64 / COUNT as f64) as u64
        };
        (0..COUNT).map(cost).collect()
    }

    /// Of all executions 1 % are slow: every hundredth, or one each 10 ms.
    fn beating(seed: u64, by_time: bool) -> Vec<Execution> {
        let mut next = noise(seed, 40_000);
        let mut begin = 0;
        let execution = |number: usize| {
            let before: u64 = begin;
            begin += 80_000 + next();
            let is_slow =
                if by_time { before / 10_000_000 != begin / 10_000_000 } else { number % 100 == 42 };
            Execution {
                number: number as u64,
                begin: Some(begin),
                end: None,
                instructions: 1000 + next() / 400 + if is_slow { 500 } else { 0 },
                caller: 0,
            }
        };
        (0..COUNT).map(execution).collect()
    }

    #[test]
    fn pairs_are_counted_by_order() {
        assert_eq!(ascending_pairs(&[1, 2, 3, 4]), 6.0);
        assert_eq!(ascending_pairs(&[4, 3, 2, 1]), -6.0);
        assert_eq!(ascending_pairs(&[2, 1, 1, 3, 2]), 2.0);
    }

    #[test]
    fn a_scan_from_the_start_grows() {
        let costs: Vec<u64> = (0..6000).map(|number| 40 + 14 * number).collect();
        let found = growth(&with(&costs), 1).expect("growth");
        assert!((found.slope - 14.0).abs() < 1e-9 && found.strength == 1.0, "{found:?}");
        assert_eq!(found.by_time, None, "the time explains no more than the number");
        assert!(found.first < 1000 && found.last > 83_000, "{found:?}");
        let tenth: Vec<Execution> = with(&costs).into_iter().step_by(10).collect();
        let sampled = growth(&tenth, 10).expect("growth of every tenth");
        assert!((sampled.slope - 14.0).abs() < 1e-9, "{sampled:?}");
        assert!(sampled.extra.abs_diff(found.extra) < found.extra / 50, "{sampled:?} {found:?}");
        assert_eq!(growth(&with(&costs[..99]), 1), None, "too few");
        let falling: Vec<u64> = costs.into_iter().rev().collect();
        assert_eq!(growth(&with(&falling), 1), None);
        assert_eq!(growth(&with(&[7; 1000]), 1), None);
    }

    #[test]
    fn what_grows_with_time_grows_with_time() {
        // Bursts, and pauses that get longer: in each the cost has grown with the time.
        let mut next = noise(5, 1_000);
        let execution = |number: u64| {
            let begin = (number / 100) * (number / 100) * 1_000_000 + number % 100 * 1_000;
            Execution {
                number,
                begin: Some(begin),
                end: None,
                instructions: 1_000 + begin / 10_000 + next() / 100,
                caller: 0,
            }
        };
        let executions: Vec<Execution> = (0..2_000).map(execution).collect();
        let by_time = growth(&executions, 1).and_then(|found| found.by_time).expect("growth with time");
        assert!((by_time - 100.0).abs() < 2.0, "{by_time}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn weak_growth_is_found_unless_it_is_shuffled(seed in 1u64.., shuffle in 1u64..) {
            let costs = growing(seed);
            prop_assert!(growth(&with(&costs), 1).is_some());
            prop_assert_eq!(growth(&with(&shuffled(costs, shuffle)), 1), None);
        }

        #[test]
        fn a_rhythm_is_found_unless_it_is_shuffled(seed in 1u64.., shuffle in 1u64.., by_time: bool) {
            let executions = beating(seed, by_time);
            let found = rhythm(&slow(&executions, 1400), COUNT as u64).map(|rhythm| rhythm.distance);
            match found {
                Some(Distance::Executions(100)) => prop_assert!(!by_time),
                Some(Distance::Time(time)) => prop_assert!(by_time && time.abs_diff(10_000_000) < 200_000, "{}", time),
                other => prop_assert!(false, "{:?}", other),
            }
            let costs = shuffled(executions.iter().map(|execution| execution.instructions).collect(), shuffle);
            let shuffled: Vec<Execution> = executions.iter().zip(costs).map(|(execution, instructions)| Execution { instructions, ..*execution }).collect();
            prop_assert_eq!(rhythm(&slow(&shuffled, 1400), COUNT as u64), None);
        }

        #[test]
        fn any_executions_have_a_row(executions in prop::collection::vec((any::<Option<u64>>(), any::<u64>()), 0..300), from: u64) {
            let executions = (1..).zip(executions);
            let all: Vec<Execution> = executions.map(|(number, (begin, instructions))| Execution { number, begin, end: begin, instructions, caller: number % 3 }).collect();
            let slow = slow(&all, from);
            prop_assert_eq!(patterns("f", "m", &Executions { all, step: 1, slow }).row_count(), 1);
        }
    }
}

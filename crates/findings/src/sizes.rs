//! What the cost of an execution depends on: a size, such as the bytes that it reads or the iterations of one of its loops.
//!
//! ```text
//! size and cost of each execution ──every pair──► do they have the same order? (Kendall's tau-b)
//!                                 └──bins of equal counts──► medians ──every pair of different sizes──► power (Theil–Sen)
//! ```
//!
//! A power of 1 is a fixed cost for each unit. At 2, each unit costs more the more of them there are.

use hodo_model::{Column, Shape, Table, Unit, Value};

use crate::{
    Execution,
    series::{FEWEST, median},
};

/// How often a block of a function ran in executions of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Where it begins.
    pub at: String,
    /// The count of each execution.
    pub counts: Vec<u64>,
}

/// Executions of a function whose sizes are known.
#[derive(Clone, Debug)]
pub struct Sized<'e> {
    /// The executions, in order.
    pub executions: &'e [Execution],
    /// The bytes that each read and wrote; empty if the trace does not contain them.
    pub bytes: Vec<u64>,
    /// The blocks of its loops.
    pub loops: Vec<BlockSizes>,
}

/// The most blocks with different counts that are looked at.
const MOST_BLOCKS: usize = 64;
/// Bins of executions.
const BINS: usize = 24;
/// The least ratio of the largest size to the smallest.
const SPREAD: u64 = 4;
/// The least strength with which the cost depends on the size.
const STRENGTH: f64 = 0.8;
/// The least power of a cost that grows faster than its size, and by how much each unit then costs more in the end.
const POWER: f64 = 1.3;
const DEARER: f64 = 2.0;
/// The least lead of a size before the number of the execution, in strength.
const LEAD: f64 = 0.02;

/// How the cost of executions depends on a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dependence {
    /// From 0, none, to 1: the order of the costs is that of the sizes.
    pub(crate) strength: f64,
    /// The exponent of the size.
    pub(crate) power: f64,
    /// Instructions by which a unit makes an execution costlier.
    pub(crate) slope: f64,
    /// The smallest and the largest size: medians of the first and of the last bin.
    pub(crate) sizes: [u64; 2],
    /// The least and the most.
    pub(crate) ends: [u64; 2],
    /// Instructions per unit at these sizes.
    pub(crate) rates: [f64; 2],
    /// The share of the executions' instructions beyond the rate of the smallest.
    pub(crate) extra: f64,
}

impl Dependence {
    fn is_superlinear(&self) -> bool {
        self.power >= POWER && self.rates[1] >= DEARER * self.rates[0]
    }
}

/// A size and a cost.
type Point = (u64, u64);

/// Returns how costs depend on sizes, if they do.
pub(crate) fn dependence(points: &[Point]) -> Option<Dependence> {
    let mut points: Vec<Point> = points.iter().copied().filter(|(size, _)| *size > 0).collect();
    if points.len() < FEWEST {
        return None;
    }
    points.sort_unstable();
    let bin = |index: usize| &points[index * points.len() / BINS..(index + 1) * points.len() / BINS];
    let medians = |bin: &[Point]| {
        let of = |part: fn(&Point) -> u64| median(bin.iter().map(part).collect());
        (of(|point| point.0), of(|point| point.1))
    };
    let bins: Vec<Point> = (0..BINS).map(|index| medians(bin(index))).collect();
    let (first, last) = (bins[0], bins[BINS - 1]);
    let strength = order(&points);
    if last.0 < first.0.saturating_mul(SPREAD) || strength < STRENGTH {
        return None;
    }
    let (mut powers, mut slopes) = (Vec::new(), Vec::new());
    for (index, small) in bins.iter().enumerate() {
        for large in bins[index + 1..].iter().filter(|large| large.0 >= small.0.saturating_mul(2)) {
            let [cost, before] = [large.1.max(1) as f64, small.1.max(1) as f64];
            powers.push((cost / before).ln() / (large.0 as f64 / small.0 as f64).ln());
            slopes.push((cost - before) / (large.0 - small.0) as f64);
        }
    }
    let middle = |mut values: Vec<f64>| {
        let middle = values.len() / 2;
        *values.select_nth_unstable_by(middle, f64::total_cmp).1
    };
    let rate = |(size, cost): Point| cost as f64 / size as f64;
    let beyond = |&(size, cost): &Point| (cost as f64 - size as f64 * rate(first)).max(0.0);
    let all: f64 = points.iter().map(|(_, cost)| *cost as f64).sum();
    Some(Dependence {
        strength,
        power: middle(powers),
        slope: middle(slopes),
        sizes: [first.0, last.0],
        ends: [points[0].0, points[points.len() - 1].0],
        rates: [rate(first), rate(last)],
        extra: points.iter().map(beyond).sum::<f64>() / all.max(1.0),
    })
}

/// Returns Kendall's tau-b of sizes and costs: 1 if every larger size costs more.
fn order(points: &[Point]) -> f64 {
    let (mut order, mut sizes, mut costs) = (0i64, 0u64, 0u64);
    for (index, one) in points.iter().enumerate() {
        for other in &points[index + 1..] {
            let [size, cost] = [one.0.cmp(&other.0), one.1.cmp(&other.1)].map(|order| order as i64);
            order += size * cost;
            sizes += size.unsigned_abs();
            costs += cost.unsigned_abs();
        }
    }
    if sizes == 0 || costs == 0 { 0.0 } else { order as f64 / (sizes as f64 * costs as f64).sqrt() }
}

/// A size that the cost depends on.
struct Found<'s> {
    size: &'static str,
    at: &'s str,
    dependence: Dependence,
}

/// Returns what the costs depend on: of several sizes that by which they grow faster than it, else the one that says most,
/// of equal ones the largest, which is of the innermost loop. Nothing if the number of the execution says as much.
fn find<'s>(sized: &'s Sized<'_>) -> Option<Found<'s>> {
    let costs = || sized.executions.iter().map(|one| one.instructions);
    let with = |sizes: &[u64]| dependence(&sizes.iter().copied().zip(costs()).collect::<Vec<_>>());
    let by_number: Vec<Point> = sized.executions.iter().map(|one| (one.number, one.instructions)).collect();
    let by_number = order(&by_number);
    let mut blocks: Vec<&BlockSizes> = sized.loops.iter().collect();
    let total =
        |block: &BlockSizes| block.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
    blocks.sort_by_key(|block| std::cmp::Reverse(total(block)));
    blocks.dedup_by(|next, before| next.counts == before.counts);
    blocks.truncate(MOST_BLOCKS);
    let bytes = [("bytes", "", &sized.bytes[..])];
    let iterations = blocks.iter().map(|block| ("iterations", block.at.as_str(), &block.counts[..]));
    let mut found: Vec<Found<'_>> = Vec::new();
    for (size, at, sizes) in bytes.into_iter().chain(iterations) {
        if let Some(dependence) = with(sizes).filter(|found| found.strength > by_number + LEAD) {
            found.push(Found { size, at, dependence });
        }
    }
    // The first of equal ones: bytes come before iterations, and those of inner loops before outer ones.
    found.into_iter().rev().max_by(|one, other| {
        let rank = |found: &Found<'_>| {
            let Dependence { extra, strength, .. } = found.dependence;
            if found.dependence.is_superlinear() { (true, extra) } else { (false, strength) }
        };
        let ((is_super, one), (is_other, other)) = (rank(one), rank(other));
        is_super.cmp(&is_other).then(one.total_cmp(&other))
    })
}

/// Returns what the cost of a function's executions depends on as a table, with one row if it depends on something:
/// further evidence for [`findings`](crate::findings).
pub fn sizes(function: &str, module: &str, sized: &Sized<'_>) -> Table {
    let columns = vec![
        Column::name("function"),
        Column::name("module"),
        Column::name("size"),
        Column::text("at"),
        Column::integer("executions", Unit::Count),
        Column::real("strength", Unit::Share),
        Column::real("power", Unit::None),
        Column::real("slope", Unit::None),
        Column::boolean("superlinear"),
        Column::integer("smallest", Unit::None),
        Column::integer("largest", Unit::None),
        Column::integer("least", Unit::None),
        Column::integer("most", Unit::None),
        Column::real("first_rate", Unit::None),
        Column::real("last_rate", Unit::None),
        Column::real("extra_share", Unit::Share),
    ];
    let row = find(sized).map(|Found { size, at, dependence }| -> Vec<Value> {
        vec![
            function.into(),
            module.into(),
            size.into(),
            at.into(),
            (sized.executions.len() as u64).into(),
            dependence.strength.into(),
            dependence.power.into(),
            dependence.slope.into(),
            dependence.is_superlinear().into(),
            dependence.sizes[0].into(),
            dependence.sizes[1].into(),
            dependence.ends[0].into(),
            dependence.ends[1].into(),
            dependence.rates[0].into(),
            dependence.rates[1].into(),
            dependence.extra.into(),
        ]
    });
    Table::new("sizes", Shape::Counters, Vec::new(), columns, row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::{noise, shuffled};
    use proptest::prelude::*;

    const COUNT: usize = 400;

    /// Executions of random sizes with a cost that is a power of the size, and some noise.
    fn costs(seed: u64, power: f64) -> Vec<Point> {
        let mut next = noise(seed, 1000);
        let cost = |_| {
            let size = 2 + next();
            let noise = 1.0 + next() as f64 / 10_000.0;
            (size, (50.0 + 7.0 * (size as f64).powf(power) * noise) as u64)
        };
        (0..COUNT).map(cost).collect()
    }

    /// The executions of points, in that order, with the sizes as a block.
    fn sized(points: &[Point]) -> Table {
        let execution = |(number, &(_, instructions)): (u64, &Point)| Execution {
            number,
            begin: None,
            end: None,
            instructions,
            caller: 0,
        };
        let executions: Vec<Execution> = (1..).zip(points).map(execution).collect();
        let counts = points.iter().map(|(size, _)| *size).collect();
        let loops = vec![BlockSizes { at: "x.c:1".to_owned(), counts }];
        sizes("f", "m", &Sized { executions: &executions, bytes: Vec::new(), loops })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn a_size_is_found_unless_it_is_shuffled(seed in 1u64.., shuffle in 1u64.., quadratic: bool) {
            let points = costs(seed, if quadratic { 2.0 } else { 1.0 });
            let found = dependence(&points).expect("the cost depends on the size");
            prop_assert_eq!(found.is_superlinear(), quadratic, "{:?}", found);
            let power = if quadratic { 2.0 } else { 1.0 };
            prop_assert!((found.power - power).abs() < 0.15, "{:?}", found);
            prop_assert_eq!(sized(&points).row_count(), 1);
            let sizes = shuffled(points.iter().map(|(size, _)| *size).collect(), shuffle);
            let shuffled: Vec<Point> = sizes.into_iter().zip(points.iter().map(|(_, cost)| *cost)).collect();
            prop_assert_eq!(dependence(&shuffled), None);
        }

        #[test]
        fn any_sizes_have_at_most_a_row(points in prop::collection::vec((any::<u64>(), any::<u64>()), 0..300)) {
            prop_assert!(sized(&points).row_count() <= 1);
        }
    }

    #[test]
    fn the_number_of_the_execution_explains_what_grows_with_it() {
        let points: Vec<Point> = (1..=400).map(|number| (number, number * number)).collect();
        assert_eq!(sized(&points).row_count(), 0);
        let sizes = shuffled(points, 7);
        assert_eq!(sized(&sizes).row_count(), 1);
    }

    #[test]
    fn equal_sizes_explain_nothing() {
        let points: Vec<Point> = (0..400).map(|number| (5, number * 7 % 400)).collect();
        assert_eq!(dependence(&points), None);
        let near: Vec<Point> =
            (0..400).map(|number| (300 + number * 7 % 400, 300 + number * 7 % 400)).collect();
        assert_eq!(dependence(&near), None, "the largest is not four times the smallest");
    }
}

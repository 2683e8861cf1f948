//! Tests whether two groups of times differ significantly.
//!
//! The methods assume no distribution of times: the Mann–Whitney U test compares ranks, intervals come from a
//! bootstrap, and the Benjamini–Hochberg procedure adjusts the p-values of multiple tests.

/// Up to this combined size, the test is exact: it counts every way to choose one group from the union.
const EXACT: usize = 40;
/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;
/// Resamples outside each end of a 95 % interval: 2.5 %.
const OUTSIDE: usize = RESAMPLES / 40;
/// P-values below this are significant.
pub const SIGNIFICANT: f64 = 0.05;

/// Returns the two-sided p-value of the Mann–Whitney U test; `None` if a group is empty. The result is exact for small
/// groups, with ties; larger groups use the normal approximation with corrections for ties and continuity.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let Ranks { doubled: ranks, ties } = Ranks::new(a, b);
    let (n, m) = (a.len(), b.len());
    let own: u64 = ranks[..n].iter().sum();
    if n + m <= EXACT {
        return Some(exact(&ranks, n, own));
    }
    let (n, m, all) = (n as f64, m as f64, (n + m) as f64);
    let u = own as f64 / 2.0 - n * (n + 1.0) / 2.0;
    let tied: f64 = ties.iter().map(|&count| (count as f64).powi(3) - count as f64).sum();
    let variance = n * m / 12.0 * (all + 1.0 - tied / (all * (all - 1.0)));
    if variance <= 0.0 {
        return Some(1.0);
    }
    let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
    Some(libm::erfc(distance / variance.sqrt() / std::f64::consts::SQRT_2).min(1.0))
}

/// Returns the least p-value that the test gives for groups of these sizes: that of groups that do not overlap.
pub fn least_p(n: usize, m: usize) -> f64 {
    let (n, m) = (n.min(m), n.max(m));
    // The number of choices of n of n + m.
    let choices = (1..=n).fold(1.0, |choices, index| choices * (m + index) as f64 / index as f64);
    (2.0 / choices).min(1.0)
}

/// The ranks of the values of two groups.
struct Ranks {
    /// Twice the rank of each value, those of the first group first. Equal values share the mean of their ranks, which
    /// may be a half.
    doubled: Vec<u64>,
    /// The numbers of equal values.
    ties: Vec<u64>,
}

impl Ranks {
    fn new(a: &[f64], b: &[f64]) -> Ranks {
        let all: Vec<f64> = a.iter().chain(b).copied().collect();
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|&x, &y| all[x].total_cmp(&all[y]));
        let (mut doubled, mut ties) = (vec![0; all.len()], Vec::new());
        let mut from = 0;
        for group in order.chunk_by(|&x, &y| all[x] == all[y]) {
            let to = from + group.len();
            group.iter().for_each(|&index| doubled[index] = (from + 1 + to) as u64);
            ties.push(group.len() as u64);
            from = to;
        }
        Ranks { doubled, ties }
    }
}

/// Returns the share of choices of `n` ranks whose sum is at least as far from the mean as `own`.
fn exact(ranks: &[u64], n: usize, own: u64) -> f64 {
    let sum: u64 = ranks.iter().sum();
    // Number of choices, by number of ranks chosen and their sum. For 40 ranks they are below 2^53, so `f64` is exact.
    let width = sum as usize + 1;
    let mut ways = vec![0.0f64; (n + 1) * width];
    ways[0] = 1.0;
    for &rank in ranks {
        for chosen in (1..=n).rev() {
            for total in (rank as usize..width).rev() {
                ways[chosen * width + total] += ways[(chosen - 1) * width + total - rank as usize];
            }
        }
    }
    let all = ranks.len() as u64;
    // Distance from the mean sum * n / all, scaled by `all` to stay an integer.
    let distance = |total: u64| (total * all).abs_diff(sum * n as u64);
    let ways = &ways[n * width..];
    let far = (0..width as u64).filter(|&total| distance(total) >= distance(own));
    far.map(|total| ways[total as usize]).sum::<f64>() / ways.iter().sum::<f64>()
}

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Returns the 95 % confidence interval of the difference of the means, `b` minus `a`, by percentile bootstrap with a
/// fixed seed. `None` if a group has fewer than two values, whose variance is unknown.
pub fn bootstrap(a: &[f64], b: &[f64]) -> Option<ConfidenceInterval> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(0x686f_646f);
    let mut resampled = |values: &[f64]| {
        let sum: f64 = (0..values.len()).map(|_| values[random.usize(..values.len())]).sum();
        sum / values.len() as f64
    };
    let mut differences: Vec<f64> = (0..RESAMPLES).map(|_| resampled(b) - resampled(a)).collect();
    differences.sort_by(f64::total_cmp);
    Some(ConfidenceInterval { low: differences[OUTSIDE], high: differences[RESAMPLES - 1 - OUTSIDE] })
}

/// Adjusts the p-values of multiple tests to control the false discovery rate: Benjamini and Hochberg (1995). `None`
/// values are not tests.
pub fn benjamini_hochberg(values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut tests: Vec<(usize, f64)> =
        values.iter().enumerate().filter_map(|(index, value)| Some((index, (*value)?))).collect();
    tests.sort_by(|x, y| x.1.total_cmp(&y.1));
    let (count, mut adjusted, mut least) = (tests.len() as f64, vec![None; values.len()], 1.0f64);
    for (smaller, (index, value)) in tests.into_iter().enumerate().rev() {
        least = least.min(value * count / (smaller + 1) as f64);
        adjusted[index] = Some(least);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: Option<f64>, expected: f64) {
        let value = value.expect("there are values");
        assert!((value - expected).abs() < 1e-9, "{value} and {expected}");
    }

    /// Expected values come from R's `wilcox.test(a, b, exact = TRUE)` and from manual counts.
    #[test]
    fn small_groups_are_tested_exactly() {
        // Of 252 ways to choose 5 of 10, one lies at each end.
        near(mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]), 2.0 / 252.0);
        near(mann_whitney(&[1.0, 3.0], &[2.0, 4.0]), 4.0 / 6.0);
        near(mann_whitney(&[1.0], &[2.0]), 1.0);
        // Ties: ranks 1.5, 1.5, 3, 4. Both pairs {1.5, 1.5} and {3, 4} are as far as the first.
        near(mann_whitney(&[1.0, 1.0], &[2.0, 3.0]), 2.0 / 6.0);
        near(mann_whitney(&[5.0; 4], &[5.0; 4]), 1.0);
        assert_eq!(mann_whitney(&[], &[1.0]), None);
    }

    #[test]
    fn groups_that_do_not_overlap_have_the_least_p_value() {
        for (n, m) in [(1, 1), (1, 2), (2, 2), (3, 3), (2, 8), (4, 4), (5, 5), (20, 20)] {
            let a: Vec<f64> = (0..n).map(|value| value as f64).collect();
            let b: Vec<f64> = (0..m).map(|value| value as f64 + 100.0).collect();
            near(mann_whitney(&a, &b), least_p(n, m));
            assert_eq!(least_p(n, m), least_p(m, n));
        }
    }

    #[test]
    fn large_groups_are_tested_by_the_normal_approximation() {
        let a: Vec<f64> = (0..30).map(f64::from).collect();
        let b: Vec<f64> = (0..30).map(|value| f64::from(value) + 10.5).collect();
        // U = 190 of 900, σ² = 30·30·61/12 = 4575: z = (260 − 0.5)/√4575.
        near(mann_whitney(&a, &b), libm::erfc(259.5 / 4575f64.sqrt() / 2f64.sqrt()));
        near(mann_whitney(&[7.0; 30], &[7.0; 30]), 1.0);
        assert_eq!(mann_whitney(&a, &b), mann_whitney(&b, &a));
    }

    #[test]
    fn intervals_hold_the_difference() {
        let ConfidenceInterval { low, high } =
            bootstrap(&[1.0, 2.0, 3.0, 2.0], &[11.0, 12.0, 13.0, 12.0]).expect("groups of four");
        assert!(low < 10.0 && 10.0 < high && low > 8.0 && high < 12.0, "{low} to {high}");
        let no_spread = ConfidenceInterval { low: 2.0, high: 2.0 };
        assert_eq!(bootstrap(&[1.0, 1.0], &[3.0, 3.0]), Some(no_spread));
        assert_eq!(bootstrap(&[1.0], &[3.0, 3.0]), None);
    }

    /// Expected values come from R's `p.adjust(p, "BH")`.
    #[test]
    fn p_values_of_many_tests_are_adjusted() {
        let adjusted = benjamini_hochberg(&[Some(0.01), None, Some(0.04), Some(0.03), Some(0.5)]);
        let expected = [Some(0.04), None, Some(0.16 / 3.0), Some(0.16 / 3.0), Some(0.5)];
        for (adjusted, expected) in adjusted.into_iter().zip(expected) {
            match expected {
                None => assert_eq!(adjusted, None),
                Some(expected) => near(adjusted, expected),
            }
        }
    }
}

//! A count in several executions.

use std::fmt;

/// The least, the middle and the greatest value of a count in equal executions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The least value.
    pub low: u64,
    /// The median; of an even number of values the lower one.
    pub middle: u64,
    /// The greatest value.
    pub high: u64,
}

impl Spread {
    /// The spread of values; zero if there are none.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Spread {
        let mut values: Vec<u64> = values.into_iter().collect();
        values.sort_unstable();
        let (Some(&low), Some(&high)) = (values.first(), values.last()) else { return Spread::default() };
        Spread { low, middle: values[(values.len() - 1) / 2], high }
    }

    /// A value that all executions have.
    pub const fn exact(value: u64) -> Spread {
        Spread { low: value, middle: value, high: value }
    }

    /// The greatest difference between two executions.
    pub const fn width(&self) -> u64 {
        self.high - self.low
    }

    /// How much more every execution of `now` has than any execution of this baseline; zero if they overlap.
    pub const fn certain_growth(&self, now: &Spread) -> u64 {
        now.low.saturating_sub(self.high)
    }

    /// How much less every execution of `now` has than any execution of this baseline; zero if they overlap.
    pub const fn certain_shrinkage(&self, now: &Spread) -> u64 {
        self.low.saturating_sub(now.high)
    }

    /// The change of the median, relative to the baseline's; infinite if that is zero.
    pub fn change(&self, now: &Spread) -> f64 {
        let difference = now.middle as f64 - self.middle as f64;
        if difference == 0.0 { 0.0 } else { difference / self.middle as f64 }
    }

    /// Reads what [`Spread`]'s `Display` writes.
    pub fn parse(text: &str) -> Option<Spread> {
        let mut parts = text.split('~').map(|part| part.parse().ok());
        let low = parts.next()??;
        let spread = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => Spread::exact(low),
            (Some(middle), Some(high), None) => Spread { low, middle: middle?, high: high? },
            _ => return None,
        };
        (spread.low <= spread.middle && spread.middle <= spread.high).then_some(spread)
    }
}

/// `1000`, or `1000~1003~1010` if executions differ.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.width() {
            0 => write!(f, "{}", self.low),
            _ => write!(f, "{}~{}~{}", self.low, self.middle, self.high),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec(any::<u64>(), 1..9)) {
            let spread = Spread::of(values);
            prop_assert_eq!(Spread::parse(&spread.to_string()), Some(spread));
        }
    }

    #[test]
    fn growth_is_certain_only_beyond_all_executions() {
        let before = Spread::of([10, 12, 11]);
        assert_eq!(before, Spread { low: 10, middle: 11, high: 12 });
        assert_eq!(before.certain_growth(&Spread::of([12, 20])), 0);
        assert_eq!(before.certain_growth(&Spread::of([15, 13])), 1);
        assert_eq!(before.certain_shrinkage(&Spread::of([9, 4])), 1);
    }

    #[test]
    fn wrong_spreads_are_refused() {
        for text in ["", "a", "1~2", "3~2~4", "1~2~3~4", "-1"] {
            assert_eq!(Spread::parse(text), None, "{text}");
        }
    }
}

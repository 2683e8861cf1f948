//! Ends of rows, searched by a least end.

/// Values of a level for each value of the level above.
const FAN: usize = 16;

/// Ends in the order of rows, and above them the latest of each sixteen, of each sixteen of these, and so on: the next row
/// that ends late enough is found in a number of steps that grows with the logarithm of the rows between.
#[derive(Debug, Default)]
pub(crate) struct LatestEnds {
    levels: Vec<Vec<i64>>,
}

impl LatestEnds {
    pub(crate) fn new(ends: Vec<i64>) -> LatestEnds {
        let mut levels = vec![ends];
        while let Some(last) = levels.last().filter(|last| last.len() > FAN) {
            let above = last.chunks(FAN).map(|ends| ends.iter().copied().max().unwrap_or(i64::MIN)).collect();
            levels.push(above);
        }
        LatestEnds { levels }
    }

    /// Returns the first position from `from` on whose end is `least` or later; `until` if there is none before that.
    pub(crate) fn next(&self, from: usize, until: usize, least: i64) -> usize {
        let (mut level, mut position, mut width) = (0, from, 1);
        while position * width < until {
            if self.levels[level][position] >= least {
                if level == 0 {
                    return position;
                }
                (level, position, width) = (level - 1, position * FAN, width / FAN);
            } else {
                position += 1;
                while position.is_multiple_of(FAN) && level + 1 < self.levels.len() {
                    (level, position, width) = (level + 1, position / FAN, width * FAN);
                }
            }
        }
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_late_end_is_that_of_a_scan() {
        for count in [0, 1, 15, 16, 17, 256, 1000, 5000] {
            let ends: Vec<i64> = (0..count).map(|n: i64| n * 7919 % 1009).collect();
            let latest = LatestEnds::new(ends.clone());
            for (from, until) in [(0, ends.len()), (3, ends.len()), (ends.len() / 3, ends.len() / 2)] {
                for least in [i64::MIN, 0, 500, 1000, 1008, 1009] {
                    let found = (from..until).find(|&position| ends[position] >= least).unwrap_or(until);
                    let from = from.min(until);
                    assert_eq!(latest.next(from, until, least), found, "{count} {from} {until} {least}");
                }
            }
        }
    }
}

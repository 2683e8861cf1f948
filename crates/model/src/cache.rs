//! The size and shape of a modelled cache.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A cache of sets with as many lines each as it has ways. As text it is `SIZE,WAYS,LINE`, in bytes, as in Cachegrind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGeometry {
    /// In bytes.
    pub size: u64,
    /// Lines of a set.
    pub ways: u32,
    /// Bytes of a line; a power of two.
    pub line: u64,
}

/// The most sets and the most ways, so that a model is small.
const MOST: u64 = 1 << 20;
/// Instructions are shorter than the shortest line, so that none is on three lines.
const SHORTEST_LINE: u64 = 16;

impl CacheGeometry {
    /// The number of sets.
    pub fn sets(&self) -> u64 {
        self.size / u64::from(self.ways) / self.line
    }
}

impl Default for CacheGeometry {
    /// 32 KiB with 8 ways and lines of 64 bytes, as most processors of x86-64 have.
    fn default() -> CacheGeometry {
        CacheGeometry { size: 32 << 10, ways: 8, line: 64 }
    }
}

impl fmt::Display for CacheGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.size, self.ways, self.line)
    }
}

impl FromStr for CacheGeometry {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheGeometry, String> {
        let expected = || "expected SIZE,WAYS,LINE in bytes, such as 32768,8,64".to_owned();
        let parts: Vec<u64> =
            text.split(',').map(|part| part.parse().map_err(|_| expected())).collect::<Result<_, _>>()?;
        let &[size, ways, line] = &parts[..] else { return Err(expected()) };
        if !line.is_power_of_two() || line < SHORTEST_LINE {
            return Err(format!("a line has a power of two of bytes, at least {SHORTEST_LINE}"));
        }
        let set = ways.checked_mul(line).filter(|&set| set > 0 && ways <= MOST).ok_or_else(expected)?;
        let sets = size / set;
        if size % set != 0 || !sets.is_power_of_two() || sets > MOST {
            return Err("SIZE is WAYS times LINE times a power of two".to_owned());
        }
        Ok(CacheGeometry { size, ways: ways as u32, line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_sets_are_a_cache() {
        let cache: CacheGeometry = "16384,2,32".parse().unwrap();
        assert_eq!((cache.sets(), cache.to_string().as_str()), (256, "16384,2,32"));
        for wrong in ["", "1,2", "32768,8,63", "32768,8,8", "1000,8,64", "32768,0,64", "24576,4,64"] {
            assert!(wrong.parse::<CacheGeometry>().is_err(), "{wrong}");
        }
    }
}

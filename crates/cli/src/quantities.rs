//! Numbers with units on the command line.

use hodo_model::Every;

use crate::failure::Failure;

/// Parses a sampling period: a number and a unit.
pub fn every(text: &str) -> Result<Every, String> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let period = |digits: &str| digits.parse::<u64>().ok().filter(|&period| period > 0);
    let instructions = text.strip_suffix('i').and_then(period).map(Every::Instructions);
    let time = || {
        let (digits, scale) =
            units.iter().find_map(|&(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
        Some(Every::Nanoseconds(period(digits)?.checked_mul(scale)?))
    };
    instructions.or_else(time).ok_or("expected a period such as 100ns, 1us, 10ms or 1000i".to_owned())
}

/// Parses a duration: a number and a unit.
pub fn interval(text: &str) -> Result<std::time::Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("min", 60_000)];
    let millis = units
        .iter()
        .find_map(|&(unit, scale)| Some(u64::from(text.strip_suffix(unit)?.parse::<u32>().ok()?) * scale));
    let millis = millis.filter(|&millis| millis > 0).ok_or("expected a time such as 1s or 500ms")?;
    Ok(std::time::Duration::from_millis(millis))
}

/// Parses a range: two numbers with `..` between them.
pub fn instructions(text: &str) -> Result<std::ops::Range<u64>, String> {
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.filter(|range| range.start < range.end).ok_or("expected two numbers, such as 1000..2000".to_owned())
}

/// Parses the name of a program: the last part of its path.
pub fn program(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains('/') {
        true => Err("expected the name of a program without its folder, such as gzip".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Parses a number of bytes with an optional K, M or G.
pub fn size(text: &str) -> Result<u64, Failure> {
    let units = [(['K', 'k'], 10), (['M', 'm'], 20), (['G', 'g'], 30)];
    let with_unit = units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (digits, shift) = with_unit.unwrap_or((text, 0));
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.filter(|&bytes| bytes > 0).ok_or_else(|| {
        Failure::usage(format!("`{text}` is not a size; expected for example 4096, 64K, 4M or 1G"))
    })
}

/// Parses a duration with a unit, such as 100ns or 1us; returns nanoseconds.
pub fn shortest(text: &str) -> Result<u64, String> {
    let nanos = hodo_engine::nanos(text).filter(|_| text.ends_with('s'));
    nanos.ok_or_else(|| "expected a time with its unit, such as 100ns, 1us or 5ms".to_owned())
}

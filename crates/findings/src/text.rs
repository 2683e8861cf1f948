//! Numbers in sentences.

/// Formats a duration with three significant digits, such as `34.1 s`.
pub(crate) fn duration(nanoseconds: u64) -> String {
    const UNITS: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)];
    let value = nanoseconds as f64;
    let (unit, size) = UNITS.into_iter().find(|(_, size)| value >= *size).unwrap_or(("ns", 1.0));
    match value / size {
        short if short >= 100.0 || size == 1.0 => format!("{short:.0} {unit}"),
        short if short >= 10.0 => format!("{short:.1} {unit}"),
        short => format!("{short:.2} {unit}"),
    }
}

/// Formats a share in per cent, such as `44 %`; below 10 % with one decimal.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Formats a count with digits in groups of three, such as `1,000,000`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a thread for people, such as `python3 (714)`.
pub(crate) fn thread(row: &crate::Row<'_>) -> String {
    let (name, tid) = (row.text("comm"), row.integer("tid"));
    if name.is_empty() { format!("thread {tid}") } else { format!("{name} ({tid})") }
}

/// Returns the share of a part in a whole, at most 1; 0 if the whole is 0.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let durations = [0, 999, 1_000, 12_345, 1_234_567, 34_123_456_789].map(duration);
        assert_eq!(durations, ["0 ns", "999 ns", "1.00 µs", "12.3 µs", "1.23 ms", "34.1 s"]);
        assert_eq!([0.044, 0.44].map(percent), ["4.4 %", "44 %"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([share(1, 0), share(1, 2), share(3, 2)], [0.0, 0.5, 1.0]);
    }
}

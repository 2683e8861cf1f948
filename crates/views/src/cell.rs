//! Formats cells for people.

use anstyle::Style;
use arrow_schema::Field;
use hodo_model::{
    Unit, Value,
    table::{Cell, metadata::ColumnMetadata},
};

use crate::Options;

/// Appends a cell of a column with this name and unit.
pub(crate) fn show(name: &str, unit: Unit, cell: Cell<'_>, out: &mut String) {
    match (cell, unit) {
        (Cell::Null, _) => {}
        (Cell::Text(text), _) => printable(text, out),
        (Cell::Integer(integer), Unit::Nanoseconds) if is_instant(name) => instant(integer, out),
        (Cell::Integer(integer), Unit::Nanoseconds) => length(integer, out),
        (Cell::Integer(address), Unit::Address) => *out += &format!("{address:#x}"),
        (Cell::Integer(integer), _) => thousands(integer, out),
        (Cell::Signed(integer), unit) => {
            out.extend((integer < 0).then_some('-'));
            show(name, unit, Cell::Integer(integer.unsigned_abs()), out);
        }
        (Cell::Real(share), Unit::Share) => *out += &format!("{:.2}%", share * 100.0),
        (Cell::Real(nanoseconds), Unit::Nanoseconds) => *out += &duration(nanoseconds),
        (Cell::Real(real), Unit::Instructions | Unit::Count) => rate(real, out),
        (Cell::Real(real), _) => *out += &format!("{real:.3}"),
        (Cell::Boolean(truth), _) => *out += if truth { "yes" } else { "no" },
        (Cell::List(items), unit) => {
            for (index, item) in items.iter().enumerate() {
                *out += if index > 0 { ", " } else { "" };
                show(name, unit, item, out);
            }
        }
    }
}

/// Formats a figure of a summary, whose name determines its unit.
pub(crate) fn show_figure(name: &str, value: &Value) -> String {
    let mut text = String::new();
    show(name, figure_unit(name, value), value.cell(), &mut text);
    text
}

fn figure_unit(name: &str, value: &Value) -> Unit {
    let ends = |end| name.ends_with(end);
    match value {
        _ if ends("_ns") => Unit::Nanoseconds,
        Value::Real(_) if ends("instructions") => Unit::Instructions,
        Value::Real(_) if ends("calls") => Unit::Count,
        _ => Unit::None,
    }
}

/// The words of a name such as `self_time_ns`, without the unit if the values show it.
pub(crate) fn words(name: &str, unit: Unit) -> Vec<&str> {
    let own = name.strip_suffix("_ns").filter(|_| unit == Unit::Nanoseconds);
    own.unwrap_or(name).split('_').collect()
}

/// The name of a figure of a summary, without the unit if its value shows it.
pub(crate) fn figure_name(name: &str, value: &Value) -> String {
    words(name, figure_unit(name, value)).join(" ")
}

/// Whether a column's cells are left-aligned, as text is.
pub(crate) fn is_text(field: &Field) -> bool {
    matches!(field.type_name(), "string" | "list" | "boolean")
}

/// The style, if colours are enabled.
pub(crate) fn styled(options: &Options, style: Style) -> Style {
    if options.colour { style } else { Style::new() }
}

/// Whether a column of nanoseconds contains points on the clock, not durations.
fn is_instant(name: &str) -> bool {
    ["begin_ns", "end_ns", "at_ns"].contains(&name)
}

/// Appends a point on the clock in seconds, to the nanosecond.
pub(crate) fn instant(nanoseconds: u64, out: &mut String) {
    digits(nanoseconds / 1_000_000_000, usize::MAX, out);
    out.push('.');
    decimals(nanoseconds % 1_000_000_000, 1_000_000_000, out);
    *out += " s";
}

/// Appends a number below a power of ten, padded with zeros to that power's digits.
fn decimals(number: u64, power: u64, out: &mut String) {
    let mut digit_value = power / 10;
    while digit_value > 0 {
        out.push(char::from(b'0' + (number / digit_value % 10) as u8));
        digit_value /= 10;
    }
}

/// Appends a duration, to a thousandth of its unit. Integer arithmetic, because it is faster than floating-point and
/// tables have tens of thousands of durations.
fn length(nanoseconds: u64, out: &mut String) {
    let (unit, name) = match nanoseconds {
        below if below < 1_000 => (1, " ns"),
        below if below < 1_000_000 => (1_000, " µs"),
        below if below < 1_000_000_000 => (1_000_000, " ms"),
        _ => (1_000_000_000, " s"),
    };
    if unit == 1 {
        digits(nanoseconds, usize::MAX, out);
    } else {
        let thousandth = unit / 1_000;
        let thousandths = nanoseconds / thousandth + u64::from(nanoseconds % thousandth * 2 >= thousandth);
        digits(thousandths / 1_000, usize::MAX, out);
        out.push('.');
        decimals(thousandths % 1_000, 1_000, out);
    }
    *out += name;
}

fn duration(nanoseconds: f64) -> String {
    match nanoseconds.abs() {
        below if below < 1e3 => format!("{} ns", (nanoseconds * 1e3).round() / 1e3),
        below if below < 1e6 => format!("{:.3} µs", nanoseconds / 1e3),
        below if below < 1e9 => format!("{:.3} ms", nanoseconds / 1e6),
        _ => format!("{:.3} s", nanoseconds / 1e9),
    }
}

/// Appends a ratio of two counts, rounded to hundredths.
fn rate(real: f64, out: &mut String) {
    let hundredths = (real.abs() * 100.0).round();
    // Too large for hundredths, or not a number.
    if !hundredths.is_finite() || hundredths >= 1e15 {
        return *out += &format!("{real:e}");
    }
    let hundredths = hundredths as u64;
    out.extend((real < 0.0 && hundredths > 0).then_some('-'));
    thousands(hundredths / 100, out);
    if !hundredths.is_multiple_of(100) {
        out.push('.');
        decimals(hundredths % 100, 100, out);
    }
}

/// Appends an integer with commas between thousands.
pub(crate) fn thousands(integer: u64, out: &mut String) {
    digits(integer, 3, out);
}

/// Appends an integer with commas between groups of `group` digits.
fn digits(mut integer: u64, group: usize, out: &mut String) {
    // Twenty digits and six commas.
    let mut text = [b','; 26];
    let (mut begin, mut count) = (text.len(), 0);
    while begin == text.len() || integer > 0 {
        begin -= usize::from(count > 0 && count % group == 0);
        begin -= 1;
        text[begin] = b'0' + (integer % 10) as u8;
        integer /= 10;
        count += 1;
    }
    out.extend(text[begin..].iter().copied().map(char::from));
}

/// Appends text without control characters, which could affect the terminal: names come from untrusted files.
pub(crate) fn printable(text: &str, out: &mut String) {
    if !text.contains(char::is_control) {
        return out.push_str(text);
    }
    for character in text.chars() {
        if character.is_control() {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
}

/// Cuts text to a width in characters: a path at the front, other text in the middle.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let front = if text.starts_with('/') { 0 } else { kept.div_ceil(2) };
    let back = length - (kept - front);
    text.chars().take(front).chain(['…']).chain(text.chars().skip(back)).collect()
}

/// Wraps text at blanks into lines of at most `width` characters; none but the last ends with a blank.
pub(crate) fn wrap(text: &str, width: Option<usize>) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a line at all times");
        let fits = width.is_none_or(|width| line.chars().count() + 1 + word.chars().count() <= width);
        if line.is_empty() {
            line.push_str(word);
        } else if fits {
            line.extend([" ", word]);
        } else {
            line.truncate(line.trim_end().len());
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        let cases = [
            (Unit::Count, Value::Integer(0), "0"),
            (Unit::Count, Value::Integer(999), "999"),
            (Unit::Instructions, Value::Integer(1_000), "1,000"),
            (Unit::None, Value::Integer(u64::MAX), "18,446,744,073,709,551,615"),
            (Unit::Nanoseconds, Value::Integer(999), "999 ns"),
            (Unit::Nanoseconds, Value::Integer(1_234), "1.234 µs"),
            (Unit::Nanoseconds, Value::Integer(1_234_567), "1.235 ms"),
            (Unit::Nanoseconds, Value::Integer(1_234_499), "1.234 ms"),
            (Unit::Nanoseconds, Value::Integer(999_999_500), "1000.000 ms"),
            (Unit::Nanoseconds, Value::Integer(61_500_000_000), "61.500 s"),
            (Unit::Nanoseconds, Value::Integer(u64::MAX), "18446744073.710 s"),
            (Unit::Nanoseconds, Value::Real(1_234.4), "1.234 µs"),
            (Unit::Address, Value::Integer(0x401000), "0x401000"),
            (Unit::Share, Value::Real(0.12345), "12.35%"),
            (Unit::Share, Value::Real(1.0), "100.00%"),
            (Unit::None, Value::Real(0.5), "0.500"),
            (Unit::Instructions, Value::Real(1_234_567.0), "1,234,567"),
            (Unit::Instructions, Value::Real(-1_234.5), "-1,234.50"),
            (Unit::Count, Value::Real(0.004), "0"),
            (Unit::Count, Value::Real(-0.001), "0"),
            (Unit::Count, Value::Real(1e18), "1e18"),
            (Unit::Count, Value::Real(f64::NAN), "NaN"),
            (Unit::None, Value::Null, ""),
            (Unit::None, Value::Signed(-11), "-11"),
            (Unit::Count, Value::Signed(i64::MIN), "-9,223,372,036,854,775,808"),
            (Unit::Nanoseconds, Value::Signed(-1_234), "-1.234 µs"),
            (Unit::None, Value::Boolean(true), "yes"),
            (Unit::Bytes, Value::from(vec![1_000_u64, 2]), "1,000, 2"),
            (Unit::None, Value::from("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n"),
        ];
        let shown = |name, unit, value: Value| {
            let mut text = String::new();
            show(name, unit, value.cell(), &mut text);
            text
        };
        for (unit, value, expected) in cases {
            assert_eq!(shown("x", unit, value), expected);
        }
        assert_eq!(shown("begin_ns", Unit::Nanoseconds, Value::Integer(12_000_000_345)), "12.000000345 s");
        assert_eq!(show_figure("elapsed_ns", &Value::Integer(5)), "5 ns");
        // The unit leaves a name only if the values have it.
        assert_eq!(words("total_ns", Unit::Nanoseconds), ["total"]);
        assert_eq!(words("total_ns", Unit::None), ["total", "ns"]);
        assert_eq!(figure_name("elapsed_ns", &Value::Integer(5)), "elapsed");
    }

    #[test]
    fn wrapped_text_keeps_its_words() {
        assert_eq!(wrap("a bc def", None), ["a bc def"]);
        assert_eq!(wrap("a bc def", Some(4)), ["a bc", "def"]);
        assert_eq!(wrap("a longword b", Some(3)), ["a", "longword", "b"]);
        assert_eq!(wrap("a  word", Some(3)), ["a", "word"]);
        assert_eq!(wrap("", Some(3)), [""]);
    }

    #[test]
    fn cut_text_has_the_width_asked_for() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("a_long_function_name", 9), "a_lo…name");
        assert_eq!(cut("/usr/lib/libc.so.6", 10), "…libc.so.6");
        for width in 1..20 {
            assert_eq!(cut("a_long_functiön_näme", width).chars().count(), width);
        }
    }
}

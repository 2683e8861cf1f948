//! Numbers in sentences.

use crate::call_tree::is_stub;

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

/// Formats instructions per unit: whole from 10 on, and below 0.1 with two significant digits.
pub(crate) fn rate(rate: f64) -> String {
    if rate >= 10.0 {
        return count(rate.round() as u64);
    }
    let zeros = if rate > 0.0 && rate < 0.1 { (-rate.log10()).ceil() as usize } else { 1 };
    format!("{rate:.*}", zeros + 1)
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

/// Widest name of a function in a sentence, in characters: those of C++ templates have hundreds.
const NAME: usize = 60;

/// Formats a function's name. A long one loses its template's arguments and parameters, `Map<…>::find(…)`, and is cut if
/// it is still too long.
pub(crate) fn name(function: &str) -> String {
    let shorter = match function.chars().count() > NAME {
        true => without_arguments(function),
        false => function.to_owned(),
    };
    cut(&shorter, NAME)
}

/// Cuts a text after so many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Replaces what stands in brackets by `…`.
fn without_arguments(function: &str) -> String {
    let (mut shorter, mut depth) = (String::new(), 0u32);
    for letter in function.chars() {
        match letter {
            '<' | '(' if depth == 0 => {
                shorter.push(letter);
                shorter.push('…');
                depth = 1;
            }
            '<' | '(' => depth += 1,
            '>' | ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    shorter.push(letter);
                }
            }
            _ if depth == 0 => shorter.push(letter),
            _ => {}
        }
    }
    shorter
}

/// Formats a call path, `serve → flush → copy`; of a long one the last two functions.
pub(crate) fn path(path: &str) -> String {
    let mut names: Vec<&str> = path.split(" → ").collect();
    // The linker's stubs do nothing of their own.
    if names.last().is_some_and(|last| !is_stub(last)) {
        names.retain(|name| !is_stub(name));
    }
    let is_long = names.len() > 3 || path.chars().count() > NAME;
    let shown = match names[..] {
        [.., above, last] if names.len() > 2 && is_long => {
            match name(above).len() + name(last).len() > NAME {
                true => vec!["…", last],
                false => vec!["…", above, last],
            }
        }
        _ => names,
    };
    // The depth of a recursion stays.
    let cut = |shown: &str| match shown.rsplit_once(" ×") {
        Some((function, depth)) => format!("{} ×{depth}", name(function)),
        None => name(shown),
    };
    shown.into_iter().map(cut).collect::<Vec<_>>().join(" → ")
}

/// How often, in words: `once`, `41 times`.
pub(crate) fn times(calls: u64) -> String {
    match calls {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        _ => format!("{} times", count(calls)),
    }
}

/// Width of a finding's lines, in columns, without their indentation.
pub const WIDTH: usize = 96;
/// The most lines of a sentence that is made of parts: with its command, a finding takes four.
const MOST_LINES: usize = 3;

/// Appends those of several parts of a sentence that fit, at least the first: `head first; second.`
pub(crate) fn fitted(head: &str, parts: &[String]) -> String {
    let mut sentence = head.to_owned();
    for (index, part) in parts.iter().enumerate() {
        let longer = sentence.clone() + if index == 0 { " " } else { "; " } + part;
        if index > 0 && wrapped(&format!("{longer}."), WIDTH).len() > MOST_LINES {
            break;
        }
        sentence = longer;
    }
    if !parts.is_empty() {
        sentence.push('.');
    }
    sentence
}

/// Appends a sentence if the text then still fits.
pub(crate) fn with(head: String, sentence: Option<String>) -> String {
    let longer = sentence.map(|sentence| format!("{head} {sentence}."));
    longer.filter(|longer| wrapped(longer, WIDTH).len() <= MOST_LINES).unwrap_or(head)
}

/// Breaks text into lines of at most `width` characters, between words and not before `%`.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    const NO_BREAK: &str = "\u{a0}%";
    let mut lines: Vec<String> = Vec::new();
    for word in text.replace(" %", NO_BREAK).split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| line.replace(NO_BREAK, " %")).collect()
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
        assert_eq!(
            [0.0, 0.00412, 0.05, 0.25, 9.99, 12.4].map(rate),
            ["0.00", "0.0041", "0.050", "0.25", "9.99", "12"]
        );
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 41].map(times), ["never", "once", "41 times"]);
        assert_eq!(path("a → b → c"), "a → b → c");
        assert_eq!(path("a → b → c → d ×7 → e"), "… → d ×7 → e");
        assert_eq!(path("a → b@plt → b"), "a → b");
        let long = format!("std::Map<{}>::find(int, char*)", "a::B<c>".repeat(10));
        assert_eq!(name(&long), "std::Map<…>::find(…)");
        assert_eq!(name(&"x".repeat(61)), "x".repeat(60) + "…");
        let parts = ["1 ran more".to_owned(), "y ".repeat(150)];
        assert_eq!(fitted("It is slow.", &parts), "It is slow. 1 ran more.");
        assert_eq!([share(1, 0), share(1, 2), share(3, 2)], [0.0, 0.5, 1.0]);
    }
}

//! The address filter of a recording.

use std::{fmt, ops::Range, str::FromStr};

use hodo_code::Origin;

/// One range of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FilterRange {
    /// Addresses, or offsets into `file`.
    range: Range<u64>,
    file: Option<String>,
    /// Tracing stops at this range, instead of being on only within it.
    stops: bool,
}

/// A part of a filter that has no valid syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    part: String,
    expected: &'static str,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` where {} was expected", self.part, self.expected)
    }
}

impl std::error::Error for FilterError {}

/// An address filter in the syntax of perf: `filter 0x1000/0x200@/bin/program`, `stop 0x1000/0x200` and `tracestop
/// …`, separated by commas (perf-record(1), "--filter"); or plain ranges, for example `0x1000-0x1200`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<FilterRange>);

impl FromStr for Filter {
    type Err = FilterError;

    /// Parses a filter; every part must be valid.
    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let parts = parts(text).collect::<Result<Vec<FilterRange>, FilterError>>()?;
        match parts.is_empty() {
            true => Err(FilterError { part: text.to_owned(), expected: RANGE }),
            false => Ok(Filter(parts)),
        }
    }
}

impl Filter {
    /// Parses a filter and skips invalid parts, for example those with symbol names.
    pub fn parse(text: &str) -> Filter {
        Filter(parts(text).filter_map(Result::ok).collect())
    }

    /// Returns whether the filter is empty, so that everything is traced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether code at `address` is traced. `origin` is where the code comes from; `is_file` returns whether
    /// its module is the file with the given name.
    pub fn traces(&self, address: u64, origin: Option<Origin>, is_file: impl Fn(&str) -> bool) -> bool {
        let within = |part: &FilterRange| match &part.file {
            None => part.range.contains(&address),
            Some(file) => origin.is_some_and(|origin| part.range.contains(&origin.offset)) && is_file(file),
        };
        let mut ranges = self.0.iter().filter(|part| !part.stops).peekable();
        let is_included = ranges.peek().is_none() || ranges.any(within);
        is_included && !self.0.iter().filter(|part| part.stops).any(within)
    }
}

const SEPARATORS: [char; 4] = [' ', ',', '\t', '\n'];

/// The valid forms of a part.
const RANGE: &str = "`filter ADDRESS/SIZE`, `tracestop ADDRESS/SIZE` or ADDRESS-ADDRESS";

/// Splits a filter into parts, or errors for invalid ones.
fn parts(text: &str) -> impl Iterator<Item = Result<FilterRange, FilterError>> {
    let mut rest = text.trim_start_matches(SEPARATORS);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (word, behind) = rest.split_once(SEPARATORS).unwrap_or((rest, ""));
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            rest = behind.trim_start_matches(SEPARATORS);
            return Some(plain(word));
        }
        let (range, behind) = behind.trim_start().split_once([',', ' ']).unwrap_or((behind.trim_start(), ""));
        rest = behind.trim_start_matches(SEPARATORS);
        Some(part(word, range))
    })
}

/// Parses a part from its first word and its range.
fn part(word: &str, range: &str) -> Result<FilterRange, FilterError> {
    let wrong = |expected| FilterError { part: format!("{word} {range}").trim_end().to_owned(), expected };
    let stops = match word {
        "filter" => false,
        "tracestop" | "stop" => true,
        "start" => return Err(wrong("a range: Intel PT has no filter that starts tracing at an address")),
        _ => return Err(wrong(RANGE)),
    };
    let (range, file) = range.split_once('@').map_or((range, None), |(range, file)| (range, Some(file)));
    let (start, size) = range.split_once('/').ok_or(wrong(RANGE))?;
    let (start, size) = number(start).zip(number(size)).ok_or(wrong(RANGE))?;
    Ok(FilterRange { range: start..start.saturating_add(size), file: file.map(str::to_owned), stops })
}

/// Parses a plain address range; the second address is exclusive.
fn plain(range: &str) -> Result<FilterRange, FilterError> {
    let bounds = range.split_once('-').and_then(|(start, end)| number(start).zip(number(end)));
    let bounds = bounds.filter(|(start, end)| start < end);
    let (start, end) = bounds.ok_or(FilterError { part: range.to_owned(), expected: RANGE })?;
    Ok(FilterRange { range: start..end, file: None, stops: false })
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_addresses_and_files() {
        let filter = Filter::parse("filter 0x1000/0x200@/bin/a,filter 4096/16, tracestop 0x1008/0x4");
        let traces = |address, offset| {
            filter.traces(address, Some(Origin { module: 0, offset }), |file| file == "/bin/a")
        };
        assert!(traces(0x1000, 0) && traces(0x1007, 0) && !traces(0x1008, 0));
        assert!(traces(0x100c, 0) && !traces(0x1010, 0));
        assert!(traces(0x9000, 0x11ff) && !traces(0x9000, 0x1200));
    }

    #[test]
    fn plain_ranges_are_a_filter() {
        let filter: Filter = "0x1000-0x1200, 8192-8208,stop 0x1100/0x10".parse().unwrap();
        let traced = [0xfff, 0x1000, 0x11ff, 0x1200, 0x2000, 0x2010, 0x1108];
        let traced = traced.map(|address| filter.traces(address, None, |_| false));
        assert_eq!(traced, [false, true, true, false, true, false, false]);
    }

    #[test]
    fn invalid_filters_are_errors_that_say_what_is_valid() {
        let wrong = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
        for text in ["", "filter main @ ./prog", "filter 0x1000", "0x1000", "0x2000-0x1000", "bogus 1/2"] {
            assert!(wrong(text).contains("ADDRESS/SIZE"), "{text}: {}", wrong(text));
        }
        assert!(wrong("start 0x1000").contains("no filter that starts"));
    }

    #[test]
    fn without_a_filter_everything_is_traced() {
        assert!(Filter::parse("").is_empty());
        assert!(Filter::parse("").traces(1, None, |_| false));
        assert!(Filter::parse("filter main").is_empty());
    }
}

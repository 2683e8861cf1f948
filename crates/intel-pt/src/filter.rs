//! The address filter of a recording.

use std::ops::Range;

use hodo_code::Origin;

/// One range of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// Addresses, or offsets into `file`.
    range: Range<u64>,
    file: Option<String>,
    /// Tracing stops there, rather than being on only there.
    stops: bool,
}

/// The addresses that are traced, in the syntax of perf: `filter 0x1000/0x200@/bin/program` and
/// `tracestop …`, with commas between them (perf-record(1), "--filter").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<Part>);

impl Filter {
    /// Reads a filter; parts that are not understood, such as those that name symbols, are left out.
    pub fn parse(text: &str) -> Filter {
        let mut parts = Vec::new();
        let mut rest = text.trim_start_matches([' ', ',', '\t', '\n']);
        while !rest.is_empty() {
            let (word, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let behind = behind.trim_start();
            let (range, behind) = behind.split_once([',', ' ']).unwrap_or((behind, ""));
            parts.extend(part(word, range));
            rest = behind.trim_start_matches([' ', ',', '\t', '\n']);
        }
        Filter(parts)
    }

    /// Whether everything is traced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether code at `address` is traced. `origin` is where it comes from, and `is_file` tells whether
    /// that is a file of a name.
    pub fn traces(&self, address: u64, origin: Option<Origin>, is_file: impl Fn(&str) -> bool) -> bool {
        let within = |part: &Part| match &part.file {
            None => part.range.contains(&address),
            Some(file) => origin.is_some_and(|origin| part.range.contains(&origin.offset)) && is_file(file),
        };
        let mut filters = self.0.iter().filter(|part| !part.stops).peekable();
        let begins = filters.peek().is_none() || filters.any(within);
        begins && !self.0.iter().filter(|part| part.stops).any(within)
    }
}

/// A part from its first word and its range.
fn part(word: &str, range: &str) -> Option<Part> {
    let stops = match word {
        "filter" => false,
        "tracestop" => true,
        _ => return None,
    };
    let (range, file) = range.split_once('@').map_or((range, None), |(range, file)| (range, Some(file)));
    let (start, size) = range.split_once('/')?;
    let (start, size) = (number(start)?, number(size)?);
    Some(Part { range: start..start.saturating_add(size), file: file.map(str::to_owned), stops })
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
        let at = |address, offset| {
            filter.traces(address, Some(Origin { module: 0, offset }), |file| file == "/bin/a")
        };
        assert!(at(0x1000, 0) && at(0x1007, 0) && !at(0x1008, 0) && at(0x100c, 0) && !at(0x1010, 0));
        assert!(at(0x9000, 0x11ff) && !at(0x9000, 0x1200));
    }

    #[test]
    fn without_a_filter_everything_is_traced() {
        assert!(Filter::parse("").is_empty());
        assert!(Filter::parse("").traces(1, None, |_| false));
        assert!(Filter::parse("filter main").is_empty());
    }
}

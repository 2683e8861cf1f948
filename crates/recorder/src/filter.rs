//! perf's syntax for address filters: `filter main @ ./program`, `filter 0x1000 / 0x80 @ /lib/libc.so.6`, `filter first
//! / last @ ./program`, `filter * @ ./program`; several are separated by commas or spaces. Functions without a file are
//! the kernel's: `filter vfs_read`.

use std::{
    collections::VecDeque,
    ops::Range,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use hodo_emulator::{
    FilterRange,
    machine::{KernelEnd, Part},
};
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache};

use crate::Error;

/// The traced code ranges of a filter for user space.
pub(crate) fn parse(text: &str) -> Result<Vec<FilterRange>, Error> {
    let range = |part| match part {
        Part::Addresses(range) => {
            Ok(FilterRange { file: Vec::new(), start: range.start, size: range.end - range.start })
        }
        Part::Kernel { .. } => {
            Err(wrong_filter(text, "a function needs its file: filter FUNCTION @ FILE".to_owned()))
        }
        Part::File { path, range } => Ok(FilterRange {
            file: path.into_os_string().into_vec(),
            start: range.start,
            size: range.end - range.start,
        }),
    };
    parts(text)?.into_iter().map(range).collect()
}

fn wrong_filter(text: &str, reason: String) -> Error {
    Error::Filter { filter: text.to_owned(), reason }
}

/// The traced parts of a filter for a machine.
pub(crate) fn parts(text: &str) -> Result<Vec<Part>, Error> {
    let wrong = |reason| wrong_filter(text, reason);
    let spaced = text.replace(',', " ").replace('/', " / ").replace('@', " @ ");
    // Slashes in file names are not separators: the word after an @ comes from the original text.
    let mut files: VecDeque<&str> = text
        .split('@')
        .skip(1)
        .filter_map(|rest| rest.split([' ', ',']).find(|word| !word.is_empty()))
        .collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let starts: Vec<usize> = (0..words.len()).filter(|&index| is_action(words[index])).collect();
    if starts.first() != Some(&0) {
        return Err(wrong("it begins with none of filter, start, stop, tracestop".into()));
    }
    let ends = starts.iter().skip(1).copied().chain([words.len()]);
    let mut parts = Vec::new();
    for (start, end) in starts.iter().zip(ends) {
        parts.push(parse_filter(&words[*start..end], &mut files).map_err(wrong)?);
    }
    Ok(parts)
}

/// The ranges as perf writes them into a recording: functions resolved to offsets in their files.
pub(crate) fn to_perf_syntax(ranges: &[FilterRange]) -> String {
    let shown = ranges.iter().map(|range| {
        let separator = if range.file.is_empty() { "" } else { "@" };
        format!(
            "filter {:#x}/{:#x}{separator}{}",
            range.start,
            range.size,
            String::from_utf8_lossy(&range.file)
        )
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn is_action(word: &str) -> bool {
    matches!(word, "filter" | "start" | "stop" | "tracestop")
}

/// Parses one filter: action, place, optionally `/` and an end, optionally `@` and a file.
fn parse_filter(words: &[&str], files: &mut VecDeque<&str>) -> Result<Part, String> {
    let (&action, rest) = words.split_first().ok_or("it is empty")?;
    if action != "filter" {
        return Err(format!("the emulated processor has `filter` only, not `{action}`"));
    }
    let file_separator = rest.iter().position(|&word| word == "@");
    let place = &rest[..file_separator.unwrap_or(rest.len())];
    let (&start, after_start) = place.split_first().ok_or("no function or address follows `filter`")?;
    let end = match after_start {
        [] => None,
        ["/", end] => Some(*end),
        _ => return Err(format!("`{}` is not understood", after_start.join(" "))),
    };
    if file_separator.is_none() {
        return in_memory(start, end);
    }
    let path = files.pop_front().ok_or("no file follows @")?;
    let path = Path::new(path).canonicalize().map_err(|error| format!("{path}: {error}"))?;
    let range = in_file(&path, start, end)?;
    Ok(Part::File { path, range })
}

/// Addresses, or functions of the kernel.
fn in_memory(start: &str, end: Option<&str>) -> Result<Part, String> {
    let size = end.and_then(number);
    if let Some(address) = number(start) {
        return match size {
            Some(size) if size > 0 => Ok(Part::Addresses(address..address.saturating_add(size))),
            _ => Err("an address needs a size: filter ADDRESS/SIZE".to_owned()),
        };
    }
    let end = match (end, size) {
        (None, _) => KernelEnd::OfFirst,
        (_, Some(0)) => return Err(format!("the size of {start} is 0")),
        (_, Some(size)) => KernelEnd::After(size),
        (Some(last), None) => KernelEnd::Of(last.to_owned()),
    };
    Ok(Part::Kernel { first: start.to_owned(), end })
}

/// A number, decimal or hexadecimal.
fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// The range of file offsets from `start`, a function or an offset. `end` is a size, or the last function; without it, the
/// range is the function `start`. `*` is the whole file.
fn in_file(path: &Path, start: &str, end: Option<&str>) -> Result<Range<u64>, String> {
    let name = path.display();
    let file = std::fs::File::open(path).map_err(|error| format!("{name}: {error}"))?;
    let length = file.metadata().map_err(|error| format!("{name}: {error}"))?.len();
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).map_err(|error| format!("{name}: {error}"))?;
    if start == "*" {
        return Ok(0..length);
    }
    let range = match number(start) {
        Some(offset) => offset..offset,
        None => function(&object, start).ok_or_else(|| format!("{name} has no function {start}"))?,
    };
    let end = match end {
        None => range.end,
        Some(end) => match number(end) {
            Some(size) => range.start.saturating_add(size),
            None => function(&object, end).ok_or_else(|| format!("{name} has no function {end}"))?.end,
        },
    };
    match end > range.start {
        true => Ok(range.start..end),
        false => Err(format!("the size of {start} is unknown; give one: filter {start} / SIZE @ {name}")),
    }
}

/// The path of a file without symbolic links, and the offsets of a function in it.
pub(crate) fn function_of(path: &Path, function: &str) -> Result<(PathBuf, Range<u64>), String> {
    let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    let range = in_file(&path, function, None)?;
    Ok((path, range))
}

/// The file offsets of a function's code.
fn function<'a>(object: &impl Object<'a>, name: &str) -> Option<Range<u64>> {
    let symbol = (object.symbols().chain(object.dynamic_symbols()))
        .find(|symbol| symbol.is_definition() && symbol.name() == Ok(name))?;
    let segment = object.segments().find(|segment| {
        (segment.address()..segment.address() + segment.size()).contains(&symbol.address())
    })?;
    let offset = symbol.address() - segment.address() + segment.file_range().0;
    Some(offset..offset + symbol.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_without_a_file_are_addresses() {
        let range = FilterRange { file: Vec::new(), start: 0x401000, size: 0x20 };
        assert_eq!(parse("filter 0x401000/0x20").unwrap(), std::slice::from_ref(&range));
        assert_eq!(parse("filter 0x401000 / 32, filter 4198400 / 0x20").unwrap(), [range.clone(), range]);
    }

    #[test]
    fn a_function_of_a_file_is_found() {
        let program = std::env::current_exe().unwrap();
        let ranges = parse(&format!("filter main @ {}", program.display())).unwrap();
        assert!(ranges.len() == 1 && ranges[0].start != 0 && ranges[0].size != 0);
        assert_eq!(ranges[0].file, program.canonicalize().unwrap().into_os_string().into_vec());
    }

    #[test]
    fn functions_without_a_file_are_the_kernels() {
        let kernel = |first: &str, end| Part::Kernel { first: first.to_owned(), end };
        let expected = [
            kernel("vfs_read", KernelEnd::OfFirst),
            kernel("vfs_read", KernelEnd::Of("vfs_write".to_owned())),
            kernel("vfs_read", KernelEnd::After(16)),
            Part::Addresses(0xffffffff81000000..0xffffffff81000080),
        ];
        let text = "filter vfs_read, filter vfs_read / vfs_write filter vfs_read/0x10, filter 0xffffffff81000000/0x80";
        assert_eq!(parts(text).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, what) in [
            ("main @ /bin/ls", "begins with none"),
            ("stop main @ /bin/ls", "`filter` only"),
            ("filter main", "needs its file"),
            ("filter 0x1000", "needs a size"),
            ("filter 0x1000/0", "needs a size"),
            ("filter no_such_function @ /bin/ls", "no function no_such_function"),
            ("filter main @ /no/such/file", "/no/such/file"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}

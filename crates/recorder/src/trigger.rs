//! Parses triggers.
//!
//! ```text
//! trigger = "latency(" what ")" ">" NUMBER unit | NAME [ "@" FILE ] ">" NUMBER unit
//! what    = "syscall:" NAME | "function:" NAME [ "@" FILE ] | "interrupts-off" | "wakeup" [ ":" NAME ]
//! unit    = "ns" | "us" | "ms" | "s" | "instructions"
//! ```

use std::path::Path;

use hodo_emulator::machine::trigger::{Latency, Limit, Trigger};
use hodo_model::ExpressionError;

use crate::filter;

/// The byte offset of an error in the text, and what was expected there.
type Wrong = (usize, String);

/// Parses a trigger, and finds its function if that is in a file.
///
/// # Errors
/// Returns what was expected, and the position.
pub fn parse_trigger(text: &str) -> Result<Trigger, ExpressionError> {
    parse(text).map_err(|(offset, why)| ExpressionError::new(text, offset, why))
}

/// The error that a trigger can't be followed, at its limit or at a name in it.
pub(crate) fn wrong(trigger: &Trigger, name: Option<&str>, why: String) -> ExpressionError {
    let text = &trigger.text;
    let offset = match name {
        Some(name) => text.find(name),
        None => text.rfind('>').map(|sign| sign + 1 + blanks(&text[sign + 1..])),
    };
    ExpressionError::new(text, offset.unwrap_or(0), why)
}

/// The number of bytes of white space at the begin of a text.
fn blanks(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

fn parse(text: &str) -> Result<Trigger, Wrong> {
    let begin = blanks(text);
    let (what, after_sign) = match text.rfind('>') {
        Some(sign) => (text[..sign].trim_end(), sign + 1),
        None => (text.trim_end(), text.len()),
    };
    // Parsed last, so that an error on its left is reported first.
    let parse_limit = || {
        let start = after_sign + blanks(&text[after_sign..]);
        limit(&text[start..]).map_err(|(offset, why)| (start + offset, why))
    };
    if let Some(function) = what.get(begin..).filter(|what| !what.is_empty() && !what.contains('(')) {
        let latency = function_of(function).map_err(|why| (begin, why))?;
        return Ok(Trigger { text: text.trim().to_owned(), latency, limit: parse_limit()? });
    }
    let inner_start = begin + "latency(".len();
    let inner = what.get(begin..).and_then(|what| what.strip_prefix("latency("));
    let inner =
        inner.ok_or((begin, "expected latency(…), such as latency(syscall:read) > 200us".to_owned()))?;
    let inner = inner.strip_suffix(')').ok_or((what.len(), "expected `)`".to_owned()))?;
    let latency = latency(inner).map_err(|(offset, why)| (inner_start + offset, why))?;
    Ok(Trigger { text: text.trim().to_owned(), latency, limit: parse_limit()? })
}

fn latency(text: &str) -> Result<Latency, Wrong> {
    let begin = blanks(text);
    let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
    let name_start = kind.len() + 1 + name.map_or(0, blanks);
    let name = name.map(str::trim);
    let expected = |what: &str| (name_start.min(text.len()), format!("expected {what}"));
    match (kind.trim(), name) {
        ("syscall", Some(name)) => match is_identifier(name) {
            true => Ok(Latency::Syscall(name.to_owned())),
            false => Err(expected("the name of a system call, such as read")),
        },
        ("function", Some(name)) => function_of(name).map_err(|why| (name_start.min(text.len()), why)),
        ("interrupts-off", None) => Ok(Latency::InterruptsOff),
        ("wakeup", None) => Ok(Latency::Wakeup(None)),
        ("wakeup", Some(name)) if !name.is_empty() => Ok(Latency::Wakeup(Some(name.to_owned()))),
        ("wakeup", Some(_)) => Err(expected("the name of a thread")),
        _ => {
            let known =
                "syscall:NAME, function:NAME, function:NAME@FILE, interrupts-off, wakeup or wakeup:NAME";
            Err((begin, format!("expected {known}")))
        }
    }
}

/// A function of a file, or, without one, of the kernel or of the command's program.
fn function_of(name: &str) -> Result<Latency, String> {
    match name.split_once('@') {
        None if is_symbol(name) => Ok(Latency::Kernel(name.to_owned())),
        Some((function, file)) if is_symbol(function.trim()) => {
            let found = filter::function_of(Path::new(file.trim()), function.trim());
            found.map(|(path, range)| Latency::File { path, range })
        }
        _ => Err("expected a function of the kernel or of the program, or FUNCTION@FILE".to_owned()),
    }
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

fn is_symbol(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_whitespace)
}

fn limit(text: &str) -> Result<Limit, Wrong> {
    let expected = "expected a limit, such as > 200us, > 5ms or > 10000instructions";
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| (0, expected.to_owned()))?;
    let unit_start = digits + blanks(&text[digits..]);
    let scale = match text[unit_start..].trim_end() {
        "instructions" => return Ok(Limit::Instructions(number)),
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err((unit_start, "expected a unit: ns, us, ms, s or instructions".to_owned())),
    };
    let nanoseconds = number.checked_mul(scale).ok_or((0, "expected a shorter time".to_owned()))?;
    Ok(Limit::Nanoseconds(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Latency, Limit) {
        let trigger = parse_trigger(text).unwrap();
        assert_eq!(trigger.text, text.trim());
        (trigger.latency, trigger.limit)
    }

    #[test]
    fn triggers_are_read() {
        let syscall = Latency::Syscall("read".to_owned());
        assert_eq!(read("latency(syscall:read) > 200us"), (syscall.clone(), Limit::Nanoseconds(200_000)));
        assert_eq!(read(" latency( syscall: read )>200 µs "), (syscall, Limit::Nanoseconds(200_000)));
        let kernel = Latency::Kernel("vfs_read.isra.0".to_owned());
        assert_eq!(read("latency(function:vfs_read.isra.0) > 7ms"), (kernel, Limit::Nanoseconds(7_000_000)));
        let off = (Latency::InterruptsOff, Limit::Instructions(100));
        assert_eq!(read("latency(interrupts-off) > 100 instructions"), off);
        let woken = |name: Option<&str>| Latency::Wakeup(name.map(str::to_owned));
        assert_eq!(read("latency(wakeup) > 1s"), (woken(None), Limit::Nanoseconds(1_000_000_000)));
        assert_eq!(read("latency(wakeup:my app) > 1ns"), (woken(Some("my app")), Limit::Nanoseconds(1)));
        assert_eq!(read("serve > 5ms"), (Latency::Kernel("serve".to_owned()), Limit::Nanoseconds(5_000_000)));
        let program = std::env::current_exe().unwrap();
        let (latency, _) = read(&format!("latency(function:main@{}) > 1ms", program.display()));
        assert!(matches!(latency, Latency::File { path, range } if path.is_absolute() && !range.is_empty()));
    }

    #[test]
    fn an_error_points_at_what_is_wrong() {
        for (text, caret, why) in [
            ("", "^", "expected latency(…)"),
            ("delay(syscall:read) > 1us", "^", "expected latency(…)"),
            ("latency(syscall:read > 1us", "                    ^", "`)`"),
            ("latency(syscal:read) > 1us", "        ^", "interrupts-off"),
            ("latency(syscall:re ad) > 1us", "                ^", "system call"),
            ("latency(function:) > 1us", "                 ^", "FUNCTION@FILE"),
            ("latency(function:main@/no/such) > 1us", "                 ^", "/no/such"),
            ("latency(wakeup:) > 1us", "               ^", "thread"),
            ("latency(wakeup)", "               ^", "a limit"),
            ("latency(wakeup) > us", "                  ^", "a limit"),
            ("latency(wakeup) > 5 parsec", "                    ^", "a unit"),
            ("latency(wakeup) > 99999999999999999s", "                  ^", "shorter"),
        ] {
            let error = parse_trigger(text).unwrap_err().to_string();
            assert_eq!(error.lines().last(), Some(&*format!("  {caret}")), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }
}

//! Parses markers.
//!
//! ```text
//! markers     = marker { "|" marker }
//! marker      = "entry:" FUNCTION | "exit:" FUNCTION | "0x" ADDRESS | FILE ":" LINE | instructions
//! instructions = instruction { ";" instruction }
//! instruction = [ "rep" | "repne" | "lock" ] MNEMONIC [ operand { "," operand } ]
//! ```

use hodo_isa::x86;
use hodo_model::{ExpressionError, Marker, Pattern, Prefix, function_name};

/// A parsed marker with unresolved names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// As [`Marker::Instructions`].
    Instructions(Vec<Pattern>),
    /// The entry of the functions with this name, which may end in `*`.
    Entry(String),
    /// The returns of the functions with this name, which may end in `*`.
    Exit(String),
    /// As [`Marker::Address`].
    Address(u64),
    /// A source line: a suffix of the file's path, and the line number from 1.
    Line(String, u32),
}

/// Parses one or more alternative markers.
///
/// # Errors
/// Returns what was expected, and the position.
pub fn parse(text: &str) -> Result<Vec<Named>, ExpressionError> {
    let markers = parts(text, '|')
        .map(|(begin, part)| marker(part).map_err(|(at, why)| ExpressionError::new(text, begin + at, why)));
    markers.collect()
}

/// A byte offset in a text, and what was expected there.
type ParseError = (usize, String);

/// Returns the trimmed parts between separators, and the offset of each.
fn parts(text: &str, separator: char) -> impl Iterator<Item = (usize, &str)> {
    let mut next = 0;
    text.split(separator).map(move |part| {
        let begin = next + (part.len() - part.trim_start().len());
        next += part.len() + separator.len_utf8();
        (begin, part.trim())
    })
}

fn marker(text: &str) -> Result<Named, ParseError> {
    for (prefix, make) in [("entry:", Named::Entry as fn(String) -> Named), ("exit:", Named::Exit)] {
        match text.strip_prefix(prefix).map(str::trim) {
            Some("") => return Err((text.len(), "expected the name of a function".to_owned())),
            Some(function) => return Ok(make(function.to_owned())),
            None => {}
        }
    }
    const HEXADECIMAL: &str = "0x";
    if let Some(digits) = text.strip_prefix(HEXADECIMAL) {
        let address = u64::from_str_radix(digits, 16);
        return address
            .map(Named::Address)
            .map_err(|_| (HEXADECIMAL.len(), "expected an address, such as 0x401136".to_owned()));
    }
    if let Some((file, line)) = text.rsplit_once(':') {
        return match line.parse() {
            Ok(line) if line > 0 && !file.is_empty() => Ok(Named::Line(file.to_owned(), line)),
            _ => {
                let why = "expected entry:FUNCTION, exit:FUNCTION, or FILE:LINE with a line from 1";
                Err((text.len() - line.len(), why.to_owned()))
            }
        };
    }
    let patterns =
        parts(text, ';').map(|(begin, part)| instruction(part).map_err(|(at, why)| (begin + at, why)));
    let patterns = patterns.collect::<Result<Vec<Pattern>, ParseError>>()?;
    match patterns.len() > Marker::LONGEST {
        true => Err((0, format!("a sequence has at most {} instructions", Marker::LONGEST))),
        false => Ok(Named::Instructions(patterns)),
    }
}

fn instruction(text: &str) -> Result<Pattern, ParseError> {
    let (first, rest) = word(text);
    let prefix = match first {
        "rep" | "repe" | "repz" => Some(Prefix::Rep),
        "repne" | "repnz" => Some(Prefix::Repne),
        "lock" => Some(Prefix::Lock),
        _ => None,
    };
    let (name, operands) = if prefix.is_some() { word(rest) } else { (first, rest) };
    // The operands are at the end of the text; the name precedes them and some blanks.
    let name_begin = text[..text.len() - operands.len()].trim_end().len() - name.len();
    if name.is_empty() {
        return Err((text.len(), "expected an instruction, such as `cli` or `pushf; pop; cli`".to_owned()));
    }
    let name = name.to_ascii_lowercase();
    // `pause` is what `rep nop` is on every processor since 2001.
    if (prefix, name.as_str()) == (Some(Prefix::Rep), "nop") {
        return Ok(Pattern { prefix: None, mnemonic: "pause".to_owned(), operands: Vec::new() });
    }
    let is_known = x86::mnemonics().any(|known| may_be_written(&known, &name));
    if name != "*" && !is_known {
        let near = nearest(&name);
        let hint =
            if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
        return Err((name_begin, format!("there is no instruction `{name}`{hint}")));
    }
    let operands: Vec<String> = match operands {
        "" => Vec::new(),
        some => split_operands(some).map(|operand| operand.trim().to_owned()).collect(),
    };
    if operands.iter().any(String::is_empty) {
        return Err((text.len(), "expected an operand, such as `%rax`, or `*` for any".to_owned()));
    }
    Ok(Pattern { prefix, mnemonic: name, operands })
}

/// Returns the first word of a text, and the trimmed rest.
fn word(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, rest.trim())
}

/// Splits the operands of an instruction at commas outside parentheses.
fn split_operands(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    text.split(move |character| {
        depth += i32::from(character == '(') - i32::from(character == ')');
        character == ',' && depth == 0
    })
}

/// Returns whether an instruction has this name, which may omit the size.
pub(super) fn is_called(mnemonic: &str, name: &str) -> bool {
    let sized = ["pushf", "popf", "iret", "sysret", "sysexit", "pusha", "popa"].contains(&name);
    mnemonic == name
        || sized && mnemonic.strip_prefix(name).is_some_and(|size| ["w", "d", "q"].contains(&size))
}

/// Returns whether instructions with this mnemonic, in lower case, may be written with this name: it may omit the size,
/// or add it.
pub fn may_be_written(mnemonic: &str, name: &str) -> bool {
    let bare = name.strip_suffix(['b', 'w', 'l', 'q']);
    is_called(mnemonic, name) || bare.is_some_and(|bare| is_called(mnemonic, bare))
}

/// Returns the names of instructions that are most similar to a name.
fn nearest(name: &str) -> Vec<String> {
    const SHOWN: usize = 3;
    nearest_of(name, x86::mnemonics(), SHOWN)
}

/// Returns at most `most` names that are most similar to a name, with an edit distance of at most a third of its
/// length. Names of functions may be written in part: without parameters, or the last part of a path.
pub fn nearest_of(name: &str, all: impl Iterator<Item = String>, most: usize) -> Vec<String> {
    let length = name.chars().count();
    let limit = (length / 3).max(1);
    let distance = |known: &str| {
        let is_near = known.chars().count().abs_diff(length) <= limit;
        // Exchanged letters count once.
        is_near.then(|| strsim::osa_distance(name, known)).filter(|distance| *distance <= limit)
    };
    let near = all.filter_map(|known| {
        let parts = [&*known, function_name::without_parameters(&known), function_name::last_part(&known)];
        Some((parts.into_iter().filter_map(distance).min()?, known))
    });
    let mut near: Vec<_> = near.collect();
    near.sort();
    near.dedup();
    near.into_iter().take(most).map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_are_near() {
        let all = ["app::Store::lookup(int)", "app::Store::insert(int, int)", "main", "look"];
        let near = |name| nearest_of(name, all.iter().map(|name| (*name).to_owned()), 3);
        assert_eq!(near("lokup"), ["app::Store::lookup(int)"]);
        assert_eq!(near("lookpu"), ["app::Store::lookup(int)", "look"]);
        assert_eq!(near("app::Store::lokup"), ["app::Store::lookup(int)"]);
        assert_eq!(near("mian"), ["main"]);
        assert!(near("something").is_empty());
    }

    fn pattern(mnemonic: &str, operands: &[&str]) -> Pattern {
        let operands = operands.iter().map(|&operand| operand.to_owned()).collect();
        Pattern { prefix: None, mnemonic: mnemonic.to_owned(), operands }
    }

    #[test]
    fn markers_are_read() {
        let read = |text| parse(text).unwrap();
        assert_eq!(read("cli"), [Named::Instructions(vec![pattern("cli", &[])])]);
        let sequence = ["pushf", "pop", "cli"].map(|name| pattern(name, &[]));
        assert_eq!(read("pushf; pop ;cli"), [Named::Instructions(sequence.to_vec())]);
        assert_eq!(read("rep nop"), read("pause"));
        let store = pattern("mov", &["%rax", "8(%rdi,%rcx,4)"]);
        assert_eq!(read("mov %rax, 8(%rdi,%rcx,4)"), [Named::Instructions(vec![store])]);
        let lock = Pattern { prefix: Some(Prefix::Lock), ..pattern("cmpxchg", &[]) };
        assert_eq!(read("lock cmpxchg"), [Named::Instructions(vec![lock])]);
        let (entry, exit) = (Named::Entry("malloc".to_owned()), Named::Exit("std::x*".to_owned()));
        assert_eq!(read("entry:malloc | exit:std::x*"), [entry, exit]);
        assert_eq!(read("0x40af"), [Named::Address(0x40af)]);
        assert_eq!(read("src/main.c:12"), [Named::Line("src/main.c".to_owned(), 12)]);
    }

    #[track_caller]
    fn wrong(text: &str, caret: &str, why: &str) {
        let error = parse(text).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines[lines.len() - 1], format!("  {caret}"), "{error}");
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn an_error_points_at_what_is_wrong() {
        wrong("pushf; clli", "       ^", " cli,");
        wrong("lock  cmpxchh8b", "      ^", "cmpxchg8b");
        wrong("sti | 0xzz", "        ^", "an address");
        wrong("entry:", "      ^", "name of a function");
        wrong("main.c:0", "       ^", "FILE:LINE");
        wrong("cli;", "    ^", "an instruction");
        wrong("", "^", "an instruction");
        wrong("mov %rax,", "         ^", "an operand");
        wrong(&["nop"; 17].join(";"), "^", "at most 16");
    }
}

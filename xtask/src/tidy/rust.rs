//! Parses as much of Rust's grammar as the rules need: what is code, and where functions begin and end.

/// The text with the contents of comments, strings and characters blanked, so that only code remains. Line numbers do
/// not change.
pub(crate) fn mask(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = literal_length(rest, masked.chars().next_back());
        if length == 0 {
            masked.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            masked.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    masked
}

/// The length in bytes of the comment or literal that `text` begins with; 0 for code. `before` is the preceding
/// character.
fn literal_length(text: &str, before: Option<char>) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment(text);
    }
    if text.starts_with('"') {
        return quoted(text, '"');
    }
    let raw = text.trim_start_matches('b');
    let after_r = raw.trim_start_matches('r');
    let hashes = after_r.len() - after_r.trim_start_matches('#').len();
    let opening = format!("r{}\"", "#".repeat(hashes));
    if raw.starts_with(&opening) && !before.is_some_and(is_word) {
        let closing = format!("\"{}", "#".repeat(hashes));
        let start = text.len() - raw.len() + opening.len();
        return text[start..].find(&closing).map_or(text.len(), |end| start + end + closing.len());
    }
    if text.starts_with('\'') { character(text) } else { 0 }
}

/// The length of a block comment, which may be nested.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut length) = (0, 0);
    while length < text.len() {
        let rest = &text[length..];
        if rest.starts_with("/*") {
            depth += 1;
            length += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            length += 2;
            if depth == 0 {
                return length;
            }
        } else {
            length += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a literal between two quotes, with escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((offset, c)) = characters.next() {
        if c == '\\' {
            characters.next();
        } else if c == quote {
            return offset + 1;
        }
    }
    text.len()
}

/// The length of a character literal; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.chars().skip(1);
    match (characters.next(), characters.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, '\''),
        _ => 0,
    }
}

/// Whether a character can be part of a name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The byte offsets of `word` as a whole word in masked text.
pub(crate) fn occurrences<'a>(masked: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    masked.match_indices(word).map(|(start, _)| start).filter(move |&start| {
        let before = masked[..start].chars().next_back();
        let after = masked[start + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The line number of a byte offset; the first is 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// A function with a body.
pub(crate) struct Function<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// The line of its `fn`.
    pub(crate) line: usize,
    /// The number of its lines, signature and closing brace included.
    pub(crate) lines: usize,
}

/// The functions of masked text, nested ones too.
pub(crate) fn functions(masked: &str) -> Vec<Function<'_>> {
    occurrences(masked, "fn").filter_map(|start| function(masked, start)).collect()
}

/// The function whose `fn` is at `start`; `None` for a type (`fn(u8)`) or a signature without a body.
fn function(masked: &str, start: usize) -> Option<Function<'_>> {
    let after = masked[start + "fn".len()..].trim_start();
    let name = &after[..after.find(|c| !is_word(c))?];
    if name.is_empty() {
        return None;
    }
    // `[u8; N]` in a signature contains a semicolon that ends nothing, so brackets are counted as well.
    let (mut braces, mut brackets) = (0, 0);
    for (offset, c) in masked[start..].char_indices() {
        match c {
            '{' => braces += 1,
            '}' if braces == 1 => {
                let line = line_of(masked, start);
                return Some(Function { name, line, lines: line_of(masked, start + offset) - line + 1 });
            }
            '}' => braces -= 1,
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            _ => {}
        }
    }
    None
}

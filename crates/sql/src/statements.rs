//! Divides text into statements.

use std::{iter::Peekable, ops::Range, str::CharIndices};

/// Returns the places of the statements of a text: what stands between semicolons outside of quotes and comments. Parts
/// that hold nothing but white space and comments are left out.
pub fn statements(sql: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut begin = None;
    let mut characters = sql.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|&(_, next)| next);
        match (character, next) {
            (';', _) => found.extend(begin.take().map(|begin| begin..at)),
            ('-', Some('-')) => skip_until(&mut characters, |_, character| character == '\n'),
            ('/', Some('*')) => {
                characters.next();
                skip_until(&mut characters, |before, character| before == '*' && character == '/');
            }
            (space, _) if space.is_whitespace() => {}
            ('\'' | '"' | '`' | '[', _) => {
                begin.get_or_insert(at);
                let close = if character == '[' { ']' } else { character };
                // A doubled quote ends one part and begins the next.
                skip_until(&mut characters, |_, character| character == close);
            }
            _ => {
                begin.get_or_insert(at);
            }
        }
    }
    found.extend(begin.map(|begin| begin..sql.len()));
    found
}

/// Skips characters up to the first one that ends a part; `ends` gets the character before it and itself.
fn skip_until(characters: &mut Peekable<CharIndices<'_>>, ends: impl Fn(char, char) -> bool) {
    let mut before = ' ';
    for (_, character) in characters.by_ref() {
        if ends(before, character) {
            return;
        }
        before = character;
    }
}

/// Returns the word with which a statement begins, in small letters.
pub(crate) fn first_word(statement: &str) -> String {
    statement.chars().take_while(|character| character.is_alphabetic()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<&str> {
        statements(sql).into_iter().map(|place| sql[place].trim_end()).collect()
    }

    #[test]
    fn semicolons_divide_statements() {
        assert_eq!(texts("select 1; select 2"), ["select 1", "select 2"]);
        assert_eq!(texts(" ;; select 1 ; -- the end"), ["select 1"]);
        assert_eq!(texts("-- a; b\nselect /* ; */ 1"), ["select /* ; */ 1"]);
        assert_eq!(texts("select ';', \"a;b\", [c;d], `e;f`; x"), ["select ';', \"a;b\", [c;d], `e;f`", "x"]);
        assert_eq!(texts("select 'it''s; one'; select 2"), ["select 'it''s; one'", "select 2"]);
        assert_eq!(texts("select 'open; quote"), ["select 'open; quote"]);
        assert!(texts(" -- nothing").is_empty());
        assert_eq!(texts("select 3 - 1; select 4 / 2"), ["select 3 - 1", "select 4 / 2"]);
    }
}

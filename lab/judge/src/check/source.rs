//! C sources as text: where functions and calls are, and how code is added.

pub(super) fn insert(text: &str, position: usize, added: &str) -> String {
    format!("{}{added}{}", &text[..position], &text[position..])
}

/// Where the bodies of definitions of a C function lie: behind `{`, up to `}`.
pub(super) fn bodies(text: &str, name: &str) -> Vec<std::ops::Range<usize>> {
    let mut bodies = Vec::new();
    for (position, _) in text.match_indices(name) {
        let before = text[..position].chars().next_back();
        let rest = &text[position + name.len()..];
        if before.is_some_and(is_word) || !rest.trim_start().starts_with('(') {
            continue;
        }
        let open = position + name.len() + (rest.len() - rest.trim_start().len());
        let Some(end) = matching(text, open, b'(', b')') else { continue };
        let after = text[end + 1..].trim_start();
        if after.starts_with('{') {
            let begin = text.len() - after.len();
            bodies.extend(matching(text, begin, b'{', b'}').map(|end| begin + 1..end));
        }
    }
    bodies
}

/// A statement of a body that is nothing but a call of `callee`.
pub(super) fn statement(body: &str, callee: &str) -> Option<std::ops::Range<usize>> {
    for (position, _) in body.match_indices(callee) {
        let before = body[..position].trim_end();
        let rest = &body[position + callee.len()..];
        if !before.ends_with([';', '{', '}']) || !rest.starts_with('(') {
            continue;
        }
        let end = matching(body, position + callee.len(), b'(', b')')? + 1;
        if body[end..].starts_with(';') {
            return Some(position..end + 1);
        }
    }
    None
}

/// The position of what closes the bracket at `open`.
fn matching(text: &str, open: usize, opening: u8, closing: u8) -> Option<usize> {
    let mut depth = 0;
    for (position, byte) in text.bytes().enumerate().skip(open) {
        depth += i32::from(byte == opening) - i32::from(byte == closing);
        if depth == 0 {
            return Some(position);
        }
    }
    None
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "int f(int n);\nstatic int f(int n)\n{ g(n); if (f(n - 1)) { h(f(2)); } return of(n); }\nint of(int n) { return n; }\n";

    #[test]
    fn definitions_and_calls_are_found() {
        let bodies = bodies(SOURCE, "f");
        let [body] = bodies.as_slice() else { panic!("{bodies:?}") };
        let body = &SOURCE[body.clone()];
        assert!(body.starts_with(" g(n);") && body.ends_with("return of(n); "), "{body}");
        assert_eq!(statement(body, "h").map(|found| &body[found]), Some("h(f(2));"));
        assert_eq!(statement(body, "of"), None);
    }
}

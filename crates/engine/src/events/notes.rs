//! Groups notes about files and metadata, so that each is printed once.

/// Notes of one kind.
struct Group<'n> {
    /// How they begin.
    kind: &'n str,
    /// The first of them, after its file's name.
    first: String,
    /// Number of further ones.
    more: usize,
}

/// Formats notes about files, one line each. Notes with the same beginning share a line, because hundreds of files can
/// have the same problem.
pub fn note_lines<'n>(notes: impl IntoIterator<Item = (&'n str, &'n str)>) -> Vec<String> {
    let mut groups: Vec<Group<'n>> = Vec::new();
    for (file, note) in notes {
        // The text after the first colon is specific to this file.
        let kind = note.split(": ").next().unwrap_or(note);
        match groups.iter_mut().find(|group| group.kind == kind) {
            Some(group) => group.more += 1,
            None => groups.push(Group { kind, first: format!("{file}: {note}"), more: 0 }),
        }
    }
    let line = |Group { first, more, .. }: Group<'_>| match more {
        0 => first,
        1 => format!("{first} (and 1 more file alike)"),
        more => format!("{first} (and {more} more files alike)"),
    };
    groups.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::note_lines;

    #[test]
    fn notes_that_begin_alike_are_one_line() {
        let notes = ["a", "b", "c"].map(|file| (file, format!("the index was not used: entry 0 of {file}")));
        let notes = notes.iter().map(|(file, note)| (*file, note.as_str()));
        let lines = note_lines(notes.chain([("README", "no stream"), ("NEWS", "no stream")]));
        assert_eq!(
            lines,
            [
                "a: the index was not used: entry 0 of a (and 2 more files alike)",
                "README: no stream (and 1 more file alike)"
            ]
        );
    }
}

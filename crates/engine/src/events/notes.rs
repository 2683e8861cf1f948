//! Groups notes about files and metadata, so that each is printed once.

/// Formats notes about files, one line each. Notes with the same beginning share a line, because hundreds of files can
/// have the same problem.
pub fn note_lines<'n>(notes: impl IntoIterator<Item = (&'n str, &'n str)>) -> Vec<String> {
    let mut groups: Vec<(&str, &str, &str, usize)> = Vec::new();
    for (file, note) in notes {
        // The text after the first colon is specific to this file.
        let kind = note.split(": ").next().unwrap_or(note);
        match groups.iter_mut().find(|(known, ..)| *known == kind) {
            Some((.., more)) => *more += 1,
            None => groups.push((kind, file, note, 0)),
        }
    }
    let line = |(_, file, note, more): (&str, &str, &str, usize)| match more {
        0 => format!("{file}: {note}"),
        1 => format!("{file}: {note} (and 1 more file alike)"),
        more => format!("{file}: {note} (and {more} more files alike)"),
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

//! Recognises metadata of drafts of CTF 2, which are no CTF 2, to name the draft in errors.
//!
//! Source: the revision histories of CTF2-PROP-1.0 (October 2016), CTF2-PROP-2.0 (November 2020), CTF2-SPECRC-1.0 to
//! 7.0 (November 2021 to 2022) and CTF2-SPEC-2.0 (March 2024).

/// A word that only drafts have, and what it shows.
const WORDS: &[(&str, &str)] = &[
    ("\"field-type\"", "CTF2-PROP-1.0 of 2016: it says `field-type` where CTF 2 says `type`"),
    ("\"fragment\"", "CTF2-PROP-1.0 of 2016: it says `fragment` where CTF 2 says `type`"),
    (
        "\"trace-class-uuid\"",
        "CTF2-PROP-2.0 of 2020, or one up to CTF2-SPECRC-5.0: its role `trace-class-uuid` is `metadata-stream-uuid` in \
         CTF 2",
    ),
    (
        "-enumeration\"",
        "CTF2-PROP-2.0 of 2020, or one up to CTF2-SPECRC-7.0: its enumerations are integers with `mappings` in CTF 2",
    ),
];

/// Returns a sentence that names the draft of this metadata, if it has words that only drafts have.
pub(super) fn sentence(text: &str) -> Option<String> {
    let word = WORDS.iter().find(|(word, _)| has(text, word)).map(|(_, draft)| *draft);
    let has_no_preamble = !text.contains("\"preamble\"") && text.contains("\"trace-class\"");
    let draft = word.or(has_no_preamble.then_some(
        "CTF2-PROP-2.0 of 2020, or an earlier one: it begins with the trace class, without a preamble",
    ))?;
    Some(format!(
        "This is a draft of CTF 2, {draft}. hodo reads CTF 2 as it was published in 2024 (CTF2-SPEC-2.0); the tracer's \
         newer versions write that, or CTF 1.8."
    ))
}

/// Whether the text has the word as a key, or as a value, whichever it is in a draft.
fn has(text: &str, word: &str) -> bool {
    let is_key = matches!(word, "\"field-type\"" | "\"fragment\"");
    let mut ends = text.match_indices(word).map(|(start, _)| start + word.len());
    ends.any(|end| text[end..].trim_start().starts_with(':') == is_key)
}

//! Branches of gcov that are conditional jumps of the machine.
//!
//! gcov counts each way out of a statement. At `-O0`, a statement with two ways out is one conditional jump, whichever way
//! the compiler calls "taken". The others are no such jumps: the ways of a `switch`, which are a jump through a table or
//! comparisons in an order of the compiler; the targets of a computed `goto`; the ways of an exception out of a call.

use super::peers::{is_continued, without_comment};

/// Whether the conditional jumps of a line include all pairs of gcov, and nothing else ran.
pub(super) fn are_equal(own: &[(u64, u64)], theirs: &[u64]) -> bool {
    if !theirs.len().is_multiple_of(2) {
        return false;
    }
    let ordered = |(a, b): (u64, u64)| if a <= b { (a, b) } else { (b, a) };
    let mut own: Vec<(u64, u64)> = own.iter().copied().map(ordered).collect();
    let mut theirs: Vec<(u64, u64)> = theirs.chunks(2).map(|pair| ordered((pair[0], pair[1]))).collect();
    own.sort_unstable();
    theirs.sort_unstable();
    own == theirs
}

const SWITCH: &str = "a switch: its ways are comparisons and a jump through a table";
const EXCEPTION: &str = "the ways of an exception are calls that do not return";
const GOTO: &str = "a computed goto: its ways are one jump through a register";
const REAL: &str =
    "a comparison of floating-point numbers is two jumps, the second for numbers that are not ordered";
const CONVERSION: &str =
    "a conversion of an unsigned number, or an argument of variable number, is a jump of the machine only";
const SPREAD: &str = "a condition on several lines: gcc and gcov choose different lines for a part of it";

/// Why the branches of a line are different.
pub(super) fn why_different(
    text: &[&str],
    line: usize,
    own: &[(u64, u64)],
    theirs: &[u64],
) -> Option<&'static str> {
    let source = text.get(line - 1).map_or("", |line| line.trim());
    let before = text.get(line.wrapping_sub(2)).map_or("", |line| without_comment(line.trim()));
    let around = || text[line.saturating_sub(4)..(line + 3).min(text.len())].join(" ");
    match () {
        () if source.contains("throw ") => Some(EXCEPTION),
        () if source.contains("switch") => Some(SWITCH),
        () if source.contains("goto *") || source.contains("HOP(") => Some(GOTO),
        () if own.len() * 2 > theirs.len() && theirs.len() == 2 => {
            Some(REAL).filter(|_| source.contains("==") || source.contains("!=")).or(Some(CONVERSION))
        }
        () if !(source.ends_with(';') || source.ends_with('{')) || around().contains("&&") => Some(SPREAD),
        () if is_continued(before) => Some(SPREAD),
        () => None,
    }
}

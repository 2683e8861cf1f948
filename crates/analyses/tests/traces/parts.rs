//! Parts of a list, and their merging in any grouping.

use std::ops::Range;

/// Merges neighbours in an order that `choices` picks; `None` if there are no parts.
pub(crate) fn merge_neighbours<P>(
    mut parts: Vec<P>,
    choices: &[usize],
    merge: impl Fn(P, P) -> P,
) -> Option<P> {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let index = choices.next().unwrap() % (parts.len() - 1);
        let later = parts.remove(index + 1);
        let earlier = parts.remove(index);
        parts.insert(index, merge(earlier, later));
    }
    parts.pop()
}

/// Cuts a list of this length where `is_cut` says, given the index after a part.
pub(crate) fn parts_of(length: usize, is_cut: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let ends = (1..=length).filter(|&end| end == length || is_cut(end));
    let mut begin = 0;
    ends.map(|end| std::mem::replace(&mut begin, end)..end).collect()
}

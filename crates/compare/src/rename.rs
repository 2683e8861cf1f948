//! Functions that may have been renamed: one side has only one of the names.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Sides, sides::Side, union::Union};

/// A function of A and one of B that may be one function, as indices of [`Union::functions`].
pub(crate) type Renamed = Sides<u32>;

/// What identifies a function without its name: its module, how often it was called, and the functions that both sides
/// have among its callers and its callees.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Signature<'u> {
    module: &'u str,
    calls: u64,
    callers: BTreeSet<u32>,
    callees: BTreeSet<u32>,
}

/// A function that only one side has.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    function: u32,
    /// Without its callees.
    instructions: u64,
}

/// Returns the functions that seem to be renamed: those that one side only has, in pairs with equal signatures. Of several
/// with the same signature, those whose instructions are equal too, if each has one such partner.
pub(crate) fn renamed(union: &Union) -> Vec<Renamed> {
    let count = union.functions.len();
    let (mut signatures, mut own) = (vec![Signature::default(); count], vec![0u64; count]);
    let mut has = vec![Sides::new(false, false); count];
    for node in &union.nodes {
        let has = &mut has[node.function as usize];
        has.a |= node.amounts.a.is_there;
        has.b |= node.amounts.b.is_there;
    }
    let is_common = |function: u32| has[function as usize] == Sides::new(true, true);
    for node in &union.nodes {
        let function = node.function as usize;
        let Sides { a, b } = &node.amounts;
        signatures[function].module = &union.functions[function].module;
        signatures[function].calls += a.calls + b.calls;
        own[function] += a.instructions + b.instructions;
        if let Some(parent) = node.parent {
            let caller = union.nodes[parent as usize].function;
            if is_common(caller) {
                signatures[function].callers.insert(caller);
            }
            if is_common(node.function) {
                signatures[caller as usize].callees.insert(node.function);
            }
        }
    }
    let mut groups: BTreeMap<&Signature<'_>, Sides<Vec<Candidate>>> = BTreeMap::new();
    for (function, signature) in (0..).zip(&signatures) {
        let has = has[function as usize];
        // Without calls and callers every function that runs on its own would be like any other.
        if has.a != has.b && signature.calls > 0 && !signature.callers.is_empty() {
            let candidate = Candidate { function, instructions: own[function as usize] };
            let side = if has.b { Side::B } else { Side::A };
            groups.entry(signature).or_default().of(side).push(candidate);
        }
    }
    groups.values().flat_map(pairs).collect()
}

/// Returns the pairs of functions with one signature.
fn pairs(group: &Sides<Vec<Candidate>>) -> Vec<Renamed> {
    if let ([a], [b]) = (&group.a[..], &group.b[..]) {
        return vec![Sides::new(a.function, b.function)];
    }
    let like = |side: &[Candidate], one: &Candidate| -> Option<u32> {
        let mut equal = side.iter().filter(|other| other.instructions == one.instructions);
        equal.next().filter(|_| equal.next().is_none()).map(|only| only.function)
    };
    let pair = |a: &Candidate| {
        let b = like(&group.b, a)?;
        (like(&group.a, a) == Some(a.function)).then_some(Sides::new(a.function, b))
    };
    group.a.iter().filter_map(pair).collect()
}

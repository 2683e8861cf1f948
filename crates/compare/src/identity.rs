//! Matches functions and modules of two builds.
//!
//! Matching ignores addresses, because code may have moved. Compilers rename the clones of a function; a clone counts
//! as the function. Files may differ in name or version.

use std::collections::{BTreeMap, BTreeSet};

use crate::Sides;

/// Returns the name that identifies a function of a module in all builds. Code without a symbol is identified by its
/// offset in the module, whose name may change.
pub(crate) fn own_name<'n>(name: &'n str, module: &str) -> &'n str {
    let offset = name.strip_prefix(module).filter(|offset| offset.starts_with("+0x"));
    without_clone(offset.unwrap_or(name))
}

/// Suffixes that compilers append to the names of a function's clones: GCC's `create_clone_suffix` and its callers,
/// LLVM's ThinLTO promotion and hot-cold splitting.
const CLONES: [&str; 9] =
    ["constprop", "isra", "part", "cold", "lto_priv", "llvm", "clone", "ipa", "specialized"];

/// Returns the original function of a clone: `f` for `f.constprop.0`, `f.isra.0.cold` and `f() [clone .part.0]`.
/// Returns any other name unchanged.
pub fn without_clone(name: &str) -> &str {
    let mut own = name;
    while let Some(shorter) = without_suffix(own) {
        own = shorter;
    }
    own
}

fn without_suffix(name: &str) -> Option<&str> {
    if let Some((own, clone)) = name.strip_suffix(']').and_then(|name| name.rsplit_once(" [clone .")) {
        let is_clone = CLONES.contains(&clone.split('.').next().unwrap_or(clone));
        return Some(own).filter(|own| is_clone && !own.is_empty());
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut rest = name;
    while let Some((before, _)) = rest.rsplit_once('.').filter(|(_, number)| is_number(number)) {
        rest = before;
    }
    let (own, word) = rest.rsplit_once('.')?;
    (CLONES.contains(&word) && !own.is_empty()).then_some(own)
}

/// The modules of a side, with the executed functions of each.
pub(crate) type Modules = BTreeMap<String, BTreeSet<String>>;

/// A module of one or both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) names: Sides<Option<String>>,
    /// Number of functions with equal names, if the modules' names differ; else 0.
    pub(crate) shared: usize,
}

/// Matches modules: first by equal name, then by equal name without the library version, then by the most shared
/// function names, if these are at least half of either module's functions.
pub(crate) fn match_modules(mut modules: Sides<Modules>) -> Vec<Match> {
    let mut matches = Vec::new();
    for same in [|name: &str| name.to_owned(), |name: &str| stem(name).to_owned()] {
        let names = modules.each().map(|modules| modules.keys().cloned().collect::<Vec<_>>());
        for a in &names.a {
            let Some(b) = names.b.iter().find(|b| same(a) == same(b) && modules.b.contains_key(*b)) else {
                continue;
            };
            let shared = if a == b { 0 } else { common(&modules.a[a], &modules.b[b]) };
            modules.a.remove(a);
            modules.b.remove(b);
            matches.push(Match { names: Sides::new(Some(a.clone()), Some(b.clone())), shared });
        }
    }
    let mut alike: Vec<(usize, &String, &String)> = Vec::new();
    for (a, of_a) in &modules.a {
        for (b, of_b) in &modules.b {
            let shared = common(of_a, of_b);
            if shared > 0 && shared * 2 >= of_a.len().min(of_b.len()) {
                alike.push((shared, a, b));
            }
        }
    }
    // The order makes the pairs independent of which side comes first.
    alike.sort_by_key(|&(shared, a, b)| (std::cmp::Reverse(shared), a.min(b).clone(), a.max(b).clone()));
    let mut taken = Sides::new(BTreeSet::new(), BTreeSet::new());
    for (shared, a, b) in alike {
        if !taken.a.contains(a) && !taken.b.contains(b) {
            taken.a.insert(a.clone());
            taken.b.insert(b.clone());
            matches.push(Match { names: Sides::new(Some(a.clone()), Some(b.clone())), shared });
        }
    }
    let alone = |a: Option<&String>, b: Option<&String>| Match {
        names: Sides::new(a.cloned(), b.cloned()),
        shared: 0,
    };
    matches.extend(modules.a.keys().filter(|a| !taken.a.contains(*a)).map(|a| alone(Some(a), None)));
    matches.extend(modules.b.keys().filter(|b| !taken.b.contains(*b)).map(|b| alone(None, Some(b))));
    matches
}

fn common(a: &BTreeSet<String>, b: &BTreeSet<String>) -> usize {
    a.intersection(b).count()
}

/// Returns the name of a library without its version: `libc.so` for `libc.so.6` and `libc-2.31.so`.
fn stem(name: &str) -> &str {
    let Some(suffix) = name.find(".so") else { return name };
    let base = &name[..suffix];
    let without_version = base.rsplit_once('-').filter(|(_, version)| {
        version.starts_with(|digit: char| digit.is_ascii_digit())
            && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    });
    without_version.map_or(base, |(base, _)| base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_count_as_their_function() {
        let cases = [
            ("f", "f"),
            ("f.constprop.0", "f"),
            ("f.isra.0.cold", "f"),
            ("f.part.0.constprop.1", "f"),
            ("f.lto_priv.12.34", "f"),
            ("f.llvm.1234567890", "f"),
            ("f(int) [clone .constprop.0] [clone .cold]", "f(int)"),
            // No clones: the number of a static variable or nested function, or the programmer's own name.
            ("f.1234", "f.1234"),
            ("f.colder", "f.colder"),
            (".cold", ".cold"),
            ("a.part.b", "a.part.b"),
            ("f(int) [abi:cxx11]", "f(int) [abi:cxx11]"),
            ("", ""),
        ];
        for (name, own) in cases {
            assert_eq!(without_clone(name), own, "{name}");
        }
    }

    #[test]
    fn modules_match_by_name_by_version_and_by_their_functions() {
        let side = |modules: &[(&str, &[&str])]| -> Modules {
            let set = |functions: &[&str]| functions.iter().map(|name| (*name).to_owned()).collect();
            modules.iter().map(|(name, functions)| ((*name).to_owned(), set(functions))).collect()
        };
        let a = side(&[
            ("libc.so.6", &["malloc"]),
            ("libx.so.1", &["x"]),
            ("old", &["main", "f"]),
            ("gone", &["g"]),
        ]);
        let b = side(&[
            ("libc.so.6", &["malloc"]),
            ("libx-2.1.so", &["y"]),
            ("new", &["main", "h"]),
            ("come", &["c"]),
        ]);
        let matched = |a: Option<&str>, b: Option<&str>, shared| Match {
            names: Sides::new(a.map(str::to_owned), b.map(str::to_owned)),
            shared,
        };
        let expected = [
            matched(Some("libc.so.6"), Some("libc.so.6"), 0),
            matched(Some("libx.so.1"), Some("libx-2.1.so"), 0),
            matched(Some("old"), Some("new"), 1),
            matched(Some("gone"), None, 0),
            matched(None, Some("come"), 0),
        ];
        assert_eq!(match_modules(Sides::new(a.clone(), b.clone())), expected);
        assert!(match_modules(Sides::new(b, a)).contains(&matched(Some("new"), Some("old"), 1)));
    }
}

//! Resolves names to functions and markers.

use std::collections::BTreeSet;

use hodo_analyses::latency::Named;
use hodo_model::{FunctionId, Marker, Names, function_name};

use crate::{flow::trace::Trace, refusal::Refusal};

/// Maximum number of functions that a marker may match; a pattern that matches more is a mistake.
const MOST_MARKERS: usize = 4096;

/// Returns the function with this name.
///
/// # Errors
/// If no function or more than one has this name.
pub fn function(flow: &Trace<'_>, name: &str) -> Result<FunctionId, Refusal> {
    const SHOWN: usize = 20;
    match flow.modules.functions_named(name)[..] {
        [function] => Ok(function),
        [] => Err(no_function(flow, name)),
        ref several => {
            let lines = several.iter().take(SHOWN).map(|&function| {
                let (name, module) = flow.modules.names(function);
                format!("\n  {name}@{module} at {:#x}", flow.modules.start(function))
            });
            let more = if several.len() > SHOWN { "\n  …" } else { "" };
            Err(Refusal(format!(
                "{} functions are called `{name}`; write more of the name, NAME@FILE, or 0xADDRESS@FILE:{}{more}",
                several.len(),
                lines.collect::<String>()
            )))
        }
    }
}

/// Returns the function of each name, given as in tables: with the name of its file. `None` where no function has this name in
/// that file, or several have it. Names of large programs take long to demangle, so it is done for those only that may be one.
pub fn functions(flow: &Trace<'_>, wanted: &[(&str, &str)]) -> Vec<Option<FunctionId>> {
    let mut found: Vec<Vec<FunctionId>> = vec![Vec::new(); wanted.len()];
    let files: BTreeSet<&str> = wanted.iter().map(|(_, file)| *file).collect();
    let words: Vec<Option<&str>> = wanted.iter().map(|(name, _)| word_in_mangled(name)).collect();
    for file in files {
        for (id, function) in flow.modules.all_functions(Some(file)) {
            let raw = function.raw_name();
            let is_mangled = raw.starts_with("_Z") || raw.starts_with("_R");
            if is_mangled && !words.iter().any(|word| word.is_none_or(|word| raw.contains(word))) {
                continue;
            }
            let name = function.name();
            for (own, wanted) in found.iter_mut().zip(wanted) {
                if *wanted == (&*name, file) {
                    own.push(id);
                }
            }
        }
    }
    let only = |found: Vec<FunctionId>| match found[..] {
        [function] => Some(function),
        _ => None,
    };
    found.into_iter().map(only).collect()
}

/// Returns a word that the mangled form of a function's name contains: its own name, which is in it as it is. `None` if that is
/// unknown: names of the standard library of C++ are abbreviated, operators and closures have codes.
fn word_in_mangled(function: &str) -> Option<&str> {
    let own = function_name::last_part(function);
    let is_word = own.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_word && !function.contains("std::")).then_some(own)
}

fn no_function(flow: &Trace<'_>, name: &str) -> Refusal {
    let near = flow.modules.functions_near(name);
    let hint = match near.is_empty() {
        true => "`hodo report functions` lists them".to_owned(),
        false => format!("did you mean {}?", near.join(", ")),
    };
    Refusal(format!("no function `{name}` in the programs of the recording; {hint}"))
}

/// Returns the markers that names resolve to. Alternatives that do not exist are ignored.
///
/// # Errors
/// If no alternative exists, or there are too many markers.
pub fn markers(flow: &Trace<'_>, named: &[Named]) -> Result<Vec<Marker>, Refusal> {
    let (mut markers, mut missing) = (Vec::new(), None);
    for alternative in named {
        let found = marker(flow, alternative);
        missing = missing.or(found.as_ref().err().cloned());
        markers.extend(found.unwrap_or_default());
    }
    let instructions = |marker: &Marker| match marker {
        Marker::Instructions(sequence) => sequence.len(),
        _ => 0,
    };
    match missing {
        _ if markers.iter().map(instructions).sum::<usize>() > Marker::MOST_INSTRUCTIONS => Err(Refusal(
            format!("a marker has at most {} instructions, alternatives included", Marker::MOST_INSTRUCTIONS),
        )),
        _ if markers.len() > MOST_MARKERS => {
            Err(Refusal(format!("more than {MOST_MARKERS} functions match")))
        }
        Some(why) if markers.is_empty() => Err(why),
        _ => Ok(markers),
    }
}

fn marker(flow: &Trace<'_>, named: &Named) -> Result<Vec<Marker>, Refusal> {
    let functions = |name: &str| {
        let found = match name.contains('*') {
            true => flow.modules.functions_like(name),
            false => flow.modules.functions_named(name),
        };
        if found.is_empty() { Err(no_function(flow, name)) } else { Ok(found) }
    };
    Ok(match named {
        Named::Instructions(sequence) => vec![Marker::Instructions(sequence.clone())],
        Named::Address(address) => vec![Marker::Address(*address)],
        Named::Entry(name) => functions(name)?.into_iter().map(Marker::Entry).collect(),
        Named::Exit(name) => functions(name)?.into_iter().map(Marker::Exit).collect(),
        Named::Line(file, line) => {
            let code = flow.modules.code_of_line(file, *line);
            if code.is_empty() {
                return Err(Refusal(format!(
                    "no code of line {line} of {file} in the programs of the recording; `hodo report lines` lists those that ran"
                )));
            }
            code.into_iter().map(|(module, offset)| Marker::Code { module, offset }).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mangled_name_contains_the_word_of_the_function() {
        for mangled in [
            "_Z16execute_one_passP8opt_pass",
            "_ZN3app5Store6lookupEi",
            "_ZN3app5StoreC1Ev",
            "_ZN12_GLOBAL__N_13runIiEEvT_",
            "_ZN4core3fmt5write17h0123456789abcdefE",
            "_RNvCs15kBYyAo9fc_7mycrate7example",
        ] {
            let name = hodo_symbols::demangle(mangled);
            let word = word_in_mangled(&name).unwrap_or_else(|| panic!("{name} has a word"));
            assert!(mangled.contains(word), "{mangled}: {word}");
        }
        for mangled in
            ["_ZNSsC1Ev", "_ZN3appplERKNS_1AE", "_ZN3app1AD1Ev", "_ZN3app1AcviEv", "_ZZ3runvENKUlvE_clEv"]
        {
            let name = hodo_symbols::demangle(mangled);
            assert!(word_in_mangled(&name).is_none_or(|word| mangled.contains(word)), "{mangled}: {name}");
        }
    }
}

//! Resolves names to functions and markers.

use std::collections::BTreeSet;

use hodo_analyses::latency::Named;
use hodo_model::{FunctionId, Marker, Names};

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
/// that file, or several have it. The names of all functions are made once, which of large programs takes long.
pub fn functions(flow: &Trace<'_>, wanted: &[(&str, &str)]) -> Vec<Option<FunctionId>> {
    let mut found: Vec<Vec<FunctionId>> = vec![Vec::new(); wanted.len()];
    let files: BTreeSet<&str> = wanted.iter().map(|(_, file)| *file).collect();
    for file in files {
        for (id, function) in flow.modules.all_functions(Some(file)) {
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

//! Lines, functions and branches that ran, and those that did not.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io,
    path::Path,
    process::ExitCode,
};

use hodo_exports::{BeginCoverage, CoverageRow, coverage_rows};
use hodo_model::{Role, Table};

use super::{
    emit_nothing,
    profile::{Made, make, write_file},
};
use crate::{
    arguments::Export,
    failure::{Failure, INTERRUPTED},
};

/// The view with lines, functions and branches.
const ALL: &str = "all";
/// Number of missing source files that a message names.
const SHOWN: usize = 3;

/// What a table contains, and which of its source files are on this machine.
#[derive(Default)]
struct Contents {
    modules: BTreeSet<String>,
    files: BTreeMap<String, bool>,
}

impl Contents {
    fn of(table: &Table, module: Option<&str>) -> Contents {
        let mut contents = Contents::default();
        let Contents { modules, files } = &mut contents;
        each_row(table, |row| {
            if !modules.contains(row.module) {
                modules.insert(row.module.to_owned());
            }
            if is_chosen(row, module) && !files.contains_key(row.file) {
                files.insert(row.file.to_owned(), Path::new(row.file).is_file());
            }
            Ok::<(), Infallible>(())
        })
        .unwrap_or_else(|never| match never {});
        contents
    }

    fn missing(&self) -> Vec<&str> {
        self.files.iter().filter(|(_, is_there)| !**is_there).map(|(file, _)| file.as_str()).collect()
    }
}

fn each_row<E>(table: &Table, mut each: impl FnMut(&CoverageRow<'_>) -> Result<(), E>) -> Result<(), E> {
    for batch in table.batches() {
        let known = coverage_rows(batch, &mut each)?;
        assert!(known, "the report of coverage has its columns");
    }
    Ok(())
}

fn is_chosen(row: &CoverageRow<'_>, module: Option<&str>) -> bool {
    module.is_none_or(|module| module == row.module)
}

/// Writes the coverage of all modules or of one. Source files that are missing are left out, as programs that read the
/// export open the files.
pub(super) fn export(command: &Export, begin: BeginCoverage) -> Result<ExitCode, Failure> {
    let Some(Made { tables, code, .. }) = make(command, &command.input, &[(Role::Coverage, ALL)])? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let (table, module) = (&tables[0], command.module.as_deref());
    let contents = Contents::of(table, module);
    if let Some(module) = module.filter(|module| !contents.modules.contains(*module)) {
        let known: Vec<&str> = contents.modules.iter().map(String::as_str).collect();
        return Err(Failure::usage(format!(
            "no module `{module}` has source lines; those that have are {}",
            known.join(", ")
        )));
    }
    write_file(command, &table.loss, |out| {
        let mut coverage = begin(out)?;
        each_row(table, |row| {
            let is_there = contents.files.get(row.file).is_some_and(|is_there| *is_there);
            if is_there && is_chosen(row, module) { coverage.row(row) } else { io::Result::Ok(()) }
        })?;
        coverage.finish(&table.loss)
    })?;
    let missing = contents.missing();
    if !missing.is_empty() && !command.input.quiet {
        let shown = missing.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
        let more = if missing.len() > SHOWN { ", …" } else { "" };
        message!("left out, as these source files are not here: {} ({shown}{more})", missing.len());
    }
    if missing.len() == contents.files.len() {
        emit_nothing(command, "line of a source file that is here");
    }
    Ok(code)
}

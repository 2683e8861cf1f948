//! Every case in `fixtures/pt`. `UPDATE=1` writes the decoded lines into the files; review the difference.

use std::{fs, path::Path};

use hodo_cases::{Case, Error, assemble, decode, encode, fold};

/// The decoded lines of a case.
fn outcome(case: &Case<'_>) -> Result<String, Error> {
    let assembly = assemble(&case.code)?;
    let trace = encode(&case.packets, &assembly)?;
    Ok(fold(&decode(&case.config, &assembly, &trace)))
}

/// Checks a case. Returns what is wrong.
fn check(path: &Path, update: bool) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let case = Case::parse(&text).map_err(|error| error.to_string())?;
    let found = outcome(&case).map_err(|error| error.to_string())?;
    if found == case.expected {
        return Ok(());
    }
    if update {
        return fs::write(path, format!("{}{found}", case.head)).map_err(|error| error.to_string());
    }
    Err(format!("expected\n{}found\n{found}", case.expected))
}

#[test]
fn every_case_decodes_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pt");
    let entries = fs::read_dir(&folder).expect("fixtures/pt is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry of fixtures/pt").path()).collect();
    paths.sort();
    assert!(paths.iter().all(|path| path.extension().is_some_and(|extension| extension == "case")));
    let update = std::env::var_os("UPDATE").is_some();
    let failed: Vec<_> = paths.iter().filter_map(|path| Some((path, check(path, update).err()?))).collect();
    for (path, what) in &failed {
        eprintln!("{}: {what}", path.file_name().unwrap_or_default().to_string_lossy());
    }
    assert!(failed.is_empty(), "{} of {} cases are not as expected", failed.len(), paths.len());
}

//! Each format of one report, as a file in `tests/reports`; `UPDATE=1` writes them again.

use std::{collections::BTreeMap, fs, path::Path};

use super::{FORMATS, Report};
use crate::{
    CaseCounts, Configuration, FunctionName, Quantity, Spread, Verdict, baseline::FunctionSpread, judge,
};

const CONFIGURATION: &str = r#"
    [[case]]
    name = "parse <big> & small"
    command = ["./parser", "big.json"]
    functions = { parse = "1%" }
    limits = { allocations = 0 }

    [[case]]
    name = "sort"
    command = ["./sort"]

    [[case]]
    name = "later"
    command = ["./later"]
"#;

fn name(function: &str) -> FunctionName {
    FunctionName { function: function.to_owned(), module: "parser".to_owned() }
}

fn function(own: Spread, calls: u64, callers: &[(&str, u64)]) -> FunctionSpread {
    let callers = callers.iter().map(|&(caller, calls)| (name(caller), Spread::exact(calls)));
    FunctionSpread { own, total: own, calls: Spread::exact(calls), callers: callers.collect() }
}

fn counts(instructions: Spread, allocations: u64, functions: &[(&str, FunctionSpread)]) -> CaseCounts {
    let totals = BTreeMap::from([
        (Quantity::Instructions, instructions),
        (Quantity::Allocations, Spread::exact(allocations)),
    ]);
    let functions = functions.iter().map(|(function, spread)| (name(function), spread.clone()));
    CaseCounts { runs: 3, totals, functions: functions.collect() }
}

fn verdicts() -> Vec<Verdict> {
    let configuration = Configuration::parse(CONFIGURATION).expect("a right file");
    let exact = Spread::exact;
    let before = counts(
        exact(1_000_000),
        100,
        &[
            ("parse", function(exact(900_000), 10, &[])),
            ("realloc", function(exact(100_000), 100, &[("parse", 100)])),
        ],
    );
    let now = counts(
        exact(1_052_000),
        112,
        &[
            ("parse", function(exact(940_000), 10, &[])),
            ("realloc", function(exact(112_000), 112, &[("parse", 112)])),
        ],
    );
    let varying = Spread::of([2_000_000, 2_000_449, 2_000_020]);
    let sort = counts(varying, 3, &[("compare", function(varying, 900, &[]))]);
    let [parse_case, sort_case, later_case] = configuration.cases.as_slice() else { panic!("three cases") };
    vec![
        judge(&configuration, parse_case, Some(&before), &now),
        judge(&configuration, sort_case, Some(&sort), &sort),
        judge(&configuration, later_case, None, &sort),
    ]
}

#[test]
fn formats_write_what_their_files_show() {
    let verdicts = verdicts();
    let report = Report { verdicts: &verdicts, configuration: "hodo.toml" };
    for format in FORMATS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports").join(format.name);
        let text = (format.write)(&report);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &text).expect("the file can be written");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, expected, "{}: UPDATE=1 writes it again", path.display());
    }
}

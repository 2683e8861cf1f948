//! Verdicts as findings in SARIF 2.1.0, one for each case that grew beyond a limit.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Report, reason};
use crate::Verdict;

pub(super) fn write(report: &Report<'_>) -> String {
    let failed = report.verdicts.iter().filter(|verdict| !verdict.passes());
    let results: Vec<Value> = failed.map(|verdict| result(verdict, report.configuration)).collect();
    let value = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "hodo check",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": [{
                    "id": "growth",
                    "shortDescription": { "text": "A count of an execution grew beyond its limit" },
                }],
            }},
            "results": results,
        }],
    });
    format!("{value:#}\n")
}

fn result(verdict: &Verdict, configuration: &str) -> Value {
    let names: BTreeSet<&str> = verdict.causes.iter().map(|cause| cause.function.function.as_str()).collect();
    let functions = names.iter().map(|name| json!({ "fullyQualifiedName": name, "kind": "function" }));
    json!({
        "ruleId": "growth",
        "level": "error",
        "message": { "text": format!("{}: {}", verdict.case, reason(verdict)) },
        // Source lines are not known: the finding is of the case, and names the functions.
        "locations": [{
            "physicalLocation": { "artifactLocation": { "uri": configuration } },
            "logicalLocations": functions.collect::<Vec<_>>(),
        }],
    })
}

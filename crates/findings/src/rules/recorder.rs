//! The recorder's own share of a recorded kernel's work.

use hodo_model::RECORDERS_FUNCTIONS;

use crate::{
    Evidence, Finding, Rule,
    call_tree::TREE,
    evidence::{FUNCTIONS, figure},
    link,
    numbers::Numbers,
    text::share,
};

/// Largest share of the executed instructions that changes no conclusion.
const THRESHOLD: f64 = 0.02;

pub(crate) const RULE: Rule = Rule {
    name: "recorder",
    help: "what the recorder itself made the kernel do, if it is more than 2 % of the executed instructions",
    needs: &[TREE],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in evidence.tables(FUNCTIONS) {
        let rows = evidence.rows(FUNCTIONS);
        let own = rows.iter().filter(|row| RECORDERS_FUNCTIONS.contains(&row.text("function")));
        let instructions = own.clone().map(|row| row.integer("total_instructions")).sum();
        let part = share(instructions, figure(table, "instructions"));
        let most = own.max_by_key(|row| row.integer("total_instructions"));
        if let Some(most) = most.filter(|_| part > THRESHOLD) {
            let mut numbers = Numbers::default();
            findings.push(Finding {
                rule: RULE.name,
                weight: part,
                sentence: format!(
                    "The recorder itself made the kernel execute {} instructions, {} of all (threshold {}), most of them in {}; \
                     --without-recorder leaves them out.",
                    numbers.count("instructions", instructions),
                    numbers.percent("share", part),
                    numbers.percent("threshold", THRESHOLD),
                    numbers.function("function", most.text("function")),
                ),
                command: "report functions --without-recorder".to_owned(),
                link: link::table("functions", ""),
                numbers: numbers.list(),
            });
        }
    }
    findings
}

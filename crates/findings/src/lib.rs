//! Findings: conclusions from tables in plain sentences, worst first.
//!
//! ```text
//! reports named by RULES ──Experiment::run──► tables ──Evidence──► each Rule ──► Finding… ──by weight──► `hodo explain`
//!                                               │                  ▲
//!                                               └─► questions: why are these functions slow? ──► tables of causes
//! ```
//!
//! A rule never guesses: each number of a finding is in a table, and each finding states the threshold that it
//! exceeded and the command that shows the table. A rule is one function in `rules/` and one line in [`RULES`].

mod evidence;
mod rules;
mod text;

pub use evidence::{CAUSES, Evidence, Row};

use hodo_model::{Column, Shape, Table, Unit};

/// A report that a rule reads: its name and view.
pub type Need = (&'static str, &'static str);

/// A rule, which makes one kind of finding.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The stable name, such as `cpu-contention`.
    pub name: &'static str,
    /// What it looks for, with its threshold, in one line.
    pub help: &'static str,
    /// The reports that it reads. A rule is skipped if the input provides none of them.
    pub needs: &'static [Need],
    /// Returns the findings.
    pub find: fn(&Evidence<'_>) -> Vec<Finding>,
}

/// Every rule, in the order of the documentation.
pub const RULES: &[Rule] = &[
    rules::lost::RULE,
    rules::tails::RULE,
    rules::unequal::RULE,
    rules::contention::RULE,
    rules::migrations::RULE,
    rules::path::RULE,
    rules::waits::LOCKS,
    rules::waits::DISKS,
    rules::small::RULE,
    rules::calls::POLLING,
    rules::calls::YIELDING,
    rules::calls::SYNCING,
    rules::calls::MAPPING,
    rules::calls::CONNECTING,
    rules::calls::FAILING,
    rules::interrupts::STORM,
    rules::interrupts::OFF,
    rules::exceptions::RULE,
    rules::recorder::RULE,
];

/// A finding: a fact that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// The share of the run that it explains, from 0 to 1; findings are in this order.
    pub weight: f64,
    /// The finding, with its numbers and the threshold.
    pub sentence: String,
    /// The command line after `hodo` that shows the evidence, without the input.
    pub command: String,
}

/// Returns the reports that the rules read, each once.
pub fn needs() -> Vec<Need> {
    let mut needs: Vec<Need> = RULES.iter().flat_map(|rule| rule.needs).copied().collect();
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// Returns the functions whose slow executions are worth a comparison with typical ones, by name and module. Its tables
/// of causes, with the function's name as `function` in their summary, are further evidence ([`CAUSES`]).
pub fn questions(evidence: &Evidence<'_>) -> Vec<(String, String)> {
    let names = |row: &Row<'_>| (row.text("function").to_owned(), row.text("module").to_owned());
    rules::tails::heavy(evidence).iter().map(names).collect()
}

/// Returns the findings of all rules, worst first.
pub fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = RULES.iter().flat_map(|rule| (rule.find)(evidence)).collect();
    found.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    found
}

/// Returns the findings as a table.
pub fn table(findings: &[Finding]) -> Table {
    let columns = vec![
        Column::real("weight", Unit::Share),
        Column::name("rule"),
        Column::text("finding"),
        Column::text("command"),
    ];
    let row = |finding: &Finding| {
        let (sentence, command) = (finding.sentence.as_str(), finding.command.as_str());
        vec![finding.weight.into(), finding.rule.into(), sentence.into(), command.into()]
    };
    let summary = vec![("findings", (findings.len() as u64).into())];
    Table::new("explain", Shape::Counters, summary, columns, findings.iter().map(row))
}

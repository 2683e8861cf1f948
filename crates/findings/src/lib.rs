//! Findings: conclusions from tables in plain sentences, worst first.
//!
//! ```text
//! reports named by RULES ──Experiment::run──► tables ──Evidence──► each Rule ──► Finding… ──by weight──► `hodo explain`
//!                                               │                  ▲
//!                                               ├─► functions: of the call tree
//!                                               ├─► questions: why are these functions slow? ──► tables of causes
//!                                               │   does their cost grow, are slow ones regular? ──► of patterns
//!                                               │   which size does their cost depend on? ──► of sizes
//!                                               └─► further: tables that few inputs need
//!
//! tables of two sides compared by crates/compare ──Evidence──► DIFFERENCE_RULES ──► Finding… ──► `hodo explain A B`
//! ```
//!
//! A rule never guesses: each number of a finding is in a table, and each finding states the command that shows the
//! table. [`Rule::help`] states the thresholds, and [`why`] which of them kept a rule from a finding. A rule is one function in `rules/` and one line in [`RULES`].

mod call_tree;
mod difference;
mod evidence;
mod functions;
mod link;
mod numbers;
mod rules;
mod series;
mod sizes;
mod text;
mod why;

pub use difference::{DIFFERENCE_RULES, DIVERGENCE, LATENCIES, PATHS, differences};
pub use evidence::{CAUSES, Evidence, FUNCTIONS, PATTERNS, Row, SIZES};
pub use functions::functions;
pub use rules::tails::quoted;
pub use series::{Execution, Executions, patterns};
pub use sizes::{BlockSizes, Sized, sizes};
pub use text::{WIDTH, wrapped};
pub use why::why;

use hodo_model::{Column, Shape, Table, Unit, Value};

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
    rules::growth::RULE,
    rules::rhythm::RULE,
    rules::first::RULE,
    rules::unequal::RULE,
    rules::contention::RULE,
    rules::migrations::RULE,
    rules::path::RULE,
    rules::waits::LOCKS,
    rules::waits::DISKS,
    rules::small::RULE,
    rules::calls::POLLING,
    rules::expiring::RULE,
    rules::calls::YIELDING,
    rules::calls::SYNCING,
    rules::calls::MAPPING,
    rules::calls::CONNECTING,
    rules::calls::FAILING,
    rules::interrupts::STORM,
    rules::interrupts::OFF,
    rules::exceptions::RULE,
    rules::allocation::RULE,
    rules::recursion::RULE,
    rules::recorder::RULE,
    rules::hot::RULE,
];

/// A finding: a fact that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// The share of the run that it explains, from 0 to 1. Findings are in this order; what is hot comes after reasons.
    pub weight: f64,
    /// The finding, with its numbers and the threshold.
    pub sentence: String,
    /// The command line after `hodo` that shows the evidence, without the input.
    pub command: String,
    /// Where the page of `hodo view` shows it, as the end of its address: `#view=timeline&t0=…`.
    pub link: String,
    /// The numbers and names of the sentence. Names of numbers are stable; times are in nanoseconds, shares from 0 to 1.
    pub numbers: Vec<(&'static str, Value)>,
}

/// Returns the reports that the rules read, each once.
pub fn needs() -> Vec<Need> {
    let mut needs: Vec<Need> = RULES.iter().flat_map(|rule| rule.needs).copied().collect();
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// A function whose executions are worth a closer look, at each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The function's name.
    pub function: String,
    /// Its module.
    pub module: String,
    /// The least number of instructions of a slow execution: of the slow kind, or of the slowest 1 %.
    pub slow_from: u64,
    /// Whether slow executions shall be compared with typical ones. The table of causes, with the function's name as
    /// `function` in its summary, is further evidence ([`CAUSES`]).
    pub compares: bool,
    /// Whether the iterations of its loops shall be counted. What its cost depends on is further evidence ([`SIZES`]).
    pub counts: bool,
}

/// Returns the functions whose executions are worth a closer look. Their [`patterns`] are further evidence ([`PATTERNS`]).
pub fn questions(evidence: &Evidence<'_>) -> Vec<Question> {
    let mut questions = Vec::new();
    for function in rules::tails::heavy(evidence) {
        question_of(&mut questions, &function.row).compares = true;
    }
    for row in rules::growth::candidates(evidence) {
        question_of(&mut questions, &row).counts = true;
    }
    for row in rules::rhythm::candidates(evidence) {
        question_of(&mut questions, &row);
    }
    questions
}

/// Returns the question about the function of a row, which is added if there is none yet.
fn question_of<'q>(questions: &'q mut Vec<Question>, row: &Row<'_>) -> &'q mut Question {
    let [function, module] = ["function", "module"].map(|name| row.text(name).to_owned());
    let known = questions.iter().position(|known| known.function == function && known.module == module);
    let index = known.unwrap_or_else(|| {
        let slow_from = match row.integer("slow_from") {
            0 => row.integer("instructions_p99"),
            from => from,
        };
        // Lengths in the table are rounded by up to 1/64: with twice that, no slow execution is missed.
        let slow_from = slow_from - slow_from / 32;
        questions.push(Question { function, module, slow_from, compares: false, counts: false });
        questions.len() - 1
    });
    &mut questions[index]
}

/// Returns the reports that rules need beside [`needs`], because of what they found in these.
pub fn further(evidence: &Evidence<'_>) -> Vec<Need> {
    [rules::unequal::further(evidence), rules::hot::further(evidence)].concat()
}

/// Rules whose findings are no reason for the run's cost.
const NO_REASONS: &[&str] = &[rules::lost::RULE.name, rules::first::RULE.name, rules::recorder::RULE.name];
/// If a reason explains this share of the run, it is not said what is hot.
const EXPLAINED: f64 = 0.5;
/// By this factor a reason says more than what is hot: where all of the run is hot, a reason for 2 % of it comes first.
const REASON_FACTOR: f64 = 50.0;

/// Returns the findings of all rules, worst first.
pub fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let is_hot = |rule: &str| rule == rules::hot::RULE.name;
    let others = RULES.iter().filter(|rule| !is_hot(rule.name));
    let mut found: Vec<Finding> = others.flat_map(|rule| (rule.find)(evidence)).collect();
    let explains = |finding: &Finding| finding.weight >= EXPLAINED && !NO_REASONS.contains(&finding.rule);
    if !found.iter().any(explains) {
        found.extend((rules::hot::RULE.find)(evidence));
    }
    let rank = |finding: &Finding| match is_hot(finding.rule) {
        true => finding.weight / REASON_FACTOR,
        false => finding.weight,
    };
    found.sort_by(|one, other| rank(other).total_cmp(&rank(one)));
    found
}

/// Returns the findings as a table.
pub fn table(findings: &[Finding]) -> Table {
    let columns = vec![
        Column::real("weight", Unit::Share),
        Column::name("rule"),
        Column::text("finding"),
        Column::text("command"),
        Column::text("link").secondary(),
    ];
    let row = |finding: &Finding| {
        let [sentence, command, link] =
            [&finding.sentence, &finding.command, &finding.link].map(|text| text.as_str());
        vec![finding.weight.into(), finding.rule.into(), sentence.into(), command.into(), link.into()]
    };
    let summary = vec![("findings", (findings.len() as u64).into())];
    Table::new("explain", Shape::Counters, summary, columns, findings.iter().map(row))
}

//! Where the run is spent, if no reason explains half of it.

use std::collections::BTreeMap;

use super::{growth, unequal};
use crate::{
    Evidence, Finding, Row, Rule,
    call_tree::{self, TREE},
    evidence::figure,
    link,
    numbers::Numbers,
    text::{self, percent, share},
};

/// The most functions that are reported.
const MOST: usize = 3;
/// The least share of the run of the second and third.
const LEAST: f64 = 0.05;

pub(crate) const RULE: Rule = Rule {
    name: "hot",
    help: "if no other finding explains half of the run: the three functions with the most instructions of their own (of a library's, with what they call), the second and third with at least 5 % of the run, and who calls them",
    needs: &[TREE],
    find,
};

/// A function as called by one caller.
#[derive(Default)]
struct Called {
    instructions: u64,
    calls: u64,
}

/// A function with its own instructions; of a library's also those of what it calls.
#[derive(Default)]
struct Hot {
    instructions: u64,
    callers: BTreeMap<String, Called>,
}

/// Returns the functions of a call tree by name and module. What a library runs counts for the function by which the program
/// entered it.
fn functions(rows: &[Row<'_>]) -> BTreeMap<(String, String), Hot> {
    let program = call_tree::program(rows);
    let mut functions: BTreeMap<(String, String), Hot> = BTreeMap::new();
    call_tree::visit(rows, |node| {
        let (entry, caller) = node.entry(program);
        let key = (entry.text("function").to_owned(), entry.text("module").to_owned());
        let function = functions.entry(key).or_default();
        let own = node.row.integer("self_instructions");
        function.instructions = function.instructions.saturating_add(own);
        let caller = caller.map_or("", |caller| caller.text("function"));
        let called = function.callers.entry(caller.to_owned()).or_default();
        called.instructions = called.instructions.saturating_add(own);
        if std::ptr::eq(entry, node.row) {
            called.calls = called.calls.saturating_add(entry.integer("entries"));
        }
    });
    functions
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in evidence.tables(TREE) {
        let whole = figure(table, "instructions");
        let mut hot: Vec<_> = functions(&Row::all(table)).into_iter().collect();
        hot.sort_by_key(|(_, hot)| std::cmp::Reverse(hot.instructions));
        hot.retain(|(_, hot)| hot.instructions > 0);
        for (index, ((name, _), hot)) in hot.iter().take(MOST).enumerate() {
            let weight = share(hot.instructions, whole);
            if index == 0 || weight >= LEAST {
                findings.push(finding(evidence, name, hot, weight));
            }
        }
    }
    if let (Some(first), Some(roles)) = (findings.first_mut(), unequal::named_roles(evidence)) {
        first.sentence += &format!(" Threads have roles of their own: {roles} of their instructions.");
    }
    findings
}

fn finding(evidence: &Evidence<'_>, name: &str, hot: &Hot, weight: f64) -> Finding {
    let most = hot.callers.iter().max_by_key(|(_, called)| called.instructions);
    let mut numbers = Numbers::default();
    let part = format!(
        "{} of the run is in {}",
        numbers.percent("share", weight),
        numbers.function("function", name)
    );
    let sentence = match most {
        Some((caller, called)) if !caller.is_empty() && called.calls > 0 => {
            let each = called.instructions / called.calls;
            let of_caller = share(called.instructions, hot.instructions);
            let mostly =
                if of_caller < 0.9 { format!(", {} of it", percent(of_caller)) } else { String::new() };
            let less = match called.calls > each {
                true => "Fewer calls would make it less",
                false => "Less work in each call would make it less",
            };
            format!(
                "{part}, called by {} {}{mostly}, {} instructions each. {less}.",
                numbers.function("caller", caller),
                numbers.times("calls", called.calls),
                numbers.count("instructions_each", each)
            )
        }
        _ => format!(
            "{part} itself, {} instructions. Less work there would make it less.",
            numbers.count("instructions", hot.instructions)
        ),
    };
    // What its caller's cost depends on often is the reason.
    let caller = most.map(|(caller, _)| caller.as_str()).filter(|caller| !caller.is_empty());
    let depends = [Some(name), caller].into_iter().flatten().find_map(|name| {
        let dependence = growth::dependence(evidence, name)?;
        Some(format!("The cost of {}: {dependence}", text::name(name)))
    });
    let sentence = text::with(sentence, depends);
    let (command, link) = ("report tree".to_owned(), link::flame());
    Finding { rule: RULE.name, weight, sentence, command, link, numbers: numbers.list() }
}

//! Where the run is spent, if no reason explains half of it.

use std::collections::{BTreeMap, HashMap};

use super::{growth, unequal};
use crate::{
    Evidence, Finding, Rule,
    call_tree::{NameId, TREE, Tree},
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
fn functions(tree: &Tree<'_>) -> BTreeMap<(String, String), Hot> {
    // By function, module and caller.
    let mut all: HashMap<(NameId, NameId, Option<NameId>), Called> = HashMap::new();
    tree.visit(|node| {
        let (entry, caller) = node.entry();
        let key = (entry.function, entry.module, caller.map(|caller| caller.function));
        let called = all.entry(key).or_default();
        called.instructions = called.instructions.saturating_add(node.row.self_instructions);
        if std::ptr::eq(entry, node.row) {
            called.calls = called.calls.saturating_add(entry.entries);
        }
    });
    let mut functions: BTreeMap<(String, String), Hot> = BTreeMap::new();
    for ((name, module, caller), called) in all {
        let [name, module] = [name, module].map(|id| tree.text(id).to_owned());
        let function = functions.entry((name, module)).or_default();
        function.instructions = function.instructions.saturating_add(called.instructions);
        let caller = caller.map_or("", |caller| tree.text(caller));
        let of_caller = function.callers.entry(caller.to_owned()).or_default();
        of_caller.instructions = of_caller.instructions.saturating_add(called.instructions);
        of_caller.calls = of_caller.calls.saturating_add(called.calls);
    }
    functions
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for tree in evidence.trees() {
        let whole = figure(tree.table, "instructions");
        let mut hot: Vec<_> = functions(tree).into_iter().collect();
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

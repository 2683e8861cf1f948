//! What differs between two recordings: where instructions were added, by how often functions ran or by what each
//! execution costs.
//!
//! ```text
//! call paths of both sides, as one tree ──from the roots──► functions at which the difference arises ──► Finding…
//! ```
//!
//! From the roots on, the difference is followed into a callee that has most of it. It arises where it divides, in a
//! function's own code, or where a function runs more often though its caller does not.

use hodo_model::{Table, Value};

use crate::{
    Evidence, Finding, Need, Row, Rule, link,
    numbers::Numbers,
    text::{self, count, percent, rate, share, times},
};

/// The call paths of both sides, from `crates/compare`.
pub const PATHS: Need = ("diff_paths", "");
/// The branch at which both diverge.
pub const DIVERGENCE: Need = ("first_divergence", "");
/// Tables of latencies of both sides.
pub const LATENCIES: Need = ("diff_latencies", "");

/// The least change, as a share of the instructions of A.
const THRESHOLD: f64 = 0.01;
/// The least share of the changes in its direction.
const LEAST: f64 = 0.1;
/// A callee has the difference if it has this share of it.
const MOST_OF_IT: f64 = 0.8;
/// The most functions at which more arises, and at which less.
const MOST: usize = 4;
/// The least growth of a median latency, and of the time that all took together as a share of A's.
const SLOWER: f64 = 0.2;
const MUCH: f64 = 0.05;
/// Ratio of calls to those of the caller from which a function runs more often.
const OFTEN: f64 = 1.1;

/// The rules for differences, in the order of the documentation.
pub const DIFFERENCE_RULES: &[Rule] = &[
    Rule {
        name: "runs-more-often",
        help: "of two recordings: functions that ran at least 1.1 times as often as before, compared with their callers, for more than 1 % of the instructions of A and 10 % of what was added",
        needs: &[PATHS],
        find: |evidence| arisen(evidence, "runs-more-often"),
    },
    Rule {
        name: "costs-more",
        help: "of two recordings: functions whose executions cost more than before, in their own code or in several callees, for more than 1 % of the instructions of A and 10 % of what was added",
        needs: &[PATHS],
        find: |evidence| arisen(evidence, "costs-more"),
    },
    Rule {
        name: "is-new",
        help: "of two recordings: functions that only B ran, for more than 1 % of the instructions of A and 10 % of what was added",
        needs: &[PATHS],
        find: |evidence| arisen(evidence, "is-new"),
    },
    Rule {
        name: "costs-less",
        help: "of two recordings: functions that ran less often, cost less or ran no more, for more than 1 % of the instructions of A and 10 % of what fell away",
        needs: &[PATHS],
        find: |evidence| arisen(evidence, "costs-less"),
    },
    Rule {
        name: "slower",
        help: "of two traces of events: medians that grew by more than 20 %, of calls, interrupts and the like whose time together grew by more than 5 %",
        needs: &[LATENCIES],
        find: slower,
    },
    Rule {
        name: "renamed",
        help: "of two recordings: functions that may have been renamed, because counts of calls, callers and callees are equal",
        needs: &[PATHS],
        find: renamed,
    },
    Rule {
        name: "divergence",
        help: "of two recordings of the same files: the first branch at which main went another way",
        needs: &[DIVERGENCE],
        find: divergence,
    },
];

/// Returns what differs, the largest first; renamed functions and the first divergence come last.
pub fn differences(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = DIFFERENCE_RULES.iter().flat_map(|rule| (rule.find)(evidence)).collect();
    found.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    found
}

/// An amount of each side.
#[derive(Clone, Copy, Default)]
struct Both {
    a: f64,
    b: f64,
}

impl Both {
    fn more(self) -> f64 {
        self.b - self.a
    }

    fn add(&mut self, other: Both) {
        self.a += other.a;
        self.b += other.b;
    }
}

/// A function on a call path of both sides.
struct Node {
    name: String,
    parent: Option<usize>,
    children: Vec<usize>,
    own: Both,
    total: Both,
    calls: Both,
    /// What was added in it and its callees, without what fell away there; and the other way round.
    added: f64,
    fell_away: f64,
}

impl Node {
    fn changed(&self, sign: f64) -> f64 {
        if sign > 0.0 { self.added } else { self.fell_away }
    }
}

struct Tree {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    whole: Both,
}

impl Tree {
    fn of(table: &Table) -> Tree {
        let mut tree = Tree { nodes: Vec::new(), roots: Vec::new(), whole: Both::default() };
        let mut path: Vec<usize> = Vec::new();
        for row in Row::all(table) {
            path.truncate(row.integer("depth") as usize);
            let both = |a: &str, b: &str| Both { a: row.real(a), b: row.real(b) };
            let own = both("a_self_instructions", "b_self_instructions");
            let node = Node {
                name: row.text("function").to_owned(),
                parent: path.last().copied(),
                children: Vec::new(),
                own,
                total: own,
                calls: both("a_calls", "b_calls"),
                added: own.more().max(0.0),
                fell_away: (-own.more()).max(0.0),
            };
            let index = tree.nodes.len();
            match node.parent {
                Some(parent) => tree.nodes[parent].children.push(index),
                None => tree.roots.push(index),
            }
            tree.whole.add(own);
            tree.nodes.push(node);
            path.push(index);
        }
        for index in (0..tree.nodes.len()).rev() {
            let Node { total, added, fell_away, parent, .. } = tree.nodes[index];
            if let Some(parent) = parent {
                let parent = &mut tree.nodes[parent];
                parent.total.add(total);
                parent.added += added;
                parent.fell_away += fell_away;
            }
        }
        tree
    }

    /// Returns how often a function ran for each call of its caller; of the root, how often.
    fn per_caller(&self, index: usize) -> Both {
        let calls = self.nodes[index].calls;
        match self.nodes[index].parent.map(|parent| self.nodes[parent].calls) {
            Some(of) if of.a > 0.0 && of.b > 0.0 => Both { a: calls.a / of.a, b: calls.b / of.b },
            _ => calls,
        }
    }

    /// Returns the names of a path, the outermost first.
    fn path(&self, index: usize) -> String {
        let above = |at: &usize| self.nodes[*at].parent;
        let mut names: Vec<&str> =
            std::iter::successors(Some(index), above).map(|at| self.nodes[at].name.as_str()).collect();
        names.reverse();
        names.dedup();
        names.join(" → ")
    }

    /// Adds the functions at which the difference below a node arises. `sign` is 1 for what was added, -1 for what fell away.
    fn arise(&self, index: usize, sign: f64, least: f64, found: &mut Vec<Arisen>) {
        let node = &self.nodes[index];
        let changed = node.changed(sign);
        if changed < least {
            return;
        }
        // What was added here may be less than what fell away.
        let is_net = node.total.more() * sign >= changed * MOST_OF_IT;
        let often = self.per_caller(index);
        let ran_in_both = often.a > 0.0 && often.b > 0.0;
        let is_by_frequency = ran_in_both
            && match sign > 0.0 {
                true => often.b >= often.a * OFTEN,
                false => often.a >= often.b * OFTEN,
            };
        let is_of_both = node.total.a > 0.0 && node.total.b > 0.0;
        let large: Vec<usize> =
            node.children.iter().copied().filter(|&child| self.nodes[child].changed(sign) >= least).collect();
        let in_these: f64 = large.iter().map(|&child| self.nodes[child].changed(sign)).sum();
        // What several callees have in small parts arises here.
        let is_spread = large.is_empty() || in_these < changed * (1.0 - MOST_OF_IT);
        if is_net && (!is_of_both || is_spread || is_by_frequency) {
            found.push(Arisen::of(index, node, false));
            return;
        }
        large.iter().for_each(|&child| self.arise(child, sign, least, found));
        if node.own.more() * sign >= least {
            found.push(Arisen::of(index, node, true));
        }
    }
}

/// A function at which a difference arises.
#[derive(Clone, Copy)]
struct Arisen {
    index: usize,
    amount: Both,
    /// Whether the amount is that of its own code, as callees have the rest.
    is_own: bool,
    calls: Both,
    own: Both,
    total: Both,
    /// As many paths have the same difference.
    paths: u64,
}

impl Arisen {
    fn of(index: usize, node: &Node, is_own: bool) -> Arisen {
        let Node { own, total, calls, .. } = *node;
        let amount = if is_own { own } else { total };
        Arisen { index, amount, is_own, calls, own, total, paths: 1 }
    }

    /// Adds what arises in the same function on another path.
    fn add(&mut self, other: &Arisen) {
        self.amount.add(other.amount);
        self.calls.add(other.calls);
        self.own.add(other.own);
        self.total.add(other.total);
        self.paths += other.paths;
    }

    /// Returns the rule that it belongs to.
    fn rule(&self, tree: &Tree) -> &'static str {
        let often = tree.per_caller(self.index);
        match self.amount {
            Both { a: 0.0, .. } => "is-new",
            amount if amount.more() < 0.0 => "costs-less",
            _ if often.a > 0.0 && often.b >= often.a * OFTEN => "runs-more-often",
            _ => "costs-more",
        }
    }

    /// Says what the function does, compared with before.
    fn words(&self, node: &Node) -> String {
        let (name, Both { a, b }) = (text::name(&node.name), self.amount);
        let each = |total: f64, calls: f64| rate(if calls > 0.0 { total / calls } else { total });
        let (before, now) = (each(a, self.calls.a), each(b, self.calls.b));
        let [calls_a, calls_b] = [self.calls.a, self.calls.b].map(|calls| calls.round() as u64);
        if a == 0.0 {
            return format!("{name} is new: B ran it {}, {now} instructions each", times(calls_b));
        }
        if b == 0.0 {
            return format!("{name} runs no more: A ran it {}, {before} instructions each", times(calls_a));
        }
        if calls_a != calls_b {
            let costs = match before == now {
                true => format!("{now} instructions each as before"),
                false => format!("{now} instructions each instead of {before}"),
            };
            return format!("{name} ran {} instead of {}, {costs}", times(calls_b), count(calls_a));
        }
        let own = share_of(self.own.more(), self.total.more());
        let place = match self.is_own {
            true => " in its own code".to_owned(),
            false if own >= 0.5 => format!(", {} of that in its own code", percent(own)),
            false => String::new(),
        };
        let executions = match calls_b {
            0 | 1 => "it".to_owned(),
            several => format!("each of {} executions", count(several)),
        };
        let change = if b > a { "more" } else { "less" };
        format!("{name} costs {change}: {executions} ran {now} instructions instead of {before}{place}")
    }
}

/// Returns the findings of the rule with this name.
fn arisen(evidence: &Evidence<'_>, rule: &'static str) -> Vec<Finding> {
    let Some(table) = evidence.table(PATHS) else { return Vec::new() };
    let tree = Tree::of(table);
    let mut findings = Vec::new();
    for sign in [1.0, -1.0] {
        let changed = |node: &Node| (node.own.more() * sign).max(0.0);
        let all: f64 = tree.nodes.iter().map(changed).sum();
        let least = (all * LEAST).max(tree.whole.a * THRESHOLD);
        let mut found = Vec::new();
        tree.roots.iter().for_each(|&root| tree.arise(root, sign, least, &mut found));
        let more = |one: &Arisen| one.amount.more() * sign;
        found.sort_by(|one, other| more(other).total_cmp(&more(one)));
        let mut merged = merged(&tree, found);
        merged.truncate(MOST);
        let of_rule = merged.iter().filter(|one| one.rule(&tree) == rule);
        findings.extend(of_rule.map(|one| finding(&tree, one, rule, all)));
    }
    findings
}

/// Merges what arises in one function on several paths that look alike in a sentence, the largest first.
fn merged(tree: &Tree, found: Vec<Arisen>) -> Vec<Arisen> {
    let mut merged: Vec<Arisen> = Vec::new();
    for one in found {
        let is_alike = |other: &&mut Arisen| {
            let shown = |index: usize| text::path(&tree.path(index));
            other.is_own == one.is_own
                && other.rule(tree) == one.rule(tree)
                && shown(other.index) == shown(one.index)
        };
        match merged.iter_mut().find(is_alike) {
            Some(other) => other.add(&one),
            None => merged.push(one),
        }
    }
    merged.sort_by(|one, other| other.amount.more().abs().total_cmp(&one.amount.more().abs()));
    merged
}

fn finding(tree: &Tree, arisen: &Arisen, rule: &'static str, all: f64) -> Finding {
    let more = arisen.amount.more();
    let of_a = if tree.whole.a > 0.0 { more.abs() / tree.whole.a } else { 1.0 };
    let mut numbers = Numbers::default();
    let node = &tree.nodes[arisen.index];
    numbers.function("function", &node.name);
    numbers.rate("a_calls", arisen.calls.a);
    numbers.rate("b_calls", arisen.calls.b);
    numbers.rate("a_instructions", arisen.amount.a);
    numbers.rate("b_instructions", arisen.amount.b);
    let (verb, added) = if more > 0.0 { ("more", "what was added") } else { ("less", "what fell away") };
    let several = match arisen.paths {
        1 => String::new(),
        paths => format!(" ({} paths)", count(paths)),
    };
    Finding {
        rule,
        weight: of_a.min(1.0),
        sentence: format!(
            "{}, in {}{several}. That is {} instructions {verb}, {} of {added} and {} of A.",
            arisen.words(node),
            text::path(&tree.path(arisen.index)),
            numbers.count("difference", more.abs().round() as u64),
            numbers.percent("share_of_change", share_of(more, all)),
            match numbers.percent("share_of_a", of_a) {
                _ if of_a > 2.0 => format!("{of_a:.1} times those"),
                share => share,
            },
        ),
        command: "diff --by path".to_owned(),
        link: link::diff(),
        numbers: numbers.list(),
    }
}

fn share_of(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { (part / whole).abs().min(1.0) }
}

fn slower(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in evidence.tables(LATENCIES) {
        let rows = Row::all(table);
        let all: f64 = rows.iter().map(|row| row.real("a_average_ns") * row.real("a_count")).sum();
        for row in &rows {
            let [a, b] = ["a_p50_ns", "b_p50_ns"].map(|name| row.real(name));
            let more = row.real("delta_total_ns");
            let weight = share_of(more, all);
            if a > 0.0 && b > a * (1.0 + SLOWER) && more > 0.0 && weight > MUCH {
                let name = ["call", "name", "comm", "kind"].map(|column| row.text(column));
                let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or(table.name());
                let mut numbers = Numbers::default();
                findings.push(Finding {
                    rule: "slower",
                    weight,
                    sentence: format!(
                        "{name} is slower ({}): the median is {} instead of {} (threshold {}), and all take {} more together, {} of \
                         the time in A (threshold {}).",
                        numbers.text("report", table.name()),
                        numbers.duration("b_p50_ns", b as u64),
                        numbers.duration("a_p50_ns", a as u64),
                        numbers.percent("growth_threshold", SLOWER),
                        numbers.duration("more_ns", more as u64),
                        numbers.percent("share", weight),
                        numbers.percent("threshold", MUCH),
                    ),
                    command: "diff".to_owned(),
                    link: link::diff(),
                    numbers: {
                        numbers.text("name", name);
                        numbers.list()
                    },
                });
            }
        }
    }
    findings.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    findings.truncate(MOST);
    findings
}

/// Names the functions that may have been renamed.
fn renamed(evidence: &Evidence<'_>) -> Vec<Finding> {
    let rows = evidence.rows(PATHS);
    let mut pairs: Vec<&str> =
        rows.iter().filter_map(|row| row.text("matched").strip_prefix("renamed? ")).collect();
    pairs.sort_unstable();
    pairs.dedup();
    if pairs.is_empty() {
        return Vec::new();
    }
    let shown: Vec<String> =
        pairs.iter().map(|pair| pair.split(" → ").map(text::name).collect::<Vec<_>>().join(" → ")).collect();
    let head = format!(
        "{} renamed? Calls, callers and callees are equal:",
        match pairs.len() {
            1 => "A function was".to_owned(),
            several => format!("{} functions were", count(several as u64)),
        }
    );
    vec![Finding {
        rule: "renamed",
        weight: 0.0,
        sentence: text::fitted(&head, &shown),
        command: "diff".to_owned(),
        link: link::diff(),
        numbers: vec![("functions", (pairs.len() as u64).into())],
    }]
}

fn divergence(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(table) = evidence.table(DIVERGENCE) else { return Vec::new() };
    let rows = Row::all(table);
    let [at, a, b] = &rows[..] else { return Vec::new() };
    let place = |row: &Row<'_>| match (row.text("line"), row.text("function")) {
        ("", function) => text::name(function),
        (line, function) => {
            let line = line.rsplit('/').next().unwrap_or(line);
            format!("{} ({line})", text::name(function))
        }
    };
    let whole = match table.figure("a_instructions") {
        Some(Value::Integer(whole)) => *whole,
        _ => 0,
    };
    let common = at.figure("common_instructions");
    let mut numbers = Numbers::default();
    vec![Finding {
        rule: "divergence",
        weight: 0.0,
        sentence: format!(
            "They diverge at {}, after {} common instructions of main ({} of A's): A goes on at {}, B at {}.",
            place(at),
            numbers.count("common_instructions", common),
            numbers.percent("share_of_a", share(common, whole)),
            place(a),
            place(b),
        ),
        command: "diff --divergence".to_owned(),
        link: link::diff(),
        numbers: numbers.list(),
    }]
}

//! Functions with heavy tails: few executions take much longer than a typical one. Where there are two kinds of
//! executions with a gap between them, both are counted, however many are slow.
//!
//! The executions of a recursive function contain one another, so that their lengths differ by design. Such functions are
//! left out: all of their executions together have more instructions than the function and what it calls.

use std::collections::BTreeSet;

use hodo_model::{Table, Value};

use super::rhythm;
use crate::{
    Evidence, Finding, Need, PATTERNS, Row, Rule,
    call_tree::{self, TREE, TreeRow, names},
    evidence::{FUNCTIONS, figure},
    link,
    numbers::Numbers,
    text::{self, count, fitted, percent, share, times},
};

/// Largest acceptable shares of the run's instructions that slow executions cost beyond the median.
struct Thresholds {
    /// Of a slow kind of executions that is at most 1 % of them.
    rare: f64,
    /// Of a slow kind that is up to 10 %.
    kind: f64,
    /// Of a slow kind that is more than 10 %: most often these executions are slow by design.
    frequent: f64,
    /// Of the slowest 1 %, if no gap separates them from the others.
    no_kind: f64,
}

/// Of the program's own functions.
const OWN: Thresholds = Thresholds { rare: 0.015, kind: 0.1, frequent: 0.25, no_kind: 0.05 };
/// Of a library's functions. These do much for some callers and little for others, and keep house now and then: a runtime
/// collects garbage, an allocator joins what was freed. Without a gap that says nothing.
const LIBRARY: Thresholds = Thresholds { rare: 0.1, kind: 0.25, frequent: 0.5, no_kind: f64::INFINITY };
/// Largest acceptable ratio of the longest execution to the median; of the medians of the two kinds.
const TIMES: u64 = 8;
/// Least number of executions for a finding.
const FEWEST: u64 = 20;
/// Of fewer executions than this, more than one must be slow, and a library's are not looked at: what it does once for each
/// file or each start is no pattern.
const MANY: u64 = 100;
/// Largest acceptable share of the run that the tail of few executions costs.
const FEW_THRESHOLD: f64 = 0.1;
/// Largest acceptable share of the run of a tail of which one execution has most: functions that everything passes through
/// have such an execution.
const OF_ONE: f64 = 0.5;
/// The share of a tail that a library's function below has, from which on the tail is the library's.
const OF_CALLEE: f64 = 0.8;
/// A callee is rare if at most one of this number of executions calls it.
const RARE_CALLEE: u64 = 50;
/// The share of a tail that such a callee has, from which on it is the cause, however much the slow executions differ.
const OF_RARE_CALLEE: f64 = 0.5;
/// As many slow executions of a kind are several, however long the longest is.
const SEVERAL: u64 = 5;
/// The share of slow executions from which their callers decide: these called the function for slow executions only.
const BY_CALLER: f64 = 0.9;
/// The most functions that are reported.
const MOST: usize = 3;
/// The least share of all extra instructions with which a cause is named.
const LEAST_SHARE: f64 = 0.1;

const EXECUTIONS: Need = ("latency", "instructions");

pub(crate) const RULE: Rule = Rule {
    name: "heavy-tail",
    help: "functions whose slow executions run over 8 times as much as the median, and cost together, beyond the median, more of the run than: 1.5 % for a slow kind of executions (a gap of at least 4 times separates it from the others, and it differs less in itself) with at most 1 % of them, 10 % up to 10 % of them, 25 % above; 5 % for the slowest 1 % by rank without a gap, the longest at most 8 times the shortest of these, or half of it in a function that at most one of 50 executions calls; at least 10 % with fewer than 100 executions; of a library's functions 10 %, 25 %, 50 %, only with a gap and at least 100 executions; at least 20, of a slow kind at most half of them; no callers that only get slow ones; 50 % if one execution has most of it",
    needs: &[EXECUTIONS, TREE],
    find,
};

/// The executions of a function, as two kinds if there is a gap between them.
pub(crate) struct Executions<'a> {
    pub(crate) row: Row<'a>,
    /// The median; of two kinds, that of the fast one.
    typical: u64,
    /// Whether the slow kind is more than 1 %, so that the median says nothing.
    is_large: bool,
    /// Whether it is a function of the program's own file, with a symbol.
    is_own: bool,
}

/// Returns whether a function has no symbol. Its borders are then estimates: the next one, or only a part of one, may be
/// taken for it, so executions of different length mean nothing.
fn is_nameless(row: &Row<'_>) -> bool {
    let (function, module) = (row.text("function"), row.text("module"));
    !module.is_empty() && function.strip_prefix(module).is_some_and(|rest| rest.starts_with("+0x"))
}

impl<'a> Executions<'a> {
    /// Returns the executions of each function.
    pub(crate) fn all(evidence: &Evidence<'a>) -> Vec<Executions<'a>> {
        let functions = evidence.rows(FUNCTIONS);
        let main = functions.iter().find(|row| row.text("function") == "main");
        let of = |row: Row<'a>| {
            let is_own = call_tree::is_own(main, row.text("module"));
            Executions { is_own, ..Executions::of(row) }
        };
        // Executions of a stub are those of the function that it jumps to.
        let rows = evidence.rows(EXECUTIONS).into_iter();
        rows.filter(|row| !call_tree::is_stub(row.text("function"))).map(of).collect()
    }

    fn of(row: Row<'a>) -> Executions<'a> {
        let (fast, slow) = (row.integer("fast_count"), row.integer("slow_count"));
        let is_large = slow.saturating_mul(100) > fast.saturating_add(slow);
        let one = Executions { typical: row.integer("instructions_p50"), is_large, is_own: false, row };
        match one.is_kind() {
            true => Executions { typical: one.row.integer("fast_p50"), ..one },
            false => Executions { is_large: false, ..one },
        }
    }

    /// Returns the share of the run that slow executions cost.
    pub(crate) fn weight(&self) -> f64 {
        self.row.real(if self.is_kind() { "slow_share" } else { "tail_share" })
    }

    /// Returns whether there is a slow kind of executions.
    fn is_kind(&self) -> bool {
        let [fast, slow] = ["fast_p50", "slow_p50"].map(|name| self.row.integer(name));
        let [few, many] = ["fast_count", "slow_count"].map(|name| self.row.integer(name));
        // Where slow ones differ as much among themselves as from fast ones, each does as much as there is to do.
        let [from, longest] = ["slow_from", "instructions_max"].map(|name| self.row.integer(name).max(1));
        let is_alike = longest / from < (from / fast.max(1)).max(2 * TIMES);
        // Where most executions are long, the short ones are the exception.
        fast > 0 && slow / TIMES > fast && few >= many && is_alike
    }

    /// Returns whether the slowest 1 % are alike: others do what nothing else of the program does.
    fn has_alike_slowest(&self) -> bool {
        let [from, longest] = ["instructions_p99", "instructions_max"].map(|name| self.row.integer(name));
        longest / TIMES <= from
    }

    /// Returns the instructions of the longest, or the median of a large slow kind.
    fn long(&self) -> u64 {
        self.row.integer(if self.is_large { "slow_p50" } else { "instructions_max" })
    }

    /// Returns whether only the first execution, of each thread at most, is slow.
    pub(crate) fn only_first(&self) -> bool {
        let slow = self.row.integer("slow_count");
        let first = self.row.integer("instructions_first");
        let is_first = first > 0 && first == self.row.integer("instructions_max");
        is_first && (1..=self.row.figure("threads").max(1)).contains(&slow)
    }

    /// Returns the number of executions that no other of the function contains.
    pub(crate) fn count(&self) -> u64 {
        match self.row.integer("fast_count") {
            0 => self.row.integer("count"),
            fast => fast.saturating_add(self.row.integer("slow_count")),
        }
    }

    pub(crate) fn is_long(&self) -> bool {
        self.typical > 0 && self.long() / TIMES > self.typical
    }

    fn threshold(&self) -> f64 {
        let slow = self.row.integer("slow_count");
        let Thresholds { rare, kind, frequent, no_kind } = if self.is_own { OWN } else { LIBRARY };
        let threshold = match self.is_kind() {
            false => no_kind,
            true if slow.saturating_mul(10) > self.count() => frequent,
            true if self.is_large => kind,
            true => rare,
        };
        if self.count() < MANY { threshold.max(FEW_THRESHOLD) } else { threshold }
    }

    /// Returns whether one execution has most of what the slow ones cost.
    fn is_of_one(&self) -> bool {
        let longest = self.row.integer("instructions_max").saturating_sub(self.typical);
        let is_kind_of_many = self.is_kind() && self.row.integer("slow_count") >= SEVERAL;
        !is_kind_of_many && share(longest, self.row.figure("instructions")) * 2.0 > self.weight()
    }

    /// Returns whether a rare callee, such as the growth of a table, has most of the tail.
    fn has_rare_callee(&self, evidence: &Evidence<'_>) -> bool {
        let run = self.row.figure("instructions") as f64;
        let callees = call_tree::callees(evidence, names(&self.row));
        callees.into_values().any(|(entries, total)| {
            let is_rare = entries > 1 && entries.saturating_mul(RARE_CALLEE) <= self.count();
            is_rare && total as f64 >= self.weight() * run * OF_RARE_CALLEE
        })
    }

    fn is_heavy(&self, evidence: &Evidence<'_>) -> bool {
        // What it differs by comes last: that may take a visit of the call tree.
        let differs = false;
        self.lacks_if(differs).is_empty() && !self.differs(evidence)
    }

    /// Says what it lacks for a finding.
    fn lacks(&self, evidence: &Evidence<'_>) -> Vec<String> {
        self.lacks_if(self.differs(evidence))
    }

    /// Returns whether the slowest executions differ among themselves, for no reason that one callee has.
    fn differs(&self, evidence: &Evidence<'_>) -> bool {
        !self.is_kind() && !self.has_alike_slowest() && !self.has_rare_callee(evidence)
    }

    /// Says what it lacks for a finding, if its slowest executions differ or not.
    fn lacks_if(&self, differs: bool) -> Vec<String> {
        let mut lacks = Vec::new();
        let fewest = if self.is_own { FEWEST } else { MANY };
        let executions = self.count();
        if executions < fewest {
            lacks.push(format!("it has {} executions, fewer than {fewest}", count(executions)));
        }
        if is_nameless(&self.row) {
            lacks.push("it has no symbol, so its borders are estimates".to_owned());
        }
        if !self.is_long() {
            let (long, typical) = (count(self.long()), count(self.typical));
            lacks.push(format!(
                "its slow executions run {long} instructions, at most {TIMES} times the median of {typical}"
            ));
        }
        // One slow execution of few is chance.
        if executions < MANY && self.is_kind() && self.row.integer("slow_count") < 2 {
            lacks.push(format!("of fewer than {MANY} executions one is slow"));
        }
        if differs {
            lacks.push("its slowest executions differ among themselves".to_owned());
        }
        let threshold = self.threshold();
        if threshold.is_infinite() {
            lacks.push("it is a library's, and no gap separates slow executions from others".to_owned());
        } else if self.weight() <= threshold {
            lacks.push(format!("that is at most {}", percent(threshold)));
        }
        if self.is_of_one() && self.weight() <= OF_ONE {
            lacks.push(format!("one execution has most of that, which is at most {}", percent(OF_ONE)));
        }
        if self.only_first() {
            lacks.push("only its first execution is slow".to_owned());
        }
        lacks
    }
}

/// Returns whether the executions of a function contain one another.
pub(crate) fn is_recursive(row: &Row<'_>, functions: &[Row<'_>]) -> bool {
    let own = functions.iter().find(|function| names(function) == names(row));
    own.is_some_and(|own| row.integer("instructions_total") > own.integer("total_instructions"))
}

/// Returns whether the tail of one of the program's functions is that of a library's function which it calls, and which
/// would be no finding.
fn is_of_library(evidence: &Evidence<'_>, one: &Executions<'_>) -> bool {
    if !one.is_own || one.weight() > LIBRARY.rare {
        return false;
    }
    let all = Executions::all(evidence);
    let has_tail = |other: &&Executions<'_>| {
        let tail = other.row.real("tail_share").max(other.row.real("slow_share"));
        !other.is_own && tail >= one.weight() * OF_CALLEE
    };
    let tails: BTreeSet<[&str; 2]> = all.iter().filter(has_tail).map(|other| names(&other.row)).collect();
    let mut calls = false;
    for tree in evidence.trees() {
        let of = names(&one.row);
        let [is_function, is_module] = [0, 1].map(|part| tree.marked(|name| name == of[part]));
        let is_one = |row: &TreeRow| is_function[row.function as usize] && is_module[row.module as usize];
        let has_tail = tree.marked(|name| tails.iter().any(|[function, _]| *function == name));
        tree.visit(|node| {
            calls |= has_tail[node.row.function as usize]
                && tails.contains(&[node.function(), tree.text(node.row.module)])
                && node.callers.iter().any(|caller| is_one(caller));
        });
    }
    calls
}

/// Returns the functions with heavy tails, the heaviest first.
pub(crate) fn heavy<'a>(evidence: &Evidence<'a>) -> Vec<Executions<'a>> {
    let mut heavy = Executions::all(evidence);
    heavy.retain(|one| one.is_heavy(evidence));
    let functions = evidence.rows(FUNCTIONS);
    heavy.retain(|one| !is_recursive(&one.row, &functions) && !is_of_library(evidence, one));
    // A slow kind says more than lengths of all sizes. Of nearly equal ones callers come first: they contain the others.
    let steps = |one: &Executions<'_>| (one.weight() * 20.0).round() as u64;
    heavy.sort_by_key(|one| {
        std::cmp::Reverse((one.is_kind(), steps(one), one.row.integer("instructions_total")))
    });
    heavy.truncate(MOST);
    heavy
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut known: Vec<Vec<String>> = Vec::new();
    let mut findings = Vec::new();
    let heavy = heavy(evidence);
    for one in &heavy {
        let name = one.row.text("function");
        if caller_decides(evidence, &one.row) {
            continue;
        }
        let causes = evidence.causes().find(|table| table.figure("function") == Some(&Value::from(name)));
        // A slow callee makes its callers slow too. Where executions were not compared, the call tree tells.
        if causes.is_none() && has_heavy_callee(evidence, one, &heavy) {
            continue;
        }
        let path = causes.and_then(main_path).unwrap_or_default();
        let is_known = |other: &Vec<String>| other.iter().any(|own| own == name) || path.contains(&other[0]);
        if known.iter().any(is_known) {
            continue;
        }
        if !path.is_empty() {
            known.push(path);
        }
        let rhythm = rhythm::words(evidence, name).map_or_else(String::new, |words| format!(" ({words})"));
        let link = link::slowest(evidence, &one.row);
        let parts = causes.map(sentences).unwrap_or_default();
        let mut finding = finding(one, Lengths::of(one, causes), &rhythm, &parts, link);
        finding.numbers.extend(causes.map(cause_numbers).unwrap_or_default());
        findings.push(finding);
    }
    findings
}

/// Returns whether a function below another one has most of its tail.
fn has_heavy_callee(evidence: &Evidence<'_>, one: &Executions<'_>, heavy: &[Executions<'_>]) -> bool {
    let below = call_tree::callees(evidence, names(&one.row));
    heavy.iter().any(|other| {
        let is_below = below.contains_key(&names(&other.row).map(str::to_owned));
        is_below && other.weight() >= one.weight() * OF_CALLEE
    })
}

/// Returns whether the slow executions are those that other functions called than the fast ones.
fn caller_decides(evidence: &Evidence<'_>, row: &Row<'_>) -> bool {
    let patterns = evidence.rows(PATTERNS);
    patterns.iter().any(|own| names(own) == names(row) && own.real("slow_by_caller") >= BY_CALLER)
}

/// Lengths of executions in a sentence. Those of the histogram are rounded, from some length on.
struct Lengths {
    typical: u64,
    slow: u64,
    /// As many are slow, if that is known exactly.
    slowest: Option<u64>,
    /// Whether they are exact.
    is_exact: bool,
}

/// Shorter executions are not rounded in the histogram.
const ROUNDED: u64 = 64;

/// Returns the word before a length of the histogram that may be rounded.
pub(super) fn about(length: u64) -> &'static str {
    if length < ROUNDED { "" } else { "about " }
}

impl Lengths {
    /// Returns the exact lengths if all executions were looked at.
    fn of(one: &Executions<'_>, causes: Option<&Table>) -> Lengths {
        let rounded = Lengths {
            typical: one.typical,
            slow: if one.is_kind() { one.row.integer("slow_p50") } else { one.long() },
            slowest: None,
            is_exact: false,
        };
        let Some(table) = causes.filter(|table| table.figure("fast_count").is_some()) else { return rounded };
        let known = |name: &str| figure(table, name);
        if one.is_kind() {
            let is_same =
                ["fast_count", "slow_count"].iter().all(|name| known(name) == one.row.integer(name));
            if !is_same {
                return rounded;
            }
            let (typical, slow) = (known("fast_p50"), known("slow_p50"));
            return Lengths { typical, slow, slowest: Some(known("slow_count")), is_exact: true };
        }
        Lengths { typical: known("median"), slowest: Some(known("slow_count")), is_exact: true, ..rounded }
    }
}

fn finding(one: &Executions<'_>, lengths: Lengths, rhythm: &str, parts: &[String], link: String) -> Finding {
    let (row, weight, mut numbers) = (&one.row, one.weight(), Numbers::default());
    let name = numbers.function("function", row.text("function"));
    let about = |length: u64| if lengths.is_exact { "" } else { about(length) };
    let (about_typical, about_slow) = (about(lengths.typical), about(lengths.slow));
    let typical = numbers.count("typical_instructions", lengths.typical);
    let times = numbers.count("times_as_many", lengths.slow / lengths.typical.max(1));
    let costs = numbers.percent("share", weight);
    numbers.count("executions", one.count());
    let kinds = match one.is_kind() {
        true => format!(
            "{} executions run {about_typical}{typical} instructions (median), {}{rhythm} run {about_slow}{}, {times} times as many, {costs} of \
             the run",
            numbers.count("fast", row.integer("fast_count")),
            numbers.count("slow", row.integer("slow_count")),
            numbers.count("slow_p50_instructions", lengths.slow),
        ),
        false => String::new(),
    };
    let head = match (one.is_large, one.is_kind()) {
        (true, true) => format!("{name} has two kinds of executions: {kinds}."),
        (false, true) => format!("{name} has a heavy tail: {kinds}."),
        (_, false) => format!(
            "{name} has a heavy tail: the longest of {} executions ran {} instructions, {times} times the median of \
             {about_typical}{typical}; the slowest {} cost {costs} of the run.",
            count(one.count()),
            numbers.count("longest_instructions", row.integer("instructions_max")),
            match lengths.slowest {
                Some(slowest) => numbers.count("slowest", slowest),
                None => "1 %, and all as long,".to_owned(),
            },
        ),
    };
    let qualified = qualified(row.text("function"), row.text("module"));
    Finding {
        rule: RULE.name,
        weight,
        sentence: fitted(&head, parts),
        command: format!("latency --compare --function {}", quoted(&qualified)),
        link,
        numbers: numbers.list(),
    }
}

/// Returns the functions of the most costly cause's path, without the depths of recursions.
fn main_path(causes: &Table) -> Option<Vec<String>> {
    let rows = Row::all(causes);
    let path = rows.first()?.text("path");
    let name = |shown: &str| shown.rsplit_once(" ×").map_or(shown, |(name, _)| name).to_owned();
    Some(path.split(" → ").map(name).collect())
}

/// Says what the slow executions did that a typical one did not.
fn sentences(causes: &Table) -> Vec<String> {
    let rows = Row::all(causes);
    let all = rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.integer("extra_total")));
    let named = rows.iter().filter(|row| share(row.integer("extra_total"), all) >= LEAST_SHARE);
    let [slowest, compared] = ["slowest", "compared"].map(|name| figure(causes, name));
    let sampled = (slowest > compared && compared > 0).then_some(Sampled { slowest, compared });
    named.map(|row| cause(row, sampled)).collect()
}

/// Of more slow executions than are compared.
#[derive(Clone, Copy)]
struct Sampled {
    slowest: u64,
    compared: u64,
}

/// Returns the numbers of the most costly cause.
fn cause_numbers(causes: &Table) -> Vec<(&'static str, Value)> {
    let rows = Row::all(causes);
    let Some(row) = rows.first() else { return Vec::new() };
    let mut numbers = vec![("cause_path", row.text("path").into())];
    for (name, column) in [
        ("cause_executions", "executions"),
        ("cause_least_more", "extra_min"),
        ("cause_most_more", "extra_max"),
        ("cause_typical_calls", "typical_calls"),
        ("cause_least_calls", "calls_min"),
        ("cause_most_calls", "calls_max"),
    ] {
        if row.knows(column) {
            numbers.push((name, row.integer(column).into()));
        }
    }
    numbers
}

fn cause(row: &Row<'_>, sampled: Option<Sampled>) -> String {
    let range = |least: &str, most: &str| {
        let [least, most] = [least, most].map(|end| row.integer(end));
        if least == most { count(least) } else { format!("{} to {}", count(least), count(most)) }
    };
    let executions = row.integer("executions");
    let who = match sampled {
        None => count(executions),
        // The others have the same cause as far as a sample shows it.
        Some(Sampled { slowest, compared }) if compared == executions => {
            format!("Of these {} all {} that were compared", count(slowest), count(compared))
        }
        Some(Sampled { compared, .. }) => {
            format!("{} of {} that were compared", count(executions), count(compared))
        }
    };
    let ran = format!("{who} ran {} more", range("extra_min", "extra_max"));
    let path = row.text("path");
    if !path.contains(" → ") {
        return match row.integer("extra_self_max").saturating_mul(2) > row.integer("extra_max") {
            true => format!("{ran} in its own code"),
            false => ran,
        };
    }
    let there = range("extra_there_min", "extra_there_max");
    let often = match row.text("repeated") {
        "" => String::new(),
        repeated => {
            let (typical, most) = (row.integer("typical_calls"), row.integer("calls_max"));
            let calls = match row.integer("calls_min") {
                least if least == most => times(most),
                least => format!("{} to {} times", count(least), count(most)),
            };
            let instead =
                if typical == 0 { String::new() } else { format!(" instead of {}", times(typical)) };
            match path.ends_with(repeated) {
                true => format!(", which ran {calls}{instead}"),
                false => format!(": {} ran {calls}{instead}", text::name(repeated)),
            }
        }
    };
    format!("{ran}, {there} in {}{often}", text::path(path))
}

/// Returns a function's name for the command line: several files may have one of that name.
pub(crate) fn qualified(function: &str, module: &str) -> String {
    if module.is_empty() { function.to_owned() } else { format!("{function}@{module}") }
}

/// Quotes a name for a shell, if needed.
pub fn quoted(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.:@,%+-".contains(letter);
    if name.chars().all(is_plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}

/// Says of the function that comes nearest to a finding what it lacks.
pub(crate) fn why(evidence: &Evidence<'_>) -> String {
    let all = Executions::all(evidence).into_iter();
    let Some(one) = all.max_by(|one, other| one.weight().total_cmp(&other.weight())) else {
        return "no function has complete executions".to_owned();
    };
    let mut lacks = one.lacks(evidence);
    if caller_decides(evidence, &one.row) {
        lacks.push("its slow executions have other callers than its fast ones".to_owned());
    }
    if is_recursive(&one.row, &evidence.rows(FUNCTIONS)) {
        lacks.push("it is recursive, so that its executions contain one another".to_owned());
    }
    if is_of_library(evidence, &one) {
        lacks.push("a library's function that it calls has that tail".to_owned());
    }
    let name = text::name(one.row.text("function"));
    format!("the tail of {name} costs most, {} of the run; {}", percent(one.weight()), lacks.join("; "))
}

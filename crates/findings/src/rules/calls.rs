//! Habits: system calls that are made too often. Where the input has control flow alone, the functions of the library of C
//! that make them.

use std::collections::{BTreeMap, BTreeSet};

use super::tails::quoted;
use crate::{
    Evidence, Finding, Need, Row, Rule,
    call_tree::{self, TREE, Tree, TreeRow},
    evidence::{figure, span},
    link,
    numbers::Numbers,
    text::{self, count, share},
};

pub(super) const CALLS: Need = ("syscalls", "call");
const WAITS: Need = ("states", "wait");

/// Calls that programs make too often, as a habit.
struct Habit {
    /// What is wrong, as the begin of a sentence.
    says: &'static str,
    calls: &'static [&'static str],
    /// Calls that are made because of these: they count to the share of the trace.
    follow: &'static [&'static str],
    /// Least number of calls.
    fewest: u64,
    /// Least number of calls a second.
    rate: u64,
    /// Least share of the trace that the calls take.
    share: f64,
    /// Longest average that counts, in nanoseconds.
    longest: u64,
    /// By what the calls are counted, where the trace says which thread waits in them.
    of: Of,
}

/// Whose calls are counted together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Those of all threads.
    All,
    /// Those of each thread: the calls wait.
    Thread,
    /// Those of the threads with one name: the calls wait.
    Name,
}

/// The factor of the weight of a habit that is found in control flow: there, instructions count for more than time that
/// passes outside.
const OF_FLOW: f64 = 0.5;

const POLLING_HABIT: Habit = Habit {
    says: "A thread sleeps again and again instead of waiting for what it needs",
    calls: &["nanosleep", "clock_nanosleep"],
    follow: &[],
    fewest: 100,
    rate: 50,
    share: 0.1,
    longest: 20_000_000,
    of: Of::Thread,
};

pub(crate) const POLLING: Rule = Rule {
    name: "polling",
    help: "sleeps of at most 20 ms on average, at least 100 and 50 a second, in more than 10 % of the trace",
    needs: &[CALLS, WAITS, TREE],
    find: |evidence| POLLING_HABIT.find(evidence, &POLLING),
};

const YIELDING_HABIT: Habit = Habit {
    says: "A thread spins: it offers its CPU to others until something happens",
    calls: &["sched_yield"],
    follow: &[],
    fewest: 1_000,
    rate: 1_000,
    share: 0.0,
    longest: u64::MAX,
    of: Of::All,
};

pub(crate) const YIELDING: Rule = Rule {
    name: "yielding",
    help: "sched_yield at least 1,000 times, and 1,000 times a second",
    needs: &[CALLS, TREE],
    find: |evidence| YIELDING_HABIT.find(evidence, &YIELDING),
};

const SYNCING_HABIT: Habit = Habit {
    says: "A program waits for the disk after each of many small writes",
    calls: &["fsync", "fdatasync", "msync", "sync_file_range"],
    follow: &[],
    fewest: 100,
    rate: 0,
    share: 0.05,
    longest: u64::MAX,
    of: Of::Name,
};

pub(crate) const SYNCING: Rule = Rule {
    name: "syncing",
    help: "fsync, fdatasync, msync or sync_file_range at least 100 times, in more than 5 % of the trace",
    needs: &[CALLS, WAITS, TREE],
    find: |evidence| SYNCING_HABIT.find(evidence, &SYNCING),
};

const MAPPING_HABIT: Habit = Habit {
    says: "A program takes memory from the system and gives it back all the time",
    calls: &["mmap", "munmap", "mremap", "brk", "madvise"],
    follow: &[],
    fewest: 1_000,
    rate: 1_000,
    share: 0.05,
    longest: u64::MAX,
    of: Of::All,
};

pub(crate) const MAPPING: Rule = Rule {
    name: "mapping",
    help: "mmap, munmap, mremap, brk or madvise at least 1,000 times and 1,000 times a second, in more than 5 % of the trace",
    needs: &[CALLS, TREE],
    find: |evidence| MAPPING_HABIT.find(evidence, &MAPPING),
};

const CONNECTING_HABIT: Habit = Habit {
    says: "Connections are made for each request instead of being kept",
    calls: &["connect"],
    follow: &["socket", "accept", "accept4", "shutdown", "close"],
    fewest: 1_000,
    rate: 1_000,
    share: 0.0,
    longest: u64::MAX,
    of: Of::All,
};

pub(crate) const CONNECTING: Rule = Rule {
    name: "connecting",
    help: "connect at least 1,000 times, and 1,000 times a second; socket, accept, shutdown and close count to its share",
    needs: &[CALLS, TREE],
    find: |evidence| CONNECTING_HABIT.find(evidence, &CONNECTING),
};

impl Habit {
    fn find(&self, evidence: &Evidence<'_>, rule: &Rule) -> Vec<Finding> {
        let Some(table) = evidence.table(CALLS) else { return self.find_in_flow(evidence, rule) };
        let span = span(table);
        if let Some(found) = self.of_threads(evidence, rule, span) {
            return found;
        }
        let mut rows = evidence.rows(CALLS);
        rows.retain(|row| {
            let average = row.integer("total_ns") / row.integer("count").max(1);
            self.calls.contains(&row.text("call")) && average <= self.longest
        });
        let sum = |column: &str| rows.iter().map(|row| row.integer(column)).fold(0, u64::saturating_add);
        let (calls, total) = (sum("count"), sum("total_ns"));
        let all = evidence.rows(CALLS);
        let of_following = all.iter().filter(|row| self.follow.contains(&row.text("call")));
        let following = of_following.map(|row| row.integer("total_ns")).fold(0, u64::saturating_add);
        let which = rows.iter().map(times).collect::<Vec<_>>().join(", ");
        let mut found = self.finding(rule, Made { calls, total, following, span }, &which);
        if let Some(finding) = &mut found {
            let programs = programs(evidence);
            if programs > 1 {
                finding.sentence += &format!(
                    " That is of {} programs together: `--comm` selects one.",
                    count(programs as u64)
                );
            }
            finding.command = "report syscalls".to_owned();
            finding.link = link::table("syscalls", "");
        }
        found.into_iter().collect()
    }

    /// Finds the thread or the program with most of the habit, where the trace says who waits in the calls.
    fn of_threads(&self, evidence: &Evidence<'_>, rule: &Rule, span: u64) -> Option<Vec<Finding>> {
        if self.of == Of::All {
            return None;
        }
        let mut rows = evidence.rows(WAITS);
        rows.retain(|row| self.calls.contains(&row.text("call")));
        if rows.is_empty() {
            return None;
        }
        let mut groups: BTreeMap<(&str, u64), (Made, Vec<&Row<'_>>)> = BTreeMap::new();
        for row in &rows {
            let tid = if self.of == Of::Thread { row.integer("tid") } else { 0 };
            let made = Made { span, ..Made::default() };
            let (made, of) = groups.entry((row.text("comm"), tid)).or_insert((made, Vec::new()));
            made.calls = made.calls.saturating_add(row.integer("count"));
            made.total = made.total.saturating_add(row.integer("total_ns"));
            of.push(row);
        }
        let found =
            groups.into_iter().filter(|(_, (made, _))| made.total / made.calls.max(1) <= self.longest);
        let found = found.filter_map(|((comm, _), (made, of))| {
            let who = match self.of {
                Of::Thread => text::thread(of[0]),
                _ => comm.to_owned(),
            };
            let which = of.iter().map(|row| times(row)).collect::<Vec<_>>().join(", ");
            let finding = self.finding(rule, made, &format!("{who} made {which}"))?;
            let selection = match self.of {
                Of::Thread => format!("--tid {}", of[0].integer("tid")),
                _ => format!("--comm {}", quoted(comm)),
            };
            let command = format!("report states --by wait {selection}");
            Some(Finding { command, link: link::table("states", "wait"), ..finding })
        });
        let mut found: Vec<Finding> = found.collect();
        found.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        let others = found.len().saturating_sub(1);
        found.truncate(1);
        if let Some(first) = found.first_mut() {
            first.sentence += &match others {
                0 => String::new(),
                1 => " So does another one.".to_owned(),
                others => format!(" So do {} others.", count(others as u64)),
            };
        }
        Some(found)
    }

    /// Finds the habit in call trees.
    fn find_in_flow(&self, evidence: &Evidence<'_>, rule: &Rule) -> Vec<Finding> {
        let mut findings = Vec::new();
        for tree in evidence.trees() {
            let (made, which) = self.made(tree);
            if made.calls > 0 && made.total / made.calls <= self.longest {
                let found = self.finding(rule, made, &which);
                findings.extend(found.map(|found| Finding { weight: found.weight * OF_FLOW, ..found }));
            }
        }
        findings
    }

    /// Returns the calls of a call tree, and who makes most of them.
    fn made(&self, tree: &Tree<'_>) -> (Made, String) {
        // System calls take time outside of the traced code.
        let span = figure(tree.table, "time_ns").saturating_add(figure(tree.table, "outside_time_ns"));
        let mut made = Made { span, ..Made::default() };
        let mut callers: BTreeMap<[&str; 2], u64> = BTreeMap::new();
        let is_call = tree.marked(|function| self.is_of(function));
        if !is_call.contains(&true) {
            return (made, String::new());
        }
        tree.visit(|node| {
            let is_one = |row: &TreeRow| is_call[row.function as usize];
            if !is_one(node.row) || node.callers.iter().any(|caller| is_one(caller)) {
                return;
            }
            let calls = node.row.entries;
            made.calls = made.calls.saturating_add(calls);
            made.total = made.total.saturating_add(node.row.total_time_ns);
            // Functions of the library may lie between the program's and that which makes the call.
            let own = node.callers.iter().rposition(|caller| caller.module != node.row.module);
            let caller = own.map_or("", |own| tree.text(node.callers[own].function));
            let entry = own.and_then(|own| node.callers.get(own + 1)).map_or(node.row, |entry| *entry);
            let of_caller = callers.entry([caller, tree.text(entry.function)]).or_default();
            *of_caller = of_caller.saturating_add(calls);
        });
        let most = callers.into_iter().max_by_key(|(_, calls)| *calls);
        let which = most.map(|([caller, function], calls)| {
            format!("{} calls {function} {} times", text::name(caller), count(calls))
        });
        (made, which.unwrap_or_default())
    }

    /// Returns whether a function of the library of C makes one of these calls: its names have underscores before them.
    fn is_of(&self, function: &str) -> bool {
        self.calls.contains(&call_tree::plain_name(function))
    }

    /// Returns the finding, with a call tree as evidence, if there are enough calls.
    fn finding(&self, rule: &Rule, made: Made, which: &str) -> Option<Finding> {
        let Made { calls, total, following, span } = made;
        let part = share(total.saturating_add(following), span);
        let per_second = u128::from(calls) * 1_000_000_000 / u128::from(span.max(1));
        if calls < self.fewest || per_second < self.rate.into() || part < self.share {
            return None;
        }
        let mut numbers = Numbers::default();
        numbers.count("calls", calls);
        Some(Finding {
            rule: rule.name,
            weight: part,
            sentence: format!(
                "{}: {which}, {} on average, {} a second, {} of the trace together (threshold: {}).",
                self.says,
                numbers.duration("average_ns", total / calls.max(1)),
                numbers.count("per_second", per_second as u64),
                numbers.percent("share", part),
                rule.help,
            ),
            command: "report tree".to_owned(),
            link: link::flame(),
            numbers: numbers.list(),
        })
    }
}

/// Returns how many names the threads of a trace have. The idle ones are of no program.
fn programs(evidence: &Evidence<'_>) -> usize {
    let rows = evidence.rows(("cpu", "thread"));
    let names = rows.iter().filter(|row| row.integer("tid") != 0).map(|row| row.text("comm"));
    names.collect::<BTreeSet<_>>().len()
}

/// Calls that were made.
#[derive(Clone, Copy, Default)]
struct Made {
    calls: u64,
    /// The time that they took, in nanoseconds.
    total: u64,
    /// The time that those took which follow them.
    following: u64,
    /// The time of the trace.
    span: u64,
}

/// Such as `brk 1,000 times`.
pub(super) fn times(row: &Row<'_>) -> String {
    format!("{} {} times", row.text("call"), count(row.integer("count")))
}

/// Calls that look for something by its name.
const BY_NAME: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "access",
    "faccessat",
    "faccessat2",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "readlink",
    "readlinkat",
    "unlink",
    "unlinkat",
    "execve",
    "connect",
];
/// Least number of failures.
const FEWEST_FAILURES: u64 = 1_000;
/// Least share of such calls that fail.
const MOST_FAIL: f64 = 0.5;
/// Least share of all system calls that these failures are.
const OF_ALL: f64 = 0.05;

pub(crate) const FAILING: Rule = Rule {
    name: "failing-calls",
    help: "calls that look for a file or a service by name: at least 1,000 failures, most of such calls, and 5 % of all",
    needs: &[CALLS],
    find: failing,
};

fn failing(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(table) = evidence.table(CALLS) else { return Vec::new() };
    let (span, all) = (span(table), figure(table, "calls"));
    let rows = evidence.rows(CALLS);
    let found = rows.iter().filter(|row| BY_NAME.contains(&row.text("call"))).filter_map(|row| {
        let (failures, calls) = (row.integer("errors"), row.integer("count"));
        let fails = failures >= FEWEST_FAILURES
            && share(failures, calls) > MOST_FAIL
            && share(failures, all) > OF_ALL;
        let mut numbers = Numbers::default();
        fails.then(|| Finding {
            rule: FAILING.name,
            weight: share(row.integer("total_ns"), span),
            sentence: format!(
                "A program looks for what is not there: {} failed {} times of {}, {} of all system calls (threshold {}).",
                numbers.text("call", row.text("call")),
                numbers.count("failures", failures),
                numbers.count("calls", calls),
                numbers.percent("share_of_calls", share(failures, all)),
                numbers.percent("threshold", OF_ALL),
            ),
            command: "report syscalls".to_owned(),
            link: link::table("syscalls", ""),
            numbers: numbers.list(),
        })
    });
    found.collect()
}

//! Threads of one process that do unequal shares of its work.

use std::collections::BTreeMap;

use crate::{
    Evidence, Finding, Need, Row, Rule,
    evidence::{figure, span},
    link,
    numbers::Numbers,
    text::{self, count, duration, percent, share},
};

/// Fewer threads are no pool.
const FEWEST: usize = 3;
/// A thread that does less than this share of the busiest one's work is no member of the pool.
const MEMBER: f64 = 0.1;
/// Largest acceptable ratio of a thread's work to the mean of the pool.
const TIMES: f64 = 1.5;
/// Largest acceptable share of the run that this thread works beyond the mean.
const THRESHOLD: f64 = 0.05;

/// The most roles that are named.
const MOST_ROLES: usize = 5;

const FLOW: Need = ("threads", "");
const EVENTS: Need = ("cpu", "thread");
/// The start functions of threads.
const ROLES: Need = ("tree", "thread");

pub(crate) const RULE: Rule = Rule {
    name: "unequal-threads",
    help: "of at least 3 threads that a process started with the same function, each with over a tenth of the busiest one's work, one works over 1.5 times the mean, and that costs more than 5 % of the run",
    needs: &[FLOW, EVENTS],
    find,
};

/// A pool of threads, and what its busiest thread does.
struct Pool {
    pid: u64,
    /// Their start function; empty if it is unknown.
    role: String,
    threads: usize,
    tid: u64,
    most: u64,
    sum: u64,
}

impl Pool {
    fn mean(&self) -> u64 {
        self.sum / self.threads as u64
    }

    fn is_unequal(&self) -> bool {
        self.most as f64 > self.mean() as f64 * TIMES
    }
}

/// The start functions of threads, by process and thread.
type Roles = BTreeMap<(u64, u64), String>;

fn roles(evidence: &Evidence<'_>) -> Roles {
    let rows = evidence.rows(ROLES);
    rows.iter().map(|row| ((row.integer("pid"), row.integer("tid")), row.text("role").to_owned())).collect()
}

/// Returns the pools: the threads of each process but its first, by start function, without those that do little.
fn pools(rows: &[Row<'_>], work: &str, roles: &Roles) -> Vec<Pool> {
    let mut pools: BTreeMap<(u64, String), Vec<(u64, u64)>> = BTreeMap::new();
    for row in rows {
        let (pid, tid) = (row.integer("pid"), row.integer("tid"));
        // Tracers that record no processes leave the process out.
        if pid != 0 && tid != pid {
            let role = roles.get(&(pid, tid)).cloned().unwrap_or_default();
            pools.entry((pid, role)).or_default().push((row.integer(work), tid));
        }
    }
    let pool = |((pid, role), mut threads): ((u64, String), Vec<(u64, u64)>)| {
        let busiest = threads.iter().map(|(work, _)| *work).max()?;
        threads.retain(|(work, _)| *work as f64 >= busiest as f64 * MEMBER);
        let sum = threads.iter().fold(0, |sum: u64, (work, _)| sum.saturating_add(*work));
        let &(most, tid) = threads.iter().max()?;
        (threads.len() >= FEWEST).then_some(Pool { pid, role, threads: threads.len(), tid, most, sum })
    };
    pools.into_iter().filter_map(pool).collect()
}

/// Returns the table of start functions, if threads seem unequal without it.
pub(crate) fn further(evidence: &Evidence<'_>) -> Vec<Need> {
    let pools = pools(&evidence.rows(FLOW), "instructions", &Roles::new());
    if pools.iter().any(Pool::is_unequal) { vec![ROLES] } else { Vec::new() }
}

/// Names the start functions of threads, if they differ, each with its number of threads and its share of the
/// instructions.
pub(crate) fn named_roles(evidence: &Evidence<'_>) -> Option<String> {
    let rows = evidence.rows(ROLES);
    let mut roles: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.integer("pid") != row.integer("tid")) {
        let (threads, instructions) = roles.entry(row.text("role")).or_default();
        *threads += 1;
        *instructions = instructions.saturating_add(row.integer("instructions"));
    }
    let all = roles.values().fold(0, |sum: u64, (_, instructions)| sum.saturating_add(*instructions));
    let mut roles: Vec<_> = roles.into_iter().collect();
    roles.sort_by_key(|(_, (_, instructions))| std::cmp::Reverse(*instructions));
    let role = |(role, (threads, instructions)): &(&str, (u64, u64))| {
        let several = if *threads > 1 { format!(" ({} threads)", count(*threads)) } else { String::new() };
        format!("{}{several} {}", text::name(role), percent(share(*instructions, all)))
    };
    (roles.len() > 1).then(|| roles.iter().take(MOST_ROLES).map(role).collect::<Vec<_>>().join(", "))
}

/// Says how unequal the threads of the least balanced pool are.
pub(crate) fn why(evidence: &Evidence<'_>) -> String {
    let pools = pools(&evidence.rows(FLOW), "instructions", &roles(evidence));
    let times = |pool: &Pool| pool.most as f64 / pool.mean().max(1) as f64;
    let most = pools.iter().max_by(|one, other| times(one).total_cmp(&times(other)));
    let roles = named_roles(evidence)
        .map(|roles| format!("threads have different roles, and those are not compared: {roles}"));
    match (most, roles) {
        (Some(pool), _) => {
            format!("the busiest of {} threads works {:.2} times their mean", pool.threads, times(pool))
        }
        (None, Some(roles)) => roles,
        (None, None) => format!("no process started {FEWEST} threads that work"),
    }
}

/// A table, its column of work, and how work is written.
type Measure = (Need, &'static str, fn(u64) -> String);

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let roles = roles(evidence);
    let measures: [Measure; 2] = [
        (FLOW, "instructions", |number| format!("{} instructions", count(number))),
        (EVENTS, "time_ns", duration),
    ];
    for (need, work, amount) in measures {
        let tables: Vec<_> = evidence.tables(need).collect();
        for table in tables {
            let whole = if need == FLOW { figure(table, "instructions") } else { span(table) };
            let pools = pools(&Row::all(table), work, &roles);
            findings.extend(pools.iter().filter(|pool| pool.is_unequal()).filter_map(|pool| {
                let beyond = pool.most - pool.mean();
                let weight = share(beyond, whole);
                let mut numbers = Numbers::default();
                (weight > THRESHOLD).then(|| Finding {
                    rule: RULE.name,
                    weight,
                    sentence: format!(
                        "Threads have unequal shares: thread {}, one of {} that process {} started{}, does {} of their \
                         work: {}, {} times the mean (threshold {TIMES}). With equal shares it would do {} less, {} of \
                         the run.",
                        pool.tid,
                        numbers.count("threads", pool.threads as u64),
                        pool.pid,
                        if pool.role.is_empty() {
                            String::new()
                        } else {
                            format!(" with {}", numbers.function("start_function", &pool.role))
                        },
                        numbers.percent("share_of_work", share(pool.most, pool.sum)),
                        amount(pool.most),
                        numbers.ratio("ratio", pool.most as f64 / pool.mean().max(1) as f64),
                        amount(beyond),
                        numbers.percent("share", weight),
                    ),
                    command: format!("report {} --pid {}", need.0, pool.pid),
                    link: link::table(need.0, need.1),
                    numbers: {
                        numbers.count("tid", pool.tid);
                        numbers.count("pid", pool.pid);
                        numbers.count("work", pool.most);
                        numbers.count("beyond", beyond);
                        numbers.list()
                    },
                })
            }));
        }
    }
    findings
}

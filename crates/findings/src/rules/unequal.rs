//! Threads of one process that do unequal shares of its work.

use std::collections::BTreeMap;

use crate::{
    Evidence, Finding, Need, Row, Rule,
    evidence::{figure, span},
    text::{count, duration, percent, share},
};

/// Fewer threads are no pool.
const FEWEST: usize = 3;
/// A thread that does less than this share of the busiest one's work is no member of the pool.
const MEMBER: f64 = 0.1;
/// Largest acceptable ratio of a thread's work to the mean of the pool.
const TIMES: f64 = 1.5;
/// Largest acceptable share of the run that this thread works beyond the mean.
const THRESHOLD: f64 = 0.05;

const FLOW: Need = ("threads", "");
const EVENTS: Need = ("cpu", "thread");

pub(crate) const RULE: Rule = Rule {
    name: "unequal-threads",
    help: "of at least 3 threads that a process started, each with over a tenth of the busiest one's work, one works over 1.5 times the mean, and that costs more than 5 % of the run",
    needs: &[FLOW, EVENTS],
    find,
};

/// A pool of threads, and what its busiest thread does.
struct Pool {
    pid: u64,
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

/// Returns the pools: the threads of each process but its first, without those that do little.
fn pools(rows: &[Row<'_>], work: &str) -> Vec<Pool> {
    let mut pools: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for row in rows {
        let (pid, tid) = (row.integer("pid"), row.integer("tid"));
        // Tracers that record no processes leave the process out.
        if pid != 0 && tid != pid {
            pools.entry(pid).or_default().push((row.integer(work), tid));
        }
    }
    let pool = |(pid, mut threads): (u64, Vec<(u64, u64)>)| {
        let busiest = threads.iter().map(|(work, _)| *work).max()?;
        threads.retain(|(work, _)| *work as f64 >= busiest as f64 * MEMBER);
        let sum = threads.iter().fold(0, |sum: u64, (work, _)| sum.saturating_add(*work));
        let &(most, tid) = threads.iter().max()?;
        (threads.len() >= FEWEST).then_some(Pool { pid, threads: threads.len(), tid, most, sum })
    };
    pools.into_iter().filter_map(pool).collect()
}

/// A table, its column of work, and how work is written.
type Measure = (Need, &'static str, fn(u64) -> String);

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let measures: [Measure; 2] = [
        (FLOW, "instructions", |number| format!("{} instructions", count(number))),
        (EVENTS, "time_ns", duration),
    ];
    for (need, work, amount) in measures {
        let tables: Vec<_> = evidence.tables(need).collect();
        for table in tables {
            let whole = if need == FLOW { figure(table, "instructions") } else { span(table) };
            let pools = pools(&Row::all(table), work);
            findings.extend(pools.iter().filter(|pool| pool.is_unequal()).filter_map(|pool| {
                let beyond = pool.most - pool.mean();
                let weight = share(beyond, whole);
                (weight > THRESHOLD).then(|| Finding {
                    rule: RULE.name,
                    weight,
                    sentence: format!(
                        "Threads have unequal shares: thread {}, one of {} that process {} started, does {} of their work: \
                         {}, {:.2} times the mean of {} (threshold {TIMES}). With equal shares it would do {} less, {} of the \
                         run (threshold {}).",
                        pool.tid,
                        count(pool.threads as u64),
                        pool.pid,
                        percent(share(pool.most, pool.sum)),
                        amount(pool.most),
                        pool.most as f64 / pool.mean().max(1) as f64,
                        amount(pool.mean()),
                        amount(beyond),
                        percent(weight),
                        percent(THRESHOLD),
                    ),
                    command: format!("report {} --pid {}", need.0, pool.pid),
                })
            }));
        }
    }
    findings
}

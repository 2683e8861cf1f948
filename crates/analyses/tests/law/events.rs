//! The law for events: any cuts in time, and any grouping of merges, give the tables of one chunk.
//!
//! The traces are synthetic: some from a scheduler that follows the rules, some in which any event may be missing.

use hodo_analyses::{
    cpu::{CpuUse, OverTime},
    critical_path::CRITICAL_PATH,
    io::{Files, Users},
    queue::Queue,
    states::{Intervals, States},
};
use hodo_clock::Nanos;
use hodo_model::{
    AnyAnalysis, Selection,
    kernel::{ALL, Kind, PrevState, Records, VOCABULARY, Words},
    pass::Pass,
};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use crate::{config, tables};

const CPUS: u32 = 3;
const THREADS: i64 = 6;

/// Numbers that determine an event: the time since the one before, the CPU, the kind, and three for its fields.
type Seed = (u8, u32, usize, i64, i64, i64);

/// The numbers of the events, and whether the scheduler follows the rules.
type Plan = (Vec<Seed>, bool);

fn plan() -> impl Strategy<Value = Plan> {
    let seed = (0u8..4, 0..CPUS, 0..VOCABULARY.len() + 24, 0..THREADS, 0..THREADS, 0i64..4);
    (prop::collection::vec(seed, 0..80), any::<bool>())
}

/// Names of system calls.
const NAMES: [&str; 11] =
    ["read", "write", "openat", "close", "dup2", "execve", "fcntl", "pipe2", "sendfile64", "futex", "msync"];

/// States of threads that leave their CPU.
const STATES: [PrevState; 4] =
    [PrevState::Runnable, PrevState::Interruptible, PrevState::Ended, PrevState::Unknown];

/// `O_CLOEXEC`.
const CLOSE_ON_EXEC: i64 = 0o2_000_000;

/// Selects a kind of event; switches and system calls are frequent, as the others depend on them.
fn words(what: usize) -> &'static Words {
    let often = [Kind::SchedSwitch, Kind::SyscallEntry, Kind::SyscallExit];
    let of = |kind: Kind| VOCABULARY.iter().find(|words| words.kind == kind).unwrap();
    VOCABULARY.get(what).unwrap_or_else(|| of(often[what % often.len()]))
}

/// The events of a plan, each in a separate batch of records.
fn events((seeds, rules): &Plan) -> Vec<Records> {
    let mut now = 10;
    let mut running = [0i64; CPUS as usize];
    let mut inside = [0u32; CPUS as usize];
    let event = |&(later, cpu, what, a, b, c): &Seed| {
        now += u64::from(later);
        let words = words(what);
        let mut records = Records::default();
        let call = &mut inside[cpu as usize];
        if !*rules || words.kind == Kind::SyscallEntry {
            *call = (a + 2 * b + 5 * c) as u32 % NAMES.len() as u32;
        }
        let ran = if *rules { running[cpu as usize] } else { b };
        let tid = u32::try_from(ran).ok().filter(|_| later % 2 == 1);
        records.push(Nanos(now), (cpu, tid), words.kind, *call);
        if words.kind == Kind::SchedSwitch {
            let on = &mut running[cpu as usize];
            let prev = if *rules { *on } else { a };
            let next = if *rules && running.contains(&b) { 0 } else { b };
            running[cpu as usize] = next;
            records.text(format!("t{prev}").as_bytes());
            records.integer(prev);
            records.integer(STATES[c as usize].number());
            records.text(format!("t{next}").as_bytes());
            records.integer(next);
            records.integer(20 + c);
            records.integer(prev % 3);
            return records;
        }
        for (place, name) in words.fields.iter().enumerate() {
            match *name {
                "comm" | "name" | "child_comm" | "diskname" | "stream" | "key" | "group" => {
                    records.text(format!("n{a}").as_bytes())
                }
                "result" => records.integer(c % 2),
                "filename" | "filename|pathname|uname" => records.text(format!("/n{b}").as_bytes()),
                "flags" | "flags|type" => records.integer(c % 2 * CLOSE_ON_EXEC),
                "cmd" => records.integer([0, 2, 1030, 1][c as usize]),
                "ret" => records.integer(b - 1),
                ALL => records.text(format!("fd = {a}").as_bytes()),
                _ => records.integer([a, b, c, a % 2, b % 2][place % 5]),
            }
        }
        records
    };
    seeds.iter().map(event).collect()
}

/// A plan, the cuts, and the order of merges.
type Case = (Plan, Vec<bool>, Vec<usize>);

fn case() -> impl Strategy<Value = Case> {
    (plan(), prop::collection::vec(prop::bool::weighted(0.3), 80), prop::collection::vec(0usize..80, 1..8))
}

fn holds(
    analysis: &dyn AnyAnalysis,
    views: &[&str],
    (plan, cuts, choices): &Case,
) -> Result<(), TestCaseError> {
    let mut events = events(plan);
    let names = NAMES.map(str::to_owned).to_vec();
    let (whole, merged) = tables::both((analysis, views), &mut events, &names, |end| cuts[end], choices);
    prop_assert_eq!(whole, merged);
    Ok(())
}

/// Checks that the tables of some views are the same for every cut, in `cases` cases.
pub(crate) fn holds_always(analysis: &dyn AnyAnalysis, views: &[&str], cases: u32) -> Result<(), String> {
    let mut runner = TestRunner::new(config(cases));
    runner.run(&case(), |case| holds(analysis, views, &case)).map_err(|error| error.to_string())
}

/// Whether a broken analysis is caught. The cases are fixed: with random ones, one run in many caught none.
pub(crate) fn is_caught(analysis: &dyn AnyAnalysis, views: &[&str]) -> bool {
    let always_the_same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config(2000), always_the_same);
    runner.run(&case(), |case| holds(analysis, views, &case)).is_err()
}

/// Whether two analyses make the same table of a selection.
pub(crate) fn are_same(
    one: &dyn AnyAnalysis,
    other: &dyn AnyAnalysis,
    selection: &Selection,
) -> Result<(), String> {
    let mut runner = TestRunner::new(config(100));
    let same = runner.run(&plan(), |plan| {
        let names = NAMES.map(str::to_owned).to_vec();
        let table = |analysis| {
            let (pass, mut events) = (Pass::new(&[analysis]), events(&plan));
            let whole = tables::fold(&pass, &mut events, &names, true);
            tables::table(&pass, &whole, &events, &names, selection)
        };
        prop_assert_eq!(table(one), table(other));
        Ok(())
    });
    same.map_err(|error| error.to_string())
}

/// Checks that tables have the same sums. `is_whole`: no switch is missing, so no thread runs twice or after its end.
fn agree(events: &mut [Records], selection: &Selection, is_whole: bool) -> Result<(), String> {
    let mut table = |analysis: &dyn AnyAnalysis, view: &str| {
        let pass = Pass::new(&[analysis]);
        let states = tables::fold(&pass, events, &[], true);
        let selection = Selection { view: view.to_owned(), ..selection.clone() };
        tables::table(&pass, &states, events, &[], &selection).remove(0)
    };
    let by_cpu = table(&CpuUse, "cpu");
    let states = table(&States, "thread");
    let intervals = table(&Intervals, "interval");
    tables::agreement(&by_cpu, &states, &table(&OverTime, "time"), &intervals, selection)?;
    if !selection.tids.is_empty() {
        return Ok(());
    }
    tables::same_waits(&table(&Queue, "cpu"), &table(&Queue, "time"), &states, &intervals)?;
    if !selection.cpus.is_empty() || !is_whole {
        return Ok(());
    }
    tables::whole_lives(&states, &intervals).map(|_| ())
}

/// The running times of threads agree in `cpu`, over time, and in `states`, and the waiting times in `queue` and `states`;
/// each CPU is busy, idle or unknown, and each thread in a state or unknown, all the time.
#[test]
fn cpu_and_states_agree() {
    let choices = [
        Selection::default(),
        Selection { cpus: vec![1], ..Selection::default() },
        Selection { tids: vec![2, 3], ..Selection::default() },
    ];
    let mut runner = TestRunner::new(config(1000));
    let run = runner.run(&plan(), |plan| {
        let mut events = events(&plan);
        for selection in &choices {
            agree(&mut events, selection, plan.1).map_err(TestCaseError::fail)?;
        }
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

/// Whatever events are missing, the pieces of a critical path follow each other from its begin to its end.
#[test]
fn pieces_of_a_critical_path_are_all_of_it() {
    let mut runner = TestRunner::new(config(2000));
    let run = runner.run(&(plan(), 1u32..THREADS as u32), |(plan, tid)| {
        let mut events = events(&plan);
        let names = NAMES.map(str::to_owned).to_vec();
        let pass = Pass::new(&[&CRITICAL_PATH.analysis]);
        let whole = tables::fold(&pass, &mut events, &names, true);
        let selection = Selection { view: "piece".to_owned(), tids: vec![tid], ..Selection::default() };
        let table = tables::table(&pass, &whole, &events, &names, &selection).remove(0);
        tables::are_seamless(&table).map_err(TestCaseError::fail)
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

/// By thread and by file the sums are the same, whatever events are missing.
#[test]
fn io_by_thread_and_by_file_agree() {
    let mut runner = TestRunner::new(config(1000));
    let run = runner.run(&plan(), |plan| {
        let mut events = events(&plan);
        // Analyses other than `Files` expect calls as entries and exits.
        events.retain(|records| records.event(0).kind != Kind::Syscall);
        let names = NAMES.map(str::to_owned).to_vec();
        let mut table = |analysis: &dyn AnyAnalysis| {
            let pass = Pass::new(&[analysis]);
            let whole = tables::fold(&pass, &mut events, &names, true);
            tables::table(&pass, &whole, &events, &names, &Selection::default()).remove(0)
        };
        tables::same_io(&table(&Users), &table(&Files)).map_err(TestCaseError::fail)
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

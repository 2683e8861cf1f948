//! Tables of the same events have the same sums.

use hodo_analyses::{
    cpu::{CpuOverTime, CpuUse},
    critical_path::CRITICAL_PATH,
    io::{FileUsers, Files},
    queue::Queue,
    states::{StateIntervals, States},
};
use hodo_model::{
    AnyAnalysis, Selection,
    kernel::{Kind, Records},
    pass::Pass,
};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::{
    sums,
    traces::{
        config,
        events::{NAMES, THREADS, events, plan},
        tables,
    },
};

/// Checks that tables have the same sums. `is_whole`: no switch is missing, so no thread runs twice or after its end.
fn agree(events: &mut [Records], selection: &Selection, is_whole: bool) -> Result<(), String> {
    let mut table = |analysis: &dyn AnyAnalysis, view: &str| {
        let pass = Pass::new(&[analysis]);
        let states = tables::fold(&pass, events, &[]);
        let selection = Selection { view: view.to_owned(), ..selection.clone() };
        tables::table(&pass, &states, events, &[], &selection).remove(0)
    };
    let by_cpu = table(&CpuUse, "cpu");
    let states = table(&States, "thread");
    let intervals = table(&StateIntervals, "interval");
    sums::agreement(&by_cpu, &states, &table(&CpuOverTime, "time"), &intervals, selection)?;
    if !selection.tids.is_empty() {
        return Ok(());
    }
    sums::same_waits(&table(&Queue, "cpu"), &table(&Queue, "time"), &states, &intervals)?;
    if !selection.cpus.is_empty() || !is_whole {
        return Ok(());
    }
    sums::whole_lives(&states, &intervals).map(|_| ())
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
            agree(&mut events, selection, plan.follows_rules).map_err(TestCaseError::fail)?;
        }
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

/// Whatever events are missing, the pieces of a critical path follow each other from its begin to its end.
#[test]
fn pieces_of_a_critical_path_have_no_gaps() {
    let mut runner = TestRunner::new(config(2000));
    let run = runner.run(&(plan(), 1u32..THREADS as u32), |(plan, tid)| {
        let mut events = events(&plan);
        let names = NAMES.map(str::to_owned).to_vec();
        let pass = Pass::new(&[&CRITICAL_PATH]);
        let whole = tables::fold(&pass, &mut events, &names);
        let selection = Selection { view: "piece".to_owned(), tids: vec![tid], ..Selection::default() };
        let table = tables::table(&pass, &whole, &events, &names, &selection).remove(0);
        sums::are_seamless(&table).map_err(TestCaseError::fail)
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
            let whole = tables::fold(&pass, &mut events, &names);
            tables::table(&pass, &whole, &events, &names, &Selection::default()).remove(0)
        };
        sums::same_io(&table(&FileUsers), &table(&Files)).map_err(TestCaseError::fail)
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

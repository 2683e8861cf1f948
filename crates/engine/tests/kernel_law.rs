//! The law for kernel events on the fixtures' traces: cutting anywhere and merging in any grouping changes no result.

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

use hodo_analyses::{
    cpu::{CpuOverTime, CpuUse},
    critical_path::CRITICAL_PATH,
    io,
    queue::Queue,
    states::{StateIntervals, States},
};
use hodo_engine::{
    Chunks, Files, Input, Needs, Options, Reading, RunnableAnalysis, Traces,
    events::{analyse, holds as holds_events},
    reports,
};
use hodo_model::{
    Analysis, AnyAnalysis, CountInterest, Edge, FinishContext, FlowInterest, Interest, Item, Parameters,
    Period, Selection, Shape, Start, Table,
    kernel::{self, Kind, Records, Threads, VOCABULARY},
};
use proptest::{prelude::*, test_runner::TestRunner};

#[path = "../../analyses/tests/law/cut.rs"]
mod cut;
#[path = "../../analyses/tests/traces/parts.rs"]
mod parts;
#[path = "../../analyses/tests/agreement/sums.rs"]
mod sums;
#[path = "../../analyses/tests/traces/tables.rs"]
mod tables;

/// Collects all events, and the names that they refer to.
struct Keeper {
    period: Period,
    events: Mutex<Vec<Records>>,
    names: Mutex<Vec<String>>,
}

/// The most fields that a kind of event has.
const FIELDS: usize = 14;

impl Analysis for Keeper {
    type Partial = ();

    fn interest(&self) -> Interest<'_> {
        const { assert!(FIELDS > kernel::field::entry::ALL) };
        let indices: &'static [usize] = Vec::leak((0..FIELDS).collect());
        // Entries and exits are separate events unless an analysis requests whole system calls.
        let all = VOCABULARY.iter().filter(|words| words.kind != Kind::Syscall);
        let all = Vec::leak(all.map(|words| (words.kind, &indices[..words.fields.len()])).collect());
        Interest::events(all).with_period(Some(&self.period))
    }

    fn begin(&self, _: &Start<'_>) {}

    fn fold(&self, (): &mut (), item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let mut records = Records::default();
        records.push(event.time, (event.cpu, None), event.kind, event.name);
        for field in 0..FIELDS {
            match (event.integer(field), event.text(field)) {
                (Some(integer), _) => records.integer(integer),
                (_, Some(text)) => records.text(text),
                _ => records.absent(),
            }
        }
        self.events.lock().unwrap().push(records);
    }

    fn merge(&self, (): (), (): (), _: &Threads) {}

    fn finish(&self, _: Vec<()>, context: &FinishContext<'_>) -> Table {
        *self.names.lock().unwrap() = context.names.to_vec();
        Table::new("", Shape::Counters, Vec::new(), Vec::new(), Vec::new())
    }
}

fn kept(fixture: &str) -> (RefCell<Vec<Records>>, Vec<String>) {
    let files = Files::default();
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    let inputs = [Input::File(input)];
    let (traces, _) = Traces::open(&files, &inputs, &Options::default(), Needs::ALL, 1, |_, _| ()).unwrap();
    let reading = Reading::new(1, Chunks::Bytes(u64::MAX));
    let edge = |text| Edge::parse(text);
    let period = Period {
        begin: edge("sched_switch where next_tid != 0"),
        end: edge("sched_switch where prev_tid != 0"),
        matched: vec![("next_tid".to_owned(), "prev_tid".to_owned())],
        group: vec!["next_comm".to_owned()],
    };
    let keeper = Keeper { period, events: Mutex::default(), names: Mutex::default() };
    analyse(&traces, &[&keeper], &Selection::default(), &reading, |_| true);
    (keeper.events.into_inner().unwrap().into(), keeper.names.into_inner().unwrap())
}

/// An analysis of events, and the views of a report that it serves.
struct ViewedAnalysis {
    name: String,
    analysis: RunnableAnalysis,
    views: Vec<&'static str>,
}

/// Returns every analysis of events once.
fn all() -> Vec<ViewedAnalysis> {
    let mut all: Vec<ViewedAnalysis> = Vec::new();
    for report in reports() {
        let (about, first) = (report.description(), all.len());
        for (&view, alone) in about.views.iter().flat_map(|view| [(view, false), (view, true)]) {
            let selection = Selection { view: view.to_owned(), ..Selection::default() };
            let analysis = report.make(&Parameters { selection, alone, ..Parameters::default() });
            let Interest { flow, counts, .. } = analysis.analysis().interest();
            if flow != FlowInterest::None || counts != CountInterest::None {
                continue;
            }
            let same = |known: &&mut ViewedAnalysis| {
                known.analysis.analysis().partial() == analysis.analysis().partial()
            };
            match all[first..].iter_mut().find(same) {
                Some(known) if known.views.contains(&view) => {}
                Some(known) => known.views.push(view),
                None => all.push(ViewedAnalysis {
                    name: format!("{} --by {view}", about.name),
                    analysis,
                    views: vec![view],
                }),
            }
        }
    }
    all
}

fn holds(
    ViewedAnalysis { name, analysis, views }: &ViewedAnalysis,
    (events, names): &(RefCell<Vec<Records>>, Vec<String>),
) {
    // Uses a part of the trace, so that many plans take no longer than a few plans for all of it.
    let plan = (
        any::<prop::sample::Index>(),
        1usize..400,
        0.001f64..0.3,
        any::<u64>(),
        prop::collection::vec(0usize..400, 1..8),
    );
    let mut runner = TestRunner::new(ProptestConfig::with_cases(100));
    let run = runner.run(&plan, |(start, length, share, seed, choices)| {
        let mut events = events.borrow_mut();
        let start = start.index(events.len());
        let end = (start + length).min(events.len());
        // Fibonacci hashing: a pseudo-random number from 0 to 1 for each position, of the hash's upper 53 bits.
        let cut = |position: usize| {
            let hash = (seed ^ position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (hash >> 11) as f64 / (1u64 << 53) as f64 <= share
        };
        let (whole, merged) =
            cut::both((analysis.analysis(), views), &mut events[start..end], names, cut, &choices);
        prop_assert_eq!(whole, merged);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn holds_for_all(fixture: &str) {
    let kept = kept(fixture);
    let count = kept.0.borrow().len();
    assert!(count > 500, "{count}");
    all().iter().for_each(|analysis| holds(analysis, &kept));
}

#[test]
fn cutting_changes_nothing_of_lttng_2_13() {
    holds_for_all("ctf/lttng2.13-kernel");
}

#[test]
fn cutting_changes_nothing_of_lttng_2_16() {
    holds_for_all("ctf/lttng2.16-kernel-ctf2");
}

#[test]
fn cutting_changes_nothing_of_ftrace() {
    holds_for_all("ftrace/small-7.dat");
}

#[test]
fn cutting_changes_nothing_of_perf() {
    holds_for_all("perf/events.data");
}

/// `io::Files` requests entries and exits, so the other analyses get these in place of whole system calls.
#[test]
fn calls_as_a_whole_change_nothing() {
    let requests_calls = |analysis: &dyn AnyAnalysis| {
        let base = analysis.interest().base.map_or(&[][..], |base| base.interest().events);
        let events = analysis.interest().events.iter().chain(base);
        events.clone().any(|(kind, _)| *kind == Kind::Syscall)
            || analysis.interest().reporting.contains(&Kind::Syscall)
    };
    let all = all();
    let joined: Vec<_> = all.iter().filter(|known| requests_calls(known.analysis.analysis())).collect();
    assert!(joined.len() > 5, "{}", joined.len());
    for fixture in
        ["ctf/lttng2.13-kernel", "ctf/lttng2.16-kernel-ctf2", "ftrace/small-7.dat", "perf/events.data"]
    {
        let files = Files::default();
        let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
        let inputs = [Input::File(input)];
        let (traces, _) =
            Traces::open(&files, &inputs, &Options::default(), Needs::ALL, 1, |_, _| ()).unwrap();
        for (known, bytes) in joined.iter().flat_map(|known| [(known, 1 << 10), (known, 1 << 30)]) {
            let reading = Reading::new(2, Chunks::Bytes(bytes));
            for view in &known.views {
                let selection = Selection { view: (*view).to_owned(), ..Selection::default() };
                let first = |analyses: &[&dyn AnyAnalysis]| {
                    analyse(&traces, analyses, &selection, &reading, |_| true).swap_remove(0)
                };
                let analysis = known.analysis.analysis();
                assert_eq!(first(&[analysis]), first(&[analysis, &io::Files]), "{fixture} {view}");
            }
        }
    }
}

/// Returns the fixtures that contain software events.
fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let inside = |name: &str| fs::read_dir(folder.join(name)).unwrap().map(|entry| entry.unwrap().path());
    let files = Files::default();
    let mut found: Vec<PathBuf> = ["ctf", "ftrace", "perf"].into_iter().flat_map(inside).collect();
    found.retain(|path| holds_events(&files, path).events);
    found.sort();
    found
}

#[test]
fn tables_of_one_trace_agree() {
    let (mut busy, mut whole) = (0, 0);
    for fixture in fixtures() {
        let files = Files::default();
        let inputs = [Input::File(fixture.clone())];
        let Ok((traces, _)) = Traces::open(&files, &inputs, &Options::default(), Needs::ALL, 1, |_, _| ())
        else {
            continue;
        };
        let reading = Reading::new(2, Chunks::Bytes(1 << 12));
        let table = |analysis: &dyn AnyAnalysis, view: &str| {
            let selection = Selection { view: view.to_owned(), ..Selection::default() };
            analyse(&traces, &[analysis], &selection, &reading, |_| true).swap_remove(0)
        };
        let by_cpu = table(&CpuUse, "cpu");
        let (states, intervals) = (table(&States, "thread"), table(&StateIntervals, "interval"));
        let none = Selection::default();
        let agreed = sums::agreement(&by_cpu, &states, &table(&CpuOverTime, "time"), &intervals, &none);
        agreed.unwrap_or_else(|reason| panic!("{}: {reason}", fixture.display()));
        busy += by_cpu.rows().len();
        let waits = sums::same_waits(&table(&Queue, "cpu"), &table(&Queue, "time"), &states, &intervals);
        waits.unwrap_or_else(|reason| panic!("{}: {reason}", fixture.display()));
        let lives = sums::whole_lives(&states, &intervals);
        whole += lives.unwrap_or_else(|reason| panic!("{}: {reason}", fixture.display()));
        let io = sums::same_io(&table(&io::FileUsers, "thread"), &table(&io::Files, "file"));
        io.unwrap_or_else(|reason| panic!("{}: {reason}", fixture.display()));
        let path = sums::are_seamless(&table(&CRITICAL_PATH, "piece"));
        path.unwrap_or_else(|reason| panic!("{}: {reason}", fixture.display()));
    }
    assert!(busy > 8, "{busy} CPUs");
    assert!(whole > 100, "{whole} threads");
}

//! The law on real recordings: any chunks, cut into any portions and merged as bytes in any grouping, give the tables
//! of one run. Every report and every fixture is tested, without further lines.

use std::{fs, path::PathBuf, thread};

use hodo_engine::{
    AnyReport, Chunks, Experiment, FileSearchPaths, Input, Needs, Options, Part, Portion, Request, reports,
};
use hodo_model::{Edge, FlowInterest, Parameters, Period, Selection, Table};
use proptest::{prelude::*, sample::Index, test_runner::TestRunner};

/// Number of random plans of each fixture, others each time.
const PLANS: u32 = 80;

#[derive(Clone, Debug)]
struct Plan {
    /// The size of chunks in bytes.
    chunks: u64,
    /// The number of portions.
    portions: u32,
    /// Which neighbours are merged next.
    choices: Vec<Index>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let parts = (512u64..1 << 17, 1u32..6, prop::collection::vec(any::<Index>(), 5));
    parts.prop_map(|(chunks, portions, choices)| Plan { chunks, portions, choices })
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// All recordings among the fixtures.
fn fixtures() -> Vec<PathBuf> {
    let is_recording = |path: &PathBuf| {
        path.is_dir() && path.file_name() != Some("symfs".as_ref())
            || path.extension().is_some_and(|extension| extension == "dat" || extension == "data")
    };
    let kinds = ["ctf", "ftrace", "perf"].map(|kind| fs::read_dir(folder().join(kind)).unwrap());
    let mut all: Vec<_> = kinds.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    all.retain(is_recording);
    all.sort();
    all
}

/// Requests that together make every report of an experiment: of control flow, of events, and those of a period.
fn requests(experiment: &Experiment) -> Vec<Request> {
    let takes_period = |report: &&'static AnyReport| report.description().takes.period;
    let is_of_flow = |report: &&'static AnyReport| {
        report.make(&Parameters::default()).analysis().interest().flow != FlowInterest::None
    };
    let all = reports().iter();
    let (of_period, others): (Vec<_>, Vec<_>) = all.partition(takes_period);
    let (flow, events): (Vec<_>, Vec<_>) = others.into_iter().partition(is_of_flow);
    let period = Period {
        begin: Edge::parse("sched_switch where next_tid != 0"),
        end: Edge::parse("sched_switch where prev_tid != 0"),
        matched: vec![("next_tid".to_owned(), "prev_tid".to_owned())],
        group: vec!["next_comm".to_owned()],
    };
    let with_period = Parameters { period: Some(period), ..Parameters::default() };
    let requests = [(flow, Parameters::default()), (events, Parameters::default()), (of_period, with_period)]
        .map(|(reports, parameters)| Request::of(reports, parameters));
    requests.into_iter().filter(|request| experiment.run(request, &mut |_| true).is_ok()).collect()
}

/// Folds a request by a plan, and merges the parts.
fn follow(experiment: &Experiment, request: &Request, plan: &Plan) -> Vec<Table> {
    let request = Request { chunks: Chunks::Bytes(plan.chunks), ..request.clone() };
    let fold = |portion| experiment.fold(&request, &[], portion, &mut |_| true).unwrap().to_bytes();
    let mut parts: Vec<Vec<u8>> = Portion::all(plan.portions).map(fold).collect();
    let unpack = |bytes: &Vec<u8>| Part::from_bytes(bytes).unwrap();
    for choice in &plan.choices {
        if parts.len() > 1 {
            let index = choice.index(parts.len() - 1);
            let merged = Part::merge(parts[index..=index + 1].iter().map(unpack).collect()).unwrap();
            parts.splice(index..=index + 1, [merged.to_bytes()]);
        }
    }
    unpack(&parts[0]).tables(&Selection::default(), Some(experiment), 1).unwrap().tables
}

/// Follows random plans for a fixture, and returns the names of its tables.
fn check_fixture(fixture: PathBuf) -> Vec<&'static str> {
    let places = FileSearchPaths { symfs: Some(folder().join("perf/symfs")), ..FileSearchPaths::default() };
    let options = Options { places, ..Options::default() };
    let inputs = vec![Input::File(fixture.clone())];
    let experiment = Experiment::open(inputs, &options, Needs::ALL, 1, |_, _| ()).unwrap();
    let mut made = Vec::new();
    for request in requests(&experiment) {
        let whole = experiment.run(&request, &mut |_| true).unwrap().tables;
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(PLANS) };
        let run = TestRunner::new(config).run(&plan(), |plan| {
            let merged = follow(&experiment, &request, &plan);
            prop_assert_eq!(merged.len(), whole.len());
            for (merged, whole) in merged.iter().zip(&whole) {
                prop_assert_eq!(merged, whole);
            }
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{}: {error}", fixture.display()));
        made.extend(request.reports.iter().map(|report| report.description().name));
    }
    assert!(!made.is_empty(), "{}", fixture.display());
    made
}

#[test]
fn any_plan_gives_the_tables_of_one_run() {
    let threads: Vec<_> =
        fixtures().into_iter().map(|fixture| thread::spawn(|| check_fixture(fixture))).collect();
    let made: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let missing = reports().iter().map(|report| report.description().name).find(|name| !made.contains(name));
    assert_eq!(missing, None, "no fixture gives the table of this report");
}

//! Forged parts: the checksum is right, the content is not what was folded. They are rejected or give some table, and
//! never cause a panic.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use hodo_engine::{
    AnyReport, Chunks, Experiment, FileSearchPaths, Input, Needs, Options, Part, Portion, Request, reports,
};
use hodo_model::{Edge, Parameters, Period, Selection};
use proptest::prelude::*;

/// Size of the header of a part file, including the checksum.
const HEADER: usize = "hodo part\n".len() + CHECKSUM;
/// Size of the checksum, which ends the header.
const CHECKSUM: usize = size_of::<u32>();

fn experiment(input: &str) -> Experiment {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let places = FileSearchPaths { symfs: Some(fixtures.join("perf/symfs")), ..FileSearchPaths::default() };
    let options = Options { places, ..Options::default() };
    Experiment::open(vec![Input::File(fixtures.join(input))], &options, Needs::ALL, 1, |_, _| ()).unwrap()
}

fn request(reports: Vec<&'static AnyReport>) -> Request {
    let edge = |text| Edge::parse(text);
    let period = reports.iter().any(|report| report.description().takes.period).then(|| Period {
        begin: edge("sched_switch where next_tid != 0"),
        end: edge("sched_switch where prev_tid != 0"),
        matched: vec![("next_tid".to_owned(), "prev_tid".to_owned())],
        group: vec!["next_comm".to_owned()],
    });
    let chunks = Chunks::Bytes(1 << 14);
    Request { chunks, ..Request::of(reports, Parameters { period, ..Parameters::default() }) }
}

/// Returns the index of the first byte in which the contents of two parts of a whole differ. All before it describes the
/// whole, but for the number of the part.
fn first_difference([one, other]: &[Vec<u8>; 2]) -> usize {
    let pairs = (HEADER..).zip(one[HEADER..].iter().zip(&other[HEADER..]));
    let mut differences = pairs.filter(|(_, (one, other))| one != other).map(|(index, _)| index);
    // The first difference is the number of the part.
    let number = differences.next().unwrap_or(HEADER);
    differences.next().unwrap_or(HEADER).max(number)
}

/// Changes some bytes of a part from `from` on, and updates the checksum.
fn forged(part: &[u8], from: usize, edits: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut forged = part.to_vec();
    for (position, byte) in edits {
        forged[from + position.index(part.len() - from)] = *byte;
    }
    let sum = crc32fast::hash(&forged[HEADER..]).to_le_bytes();
    forged[HEADER - CHECKSUM..HEADER].copy_from_slice(&sum);
    forged
}

/// Returns how many forged parts were valid enough to give tables.
fn holds(input: &str, reports: Vec<&'static AnyReport>) -> u32 {
    let (experiment, request) = (experiment(input), request(reports.clone()));
    let parts = ["1/2", "2/2"].map(|portion| {
        let portion = Portion::parse(portion).unwrap();
        experiment.fold(&request, &[], portion, &mut |_| true).unwrap().to_bytes()
    });
    let byte = prop_oneof![any::<u8>(), Just(0), Just(1), Just(0x7f), Just(0x80), Just(0xff)];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), byte), 1..6);
    let cases = (any::<bool>(), any::<prop::sample::Index>(), edits);
    let views = reports.iter().flat_map(|report| report.description().views);
    let views: Vec<&str> = views.copied().chain([""]).collect();
    let (from, accepted) = (first_difference(&parts), Cell::new(0));
    // Parts of control flow contain more internal references, and are small.
    let of_flow = reports.iter().any(is_of_flow);
    let number = if of_flow { 400 } else { 100 };
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(number) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let run = runner.run(&cases, |(which, view, edits)| {
        let bytes = [0, 1].map(|part| match part == usize::from(which) {
            true => forged(&parts[part], from, &edits),
            false => parts[part].clone(),
        });
        let parts: Result<Vec<Part>, _> = bytes.iter().map(|bytes| Part::from_bytes(bytes)).collect();
        let selection = Selection { view: views[view.index(views.len())].to_owned(), ..Selection::default() };
        let merged = || {
            let whole = parts.and_then(Part::merge);
            let tables = whole.and_then(|whole| whole.tables(&selection, Some(&experiment), 1));
            accepted.set(accepted.get() + u32::from(tables.is_ok()));
        };
        let wraps = |panic: &Box<dyn Any + Send>| {
            let why = panic.downcast_ref::<&str>();
            !of_flow && why.is_some_and(|why| why.starts_with("attempt to "))
        };
        // Sums of forged event counts wrap in release builds.
        catch_unwind(AssertUnwindSafe(merged)).or_else(|panic| match wraps(&panic) {
            true => Ok(()),
            false => Err(TestCaseError::fail("a panic")),
        })
    });
    let names: Vec<&str> = reports.iter().map(|report| report.description().name).collect();
    run.unwrap_or_else(|error| panic!("{names:?}: {error}"));
    accepted.get()
}

/// Returns whether a report is about control flow.
fn is_of_flow(report: &&'static AnyReport) -> bool {
    let run = report.make(&Parameters::default());
    run.analysis().interest().flow != hodo_model::FlowInterest::None
}

/// Returns the reports about control flow, and those about events.
fn by_kind() -> [Vec<&'static AnyReport>; 2] {
    let (flow, events): (Vec<_>, Vec<_>) = reports().iter().partition(is_of_flow);
    [flow, events]
}

#[test]
fn forged_parts_of_each_report_never_panic() {
    let [flow, events] = by_kind();
    for input in ["ctf/lttng2.13-kernel", "ftrace/small-7.dat"] {
        let accepted: u32 = events.iter().map(|report| holds(input, vec![*report])).sum();
        assert!(accepted > 20, "{input}: {accepted}");
    }
    let accepted: u32 = flow.iter().map(|report| holds("perf/tiny.data", vec![*report])).sum();
    assert!(accepted > 0, "control flow: {accepted}");
}

#[test]
fn forged_parts_of_all_reports_about_events_never_panic() {
    let [_, mut events] = by_kind();
    events.retain(|report| !report.description().takes.period);
    assert!(holds("ctf/lttng2.13-kernel", events) > 0);
}

//! Parts that somebody forged: their sum is right, their content is not what was folded. They are refused, or make
//! some table; nothing else happens.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use hodo_analyses::kernel_analyses;
use hodo_engine::{
    Files,
    events::{COUNT, Chunks, EventReading, EventTraces, Part, Portion, fold_part, merge_parts},
};
use hodo_trace::{AnyEventAnalysis, Choice};
use proptest::prelude::*;

type Named = (&'static str, Option<&'static dyn AnyEventAnalysis>);

/// What a file with a part begins with, and the length of its sum.
const BEFORE: usize = "hodo part\n".len() + 4;

/// The first of two parts of a trace, or the second.
fn part(input: &str, analyses: &[Named], portion: &str) -> Vec<u8> {
    let files = Files::default();
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(input);
    let traces = EventTraces::open(&files, &input, 1, |_, _| ()).unwrap();
    let reading = EventReading { threads: 1, chunks: Chunks::Bytes(1 << 14), from: None, to: None };
    fold_part(&traces, analyses, Portion::parse(portion).unwrap(), &reading, |_| true).to_bytes()
}

/// Where two parts of a whole begin to differ, but for their numbers: what is before says what they are parts of.
fn differ_from([one, other]: &[Vec<u8>; 2]) -> usize {
    let mut pairs = (BEFORE..).zip(one[BEFORE..].iter().zip(&other[BEFORE..]));
    let mut differs = || pairs.find(|(_, (one, other))| one != other).map_or(BEFORE, |(place, _)| place);
    differs().max(differs())
}

/// A part with some bytes changed from a place on, and the sum that it then has.
fn forged(part: &[u8], from: usize, edits: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut forged = part.to_vec();
    for (place, byte) in edits {
        forged[from + place.index(part.len() - from)] = *byte;
    }
    let sum = crc32fast::hash(&forged[BEFORE..]).to_le_bytes();
    forged[BEFORE - 4..BEFORE].copy_from_slice(&sum);
    forged
}

fn holds(input: &str, analyses: &[Named]) {
    let parts = ["1/2", "2/2"].map(|portion| part(input, analyses, portion));
    let byte = prop_oneof![any::<u8>(), Just(0), Just(1), Just(0x7f), Just(0x80), Just(0xff)];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), byte), 1..6);
    let cases = (any::<bool>(), any::<prop::sample::Index>(), edits);
    let bare: Vec<_> = analyses.iter().filter_map(|(_, analysis)| *analysis).collect();
    let views: Vec<&str> = bare.iter().flat_map(|analysis| analysis.views()).copied().chain([""]).collect();
    let (from, taken) = (differ_from(&parts), Cell::new(0));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(100));
    let run = runner.run(&cases, |(which, view, edits)| {
        let bytes = [0, 1].map(|part| match part == usize::from(which) {
            true => forged(&parts[part], from, &edits),
            false => parts[part].clone(),
        });
        let parts: Result<Vec<Part>, _> = bytes.iter().map(|bytes| Part::from_bytes(bytes)).collect();
        let choice = Choice { view: views[view.index(views.len())].to_owned(), ..Choice::default() };
        let merged = || {
            let tables = parts.map(|parts| merge_parts(parts, &bare, &choice));
            taken.set(taken.get() + u32::from(matches!(tables, Ok(Ok(_)))));
        };
        let wraps = |panic: &Box<dyn Any + Send>| {
            panic.downcast_ref::<&str>().is_some_and(|why| why.starts_with("attempt to "))
        };
        // Sums of forged numbers wrap in what people run.
        catch_unwind(AssertUnwindSafe(merged)).or_else(|panic| match wraps(&panic) {
            true => Ok(()),
            false => Err(TestCaseError::fail("a panic")),
        })
    });
    assert!(taken.get() > 0, "none was so near to a right one that it was taken");
    run.unwrap_or_else(|error| panic!("{:?}: {error}", analyses.iter().map(|of| of.0).collect::<Vec<_>>()));
}

#[test]
fn of_each_analysis() {
    for input in ["ctf/lttng2.13-kernel", "ftrace/small-7.dat"] {
        let all = kernel_analyses("all").map(|(entry, analysis)| (entry.name, Some(analysis)));
        all.chain([(COUNT, None)]).for_each(|analysis| holds(input, &[analysis]));
    }
}

#[test]
fn of_all_analyses() {
    let all: Vec<Named> =
        kernel_analyses("all").map(|(entry, analysis)| (entry.name, Some(analysis))).collect();
    holds("ctf/lttng2.13-kernel", &all);
}

//! Tables of the same control flow agree, and forged partials do no harm.

use hodo_analyses::{
    blocks::{self, Blocks},
    calls::{ChunkCalls, Moment, OpenCalls, Spare},
    profile::{Functions, Profile, ProfileReport},
};
use hodo_clock::Nanos;
use hodo_model::{
    AnyAnalysis, Arrival, End, Every, FlowEvent, FunctionId, FunctionRun, Place, Root, Selection, Table,
    Value,
};
use proptest::prelude::*;

use crate::traces::flow::{
    Case, Numbered, Takes, case, code, emit_function_runs, finish, finish_selected, fold, merge_all, parts,
    table_of_function_runs, thread,
};

impl Takes for ChunkCalls {
    fn function_runs(&mut self, functions: &Numbered, function_runs: &[FunctionRun], until: Option<Nanos>) {
        self.fold_function_runs(functions, function_runs, until);
    }

    fn event(&mut self, event: FlowEvent<'_>) {
        self.fold(&event);
    }
}

/// The calls of a thread whose events `emit` reports.
fn moments(begins: bool, emit: impl FnOnce(&mut ChunkCalls)) -> Vec<Moment> {
    let (mut part, mut calls, mut moments) =
        (ChunkCalls::unknown(begins, Spare::default()), OpenCalls::default(), Vec::new());
    emit(&mut part);
    calls.follow(part, &mut |moment| moments.push(moment));
    calls.end(&mut |moment| moments.push(moment));
    moments
}

/// The value in a table's summary.
fn figure(table: &Table, name: &str) -> Option<Value> {
    table.figure(name).cloned()
}

/// A change of a part.
#[derive(Clone, Debug)]
struct Forgery {
    part: prop::sample::Index,
    /// The positions of the changed bytes, and their values.
    edits: Vec<(prop::sample::Index, u8)>,
}

fn forgery() -> impl Strategy<Value = Forgery> {
    let byte = prop_oneof![any::<u8>(), 0u8..9, Just(0x7f), Just(0xff)];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), byte), 1..4);
    (any::<prop::sample::Index>(), edits).prop_map(|(part, edits)| Forgery { part, edits })
}

/// The table of a thread with a forged part, unless the forgery is detected.
fn finish_forged(
    analysis: &dyn AnyAnalysis,
    Case { thread, cuts, choices }: &Case,
    Forgery { part, edits }: &Forgery,
) -> Option<Table> {
    let mut parts = parts(analysis, thread, cuts);
    let index = part.index(parts.len());
    let mut bytes = analysis.pack(&parts.remove(index));
    let len = bytes.len();
    edits.iter().for_each(|(position, byte)| bytes[position.index(len)] = *byte);
    parts.insert(index, analysis.unpack(&bytes)?);
    Some(finish(analysis, vec![merge_all(analysis, parts, choices)]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]
    #[test]
    fn forged_partials_are_refused_or_make_a_table(case in case(), forgery in forgery()) {
        finish_forged(&Functions, &case, &forgery);
        for (report, every) in [(ProfileReport::Tree, None), (ProfileReport::Functions, Some(Every::Nanoseconds(7)))] {
            finish_forged(&Profile { report, every }, &case, &forgery);
        }
        for report in [blocks::BlocksReport::Blocks, blocks::BlocksReport::Lines] {
            finish_forged(&Blocks { report }, &case, &forgery);
        }
    }

    #[test]
    fn calls_are_the_same_from_function_runs(thread in thread(), begins: bool) {
        let by_runs = moments(begins, |part| thread.iter().flatten().for_each(|event| part.fold(event)));
        for timed in [false, true] {
            prop_assert_eq!(&by_runs, &moments(begins, |part| emit_function_runs(part, &thread, timed)));
        }
    }

    #[test]
    fn functions_need_no_tree(thread in thread()) {
        let tree = Profile { report: ProfileReport::Functions, every: None };
        let sums = Functions;
        let by_tree = finish(&tree, vec![fold(&tree, 0, &thread)]);
        prop_assert_eq!(&by_tree, &finish(&sums, vec![fold(&sums, 0, &thread)]));
        for timed in [false, true] {
            prop_assert_eq!(&by_tree, &table_of_function_runs(&sums, &thread, timed));
            prop_assert_eq!(&by_tree, &table_of_function_runs(&tree, &thread, timed));
        }
    }

    /// In a segment that begins without a timestamp, the time before the first one is unknown, and all time after it
    /// counts.
    #[test]
    fn time_counts_from_the_first_timestamp(before in 0u64..9, after in 1u64..9, later in 0u64..9) {
        let at = Arrival { address: 1, function: FunctionId { module: 1, index: 0 }, place: Place::Entry };
        let code = code(1, 1, End::Next, 2);
        let run = FlowEvent::Run { at, instructions: 1, code };
        let time = |nanos| FlowEvent::Time(Nanos(nanos));
        let runs = |count: u64| (0..count).map(|_| run);
        let segment: Vec<_> = [FlowEvent::Begin(None)].into_iter().chain(runs(before)).chain([time(100)])
            .chain(runs(after)).chain([time(100 + later), FlowEvent::End]).collect();
        let sums = Functions;
        let table = finish(&sums, vec![fold(&sums, 0, &[segment])]);
        prop_assert_eq!(figure(&table, "time_ns"), Some(Value::from(later)));
    }

    /// However the trace is cut, the paths of a function's executions are the same. Together with the executions whose begin
    /// is unknown, they contain all instructions that the function executed.
    #[test]
    fn paths_of_a_function_have_all_its_instructions(Case { thread, cuts, choices } in case(), index in 0u32..4, view in 0usize..2) {
        let paths = Profile { report: ProfileReport::Paths, every: None };
        let (view, root) = (["instructions", "time"][view].to_owned(), Some(Root::Function(format!("f{index}"))));
        let selection = Selection { view, root, ..Selection::default() };
        let merged = merge_all(&paths, parts(&paths, &thread, &cuts), &choices);
        let table = finish_selected(&paths, vec![merged], &selection);
        prop_assert_eq!(&table, &finish_selected(&paths, vec![fold(&paths, 0, &thread)], &selection));
        let functions = finish(&Functions, vec![fold(&Functions, 0, &thread)]);
        let of_function = functions.rows().into_iter().find(|row| row[7] == Value::from(format!("f{index}")));
        let total = of_function.map_or(Value::from(0u64), |row| row[2].clone());
        let sum = ["instructions", "cut_instructions"].map(|name| match table.figure(name) {
            Some(Value::Integer(count)) => *count,
            other => panic!("{name}: {other:?}"),
        });
        prop_assert_eq!(total, Value::from(sum[0] + sum[1]));
    }

    #[test]
    fn blocks_and_functions_agree(thread in thread()) {
        let profile = Profile { report: ProfileReport::Functions, every: None };
        let by_function = finish(&profile, vec![fold(&profile, 0, &thread)]);
        let blocks = Blocks { report: blocks::BlocksReport::Lines };
        let by_line = finish(&blocks, vec![fold(&blocks, 0, &thread)]);
        prop_assert_eq!(figure(&by_function, "instructions"), figure(&by_line, "instructions"));
        prop_assert_eq!(figure(&by_function, "time_ns"), figure(&by_line, "time_ns"));
    }
}

//! The law for control flow: any chunks, merged in any grouping, give the table of one chunk.

use hodo_analyses::{
    blocks::{self, Blocks},
    calls::{Calls, Moment, Part, Spare},
    profile::{Functions, Profile, Report},
};
use hodo_clock::Nanos;
use hodo_model::{
    Analysis, AnyAnalysis, AnyPartial, Arrival, Code, End, Every, FastFlow, FinishContext, FlowEvent,
    FlowInterest, FlowThread, FunctionId, FunctionRun, Item, Names, Numbering, Place, Root, Selection,
    SourceLine, Sources, Start, Table, Transfer, Value, Virtual, kernel::Threads,
};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use crate::config;

struct Numbers;

impl Names for Numbers {
    fn names(&self, function: FunctionId) -> (String, String) {
        (format!("f{}", function.index), "m".to_owned())
    }
}

impl Sources for Numbers {
    fn address(&self, _: u32, offset: u64) -> u64 {
        offset
    }

    fn line(&self, _: u32, address: u64) -> Option<SourceLine<'_>> {
        let line = (address / 3) as u32;
        (line > 0).then_some(SourceLine { file: "f", line, begins: address.is_multiple_of(3) })
    }

    fn inlined(&self, _: u32, addresses: &[u64]) -> Vec<Option<String>> {
        vec![None; addresses.len()]
    }
}

/// Instructions of one byte each.
const LENGTHS: [u8; 9] = [1; 9];
/// `nop`, `push`, `pop`, `clc`, `stc`, `cwde`, `cdq`, `cli`, `sti`.
const BYTES: [u8; 9] = [0x90, 0x50, 0x58, 0xf8, 0xf9, 0x98, 0x99, 0xfa, 0xfb];

fn code(offset: u64, instructions: usize, end: End, target: u64) -> Code<'static> {
    let (lengths, bytes) = (&LENGTHS[..instructions], &BYTES[..instructions]);
    Code { offset, since: 0, lengths, bytes, bits: 64, end, target }
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let place = prop_oneof![2 => Just(Place::Entry), 4 => Just(Place::Middle), 1 => Just(Place::Unknown)];
    (0u32..4, 0u64..3, place).prop_map(|(index, address, place)| Arrival {
        address: u64::from(index) * 10 + address,
        function: FunctionId { module: 1, index },
        place,
    })
}

fn change() -> impl Strategy<Value = Virtual> {
    prop_oneof![
        2 => Just(Virtual::Guest),
        2 => Just(Virtual::Host),
        1 => (0u64..2).prop_map(Virtual::Vmcs),
        1 => (0u64..3).prop_map(|reason| Virtual::Exit { reason }),
    ]
}

fn run(at: Arrival, instructions: usize, end: End) -> FlowEvent<'static> {
    let code = code(at.address, instructions, end, 0);
    FlowEvent::Run { at, instructions: instructions as u64, code }
}

/// The events of one block, or an event between blocks.
fn step() -> impl Strategy<Value = Vec<FlowEvent<'static>>> {
    let end = prop_oneof![
        4 => Just((End::Next, None)),
        4 => Just((End::Conditional, None)),
        1 => Just((End::Jump, None)),
        4 => (0u64..4, 0u64..3).prop_map(|(f, a)| (End::Call, Some(FlowEvent::Call { return_address: f * 10 + a }))),
        4 => Just((End::Return, Some(FlowEvent::Return))),
        2 => Just((End::Indirect, Some(FlowEvent::IndirectJump))),
    ];
    let block = (arrival(), 1usize..9, end, 0u64..40).prop_map(|(at, instructions, (end, then), target)| {
        let code = code(at.address, instructions, end, target);
        let instructions = instructions as u64;
        [FlowEvent::Run { at, instructions, code }].into_iter().chain(then).collect()
    });
    // A leaf call, and the run after its return, which may be in another function than the caller.
    let leaf = (arrival(), arrival(), arrival(), 1usize..9).prop_map(|(at, called, back, instructions)| {
        let run = |at, end| run(at, instructions, end);
        let call = FlowEvent::Call { return_address: back.address };
        vec![run(at, End::Call), call, run(called, End::Return), FlowEvent::Return, run(back, End::Next)]
    });
    // A retpoline: it calls an instruction of its own, and returns to another function.
    let retpoline = (arrival(), arrival()).prop_map(|(at, to)| {
        let call = FlowEvent::Call { return_address: at.address + 1 };
        let inner = Arrival { address: at.address + 2, place: Place::Middle, ..at };
        let run = |at, end| run(at, 1, end);
        let to = Arrival { place: Place::Entry, ..to };
        vec![run(at, End::Call), call, run(inner, End::Return), FlowEvent::Return, run(to, End::Next)]
    });
    // A branch whose arrival an interrupt prevents: it arrives once the handler is over.
    let branch = prop_oneof![
        2 => Just((End::Return, FlowEvent::Return)),
        1 => (0u64..4, 0u64..3).prop_map(|(f, a)| (End::Call, FlowEvent::Call { return_address: f * 10 + a })),
    ];
    let prevented = (arrival(), branch, arrival(), arrival()).prop_map(|(at, (end, branch), handler, to)| {
        let run = |at, end| run(at, 1, end);
        let interrupt = FlowEvent::Interrupt { from: to.address };
        let end_of_handler = [run(handler, End::Indirect), FlowEvent::InterruptReturn, run(to, End::Next)];
        [run(at, end), branch, interrupt].into_iter().chain(end_of_handler).collect()
    });
    // Code beyond the border of a filter's range, of which no instruction is recorded: it is returned to or called, and
    // calls a function of the range.
    let border =
        (any::<bool>(), any::<bool>(), arrival(), 1usize..9).prop_map(|(leaves, calls, at, length)| {
            let beyond =
                Arrival { address: 1, function: FunctionId { module: 0, index: 9 }, place: Place::Middle };
            let leaves = [run(beyond, 0, End::Next)].into_iter().filter(|_| leaves);
            let called = Arrival { place: Place::Entry, ..at };
            let calls = [run(beyond, 0, End::Next), FlowEvent::Call { return_address: 1 }]
                .into_iter()
                .filter(|_| calls);
            let crosses = [FlowEvent::Leave { next: None }, FlowEvent::Enter];
            leaves.chain(crosses).chain(calls).chain([run(called, length, End::Next)]).collect()
        });
    prop_oneof![
        12 => block,
        2 => border,
        2 => leaf,
        2 => retpoline,
        2 => prevented,
        1 => prop::option::of(0u64..40).prop_map(|next| vec![FlowEvent::Leave { next }]),
        1 => Just(vec![FlowEvent::Enter]),
        2 => (0u64..4, 0u64..3).prop_map(|(f, a)| vec![FlowEvent::Interrupt { from: f * 10 + a }]),
        2 => Just(vec![FlowEvent::InterruptReturn]),
        1 => Just(vec![FlowEvent::Gap]),
        1 => any::<bool>().prop_map(|on| vec![FlowEvent::Interrupts(on)]),
        2 => change().prop_map(|change| vec![FlowEvent::Virtual(change)]),
        1 => (1u64..9).prop_map(|instructions| vec![FlowEvent::Skip { instructions }]),
    ]
}

/// Segments end with a timestamp and mostly begin with one, as a PSB+ dates both of its neighbours.
fn thread() -> impl Strategy<Value = Vec<Vec<FlowEvent<'static>>>> {
    let steps = prop::collection::vec((step(), 0u64..5, any::<bool>()), 0..30);
    let segment = (steps, 0u64..5, prop::bool::weighted(0.9));
    prop::collection::vec(segment, 1..8).prop_map(|segments| {
        let mut now = 0;
        let mut result = Vec::new();
        for (steps, tail, begins) in segments {
            let mut cycles = tail;
            let mut segment = vec![FlowEvent::Begin(begins.then_some(Nanos(now)))];
            for (step, later, emit) in steps {
                segment.extend(step);
                if emit {
                    now += later;
                    segment.push(FlowEvent::Time(Nanos(now)));
                }
                cycles += 3 * later;
                if later == 1 {
                    segment.push(FlowEvent::Cycles(cycles));
                }
            }
            now += tail;
            segment.push(FlowEvent::Time(Nanos(now)));
            segment.push(FlowEvent::Cycles(cycles));
            segment.push(FlowEvent::End);
            result.push(segment);
        }
        result
    })
}

fn fold<A: Analysis>(analysis: &A, number: u64, segments: &[Vec<FlowEvent<'_>>]) -> A::Partial {
    let mut partial = analysis.begin(&Start::default());
    if analysis.interest().flow == FlowInterest::Numbered {
        analysis.fold(&mut partial, Item::Flow(FlowEvent::Number(number)));
    }
    segments.iter().flatten().for_each(|&seen| analysis.fold(&mut partial, Item::Flow(seen)));
    // The serialized form must contain the whole partial.
    let (any, partial): (&dyn AnyAnalysis, AnyPartial) = (analysis, Box::new(partial));
    let travelled = any.unpack(&any.pack(&partial)).expect("what was packed can be unpacked");
    *travelled.downcast().expect("the partial of this analysis")
}

/// The table of some threads.
fn finish<A: Analysis>(analysis: &A, threads: Vec<A::Partial>) -> Table {
    // The view that says most, of those that have it.
    let selection = Selection { view: "executions".to_owned(), ..Selection::default() };
    finish_selected(analysis, threads, &selection)
}

/// The table of some threads, of what is selected.
fn finish_selected<A: Analysis>(analysis: &A, threads: Vec<A::Partial>, selection: &Selection) -> Table {
    let known = Threads::default();
    let context = FinishContext::without_events(selection, &known, &Numbers);
    let thread = FlowThread { pid: 7, tid: 7, comm: None };
    let of = FinishContext { flow_threads: &[thread], trace_bytes: Some(1000), ..context };
    analysis.finish(threads, &of)
}

/// A numbering of the functions of these tests.
struct Numbered(u64);

impl Numbered {
    fn number(&self, function: FunctionId) -> u32 {
        if self.0.is_multiple_of(2) { function.index } else { 5 - function.index }
    }
}

impl Numbering for Numbered {
    fn id(&self) -> u64 {
        self.0
    }

    fn function(&self, number: u32) -> FunctionId {
        FunctionId { module: 1, index: if self.0.is_multiple_of(2) { number } else { 5 - number } }
    }
}

/// Receives function runs with an optional timestamp, or other events.
trait Takes {
    fn function_runs(&mut self, functions: &Numbered, function_runs: &[FunctionRun], until: Option<Nanos>);

    fn seen(&mut self, seen: FlowEvent<'_>);
}

struct Folding<'a, A: FastFlow> {
    analysis: &'a A,
    partial: A::Partial,
}

impl<A: FastFlow> Takes for Folding<'_, A> {
    fn function_runs(&mut self, functions: &Numbered, function_runs: &[FunctionRun], until: Option<Nanos>) {
        self.analysis.fold_function_runs(&mut self.partial, functions, function_runs, until);
    }

    fn seen(&mut self, seen: FlowEvent<'_>) {
        self.analysis.fold(&mut self.partial, Item::Flow(seen));
    }
}

impl Takes for Part {
    fn function_runs(&mut self, functions: &Numbered, function_runs: &[FunctionRun], until: Option<Nanos>) {
        self.fold_function_runs(functions, function_runs, until);
    }

    fn seen(&mut self, seen: FlowEvent<'_>) {
        self.fold(&seen);
    }
}

/// The table of a thread that is folded as function runs.
fn table_of_function_runs<A: FastFlow>(analysis: &A, segments: &[Vec<FlowEvent<'_>>], timed: bool) -> Table {
    let mut folding = Folding { analysis, partial: analysis.begin(&Start::default()) };
    emit_function_runs(&mut folding, segments, timed);
    finish(analysis, vec![folding.partial])
}

/// The calls of a thread that `tell` passes on.
fn moments(begins: bool, emit: impl FnOnce(&mut Part)) -> Vec<Moment> {
    let (mut part, mut calls, mut moments) =
        (Part::unknown(begins, Spare::default()), Calls::default(), Vec::new());
    emit(&mut part);
    calls.follow(part, &mut |moment| moments.push(moment));
    calls.end(&mut |moment| moments.push(moment));
    moments
}

/// Passes function runs in batches, with a new numbering of functions each time; with the timestamp that follows, or
/// without.
fn emit_function_runs(takes: &mut impl Takes, segments: &[Vec<FlowEvent<'_>>], timed: bool) {
    let (mut function_runs, mut functions) = (Vec::<FunctionRun>::new(), Numbered(1));
    for &seen in segments.iter().flatten() {
        let transfer = match seen {
            FlowEvent::Run { at: Arrival { address: start, function, place }, instructions, .. }
                if instructions > 0 =>
            {
                let (function, transfer) = (functions.number(function), Transfer::None);
                let until = instructions as u32 + function_runs.last().map_or(0, |last| last.until);
                let begins = FunctionRun::begins(function, place);
                function_runs.push(FunctionRun { start, begins, until, transfer, end: 0 });
                continue;
            }
            FlowEvent::Call { return_address } if !function_runs.is_empty() => {
                (Transfer::Call, return_address)
            }
            FlowEvent::Return => (Transfer::Return, 0),
            FlowEvent::IndirectJump => (Transfer::IndirectJump, 0),
            // Also code beyond the border of a filter's range, and its calls: it makes no function runs.
            other => {
                let until = match other {
                    FlowEvent::Time(until) if timed => Some(until),
                    _ => None,
                };
                takes.function_runs(&functions, &function_runs, until);
                function_runs.clear();
                functions.0 += u64::from(matches!(other, FlowEvent::Gap | FlowEvent::End));
                if until.is_none() {
                    takes.seen(other);
                }
                continue;
            }
        };
        let last = function_runs.last_mut().expect("it ends one");
        (last.transfer, last.end) = transfer;
    }
}

/// Merges neighbours in an order that `choices` picks.
fn merge_all<A: Analysis>(analysis: &A, mut parts: Vec<A::Partial>, choices: &[usize]) -> A::Partial {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let at = choices.next().unwrap() % (parts.len() - 1);
        let later = parts.remove(at + 1);
        let earlier = parts.remove(at);
        parts.insert(at, analysis.merge(earlier, later, &Threads::default()));
    }
    parts.pop().unwrap()
}

/// The instructions executed in some segments.
fn instructions(segments: &[Vec<FlowEvent<'_>>]) -> u64 {
    let count = |seen: &FlowEvent<'_>| match *seen {
        FlowEvent::Run { instructions, .. } | FlowEvent::Skip { instructions } => instructions,
        _ => 0,
    };
    segments.iter().flatten().map(count).sum()
}

/// The partials of a thread that is cut.
fn parts<A: Analysis>(analysis: &A, thread: &[Vec<FlowEvent<'_>>], cuts: &[bool]) -> Vec<A::Partial> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for end in 1..=thread.len() {
        if end == thread.len() || cuts[end] {
            parts.push(fold(analysis, instructions(&thread[..begin]), &thread[begin..end]));
            begin = end;
        }
    }
    parts
}

/// The table of the whole thread, and the table of its merged parts.
fn tables<A: Analysis>(
    analysis: &A,
    thread: &[Vec<FlowEvent<'_>>],
    cuts: &[bool],
    choices: &[usize],
) -> (Table, Table) {
    let merged = merge_all(analysis, parts(analysis, thread, cuts), choices);
    (finish(analysis, vec![fold(analysis, 0, thread)]), finish(analysis, vec![merged]))
}

/// The value in a table's summary.
fn figure(table: &Table, name: &str) -> Option<Value> {
    table.figure(name).cloned()
}

/// A thread, the cuts, and the order of merges.
type Case = (Vec<Vec<FlowEvent<'static>>>, Vec<bool>, Vec<usize>);

fn case() -> impl Strategy<Value = Case> {
    (thread(), prop::collection::vec(any::<bool>(), 8), prop::collection::vec(0usize..8, 1..8))
}

fn holds<A: FastFlow>(analysis: &A, (thread, cuts, choices): &Case) -> Result<(), TestCaseError> {
    let (whole, merged) = tables(analysis, thread, cuts, choices);
    prop_assert_eq!(&whole, &merged);
    if A::TAKES_FUNCTION_RUNS && analysis.interest().flow != FlowInterest::Numbered {
        for timed in [false, true] {
            prop_assert_eq!(&whole, &table_of_function_runs(analysis, thread, timed));
        }
    }
    Ok(())
}

/// Checks that the table is the same for every cut, and from function runs, in `cases` cases.
pub(crate) fn holds_always<A: FastFlow>(analysis: &A, cases: u32) -> Result<(), String> {
    let mut runner = TestRunner::new(config(cases));
    runner.run(&case(), |case| holds(analysis, &case)).map_err(|error| error.to_string())
}

/// Whether a broken analysis is caught, with fixed cases.
pub(crate) fn is_caught<A: FastFlow>(analysis: &A) -> bool {
    let always_the_same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config(1000), always_the_same);
    runner.run(&case(), |case| holds(analysis, &case)).is_err()
}

/// The index of a merged part, and the bytes to change in it.
type Forgery = (prop::sample::Index, Vec<(prop::sample::Index, u8)>);

fn forgery() -> impl Strategy<Value = Forgery> {
    let byte = prop_oneof![any::<u8>(), 0u8..9, Just(0x7f), Just(0xff)];
    (any::<prop::sample::Index>(), prop::collection::vec((any::<prop::sample::Index>(), byte), 1..4))
}

/// The table of a thread with a forged part, unless the forgery is detected.
fn finish_forged<A: Analysis>(
    analysis: &A,
    (thread, cuts, choices): &Case,
    (which, edits): &Forgery,
) -> Option<Table> {
    let mut parts = parts(analysis, thread, cuts);
    let which = which.index(parts.len());
    let (any, part): (&dyn AnyAnalysis, AnyPartial) = (analysis, Box::new(parts.remove(which)));
    let mut bytes = any.pack(&part);
    let len = bytes.len();
    edits.iter().for_each(|(place, byte)| bytes[place.index(len)] = *byte);
    let forged = any.unpack(&bytes)?.downcast().expect("the partial of this analysis");
    parts.insert(which, *forged);
    Some(finish(analysis, vec![merge_all(analysis, parts, choices)]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]
    #[test]
    fn forged_partials_are_refused_or_make_a_table(case in case(), forgery in forgery()) {
        finish_forged(&Functions, &case, &forgery);
        for (report, every) in [(Report::Tree, None), (Report::Functions, Some(Every::Nanoseconds(7)))] {
            finish_forged(&Profile { report, every }, &case, &forgery);
        }
        for report in [blocks::Report::Blocks, blocks::Report::Lines] {
            finish_forged(&Blocks { report }, &case, &forgery);
        }
    }

    #[test]
    fn calls_are_the_same_of_function_runs(thread in thread(), begins: bool) {
        let by_runs = moments(begins, |part| thread.iter().flatten().for_each(|seen| part.fold(seen)));
        for timed in [false, true] {
            prop_assert_eq!(&by_runs, &moments(begins, |part| emit_function_runs(part, &thread, timed)));
        }
    }

    #[test]
    fn functions_need_no_tree(thread in thread()) {
        let tree = Profile { report: Report::Functions, every: None };
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
    fn time_counts_from_where_the_clock_is_told_first(before in 0u64..9, after in 1u64..9, later in 0u64..9) {
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

    /// Of the executions of a function: any cutting gives one table; and with those that are cut they are what the
    /// function executed in total.
    #[test]
    fn paths_of_a_function_are_all_of_it((thread, cuts, choices) in case(), index in 0u32..4, view in 0usize..2) {
        let paths = Profile { report: Report::Paths, every: None };
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
        let profile = Profile { report: Report::Functions, every: None };
        let by_function = finish(&profile, vec![fold(&profile, 0, &thread)]);
        let blocks = Blocks { report: blocks::Report::Lines };
        let by_line = finish(&blocks, vec![fold(&blocks, 0, &thread)]);
        prop_assert_eq!(figure(&by_function, "instructions"), figure(&by_line, "instructions"));
        prop_assert_eq!(figure(&by_function, "time_ns"), figure(&by_line, "time_ns"));
    }
}

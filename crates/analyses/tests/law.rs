//! The law: any cutting into chunks, any grouping of merges, gives the result of one chunk.

use hodo_analyses::{
    blocks::{self, Blocks},
    calls::{Calls, Moment, Part, Spare},
    profile::{Every, Functions, Profile, Report},
};
use hodo_clock::Nanos;
use hodo_trace::{
    Analysis, Arrival, Code, End, FunctionId, Names, Numbering, Place, Seen, SourceLine, Sources, Stretch,
    Table, Transfer, Value,
};
use proptest::prelude::*;

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

/// Instructions of a byte each.
const LENGTHS: [u8; 9] = [1; 9];

fn arrival() -> impl Strategy<Value = Arrival> {
    let place = prop_oneof![2 => Just(Place::Entry), 4 => Just(Place::Middle), 1 => Just(Place::Unknown)];
    (0u32..4, 0u64..3, place).prop_map(|(index, address, place)| Arrival {
        address: u64::from(index) * 10 + address,
        function: FunctionId { module: 1, index },
        place,
    })
}

/// What one block shows, or what happens between blocks.
fn step() -> impl Strategy<Value = Vec<Seen<'static>>> {
    let end = prop_oneof![
        4 => Just((End::Next, None)),
        4 => Just((End::Conditional, None)),
        1 => Just((End::Jump, None)),
        4 => (0u64..4, 0u64..3).prop_map(|(f, a)| (End::Call, Some(Seen::Call { return_address: f * 10 + a }))),
        4 => Just((End::Return, Some(Seen::Return))),
        2 => Just((End::Indirect, Some(Seen::IndirectJump))),
    ];
    let block = (arrival(), 1usize..9, end, 0u64..40).prop_map(|(at, instructions, (end, then), target)| {
        let code = Code { offset: at.address, since: 0, lengths: &LENGTHS[..instructions], end, target };
        let instructions = instructions as u64;
        [Seen::Run { at, instructions, code }].into_iter().chain(then).collect()
    });
    // A function that calls none itself, with what runs where it returns to, which may be another one than called it.
    let leaf = (arrival(), arrival(), arrival(), 1usize..9).prop_map(|(at, called, back, instructions)| {
        let run = |at: Arrival, end| {
            let code =
                Code { offset: at.address, since: 0, lengths: &LENGTHS[..instructions], end, target: 0 };
            Seen::Run { at, instructions: instructions as u64, code }
        };
        let call = Seen::Call { return_address: back.address };
        vec![run(at, End::Call), call, run(called, End::Return), Seen::Return, run(back, End::Next)]
    });
    prop_oneof![
        12 => block,
        2 => leaf,
        1 => prop::option::of(0u64..40).prop_map(|next| vec![Seen::Leave { next }]),
        1 => Just(vec![Seen::Enter]),
        1 => Just(vec![Seen::Gap]),
        1 => (1u64..9).prop_map(|instructions| vec![Seen::Skip { instructions }]),
    ]
}

/// Segments end with the clock and mostly begin with it, as a PSB+ tells it to both of its neighbours.
fn thread() -> impl Strategy<Value = Vec<Vec<Seen<'static>>>> {
    let steps = prop::collection::vec((step(), 0u64..5, any::<bool>()), 0..30);
    let segment = (steps, 0u64..5, prop::bool::weighted(0.9));
    prop::collection::vec(segment, 1..8).prop_map(|segments| {
        let mut now = 0;
        let mut result = Vec::new();
        for (steps, tail, begins) in segments {
            let mut cycles = tail;
            let mut segment = vec![Seen::Begin(begins.then_some(Nanos(now)))];
            for (step, later, tell) in steps {
                segment.extend(step);
                if tell {
                    now += later;
                    segment.push(Seen::Time(Nanos(now)));
                }
                cycles += 3 * later;
                if later == 1 {
                    segment.push(Seen::Cycles(cycles));
                }
            }
            now += tail;
            segment.push(Seen::Time(Nanos(now)));
            segment.push(Seen::Cycles(cycles));
            segment.push(Seen::End);
            result.push(segment);
        }
        result
    })
}

fn fold<A: Analysis>(analysis: &A, number: u64, segments: &[Vec<Seen<'_>>]) -> A::Partial {
    let mut partial = analysis.unknown();
    if analysis.needs_numbers() {
        analysis.fold(&mut partial, Seen::Number(number));
    }
    segments.iter().flatten().for_each(|&seen| analysis.fold(&mut partial, seen));
    // What travels to another process must be all that there is.
    serde_json::from_str(&serde_json::to_string(&partial).unwrap()).unwrap()
}

/// A way to number the functions of these laws.
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

/// Who is told of stretches, and then of a time or of something else.
trait Takes {
    fn stretches(&mut self, functions: &Numbered, stretches: &[Stretch], until: Option<Nanos>);

    fn seen(&mut self, seen: Seen<'_>);
}

struct Folding<'a, A: Analysis> {
    analysis: &'a A,
    partial: A::Partial,
}

impl<A: Analysis> Takes for Folding<'_, A> {
    fn stretches(&mut self, functions: &Numbered, stretches: &[Stretch], until: Option<Nanos>) {
        self.analysis.fold_stretches(&mut self.partial, functions, stretches, until);
    }

    fn seen(&mut self, seen: Seen<'_>) {
        self.analysis.fold(&mut self.partial, seen);
    }
}

impl Takes for Part {
    fn stretches(&mut self, functions: &Numbered, stretches: &[Stretch], until: Option<Nanos>) {
        self.fold_stretches(functions, stretches, until);
    }

    fn seen(&mut self, seen: Seen<'_>) {
        self.fold(&seen);
    }
}

/// A table of a thread that is told as stretches.
fn table_of_stretches<A: Analysis>(analysis: &A, segments: &[Vec<Seen<'_>>], timed: bool) -> Table {
    let mut folding = Folding { analysis, partial: analysis.unknown() };
    tell_stretches(&mut folding, segments, timed);
    analysis.finish(vec![folding.partial])
}

/// The calls of a thread that is told in some way.
fn moments(begins: bool, tell: impl FnOnce(&mut Part)) -> Vec<Moment> {
    let (mut part, mut calls, mut moments) =
        (Part::unknown(begins, Spare::default()), Calls::default(), Vec::new());
    tell(&mut part);
    calls.follow(part, &mut |moment| moments.push(moment));
    calls.end(&mut |moment| moments.push(moment));
    moments
}

/// Tells of stretches together, of functions that are numbered each time in another way; with the time that comes next,
/// or without.
fn tell_stretches(takes: &mut impl Takes, segments: &[Vec<Seen<'_>>], timed: bool) {
    let (mut stretches, mut functions) = (Vec::<Stretch>::new(), Numbered(1));
    for &seen in segments.iter().flatten() {
        let transfer = match seen {
            Seen::Run { at: Arrival { address: start, function, place }, instructions, .. } => {
                let (function, transfer) = (functions.number(function), Transfer::None);
                let until = instructions as u32 + stretches.last().map_or(0, |last| last.until);
                let begins = Stretch::begins(function, place);
                stretches.push(Stretch { start, begins, until, transfer, end: 0 });
                continue;
            }
            Seen::Call { return_address } => (Transfer::Call, return_address),
            Seen::Return => (Transfer::Return, 0),
            Seen::IndirectJump => (Transfer::IndirectJump, 0),
            other => {
                let until = match other {
                    Seen::Time(until) if timed => Some(until),
                    _ => None,
                };
                takes.stretches(&functions, &stretches, until);
                stretches.clear();
                functions.0 += u64::from(matches!(other, Seen::Gap | Seen::End));
                if until.is_none() {
                    takes.seen(other);
                }
                continue;
            }
        };
        let last = stretches.last_mut().expect("it ends one");
        (last.transfer, last.end) = transfer;
    }
}

/// Merges neighbours in an order that `choices` picks.
fn merge_all<A: Analysis>(analysis: &A, mut parts: Vec<A::Partial>, choices: &[usize]) -> A::Partial {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let at = choices.next().unwrap() % (parts.len() - 1);
        let later = parts.remove(at + 1);
        let earlier = std::mem::replace(&mut parts[at], analysis.unknown());
        parts[at] = analysis.merge(earlier, later);
    }
    parts.pop().unwrap()
}

/// Instructions that ran in some segments.
fn instructions(segments: &[Vec<Seen<'_>>]) -> u64 {
    let count = |seen: &Seen<'_>| match *seen {
        Seen::Run { instructions, .. } | Seen::Skip { instructions } => instructions,
        _ => 0,
    };
    segments.iter().flatten().map(count).sum()
}

/// The tables of the whole and of its parts.
fn tables<A: Analysis>(
    analysis: &A,
    thread: &[Vec<Seen<'_>>],
    cuts: &[bool],
    choices: &[usize],
) -> (Table, Table) {
    let mut parts = Vec::new();
    let mut begin = 0;
    for end in 1..=thread.len() {
        if end == thread.len() || cuts[end] {
            parts.push(fold(analysis, instructions(&thread[..begin]), &thread[begin..end]));
            begin = end;
        }
    }
    let merged = merge_all(analysis, parts, choices);
    (analysis.finish(vec![fold(analysis, 0, thread)]), analysis.finish(vec![merged]))
}

/// The figure of a table's summary.
fn figure(table: &Table, name: &str) -> Option<Value> {
    table.summary.iter().find(|(found, _)| *found == name).map(|(_, value)| value.clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]
    #[test]
    fn any_chunks_in_any_grouping_give_the_result_of_one(
        thread in thread(),
        cuts in prop::collection::vec(any::<bool>(), 8),
        choices in prop::collection::vec(0usize..8, 1..8),
        period in 1u64..12,
    ) {
        for every in [None, Some(Every::Nanoseconds(period)), Some(Every::Instructions(period))] {
            for report in [Report::Tree, Report::Functions] {
                let profile = Profile { report, every, names: &Numbers };
                let (whole, merged) = tables(&profile, &thread, &cuts, &choices);
                prop_assert_eq!(whole, merged);
            }
        }
        let (whole, merged) = tables(&Functions { names: &Numbers }, &thread, &cuts, &choices);
        prop_assert_eq!(whole, merged);
        for report in [blocks::Report::Blocks, blocks::Report::Lines] {
            let (whole, merged) = tables(&Blocks { report, sources: &Numbers }, &thread, &cuts, &choices);
            prop_assert_eq!(whole, merged);
        }
    }

    #[test]
    fn calls_are_the_same_of_stretches(thread in thread(), begins: bool) {
        let by_runs = moments(begins, |part| thread.iter().flatten().for_each(|seen| part.fold(seen)));
        for timed in [false, true] {
            prop_assert_eq!(&by_runs, &moments(begins, |part| tell_stretches(part, &thread, timed)));
        }
    }

    #[test]
    fn functions_need_no_tree(thread in thread()) {
        let tree = Profile { report: Report::Functions, every: None, names: &Numbers };
        let sums = Functions { names: &Numbers };
        let by_tree = tree.finish(vec![fold(&tree, 0, &thread)]);
        prop_assert_eq!(&by_tree, &sums.finish(vec![fold(&sums, 0, &thread)]));
        for timed in [false, true] {
            prop_assert_eq!(&by_tree, &table_of_stretches(&sums, &thread, timed));
            prop_assert_eq!(&by_tree, &table_of_stretches(&tree, &thread, timed));
        }
    }

    /// A segment that begins without a clock: what passed before the first time is not known, all after it is.
    #[test]
    fn time_counts_from_where_the_clock_is_told_first(before in 0u64..9, after in 1u64..9, later in 0u64..9) {
        let at = Arrival { address: 1, function: FunctionId { module: 1, index: 0 }, place: Place::Entry };
        let code = Code { offset: 1, since: 0, lengths: &LENGTHS[..1], end: End::Next, target: 2 };
        let run = Seen::Run { at, instructions: 1, code };
        let time = |nanos| Seen::Time(Nanos(nanos));
        let runs = |count: u64| (0..count).map(|_| run);
        let segment: Vec<_> = [Seen::Begin(None)].into_iter().chain(runs(before)).chain([time(100)])
            .chain(runs(after)).chain([time(100 + later), Seen::End]).collect();
        let sums = Functions { names: &Numbers };
        let table = sums.finish(vec![fold(&sums, 0, &[segment])]);
        prop_assert_eq!(figure(&table, "time_ns"), Some(Value::from(later)));
    }

    #[test]
    fn blocks_and_functions_agree(thread in thread()) {
        let profile = Profile { report: Report::Functions, every: None, names: &Numbers };
        let by_function = profile.finish(vec![fold(&profile, 0, &thread)]);
        let blocks = Blocks { report: blocks::Report::Lines, sources: &Numbers };
        let by_line = blocks.finish(vec![fold(&blocks, 0, &thread)]);
        prop_assert_eq!(figure(&by_function, "instructions"), figure(&by_line, "instructions"));
        prop_assert_eq!(figure(&by_function, "time_ns"), figure(&by_line, "time_ns"));
    }
}

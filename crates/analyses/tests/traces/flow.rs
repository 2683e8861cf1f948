//! Random control flow of a thread.

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, AnyAnalysis, AnyPartial, Arrival, Code, End, FastFlow, FinishContext, FlowEvent, FlowInterest,
    FlowThread, FunctionId, FunctionRun, Item, Names, Numbering, Place, Selection, SourceLine, Sources,
    Start, Table, Transfer, Virtual, kernel::Threads,
};
use proptest::prelude::*;

use super::parts::{merge_neighbours, parts_of};

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
        let begins = address.is_multiple_of(3);
        (line > 0).then_some(SourceLine { file: "f", line, begins, is_entry: begins })
    }

    fn inlined(&self, _: u32, addresses: &[u64]) -> Vec<Option<String>> {
        vec![None; addresses.len()]
    }
}

/// Instructions of one byte each.
const LENGTHS: [u8; 9] = [1; 9];
/// `nop`, `push`, `pop`, `clc`, `stc`, `cwde`, `cdq`, `cli`, `sti`.
const BYTES: [u8; 9] = [0x90, 0x50, 0x58, 0xf8, 0xf9, 0x98, 0x99, 0xfa, 0xfb];

pub(crate) fn code(offset: u64, instructions: usize, end: End, target: u64) -> Code<'static> {
    let (lengths, bytes) = (&LENGTHS[..instructions], &BYTES[..instructions]);
    Code { offset, since: 0, lengths, bytes, isa: hodo_model::Isa::X86_64, end, target }
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
pub(crate) fn thread() -> impl Strategy<Value = Vec<Vec<FlowEvent<'static>>>> {
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

pub(crate) fn fold(analysis: &dyn AnyAnalysis, number: u64, segments: &[Vec<FlowEvent<'_>>]) -> AnyPartial {
    let mut partial = analysis.begin(&Start::default());
    if analysis.interest().flow == FlowInterest::Numbered {
        analysis.fold_item(&mut partial, Item::Flow(FlowEvent::Number(number)));
    }
    segments.iter().flatten().for_each(|&event| analysis.fold_item(&mut partial, Item::Flow(event)));
    // The serialized form must contain the whole partial.
    analysis.unpack(&analysis.pack(&partial)).expect("what was packed can be unpacked")
}

/// The table of some threads.
pub(crate) fn finish(analysis: &dyn AnyAnalysis, threads: Vec<AnyPartial>) -> Table {
    // `latency` has this view, which shows most; other reports ignore it.
    let selection = Selection { view: "executions".to_owned(), ..Selection::default() };
    finish_selected(analysis, threads, &selection)
}

/// The table of some threads, of what is selected.
pub(crate) fn finish_selected(
    analysis: &dyn AnyAnalysis,
    threads: Vec<AnyPartial>,
    selection: &Selection,
) -> Table {
    let known = Threads::default();
    let context = FinishContext::without_events(selection, &known, &Numbers);
    let thread = FlowThread { pid: 7, tid: 7, comm: None };
    let context = FinishContext { flow_threads: &[thread], trace_bytes: Some(1000), ..context };
    analysis.finish(threads, &context)
}

/// A numbering of the functions of these tests.
pub(crate) struct Numbered(u64);

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
pub(crate) trait Takes {
    fn function_runs(&mut self, functions: &Numbered, function_runs: &[FunctionRun], until: Option<Nanos>);

    fn event(&mut self, event: FlowEvent<'_>);
}

struct Folding<'a, A: FastFlow> {
    analysis: &'a A,
    partial: A::Partial,
}

impl<A: FastFlow> Takes for Folding<'_, A> {
    fn function_runs(&mut self, functions: &Numbered, function_runs: &[FunctionRun], until: Option<Nanos>) {
        self.analysis.fold_function_runs(&mut self.partial, functions, function_runs, until);
    }

    fn event(&mut self, event: FlowEvent<'_>) {
        Analysis::fold(self.analysis, &mut self.partial, Item::Flow(event));
    }
}

/// The table of a thread that is folded as function runs.
pub(crate) fn table_of_function_runs<A: FastFlow>(
    analysis: &A,
    segments: &[Vec<FlowEvent<'_>>],
    timed: bool,
) -> Table {
    let mut folding = Folding { analysis, partial: Analysis::begin(analysis, &Start::default()) };
    emit_function_runs(&mut folding, segments, timed);
    finish(analysis, vec![Box::new(folding.partial)])
}

/// Passes function runs in batches, with a new numbering of functions each time; with the timestamp that follows, or
/// without.
pub(crate) fn emit_function_runs(takes: &mut impl Takes, segments: &[Vec<FlowEvent<'_>>], timed: bool) {
    let (mut function_runs, mut functions) = (Vec::<FunctionRun>::new(), Numbered(1));
    for &event in segments.iter().flatten() {
        let transfer = match event {
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
                    takes.event(other);
                }
                continue;
            }
        };
        let last = function_runs.last_mut().expect("a transfer follows a run");
        (last.transfer, last.end) = transfer;
    }
}

/// Merges the partials of a thread as [`merge_neighbours`].
pub(crate) fn merge_all(analysis: &dyn AnyAnalysis, parts: Vec<AnyPartial>, choices: &[usize]) -> AnyPartial {
    let merge = |earlier, later| analysis.merge(earlier, later, &Threads::default());
    merge_neighbours(parts, choices, merge).unwrap()
}

/// The instructions executed in some segments.
fn instructions(segments: &[Vec<FlowEvent<'_>>]) -> u64 {
    let count = |event: &FlowEvent<'_>| match *event {
        FlowEvent::Run { instructions, .. } | FlowEvent::Skip { instructions } => instructions,
        _ => 0,
    };
    segments.iter().flatten().map(count).sum()
}

/// The partials of a thread that is cut.
pub(crate) fn parts(
    analysis: &dyn AnyAnalysis,
    thread: &[Vec<FlowEvent<'_>>],
    cuts: &[bool],
) -> Vec<AnyPartial> {
    let ranges = parts_of(thread.len(), |end| cuts[end]).into_iter();
    ranges.map(|range| fold(analysis, instructions(&thread[..range.start]), &thread[range])).collect()
}

/// A thread that is cut, and whose parts are merged.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// By segment.
    pub(crate) thread: Vec<Vec<FlowEvent<'static>>>,
    /// Whether the thread is cut after each segment.
    pub(crate) cuts: Vec<bool>,
    /// The order of merges, as in [`merge_all`].
    pub(crate) choices: Vec<usize>,
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    let (cuts, choices) = (prop::collection::vec(any::<bool>(), 8), prop::collection::vec(0usize..8, 1..8));
    (thread(), cuts, choices).prop_map(|(thread, cuts, choices)| Case { thread, cuts, choices })
}

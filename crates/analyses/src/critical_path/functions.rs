//! The functions that ran in stretches of time, from control flow.
//!
//! ```text
//! readings    │─────────│──────│─────────────│      the instructions between two readings take equal times
//! stretches   ░░░░██████████████░░░░░███████░░      what ran on both sides of an end is divided there
//! ```

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, FastFlow, FinishContext, FlowEvent, FlowInterest, FunctionId, Interest, Item, Shape,
    Start, Table, Unit, kernel::Threads,
};
use serde::{Deserialize, Serialize};

use crate::clock::{ClockSpan, NO_OTHERS, SegmentClock, TimeShare};

/// A stretch of time in which a thread ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStretch {
    /// Its first nanosecond.
    pub begin: Nanos,
    /// The nanosecond after it.
    pub end: Nanos,
    /// The thread.
    pub tid: u32,
}

/// The analysis: instructions and time of each function in each stretch. No report lists it, because only another table
/// knows the stretches.
#[derive(Clone, Debug)]
pub struct FunctionsOfStretches {
    stretches: Vec<ThreadStretch>,
}

impl FunctionsOfStretches {
    /// Creates the analysis for stretches that are in order and do not overlap.
    pub fn new(stretches: Vec<ThreadStretch>) -> FunctionsOfStretches {
        FunctionsOfStretches { stretches }
    }

    /// Adds what ran in a span.
    fn add(&self, costs: &mut Costs, function: FunctionId, instructions: u64, span: ClockSpan) {
        let first = self.stretches.partition_point(|stretch| stretch.end.0 <= span.from);
        for (stretch, index) in self.stretches[first..].iter().zip(first as u32..) {
            let (from, to) = (stretch.begin.0.max(span.from), stretch.end.0.min(span.to));
            if stretch.begin.0 > span.from && stretch.begin.0 >= span.to {
                break;
            }
            let ran = match span.length() {
                0 => instructions,
                length => {
                    let until = |time: u64| {
                        u128::from(instructions) * u128::from(time - span.from) / u128::from(length)
                    };
                    (until(to) - until(from)) as u64
                }
            };
            let cost: &mut CostOfFunction = costs.entry((index, function)).or_default();
            cost.instructions = cost.instructions.saturating_add(ran);
            cost.time = cost.time.saturating_add(to - from);
        }
    }

    fn share(&self, partial: &mut RanFunctions) {
        let RanFunctions { costs, clock } = partial;
        clock.share(NO_OTHERS, |share| {
            if let TimeShare::Ran { owner, instructions, piece, .. } = share {
                self.add(costs, owner, instructions, piece.span());
            }
        });
    }
}

/// Instructions and time of a function, without the functions that it called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CostOfFunction {
    instructions: u64,
    /// In nanoseconds.
    time: u64,
}

/// By stretch and function.
type Costs = BTreeMap<(u32, FunctionId), CostOfFunction>;

/// What a thread ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RanFunctions {
    costs: Costs,
    #[serde(skip)]
    clock: SegmentClock<FunctionId>,
}

impl Analysis for FunctionsOfStretches {
    type Partial = RanFunctions;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> RanFunctions {
        RanFunctions::default()
    }

    fn fold(&self, partial: &mut RanFunctions, item: Item<'_>) {
        let Item::Flow(event) = item else { return };
        match event {
            FlowEvent::Run { at, instructions, .. } => partial.clock.ran(at.function, instructions),
            FlowEvent::Begin(clock) => partial.clock.begin(clock.map(|clock| clock.0)),
            FlowEvent::Time(now) => {
                if partial.clock.read(now.0) {
                    self.share(partial);
                }
            }
            FlowEvent::End => {
                self.share(partial);
                partial.clock.end();
            }
            FlowEvent::Gap => partial.clock.gap(),
            FlowEvent::Number(_)
            | FlowEvent::Cycles(_)
            | FlowEvent::Interrupts(_)
            | FlowEvent::Skip { .. } => {}
            event => partial.clock.left = matches!(event, FlowEvent::Leave { .. }),
        }
    }

    fn merge(&self, mut earlier: RanFunctions, later: RanFunctions, _: &Threads) -> RanFunctions {
        for (key, later) in later.costs {
            let cost = earlier.costs.entry(key).or_default();
            cost.instructions = cost.instructions.saturating_add(later.instructions);
            cost.time = cost.time.saturating_add(later.time);
        }
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    /// Makes a table of the functions that the threads of the stretches ran, by the number of the stretch.
    fn finish(&self, threads: Vec<RanFunctions>, context: &FinishContext<'_>) -> Table {
        let mut all = RanFunctions::default();
        for (mut partial, thread) in threads.into_iter().zip(context.flow_threads) {
            partial.costs.retain(|&(index, _), _| {
                self.stretches.get(index as usize).is_some_and(|stretch| stretch.tid == thread.tid)
            });
            all = self.merge(all, partial, context.threads);
        }
        let columns = vec![
            Column::integer("stretch", Unit::None),
            Column::name("function"),
            Column::name("module"),
            Column::integer("instructions", Unit::Count),
            Column::integer("time_ns", Unit::Nanoseconds),
        ];
        let rows = all.costs.into_iter().map(|((index, function), cost)| {
            let (name, module) = context.functions().names(function);
            vec![
                index.into(),
                name.as_str().into(),
                module.as_str().into(),
                cost.instructions.into(),
                cost.time.into(),
            ]
        });
        Table::new("executed", Shape::Counters, vec![], columns, rows)
    }
}

impl FastFlow for FunctionsOfStretches {
    type Memory = ();
}

#[cfg(test)]
mod tests {
    use hodo_model::{Arrival, Code, End, Place};

    use super::*;

    fn run(function: u32, instructions: u64) -> FlowEvent<'static> {
        let function = FunctionId { module: 0, index: function };
        let at = Arrival { address: 1, function, place: Place::Middle };
        let (lengths, bytes, end) = (&[][..], &[][..], End::Conditional);
        let code = Code { offset: 1, since: 0, lengths, bytes, isa: hodo_model::Isa::X86_64, end, target: 0 };
        FlowEvent::Run { at, instructions, code }
    }

    fn time(now: u64) -> FlowEvent<'static> {
        FlowEvent::Time(Nanos(now))
    }

    /// Stretch, function, instructions and time.
    fn executed(stretches: &[(u64, u64)], events: &[FlowEvent<'_>]) -> Vec<[u64; 4]> {
        let stretches = stretches.iter();
        let stretches =
            stretches.map(|&(begin, end)| ThreadStretch { begin: Nanos(begin), end: Nanos(end), tid: 1 });
        let analysis = FunctionsOfStretches::new(stretches.collect());
        let mut partial = RanFunctions::default();
        events.iter().for_each(|&event| analysis.fold(&mut partial, Item::Flow(event)));
        let rows = partial.costs.into_iter().map(|((index, function), cost)| {
            [index.into(), function.index.into(), cost.instructions, cost.time]
        });
        rows.collect()
    }

    #[test]
    fn readings_at_the_ends_of_a_stretch_divide_exactly() {
        let begin = FlowEvent::Begin(Some(Nanos(100)));
        let events = [begin, run(1, 30), time(110), run(2, 5), run(1, 15), time(130), run(2, 7), time(140)];
        assert_eq!(executed(&[(110, 130)], &events), [[0, 1, 15, 15], [0, 2, 5, 5]]);
        assert_eq!(executed(&[(100, 110), (130, 140)], &events), [[0, 1, 30, 10], [1, 2, 7, 10]]);
        assert_eq!(executed(&[(0, 100), (140, 200)], &events), [] as [[u64; 4]; 0]);
    }

    #[test]
    fn instructions_between_two_readings_take_equal_times() {
        let events = [FlowEvent::Begin(Some(Nanos(100))), run(1, 30), run(2, 10), time(140)];
        // Instruction by instruction: what one stretch lacks is in the other.
        assert_eq!(executed(&[(110, 135)], &events), [[0, 1, 20, 20], [0, 2, 5, 5]]);
        let halves = [[0, 1, 10, 10], [1, 1, 20, 20], [1, 2, 5, 5], [2, 2, 5, 5]];
        assert_eq!(executed(&[(90, 110), (110, 135), (135, 500)], &events), halves);
    }

    #[test]
    fn what_runs_after_the_last_reading_has_no_time() {
        let events = [FlowEvent::Begin(Some(Nanos(100))), run(1, 30), time(110), run(2, 4), FlowEvent::End];
        assert_eq!(executed(&[(110, 130)], &events), [[0, 2, 4, 0]]);
        let leave = FlowEvent::Leave { next: None };
        let events =
            [FlowEvent::Begin(Some(Nanos(100))), leave, time(120), FlowEvent::Enter, run(1, 2), time(125)];
        assert_eq!(executed(&[(100, 130)], &events), [[0, 1, 2, 5]]);
        let events = [FlowEvent::Begin(None), run(1, 30), FlowEvent::Gap, time(110), run(1, 3), time(113)];
        assert_eq!(executed(&[(0, 130)], &events), [[0, 1, 3, 3]]);
    }
}

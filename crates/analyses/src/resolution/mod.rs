//! `resolution`: how exactly are times known, and how many bytes of trace does an instruction take?
//!
//! Between two timing packets only the order of instructions is known. A *timed interval* lies between two clock
//! readings (TSC, MTC or CYC packets) with at least one instruction in between; its length is the uncertainty of the
//! time of each of its instructions. S. D. Sharma and M. R. Dagenais, "Hardware-assisted instruction profiling and
//! latency detection", The Journal of Engineering, 2016, doi:10.1049/joe.2016.0127, vary this resolution against the
//! size of the trace (their Figures 7 to 9).

use hodo_model::{
    Analysis, Column, Description, End, FastFlow, FinishContext, FlowEvent, FlowInterest, FlowLoop, Interest,
    Item, Made, Report, Shape, Start, Table, Takes, Unit, Value, kernel::Threads,
};
use serde::{Deserialize, Serialize};

use crate::{
    columns::{TableRows, share},
    durations::{Add, Durations},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Resolution;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "resolution",
            help: "exact time and instructions between clock readings, and bytes of trace per instruction",
            views: &["measure", "histogram"],
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_flow(Resolution),
    }
}

/// The distributions and sums of some segments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Resolutions {
    /// Lengths of timed intervals in nanoseconds.
    time: Durations,
    /// Instructions of timed intervals.
    instructions: Durations,
    /// The length of the interval of each instruction, in nanoseconds.
    uncertainty: Durations,
    ran: RanInstructions,
    /// Each segment has its own clock, so partials are sent without it.
    #[serde(skip)]
    clock: OpenInterval,
}

/// Executed instructions.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct RanInstructions {
    all: u64,
    /// Before the first clock reading of a segment, after the last one, or next to a gap.
    untimed: u64,
    conditional: u64,
    /// Indirect jumps.
    indirect: u64,
    direct: u64,
    calls: u64,
    returns: u64,
    far: u64,
}

impl RanInstructions {
    /// The names of the counts in summaries, and the counts.
    fn totals(&self) -> [(&'static str, u64); 8] {
        [
            ("instructions", self.all),
            ("untimed_instructions", self.untimed),
            ("conditional_branches", self.conditional),
            ("indirect_jumps", self.indirect),
            ("direct_jumps", self.direct),
            ("calls", self.calls),
            ("returns", self.returns),
            ("far_transfers", self.far),
        ]
    }

    fn count(&mut self, end: End, instructions: u64) {
        self.all = self.all.saturating_add(instructions);
        let counter = match end {
            End::Next => return,
            End::Conditional => &mut self.conditional,
            End::Jump => &mut self.direct,
            End::Call => &mut self.calls,
            End::Return => &mut self.returns,
            End::Indirect => &mut self.indirect,
            End::Far => &mut self.far,
        };
        *counter = counter.saturating_add(1);
    }

    fn add(&mut self, later: &RanInstructions) {
        let RanInstructions { all, untimed, conditional, indirect, direct, calls, returns, far } = self;
        let own = [all, untimed, conditional, indirect, direct, calls, returns, far];
        for (own, (_, more)) in own.into_iter().zip(later.totals()) {
            *own = own.saturating_add(more);
        }
    }
}

/// A complete timed interval.
struct TimedInterval {
    /// In nanoseconds.
    length: u64,
    instructions: u64,
}

/// The clock of a segment.
#[derive(Clone, Copy, Debug, Default)]
struct OpenInterval {
    /// The begin of the open interval, in nanoseconds, if known.
    since: Option<u64>,
    /// Instructions since then.
    ran: u64,
    /// The thread runs code that is not traced.
    left: bool,
}

impl OpenInterval {
    /// Reads the clock; returns the interval that ends here.
    ///
    /// If nothing ran since the last reading, the instructions are still to come: the processor holds branches back
    /// until their packet is full. The interval goes on, unless the thread was elsewhere.
    fn read(&mut self, now: u64) -> Option<TimedInterval> {
        let begun = self.since.filter(|_| self.ran > 0);
        if self.since.is_none() || self.left || begun.is_some() {
            self.since = Some(now);
        }
        let length = now.saturating_sub(begun?);
        Some(TimedInterval { length, instructions: std::mem::take(&mut self.ran) })
    }
}

impl Resolutions {
    /// The clock at the last instructions is unknown.
    fn lose(&mut self) {
        let OpenInterval { ran, left, .. } = self.clock;
        self.ran.untimed = self.ran.untimed.saturating_add(ran);
        self.clock = OpenInterval { left, ..OpenInterval::default() };
    }

    fn read(&mut self, now: u64) {
        if self.clock.since.is_none() {
            self.lose();
        }
        if let Some(TimedInterval { length, instructions }) = self.clock.read(now) {
            self.time.see(length);
            self.instructions.see(instructions);
            self.uncertainty.see_times(length, instructions);
        }
    }

    /// The measures in tables: name and distribution.
    fn measures(&self) -> [(&'static str, &Durations); 3] {
        [
            ("interval_ns", &self.time),
            ("interval_instructions", &self.instructions),
            ("instruction_uncertainty_ns", &self.uncertainty),
        ]
    }
}

impl Analysis for Resolution {
    type Partial = Resolutions;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> Resolutions {
        Resolutions::default()
    }

    fn fold(&self, partial: &mut Resolutions, item: Item<'_>) {
        let Item::Flow(event) = item else { return };
        match event {
            FlowEvent::Run { instructions, code, .. } => {
                partial.ran.count(code.end, instructions);
                partial.clock.ran = partial.clock.ran.saturating_add(instructions);
                partial.clock.left = false;
            }
            FlowEvent::Time(now) => partial.read(now.0),
            FlowEvent::Leave { .. } => partial.clock.left = true,
            FlowEvent::Enter | FlowEvent::Interrupt { .. } | FlowEvent::InterruptReturn => {
                partial.clock.left = false;
            }
            FlowEvent::Begin(clock) => {
                partial.lose();
                partial.clock = OpenInterval { since: clock.map(|clock| clock.0), ..OpenInterval::default() };
            }
            FlowEvent::Gap | FlowEvent::Skip { .. } | FlowEvent::End => partial.lose(),
            _ => {}
        }
    }

    fn merge(&self, mut earlier: Resolutions, later: Resolutions, _: &Threads) -> Resolutions {
        earlier.time.add(later.time);
        earlier.instructions.add(later.instructions);
        earlier.uncertainty.add(later.uncertainty);
        earlier.ran.add(&later.ran);
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn finish(&self, threads: Vec<Resolutions>, context: &FinishContext<'_>) -> Table {
        let count = threads.len() as u64;
        let merged = threads.into_iter().reduce(|all, next| self.merge(all, next, &Threads::default()));
        let whole = merged.unwrap_or_default();
        let mut summary = vec![("threads", count.into()), ("intervals", whole.time.count.into())];
        summary.extend(whole.ran.totals().map(|(name, count)| (name, count.into())));
        let per_instruction = context.trace_bytes.filter(|_| whole.ran.all > 0);
        summary.push(("trace_bytes", context.trace_bytes.into()));
        summary.push((
            "bytes_per_instruction",
            per_instruction.map_or(Value::Null, |bytes| (bytes as f64 / whole.ran.all as f64).into()),
        ));
        let (columns, rows) = match context.selection.view.as_str() {
            "histogram" => histogram(&whole),
            _ => by_measure(&whole),
        };
        Table::new("resolution", Shape::Counters, summary, columns, rows)
    }
}

impl FastFlow for Resolution {
    type Memory = ();
}

fn by_measure(whole: &Resolutions) -> TableRows {
    let mut columns = vec![Column::name("measure")];
    let names = ["count", "min", "average", "p50", "p90", "p99", "max"];
    columns.extend(names.map(|name| Column::integer(name, Unit::Count)));
    let rows = whole.measures().map(|(name, all)| {
        let some = |value: u64| Some(value).filter(|_| all.count > 0);
        let [p50, p90, p99] = all.percentiles([50, 90, 99]);
        let cells = [Some(all.count), some(all.min), all.average(), p50, p90, p99, some(all.max)];
        [name.into()].into_iter().chain(cells.map(Value::from)).collect()
    });
    (columns, rows.to_vec())
}

/// Bins that double: from a power of two to the next, and one for 0.
fn histogram(whole: &Resolutions) -> TableRows {
    let columns = vec![
        Column::name("measure"),
        Column::integer("from", Unit::Count),
        Column::integer("until", Unit::Count),
        Column::integer("count", Unit::Count),
        Column::real("cumulated", Unit::Share),
    ];
    let rows = whole.measures().into_iter().flat_map(|(name, all)| {
        let mut below = 0;
        all.doubling().into_iter().map(move |(from, count)| {
            below += count;
            let until = from.saturating_mul(2).max(1);
            vec![name.into(), from.into(), until.into(), count.into(), share(below, all.count)]
        })
    });
    (columns, rows.collect())
}

#[cfg(test)]
mod tests {
    use hodo_clock::Nanos;
    use hodo_model::{Arrival, Code, FunctionId, Place};

    use super::*;

    fn run(instructions: u64) -> FlowEvent<'static> {
        let at = Arrival { address: 1, function: FunctionId { module: 1, index: 0 }, place: Place::Entry };
        let (lengths, bytes, end) = (&[][..], &[][..], End::Conditional);
        let code = Code { offset: 1, since: 0, lengths, bytes, isa: hodo_model::Isa::X86_64, end, target: 0 };
        FlowEvent::Run { at, instructions, code }
    }

    /// Intervals, their total time, and instructions without a time, in words.
    fn sums(events: &[FlowEvent<'_>]) -> String {
        let mut partial = Resolutions::default();
        events.iter().for_each(|&event| Resolution.fold(&mut partial, Item::Flow(event)));
        assert_eq!(partial.instructions.total + partial.ran.untimed, partial.ran.all);
        assert_eq!(partial.uncertainty.count, partial.instructions.total);
        let Durations { count, total, .. } = partial.time;
        format!("{count} of {total} ns, {} untimed", partial.ran.untimed)
    }

    fn time(now: u64) -> FlowEvent<'static> {
        FlowEvent::Time(Nanos(now))
    }

    #[test]
    fn an_interval_lasts_until_instructions_are_known() {
        let begin = FlowEvent::Begin(Some(Nanos(100)));
        let end = FlowEvent::End;
        assert_eq!(sums(&[begin, run(3), time(110), run(2), time(115), end]), "2 of 15 ns, 0 untimed");
        // The branches of both readings come after the second one.
        assert_eq!(sums(&[begin, time(110), time(120), run(5), time(125), end]), "1 of 25 ns, 0 untimed");
        // Outside traced code nothing is uncertain.
        let leave = FlowEvent::Leave { next: None };
        let outside = [begin, run(3), leave, time(110), time(900), FlowEvent::Enter, run(1), time(907), end];
        assert_eq!(sums(&outside), "2 of 17 ns, 0 untimed");
    }

    #[test]
    fn instructions_without_a_time_are_counted_apart() {
        let unknown = FlowEvent::Begin(None);
        assert_eq!(
            sums(&[unknown, run(3), time(10), run(2), time(15), run(7), FlowEvent::End]),
            "1 of 5 ns, 10 untimed"
        );
        let begin = FlowEvent::Begin(Some(Nanos(0)));
        assert_eq!(
            sums(&[begin, run(3), FlowEvent::Gap, run(4), time(9), run(1), time(10), FlowEvent::End]),
            "1 of 1 ns, 7 untimed"
        );
    }
}

//! Intervals of kernel events: system calls and interrupt handlers.

use std::sync::Arc;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, FinishContext, Interest, Item, Start, Table,
    kernel::{Kind, Threads, field},
    only,
};
use serde::{Deserialize, Serialize};

use super::{Ended, Interval, tables::Found};
use crate::{
    pairs::Pairs,
    system_calls::{Calls, EachCall, INTEREST},
};

/// An interval of software events.
fn interval(thread: Arc<str>, (begin, time): (Nanos, u64), cpu: u32) -> Interval {
    Interval {
        thread,
        number: 0,
        begin: Some(begin.0),
        time: Some(time),
        instructions: None,
        cycles: None,
        first: None,
        caller: Arc::default(),
        cpu: Some(cpu.into()),
        level: 0,
        ended: Ended::Returned,
    }
}

/// Makes the table of intervals, in order of begin.
fn table(mut intervals: Vec<Interval>, unmatched: u64, subject: &str, of: &FinishContext<'_>) -> Table {
    intervals.sort_by(|one, other| {
        let key = |interval: &Interval| (interval.begin, interval.cpu, interval.time);
        key(one).cmp(&key(other)).then_with(|| one.thread.cmp(&other.thread))
    });
    intervals.iter_mut().zip(1..).for_each(|(interval, number)| interval.number = number);
    Found { intervals, unmatched, subject: subject.to_owned(), ..Found::default() }.table(of)
}

/// An analysis of the system calls of this name.
#[derive(Clone, Debug)]
pub(super) struct Syscalls {
    pub(super) name: String,
}

impl Analysis for Syscalls {
    type Partial = Calls<Vec<EachCall>>;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&INTEREST)
    }

    fn begin(&self, _: &Start<'_>) -> Self::Partial {
        Calls::default()
    }

    fn fold(&self, partial: &mut Self::Partial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        partial.see(event);
    }

    fn merge(&self, mut earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial {
        earlier.add(later, threads);
        earlier
    }

    fn finish(&self, partials: Vec<Self::Partial>, of: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let (unmatched, unfinished) = whole.left();
        let is_own =
            |(.., name): &&EachCall| of.names.get(*name as usize).is_some_and(|own| *own == self.name);
        let calls = whole.complete();
        let intervals = calls.iter().filter(is_own).map(|&(time, begin, cpu, thread, _)| {
            let tid = of.threads.settled(thread).tid();
            interval(tid.map_or_else(|| "?".into(), |tid| tid.to_string().into()), (begin, time), cpu)
        });
        table(intervals.collect(), unmatched + unfinished, &self.name, of)
    }
}

/// An analysis of the handler runs of the interrupt with this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interrupts {
    pub(super) number: u32,
}

/// The state after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Partial {
    /// By CPU.
    pairs: Pairs<Nanos, (Nanos, u32)>,
    /// Begin, duration in nanoseconds, and CPU of each run.
    found: Vec<(Nanos, u64, u32)>,
}

impl Analysis for Interrupts {
    type Partial = Partial;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[(Kind::IrqEntry, &[field::irq::IRQ]), (Kind::IrqExit, &[field::irq::IRQ])])
            .without_threads()
    }

    fn begin(&self, _: &Start<'_>) -> Partial {
        Partial::default()
    }

    fn fold(&self, partial: &mut Partial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let Partial { pairs, found } = partial;
        let is_irq = matches!(event.kind, Kind::IrqEntry | Kind::IrqExit);
        if !is_irq || event.integer(field::irq::IRQ) != Some(self.number.into()) {
            return;
        }
        let (time, cpu) = (event.time, event.cpu);
        match event.kind {
            Kind::IrqEntry => pairs.begin(cpu.into(), time),
            _ => {
                if let Some((begin, _)) = pairs.end(cpu.into(), (time, cpu)) {
                    found.push((begin, time.0.saturating_sub(begin.0), cpu));
                }
            }
        }
    }

    fn merge(&self, mut earlier: Partial, later: Partial, _: &Threads) -> Partial {
        let Partial { pairs, found } = &mut earlier;
        pairs.add(later.pairs, |begin, (end, cpu)| found.push((begin, end.0.saturating_sub(begin.0), cpu)));
        found.extend(later.found);
        earlier
    }

    fn finish(&self, partials: Vec<Partial>, of: &FinishContext<'_>) -> Table {
        let Partial { pairs, found } = only(partials);
        let (unmatched, unfinished) = pairs.left();
        let intervals = found.iter().map(|&(begin, time, cpu)| interval(Arc::default(), (begin, time), cpu));
        table(intervals.collect(), unmatched + unfinished, &format!("interrupt {}", self.number), of)
    }
}

//! `irq --by interval`: each run of a handler, from its begin to its end.

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, FinishContext, Heading, Interest, Item, Shape, Start, Table, TableBuilder, Unit,
    kernel::{Kind, Record, Threads, field},
    only,
    table::Cell,
};
use serde::{Deserialize, Serialize};

use crate::{columns::interval_columns, pairs::Pairs, settling::SettlingRows};

use super::{InterruptIntervalEnd, NUMBER, Phase, SOFTIRQS, key};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct InterruptIntervals;

/// A handler's begin, and its name.
type HandlerBegin = (Nanos, Box<str>);

/// A complete run of a handler, but for its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct HandlerRow {
    cpu: u32,
    phase: Phase,
    number: u32,
    begin: Nanos,
    name: Box<str>,
}

/// Complete runs of handlers, and those in progress.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HandlerRuns {
    hard: Pairs<HandlerBegin, InterruptIntervalEnd>,
    soft: Pairs<HandlerBegin, InterruptIntervalEnd>,
    rows: SettlingRows<HandlerRow>,
}

fn row(phase: Phase, (begin, name): HandlerBegin, end: InterruptIntervalEnd) -> (Nanos, HandlerRow) {
    let InterruptIntervalEnd { time, cpu, number } = end;
    (time, HandlerRow { cpu, phase, number, begin, name })
}

impl Analysis for InterruptIntervals {
    type Partial = HandlerRuns;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[
            (Kind::IrqEntry, &[field::irq::IRQ, field::irq::NAME]),
            (Kind::IrqExit, &[field::irq::IRQ]),
            (Kind::SoftirqEntry, &[field::softirq::VEC]),
            (Kind::SoftirqExit, &[field::softirq::VEC]),
        ])
        .without_threads()
    }

    fn begin(&self, _: &Start<'_>) -> HandlerRuns {
        HandlerRuns::default()
    }

    fn fold(&self, partial: &mut HandlerRuns, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let HandlerRuns { hard, soft, rows } = partial;
        let Some(number) = event.integer(NUMBER).map(|number| number as u32) else { return };
        let Record { time, cpu, .. } = **event;
        let (key, end) = (key(cpu, number), InterruptIntervalEnd { time, cpu, number });
        let complete = match event.kind {
            Kind::IrqEntry => {
                let name = String::from_utf8_lossy(event.text(field::irq::NAME).unwrap_or_default());
                return hard.begin(key, (time, name.into()));
            }
            Kind::IrqExit => hard.end(key, end).map(|(begin, end)| row(Phase::Hard, begin, end)),
            Kind::SoftirqEntry => {
                let name = SOFTIRQS.get(number as usize).copied().unwrap_or_default();
                return soft.begin(key, (time, name.into()));
            }
            Kind::SoftirqExit => soft.end(key, end).map(|(begin, end)| row(Phase::Soft, begin, end)),
            _ => None,
        };
        complete.into_iter().for_each(|(end, row)| rows.see(end, row));
    }

    fn merge(&self, mut earlier: HandlerRuns, later: HandlerRuns, _: &Threads) -> HandlerRuns {
        let HandlerRuns { hard, soft, rows } = &mut earlier;
        rows.add(later.rows, |row| row);
        let mut see = |(end, row)| rows.see(end, row);
        hard.add(later.hard, |begin, end| see(row(Phase::Hard, begin, end)));
        soft.add(later.soft, |begin, end| see(row(Phase::Soft, begin, end)));
        earlier
    }

    fn heading(&self) -> Option<Heading> {
        let mut columns = interval_columns().to_vec();
        columns.extend([
            Column::integer("cpu", Unit::None),
            Column::name("kind"),
            Column::integer("number", Unit::None),
            Column::name("name"),
        ]);
        Some(Heading { name: "irq", shape: Shape::Intervals, columns })
    }

    fn settle(&self, partial: &mut HandlerRuns, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let settled = partial.rows.settle(context.span.1);
        partial.rows.settled += add_rows(settled, context, rows);
    }

    fn finish(&self, partials: Vec<HandlerRuns>, context: &FinishContext<'_>) -> Table {
        let HandlerRuns { hard, soft, rows: mut runs } = only(partials);
        let (hard, soft) = (hard.left(), soft.left());
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let count = runs.settled + add_rows(runs.rest(), context, &mut rows);
        rows.finish(vec![
            ("intervals", count.into()),
            ("unmatched", (hard.unmatched + soft.unmatched).into()),
            ("unfinished", (hard.unfinished + soft.unfinished).into()),
            ("left_out", runs.left_out.into()),
        ])
    }
}

/// Adds the runs on the selected CPUs by end. Returns how many.
fn add_rows(mut runs: Vec<(Nanos, HandlerRow)>, context: &FinishContext<'_>, rows: &mut TableBuilder) -> u64 {
    runs.retain(|(_, run)| context.selection.wants_cpu(run.cpu));
    crate::settling::add_in_order(runs, rows, |table, (end, run)| {
        let name = if run.name.is_empty() { Cell::Null } else { Cell::Text(&run.name) };
        table.row([
            run.begin.0.into(),
            end.0.saturating_sub(run.begin.0).into(),
            u64::from(run.cpu).into(),
            run.phase.name().into(),
            u64::from(run.number).into(),
            name,
        ]);
    })
}

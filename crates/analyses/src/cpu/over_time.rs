//! `cpu --by time`: how busy were the CPUs at which time?

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, FinishContext, Interest, Item, Shape, Start, Table, Unit,
    kernel::{Kind, Thread, Threads, field::switch},
    only,
};
use serde::{Deserialize, Serialize};

use crate::{
    bins::{ValueBins, overlap},
    columns::share,
};

use super::{
    missing_of,
    time_slices::{CpuSlice, Missing, TimeSlices},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct CpuOverTime;

/// CPU use by thread and time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UseOverTime {
    /// The time that each thread ran on each CPU.
    bins: ValueBins<(Thread, u32)>,
    slices: TimeSlices,
}

impl UseOverTime {
    fn ran(&mut self, slice: &CpuSlice) {
        if let Some(thread) = slice.thread {
            self.bins.see((thread, slice.cpu), (slice.from, slice.to), 1);
        }
    }
}

impl Analysis for CpuOverTime {
    type Partial = UseOverTime;

    fn interest(&self) -> Interest<'_> {
        Interest::events(const { &[(Kind::SchedSwitch, &[switch::PREV_TID, switch::NEXT_TID])] })
    }

    fn begin(&self, _: &Start<'_>) -> UseOverTime {
        UseOverTime::default()
    }

    fn fold(&self, partial: &mut UseOverTime, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        if let Some(slice) = partial.slices.see(event) {
            partial.ran(&slice);
        }
    }

    fn merge(&self, mut earlier: UseOverTime, later: UseOverTime, _: &Threads) -> UseOverTime {
        earlier.bins.add(later.bins, |key| key);
        earlier.slices.add(later.slices).iter().for_each(|slice| earlier.ran(slice));
        earlier
    }

    fn finish(&self, partials: Vec<UseOverTime>, context: &FinishContext<'_>) -> Table {
        let mut whole = only(partials);
        let ends: Vec<CpuSlice> = whole.slices.ends(context.span, context.threads).collect();
        ends.iter().for_each(|slice| whole.ran(slice));
        let UseOverTime { bins, slices } = whole;
        let mut missing: Vec<(u32, Missing)> = slices.missing(context.span.0, context.threads).collect();
        missing.retain(|(cpu, _)| context.selection.wants_cpu(*cpu));
        let cpus = missing.len() as u64;
        let width = bins.width();
        let mut rows: std::collections::BTreeMap<Nanos, u64> = std::collections::BTreeMap::new();
        for ((begin, (thread, cpu)), bin) in bins.into_bins() {
            let is_wanted = context.selection.wants_cpu(cpu)
                && !thread.is_idle()
                && context.threads.wanted(thread, context.selection);
            *rows.entry(begin).or_default() += if is_wanted { bin.area } else { 0 };
        }
        let total: u64 = rows.values().sum();
        let mut summary = vec![("cpus", cpus.into()), ("busy_ns", total.into()), ("width_ns", width.into())];
        summary.extend(missing_of(missing.iter().map(|(_, own)| own)));
        let columns = vec![
            Column::integer("begin_ns", Unit::Nanoseconds),
            Column::integer("busy_ns", Unit::Nanoseconds),
            Column::real("busy_share", Unit::Share),
        ];
        let rows = rows.into_iter().map(|(begin, busy)| {
            let length = overlap(begin, width, context.span).saturating_mul(cpus);
            vec![begin.0.into(), busy.into(), share(busy, length)]
        });
        Table::new("cpu", Shape::Points, summary, columns, rows)
    }
}

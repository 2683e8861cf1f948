//! `memory`: how many pages of memory were allocated and freed for each thread?
//!
//! An `mm_page_alloc` or `mm_page_free` event stands for 2^`order` pages. Pages count to the thread that runs on the
//! CPU, even if an interrupt handler allocates them.

use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, Made, Report, Shape, Start,
    Table, Takes, Unit,
    kernel::{Kind, Thread, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::most_first,
    durations::{Add, add_all, add_fields},
    per_thread_sums::{PerThreadSums, RowsOf},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct PageAllocations;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "memory",
            help: "kernel events: pages of memory allocated and freed for each process",
            views: &["process", "thread"],
            takes: Takes::THREADS_AND_CPUS,
            in_all: true,
            ..Description::EMPTY
        },
        make: |_| Made::of_events(PageAllocations),
    }
}

/// Returns the number of pages of an allocation with this order; 1 if the order is invalid.
pub(crate) fn pages_of_order(order: Option<i64>) -> u64 {
    // An upper bound of the kernel's orders.
    const MOST_ORDER: i64 = 32;
    1 << order.filter(|order| (0..MOST_ORDER).contains(order)).unwrap_or(0)
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct AllocatedPages {
    allocations: u64,
    allocated: u64,
    frees: u64,
    freed: u64,
}

add_fields!(AllocatedPages { allocations, allocated, frees, freed });

/// Page counts by thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PageCounts(PerThreadSums<(), AllocatedPages>);

impl Analysis for PageAllocations {
    type Partial = PageCounts;

    fn interest(&self) -> Interest<'_> {
        Interest::events(
            const { &[(Kind::PageAlloc, &[field::page::ORDER]), (Kind::PageFree, &[field::page::ORDER])] },
        )
    }

    fn begin(&self, _: &Start<'_>) -> PageCounts {
        PageCounts::default()
    }

    fn fold(&self, partial: &mut PageCounts, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let pages = pages_of_order(event.integer(field::page::ORDER));
        let counts = match event.kind {
            Kind::PageAlloc => {
                AllocatedPages { allocations: 1, allocated: pages, ..AllocatedPages::default() }
            }
            Kind::PageFree => AllocatedPages { frees: 1, freed: pages, ..AllocatedPages::default() },
            _ => return,
        };
        partial.0.of(event.thread, event.cpu, ()).add(counts);
    }

    fn merge(&self, mut earlier: PageCounts, later: PageCounts, threads: &Threads) -> PageCounts {
        earlier.0.add(later.0, threads);
        earlier
    }

    fn finish(&self, partials: Vec<PageCounts>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let threads = context.threads;
        let rows_of = if context.selection.view == "thread" { RowsOf::Threads } else { RowsOf::Processes };
        let mut rows: FxHashMap<Thread, AllocatedPages> = FxHashMap::default();
        add_all(
            &mut rows,
            whole.0.wanted(context).map(|(key, pages)| (rows_of.of(threads, key.thread), *pages)),
        );
        let mut all = AllocatedPages::default();
        rows.values().for_each(|pages| all.add(*pages));
        let cells = |pages: &AllocatedPages| [pages.allocated, pages.freed, pages.allocations, pages.frees];
        let names = ["pages_allocated", "pages_freed", "allocations", "frees"];
        let summary = names.into_iter().zip(cells(&all).map(Into::into)).collect();
        let mut columns = rows_of.columns();
        columns.extend(names.map(|name| Column::integer(name, Unit::Count)));
        let rows = most_first(rows.into_iter().map(|(thread, pages)| {
            let mut row = rows_of.cells(threads, thread);
            row.extend(cells(&pages).map(Into::into));
            ((pages.allocated + pages.freed, thread), row)
        }));
        Table::new("memory", Shape::Counters, summary, columns, rows)
    }
}

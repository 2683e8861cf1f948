//! `io --by cache`: how many pages of each file entered and left the page cache?

use hodo_model::{
    Analysis, Column, FinishContext, Interest, Item, Shape, Start, Table, Unit, Value,
    kernel::{Kind, Threads, field},
    only,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    columns::most_first,
    durations::{Add, add_all, add_fields},
    memory::pages_of_order,
    per_thread_sums::PerThreadSums,
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct PageCache;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct CachedPages {
    added: u64,
    deleted: u64,
}

add_fields!(CachedPages { added, deleted });

/// Page counts by device and inode.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CacheChanges(PerThreadSums<(u32, u64), CachedPages>);

impl Analysis for PageCache {
    type Partial = CacheChanges;

    fn interest(&self) -> Interest<'_> {
        use field::cache::{DEV, INODE, ORDER};
        Interest::events(
            const { &[(Kind::CacheAdd, &[DEV, INODE, ORDER]), (Kind::CacheDelete, &[DEV, INODE, ORDER])] },
        )
    }

    fn begin(&self, _: &Start<'_>) -> CacheChanges {
        CacheChanges::default()
    }

    fn fold(&self, partial: &mut CacheChanges, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        if !matches!(event.kind, Kind::CacheAdd | Kind::CacheDelete) {
            return;
        }
        let pages = pages_of_order(event.integer(field::cache::ORDER));
        let number = |field| event.integer(field).unwrap_or(0) as u64;
        let file = (number(field::cache::DEV) as u32, number(field::cache::INODE));
        partial.0.of(event.thread, event.cpu, file).add(match event.kind {
            Kind::CacheAdd => CachedPages { added: pages, deleted: 0 },
            _ => CachedPages { added: 0, deleted: pages },
        });
    }

    fn merge(&self, mut earlier: CacheChanges, later: CacheChanges, threads: &Threads) -> CacheChanges {
        earlier.0.add(later.0, threads);
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn finish(&self, partials: Vec<CacheChanges>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let mut files: FxHashMap<(u32, u64), CachedPages> = FxHashMap::default();
        add_all(&mut files, whole.0.wanted(context).map(|(key, pages)| (*key.key, *pages)));
        let mut all = CachedPages::default();
        files.values().for_each(|pages| all.add(*pages));
        let summary = vec![("pages_added", all.added.into()), ("pages_deleted", all.deleted.into())];
        let columns = vec![
            Column::name("device"),
            Column::integer("inode", Unit::None),
            Column::integer("pages_added", Unit::Count),
            Column::integer("pages_deleted", Unit::Count),
        ];
        let rows = most_first(files.into_iter().map(|((device, inode), pages)| {
            let row: Vec<Value> = vec![
                super::device_numbers(device).into(),
                inode.into(),
                pages.added.into(),
                pages.deleted.into(),
            ];
            ((pages.added + pages.deleted, (device, inode)), row)
        }));
        Table::new("io", Shape::Counters, summary, columns, rows)
    }
}

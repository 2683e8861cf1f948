//! The law for event counts: any chunks, merged in any grouping, give the tables of one chunk.

use hodo_clock::OriginNanos;
use hodo_model::{
    AnyAnalysis, AnyPartial, Bin, Counts, FinishContext, Item, NoSources, Selection, Start, Table,
    kernel::Threads,
};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::traces::{flow::merge_all, parts::parts_of};

/// The width of time spans.
const WIDTH: i128 = 10;
/// The names of the classes of events, two of which have the same.
const NAMES: [&str; 4] = ["open", "close", "open", "tick"];

/// Counts of a stream.
#[derive(Clone, Copy, Debug)]
struct Counted {
    stream: u32,
    /// The number of the time span.
    bin: Option<i8>,
    /// By name.
    counts: [u64; NAMES.len()],
    /// Events and packets.
    lost: [u64; 2],
    time: i64,
}

fn counted() -> impl Strategy<Value = Counted> {
    let (counts, lost) = ([0u64..9, 0u64..9, 0u64..9, 0u64..9], [0u64..9, 0u64..3]);
    (0u32..3, any::<Option<i8>>(), counts, lost, any::<i64>())
        .prop_map(|(stream, bin, counts, lost, time)| Counted { stream, bin, counts, lost, time })
}

fn fold(analysis: &dyn AnyAnalysis, items: &[Counted]) -> AnyPartial {
    let mut partial = analysis.begin(&Start::default());
    for &Counted { stream, bin, counts, lost: [events_lost, packets_lost], time } in items {
        let events: Vec<_> = NAMES.into_iter().zip(counts).collect();
        let time = OriginNanos(time.into());
        analysis.fold_item(
            &mut partial,
            Item::Counts(&Counts {
                stream: (0, stream),
                name: ["a", "b", "c"][stream as usize],
                events: &events,
                events_lost,
                packets_lost,
                span: Some((time, time)),
                bin: bin.map(|number| Bin { number: number.into(), width: WIDTH }),
                width: WIDTH,
            }),
        );
    }
    // The serialized form must contain the whole partial.
    analysis.unpack(&analysis.pack(&partial)).expect("what was packed can be unpacked")
}

fn tables(analysis: &dyn AnyAnalysis, views: &[&str], partial: &AnyPartial) -> Vec<Table> {
    let no_threads = Threads::default();
    let table = |view: &&str| {
        let selection = Selection { view: (*view).to_owned(), ..Selection::default() };
        let copy = analysis.unpack(&analysis.pack(partial)).expect("what was packed can be unpacked");
        analysis.finish(vec![copy], &FinishContext::without_events(&selection, &no_threads, &NoSources))
    };
    views.iter().map(table).collect()
}

/// Checks that the tables of some views are the same for every cut.
pub(crate) fn holds_always(
    analysis: &dyn AnyAnalysis,
    views: &[&str],
    config: ProptestConfig,
) -> Result<(), String> {
    let items = prop::collection::vec(counted(), 0..30);
    let case = (items, prop::collection::vec(any::<bool>(), 30), prop::collection::vec(0usize..30, 1..8));
    let mut runner = TestRunner::new(config);
    let run = runner.run(&case, |(items, cuts, choices)| {
        let ranges = parts_of(items.len(), |end| cuts[end]).into_iter();
        let mut parts: Vec<_> = ranges.map(|range| fold(analysis, &items[range])).collect();
        if parts.is_empty() {
            parts.push(fold(analysis, &[]));
        }
        let merged = merge_all(analysis, parts, &choices);
        prop_assert_eq!(tables(analysis, views, &fold(analysis, &items)), tables(analysis, views, &merged));
        Ok(())
    });
    run.map_err(|error| error.to_string())
}

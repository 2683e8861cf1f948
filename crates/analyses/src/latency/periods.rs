//! Intervals from one software event to another.

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, FinishContext, Interest, Item, Period, Start, Table,
    kernel::{Kind, Threads, field},
    only,
};
use serde::{Deserialize, Serialize};

use super::{Interval, IntervalEnd, tables::FoundIntervals};
use crate::{
    pairs::{Pairs, Unpaired},
    periods::BegunPeriod,
};

/// An analysis of each period.
#[derive(Clone, Debug)]
pub(super) struct PeriodLatency {
    /// The definition of a period.
    pub(super) period: Period,
}

/// The state after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct MatchedPeriods {
    pairs: Pairs<BegunPeriod, Nanos, String>,
    found: Vec<EndedPeriod>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct EndedPeriod {
    /// The matched values.
    key: String,
    begun: BegunPeriod,
    end: Nanos,
}

impl Analysis for PeriodLatency {
    type Partial = MatchedPeriods;

    fn interest(&self) -> Interest<'_> {
        use field::period::{GROUP, KEY};
        Interest::events(&[(Kind::PeriodBegin, &[KEY, GROUP]), (Kind::PeriodEnd, &[KEY])])
            .without_threads()
            .with_period(Some(&self.period))
    }

    fn begin(&self, start: &Start<'_>) -> MatchedPeriods {
        MatchedPeriods { pairs: Pairs::new(start.is_first), found: Vec::new() }
    }

    fn fold(&self, partial: &mut MatchedPeriods, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let key = String::from_utf8_lossy(event.text(field::period::KEY).unwrap_or_default()).into_owned();
        match event.kind {
            Kind::PeriodBegin => partial.pairs.begin(key, BegunPeriod::of(event)),
            Kind::PeriodEnd => {
                if let Some((begun, end)) = partial.pairs.end(key.clone(), event.time) {
                    partial.found.push(EndedPeriod { key, begun, end });
                }
            }
            _ => {}
        }
    }

    fn merge(&self, mut earlier: MatchedPeriods, later: MatchedPeriods, _: &Threads) -> MatchedPeriods {
        let MatchedPeriods { pairs, found } = &mut earlier;
        pairs.add_keyed(later.pairs, |key, begun, end| {
            found.push(EndedPeriod { key: key.clone(), begun, end })
        });
        found.extend(later.found);
        earlier
    }

    fn finish(&self, partials: Vec<MatchedPeriods>, context: &FinishContext<'_>) -> Table {
        let MatchedPeriods { pairs, mut found } = only(partials);
        let Unpaired { unmatched, unfinished } = pairs.left();
        found.sort_by(|x, y| {
            let ends = (x.begun.begin, &x.key, x.end).cmp(&(y.begun.begin, &y.key, y.end));
            ends.then_with(|| x.begun.cmp(&y.begun))
        });
        let intervals =
            found.into_iter().zip(1..).map(|(EndedPeriod { key, begun, end }, number)| Interval {
                thread: key.into(),
                number,
                begin: Some(begun.begin.0),
                time: Some(end.0.saturating_sub(begun.begin.0)),
                instructions: None,
                cycles: None,
                first: None,
                caller: begun.group.into(),
                cpu: Some(begun.cpu.into()),
                level: 0,
                ended: IntervalEnd::Returned,
            });
        let (intervals, unmatched) = (intervals.collect(), unmatched + unfinished);
        FoundIntervals { intervals, unmatched, ..FoundIntervals::default() }.table(context)
    }
}

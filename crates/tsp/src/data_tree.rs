//! Statistics of the rows of a table: how many records begin in a span, and how much of it they fill.

use std::collections::BTreeMap;

use hodo_store::{Budget, Lanes, Slices, widened};

use crate::{
    Service,
    model::{TimeRange, TreeEntry, TreeHeader, TreeModel},
    output::Outcome,
};

/// Cells of time into which a span is divided. The span is widened to whole cells.
const CELLS: usize = 64;

/// Sums over the records of a row.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Number of records that begin in the span.
    records: u64,
    /// Nanoseconds of the span that records fill.
    time: u64,
}

impl Service {
    /// Returns the statistics of a span; of all time without one. The remark names the span.
    pub(crate) fn statistics(
        &self,
        number: usize,
        range: Option<TimeRange>,
        budget: &Budget,
    ) -> Outcome<TreeModel> {
        let table = self.table(number);
        let (first, last) = table.span().unwrap_or_default();
        let whole = (first, last.saturating_add(1));
        let asked =
            range.map(TimeRange::span).map(|span| (span.begin.max(whole.0), span.behind.min(whole.1)));
        let (begin, behind) = asked.filter(|(begin, behind)| begin < behind).unwrap_or(whole);
        let (first, last) = widened((begin, behind), CELLS);
        let mut sums: BTreeMap<usize, Sums> = BTreeMap::new();
        let found = table.slices((begin, behind), Lanes::All, CELLS, budget)?;
        for lane in &found {
            let Some(node) = self.tree.of_lane((number, lane.lane)) else { continue };
            let sums = sums.entry(node).or_default();
            match &lane.slices {
                Slices::Cells(cells) => {
                    sums.records += cells.iter().map(|cell| cell.rows).sum::<u64>();
                    sums.time += cells.iter().map(|cell| cell.weight).sum::<u64>();
                }
                Slices::Records(records) => {
                    for record in records {
                        sums.records += u64::from((first..=last).contains(&record.begin));
                        let (from, to) = (record.begin.max(first), record.end.min(last.saturating_add(1)));
                        sums.time += to.saturating_sub(from);
                    }
                }
            }
        }
        let remark = format!("of the time from {first} ns to {last} ns");
        Ok((self.tree_of(number, &sums), remark))
    }

    fn tree_of(&self, number: usize, sums: &BTreeMap<usize, Sums>) -> TreeModel {
        let entry = |id: usize| {
            let node = self.tree.get(id).expect("a table has nodes of the tree");
            let sums = sums.get(&id);
            let cell = |sum: fn(&Sums) -> u64| sums.map_or(String::new(), |sums| sum(sums).to_string());
            TreeEntry {
                id,
                parent_id: node.parent.map_or(-1, |parent| parent as i64),
                labels: vec![node.name.clone(), cell(|sums| sums.records), cell(|sums| sums.time)],
                has_data: sums.is_some(),
                start: None,
                end: None,
                is_default: None,
            }
        };
        let header = |(name, tooltip, data_type): (&str, &str, &'static str)| TreeHeader {
            name: name.to_owned(),
            tooltip: tooltip.to_owned(),
            data_type,
        };
        let headers = [
            ("Name", "", "STRING"),
            ("Records", "records that begin in the span", "NUMBER"),
            ("Time", "nanoseconds of the span that they fill", "DURATION"),
        ];
        let entries = self.tree.of_table(number).into_iter().map(entry).collect();
        TreeModel { entries, headers: headers.map(header).into(), auto_expand_level: -1 }
    }
}

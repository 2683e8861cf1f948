//! Time graphs: rows of states, arrows between them, and what a click shows.

use std::collections::{BTreeMap, HashSet};

use hodo_store::{Budget, LaneSlices, Lanes, Record, Shape, Slices, Table, TimeCell, Wanted};

use crate::{
    Service,
    model::{
        Arrow, Map, RequestedParameters, Rows, State, TimeGraphRow, TimeRange, TooltipParameters, TreeEntry,
        TreeHeader, TreeModel,
    },
    output::{Kind, Outcome, SampledSpan},
    style,
};

/// The most arrows of an answer.
const MOST_ARROWS: usize = 10_000;

impl Service {
    /// Returns the rows of a table in an output of a kind, with the rows above them.
    pub(crate) fn rows(&self, table: usize, kind: Kind) -> TreeModel {
        let is_chart = kind == Kind::Chart;
        let (start, end) = (self.experiment.start, self.experiment.end);
        let entry = |id: usize| {
            let node = self.tree.get(id).expect("a table has nodes of the tree");
            let has_data = node.lanes.iter().any(|(own, _)| *own == table);
            TreeEntry {
                id,
                parent_id: node.parent.map_or(-1, |parent| parent as i64),
                labels: vec![node.name.clone()],
                has_data,
                start: (!is_chart).then_some(start),
                end: (!is_chart).then_some(end),
                is_default: is_chart.then_some(has_data),
            }
        };
        let header = TreeHeader { name: "Name".to_owned(), tooltip: String::new(), data_type: "STRING" };
        let entries = self.tree.of_table(table).into_iter().map(entry).collect();
        TreeModel { entries, headers: vec![header], auto_expand_level: -1 }
    }

    /// Returns the states of rows: each record where few are in view, else cells of time, each with its heaviest value.
    pub(crate) fn states(
        &self,
        number: usize,
        asked: &RequestedParameters,
        budget: &Budget,
    ) -> Outcome<Rows> {
        let (table, span) = (self.table(number), asked.requested_timerange.span());
        let lanes = self.tree.lanes(number, &asked.requested_items);
        let numbers: Vec<u32> = lanes.iter().map(|(lane, _)| *lane).collect();
        let found = table.slices(
            (span.begin, span.behind),
            Lanes::Some(&numbers),
            span.slices(numbers.len()),
            budget,
        )?;
        let mut rows: BTreeMap<usize, Vec<State>> = BTreeMap::new();
        for (lane, node) in lanes {
            let states = rows.entry(node).or_default();
            if let Ok(index) = found.binary_search_by_key(&lane, |slices| slices.lane) {
                states.extend(self.lane_states(table, &found[index]));
            }
        }
        let rows = rows.into_iter().map(|(entry_id, states)| TimeGraphRow { entry_id, states });
        Ok((Rows { rows: rows.collect() }, String::new()))
    }

    /// Returns the states of a lane.
    fn lane_states(&self, table: Table<'_>, lane: &LaneSlices) -> Vec<State> {
        let name = |value| self.store.words(table.schema().value.kind, value);
        match &lane.slices {
            Slices::Records(records) => records
                .iter()
                .map(|record| {
                    let label = name(record.value);
                    State { start: record.begin, end: record.end, style: style::of(&label, None), label }
                })
                .collect(),
            Slices::Cells(cells) => cells.iter().map(|cell| state_of_cell(cell, name)).collect(),
        }
    }

    /// Returns the arrows of all tables of links whose rows are rows of a table.
    pub(crate) fn arrows(&self, number: usize, range: TimeRange, budget: &Budget) -> Outcome<Vec<Arrow>> {
        let SampledSpan { begin, behind, .. } = range.span();
        let nodes: HashSet<usize> = self.tree.of_table(number).into_iter().collect();
        let is_row = |node: &usize| nodes.contains(node);
        let (mut arrows, mut remark) = (Vec::new(), String::new());
        let tables = self.store.tables().enumerate();
        for (links, table) in tables.filter(|(_, table)| table.schema().shape == Shape::Links) {
            let node = |lane: u32| self.tree.of_lane((links, lane)).filter(is_row);
            let wanted = Wanted { span: (begin, behind), ..Wanted::ALL };
            let found = table.records(&wanted, None, MOST_ARROWS, budget)?;
            if found.len() == MOST_ARROWS {
                let all =
                    table.count_before(behind, budget)?.saturating_sub(table.count_before(begin, budget)?);
                remark = format!("the first {MOST_ARROWS} of {all} arrows");
            }
            let arrow = |record: &Record| {
                let target = u32::try_from(record.value?).ok().and_then(node)?;
                let (start, end) = (record.begin, record.end);
                Some(Arrow { source_id: node(record.lane)?, target_id: target, start, end })
            };
            arrows.extend(found.iter().filter_map(arrow));
        }
        Ok((arrows, remark))
    }

    /// Returns the columns of the record that a row has at a time.
    pub(crate) fn tooltip(
        &self,
        number: usize,
        asked: &TooltipParameters,
        budget: &Budget,
    ) -> Outcome<Map<String>> {
        let table = self.table(number);
        let time = asked.requested_times.first().copied().unwrap_or(asked.requested_element.time);
        let lanes: Vec<u32> =
            self.tree.lanes(number, &asked.requested_items).into_iter().map(|(lane, _)| lane).collect();
        if asked.requested_element.element_type != "STATE" {
            return Ok((Map::new(), String::new()));
        }
        let found = table.at(u64::try_from(time).unwrap_or(0), Lanes::Some(&lanes), budget)?;
        let tip = found.first().map(|record| {
            let columns = self.columns(table).into_iter().map(|(name, ..)| name);
            columns.zip(self.cells(table, record)).collect()
        });
        Ok((tip.unwrap_or_default(), String::new()))
    }
}

/// Returns a cell of time as a state of its heaviest value.
fn state_of_cell(cell: &TimeCell, name: impl Fn(Option<u64>) -> String) -> State {
    let Some(&(value, weight)) = cell.values.first() else {
        let label = format!("{} records", cell.rows);
        return State {
            start: cell.begin,
            end: cell.last.saturating_add(1),
            style: style::of(&label, None),
            label,
        };
    };
    let label = name(value);
    let width = (cell.last - cell.begin).saturating_add(1);
    let style = style::of(&label, Some(weight as f64 / width as f64));
    State { start: cell.begin, end: cell.last.saturating_add(1), label, style }
}

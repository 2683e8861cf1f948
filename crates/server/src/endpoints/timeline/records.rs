//! Single records: at an instant, next to it, and the longest of a span.

use std::sync::Arc;

use hodo_store::{Lanes, Record, Table, Wanted};
use serde_json::{Value, json};

use super::values::value;
use crate::{
    answer::{Answer, Failure, Question},
    index::Snapshot,
};

/// Records of an instant, at most.
const MOST_AT: usize = 16;
/// The longest records that a page lists.
const MOST_LONGEST: usize = 20;
/// Rows that a question may decode.
const BUDGET: u64 = 1 << 25;

/// A question about a table at a point in time.
struct RecordQuery<'q> {
    question: &'q Question<'q>,
    snapshot: Arc<Snapshot>,
}

impl<'q> RecordQuery<'q> {
    fn of(question: &'q Question<'q>) -> Result<RecordQuery<'q>, Failure> {
        Ok(RecordQuery { question, snapshot: super::snapshot(question)? })
    }

    fn table(&self) -> Result<Table<'_>, Failure> {
        super::table(self.question, &self.snapshot)
    }

    /// Returns a time of the question, which is relative to the origin.
    fn time(&self, name: &str) -> Result<u64, Failure> {
        Ok(self.snapshot.origin.saturating_add(self.question.number(name)?))
    }

    fn record(&self, table: &Table<'_>, record: &Record) -> Value {
        let (store, schema) = (&self.snapshot.store, table.schema());
        let cells = record.cells.iter().zip(&schema.columns).map(|(cell, field)| {
            json!({ "name": field.name, "unit": field.unit, "value": value(store, *cell, field.kind) })
        });
        json!({
            "lane": record.lane,
            "begin": self.snapshot.since(record.begin),
            "end": self.snapshot.since(record.end),
            "absolute": record.begin.to_string(),
            "value": value(store, record.value, schema.value.kind),
            "cells": cells.collect::<Vec<_>>(),
        })
    }

    fn answer(&self, table: &Table<'_>, records: &[Record]) -> Result<Answer, Failure> {
        let records: Vec<Value> = records.iter().map(|record| self.record(table, record)).collect();
        Answer::json(&json!({ "records": records }))
    }
}

pub(super) fn at(question: &Question<'_>) -> Result<Answer, Failure> {
    let query = RecordQuery::of(question)?;
    let (table, lane, time) = (query.table()?, question.number("lane")?, query.time("time")?);
    let wanted = Wanted { lanes: Lanes::Some(&[lane]), span: (time, time.saturating_add(1)), ..Wanted::ALL };
    let records = table.records(&wanted, None, MOST_AT, &question.budget(BUDGET))?;
    query.answer(&table, &records)
}

pub(super) fn change(question: &Question<'_>) -> Result<Answer, Failure> {
    let query = RecordQuery::of(question)?;
    let (table, lane, time) = (query.table()?, question.number("lane")?, query.time("time")?);
    let budget = question.budget(BUDGET);
    let found = match question.text("next") {
        "true" => table.next_change(lane, time, &budget)?,
        _ => table.previous_change(lane, time, &budget)?,
    };
    Answer::json(&json!({ "time": found.map(|time| query.snapshot.since(time)) }))
}

pub(super) fn longest(question: &Question<'_>) -> Result<Answer, Failure> {
    let query = RecordQuery::of(question)?;
    let (table, span) = (query.table()?, (query.time("begin")?, query.time("end")?));
    let records = table.longest(&Wanted { span, ..Wanted::ALL }, MOST_LONGEST, &question.budget(BUDGET))?;
    query.answer(&table, &records)
}

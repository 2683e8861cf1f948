//! Tables that a statement reads, made in one pass over the events.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError, atomic::Ordering::Relaxed},
};

use hodo_engine::Request;
use hodo_model::{Heading, Table, table::RecordBatch};

use super::sources::Common;
use crate::progress::Progress;

/// A table whose rows leave as they settle.
pub(super) struct Settling {
    pub(super) request: Request,
    pub(super) heading: Heading,
    /// By column: whether the statement reads it.
    pub(super) read: Vec<bool>,
}

/// The tables that the statement will ask for, by the numbers of their sources.
#[derive(Default)]
pub(super) struct Together(Mutex<BTreeMap<usize, Expected>>);

enum Expected {
    Wanted(Box<Settling>),
    /// Another table's pass made it, with these columns.
    Made(Vec<bool>, Table),
}

impl Together {
    /// Says that the statement will ask for a table; or that it won't.
    pub(super) fn expect(&self, number: usize, table: Option<Settling>) {
        let mut expected = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match table {
            Some(table) => _ = expected.insert(number, Expected::Wanted(Box::new(table))),
            None => _ = expected.remove(&number),
        }
    }

    /// Returns a table, if another one's pass made it with these columns.
    fn take(&self, number: usize, read: &[bool]) -> Option<Table> {
        let mut expected = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match expected.remove(&number)? {
            Expected::Made(has, table) if read.iter().zip(&has).all(|(read, has)| *has || !read) => {
                Some(table)
            }
            _ => None,
        }
    }

    /// Takes the tables that are not made yet.
    fn take_wanted(&self) -> Vec<(usize, Settling)> {
        let mut expected = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |_: &usize, table: &mut Expected| matches!(table, Expected::Wanted(_));
        let wanted = expected.extract_if(.., is_wanted);
        let settling = |(number, table)| match table {
            Expected::Wanted(settling) => Some((number, *settling)),
            Expected::Made(..) => None,
        };
        wanted.filter_map(settling).collect()
    }

    /// Makes a table, and with it those that the statement will ask for. That takes two passes.
    pub(super) fn make(&self, number: usize, own: Settling, common: &Common) -> Result<Table, String> {
        if let Some(table) = self.take(number, &own.read) {
            return Ok(table);
        }
        let mut all = vec![(number, own)];
        all.extend(self.take_wanted());
        let tables = stream(&all, common)?;
        let mut made =
            all.into_iter().zip(tables).map(|((number, settling), table)| (number, settling.read, table));
        let own = made.next().map(|(_, _, table)| table).ok_or("no table was made")?;
        let mut expected = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        expected.extend(made.map(|(number, read, table)| (number, Expected::Made(read, table))));
        Ok(own)
    }
}

/// Makes a table for each.
fn stream(all: &[(usize, Settling)], common: &Common) -> Result<Vec<Table>, String> {
    const PASSES: u64 = 2;
    let Common { experiment, stop, quiet, is_kept, .. } = common;
    let requests: Vec<Request> = all.iter().map(|(_, settling)| settling.request.clone()).collect();
    let read: Vec<Vec<bool>> = all.iter().map(|(_, settling)| settling.read.clone()).collect();
    let read = Some(&read[..]).filter(|_| !is_kept);
    let mut builders: Vec<_> = all.iter().map(|(_, settling)| settling.heading.clone().builder()).collect();
    let progress = Progress::new_stopped_by(stop, PASSES * experiment.work(&requests[0]), *quiet);
    let mut add = |table: usize, batch: &RecordBatch| {
        builders[table].add_batch(batch);
        true
    };
    let outcome = experiment.stream_all(&requests, read, &mut add, &mut |done| progress.set(done));
    progress.finish();
    let last = outcome.map_err(|refusal| refusal.to_string())?.tables;
    if stop.load(Relaxed) {
        return Err("interrupted".to_owned());
    }
    if last.len() != builders.len() {
        return Err(format!("{} tables in place of {}", last.len(), builders.len()));
    }
    let finished = builders.into_iter().zip(last).map(|(mut builder, last)| {
        last.batches().iter().for_each(|batch| builder.add_batch(batch));
        builder.finish(last.summary).with_loss(last.loss)
    });
    Ok(finished.collect())
}

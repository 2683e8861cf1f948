//! The dictionary of names and lanes: each is stored once, and rows hold its number.

use std::{cmp::Ordering, hash::BuildHasherDefault};

use indexmap::IndexSet;
use rustc_hash::FxHasher;

use crate::{
    error::Refused,
    schema::{Kind, Schema},
};

/// A set that numbers its elements in order of insertion.
type Numbered<T> = IndexSet<T, BuildHasherDefault<FxHasher>>;

/// The cells of a lane's key.
pub(crate) type Key = Box<[Option<u64>]>;

/// The schema and the lanes of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableKeys {
    pub(crate) schema: Schema,
    pub(crate) lanes: Numbered<Key>,
}

/// The names, tables and lanes of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dictionary {
    pub(crate) names: Numbered<Box<str>>,
    pub(crate) tables: Vec<TableKeys>,
}

/// Maps old numbers to new ones.
#[derive(Debug)]
pub(crate) struct Renumbering {
    pub(crate) names: Vec<u32>,
    /// New numbers of lanes, by table.
    pub(crate) lanes: Vec<Vec<u32>>,
}

impl Dictionary {
    /// Returns the number of a name, which is added if it is new.
    pub(crate) fn name(&mut self, name: &str) -> Result<u32, Refused> {
        match self.names.get_index_of(name) {
            Some(number) => Ok(number as u32),
            None => number(self.names.insert_full(name.into()).0),
        }
    }

    /// Returns the number of a table, which is added if it is new.
    pub(crate) fn table(&mut self, schema: &Schema) -> Result<u32, Refused> {
        if !schema.fits() {
            return Err(Refused::TooMany);
        }
        match self.tables.iter().position(|table| table.schema.name == schema.name) {
            Some(index) if self.tables[index].schema == *schema => Ok(index as u32),
            Some(_) => Err(Refused::OtherTable),
            None => {
                self.tables.push(TableKeys { schema: schema.clone(), lanes: Numbered::default() });
                Ok(self.tables.len() as u32 - 1)
            }
        }
    }

    /// Returns the number of a lane, which is added if it is new.
    pub(crate) fn lane(&mut self, table: u32, key: &[Option<u64>]) -> Result<u32, Refused> {
        let names = self.names.len() as u64;
        let table = self.tables.get_mut(table as usize).ok_or(Refused::Unknown)?;
        if key.len() != table.schema.key.len() {
            return Err(Refused::Cells);
        }
        for (field, cell) in table.schema.key.iter().zip(key) {
            if field.kind == Kind::Name && cell.is_some_and(|name| name >= names) {
                return Err(Refused::Unknown);
            }
        }
        match table.lanes.get_index_of(key) {
            Some(index) => Ok(index as u32),
            None => number(table.lanes.insert_full(key.into()).0),
        }
    }

    /// Returns the dictionary with names sorted by their bytes and lanes by their keys, so that numbers do not depend
    /// on the order of insertion. Tables keep their numbers.
    pub(crate) fn in_order(&self) -> (Dictionary, Renumbering) {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_unstable_by_key(|&old| &self.names[old]);
        let names = renumbered(&order);
        let mut sorted = Dictionary {
            names: order.iter().map(|&old| self.names[old].clone()).collect(),
            tables: Vec::new(),
        };
        let mut lanes = Vec::new();
        for table in &self.tables {
            let key = |key: &Key| renumbered_key(key, &table.schema, &names);
            let keys: Vec<Key> = table.lanes.iter().map(key).collect();
            let mut order: Vec<usize> = (0..keys.len()).collect();
            order.sort_unstable_by(|&one, &other| compare(&keys[one], &keys[other], &table.schema));
            lanes.push(renumbered(&order));
            let own = order.iter().map(|&old| keys[old].clone()).collect();
            sorted.tables.push(TableKeys { schema: table.schema.clone(), lanes: own });
        }
        (sorted, Renumbering { names, lanes })
    }
}

fn number(index: usize) -> Result<u32, Refused> {
    u32::try_from(index).map_err(|_| Refused::TooMany)
}

/// Returns the new number of each old number, given the old numbers in their new order.
fn renumbered(order: &[usize]) -> Vec<u32> {
    let mut new = vec![0; order.len()];
    for (index, &old) in order.iter().enumerate() {
        new[old] = index as u32;
    }
    new
}

fn renumbered_key(key: &Key, schema: &Schema, names: &[u32]) -> Key {
    let cell = |(field, cell): (&crate::Field, &Option<u64>)| match field.kind {
        Kind::Name => cell.map(|name| u64::from(names[name as usize])),
        _ => *cell,
    };
    schema.key.iter().zip(key).map(cell).collect()
}

fn compare(one: &Key, other: &Key, schema: &Schema) -> Ordering {
    let ordered = |key: &Key, index: usize| key[index].map(|bits| schema.key[index].kind.ordered(bits));
    let indices = 0..schema.key.len();
    indices.map(|index| ordered(one, index).cmp(&ordered(other, index))).fold(Ordering::Equal, Ordering::then)
}

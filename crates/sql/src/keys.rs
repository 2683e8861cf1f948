//! Groups of rows with equal values in some columns.

use std::{cmp::Ordering, ops::Range};

use arrow_array::Array;
use hodo_model::{Column, Type, table::Cell};
use rusqlite::types::ValueRef;
use rustc_hash::FxHashMap;

use crate::{
    cells::BatchColumn,
    index::{Bounds, Ordered, Rows},
};

/// Returns whether rows can be found by equal values of a column.
pub(crate) fn is_key(column: &Column) -> bool {
    matches!(column.kind, Type::Integer | Type::Signed | Type::Text | Type::Name)
}

/// A value that rows are found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Integer(i64),
    Text(Box<[u8]>),
}

impl Key {
    /// The key of a value for a column; `None` if other values of the column may be equal to it too.
    pub(crate) fn of(value: ValueRef<'_>, column: &Column) -> Option<Key> {
        let is_text = matches!(column.kind, Type::Text | Type::Name);
        match value {
            ValueRef::Integer(integer) if !is_text => Some(Key::Integer(integer)),
            ValueRef::Text(text) if is_text => Some(Key::Text(text.into())),
            _ => None,
        }
    }
}

/// A cell as a number: an integer as it is, and a text by its number in [`Texts`]. `None` is null.
type Code = Option<i64>;

/// The distinct texts of a column, numbered as they come. None for a column of integers.
#[derive(Debug, Default)]
struct Texts(FxHashMap<Box<[u8]>, i64>);

impl Texts {
    fn number(&mut self, text: &[u8]) -> i64 {
        if let Some(&number) = self.0.get(text) {
            return number;
        }
        let number = self.0.len() as i64;
        self.0.insert(text.into(), number);
        number
    }

    /// By number of a text: its place among all in the order of their bytes, which is SQLite's.
    fn ranks(&self) -> Vec<i64> {
        let mut texts: Vec<(&[u8], i64)> = self.0.iter().map(|(text, &number)| (&**text, number)).collect();
        texts.sort_unstable();
        let mut ranks = vec![0; texts.len()];
        for (rank, (_, number)) in texts.into_iter().enumerate() {
            ranks[number as usize] = rank as i64;
        }
        ranks
    }
}

/// Not looked up yet, in a list of numbers of texts.
const UNKNOWN: i64 = -1;

/// Turns the cells of one column into codes, batch after batch.
struct Coder<'r> {
    column: &'r BatchColumn,
    /// By number in the dictionary of the batch: the number of the text.
    names: Vec<i64>,
}

impl<'r> Coder<'r> {
    fn new(column: &'r BatchColumn) -> Coder<'r> {
        let names = if let BatchColumn::Names { names, .. } = column { names.len() } else { 0 };
        Coder { column, names: vec![UNKNOWN; names] }
    }

    fn code(&mut self, row: usize, texts: &mut Texts) -> Code {
        let column = self.column;
        column.with_cell(row, |cell| match (cell, column) {
            (Cell::Text(text), BatchColumn::Names { numbers, .. }) => {
                let number = &mut self.names[numbers.value(row) as usize];
                if *number == UNKNOWN {
                    *number = texts.number(text.as_bytes());
                }
                Some(*number)
            }
            (Cell::Text(text), _) => Some(texts.number(text.as_bytes())),
            (Cell::Integer(integer), _) => Some(integer as i64),
            (Cell::Signed(integer), _) => Some(integer),
            _ => None,
        })
    }
}

/// Which rows have equal values in some columns. A row's group is found again rather than kept: tables have up to billions of
/// rows, and few groups.
struct Groups<'r> {
    rows: &'r Rows,
    /// By batch and column.
    coders: Vec<Vec<Coder<'r>>>,
    /// By column: its texts.
    texts: Vec<Texts>,
    /// The number of each group, by its values.
    numbers: FxHashMap<Box<[Code]>, u32>,
    /// By group: its rows.
    sizes: Vec<usize>,
}

impl<'r> Groups<'r> {
    fn of(rows: &'r Rows, columns: &[usize]) -> Groups<'r> {
        let coders = (0..rows.batch_count())
            .map(|batch| columns.iter().map(|&column| Coder::new(&rows.columns(batch)[column])).collect())
            .collect();
        let texts = columns.iter().map(|_| Texts::default()).collect();
        let mut groups = Groups { rows, coders, texts, numbers: FxHashMap::default(), sizes: Vec::new() };
        groups.each(|groups, _, group| groups.sizes[group as usize] += 1);
        groups
    }

    /// Passes each row on with its group, in order of begins.
    fn each(&mut self, mut see: impl FnMut(&mut Groups<'r>, u32, u32)) {
        let rows = self.rows;
        let mut place = rows.first_batch();
        let mut key: Vec<Code> = Vec::new();
        for row in rows.by_begin() {
            rows.locate(row as usize, &mut place);
            key.clear();
            for (coder, texts) in self.coders[place.batch].iter_mut().zip(&mut self.texts) {
                key.push(coder.code(row as usize - place.rows.start, texts));
            }
            let group = match self.numbers.get(&key[..]) {
                Some(&group) => group,
                None => {
                    let next = self.sizes.len() as u32;
                    self.numbers.insert(key.as_slice().into(), next);
                    self.sizes.push(0);
                    next
                }
            };
            see(self, row, group);
        }
    }

    /// The groups in the order of their values, as SQLite orders them.
    fn sorted(&self) -> Vec<u32> {
        let ranks: Vec<Vec<i64>> = self.texts.iter().map(Texts::ranks).collect();
        let mut groups: Vec<(Vec<Code>, u32)> = Vec::with_capacity(self.numbers.len());
        for (key, &group) in &self.numbers {
            // A column without texts has no ranks: its codes are its integers.
            let rank = |(code, ranks): (&Code, &Vec<i64>)| {
                code.map(|code| ranks.get(code as usize).copied().unwrap_or(code))
            };
            groups.push((key.iter().zip(&ranks).map(rank).collect(), group));
        }
        groups.sort_unstable();
        groups.into_iter().map(|(_, group)| group).collect()
    }
}

/// The first position of each group of an order, and the end of the last one.
fn starts(sizes: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut starts = vec![0];
    for size in sizes {
        starts.push(starts[starts.len() - 1] + size);
    }
    starts
}

/// Rows by the values of some columns.
#[derive(Debug)]
pub(crate) struct Keys {
    /// By column: its texts.
    texts: Vec<Texts>,
    /// The number of each group, by its values.
    numbers: FxHashMap<Box<[Code]>, u32>,
    /// The position of each group's first row in `ordered`, and the end of the last group.
    starts: Vec<usize>,
    /// The rows of one group after the other.
    pub(crate) ordered: Ordered,
}

impl Keys {
    pub(crate) fn of(rows: &Rows, columns: &[usize]) -> Keys {
        let mut groups = Groups::of(rows, columns);
        let starts = starts(groups.sizes.iter().copied());
        let all = rows.ordered();
        let (mut grouped, mut begins) = (vec![0; all.rows.len()], vec![0; all.rows.len()]);
        let mut next = starts.clone();
        let mut all_begins = all.begins.iter();
        groups.each(|_, row, group| {
            let position = &mut next[group as usize];
            grouped[*position] = row;
            begins[*position] = all_begins.next().copied().unwrap_or_default();
            *position += 1;
        });
        let Groups { texts, numbers, .. } = groups;
        Keys { texts, numbers, starts, ordered: Ordered::new(grouped, begins) }
    }

    pub(crate) fn range(&self, key: &[Key], bounds: &Bounds) -> Range<usize> {
        let code = |(key, texts): (&Key, &Texts)| match key {
            Key::Integer(integer) => Some(*integer),
            Key::Text(text) => texts.0.get(text).copied(),
        };
        // A text that no row has is in no group.
        let codes: Option<Vec<Code>> = key.iter().zip(&self.texts).map(|pair| code(pair).map(Some)).collect();
        let Some(&group) = codes.and_then(|codes| self.numbers.get(&codes[..])) else { return 0..0 };
        let group = group as usize;
        self.ordered.range(self.starts[group]..self.starts[group + 1], bounds)
    }
}

/// The rows in the order of some columns, and in that of their begins where these are equal.
pub(crate) fn in_order_of(rows: &Rows, columns: &[usize]) -> Vec<u32> {
    if let Some(begin) = rows.begin()
        && columns[0] == begin
    {
        // Few rows begin at the same time.
        let mut order: Vec<u32> = rows.by_begin().collect();
        for rows_of_begin in order.chunk_by_mut(|a, b| rows.begin_of(*a) == rows.begin_of(*b)) {
            rows_of_begin.sort_by(|&a, &b| compare(rows, &columns[1..], a, b));
        }
        return order;
    }
    let mut groups = Groups::of(rows, columns);
    let sorted = groups.sorted();
    let starts = starts(sorted.iter().map(|&group| groups.sizes[group as usize]));
    let mut next = vec![0; sorted.len()];
    for (&group, start) in sorted.iter().zip(starts) {
        next[group as usize] = start;
    }
    let mut order = vec![0; rows.table.row_count()];
    groups.each(|_, row, group| {
        let position = &mut next[group as usize];
        order[*position] = row;
        *position += 1;
    });
    order
}

/// Compares two rows by some columns, as SQLite orders their values.
fn compare(rows: &Rows, columns: &[usize], a: u32, b: u32) -> Ordering {
    let (mut place_of_a, mut place_of_b) = (rows.first_batch(), rows.first_batch());
    rows.locate(a as usize, &mut place_of_a);
    rows.locate(b as usize, &mut place_of_b);
    let (in_a, in_b) = (a as usize - place_of_a.rows.start, b as usize - place_of_b.rows.start);
    for &column in columns {
        let (a, b) = (&rows.columns(place_of_a.batch)[column], &rows.columns(place_of_b.batch)[column]);
        let order = a.with_cell(in_a, |a| {
            b.with_cell(in_b, |b| match (a, b) {
                (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
                (a, b) => integer(a).cmp(&integer(b)),
            })
        });
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// A text comes after null, as integers do; a column has either.
fn integer(cell: Cell<'_>) -> Code {
    match cell {
        Cell::Integer(integer) => Some(integer as i64),
        Cell::Signed(integer) => Some(integer),
        Cell::Text(_) => Some(i64::MAX),
        _ => None,
    }
}

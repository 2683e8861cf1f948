//! Groups of rows with equal values in some columns.

use std::{cmp::Ordering, ops::Range};

use arrow_array::Array;
use hodo_model::{Column, Type, table::Cell};
use rusqlite::types::ValueRef;
use rustc_hash::FxHashMap;

use crate::{
    cells::BatchColumn,
    index::{Bounds, Ordered, RowOrder, Rows},
};

/// Returns whether rows can be found by equal values of a column.
pub(crate) fn is_key(column: &Column) -> bool {
    matches!(column.kind, Type::Integer | Type::Signed | Type::Text | Type::Name)
}

/// Returns whether rows can be found by a value of a column: no other value of the column may be equal to it.
pub(crate) fn is_exact(value: ValueRef<'_>, column: &Column) -> bool {
    let is_text = matches!(column.kind, Type::Text | Type::Name);
    match value {
        ValueRef::Integer(_) => !is_text,
        ValueRef::Text(_) => is_text,
        _ => false,
    }
}

/// A cell as a number: an integer as it is, and a text by its number among those of the column. `None` is null.
pub(crate) type Code = Option<i64>;

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

/// Which rows have equal values in some columns.
struct Groups {
    /// By column: its texts.
    texts: Vec<Texts>,
    /// The number of each group, by its values.
    numbers: FxHashMap<Box<[Code]>, u32>,
    /// By group: its rows.
    sizes: Vec<usize>,
    /// The group of each row of the list.
    of_rows: Vec<u32>,
}

impl Groups {
    fn of(rows: &Rows, columns: &[usize], list: impl Iterator<Item = u32>) -> Groups {
        let mut coders: Vec<Vec<Coder<'_>>> = (0..rows.batch_count())
            .map(|batch| columns.iter().map(|&column| Coder::new(&rows.columns(batch)[column])).collect())
            .collect();
        let mut texts: Vec<Texts> = columns.iter().map(|_| Texts::default()).collect();
        let mut numbers: FxHashMap<Box<[Code]>, u32> = FxHashMap::default();
        let (mut sizes, mut of_rows) = (Vec::new(), Vec::with_capacity(list.size_hint().0));
        let mut place = rows.first_batch();
        let mut key: Vec<Code> = Vec::new();
        // Of a single column of names, by batch and number in its dictionary: the group.
        let mut of_names: Vec<Vec<Option<u32>>> = vec![Vec::new(); coders.len()];
        for row in list {
            rows.locate(row as usize, &mut place);
            let name = match &coders[place.batch][..] {
                [coder] => coder.column.name(row as usize - place.rows.start),
                _ => None,
            };
            if let Some(group) = name.and_then(|name| *of_names[place.batch].get(name)?) {
                sizes[group as usize] += 1;
                of_rows.push(group);
                continue;
            }
            key.clear();
            for (coder, texts) in coders[place.batch].iter_mut().zip(&mut texts) {
                key.push(coder.code(row as usize - place.rows.start, texts));
            }
            let group = match numbers.get(&key[..]) {
                Some(&group) => group,
                None => {
                    let next = sizes.len() as u32;
                    numbers.insert(key.as_slice().into(), next);
                    sizes.push(0);
                    next
                }
            };
            if let Some(name) = name {
                let known = &mut of_names[place.batch];
                known.resize(known.len().max(name + 1), None);
                known[name] = Some(group);
            }
            sizes[group as usize] += 1;
            of_rows.push(group);
        }
        Groups { texts, numbers, sizes, of_rows }
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
    /// Groups rows, each group in an order.
    pub(crate) fn of(rows: &Rows, columns: &[usize], order: RowOrder) -> Keys {
        let Groups { texts, numbers, sizes, of_rows } = Groups::of(rows, columns, rows.in_order(order));
        let starts = starts(sizes.into_iter());
        let mut grouped = vec![0; of_rows.len()];
        let mut begins = match order {
            RowOrder::Any => Vec::new(),
            RowOrder::Begin => vec![0; of_rows.len()],
        };
        let mut all_begins = match order {
            RowOrder::Any => [].iter(),
            RowOrder::Begin => rows.ordered().begins.iter(),
        };
        let mut next = starts.clone();
        for (row, group) in rows.in_order(order).zip(of_rows) {
            let position = &mut next[group as usize];
            grouped[*position] = row;
            if let Some(&begin) = all_begins.next() {
                begins[*position] = begin;
            }
            *position += 1;
        }
        Keys { texts, numbers, starts, ordered: Ordered::new(grouped, begins) }
    }

    /// The positions of rows that have these values, one for each column. `codes` is only room for them.
    pub(crate) fn range<'v>(
        &self,
        values: impl Iterator<Item = ValueRef<'v>>,
        bounds: &Bounds,
        codes: &mut Vec<Code>,
    ) -> Range<usize> {
        codes.clear();
        for (value, texts) in values.zip(&self.texts) {
            let code = match value {
                ValueRef::Integer(integer) => Some(integer),
                ValueRef::Text(text) => texts.0.get(text).copied(),
                _ => None,
            };
            // A text that no row has is in no group.
            let Some(code) = code else { return 0..0 };
            codes.push(Some(code));
        }
        let Some(&group) = self.numbers.get(&codes[..]) else { return 0..0 };
        let group = group as usize;
        self.ordered.range(self.starts[group]..self.starts[group + 1], bounds)
    }
}

/// The rows of a list in the order of some columns; those that are equal in these stay in the list's order.
pub(crate) fn in_order_of(
    rows: &Rows,
    columns: &[usize],
    list: impl Iterator<Item = u32> + Clone,
) -> Vec<u32> {
    if rows.begin() == Some(columns[0]) {
        // Few rows begin at the same time.
        let mut place = rows.first_batch();
        let mut sorted: Vec<_> = list.map(|row| (rows.begin_of(row, &mut place), row)).collect();
        sorted.sort_by_key(|(begin, _)| *begin);
        for same in sorted.chunk_by_mut(|a, b| a.0 == b.0) {
            same.sort_by(|a, b| compare(rows, &columns[1..], a.1, b.1));
        }
        return sorted.into_iter().map(|(_, row)| row).collect();
    }
    if let [column] = columns
        && let Some(sorted) = in_order_of_names(rows, *column, list.clone())
    {
        return sorted;
    }
    let groups = Groups::of(rows, columns, list.clone());
    let sorted = groups.sorted();
    let starts = starts(sorted.iter().map(|&group| groups.sizes[group as usize]));
    let mut next = vec![0; sorted.len()];
    for (&group, start) in sorted.iter().zip(starts) {
        next[group as usize] = start;
    }
    let mut rows_in_order = vec![0; groups.of_rows.len()];
    for (row, group) in list.zip(groups.of_rows) {
        let position = &mut next[group as usize];
        rows_in_order[*position] = row;
        *position += 1;
    }
    rows_in_order
}

/// As [`in_order_of`], of a column of names, whose numbers say the group. `None` if the column has other cells, or nulls.
fn in_order_of_names(
    rows: &Rows,
    column: usize,
    list: impl Iterator<Item = u32> + Clone,
) -> Option<Vec<u32>> {
    let mut names = Vec::new();
    for batch in 0..rows.batch_count() {
        let numbered = rows.columns(batch)[column].names()?.iter().enumerate();
        names.extend(numbered.map(|(number, name)| (name, batch, number)));
    }
    names.sort_unstable();
    // By batch and number: the group.
    let mut groups = vec![Vec::new(); rows.batch_count()];
    let mut count = 0;
    for same in names.chunk_by(|a, b| a.0 == b.0) {
        for &(_, batch, number) in same {
            let groups: &mut Vec<usize> = &mut groups[batch];
            groups.resize(groups.len().max(number + 1), 0);
            groups[number] = count;
        }
        count += 1;
    }
    let mut place = rows.first_batch();
    let mut group_of = |row: u32| {
        rows.locate(row as usize, &mut place);
        let number = rows.columns(place.batch)[column].name(row as usize - place.rows.start)?;
        Some(groups[place.batch][number])
    };
    let mut sizes = vec![0; count];
    for row in list.clone() {
        sizes[group_of(row)?] += 1;
    }
    let mut next = starts(sizes.into_iter());
    let mut sorted = vec![0; next[count]];
    for row in list {
        let position = &mut next[group_of(row)?];
        sorted[*position] = row;
        *position += 1;
    }
    Some(sorted)
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

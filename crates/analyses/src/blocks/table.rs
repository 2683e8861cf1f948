//! Counts of blocks and lines as tables.

use std::cmp::Reverse;

use hodo_trace::{Column, End, Shape, Sources, Table, Unit, Value};

use super::{Block, lines};
use crate::{clock::Time, profile::share};

fn summary(blocks: &[Block], threads: u64) -> Vec<(&'static str, Value)> {
    let sum =
        |part: fn(&Block) -> u64| blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(part(block)));
    let time = blocks.iter().fold(Time::default(), |sum, block| sum.and(block.counts.time));
    vec![
        ("instructions", Value::from(sum(Block::instructions))),
        ("threads", Value::from(threads)),
        ("time_ns", Value::from(time.nanoseconds())),
        ("blocks", Value::from(blocks.len() as u64)),
        ("executions", Value::from(sum(|block| block.counts.executions))),
    ]
}

/// Instructions per cycle, where cycles were counted.
pub(super) fn instructions_per_cycle(instructions: u64, cycles: u64) -> Value {
    if cycles == 0 { Value::Null } else { Value::Real(instructions as f64 / cycles as f64) }
}

/// The columns that only a trace that counts cycles has; each row gets its own cells.
fn add_cycles(table: &mut Table, cells: impl Iterator<Item = (u64, u64)>) {
    let cells: Vec<(u64, u64)> = cells.collect();
    let sum =
        |part: fn(&(u64, u64)) -> u64| cells.iter().fold(0, |sum: u64, row| sum.saturating_add(part(row)));
    let (cycles, counted) = (sum(|row| row.0), sum(|row| row.1));
    if cycles == 0 {
        return;
    }
    let at = 1 + table.columns.iter().position(|column| column.name == "time_ns").unwrap_or(0);
    let columns = [Column::integer("cycles", Unit::Cycles), Column::real("ipc", Unit::InstructionsPerCycle)];
    table.columns.splice(at..at, columns);
    for (row, (cycles, counted)) in table.rows.iter_mut().zip(cells) {
        row.splice(at..at, [Value::from(cycles), instructions_per_cycle(counted, cycles)]);
    }
    table.summary.push(("cycles", cycles.into()));
    table.summary.push(("ipc", instructions_per_cycle(counted, cycles)));
}

pub(super) fn blocks(blocks: &[Block], threads: u64, sources: &dyn Sources) -> Table {
    let all = blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.instructions()));
    let mut order: Vec<&Block> = blocks.iter().collect();
    order.sort_by_key(|&block| (Reverse(block.instructions()), block));
    let row = |block: &&Block| {
        let (function, module) = sources.names(block.function);
        let branch = |count| if block.end == End::Conditional { Value::from(count) } else { Value::Null };
        vec![
            Value::from(share(block.instructions(), all)),
            Value::from(block.counts.executions),
            Value::from(block.instructions()),
            Value::from(block.lengths.len() as u64),
            branch(block.counts.taken),
            branch(block.counts.not_taken),
            Value::from(block.counts.time.nanoseconds()),
            Value::from(sources.address(block.function.module, block.offset)),
            Value::from(function),
            Value::from(module),
        ]
    };
    let mut table = Table {
        name: "blocks",
        shape: Shape::Counters,
        summary: summary(blocks, threads),
        columns: vec![
            Column::real("share", Unit::Share),
            Column::integer("executions", Unit::Count),
            Column::integer("instructions", Unit::Instructions),
            Column::integer("length", Unit::Instructions),
            Column::integer("taken", Unit::Count),
            Column::integer("not_taken", Unit::Count),
            Column::integer("time_ns", Unit::Nanoseconds).secondary(),
            Column::integer("address", Unit::Address),
            Column::text("function"),
            Column::text("module").secondary(),
        ],
        rows: order.iter().map(row).collect(),
        loss: Vec::new(),
    };
    add_cycles(&mut table, order.iter().map(|block| (block.counts.cycles, block.counts.counted)));
    table
}

pub(super) fn lines(blocks: &[Block], threads: u64, sources: &dyn Sources) -> Table {
    let mut lines = lines::by_line(blocks, sources);
    let all = lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.instructions));
    lines.sort_by(|a, b| {
        let place = |line: &lines::LineCount| (Reverse(line.instructions), line.line, line.function.clone());
        let (a, b) = ((place(a), &a.file, &a.module), (place(b), &b.file, &b.module));
        a.cmp(&b)
    });
    let row = |line: &lines::LineCount| {
        let known = line.line > 0;
        vec![
            Value::from(share(line.instructions, all)),
            if known { Value::from(line.executions) } else { Value::Null },
            Value::from(line.instructions),
            Value::from(line.time.nanoseconds()),
            if known { Value::from(format!("{}:{}", line.file, line.line)) } else { Value::Null },
            Value::from(line.function.as_str()),
            Value::from(line.module.as_str()),
        ]
    };
    let mut table = Table {
        name: "lines",
        shape: Shape::Counters,
        summary: summary(blocks, threads),
        columns: vec![
            Column::real("share", Unit::Share),
            Column::integer("executions", Unit::Count),
            Column::integer("instructions", Unit::Instructions),
            Column::integer("time_ns", Unit::Nanoseconds),
            Column::text("line"),
            Column::text("function"),
            Column::text("module").secondary(),
        ],
        rows: lines.iter().map(row).collect(),
        loss: Vec::new(),
    };
    add_cycles(&mut table, lines.iter().map(|line| (line.cycles, line.counted)));
    table
}

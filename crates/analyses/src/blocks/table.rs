//! Counts of blocks and lines as tables.

use std::cmp::Reverse;

use hodo_trace::{Column, End, Shape, Sources, Table, Unit, Value};

use super::{Block, lines};
use crate::profile::share;

fn summary(blocks: &[Block], threads: u64) -> Vec<(&'static str, Value)> {
    let sum =
        |part: fn(&Block) -> u64| blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(part(block)));
    vec![
        ("instructions", Value::from(sum(Block::instructions))),
        ("threads", Value::from(threads)),
        ("time_ns", Value::from(sum(|block| block.counts.time))),
        ("blocks", Value::from(blocks.len() as u64)),
        ("executions", Value::from(sum(|block| block.counts.executions))),
    ]
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
            Value::from(block.counts.time),
            Value::from(sources.address(block.function.module, block.offset)),
            Value::from(function),
            Value::from(module),
        ]
    };
    Table {
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
    }
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
            Value::from(line.time),
            if known { Value::from(format!("{}:{}", line.file, line.line)) } else { Value::Null },
            Value::from(line.function.as_str()),
            Value::from(line.module.as_str()),
        ]
    };
    Table {
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
    }
}

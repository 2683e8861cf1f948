//! Makes the tables of blocks and lines.

use std::cmp::Reverse;

use hodo_model::{Column, End, Shape, Sources, Summary, Table, Unit, Value};

use super::{CountedBlock, lines};
use crate::{clock::Time, profile::share};

pub(super) fn summary(blocks: &[CountedBlock], threads: u64) -> Summary {
    let sum = |part: fn(&CountedBlock) -> u64| {
        blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(part(block)))
    };
    let time = blocks.iter().fold(Time::default(), |sum, block| sum.saturating_add(block.counts.time));
    vec![
        ("instructions", Value::from(sum(CountedBlock::instructions))),
        ("threads", Value::from(threads)),
        ("time_ns", Value::from(time.nanoseconds())),
        ("blocks", Value::from(blocks.len() as u64)),
        ("executions", Value::from(sum(|block| block.counts.executions))),
    ]
}

/// Returns instructions per cycle; null if no cycles were counted.
pub(super) fn instructions_per_cycle(instructions: u64, cycles: u64) -> Value {
    if cycles == 0 { Value::Null } else { Value::Real(instructions as f64 / cycles as f64) }
}

/// Makes a table, with columns for cycles if the trace counts them. `counts` has the cycles of each row, and the
/// instructions that were executed in them.
fn with_cycles(
    name: &'static str,
    mut summary: Summary,
    mut columns: Vec<Column>,
    mut rows: Vec<Vec<Value>>,
    counts: impl Iterator<Item = (u64, u64)> + Clone,
) -> Table {
    let (cycles, counted) = counts.clone().fold((0_u64, 0_u64), |(all, all_counted), (cycles, counted)| {
        (all.saturating_add(cycles), all_counted.saturating_add(counted))
    });
    if cycles > 0 {
        let after_time = 1 + columns.iter().position(|column| column.name == "time_ns").unwrap_or(0);
        let more = [Column::integer("cycles", Unit::Cycles), Column::real("ipc", Unit::InstructionsPerCycle)];
        columns.splice(after_time..after_time, more);
        for (row, (cycles, counted)) in rows.iter_mut().zip(counts) {
            row.splice(
                after_time..after_time,
                [Value::from(cycles), instructions_per_cycle(counted, cycles)],
            );
        }
        summary.push(("cycles", cycles.into()));
        summary.push(("ipc", instructions_per_cycle(counted, cycles)));
    }
    Table::new(name, Shape::Counters, summary, columns, rows)
}

pub(super) fn blocks(blocks: &[CountedBlock], threads: u64, sources: &dyn Sources) -> Table {
    let all = blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.instructions()));
    let mut order: Vec<&CountedBlock> = blocks.iter().collect();
    order.sort_by_key(|&block| (Reverse(block.instructions()), block));
    let rows = order.iter().map(|block| {
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
    });
    let columns = vec![
        Column::real("share", Unit::Share),
        Column::integer("executions", Unit::Count),
        Column::integer("instructions", Unit::Instructions),
        Column::integer("length", Unit::Instructions),
        Column::integer("taken", Unit::Count),
        Column::integer("not_taken", Unit::Count),
        Column::integer("time_ns", Unit::Nanoseconds).secondary(),
        Column::integer("address", Unit::Address),
        Column::name("function"),
        Column::name("module").secondary(),
    ];
    let cycles = order.iter().map(|block| (block.counts.cycles, block.counts.counted));
    with_cycles("blocks", summary(blocks, threads), columns, rows.collect(), cycles)
}

pub(super) fn lines(blocks: &[CountedBlock], threads: u64, sources: &dyn Sources) -> Table {
    let mut lines = lines::by_line(blocks, sources);
    let all = lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.instructions));
    lines.sort_by(|a, b| {
        let key = |line: &lines::LineCount| (Reverse(line.instructions), line.line, line.function.clone());
        let (a, b) = ((key(a), &a.file, &a.module), (key(b), &b.file, &b.module));
        a.cmp(&b)
    });
    let rows = lines.iter().map(|line| {
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
    });
    let columns = vec![
        Column::real("share", Unit::Share),
        Column::integer("executions", Unit::Count),
        Column::integer("instructions", Unit::Instructions),
        Column::integer("time_ns", Unit::Nanoseconds),
        Column::text("line"),
        Column::name("function"),
        Column::name("module").secondary(),
    ];
    let cycles = lines.iter().map(|line| (line.cycles, line.counted));
    with_cycles("lines", summary(blocks, threads), columns, rows.collect(), cycles)
}

//! Measures how long the views take to draw a table of a million rows, as made by `report states --by interval`.
//!
//! `cargo run --release -p hodo-views --example draw [VIEW…]`

use std::{
    io::{self, Write},
    time::Instant,
};

use hodo_model::{Column, Shape, Table, Unit, Value};
use hodo_views::{Options, VIEWS};

const ROWS: u64 = 1_000_000;
const THREADS: u64 = 400;
const CALLS: [&str; 8] = ["read", "write", "futex", "epoll_wait", "poll", "nanosleep", "openat", "ppoll"];

/// Reproducible pseudo-random numbers.
fn scattered(index: u64) -> u64 {
    (index ^ 0x9e37_79b9).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 24
}

fn row(index: u64) -> Vec<Value> {
    let random = scattered(index);
    let tid = 1_000 + random % THREADS;
    let (state, cpu, call) = match random >> 12 & 3 {
        0 => ("running", Value::from(random % 16), Value::Null),
        1 => ("runnable", Value::from(random % 16), Value::Null),
        _ => ("interruptible", Value::Null, CALLS[(random >> 8 & 7) as usize].into()),
    };
    vec![
        (1_600_000_000_000_000_000 + index * 1_777).into(),
        (random % 50_000_000).into(),
        format!("worker/{}", tid % 97).into(),
        tid.into(),
        (tid / 4 * 4).into(),
        state.into(),
        cpu,
        call,
    ]
}

fn table() -> Table {
    let columns = vec![
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("duration_ns", Unit::Nanoseconds),
        Column::name("comm"),
        Column::integer("tid", Unit::None),
        Column::integer("pid", Unit::None).secondary(),
        Column::name("state"),
        Column::integer("cpu", Unit::None),
        Column::name("call"),
    ];
    let summary = vec![("intervals", ROWS.into())];
    Table::new("states", Shape::Intervals, summary, columns, (0..ROWS).map(row))
}

/// Counts the bytes that are written.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    // The first round is cold.
    for _round in 0..3 {
        let begin = Instant::now();
        let table = table();
        println!("{:10} {:7.1} ms", "build", begin.elapsed().as_secs_f64() * 1e3);
        for view in VIEWS.iter().filter(|view| names.is_empty() || names.iter().any(|name| name == view.name))
        {
            let begin = Instant::now();
            let mut out = io::BufWriter::with_capacity(1 << 16, Count(0));
            view.draw(&table, &Options::default(), &mut out)?;
            out.flush()?;
            let seconds = begin.elapsed().as_secs_f64();
            println!("{:10} {:7.1} ms, {} bytes", view.name, seconds * 1e3, out.get_ref().0);
        }
    }
    Ok(())
}

//! `hodo sql`.

mod sources;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use clap::Args;
use hodo_engine::{Experiment, Needs};
use hodo_model::{Column, Every, Shape, Table, Type, Unit, Value};
use hodo_sql::Source;

use crate::{
    arguments::{Input, Output, PeriodArguments},
    failure::{Failure, INTERRUPTED},
    function::RootArguments,
    input, output,
    progress::CtrlC,
    quantities, timeline,
};

/// The arguments.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "hodo sql [OPTIONS] [INPUT]... QUERY\n       hodo sql [OPTIONS] --tables [INPUT]..."
)]
#[command(
    after_help = "The query is one statement: SELECT, EXPLAIN, or DESCRIBE TABLE. Each report is a table, each view of it too
(syscalls, syscalls_thread); and each class of events, in quotes if its name needs them.

Examples:
  hodo sql --tables ./my-trace
  hodo sql ./my-trace 'describe syscalls_interval'
  hodo sql perf.data 'select function, calls from functions order by calls desc limit 10'
  hodo sql ./my-trace 'select next_comm, count(*) from sched_switch group by 1 order by 2 desc'
  hodo sql --time 10%-20% --format parquet -o waits.parquet ./my-trace 'select * from states_interval'"
)]
pub struct Sql {
    /// List the tables and their columns with units
    #[arg(long)]
    pub tables: bool,
    /// Sampling interval of the tables that are samples: 100ns, 1us, 10ms or 1000i (instructions)
    #[arg(long, value_name = "PERIOD", value_parser = quantities::every)]
    pub every: Option<Every>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub filter: crate::events::Filter,
    #[command(flatten)]
    pub output: Output,
    // Groups with headings come last, because a heading applies to all following arguments.
    #[command(flatten)]
    pub root: RootArguments,
    #[command(flatten)]
    pub period: PeriodArguments,
}

/// The opened inputs, and their tables, which a statement may name.
struct Opened {
    experiment: Arc<Experiment>,
    sources: Vec<Arc<dyn Source>>,
}

/// Splits the last input off, which is the query.
fn split_query(command: &Sql) -> Result<(String, Sql), Failure> {
    let mut command = command.clone();
    let last = command.input.files.pop().unwrap_or_default().into_os_string();
    let query = last.into_string().map_err(|_| Failure::usage("the query is not UTF-8"))?;
    if !query.trim_start().contains(char::is_whitespace) {
        return Err(Failure::usage(format!(
            "the last argument is the query, and `{query}` is none: hodo sql INPUT 'select …'"
        )));
    }
    if command.input.files.is_empty() {
        command.input.files.push(PathBuf::from("perf.data"));
    }
    Ok((query, command))
}

fn open(command: &Sql, stop: &Arc<AtomicBool>) -> Result<Opened, Failure> {
    let experiment = Arc::new(input::experiment(&command.input, Needs::ALL)?);
    if !command.input.quiet {
        timeline::report_unrelated(&experiment);
    }
    let sources = sources::all(&experiment, command, stop)?;
    Ok(Opened { experiment, sources })
}

/// Runs the command.
pub fn run(command: &Sql) -> Result<ExitCode, Failure> {
    let tables = 1;
    output::check(tables, &command.output)?;
    let pressed = CtrlC::watch();
    let stop = pressed.flag();
    let (table, experiment) = if command.tables {
        let opened = open(command, &stop)?;
        (Some(list(&opened.sources)), opened.experiment)
    } else {
        let (query, command) = split_query(command)?;
        let opened = open(&command, &stop)?;
        (answer(&opened, &query, command.output.limit, &stop)?, opened.experiment)
    };
    let Some(table) = table.filter(|_| !pressed.is_pressed()) else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let lossless = table.loss.is_empty();
    output::draw(table, &command.output)?;
    Ok(input::exit_code_of(&command.input, &experiment, lossless))
}

/// Makes the table of a query, for programs; `None` if `stop` was set.
pub fn table(command: &Sql, stop: &Arc<AtomicBool>) -> Result<Option<Table>, Failure> {
    if command.tables {
        return Ok(Some(list(&open(command, stop)?.sources)));
    }
    let (query, command) = split_query(command)?;
    let opened = open(&command, stop)?;
    if let Some(problem) = opened.experiment.problems.first() {
        return Err(Failure::unreadable(problem));
    }
    answer(&opened, &query, command.output.limit, stop)
}

fn answer(
    opened: &Opened,
    query: &str,
    limit: Option<u64>,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Table>, Failure> {
    if let Some(name) = described_table(query) {
        let is_named = |source: &&Arc<dyn Source>| source.name().eq_ignore_ascii_case(&name);
        let Some(source) = opened.sources.iter().find(is_named) else {
            return Err(Failure::usage(format!("SQL: no such table: {name}; `--tables` lists the tables")));
        };
        let columns = hodo_sql::columns(&**source).map_err(Failure::usage)?;
        return Ok(Some(column_list(columns.into_iter().map(|column| (source.name().to_owned(), column)))));
    }
    hodo_sql::query(query, opened.sources.iter().cloned(), limit, stop).map_err(Failure::usage)
}

/// Returns the table that a DESCRIBE statement names.
fn described_table(query: &str) -> Option<String> {
    let (word, name) = query.trim().trim_end_matches(';').split_once(char::is_whitespace)?;
    let name = name.trim();
    let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name);
    word.eq_ignore_ascii_case("describe").then(|| name.replace("\"\"", "\""))
}

/// The columns of all tables that these inputs have.
fn list(sources: &[Arc<dyn Source>]) -> Table {
    let columns = |source: &Arc<dyn Source>| {
        let name = source.name().to_owned();
        hodo_sql::columns(&**source).unwrap_or_default().into_iter().map(move |column| (name.clone(), column))
    };
    column_list(sources.iter().flat_map(columns))
}

/// Makes a table of columns, each with the name of its table.
fn column_list(columns: impl Iterator<Item = (String, Column)>) -> Table {
    let heading =
        vec![Column::name("table"), Column::text("column"), Column::name("type"), Column::name("unit")];
    let row = |(table, column): (String, Column)| {
        let kind = match column.kind {
            Type::Text | Type::Name => "text",
            Type::Integer => "unsigned integer",
            Type::Signed => "integer",
            Type::Real => "real",
            Type::Boolean => "boolean",
            Type::List(_) => "json",
        };
        let unit = Some(column.unit).filter(|unit| *unit != Unit::None).map(Unit::name);
        vec![Value::from(table), column.name.into(), kind.into(), unit.into()]
    };
    Table::new("tables", Shape::Counters, Vec::new(), heading, columns.map(row))
}

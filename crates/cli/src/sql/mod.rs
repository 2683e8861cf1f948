//! `hodo sql`.

mod calls;
mod shell;
mod sources;
mod together;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use clap::Args;
use hodo_engine::{Experiment, Needs};
use hodo_model::{Every, Table};
use hodo_sql::{Cache, Session, Source};

use crate::{
    arguments::{Input, Output, PeriodArguments, StoreFolder},
    failure::{Failure, INTERRUPTED},
    function::RootArguments,
    index, input, live, output,
    progress::CtrlC,
    quantities, timeline,
};

/// The arguments.
#[derive(Clone, Debug, Default, Args)]
#[command(
    override_usage = "hodo sql [OPTIONS] [INPUT]... QUERY\n       hodo sql [OPTIONS] -f FILE [INPUT]... [QUERY]\n       hodo sql [OPTIONS] --shell [INPUT]...\n       hodo sql [OPTIONS] --tables [INPUT]..."
)]
#[command(
    after_help = "Statements, with semicolons between them: SELECT, EXPLAIN, DESCRIBE TABLE, CREATE VIEW, DROP VIEW. Each report is a
table, each view of it too (syscalls, syscalls_thread); calls of control flow; and each class of events, in quotes if its
name needs them.

Examples:
  hodo sql --tables ./my-trace
  hodo sql ./my-trace 'describe syscalls_interval'
  hodo sql perf.data 'select function, calls from functions order by calls desc limit 10'
  hodo sql ./my-trace 'select next_comm, count(*) from sched_switch group by 1 order by 2 desc'
  hodo sql -f views.sql ./my-trace 'select * from my_view'
  hodo sql --time 10%-20% --format parquet -o waits.parquet ./my-trace 'select * from states_interval'"
)]
pub struct Sql {
    /// List the tables and their columns with units
    #[arg(long)]
    pub tables: bool,
    /// Run the statements of a file first; - is standard input (repeatable)
    #[arg(short, long, value_name = "FILE", conflicts_with = "tables")]
    pub file: Vec<PathBuf>,
    /// Read statements from the terminal, with completion of names
    #[arg(long, conflicts_with = "tables")]
    pub shell: bool,
    /// Read the traces, although tables of them were kept, and keep none
    #[arg(long)]
    pub no_cache: bool,
    /// Sampling interval of the tables that are samples: 100ns, 1us, 10ms or 1000i (instructions)
    #[arg(long, value_name = "PERIOD", value_parser = quantities::every)]
    pub every: Option<Every>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub filter: crate::events::Filter,
    #[command(flatten)]
    pub store: StoreFolder,
    #[command(flatten)]
    pub output: Output,
    // Groups with headings come last, because a heading applies to all following arguments.
    #[command(flatten)]
    pub root: RootArguments,
    #[command(flatten)]
    pub period: PeriodArguments,
}

impl Sql {
    /// Questions about whole inputs, from a page.
    pub fn of(input: Input, store: StoreFolder) -> Sql {
        Sql { input: Input { quiet: true, ..input }, store, ..Sql::default() }
    }
}

/// Splits the last input off if it is a query. Returns the statements of the files and of the query.
fn split_query(command: &Sql) -> Result<(String, Sql), Failure> {
    let mut command = command.clone();
    let mut statements = String::new();
    for file in &command.file {
        let read =
            if file.as_os_str() == "-" { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
        let text = read.map_err(|error| Failure::unreadable(format!("{}: {error}", file.display())))?;
        statements.push_str(&text);
        // The last statement of a file needs no semicolon.
        statements.push_str("\n;\n");
    }
    let last = command.input.files.last().and_then(|last| last.to_str()).unwrap_or_default();
    let is_query = last.trim_start().contains(char::is_whitespace) && !Path::new(last).exists();
    if is_query {
        statements.push_str(last);
        command.input.files.pop();
    } else if command.file.is_empty() && !command.shell {
        return Err(Failure::usage(format!(
            "the last argument is the query, and `{last}` is none: hodo sql INPUT 'select …', -f FILE or --shell"
        )));
    }
    if command.input.files.is_empty() {
        command.input.files.push(PathBuf::from("perf.data"));
    }
    Ok((statements, command))
}

fn open(command: &Sql) -> Result<Arc<Experiment>, Failure> {
    let experiment = Arc::new(input::experiment(&command.input, Needs::ALL)?);
    if !command.input.quiet {
        timeline::report_unrelated(&experiment);
    }
    Ok(experiment)
}

/// Returns the tables that statements can name.
pub fn sources(
    experiment: &Arc<Experiment>,
    command: &Sql,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Arc<dyn Source>>, Failure> {
    let cache = cache(command, experiment);
    let sources = sources::all(experiment, command, stop, cache.is_some())?;
    let Some(cache) = cache else { return Ok(sources) };
    let selection = selection(command);
    Ok(sources.into_iter().map(|source| cache.keep(source, &selection)).collect())
}

fn session(experiment: &Arc<Experiment>, command: &Sql, stop: &Arc<AtomicBool>) -> Result<Session, Failure> {
    Session::new(sources(experiment, command, stop)?, stop).map_err(Failure::usage)
}

/// Opens the folder of computed tables, beside the store of the inputs; `None` for inputs that have no identity.
fn cache(command: &Sql, experiment: &Experiment) -> Option<Arc<Cache>> {
    let has_identity = command.input.pt.is_none()
        && experiment.problems.is_empty()
        && live::address(&command.input).ok()?.is_none();
    if command.no_cache || !has_identity {
        return None;
    }
    let identity = index::identity(&command.input).ok()?;
    let folder = index::folder(&command.store, &identity).ok()?;
    // Another build of this version may compute other tables.
    let built = env::current_exe().and_then(fs::metadata).and_then(|program| program.modified());
    Cache::open(folder.join("sql"), &format!("{}built {:?}\n", identity.text, built.ok())).ok()
}

/// Everything besides the inputs that decides the rows of tables.
fn selection(command: &Sql) -> String {
    let Sql { input, filter, every, root, period, .. } = command;
    let input = Input {
        files: Vec::new(),
        jobs: None,
        chunk_size: None,
        strict: false,
        quiet: false,
        ..input.clone()
    };
    format!("{input:?} {filter:?} {every:?} {root:?} {period:?}")
}

/// Runs the command.
pub fn run(command: &Sql) -> Result<ExitCode, Failure> {
    let tables = 1;
    output::check(tables, &command.output)?;
    let pressed = CtrlC::watch();
    let stop = pressed.flag();
    if command.tables {
        let experiment = open(command)?;
        return finish(vec![list(&sources(&experiment, command, &stop)?)], command, &experiment);
    }
    let (statements, command) = split_query(command)?;
    let experiment = open(&command)?;
    let session = session(&experiment, &command, &stop)?;
    let mut results = Vec::new();
    if !hodo_sql::statements(&statements).is_empty() || !command.shell {
        let made = session.run(&statements, command.output.limit).map_err(Failure::usage)?;
        let Some(made) = made else { return Ok(ExitCode::from(INTERRUPTED)) };
        results = made;
    }
    if command.shell {
        return shell::run(&session, results, &command, &stop);
    }
    finish(results, &command, &experiment)
}

fn finish(tables: Vec<Table>, command: &Sql, experiment: &Experiment) -> Result<ExitCode, Failure> {
    let lossless = tables.iter().all(|table| table.loss.is_empty());
    if !tables.is_empty() {
        output::draw_all(tables, &command.output)?;
    }
    Ok(input::exit_code_of(&command.input, experiment, lossless))
}

/// Makes the table of the last statement, for programs; `None` if `stop` was set.
pub fn table(command: &Sql, stop: &Arc<AtomicBool>) -> Result<Option<Table>, Failure> {
    if command.tables {
        return Ok(Some(list(&sources(&open(command)?, command, stop)?)));
    }
    let (statements, command) = split_query(command)?;
    let experiment = open(&command)?;
    if let Some(problem) = experiment.problems.first() {
        return Err(Failure::unreadable(problem));
    }
    answer(&experiment, &command, &statements, command.output.limit, stop)
}

/// Runs statements, and returns the result of the last one; `None` if `stop` was set.
pub fn answer(
    experiment: &Arc<Experiment>,
    command: &Sql,
    statements: &str,
    limit: Option<u64>,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Table>, Failure> {
    let results = session(experiment, command, stop)?.run(statements, limit).map_err(Failure::usage)?;
    let Some(mut results) = results else { return Ok(None) };
    results.pop().map(Some).ok_or_else(|| Failure::usage("SQL: none of the statements has rows"))
}

/// The columns of all tables that these inputs have.
fn list(sources: &[Arc<dyn Source>]) -> Table {
    let columns = |source: &Arc<dyn Source>| {
        let name = source.name().to_owned();
        hodo_sql::columns(&**source).unwrap_or_default().into_iter().map(move |column| (name.clone(), column))
    };
    hodo_sql::column_list(sources.iter().flat_map(columns))
}

//! Tables for programs that embed `hodo`: the arguments are those of the command line, and the tables come back as
//! values instead of as output.

use std::{
    ffi::OsString,
    panic::resume_unwind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::Duration,
};

use clap::Parser;
use hodo_engine::{Outcome, Part};
use hodo_model::{Selection, Table, table::RecordBatch};
use hodo_script::events::{EventTable, event_tables};
use hodo_store::Budget;

use crate::{
    arguments::{Arguments, Command},
    diff, events,
    failure::Failure,
    index, info, input, latency,
    parts::{self, Opened},
    progress::Progress as Bar,
    report, sql, stored, timeline,
};

pub use hodo_store::{Store, Table as StoredTable};

/// Why there are no tables.
#[derive(Debug)]
pub enum Error {
    /// Wrong use: the arguments, or their combination with the inputs.
    Usage(String),
    /// An input can't be read: file, offset, what was expected.
    Unreadable(String),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let message = failure.to_string();
        if failure.is_usage() { Error::Usage(message) } else { Error::Unreadable(message) }
    }
}

impl From<hodo_engine::Refusal> for Error {
    fn from(refusal: hodo_engine::Refusal) -> Error {
        Failure::from(refusal).into()
    }
}

/// Receives the bytes done and the bytes to do; returns whether to continue.
pub type Progress<'p> = &'p mut (dyn FnMut(u64, u64) -> bool + Send);

/// Makes the tables of `report`, `latency`, `sql` or `diff`. `arguments` begin with the command's name. If stopped by
/// `progress`, returns `None`. For `sql` and `diff`, `progress` gets zeros: it only stops them.
///
/// # Errors
/// Returns an error for wrong arguments and for inputs that can't be read, even one of several.
pub fn tables(arguments: &[OsString], progress: Progress<'_>) -> Result<Option<Outcome>, Error> {
    let (experiment, request) = match parse(arguments)? {
        Command::Report(command) => report::open(&command)?,
        Command::Latency(command) => latency::open(&command)?,
        Command::Sql(command) => {
            let table = stoppable(progress, |stop| sql::table(&command, stop))?;
            return Ok(table.map(|table| Outcome { tables: vec![table], notes: Vec::new() }));
        }
        Command::Diff(command) => {
            let tables = stoppable(progress, |stop| diff::tables(&command, &|_| Bar::stopped_by(stop)))?;
            return Ok(tables.map(|tables| Outcome { tables, notes: Vec::new() }));
        }
        _ => return Err(Error::Usage("only `report`, `latency`, `sql` and `diff` make tables".to_owned())),
    };
    if let Some(problem) = experiment.problems.first() {
        return Err(Error::Unreadable(problem.to_string()));
    }
    let total = experiment.work(&request);
    let mut stopped = false;
    let outcome = experiment.run(&request, &mut |done| {
        stopped |= !progress(done, total);
        !stopped
    })?;
    Ok((!stopped).then_some(outcome))
}

/// Runs work that a flag stops, and sets the flag once `progress` returns false.
fn stoppable<R: Send>(progress: Progress<'_>, work: impl FnOnce(&Arc<AtomicBool>) -> R + Send) -> R {
    const PAUSE: Duration = Duration::from_millis(20);
    let stop = Arc::new(AtomicBool::new(false));
    let waiting = thread::current();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work(&stop);
            waiting.unpark();
            result
        });
        while !worker.is_finished() {
            thread::park_timeout(PAUSE);
            let (done, total) = (0, 0);
            if !progress(done, total) {
                stop.store(true, Relaxed);
            }
        }
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The events of one name, or all events, batch by batch as they are read.
pub struct Events {
    /// The table without rows.
    pub empty: Table,
    /// The batches, in order of time. The sender waits until a batch is taken, and ends when this is dropped.
    pub batches: Receiver<RecordBatch>,
}

/// Reads the events called `name`, or all if it is `None`, with the selection of `script`, whose arguments these are.
///
/// # Errors
/// As for [`tables`], and for a name that no class of events has.
pub fn events(arguments: &[OsString], name: Option<&str>) -> Result<Events, Error> {
    /// Batches that wait to be taken.
    const WAITING: usize = 2;
    let Command::Script(command) = parse(arguments)? else {
        return Err(Error::Usage("only `script` selects events".to_owned()));
    };
    let experiment = input::experiment(&command.input, events::NEEDS)?;
    if let Some(problem) = experiment.problems.first() {
        return Err(Error::Unreadable(problem.to_string()));
    }
    let (table, wanted, reading) = experiment.with(|traces| {
        timeline::refuse_unrelated(traces)?;
        let reading = events::reading(&command.input, traces, events::EXPORT_CHUNKS)?;
        events::refuse_streams(&reading)?;
        let wanted = events::wanted(&command.filter, &command.input, traces)?;
        let table = match name {
            None => EventTable::of_all(),
            Some(name) => {
                let table = event_tables(traces).into_iter().find(|table| table.name == name);
                table.ok_or_else(|| Failure::usage(format!("no class of events is called {name}")))?
            }
        };
        Ok::<_, Failure>((table, wanted, reading))
    })?;
    let (sender, batches) = sync_channel(WAITING);
    let empty = table.builder().finish(Vec::new());
    thread::spawn(move || {
        experiment.with(|traces| {
            let rows = &mut |batch| sender.send(batch).is_ok();
            table.read(traces, (&wanted, &reading), &[], rows, &mut |_| true);
        });
    });
    Ok(Events { empty, batches })
}

/// Opens the store of inputs; builds it if there is none of the inputs as they are now. `arguments` begin with `index`. If
/// stopped by `progress`, returns `None`.
///
/// # Errors
/// As for [`tables`], and if the store can't be written.
pub fn store(arguments: &[OsString], progress: Progress<'_>) -> Result<Option<Store>, Error> {
    let Command::Index(command) = parse(arguments)? else {
        return Err(Error::Usage("only `index` builds a store".to_owned()));
    };
    let open = |stop: &_| index::open(&command.input, &command.store, &|_| Bar::stopped_by(stop));
    Ok(stoppable(progress, open)?)
}

/// Returns at most `limit` records of a table of a store that have an instant in a span of nanoseconds. If stopped by
/// `progress`, returns `None`.
///
/// # Errors
/// Returns an error for an unknown table, an empty span, and a damaged store.
pub fn records(
    store: &Store,
    name: &str,
    span: (u64, u64),
    limit: usize,
    progress: Progress<'_>,
) -> Result<Option<Table>, Error> {
    let Some(table) = store.table(name) else {
        let names: Vec<&str> = store.tables().map(|table| table.schema().name.as_str()).collect();
        let known = names.join(", ");
        return Err(Error::Usage(format!("the store has no table `{name}`; it has {known}")));
    };
    let read = |stop: &Arc<AtomicBool>| {
        let budget = Budget { rows: u64::MAX, stop: Some(Arc::clone(stop)) };
        stored::records(store, table, span, limit, &budget)
    };
    match stoppable(progress, read) {
        Ok(table) => Ok(Some(table)),
        Err(hodo_store::Error::Stopped) => Ok(None),
        Err(hodo_store::Error::Refused(refused)) => Err(Error::Usage(refused.to_string())),
        Err(error) => Err(Error::Unreadable(error.to_string())),
    }
}

/// Describes the inputs as JSON: the output of `hodo info --format json`. `arguments` begin with `info`.
///
/// # Errors
/// As for [`tables`].
pub fn description(arguments: &[OsString]) -> Result<String, Error> {
    let Command::Info(command) = parse(arguments)? else {
        return Err(Error::Usage("only `info` describes inputs".to_owned()));
    };
    events::contents(&command.input)?;
    let experiment = input::experiment(&command.input, hodo_engine::Needs::ALL)?;
    if let Some(problem) = experiment.problems.first() {
        return Err(Error::Unreadable(problem.to_string()));
    }
    let mut json = Vec::new();
    info::write_json(&command, &experiment, &mut json).expect("memory accepts all bytes");
    Ok(String::from_utf8(json).expect("JSON is text"))
}

/// Checks that every input exists and has a known format, and opens none.
///
/// # Errors
/// Returns the first problem.
pub fn check(arguments: &[OsString]) -> Result<(), Error> {
    let Command::Info(command) = parse(arguments)? else {
        return Err(Error::Usage("only `info` describes inputs".to_owned()));
    };
    Ok(input::recognised(&command.input)?)
}

/// Divides a report into tasks: the lines that `hodo plan` prints. `arguments` begin with `plan`.
///
/// # Errors
/// As for [`tables`].
pub fn plan(arguments: &[OsString]) -> Result<Vec<String>, Error> {
    let Command::Plan(command) = parse(arguments)? else {
        return Err(Error::Usage("only `plan` makes tasks".to_owned()));
    };
    let text = |argument: &OsString| argument.to_str().map(str::to_owned);
    let texts: Option<Vec<String>> = arguments.iter().map(text).collect();
    let texts = texts.ok_or_else(|| Error::Usage("a task holds arguments that are text only".to_owned()))?;
    let texts = std::iter::once("hodo".to_owned()).chain(texts);
    Ok(parts::tasks(&command, &parts::arguments_of(texts))?)
}

/// Folds a task into a part; `None` if stopped by `progress`.
///
/// `plan` is any name of the plan that the task is of: its inputs stay open for the next task of that plan.
///
/// # Errors
/// Returns an error for what is no task, and for inputs that can't be read or have changed since they were planned.
pub fn fold(task: &str, plan: Option<String>, progress: Progress<'_>) -> Result<Option<Vec<u8>>, Error> {
    static KEPT: Mutex<Option<(String, Opened)>> = Mutex::new(None);
    // Another thread may fold at the same time: it then finds nothing kept, and opens the inputs too.
    let kept = KEPT.lock().map_or(None, |mut kept| kept.take());
    let mut opened = kept.filter(|(kept_plan, _)| Some(kept_plan) == plan.as_ref()).map(|(_, opened)| opened);
    let folded = parts::fold_task(task, &mut opened, progress)?;
    if let (Ok(mut kept), Some(plan), Some(opened)) = (KEPT.lock(), plan, opened) {
        *kept = Some((plan, opened));
    }
    Ok(folded.map(|part| part.to_bytes()))
}

/// Merges parts of one request into one.
///
/// # Errors
/// Returns an error for bytes that are no part, and for parts of several requests.
pub fn merge(parts: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let parts = parts.iter().map(|bytes| part(bytes)).collect::<Result<Vec<Part>, Error>>()?;
    Ok(Part::merge(parts).map_err(Failure::usage)?.to_bytes())
}

/// Makes the tables of the merged parts.
///
/// # Errors
/// Returns an error for bytes that are no part, and for a part that is not the whole.
pub fn finish(whole: &[u8]) -> Result<Outcome, Error> {
    let whole = part(whole)?;
    let selection = Selection { view: whole.parameters().selection.view, ..Selection::default() };
    Ok(parts::tables(whole, &selection)?)
}

fn part(bytes: &[u8]) -> Result<Part, Error> {
    Part::from_bytes(bytes).map_err(|error| Error::Unreadable(error.to_string()))
}

fn parse(arguments: &[OsString]) -> Result<Command, Error> {
    let program = std::iter::once(OsString::from("hodo"));
    let parsed = Arguments::try_parse_from(program.chain(arguments.iter().cloned()));
    parsed.map(|arguments| arguments.command).map_err(|error| Error::Usage(reason(&error.to_string())))
}

/// Returns what clap says is wrong, without its usage text and its advice for shells.
fn reason(error: &str) -> String {
    let text = error.strip_prefix("error: ").unwrap_or(error);
    let ends = ["\n\nUsage: ", "\n\nFor more information"].into_iter().filter_map(|mark| text.find(mark));
    let text = &text[..ends.min().unwrap_or(text.len())];
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("  tip: to pass"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        match parse(&arguments) {
            Err(Error::Usage(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn wrong_arguments_have_a_reason_and_no_usage_text() {
        assert_eq!(refused(&["report", "--nonsense=1"]), "unexpected argument '--nonsense' found");
        assert_eq!(
            refused(&["latency", "--form=a"]),
            "unexpected argument '--form' found\n  tip: a similar argument exists: '--from'"
        );
        assert!(refused(&["report", "nothing"]).contains("[possible values: functions, "));
    }
}

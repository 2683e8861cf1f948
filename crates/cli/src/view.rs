//! `hodo view`: what the server shows of the inputs.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{Arc, atomic::AtomicBool},
};

use hodo_clock::OriginNanos;
use hodo_engine::{
    AnyReport, Experiment, Identity, IndexError, Needs, Request, TimeSpan, Traces, report_for, reports,
};
use hodo_findings::table;
use hodo_model::{
    Interest, Parameters, Role, Selection, Table,
    table::{RecordBatch, cells},
};
use hodo_script::events::event_tables;
use hodo_server::{Extent, Inputs, NoStore, Progress, Refused, Report, Rows, SqlTable, Written};
use hodo_store::{Error, State, Store};

use crate::{
    align,
    arguments::{Input, StoreFolder, View},
    events, explain,
    failure::{Failure, INTERRUPTED, written},
    index, info, input, live,
    output::Destination,
    progress::CtrlC,
    quantities::size,
    report, sql, timeline,
    view_flow::Recorded,
};

/// Runs the command.
pub fn run(command: &View) -> Result<ExitCode, Failure> {
    let options = &command.input;
    if live::address(options)?.is_some() {
        return Err(Failure::usage(
            "hodo view shows what was recorded, not a session that is being recorded",
        ));
    }
    let opened = Opened::open(command)?;
    if let Some(file) = &command.output {
        return write(opened, file, command);
    }
    let ready = |address: &str| {
        let address = &format!("{address}{}", fragment(&command.counter));
        // A program that reads the address from a pipe needs it now.
        let printed = writeln!(io::stdout(), "{address}").and_then(|()| io::stdout().flush());
        if let Err(failure) = written(printed) {
            message!("{failure}");
        }
        if !command.no_open {
            open_browser(address);
        }
    };
    hodo_server::serve(Arc::new(opened), ready)
        .map_err(|error| Failure::unreadable(format!("can't serve the page: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

/// The part of the address that says what the page shows: counters, as a list in JSON.
fn fragment(counters: &[String]) -> String {
    if counters.is_empty() {
        return String::new();
    }
    let mut fragment = "#view=timeline&plots=".to_owned();
    for byte in serde_json::Value::from(counters).to_string().bytes() {
        match byte {
            b'.' | b'_' => fragment.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => fragment.push(byte.into()),
            _ => fragment.push_str(&format!("%{byte:02X}")),
        }
    }
    fragment
}

/// Writes the page as one file.
fn write(opened: Opened, file: &Path, command: &View) -> Result<ExitCode, Failure> {
    // Ctrl-C is noticed between tables and tiles.
    let progress = CtrlC::watch();
    let mut out = Destination::open(Some(file))?;
    let extent = Extent { span: shown_span(&opened)?, rows: command.rows.clone() };
    let (size, opened) = (size(&command.size)?, Arc::new(opened));
    let made = hodo_server::write_file(opened, size, extent, || !progress.is_pressed(), &mut out);
    let made = made.map_err(|error| Failure::unreadable(format!("{}: {error}", file.display())))?;
    let Some(Written { bytes, left_out }) = made else { return Ok(ExitCode::from(INTERRUPTED)) };
    out.finish()?;
    if !command.input.quiet {
        left_out.iter().for_each(|line| message!("{line}"));
    }
    written(writeln!(io::stdout(), "{}: {bytes} bytes", file.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The span of `--time`, in nanoseconds of the timeline.
fn shown_span(opened: &Opened) -> Result<Option<(u64, u64)>, Failure> {
    let Some(text) = &opened.input.time else { return Ok(None) };
    let span = TimeSpan::parse(text).map_err(|why| Failure::usage(format!("--time {text}: {why}")))?;
    let window = opened.experiment.with(|traces| traces.window(&span))?;
    let nanos = |OriginNanos(nanos)| u64::try_from(nanos).unwrap_or(0);
    Ok(Some((window.from.map_or(0, nanos), window.to.map_or(u64::MAX, nanos))))
}

/// Starts the user's browser; the address is printed in any case.
fn open_browser(address: &str) {
    let mut browser = Command::new("xdg-open");
    browser.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if browser.spawn().is_err() {
        message!("no browser was opened (xdg-open is missing): open the address in one");
    }
}

/// The opened inputs.
pub struct Opened {
    pub experiment: Arc<Experiment>,
    pub input: Input,
    /// The identity of the inputs when they were opened; `None` without files.
    identity: Option<Identity>,
    /// The folder of the store.
    folder: Option<PathBuf>,
    about: Vec<Table>,
    /// The recordings of control flow.
    pub recordings: Vec<Recorded>,
    store: StoreFolder,
}

impl Opened {
    fn open(command: &View) -> Result<Opened, Failure> {
        let mut input = command.input.clone();
        if !command.no_align {
            input.offset.extend(align::offsets(&input, command.align.as_deref())?);
        }
        // The identity is taken before reading, so a later change of an input is noticed.
        let identity = match input.buffer() {
            Some(_) => None,
            None => Some(index::identity(&input)?),
        };
        let folder = identity.as_ref().map(|identity| index::folder(&command.store, identity)).transpose()?;
        let experiment = Arc::new(input::experiment(&input, Needs::ALL)?);
        let mut about = experiment.with(info_tables);
        about.extend(timeline::clocks(&experiment));
        let recordings = Recorded::of(&input, &experiment);
        let store = command.store.clone();
        Ok(Opened { experiment, input, identity, folder, about, recordings, store })
    }

    /// Returns whether the inputs provide what a report reads, without further options.
    fn provides(&self, report: &'static AnyReport) -> bool {
        let run = report.make(&Parameters::default());
        let Interest { flow, .. } = run.analysis().interest();
        let contents = self.experiment.contents;
        let is_there = if flow == hodo_model::FlowInterest::None { contents.events } else { contents.flow };
        is_there && Request::of(vec![report], Parameters::default()).check().is_ok()
    }

    fn request(&self, name: &str, view: &str) -> Result<Request, Refused> {
        let known = report::named(&[name.to_owned()]);
        let known: Vec<_> = known.into_iter().filter(|report| report.description().name == name).collect();
        if known.is_empty() {
            return Err(Refused(format!("there is no report {name}")));
        }
        let selection = Selection { view: view.to_owned(), ..Selection::default() };
        let parameters = Parameters { selection, alone: true, ..Parameters::default() };
        input::request(&self.input, None, known, parameters, &self.experiment).map_err(refused)
    }

    /// Makes the table of a request whose rows leave as they settle; keeps the first ones and counts the others.
    fn first_rows(
        &self,
        request: &Request,
        most: usize,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<Option<Rows>, Refused> {
        let Some(heading) = self.experiment.heading(request) else { return Ok(None) };
        let mut builder = heading.builder();
        let (mut kept, mut left_out) = (0, 0);
        let mut add = |batch: &RecordBatch| {
            let columns = cells(batch);
            let rows = batch.num_rows().min(most - kept);
            (0..rows).for_each(|row| builder.row(columns.iter().map(|column| column.cell(row))));
            kept += rows;
            left_out += (batch.num_rows() - rows) as u64;
        };
        let streamed = self.experiment.stream(
            request,
            &mut |batch| {
                add(batch);
                true
            },
            progress,
        );
        let outcome = streamed.map_err(|refusal| Refused(refusal.to_string()))?;
        let [rest] = <[Table; 1]>::try_from(outcome.tables)
            .map_err(|tables| Refused(format!("expected one table, got {}", tables.len())))?;
        rest.batches().iter().for_each(add);
        let table = builder.finish(rest.summary).with_loss(rest.loss);
        Ok(Some(Rows { table, left_out }))
    }
}

/// Returns the tables of `hodo info`.
fn info_tables(traces: &Traces<'_>) -> Vec<Table> {
    let infos = traces.flows.iter().map(|flow| hodo_engine::info(flow));
    let mut tables: Vec<Table> = infos.flat_map(|about| info::of_recording(&about)).collect();
    tables.extend(events::of_traces(traces));
    tables
}

fn refused(failure: Failure) -> Refused {
    Refused(failure.to_string())
}

impl Inputs for Opened {
    fn names(&self) -> Vec<String> {
        let files = self.input.files.iter().map(|file| file.display().to_string());
        match self.input.buffer() {
            Some(trace) => vec![trace.display().to_string()],
            None => files.collect(),
        }
    }

    fn about(&self) -> Vec<Table> {
        self.about.clone()
    }

    fn unrelated(&self) -> Vec<String> {
        self.experiment.unrelated()
    }

    fn half_width(&self) -> u64 {
        let widths = self.experiment.clocks.iter().filter_map(|clock| clock.half_width_ns);
        widths.max().unwrap_or(0)
    }

    fn reports(&self) -> Vec<Report> {
        let known = reports().iter().filter(|report| self.provides(report));
        let described = |report: &'static AnyReport| {
            let about = report.description();
            Report { name: about.name, help: about.help, views: about.views }
        };
        known.map(described).collect()
    }

    fn table(
        &self,
        report: &str,
        view: &str,
        recording: usize,
        most: usize,
        progress: Progress<'_>,
    ) -> Result<Option<Rows>, Refused> {
        let request = self.request(report, view)?;
        let total = self.experiment.work(&request);
        let mut wants_more = true;
        let mut set = |done| {
            wants_more = progress(done, total);
            wants_more
        };
        if let Some(rows) = self.first_rows(&request, most, &mut set)? {
            return Ok(Some(rows).filter(|_| wants_more));
        }
        let outcome = self.experiment.run(&request, &mut set);
        let outcome = outcome.map_err(|refusal| Refused(refusal.to_string()))?;
        // Each recording of control flow has its own table. Reports of events have one table.
        let place = recording.min(outcome.tables.len().saturating_sub(1));
        let table = outcome.tables.into_iter().nth(place);
        let table = table.ok_or_else(|| Refused(format!("{report}: {}", outcome.notes.join("; "))))?;
        Ok(Some(Rows { table, left_out: 0 }).filter(|_| wants_more))
    }

    fn critical_path(&self, thread: u32, progress: Progress<'_>) -> Result<Option<Table>, Refused> {
        let mut request = self.request(report_for(Role::CriticalPath).description().name, "piece")?;
        request.parameters.selection.tids = vec![thread];
        let total = self.experiment.work(&request);
        let mut wants_more = true;
        let outcome = self.experiment.run(&request, &mut |done| {
            wants_more = progress(done, total);
            wants_more
        });
        let tables = outcome.map_err(|refusal| Refused(refusal.to_string()))?.tables;
        Ok(tables.into_iter().next().filter(|_| wants_more))
    }

    fn findings(&self, progress: Progress<'_>) -> Result<Option<Table>, Refused> {
        let total = explain::work(&self.input, &self.experiment).map_err(refused)?;
        let found = explain::find(&self.input, &self.experiment, &mut |done| progress(done, total));
        Ok(found.map_err(refused)?.map(|found| table(&found)))
    }

    fn sql_tables(&self) -> Result<Vec<SqlTable>, Refused> {
        let question = sql::Sql::of(self.input.clone(), self.store.clone());
        let sources = sql::sources(&self.experiment, &question, &Arc::default()).map_err(refused)?;
        let events: BTreeSet<String> =
            self.experiment.with(event_tables).into_iter().map(|table| table.name).collect();
        let table = |name: &str| SqlTable { name: name.to_owned(), is_event: events.contains(name) };
        Ok(sources.iter().map(|source| table(source.name())).collect())
    }

    fn sql(&self, query: &str, most: u64, stop: &Arc<AtomicBool>) -> Result<Option<Table>, Refused> {
        let question = sql::Sql::of(self.input.clone(), self.store.clone());
        sql::answer(&self.experiment, &question, query, Some(most), stop).map_err(refused)
    }

    fn store(&self, progress: Progress<'_>) -> Result<Option<Store>, NoStore> {
        let (Some(identity), Some(folder)) = (&self.identity, &self.folder) else {
            return Err(NoStore::Nothing("a raw buffer has no store".to_owned()));
        };
        match Store::open(folder) {
            Ok(store) if store.identity() == identity.text && store.state() == State::Complete => {
                return Ok(Some(store));
            }
            _ => {}
        }
        let threads = input::threads(&self.input);
        let total = self.experiment.index_work();
        let made = self.experiment.index(folder, identity, threads, &mut |done| progress(done, total));
        match made {
            Ok(Some(_)) => Store::open(folder).map(Some).map_err(|error| NoStore::Failed(error.to_string())),
            Ok(None) => Ok(None),
            Err(IndexError::Refused(refusal)) => Err(NoStore::Nothing(refusal.to_string())),
            Err(IndexError::Store(Error::Busy(_))) => Err(NoStore::Failed(
                "another hodo writes the store of these inputs: open them again later".to_owned(),
            )),
            Err(IndexError::Store(error)) => Err(NoStore::Failed(error.to_string())),
        }
    }

    fn growing(&self) -> Option<Store> {
        let store = Store::open(self.folder.as_ref()?).ok()?;
        let is_ours = self.identity.as_ref().is_some_and(|identity| store.identity() == identity.text);
        Some(store).filter(|store| is_ours && store.tables().any(|table| table.rows() > 0))
    }

    fn change(&self) -> Option<String> {
        let identity = self.identity.as_ref()?;
        match index::identity(&self.input) {
            Ok(now) if now == *identity => None,
            Ok(_) => Some(
                "An input was changed after it was opened. This page shows what it was; start hodo view again to see \
                 what it is now."
                    .to_owned(),
            ),
            Err(failure) => Some(format!("An input can't be read any more: {failure}")),
        }
    }
}

//! The tables of `hodo sql`: every view of every report, and every class of events.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use hodo_engine::{AnyReport, Chunks, EventReading, Experiment, Request, TimeSpan, Traces, reports};
use hodo_model::{Column, Parameters, Root, Table, Value, table::cells};
use hodo_script::events::{EventTable, event_tables};
use hodo_sql::Source;

use super::{
    Sql,
    calls::{CALLS, OfCalls},
    together::{Settling, Together},
};
use crate::{events, failure::Failure, function, input, progress::Progress, selection::Selection, timeline};

/// A span in which a table has few rows, to learn its columns.
const FIRST: &str = "0%-0.001%";
/// The column that distinguishes the rows of several recordings of control flow.
pub(super) const RECORDING: &str = "recording";
/// Chunk size of events, which become about as many bytes of columns.
const CHUNKS: Chunks = Chunks::Bytes(4 << 20);

/// What all tables share.
pub(super) struct Common {
    pub(super) experiment: Arc<Experiment>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) quiet: bool,
    /// Whether the tables are kept for other statements, and so made with the cells of all columns.
    pub(super) is_kept: bool,
    together: Together,
}

/// Returns the tables that the inputs may have. A report comes before a class of events of the same name.
pub(super) fn all(
    experiment: &Arc<Experiment>,
    command: &Sql,
    stop: &Arc<AtomicBool>,
    is_kept: bool,
) -> Result<Vec<Arc<dyn Source>>, Failure> {
    let common = Arc::new(Common {
        experiment: Arc::clone(experiment),
        stop: Arc::clone(stop),
        quiet: command.input.quiet,
        is_kept,
        together: Together::default(),
    });
    let root = command.root.root().filter(|_| experiment.contents.flow);
    let root = root.map(|root| function::root(&root, experiment)).transpose()?;
    let mut sources: Vec<Arc<dyn Source>> = Vec::new();
    let period = command.period.period()?;
    for report in reports().iter() {
        let about = report.description();
        if about.takes.period && period.is_none() || about.takes.intervals {
            continue;
        }
        let views = if about.views.is_empty() { &[""][..] } else { about.views };
        for (index, view) in views.iter().enumerate() {
            let name = if index == 0 { about.name.to_owned() } else { format!("{}_{view}", about.name) };
            let request = request(experiment, command, report, view, root.as_ref())?;
            if has_data(experiment, &request) {
                let (common, columns, rows) = (Arc::clone(&common), OnceLock::new(), Mutex::new(None));
                let number = sources.len();
                sources.push(Arc::new(OfReport { name, number, request, common, columns, rows }));
            }
        }
    }
    if experiment.contents.flow {
        debug_assert!(sources.iter().all(|source| source.name() != CALLS), "no report has this name");
        sources.push(Arc::new(OfCalls { input: command.input.clone(), common: Arc::clone(&common) }));
    }
    let tables = experiment.with(event_tables);
    if tables.is_empty() {
        return Ok(sources);
    }
    let wanted = Selection::new(&command.input, Some(&command.filter))?.wanted();
    let (reading, lacks) = experiment.with(|traces| {
        timeline::refuse_unrelated(traces)?;
        let reading = events::reading(&command.input, traces, CHUNKS)?;
        events::refuse_streams(&reading)?;
        // If the events lack a selected context, only statements that name a class of events fail.
        let lacks = events::wanted(&command.filter, &command.input, traces).err();
        Ok::<_, Failure>((reading, lacks.map(|failure| failure.to_string())))
    })?;
    for table in tables {
        if sources.iter().all(|known| !known.name().eq_ignore_ascii_case(&table.name)) {
            let (common, wanted) = (Arc::clone(&common), wanted.clone());
            let lacks = lacks.clone();
            sources.push(Arc::new(OfEvents { table, wanted, reading, lacks, common }));
        }
    }
    Ok(sources)
}

/// Returns whether the inputs hold what the report reads.
fn has_data(experiment: &Experiment, request: &Request) -> bool {
    let flow = crate::report::needs(&request.reports).flow;
    if flow { experiment.contents.flow } else { experiment.contents.events }
}

fn request(
    experiment: &Experiment,
    command: &Sql,
    report: &'static AnyReport,
    view: &'static str,
    root: Option<&Root>,
) -> Result<Request, Failure> {
    let selection = Selection::new(&command.input, Some(&command.filter))?;
    let takes = report.description().takes;
    let root = root.cloned().filter(|_| takes.root);
    let selection = hodo_model::Selection { root, ..selection.of_tables(Some(view)) };
    let parameters = Parameters {
        selection,
        every: command.every.filter(|_| takes.every),
        period: command.period.period()?.filter(|_| takes.period),
        intervals: None,
        alone: true,
        icache: None,
    };
    let request =
        input::request(&command.input, Some(&command.filter), vec![report], parameters, experiment)?;
    Ok(Request { views: vec![view], ..request })
}

/// A view of a report.
struct OfReport {
    name: String,
    /// Its place among the sources.
    number: usize,
    request: Request,
    common: Arc<Common>,
    columns: OnceLock<Result<Vec<Column>, String>>,
    /// The whole table, if it had to be computed for its columns.
    rows: Mutex<Option<Table>>,
}

impl OfReport {
    fn run(&self, request: &Request) -> Result<Table, String> {
        let Common { experiment, stop, quiet, .. } = &*self.common;
        let progress = Progress::new_stopped_by(stop, experiment.work(request), *quiet);
        let outcome = experiment.run(request, &mut |done| progress.set(done));
        progress.finish();
        let mut tables = outcome.map_err(|refusal| format!("the table `{}`: {refusal}", self.name))?.tables;
        if stop.load(Relaxed) {
            return Err("interrupted".to_owned());
        }
        match tables.len() {
            1 => Ok(tables.remove(0)),
            0 => Err(format!("these inputs have no table `{}`", self.name)),
            _ => {
                let name = |traces: &Traces<'_>| traces.flows.iter().map(|flow| flow.name.clone()).collect();
                let names: Vec<String> = experiment.with(name);
                Ok(joined(&tables, &names))
            }
        }
    }
}

impl OfReport {
    /// The table, if its rows leave as they settle.
    fn settling(&self, read: &[bool]) -> Option<Settling> {
        let heading = self.common.experiment.heading(&self.request)?;
        Some(Settling { request: self.request.clone(), heading, read: read.to_vec() })
    }
}

/// Joins the tables of several recordings; a column names the recording of each row.
fn joined(tables: &[Table], names: &[String]) -> Table {
    let first = &tables[0];
    let columns = first.columns().iter().copied().chain([Column::name(RECORDING)]).collect();
    let mut builder = hodo_model::TableBuilder::new(first.name(), first.shape(), columns);
    for (index, table) in tables.iter().enumerate() {
        let name = names.get(index).map_or("", String::as_str);
        for batch in table.batches() {
            let columns = cells(batch);
            for row in 0..batch.num_rows() {
                builder.row(columns.iter().map(|column| column.cell(row)).chain([name.into()]));
            }
        }
    }
    let loss = tables.iter().flat_map(|table| table.loss.clone()).collect();
    builder.finish(vec![("recordings", Value::Integer(tables.len() as u64))]).with_loss(loss)
}

impl Source for OfReport {
    fn name(&self) -> &str {
        &self.name
    }

    /// The columns of the table of the first moments; of the whole table if that fails, as in a trace without times.
    fn columns(&self) -> Result<Vec<Column>, String> {
        let columns = self.columns.get_or_init(|| {
            let mut request = self.request.clone();
            let reads_everything = request.times.span.is_none() && request.times.calls.is_none();
            if reads_everything && let Ok(span) = TimeSpan::parse(FIRST) {
                request.times.span = Some(span);
                if let Ok(table) = self.run(&request) {
                    return Ok(table.columns().to_vec());
                }
            }
            let table = self.run(&self.request)?;
            let columns = table.columns().to_vec();
            *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = Some(table);
            Ok(columns)
        });
        columns.clone()
    }

    fn expect(&self, read: Option<&[bool]>) {
        let settling = read.and_then(|read| self.settling(read));
        self.common.together.expect(self.number, settling);
    }

    fn table(&self, read: &[bool]) -> Result<Table, String> {
        let made = self.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        let table = match (made, self.settling(read)) {
            (Some(made), _) => made,
            // All rows: a table that is made at once keeps a bounded number of them.
            (None, Some(settling)) => {
                let made = self.common.together.make(self.number, settling, &self.common);
                made.map_err(|why| format!("the table `{}`: {why}", self.name))?
            }
            (None, None) => self.run(&self.request)?,
        };
        if self.columns()? == table.columns() {
            Ok(table)
        } else {
            Err(format!("the columns of `{}` depend on the time: give a span with --time", self.name))
        }
    }

    fn has_all_columns(&self) -> bool {
        self.common.is_kept || self.common.experiment.heading(&self.request).is_none()
    }
}

/// The events of one name.
struct OfEvents {
    table: EventTable,
    wanted: hodo_engine::events::Wanted,
    reading: EventReading,
    /// Why the selection does not apply to these events.
    lacks: Option<String>,
    common: Arc<Common>,
}

impl Source for OfEvents {
    fn name(&self) -> &str {
        &self.table.name
    }

    fn columns(&self) -> Result<Vec<Column>, String> {
        self.lacks.clone().map_or_else(|| Ok(self.table.columns.clone()), Err)
    }

    fn table(&self, read: &[bool]) -> Result<Table, String> {
        let Common { experiment, stop, quiet, .. } = &*self.common;
        let mut builder = self.table.builder();
        let losses = experiment.with(|traces| {
            let progress = Progress::new_stopped_by(stop, traces.event_bytes(), *quiet);
            let losses = self.table.read(
                traces,
                (&self.wanted, &self.reading),
                read,
                &mut |batch| {
                    builder.add_batch(&batch);
                    true
                },
                &mut |done| progress.set(done),
            );
            progress.finish();
            losses
        });
        if stop.load(Relaxed) {
            return Err("interrupted".to_owned());
        }
        Ok(builder.finish(Vec::new()).with_loss(losses.into_list()))
    }
}

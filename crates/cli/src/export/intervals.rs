//! The intervals of software events as a timeline: the rows of every report that has such a view.

use std::{collections::BTreeMap, io, process::ExitCode};

use hodo_engine::{AnyReport, Needs, Outcome, reports};
use hodo_exports::{BeginTimeline, Timeline, Track};
use hodo_model::{
    Heading, Loss, Parameters, Shape, Type,
    table::{Cell, Cells, RecordBatch, cells},
};

use super::{emit_left_out, emit_nothing};
use crate::{
    arguments::Export,
    events,
    failure::{Failure, INTERRUPTED, written},
    input,
    output::Destination,
    progress::Progress,
    selection::Selection,
    timeline,
};

/// The view of reports whose rows are intervals.
const VIEW: &str = "interval";
/// The columns with the times of an interval.
const BEGIN: &str = "begin_ns";
const DURATION: &str = "duration_ns";
/// Columns that identify a row's thread, or its CPU.
const THREAD: [&str; 3] = ["comm", "tid", "pid"];
const CPU: &str = "cpu";

pub(super) fn export(command: &Export, begin: BeginTimeline) -> Result<ExitCode, Failure> {
    events::refuse_flow(&command.input)?;
    let selection = Selection::new(&command.input, Some(&command.filter))?.of_tables(Some(VIEW));
    let experiment = input::experiment(&command.input, Needs { flow: false, sideband: false, events: true })?;
    experiment.with(timeline::refuse_unrelated)?;
    let with_intervals = |report: &&'static AnyReport| report.description().views.contains(&VIEW);
    let mut requests = Vec::new();
    for report in reports().iter().filter(with_intervals) {
        let parameters = Parameters { selection: selection.clone(), alone: true, ..Parameters::default() };
        let request =
            input::request(&command.input, Some(&command.filter), vec![report], parameters, &experiment)?;
        let heading = experiment.heading(&request).filter(|heading| heading.shape == Shape::Intervals);
        requests.extend(heading.map(|heading| (request, heading)));
    }
    let work = requests.iter().map(|(request, _)| 2 * experiment.work(request)).sum();
    let progress = Progress::new(work, command.input.quiet);
    let mut out = Destination::open(Some(&command.output))?;
    let mut writer = match begin(&mut out) {
        Ok(timeline) => Writer::new(timeline, command.min.unwrap_or(0)),
        Err(error) => return written(Err(error)).map(|()| ExitCode::SUCCESS),
    };
    let (mut before, mut losses, mut lossless) = (0, Vec::new(), true);
    for (request, heading) in requests {
        let rows = Rows::new(&heading);
        let mut result = Ok(());
        let mut add = |batch: &RecordBatch| {
            result = rows.add(batch, &mut writer);
            result.is_ok()
        };
        let outcome: Outcome =
            experiment.stream(&request, &mut add, &mut |done| progress.set(before + done))?;
        let last = outcome.tables.last().filter(|_| !progress.is_interrupted());
        if let Some(table) = last {
            table.batches().iter().all(&mut add);
            // All tables of one input have its losses.
            losses.clone_from(&table.loss);
        }
        written(result)?;
        lossless &= outcome.is_lossless();
        before += 2 * experiment.work(&request);
    }
    progress.finish();
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let (left_out, is_empty) = (writer.left_out, writer.names.is_empty());
    written(writer.finish(&losses))?;
    out.finish()?;
    emit_left_out(command, left_out);
    if is_empty {
        emit_nothing(command, "interval");
    }
    written(hodo_views::write_loss(&losses, &hodo_views::Options::default(), &mut io::stderr()))?;
    Ok(input::exit_code_of(&command.input, &experiment, lossless))
}

/// Numbers tracks and names.
struct Writer<'o> {
    timeline: Box<dyn Timeline + 'o>,
    shortest: u64,
    tracks: BTreeMap<Track, u32>,
    names: BTreeMap<String, u32>,
    left_out: u64,
}

impl<'o> Writer<'o> {
    fn new(timeline: Box<dyn Timeline + 'o>, shortest: u64) -> Writer<'o> {
        Writer { timeline, shortest, tracks: BTreeMap::new(), names: BTreeMap::new(), left_out: 0 }
    }

    fn add(&mut self, track: Track, name: String, begin: u64, duration: u64) -> io::Result<()> {
        if duration < self.shortest {
            self.left_out += 1;
            return Ok(());
        }
        let next = self.tracks.len() as u32;
        let track = match self.tracks.get(&track) {
            Some(number) => *number,
            None => {
                self.timeline.begin_track(&track)?;
                *self.tracks.entry(track).or_insert(next)
            }
        };
        let next = self.names.len() as u32;
        let name = match self.names.get(&name) {
            Some(number) => *number,
            None => {
                self.timeline.name(&name)?;
                *self.names.entry(name).or_insert(next)
            }
        };
        self.timeline.begin(track, begin, name)?;
        self.timeline.end(track, begin.saturating_add(duration))
    }

    fn finish(self, losses: &[Loss]) -> io::Result<()> {
        self.timeline.finish(losses)
    }
}

/// The columns of a report's rows.
struct Rows {
    report: &'static str,
    begin: usize,
    duration: usize,
    /// Columns of the thread; `None` if the rows are about a CPU.
    thread: Option<[usize; 3]>,
    cpu: Option<usize>,
    /// Columns with the name of the interval.
    name: Vec<usize>,
}

impl Rows {
    fn new(heading: &Heading) -> Rows {
        let find = |name: &str| heading.columns.iter().position(|column| column.name == name);
        let known = |name: &str| find(name).expect("intervals have a begin and a duration");
        let thread: Option<Vec<usize>> = THREAD.iter().map(|name| find(name)).collect();
        let thread = thread.and_then(|thread| <[usize; 3]>::try_from(thread).ok());
        let cpu = find(CPU);
        // What comes first identifies a row; the rest describes it.
        let thread = thread.filter(|[comm, ..]| cpu.is_none_or(|cpu| comm < &cpu));
        let is_name = |place: &usize| {
            matches!(heading.columns[*place].kind, Type::Text | Type::Name)
                && thread.is_none_or(|thread| !thread.contains(place))
        };
        let name = (0..heading.columns.len()).filter(is_name).collect();
        Rows { report: heading.name, begin: known(BEGIN), duration: known(DURATION), thread, cpu, name }
    }

    fn add(&self, batch: &RecordBatch, writer: &mut Writer<'_>) -> io::Result<()> {
        let columns = cells(batch);
        (0..batch.num_rows()).try_for_each(|row| {
            let track = match (self.thread, self.cpu) {
                (Some([comm, tid, pid]), _) => Track::Thread {
                    pid: integer(&columns, pid, row) as u32,
                    tid: integer(&columns, tid, row) as u32,
                    name: text(&columns, comm, row).unwrap_or_default().to_owned(),
                    what: self.report.to_owned(),
                },
                (None, Some(cpu)) => {
                    Track::Named(format!("CPU {} {}", integer(&columns, cpu, row), self.report))
                }
                (None, None) => Track::Named(self.report.to_owned()),
            };
            let name: Vec<&str> = self.name.iter().filter_map(|&place| text(&columns, place, row)).collect();
            let (begin, duration) =
                (integer(&columns, self.begin, row), integer(&columns, self.duration, row));
            writer.add(track, name.join(" "), begin, duration)
        })
    }
}

fn integer(columns: &[Cells<'_>], place: usize, row: usize) -> u64 {
    match columns[place].cell(row) {
        Cell::Integer(integer) => integer,
        _ => 0,
    }
}

fn text<'c>(columns: &'c [Cells<'_>], place: usize, row: usize) -> Option<&'c str> {
    match columns[place].cell(row) {
        Cell::Text(text) => Some(text),
        _ => None,
    }
}

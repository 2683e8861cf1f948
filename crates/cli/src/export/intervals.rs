//! The intervals of software events as a timeline: the rows of every report that has lanes of intervals.

use std::{collections::BTreeMap, io, process::ExitCode};

use hodo_engine::{Needs, Outcome, Request, report_for, reports};
use hodo_exports::{BeginTimeline, Timeline, Track};
use hodo_model::{Cell, Heading, LaneValue, Lanes, Loss, Parameters, RecordBatch, cells};
use hodo_store::filled;

use super::{emit_left_out, emit_nothing, scheduling};
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

/// What the rows of a table are.
enum Rows {
    Intervals(IntervalColumns),
    Events(scheduling::AddEvents),
}

impl Rows {
    /// Adds a batch.
    fn add(&self, batch: &RecordBatch, writer: &mut Writer<'_>) -> io::Result<()> {
        match self {
            Rows::Intervals(columns) => columns.add(batch, writer),
            Rows::Events(add) => add(batch, &mut *writer.timeline),
        }
    }
}

/// The columns with the times of an interval.
const BEGIN: &str = "begin_ns";
const DURATION: &str = "duration_ns";
/// Columns of the thread in whose lane a row is.
const THREAD: [&str; 3] = ["comm", "tid", "pid"];

pub(super) fn export(command: &Export, begin: BeginTimeline) -> Result<ExitCode, Failure> {
    events::refuse_flow(&command.input)?;
    let selection = Selection::new(&command.input, Some(&command.filter))?;
    let experiment = input::experiment(&command.input, Needs { flow: false, sideband: false, events: true })?;
    experiment.with(timeline::refuse_unrelated)?;
    let mut requests: Vec<(Request, Rows)> = Vec::new();
    for report in reports() {
        let Some(lanes) = report.description().lanes else { continue };
        let selection = selection.of_tables(Some(lanes.view));
        let parameters = Parameters { selection, alone: true, ..Parameters::default() };
        let request =
            input::request(&command.input, Some(&command.filter), vec![report], parameters, &experiment)?;
        let heading = experiment.heading(&request);
        requests.extend(
            heading
                .and_then(|heading| IntervalColumns::new(lanes, &heading))
                .map(|columns| (request, Rows::Intervals(columns))),
        );
    }
    for (role, view, add) in scheduling::EVENTS {
        let parameters =
            Parameters { selection: selection.of_tables(Some(view)), alone: true, ..Parameters::default() };
        let reports = vec![report_for(role)];
        requests.push((
            input::request(&command.input, Some(&command.filter), reports, parameters, &experiment)?,
            Rows::Events(add),
        ));
    }
    // Streaming a table takes two passes.
    let work = requests.iter().map(|(request, _)| 2 * experiment.work(request)).sum();
    let progress = Progress::new(work, command.input.quiet);
    let mut out = Destination::open(Some(&command.output))?;
    let mut writer = match begin(&mut out) {
        Ok(timeline) => Writer::new(timeline, command.min.unwrap_or(0)),
        Err(error) => return written(Err(error)).map(|()| ExitCode::SUCCESS),
    };
    let (mut before, mut losses, mut lossless) = (0, Vec::new(), true);
    for (request, columns) in requests {
        let mut result = Ok(());
        let mut add = |batch: &RecordBatch| {
            result = columns.add(batch, &mut writer);
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

/// The columns of a report whose rows are intervals.
struct IntervalColumns {
    report: &'static str,
    lanes: Lanes,
    begin: usize,
    duration: usize,
    lane: Vec<usize>,
    value: usize,
    /// Columns of the thread whose lane it is.
    thread: Option<[usize; 3]>,
}

impl IntervalColumns {
    /// Returns the columns of intervals; `None` if the lanes have other records.
    fn new(lanes: Lanes, heading: &Heading) -> Option<IntervalColumns> {
        let find = |name: &str| heading.columns.iter().position(|column| column.name == name);
        let LaneValue::Column(value) = lanes.value else { return None };
        let (lane, report) = (lanes.lane.iter().filter_map(|name| find(name)).collect(), heading.name);
        let thread = match THREAD.map(find) {
            [Some(comm), Some(tid), Some(pid)] => Some([comm, tid, pid]),
            _ => None,
        };
        let thread = thread.filter(|_| lanes.path.starts_with(&Lanes::THREAD));
        let [begin, duration, value] = [find(BEGIN)?, find(DURATION)?, find(value)?];
        Some(IntervalColumns { report, lanes, begin, duration, lane, value, thread })
    }

    fn add(&self, batch: &RecordBatch, writer: &mut Writer<'_>) -> io::Result<()> {
        let columns = cells(batch);
        (0..batch.num_rows()).try_for_each(|row| {
            let integer = |column: usize| match columns[column].cell(row) {
                Cell::Integer(integer) => integer,
                _ => 0,
            };
            let text = |column: &usize| cell_text(columns[*column].cell(row));
            let track = match self.thread {
                Some([comm, tid, pid]) => Track::Thread {
                    pid: integer(pid) as u32,
                    tid: integer(tid) as u32,
                    name: text(&comm),
                    what: self.report.to_owned(),
                },
                None => {
                    let key: Vec<_> =
                        self.lanes.lane.iter().copied().zip(self.lane.iter().map(text)).collect();
                    let below_the_root = self.lanes.path.iter().skip(1);
                    Track::Named(below_the_root.map(|part| filled(part, &key)).collect::<Vec<_>>().join(" "))
                }
            };
            writer.add(track, text(&self.value), integer(self.begin), integer(self.duration))
        })
    }
}

/// Returns the text of a cell, as in a store.
fn cell_text(cell: Cell<'_>) -> String {
    let mut json = Vec::new();
    match cell {
        Cell::Null => return "?".to_owned(),
        Cell::Text(text) => return text.to_owned(),
        other => other.write_json(&mut json),
    }
    String::from_utf8(json).expect("JSON is UTF-8")
}

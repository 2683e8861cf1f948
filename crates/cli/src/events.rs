//! Commands on traces of software events.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Args;
use hodo_engine::{
    Chunks, Contents, EventReading, Files, Needs, Reading, Traces, Window,
    events::{self, Condition, StreamInfo, TraceInfo, Wanted},
};
use hodo_model::{Column, Loss, Shape, Table, Unit, Value};
use hodo_script::Format;

use crate::{
    arguments::{self, Input},
    failure::{Failure, INTERRUPTED, written},
    input,
    output::{self, Destination},
    progress::Progress,
    selection::Selection,
    timeline,
};

/// Chunk size for text output, which is about ten bytes per byte of trace.
const SCRIPT_CHUNKS: Chunks = Chunks::Bytes(1 << 20);
/// Chunk size for trace output.
pub const EXPORT_CHUNKS: Chunks = Chunks::Bytes(4 << 20);

/// Software events only.
pub const NEEDS: Needs = Needs { flow: false, sideband: false, events: true };

/// The filter of software events.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Software events")]
pub struct Filter {
    /// Only events whose names match, such as `sched_*`
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',')]
    pub event: Vec<String>,
    /// Only events whose fields satisfy this, such as `ret < 0 and not fd == 3`
    #[arg(long = "where", value_name = "CONDITION", value_parser = Condition::parse)]
    pub condition: Option<Condition>,
    /// Only events of these CPUs
    #[arg(long, value_name = "CPU,…", value_delimiter = ',', value_parser = cpus)]
    pub cpu_list: Vec<Vec<u32>>,
}

/// Note on a recording with both software events and control flow.
pub const BOTH: &str = "the input also contains Intel PT: see `hodo script --marks`, --insns and --calls";

/// Maximum number of CPUs in a range.
const MOST_CPUS: u32 = 1 << 16;

/// Parses a CPU or a range of CPUs.
pub fn cpus(text: &str) -> Result<Vec<u32>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let range = from.parse().ok().zip(to.parse().ok()).map(|(from, to): (u32, u32)| from..=to);
    let range = range.filter(|range| !range.is_empty() && range.end() - range.start() < MOST_CPUS);
    range.map(Iterator::collect).ok_or("expected a number or a range, such as 0 or 2-5".to_owned())
}

/// Returns whether the inputs contain software events, control flow, or both.
pub fn contents(input: &Input) -> Result<Contents, Failure> {
    let files = Files::default();
    let none = Contents { events: false, flow: input.buffer().is_some() };
    let (paths, _) = timeline::files(input)?;
    let paths = paths.iter().filter(|_| input.buffer().is_none());
    Ok(paths
        .map(|path| events::holds(&files, path))
        .fold(none, |all, own| Contents { events: all.events || own.events, flow: all.flow || own.flow }))
}

/// Opens the traces of events and passes them to `work`, which returns whether nothing was lost, or `None` if
/// interrupted.
pub fn open(
    input: &Input,
    work: impl FnOnce(&Traces<'_>) -> Result<Option<bool>, Failure>,
) -> Result<ExitCode, Failure> {
    let experiment = input::experiment(input, NEEDS)?;
    let lossless = experiment.with(|traces| work(traces))?;
    let code = lossless.map(|lossless| input::exit_code_of(input, &experiment, lossless));
    let code = code.unwrap_or(ExitCode::from(INTERRUPTED));
    // The process is about to exit, which frees the memory of large traces faster than dropping each value.
    std::mem::forget(experiment);
    Ok(code)
}

/// Returns the selected events. Rejects a selection by a context that no event has.
pub fn wanted(filter: &Filter, input: &Input, traces: &Traces<'_>) -> Result<Wanted, Failure> {
    let wanted = Selection::new(input, Some(filter))?.wanted();
    match wanted.missing_contexts(traces) {
        None => Ok(wanted),
        Some(name) => Err(Failure::usage(format!(
            "no event has the context `{name}`; record with it (such as lttng add-context -t {name}), or select by fields with --where"
        ))),
    }
}

/// Returns how to read, with chunks of `usual` unless the command line gives a size.
pub fn reading(input: &Input, traces: &Traces<'_>, usual: Chunks) -> Result<EventReading, Failure> {
    let chunks = match input::chunks(input)? {
        Chunks::Default => usual,
        chunks => chunks,
    };
    let span = input::span(input, traces)?;
    let window = span.map_or(Ok(Window::ALL), |span| span.of_events(traces.event_span()))?;
    Ok(Reading { window, ..Reading::new(input::threads(input), chunks) })
}

/// Rejects chunks of whole streams for merged output.
pub fn refuse_streams(reading: &EventReading) -> Result<(), Failure> {
    match reading.chunks {
        Chunks::Streams => Err(Failure::usage(
            "--chunk-size stream is for `report count` and `export`: everything else merges the streams; give bytes or seconds",
        )),
        _ => Ok(()),
    }
}

/// Rejects options that select from control flow.
pub fn refuse_flow(input: &Input) -> Result<(), Failure> {
    match input.call.is_some() || input.symfs.is_some() {
        true => Err(Failure::usage(
            "--call and --symfs are about control flow, and this input has software events",
        )),
        false => Ok(()),
    }
}

/// Rejects script options for control flow.
pub fn refuse_marks(command: &arguments::Script) -> Result<(), Failure> {
    let flow = command.packets || command.insns || command.calls || command.sideband || command.marks;
    match flow || command.ptwrite || command.power {
        true => Err(Failure::usage(
            "this input has software events, and no control flow; see `hodo script --events`",
        )),
        false => Ok(()),
    }
}

/// Returns the output format of events.
pub fn format(output: &arguments::Output) -> Result<Format, Failure> {
    match output.format.as_str() {
        "text" => Ok(Format::Text),
        "jsonl" => Ok(Format::JsonLines),
        _ => Err(Failure::usage("events are written as text or as jsonl")),
    }
}

/// `hodo script --events`.
pub fn script(command: &arguments::Script, contents: Contents) -> Result<ExitCode, Failure> {
    if !contents.flow {
        refuse_flow(&command.input)?;
    }
    refuse_marks(command)?;
    let format = format(&command.output)?;
    if contents.flow && !command.input.quiet {
        message!("{BOTH}");
    }
    open(&command.input, |traces| {
        timeline::refuse_unrelated(traces)?;
        let reading = reading(&command.input, traces, SCRIPT_CHUNKS)?;
        refuse_streams(&reading)?;
        let wanted = wanted(&command.filter, &command.input, traces)?;
        let progress = Progress::new(traces.event_bytes(), command.input.quiet);
        let mut out = Destination::open(command.output.output.as_deref())?;
        let limit = command.output.limit;
        let outcome =
            hodo_script::events::script(traces, &wanted, format, &reading, limit, &mut out, |done| {
                progress.set(done)
            });
        progress.finish();
        written(outcome.written)?;
        if progress.is_interrupted() {
            return Ok(None);
        }
        out.finish()?;
        if outcome.is_empty && limit != Some(0) {
            message!("no event is selected; `hodo info` lists the events of the input");
        }
        let lossless = outcome.losses.is_empty() && !tracer_lost(traces);
        input::report_losses(outcome.losses);
        Ok(Some(lossless))
    })
}

/// Returns whether the tracer lost events or packets.
pub fn tracer_lost(traces: &Traces<'_>) -> bool {
    let streams = traces.events.iter().flat_map(|trace| &trace.streams);
    let mut packets = streams.flat_map(|stream| &stream.packets);
    packets.any(|packet| packet.events_lost > 0 || packet.packets_lost > 0)
}

/// Returns the tables that describe traces, the last one with their losses.
pub fn of_traces(traces: &Traces<'_>) -> Vec<Table> {
    about(&events::info(traces), &traces.event_losses())
}

fn about(traces: &[TraceInfo], loss: &[Loss]) -> Vec<Table> {
    let mut tables: Vec<Table> = traces.iter().map(streams).collect();
    tables.last_mut().into_iter().for_each(|table| table.loss = loss.to_vec());
    tables
}

/// Writes the contents of traces as text.
pub fn write_info(traces: &Traces<'_>, command: &arguments::Info, out: &mut Destination) -> io::Result<()> {
    let infos = events::info(traces);
    let tables = about(&infos, &traces.event_losses());
    output::write_all(&tables, command.output.limit, &command.output, out)?;
    let notes = infos.iter().flat_map(|trace| &trace.notes);
    let notes = notes.map(|note| (note.file.as_str(), note.note.as_str()));
    events::note_lines(notes).iter().try_for_each(|line| writeln!(out, "\n{line}"))
}

/// Returns the contents of traces as JSON.
pub fn json_info(traces: &Traces<'_>) -> serde_json::Value {
    let loss = traces.event_losses();
    let loss = loss.iter().map(|loss| {
        serde_json::json!({
            "stream": loss.stream, "cause": loss.cause.name(), "count": loss.count,
            "begin_byte": loss.bytes.start, "end_byte": loss.bytes.end, "detail": loss.detail,
        })
    });
    let loss: Vec<serde_json::Value> = loss.collect();
    serde_json::json!({ "traces": events::info(traces), "loss": loss })
}

fn streams(trace: &TraceInfo) -> Table {
    let mut summary: Vec<(&'static str, Value)> =
        vec![("name", trace.name.as_str().into()), ("format", trace.format.into())];
    summary.extend(trace.uuid.as_deref().map(|uuid| ("uuid", uuid.into())));
    let environment: Vec<String> =
        trace.environment.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if !environment.is_empty() {
        summary.push(("environment", environment.join(", ").into()));
    }
    for clock in &trace.clocks {
        let origin = if clock.unix { "from 1970" } else { "from an origin of its own" };
        let text = format!(
            "{}: {} Hz, {} s and {} cycles {origin}",
            clock.name, clock.frequency, clock.offset_seconds, clock.offset_cycles
        );
        summary.push(("clock", text.into()));
    }
    if let (Some(begin), Some(end)) = (trace.begin_ns, trace.end_ns) {
        summary.push(("begin_ns", begin.into()));
        summary.push(("end_ns", end.into()));
        summary.push(("duration_ns", end.abs_diff(begin).into()));
    }
    summary.extend(trace.no_times.as_deref().map(|why| ("times", format!("none: {why}").into())));
    summary.push(("event_classes", (trace.events.len() as u64).into()));
    let sum = |count: fn(&StreamInfo) -> u64| {
        Value::from(trace.streams.iter().map(count).fold(0, u64::saturating_add))
    };
    summary.push(("events_lost", sum(|stream| stream.events_lost)));
    summary.push(("packets_lost", sum(|stream| stream.packets_lost)));
    let row = |stream: &StreamInfo| {
        vec![
            stream.name.as_str().into(),
            stream.class.into(),
            stream.id.into(),
            stream.packets.into(),
            stream.bytes.into(),
            stream.events_lost.into(),
            stream.packets_lost.into(),
            stream.begin_ns.into(),
            stream.end_ns.into(),
            stream.plan.as_str().into(),
        ]
    };
    let columns = vec![
        Column::name("stream"),
        Column::integer("class", Unit::None),
        Column::integer("id", Unit::None),
        Column::integer("packets", Unit::Count),
        Column::integer("bytes", Unit::Bytes),
        Column::integer("events_lost", Unit::Count),
        Column::integer("packets_lost", Unit::Count),
        Column::signed("begin_ns", Unit::Nanoseconds).secondary(),
        Column::signed("end_ns", Unit::Nanoseconds).secondary(),
        Column::text("plan").secondary(),
    ];
    Table::new("trace", Shape::Counters, summary, columns, trace.streams.iter().map(row))
}

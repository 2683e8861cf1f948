//! Commands on traces of software events.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Args;
use hodo_analyses::{Entry, Kind, kernel_analyses, periods::Periods, profile::Every};
use hodo_clock::Nanos;
use hodo_engine::{
    Files, OpenError, OpenErrorReason,
    events::{
        self, COUNT_VIEWS, Chunks, Condition, Contents, EventFormat, EventReading, EventTraces, MOST_BINS,
        StreamInfo, TraceInfo, Wanted,
    },
};
use hodo_formats::FORMATS;
use hodo_trace::{
    AnyEventAnalysis, Choice, Column, Loss, Period, Shape, Table, Unit, Value, kernel::VOCABULARY,
    pass::interest, vocabulary,
};

use crate::{
    arguments::{self, Input, size},
    failure::{Failure, INTERRUPTED, UNREADABLE, written},
    input,
    output::{self, Destination},
    progress::{Progress, Searching},
    window,
};

/// Of what becomes text: some ten bytes for each byte of trace.
const SCRIPT_CHUNKS: Chunks = Chunks::Bytes(1 << 20);
/// Of what is written as a trace again.
pub const EXPORT_CHUNKS: Chunks = Chunks::Bytes(4 << 20);
/// Of what is analysed apart. Packets over their borders are gone over twice.
pub const PART_CHUNKS: Chunks = Chunks::Bytes(16 << 20);
/// The smallest of what is counted, in bytes.
const SMALLEST_RUN: u64 = 2 << 20;
/// The smallest of what is analysed, in bytes. Packets over their borders are gone over twice.
const SMALLEST_SLICE: u64 = 8 << 20;

/// Which events.
#[derive(Debug, Args)]
#[command(next_help_heading = "Software events")]
pub struct Filter {
    /// Only events with such a name, such as `sched_*`; several are possible
    #[arg(long, value_name = "PATTERN")]
    pub event: Vec<String>,
    /// Only events whose fields meet this, such as `ret < 0 and not fd == 3`
    #[arg(long = "where", value_name = "CONDITION", value_parser = Condition::parse)]
    pub condition: Option<Condition>,
    /// Only events of these CPUs
    #[arg(long, value_name = "CPU,…", value_delimiter = ',', value_parser = cpus)]
    pub cpu_list: Vec<Vec<u32>>,
}

/// What to say of a recording that holds software events beside control flow.
pub const BOTH: &str = "this recording also has software events: see them with `hodo script --events --event '*'`, \
                        count them with `hodo report count`";

/// A CPU, or a range of them.
pub fn cpus(text: &str) -> Result<Vec<u32>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let range = from.parse().ok().zip(to.parse().ok()).map(|(from, to): (u32, u32)| from..=to);
    let range = range.filter(|range| !range.is_empty() && range.end() - range.start() < 1 << 16);
    range.map(Iterator::collect).ok_or("expected a number or a range, such as 0 or 2-5".to_owned())
}

impl Filter {
    fn is_empty(&self) -> bool {
        self.event.is_empty() && self.condition.is_none() && self.cpu_list.is_empty()
    }

    /// Whether software events are meant, where control flow could be: they are chosen from.
    pub fn chooses(&self, events_are_asked_for: bool) -> bool {
        events_are_asked_for && !self.is_empty()
    }

    /// For inputs that hold no software events.
    pub fn refuse(&self) -> Result<(), Failure> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(Failure::usage(
                "--event, --where and --cpu-list choose among software events, and this input has none",
            )),
        }
    }

    pub fn wanted(&self, input: &Input) -> Wanted {
        Wanted {
            events: self.event.clone(),
            condition: self.condition.clone(),
            tids: input.tid.clone(),
            pids: input.pid.clone(),
            cpus: self.cpu_list.concat(),
        }
    }
}

/// What the input holds: software events, control flow, or both.
pub fn contents(input: &Input) -> Contents {
    match input.pt {
        Some(_) => Contents { events: false, flow: true },
        None => events::holds(&Files::default(), &input.file),
    }
}

/// The failure of a command on software events whose input has none: `usage` where it is a recording all the same.
pub fn none_in(input: &Input, usage: &str) -> Failure {
    let files = Files::default();
    let recording = files.recording(&input.file);
    let is_known = |bytes: &[u8]| FORMATS.iter().any(|format| (format.recognise)(bytes));
    match recording {
        _ if input.pt.is_some() => Failure::usage(usage),
        Ok(recording) if is_known(recording.bytes) => Failure::usage(usage),
        Err(error) if error.kind() != io::ErrorKind::IsADirectory => {
            let reason = OpenErrorReason::System(error);
            OpenError { file: input.file.clone(), reason }.into()
        }
        _ => Failure::unreadable(format!(
            "{}: not a trace: a folder of CTF with a file `metadata`, a trace.dat or a perf.data expected",
            input.file.display()
        )),
    }
}

/// Whether the input is nothing but a trace of software events.
pub fn are_in(input: &Input) -> bool {
    contents(input) == Contents { events: true, flow: false }
}

/// Opens the traces of an input, for the life of the process: at its end their memory is given back at once, not class
/// by class and file by file.
pub fn open(input: &Input) -> Result<&'static EventTraces<'static>, Failure> {
    let searching = Searching::new(input.quiet);
    let files: &'static Files = Box::leak(Box::default());
    let frequency = input.clock_frequency;
    let seen = |done, total| searching.set(done, total);
    let traces =
        EventTraces::open_with_frequency(files, &input.file, frequency, input::threads(input), seen)?;
    if frequency.is_some() && !traces.implies_clocks() {
        return Err(Failure::usage(
            "--clock-frequency is for traces that describe no clock, and this one says how fast its clock is",
        ));
    }
    Ok(Box::leak(Box::new(traces)))
}

/// The exit code of a reading of traces, and a line where nothing at all could be read.
pub fn exit_code(input: &Input, traces: &EventTraces<'_>, lossless: bool) -> ExitCode {
    let stray = traces.traces.iter().any(|trace| trace.streams.is_empty());
    if (!lossless || stray) && traces.is_unreadable() {
        eprintln!("hodo: {}: not one event of it can be read", input.file.display());
        return UNREADABLE.into();
    }
    input::exit_code(input, lossless)
}

pub fn wanted(filter: &Filter, input: &Input, traces: &EventTraces<'_>) -> Result<Wanted, Failure> {
    let wanted = filter.wanted(input);
    match wanted.missing_contexts(traces) {
        None => Ok(wanted),
        Some(name) => Err(Failure::usage(format!(
            "no event has the context `{name}`; record with it (such as lttng add-context -t {name}), or choose by fields with --where"
        ))),
    }
}

/// How to read, in chunks such as these where the command line tells of no others.
pub fn reading(input: &Input, traces: &EventTraces<'_>, usual: Chunks) -> Result<EventReading, Failure> {
    let chunks = input.chunk_size.as_deref().map_or(Ok(usual), chunks)?;
    let (from, to) =
        input.time.as_deref().map_or(Ok((None, None)), |text| window::of_events(text, traces.span()))?;
    Ok(EventReading { threads: input::threads(input), chunks, from, to })
}

/// `--chunk-size` of software events.
fn chunks(text: &str) -> Result<Chunks, Failure> {
    let time = || window::nanos(text).filter(|&nanos| nanos > 0 && text.ends_with('s'));
    match text {
        "stream" => Ok(Chunks::Streams),
        text => match time() {
            Some(nanos) => Ok(Chunks::Time(Nanos(nanos))),
            None => Ok(Chunks::Bytes(size(text)?.max(input::SMALLEST_CHUNK))),
        },
    }
}

/// Streams that are to be merged are not decoded one by one.
pub fn refuse_streams(reading: &EventReading) -> Result<(), Failure> {
    match reading.chunks {
        Chunks::Streams => Err(Failure::usage(
            "--chunk-size stream is for `report count` and `export`: everything else merges the streams; give bytes or seconds",
        )),
        _ => Ok(()),
    }
}

/// Refuses what chooses among control flow.
pub fn refuse_flow(input: &Input) -> Result<(), Failure> {
    match input.call.is_some() || input.symfs.is_some() {
        true => Err(Failure::usage(
            "--call and --symfs are about control flow, and this input has software events",
        )),
        false => Ok(()),
    }
}

/// Refuses what a script tells of control flow.
pub fn refuse_marks(command: &arguments::Script) -> Result<(), Failure> {
    let flow = command.packets || command.insns || command.calls || command.sideband;
    match flow || command.ptwrite || command.power {
        true => Err(Failure::usage(
            "this input has software events, and no control flow; see `hodo script --events`",
        )),
        false => Ok(()),
    }
}

/// How events are to be written.
pub fn format(output: &arguments::Output) -> Result<EventFormat, Failure> {
    match output.format.as_str() {
        "text" => Ok(EventFormat::Text),
        "jsonl" => Ok(EventFormat::JsonLines),
        _ => Err(Failure::usage("events are written as text or as jsonl")),
    }
}

/// `hodo script --events`.
pub fn script(command: &arguments::Script) -> Result<ExitCode, Failure> {
    refuse_flow(&command.input)?;
    refuse_marks(command)?;
    let format = format(&command.output)?;
    let traces = open(&command.input)?;
    tell_notes(traces, &command.input);
    let reading = reading(&command.input, traces, SCRIPT_CHUNKS)?;
    refuse_streams(&reading)?;
    let wanted = wanted(&command.filter, &command.input, traces)?;
    let progress = Progress::new(traces.bytes(), command.input.quiet);
    let mut out = Destination::open(command.output.output.as_deref())?;
    let limit = command.output.limit;
    let outcome =
        events::script(traces, &wanted, format, &reading, limit, &mut out, |done| progress.set(done));
    progress.finish();
    written(outcome.written)?;
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    out.finish()?;
    let lossless = outcome.losses.is_empty() && lost(traces) == (0, 0);
    input::tell(outcome.losses);
    Ok(exit_code(&command.input, traces, lossless))
}

/// `hodo report` of a kind that is about software events.
pub fn report(command: &arguments::Report, entry: &Entry) -> Result<ExitCode, Failure> {
    if !contents(&command.input).events {
        return Err(none_in(&command.input, "this report is about software events, and the input has none"));
    }
    refuse_flow(&command.input)?;
    let over_time = matches!(entry.kind, Kind::EventCount) && command.by.as_deref() == Some("time");
    if command.every.is_some() && !over_time {
        return Err(Failure::usage(
            "--every takes samples of control flow, and this input has software events; or `count --by time`",
        ));
    }
    let period = command.period.period()?;
    if period.is_some() && !matches!(entry.kind, Kind::Periods { .. }) {
        return Err(Failure::usage("--begin, --end, --match and --group are for `hodo report periods`"));
    }
    let traces = open(&command.input)?;
    tell_notes(traces, &command.input);
    let smallest = if matches!(entry.kind, Kind::EventCount) { SMALLEST_RUN } else { SMALLEST_SLICE };
    let shares = Chunks::Shares { threads: input::threads(&command.input), smallest };
    let reading = reading(&command.input, traces, shares)?;
    let progress = Progress::new(traces.bytes(), command.input.quiet);
    let tables = match entry.kind {
        Kind::EventCount => {
            if !command.comm.is_empty() {
                return Err(Failure::usage("report count takes no --comm"));
            }
            let wanted = wanted(&command.filter, &command.input, traces)?;
            vec![count(command, traces, &wanted, &reading, &progress)?]
        }
        Kind::Kernel { .. } | Kind::All => {
            refuse_streams(&reading)?;
            let choose = |entries: &[&Entry]| choice(entries, command.by.as_deref(), chosen(command)?);
            kernel_tables(command, entry, choose, |analyses, choice| {
                events::analyse(traces, analyses, choice, &reading, |done| progress.set(done))
            })?
        }
        Kind::Periods { .. } => {
            let period = period.ok_or_else(|| {
                Failure::usage(
                    "which periods? --begin EVENT and --end EVENT say so: see `hodo report --help`",
                )
            })?;
            check_period(traces, &period)?;
            let choice = choice(&[entry], command.by.as_deref(), chosen(command)?)?;
            let analysis = Periods { period: Some(period) };
            events::analyse(traces, &[&analysis], &choice, &reading, |done| progress.set(done))
        }
        _ => {
            return Err(Failure::usage(
                "this report is about control flow, and the input has software events",
            ));
        }
    };
    progress.finish();
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let lossless = tables.iter().all(|table| table.loss.is_empty()) && lost(traces) == (0, 0);
    output::draw_all(tables, &command.output)?;
    Ok(exit_code(&command.input, traces, lossless))
}

/// The tables of one analysis of kernel events, or of all of them.
fn kernel_tables(
    command: &arguments::Report,
    entry: &Entry,
    choose: impl Fn(&[&Entry]) -> Result<Choice, Failure>,
    analyse: impl FnOnce(&[&dyn AnyEventAnalysis], &Choice) -> Vec<Table>,
) -> Result<Vec<Table>, Failure> {
    let (entries, usual): (Vec<_>, Vec<_>) = kernel_analyses(entry.name).unzip();
    let choice = choose(&entries)?;
    let alone = |analysis: &dyn AnyEventAnalysis| match usual.len() {
        1 => analysis.alone(&choice),
        _ => None,
    };
    let own = usual.iter().map(|analysis| analysis.of_choice(&choice).or_else(|| alone(*analysis)));
    let own: Vec<_> = own.collect();
    let analyses: Vec<_> =
        usual.iter().zip(&own).map(|(usual, own)| own.as_deref().unwrap_or(*usual)).collect();
    let tables = analyse(&analyses, &choice);
    if let ([analysis], [table]) = (analyses.as_slice(), tables.as_slice()) {
        tell_needs(*analysis, table, &command.input);
    }
    Ok(tables)
}

/// Counts by name, by stream or over time.
fn count(
    command: &arguments::Report,
    traces: &EventTraces<'_>,
    wanted: &Wanted,
    reading: &EventReading,
    progress: &Progress,
) -> Result<Table, Failure> {
    let view = command.by.as_deref().unwrap_or(COUNT_VIEWS[0]);
    check_view(view, &COUNT_VIEWS)?;
    if view != "time" {
        return Ok(events::count(traces, wanted, view, reading, |done| progress.set(done)));
    }
    let width = match command.every {
        None => None,
        Some(Every::Nanoseconds(width)) => Some(width),
        Some(Every::Instructions(_)) => {
            return Err(Failure::usage("--every: spans of software events are as wide as a time"));
        }
    };
    let table = events::count_over_time(traces, wanted, width, reading, |done| progress.set(done));
    table.ok_or_else(|| {
        Failure::usage(format!("--every: the trace has more than {MOST_BINS} such spans; choose by --time"))
    })
}

/// Refuses periods of which there can be none.
pub fn check_period(traces: &EventTraces<'_>, period: &Period) -> Result<(), Failure> {
    events::no_such_period(traces, period).map_or(Ok(()), |why| Err(Failure::usage(why)))
}

/// Refuses what is none of the views.
fn check_view(view: &str, views: &[&str]) -> Result<(), Failure> {
    match views.contains(&view) {
        true => Ok(()),
        false => Err(Failure::usage(format!("--by {view}: expected {}", views.join(", ")))),
    }
}

/// What was made of some files, on standard error.
pub fn tell_notes(traces: &EventTraces<'_>, input: &Input) {
    if !input.quiet {
        events::note_lines(traces.notes()).iter().for_each(|line| eprintln!("hodo: {line}"));
    }
}

/// Which events an analysis needs, on standard error, where it found nothing to tell.
fn tell_needs(analysis: &dyn AnyEventAnalysis, table: &Table, input: &Input) {
    if table.rows.is_empty() && !input.quiet {
        let mut kinds: Vec<_> = interest(analysis).into_iter().map(|(kind, _)| kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let words: Vec<String> = kinds.into_iter().flat_map(needed).collect();
        eprintln!("hodo: {}: nothing found; it is made of {}", table.name, words.join(", "));
    }
}

/// What the events of a kind are called; nothing of those that only tell how things were when tracing began.
fn needed(kind: hodo_trace::kernel::Kind) -> Option<String> {
    let words = VOCABULARY.iter().find(|words| words.kind == kind)?;
    let name = words.names.first().filter(|name| !name.starts_with("lttng_statedump"))?;
    Some(match vocabulary::others(name) {
        [] => (*name).to_owned(),
        others => format!("{name} (of ftrace and perf: {})", others.join(", ")),
    })
}

/// What the command line chooses of a kernel's events.
fn chosen(command: &arguments::Report) -> Result<Choice, Failure> {
    let (filter, input) = (&command.filter, &command.input);
    if !filter.event.is_empty() || filter.condition.is_some() {
        return Err(Failure::usage(
            "--event and --where choose single events, without which analyses go wrong",
        ));
    }
    Ok(Choice {
        view: String::new(),
        tids: input.tid.clone(),
        pids: input.pid.clone(),
        comms: command.comm.clone(),
        cpus: filter.cpu_list.concat(),
    })
}

/// What of a kernel's events these analyses are to tell, if they can.
pub fn choice(entries: &[&Entry], by: Option<&str>, chosen: Choice) -> Result<Choice, Failure> {
    let any_thread = chosen.tids.is_empty() && chosen.pids.is_empty() && chosen.comms.is_empty();
    let of_threads = |entry: &&Entry| matches!(entry.kind, Kind::Kernel { of_threads: true, .. });
    if let Some(entry) = entries.iter().find(|entry| !any_thread && !of_threads(entry)) {
        return Err(Failure::usage(format!(
            "--tid, --pid and --comm choose threads, and `{}` is of no thread",
            entry.name
        )));
    }
    let of_cpus = |entry: &&Entry| match entry.kind {
        Kind::Kernel { analysis, .. } => analysis.of_cpus(),
        kind => matches!(kind, Kind::Periods { .. }),
    };
    if let Some(entry) = entries.iter().find(|entry| !chosen.cpus.is_empty() && !of_cpus(entry)) {
        return Err(Failure::usage(format!("--cpu-list chooses CPUs, and `{}` is of none", entry.name)));
    }
    let Some(view) = by else { return Ok(chosen) };
    match entries {
        [Entry { kind: Kind::Kernel { analysis, .. }, .. }] => check_view(view, analysis.views())?,
        [Entry { kind: Kind::Periods { views }, .. }] => check_view(view, views)?,
        // Spans of time are not in parts.
        [Entry { kind: Kind::EventCount, .. }] => check_view(view, &COUNT_VIEWS[..2])?,
        _ => return Err(Failure::usage("--by is for one analysis, and these are several")),
    }
    Ok(Choice { view: view.to_owned(), ..chosen })
}

/// Events and packets that the tracer lost.
pub fn lost(traces: &EventTraces<'_>) -> (u64, u64) {
    let streams = traces.traces.iter().flat_map(|trace| &trace.streams);
    let packets = streams.flat_map(|stream| &stream.packets);
    packets.fold((0, 0), |(events, lost), packet| {
        (packet.events_lost.saturating_add(events), packet.packets_lost.saturating_add(lost))
    })
}

/// `hodo info`.
pub fn info(command: &arguments::Info) -> Result<ExitCode, Failure> {
    let traces = open(&command.input)?;
    let infos = events::info(traces);
    let loss = traces.loss();
    let mut out = Destination::open(command.output.output.as_deref())?;
    written(match command.output.format.as_str() {
        "json" => json(&infos, &loss, &mut out),
        "text" => text(&infos, loss.clone(), command, &mut out),
        _ => return Err(Failure::usage("hodo info is written as text or as json")),
    })?;
    out.finish()?;
    Ok(exit_code(&command.input, traces, loss.is_empty() && lost(traces) == (0, 0)))
}

fn json(traces: &[TraceInfo], loss: &[Loss], out: &mut impl Write) -> io::Result<()> {
    let loss: Vec<serde_json::Value> = loss
        .iter()
        .map(|loss| {
            serde_json::json!({
                "stream": loss.stream, "cause": loss.cause.name(), "count": loss.count,
                "begin_byte": loss.bytes.start, "end_byte": loss.bytes.end, "detail": loss.detail,
            })
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &serde_json::json!({ "traces": traces, "loss": loss }))?;
    writeln!(out)
}

fn text(
    traces: &[TraceInfo],
    loss: Vec<Loss>,
    command: &arguments::Info,
    out: &mut impl Write,
) -> io::Result<()> {
    for (index, trace) in traces.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let mut table = streams(trace);
        let options = output::options(&mut table, &command.output);
        (hodo_views::VIEWS[0].write)(&table, &options, out)?;
    }
    let notes = traces.iter().flat_map(|trace| &trace.notes);
    for line in events::note_lines(notes.map(|note| (note.file.as_str(), note.note.as_str()))) {
        writeln!(out, "\n{line}")?;
    }
    let columns = Vec::new();
    let mut losses =
        Table { name: "lost", shape: Shape::Counters, summary: Vec::new(), columns, rows: Vec::new(), loss };
    let options = output::options(&mut losses, &command.output);
    if !losses.loss.is_empty() {
        writeln!(out)?;
    }
    hodo_views::write_loss(&losses, &options, out)
}

fn streams(trace: &TraceInfo) -> Table {
    let number = |value: Option<i64>| {
        value.and_then(|value| u64::try_from(value).ok()).map_or(Value::Null, Value::from)
    };
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
        summary.push(("begin_ns", number(Some(begin))));
        summary.push(("end_ns", number(Some(end))));
        summary.push(("duration_ns", end.abs_diff(begin).into()));
    }
    summary.extend(trace.no_times.as_deref().map(|why| ("times", format!("none: {why}").into())));
    summary.push(("event_classes", (trace.events.len() as u64).into()));
    let sum =
        |of: fn(&StreamInfo) -> u64| Value::from(trace.streams.iter().map(of).fold(0, u64::saturating_add));
    summary.push(("events_lost", sum(|stream| stream.events_lost)));
    summary.push(("packets_lost", sum(|stream| stream.packets_lost)));
    let row = |stream: &StreamInfo| {
        vec![
            stream.name.as_str().into(),
            stream.class.into(),
            stream.id.map_or(Value::Null, Value::from),
            stream.packets.into(),
            stream.bytes.into(),
            stream.events_lost.into(),
            stream.packets_lost.into(),
            number(stream.begin_ns),
            number(stream.end_ns),
            stream.plan.as_str().into(),
        ]
    };
    Table {
        name: "trace",
        shape: Shape::Counters,
        summary,
        columns: vec![
            Column::text("stream"),
            Column::integer("class", Unit::None),
            Column::integer("id", Unit::None),
            Column::integer("packets", Unit::Count),
            Column::integer("bytes", Unit::Bytes),
            Column::integer("events_lost", Unit::Count),
            Column::integer("packets_lost", Unit::Count),
            Column { secondary: true, ..Column::integer("begin_ns", Unit::Nanoseconds) },
            Column { secondary: true, ..Column::integer("end_ns", Unit::Nanoseconds) },
            Column { secondary: true, ..Column::text("plan") },
        ],
        rows: trace.streams.iter().map(row).collect(),
        loss: Vec::new(),
    }
}

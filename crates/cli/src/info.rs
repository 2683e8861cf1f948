//! `hodo info`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use hodo_engine::{Contents, Experiment, Info, ModuleInfo, Needs, Source, TraceClock, Traces};
use hodo_model::{Column, Shape, Table, Unit, Value};
use hodo_views::{Reader, View};

use crate::{
    arguments, events,
    failure::{Failure, written},
    index, input,
    output::{self, Destination},
    selection::Selection,
    timeline,
};

/// Runs the command.
pub fn run(command: &arguments::Info) -> Result<ExitCode, Failure> {
    let reader = reader(command)?;
    let events_only = Contents::EVENTS;
    let contents = events::contents(&command.input)?;
    if has_decoding_options(&command.input) && contents != events_only {
        return Err(Failure::usage(
            "hodo info decodes nothing: --time, --call, -j and --chunk-size have no meaning",
        ));
    }
    let selection = Selection::new(&command.input, None)?;
    if contents == events_only {
        selection.refuse("hodo info describes whole traces")?;
    }
    let experiment = input::experiment(&command.input, Needs::ALL)?;
    let store = index::find(&command.input, &command.store);
    experiment.with(|traces| {
        let infos: Vec<Info> = traces.flows.iter().map(|flow| hodo_engine::info(flow)).collect();
        let mut out = Destination::open(command.output.output.as_deref())?;
        written(match reader {
            Reader::People => {
                let clocks = timeline::clocks(&experiment);
                all_text(&infos, traces, clocks, store.as_ref(), command, &mut out)
            }
            _ => write_json(command, &experiment, &mut out),
        })?;
        out.finish()?;
        let lossless = infos.iter().all(|info| info.loss.is_empty())
            && traces.event_losses().is_empty()
            && !events::tracer_lost(traces);
        Ok(input::exit_code_of(&command.input, &experiment, lossless))
    })
}

/// Writes the description of the inputs as JSON.
pub fn write_json(
    command: &arguments::Info,
    experiment: &Experiment,
    out: &mut (impl Write + Send),
) -> io::Result<()> {
    let store = index::find(&command.input, &command.store);
    experiment.with(|traces| {
        let infos: Vec<Info> = traces.flows.iter().map(|flow| hodo_engine::info(flow)).collect();
        json(&infos, traces, &experiment.clocks, store.as_ref(), out)
    })
}

/// Returns the reader of the output: people, or programs that read JSON. Rejects other formats.
pub fn reader(command: &arguments::Info) -> Result<Reader, Failure> {
    let is_known = |view: &View| matches!(view.reader, Reader::People | Reader::ProgramsOfJson);
    let view = output::view(&command.output);
    match is_known(view) {
        true => Ok(view.reader),
        false => Err(Failure::usage(format!(
            "hodo info is not one table, as --format {} expects: use one of the formats {}",
            view.name,
            output::names(is_known)
        ))),
    }
}

/// Returns whether options are set that only affect decoding.
fn has_decoding_options(input: &arguments::Input) -> bool {
    input.time.is_some() || input.call.is_some() || input.jobs.is_some() || input.chunk_size.is_some()
}

/// Writes the description of one recording of control flow, or of traces of events, as an object; several recordings, or
/// both, as members of one object.
fn json(
    infos: &[Info],
    traces: &Traces<'_>,
    clocks: &[TraceClock],
    store: Option<&index::Found>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut of_events = events::json_info(traces);
    of_events["clocks"] = serde_json::to_value(clocks)?;
    let mut value = match infos {
        [] => of_events,
        [info] if traces.events.is_empty() => serde_json::to_value(info)?,
        infos => {
            of_events["recordings"] = serde_json::to_value(infos)?;
            of_events
        }
    };
    if let Some(store) = store {
        value["store"] = store.json();
    }
    serde_json::to_writer_pretty(&mut *out, &value)?;
    writeln!(out)
}

fn all_text(
    infos: &[Info],
    traces: &Traces<'_>,
    clocks: Option<Table>,
    store: Option<&index::Found>,
    command: &arguments::Info,
    out: &mut Destination,
) -> io::Result<()> {
    let several = infos.len() + traces.events.len() > 1;
    for (index, (info, flow)) in infos.iter().zip(&traces.flows).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        if several {
            writeln!(out, "{}", flow.name)?;
        }
        tables(info, command, out)?;
    }
    if !traces.events.is_empty() {
        if !infos.is_empty() {
            writeln!(out)?;
        }
        events::write_info(traces, command, out)?;
    }
    if let Some(clocks) = clocks {
        writeln!(out)?;
        output::write_all(&[clocks], command.output.limit, &command.output, out)?;
    }
    if let Some(store) = store {
        let no_limit = None;
        writeln!(out)?;
        output::write_all(&[store.table()], no_limit, &command.output, out)?;
    }
    Ok(())
}

/// Returns the tables that describe a recording, the last one with its losses.
pub fn of_recording(info: &Info) -> Vec<Table> {
    let tables = [
        recording(info),
        streams(info),
        modules(info),
        truth(info),
        cpu_truth(info),
        snapshots(info),
        cut(info),
        untraced(info),
    ];
    let shown = tables.into_iter().filter(|table| !(table.is_empty() && table.summary.is_empty()));
    let mut tables: Vec<Table> = shown.collect();
    tables.last_mut().into_iter().for_each(|table| table.loss.clone_from(&info.loss));
    tables
}

fn tables(info: &Info, command: &arguments::Info, out: &mut Destination) -> io::Result<()> {
    output::write_all(&of_recording(info), command.output.limit, &command.output, out)
}

fn table(name: &'static str, columns: Vec<Column>, rows: impl Iterator<Item = Vec<Value>>) -> Table {
    Table::new(name, Shape::Counters, Vec::new(), columns, rows)
}

/// Returns the summary of a recording.
fn recording(info: &Info) -> Table {
    let mut summary: Vec<(&'static str, Value)> = vec![("format", info.format.as_str().into())];
    summary.extend(info.facts.iter().map(|(name, value)| (*name, value.as_str().into())));
    summary.push(("traced_on", traced_on(info).into()));
    if info.streams.is_empty() {
        summary.push(("trace", "none: the recording contains no Intel PT, or none of the selection".into()));
    } else {
        summary.push(("packets", packets(info).into()));
        summary.push(("clock", clock(info).into()));
    }
    // The emulated processor has no errata.
    let is_hardware = !info.engine.emulated && !info.engine.slowed;
    if !info.streams.is_empty() && is_hardware && info.other_unit.is_none() {
        summary.push(("errata", info.config.errata.as_str().into()));
    }
    if !info.config.filter.is_empty() {
        summary.push(("filter", info.config.filter.as_str().into()));
    }
    if let Some(span) = info.span {
        summary.push(("begin_ns", span.begin_ns.into()));
        summary.push(("end_ns", span.end_ns.into()));
        summary.push(("duration_ns", span.end_ns.saturating_sub(span.begin_ns).into()));
    }
    summary.push(("sideband", counts(&info.sideband).into()));
    let kernel = || info.modules.iter().filter(|module| module.kernel);
    let missing = kernel().filter(|module| module.source == Source::Missing).count();
    if missing > 0 {
        let all = kernel().count();
        summary.push(("kernel_modules", format!("{all}, the code of {missing} is missing").into()));
    }
    if info.kept_code.ranges > 0 {
        let kept = format!("{} bytes of code that is in no file", info.kept_code.bytes);
        summary.push(("kept_code", kept.into()));
    }
    Table::new("recording", Shape::Counters, summary, Vec::new(), Vec::new())
}

fn traced_on(info: &Info) -> String {
    let model = || match info.config.cpu {
        Some([family, model, stepping]) => format!("family {family}, model {model:#x}, stepping {stepping}"),
        None => "a processor whose model is not recorded".to_owned(),
    };
    let name = info.engine.name.clone().unwrap_or_else(model);
    match info.engine.frequency.filter(|_| info.engine.emulated) {
        Some(_) if !info.cpu_truth.is_empty() => {
            let time = match info.engine.counts_time {
                true => "virtual time: one instruction is one nanosecond",
                false => "its time is the host's",
            };
            format!("emulated machine ({name}); {time}")
        }
        Some(0) => format!("slave of an emulated board ({name}); its time is that of the slave's clock"),
        Some(frequency) => format!(
            "emulated processor ({name}); virtual time: one instruction is one cycle of {}",
            hertz(frequency as f64)
        ),
        None if info.engine.slowed => {
            let time = match info.engine.counts_time {
                true => "virtual, one instruction is one nanosecond",
                false => "real, of a program that it slows 2 to 7 times",
            };
            format!("{name}, by the native recorder; time: {time}")
        }
        None => name,
    }
}

fn packets(info: &Info) -> String {
    if info.engine.slowed {
        return "none: the log of the native recorder".to_owned();
    }
    if let Some(unit) = info.other_unit {
        return format!("of {unit}");
    }
    let config = &info.config;
    let timing = [
        config.tsc.then(|| "TSC".to_owned()),
        config.mtc_frequency.map(|frequency| format!("MTC every 2^{frequency} crystal ticks")),
        config.cyc.then(|| "CYC".to_owned()),
    ];
    let timing: Vec<String> = timing.into_iter().flatten().collect();
    let timing = if timing.is_empty() { "no timing packets".to_owned() } else { timing.join(", ") };
    let returns = if config.return_compression { "returns compressed" } else { "returns not compressed" };
    format!("{timing}; {returns}")
}

fn clock(info: &Info) -> String {
    let Some(clock) = info.clock else {
        return "unknown: the recording contains no conversion of ticks to nanoseconds".to_owned();
    };
    let frequency = 1e9 * 2f64.powi(clock.shift as i32) / clock.multiplier as f64;
    let words = format!("zero {}, multiplier {}, shift {}", clock.zero, clock.multiplier, clock.shift);
    let ratio = info.config.tsc_ctc_ratio;
    let crystal = ratio.map(|(numerator, denominator)| {
        format!(", crystal {}", hertz(frequency * f64::from(denominator) / f64::from(numerator)))
    });
    format!("TSC {}{} ({words})", hertz(frequency), crystal.unwrap_or_default())
}

/// Formats a frequency with at most four decimals.
fn hertz(frequency: f64) -> String {
    let (scaled, unit) = if frequency >= 1e9 { (frequency / 1e9, "GHz") } else { (frequency / 1e6, "MHz") };
    let digits = format!("{scaled:.4}");
    format!("{} {unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

fn counts(pairs: &[(&'static str, u64)]) -> String {
    let present = pairs.iter().filter(|(_, count)| *count > 0);
    let shown: Vec<String> =
        present.map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

fn streams(info: &Info) -> Table {
    let columns = vec![
        Column::text("stream"),
        Column::text("command"),
        Column::integer("bytes", Unit::Bytes),
        Column::integer("pieces", Unit::Count),
        Column::integer("cuts", Unit::Count),
        Column::integer("segments", Unit::Count),
    ];
    let rows = info.streams.iter().map(|stream| {
        vec![
            stream.name.as_str().into(),
            stream.command.as_deref().into(),
            stream.bytes.into(),
            stream.pieces.into(),
            stream.cuts.into(),
            stream.segments.into(),
        ]
    });
    table("streams", columns, rows)
}

fn modules(info: &Info) -> Table {
    let columns = vec![
        Column::text("module"),
        Column::text("build_id"),
        Column::integer("named_functions", Unit::Count),
        Column::text("code"),
    ];
    // A kernel has hundreds of modules, so those without code are hidden.
    let shown = |module: &&ModuleInfo| {
        !module.kernel || module.source != Source::Missing || module.name.starts_with('[')
    };
    let rows = info.modules.iter().filter(shown).map(|module| {
        let code = match (module.source, &module.problem) {
            (Source::Recording, _) => "in the recording",
            (Source::Names, None) => "names",
            (_, Some(problem)) => problem.strip_prefix(&format!("{}: ", module.name)).unwrap_or(problem),
            (Source::File, None) => "file",
            (Source::Missing, None) => "missing",
        };
        // Twelve digits distinguish builds; JSON has all.
        let build_id = module.build_id.get(..12).unwrap_or(&module.build_id);
        vec![module.name.as_str().into(), build_id.into(), module.symbols.into(), code.into()]
    });
    table("modules", columns, rows)
}

fn truth(info: &Info) -> Table {
    let columns = vec![
        Column::text("thread"),
        Column::integer("instructions", Unit::Instructions),
        Column::integer("calls", Unit::Count),
        Column::integer("traced_instructions", Unit::Instructions),
        Column::integer("traced_calls", Unit::Count),
    ];
    let rows = info.truth.iter().map(|truth| {
        vec![
            format!("tid {}", truth.thread.tid).into(),
            truth.instructions.into(),
            truth.calls.into(),
            truth.traced_instructions.into(),
            truth.traced_calls.into(),
        ]
    });
    table("what really ran, as the emulated processor counted it", columns, rows)
}

fn cpu_truth(info: &Info) -> Table {
    let columns = vec![
        Column::text("processor"),
        Column::integer("instructions", Unit::Instructions),
        Column::text("digest"),
        Column::text("counted_one_by_one"),
    ];
    let rows = info.cpu_truth.iter().map(|truth| {
        let witnessed = match truth.witnessed {
            None => "no",
            Some(true) => "the same",
            Some(false) => "another count",
        };
        let digest = format!("{:016x}", truth.digest);
        vec![format!("cpu {}", truth.cpu).into(), truth.instructions.into(), digest.into(), witnessed.into()]
    });
    table("what really ran, as the emulated machine counted it", columns, rows)
}

fn snapshots(info: &Info) -> Table {
    let columns = vec![
        Column::integer("at_ns", Unit::Nanoseconds),
        Column::text("trigger"),
        Column::integer("latency_ns", Unit::Nanoseconds),
        Column::integer("instructions", Unit::Instructions),
        Column::text("processor"),
        Column::text("thread"),
    ];
    let rows = info.snapshots.iter().map(|snapshot| {
        vec![
            snapshot.time_ns.into(),
            snapshot.trigger.as_str().into(),
            snapshot.latency_ns.into(),
            snapshot.instructions.into(),
            snapshot.cpu.map(|cpu| format!("cpu {cpu}")).into(),
            snapshot.thread.map(|thread| format!("tid {}", thread.tid)).into(),
        ]
    });
    table("snapshots, and the latency that each was taken for", columns, rows)
}

fn cut(info: &Info) -> Table {
    let columns =
        vec![Column::text("processor"), Column::integer("at_ns", Unit::Nanoseconds), Column::text("reason")];
    let rows = info
        .cut
        .iter()
        .map(|cut| vec![format!("cpu {}", cut.cpu).into(), cut.time_ns.into(), cut.reason.as_str().into()]);
    table("where the recording ends, before the command did", columns, rows)
}

fn untraced(info: &Info) -> Table {
    let columns =
        vec![Column::text("started_by"), Column::integer("at_ns", Unit::Nanoseconds), Column::text("reason")];
    let rows = info.untraced.iter().map(|program| {
        let thread = format!("tid {}", program.thread.tid);
        vec![thread.into(), program.time_ns.into(), program.reason.as_str().into()]
    });
    table("what ran untraced", columns, rows)
}

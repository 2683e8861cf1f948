//! `hodo sync`.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use hodo_engine::{MatchRule, Matched, Needs, SyncOutcome, SyncRequest, Synchronised};
use hodo_model::{Column, Shape, Table, Unit, Value};
use hodo_sync::{DropCause, EdgeReport};
use hodo_views::Reader;

use crate::{
    arguments::{self, Input},
    events,
    failure::{Failure, INTERRUPTED, written},
    input,
    output::{self, Destination},
    picture,
    progress::Progress,
    selection::Selection,
};

/// The method that fits clocks to one timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// Within the bounds that messages, drift and wander set; for clocks with variable drift
    Bounds,
    /// One line per clock: the bisector of the steepest and the flattest line that no message contradicts
    Hull,
    /// One line per clock: least squares
    Regression,
}

impl Method {
    fn of_graph(self) -> hodo_sync::Method {
        match self {
            Method::Bounds => hodo_sync::Method::Bounded,
            Method::Hull => hodo_sync::Method::Hull,
            Method::Regression => hodo_sync::Method::Regression,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Method::Bounds => "bounds",
            Method::Hull => "hull",
            Method::Regression => "regression",
        }
    }
}

/// The arguments of `hodo sync`.
#[derive(Debug, Args)]
#[command(after_help = "Values of --match:
  exchanges                      exchanges of boards, by sequence number: sync_send.seq = sync_recv.seq
  tcp                            TCP segments, from LTTng's net_dev_queue and net_if_receive_skb
  SEND.FIELD = RECEIVE.FIELD     any two events with equal fields; join several fields with `and`
The default is exchanges and tcp. Inputs of one host and one boot need no messages: they share a clock.

Examples:
  hodo sync client/ server/                             by the TCP connections between them
  hodo sync -o experiment.toml client/ server/          for other commands:
  hodo script --events experiment.toml                  the events of both in order, each with its uncertainty
  hodo sync --match 'msg_send.id = msg_recv.id' a/ b/
  hodo sync --method hull master/ slave1/ slave2/")]
pub struct Sync {
    /// Rule for the two events of a message, and their equal fields (repeatable)
    #[arg(long = "match", value_name = "RULE")]
    pub matched: Vec<String>,
    /// Method that fits clocks to one timeline
    #[arg(long, value_enum, default_value = "bounds")]
    pub method: Method,
    /// Input whose clock is the timeline's [default: the first]
    #[arg(long, value_name = "INPUT")]
    pub reference: Option<String>,
    /// Maximum deviation of clocks from their nominal frequency, in parts per million
    #[arg(long, value_name = "PPM", default_value_t = 100.0, value_parser = rate)]
    pub drift: f64,
    /// Maximum change of that deviation, in parts per million per second, also where messages are too rare to check it
    /// [default: 1, but only where messages are frequent enough to check it]
    #[arg(long, value_name = "PPM", value_parser = rate)]
    pub wander: Option<f64>,
    /// Write the experiment to this file, which other commands accept as input
    #[arg(short, long, value_name = "FILE.toml")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub input: Input,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = arguments::format_names())]
    pub format: String,
    /// At most this many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// When to use colours
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub color: clap::ColorChoice,
}

/// The greatest change of the frequency of ordinary crystals, in parts per million per second.
const WANDER: f64 = 1.0;

/// Parses parts per million.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && (0.0..=250_000.0).contains(rate));
    rate.ok_or("expected a number of parts per million, from 0 to 250000".to_owned())
}

/// The most tables of a result.
const TABLES: usize = 5;

/// Runs the command.
pub fn run(command: &Sync) -> Result<ExitCode, Failure> {
    let rules = command
        .matched
        .iter()
        .map(|text| MatchRule::parse(text).map_err(|why| Failure::usage(format!("--match {text}: {why}"))));
    let request = SyncRequest {
        rules: rules.collect::<Result<_, _>>()?,
        method: command.method.of_graph(),
        reference: command.reference.clone(),
        drift_ppb: parts_per_billion(command.drift),
        wander_ppb_per_s: parts_per_billion(command.wander.unwrap_or(WANDER)),
        wander_is_known: command.wander.is_some(),
    };
    Selection::new(&command.input, None)?.refuse("hodo sync relates clocks by all events")?;
    let Input { offset, call, chunk_size, .. } = &command.input;
    if !offset.is_empty() || call.is_some() || chunk_size.is_some() {
        return Err(Failure::usage(
            "hodo sync finds out how clocks are related: --offset, --call and --chunk-size have no meaning",
        ));
    }
    output::check(TABLES, &view(command))?;
    let experiment = input::unplaced(&command.input, Needs { flow: false, sideband: false, events: true })?;
    let bytes = experiment.with(|traces| traces.event_bytes());
    let progress = Progress::new(bytes, command.input.quiet);
    let outcome = experiment.synchronise(&request, &mut |done| progress.set(done))?;
    progress.finish();
    let Some(outcome) = outcome else { return Ok(INTERRUPTED.into()) };
    write(command, &outcome)?;
    report_broken_bounds(command, &outcome);
    refuse_contradictions(&outcome)?;
    if let Some(file) = &command.output {
        save(&outcome.synchronised, file)?;
    }
    let alone = unconnected(&outcome);
    for name in &alone {
        message!("{name}: no message connects it with {}: {}", outcome.clocks[0][0], advice(&outcome));
    }
    let lossless = outcome.losses.is_empty() && !experiment.with(events::tracer_lost);
    input::report_losses(outcome.losses);
    match alone.is_empty() {
        true => Ok(input::exit_code_of(&command.input, &experiment, lossless)),
        false => Ok(crate::failure::UNREADABLE.into()),
    }
}

fn parts_per_billion(ppm: f64) -> u64 {
    (ppm * 1000.0).round().clamp(0.0, 1e12) as u64
}

/// Reports each clock whose messages break the assumed bounds, and the bounds that its intervals rest on instead.
fn report_broken_bounds(command: &Sync, outcome: &SyncOutcome) {
    let (drift, wander) =
        (parts_per_billion(command.drift), parts_per_billion(command.wander.unwrap_or(WANDER)));
    for (clock, names) in outcome.timeline.report().clocks.iter().zip(&outcome.clocks) {
        if !clock.breaks_bounds {
            continue;
        }
        let rest = match clock.wander_bound_ppb_per_s {
            Some(bound) => format!("{} ppb, changing by at most {bound} ppb per s", clock.drift_bound_ppb),
            None => format!("{} ppb, which may change at once", clock.drift_bound_ppb),
        };
        message!(
            "{}: its frequency changes more than clocks were assumed to ({drift} ppb each, {wander} ppb per s), as when NTP \
             slews it. Its intervals assume that slews are of at most {slew} ppb, also those that begin and end between two \
             messages: they rest on a drift of at most {rest}",
            names.join(" = "),
            slew = hodo_sync::SLEW_PPB,
        );
    }
}

/// Refuses a result that many messages contradict.
fn refuse_contradictions(outcome: &SyncOutcome) -> Result<(), Failure> {
    for edge in outcome.edges() {
        if edge.is_refuted() {
            let [from, to] = [edge.a, edge.b].map(|clock| outcome.clocks[clock.0 as usize].join(" = "));
            return Err(Failure::unreadable(format!(
                "{from} and {to}: {} of {} messages contradict the others, whatever their clocks did: intervals would not hold the truth. Does --match pair the right events? Clocks that are more than {} ppm off take --drift",
                edge.contradicting(),
                edge.pairs,
                hodo_sync::WIDEST_DRIFT_PPB / 1000,
            )));
        }
    }
    Ok(())
}

/// Returns the inputs without a connection to the timeline.
fn unconnected(outcome: &SyncOutcome) -> Vec<String> {
    let clocks = outcome.timeline.report().clocks.iter().zip(&outcome.clocks);
    clocks.filter(|(clock, _)| clock.hops.is_none()).flat_map(|(_, names)| names.clone()).collect()
}

/// Returns likely reasons for missing messages.
fn advice(outcome: &SyncOutcome) -> String {
    let ends: u64 = outcome.matched.iter().map(|matched| matched.ends).sum();
    let rules: Vec<String> = outcome.matched.iter().map(|matched| matched.rule.to_string()).collect();
    match ends {
        0 => format!(
            "no event is an end of a message ({}); record net_dev_queue and net_if_receive_skb with LTTng on both sides, or name events with equal fields: --match 'send.seq = recv.seq'",
            rules.join(", ")
        ),
        ends => format!("{ends} events are ends of messages, but no event here has its other end there"),
    }
}

/// Returns the output options of the tables.
fn view(command: &Sync) -> arguments::Output {
    arguments::Output {
        format: command.format.clone(),
        output: None,
        limit: command.limit,
        color: command.color,
    }
}

fn write(command: &Sync, outcome: &SyncOutcome) -> Result<(), Failure> {
    let view = view(command);
    let tables: [Table; TABLES] =
        [clocks(command, outcome), steps(outcome), edges(outcome), matched(outcome), left_out(outcome)];
    let shown: Vec<Table> = tables.into_iter().filter(|table| !table.is_empty()).collect();
    let mut out = Destination::open(None)?;
    let people = output::view(&view).reader == Reader::People;
    written(output::write_all(&shown, view.limit, &view, &mut out))?;
    if people {
        written(pictures(outcome, &mut out))?;
    }
    out.finish()
}

/// Draws a plot for each clock except the reference clock.
fn pictures(outcome: &SyncOutcome, out: &mut dyn Write) -> io::Result<()> {
    for (trace, (name, knots)) in outcome.synchronised.traces.iter().zip(&outcome.curves) {
        if !trace.knots.is_empty() {
            writeln!(out)?;
            picture::offset(name, knots, out)?;
        }
    }
    Ok(())
}

/// Returns the table of clocks, with the names of their inputs.
fn clocks(command: &Sync, outcome: &SyncOutcome) -> Table {
    let columns = vec![
        Column::text("clock"),
        Column::integer("hops", Unit::Count),
        Column::signed("drift_ppb", Unit::None),
        Column::signed("wander_ppb", Unit::None),
        Column::integer("half_width_median_ns", Unit::Nanoseconds),
        Column::integer("half_width_max_ns", Unit::Nanoseconds),
        Column::integer("drift_bound_ppb", Unit::None),
        Column::integer("wander_bound_ppb_per_s", Unit::None),
        Column::text("bounded"),
        Column::integer("steps", Unit::Count),
        Column::integer("contradictions", Unit::Count),
    ];
    let row = |(index, names): (usize, &Vec<String>)| -> Vec<Value> {
        let (clock, widths) = (&outcome.timeline.report().clocks[index], outcome.half_widths[index]);
        // The reference clock does not move against itself.
        let is_reference = clock.hops == Some(0);
        let sides = match (clock.hops, clock.bounded) {
            (None, _) | (_, (false, false)) => "no",
            (_, (true, true)) => "yes",
            (_, (true, false)) => "from below only",
            (_, (false, true)) => "from above only",
        };
        vec![
            names.join(" = ").into(),
            clock.hops.map(u64::from).into(),
            clock.drift_ppb.into(),
            clock.wander_ppb.into(),
            widths.map(|widths| widths.median_ns).into(),
            widths.map(|widths| widths.max_ns).into(),
            (!is_reference).then_some(clock.drift_bound_ppb).into(),
            clock.wander_bound_ppb_per_s.filter(|_| !is_reference).into(),
            sides.into(),
            (clock.steps.len() as u64).into(),
            clock.contradictions.into(),
        ]
    };
    let rows = outcome.clocks.iter().enumerate().map(row);
    let beyond = outcome.timeline.report().clocks.iter().filter(|clock| clock.breaks_bounds).count();
    let summary = vec![
        ("method", command.method.name().into()),
        ("timeline", outcome.clocks[0].join(" = ").into()),
        ("drift_bound_ppb", parts_per_billion(command.drift).into()),
        ("wander_bound_ppb_per_s", parts_per_billion(command.wander.unwrap_or(WANDER)).into()),
        ("clocks_beyond_bounds", (beyond as u64).into()),
    ];
    Table::new("clocks", Shape::Counters, summary, columns, rows)
}

/// Returns the table of steps.
fn steps(outcome: &SyncOutcome) -> Table {
    let columns = vec![
        Column::text("clock"),
        Column::signed("after_ns", Unit::Nanoseconds),
        Column::signed("before_ns", Unit::Nanoseconds),
        Column::signed("jump_least_ns", Unit::Nanoseconds),
        Column::signed("jump_most_ns", Unit::Nanoseconds),
    ];
    let mut rows: Vec<Vec<Value>> = Vec::new();
    let time = |nanos: i128| i64::try_from(nanos).ok();
    for (steps, names) in outcome.steps.iter().zip(&outcome.clocks) {
        for step in steps {
            rows.push(vec![
                names.join(" = ").into(),
                time(step.after).into(),
                time(step.before).into(),
                step.jump.0.into(),
                step.jump.1.into(),
            ]);
        }
    }
    Table::new("steps", Shape::Counters, Vec::new(), columns, rows)
}

/// Returns the table of edges: the use of the messages between two clocks.
fn edges(outcome: &SyncOutcome) -> Table {
    let columns = vec![
        Column::text("from"),
        Column::text("to"),
        Column::integer("pairs", Unit::Count),
        Column::integer("pairs_back", Unit::Count),
        Column::integer("used", Unit::Count),
        Column::integer("implied", Unit::Count),
        Column::integer("dropped", Unit::Count),
        Column::integer("violations_before", Unit::Count),
        Column::integer("violations_after", Unit::Count),
        Column::signed("drift_ppb", Unit::None),
        Column::signed("wander_ppb", Unit::None),
        Column::integer("half_width_ns", Unit::Nanoseconds),
        Column::integer("steps", Unit::Count),
    ];
    let row = |edge: &EdgeReport| -> Vec<Value> {
        vec![
            outcome.clocks[edge.a.0 as usize].join(" = ").into(),
            outcome.clocks[edge.b.0 as usize].join(" = ").into(),
            edge.pairs_to_b.into(),
            (edge.pairs - edge.pairs_to_b).into(),
            edge.used.into(),
            edge.implied.into(),
            edge.dropped.into(),
            edge.violations_before.into(),
            edge.violations_after.into(),
            edge.drift_ppb.into(),
            edge.wander_ppb.into(),
            edge.half_width_ns.into(),
            edge.steps.into(),
        ]
    };
    Table::new("messages", Shape::Counters, Vec::new(), columns, outcome.edges().iter().map(row))
}

/// Returns the table of matches by rule.
fn matched(outcome: &SyncOutcome) -> Table {
    let columns = vec![
        Column::text("match"),
        Column::integer("ends", Unit::Count),
        Column::integer("pairs", Unit::Count),
        Column::integer("lost_sends", Unit::Count),
        Column::integer("lost_receives", Unit::Count),
        Column::integer("repeated", Unit::Count),
        Column::integer("same_clock", Unit::Count),
    ];
    let row = |matched: &Matched| -> Vec<Value> {
        vec![
            matched.rule.to_string().into(),
            matched.ends.into(),
            matched.report.pairs.into(),
            matched.report.lost_sends.into(),
            matched.report.lost_receives.into(),
            matched.report.repeated.into(),
            matched.report.same_clock.into(),
        ]
    };
    Table::new("matches", Shape::Counters, Vec::new(), columns, outcome.matched.iter().map(row))
}

/// Returns the table of dropped pairs by cause.
fn left_out(outcome: &SyncOutcome) -> Table {
    let causes = [
        (
            DropCause::Contradicts,
            "contradicts",
            "it contradicts other pairs, and is among the fewest that do",
        ),
        (DropCause::Late, "late", "it took far longer than others: probably a wrong match"),
        (DropCause::OutOfRange, "out_of_range", "its clocks are years from those of the others"),
        (DropCause::AtStep, "at_step", "a step of a clock leaves its order unknown"),
    ];
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for edge in outcome.edges() {
        for (cause, name, meaning) in causes {
            let pairs = edge.dropped_because(cause);
            if pairs > 0 {
                let from = outcome.clocks[edge.a.0 as usize].join(" = ");
                let to = outcome.clocks[edge.b.0 as usize].join(" = ");
                rows.push(vec![from.into(), to.into(), name.into(), pairs.into(), meaning.into()]);
            }
        }
    }
    let columns = vec![
        Column::text("from"),
        Column::text("to"),
        Column::text("cause"),
        Column::integer("pairs", Unit::Count),
        Column::text("meaning"),
    ];
    Table::new("dropped", Shape::Counters, Vec::new(), columns, rows)
}

/// Writes the experiment. Paths of inputs below its folder are relative to it, so that the folder can move.
fn save(synchronised: &Synchronised, file: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unreadable(format!("{}: {error}", file.display()));
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::canonicalize(folder).map_err(failed)?;
    let mut synchronised = synchronised.clone();
    for trace in &mut synchronised.traces {
        let path = fs::canonicalize(&trace.input).map_err(failed)?;
        trace.input = path.strip_prefix(&folder).map(PathBuf::from).unwrap_or(path);
    }
    let text = toml::to_string(&synchronised)
        .map_err(|error| Failure::unreadable(format!("{}: {error}", file.display())))?;
    let mut out = Destination::open(Some(file))?;
    written(writeln!(
        out,
        "# Written by `hodo sync`; name this file as an input of other commands.\n{text}"
    ))?;
    out.finish()
}

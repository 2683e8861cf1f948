//! Commands on live LTTng sessions.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Instant,
};

use hodo_clock::OriginNanos;
use hodo_engine::{
    Chunks, EventReading, Reading, Window,
    events::{LiveAddress, LiveError, live_count, live_sessions},
};
use hodo_model::{Parameters, Role, Table, Value};
use hodo_script::live_script;

use crate::{
    arguments::{Input, Report, Script},
    events,
    failure::{Failure, written},
    input,
    output::{self, Destination},
    progress::Progress,
    selection::Selection,
};

/// Number of bytes of packets to count at a time.
const CHUNK: u64 = 1 << 20;

/// Returns the session that the input names, if any.
pub fn address(input: &Input) -> Result<Option<LiveAddress>, Failure> {
    let [file] = input.files.as_slice() else { return Ok(None) };
    let text = file.to_string_lossy();
    match input.buffer().is_none() && LiveAddress::is_meant(&text) {
        true => LiveAddress::parse(&text).map(Some).map_err(Failure::usage),
        false => Ok(None),
    }
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Failure {
        match error {
            LiveError::MissingContext(_) => Failure::usage(error),
            error => Failure::unreadable(error),
        }
    }
}

/// Records Ctrl-C. A session has no length, so there is no bar.
fn silent_progress() -> Progress {
    let (total, quiet) = (0, true);
    Progress::new(total, quiet)
}

fn reading(input: &Input) -> Result<EventReading, Failure> {
    let time = input.time.as_deref();
    if time.is_some_and(|text| text.contains(['+', '%'])) {
        return Err(Failure::usage(
            "--time: the begin and end of a live session are unknown; give absolute seconds",
        ));
    }
    let start = (OriginNanos(0), OriginNanos(0));
    let window = input::times(input)?.map_or(Ok(Window::ALL), |span| span.of_events(Some(start)))?;
    Ok(Reading { window, ..Reading::new(input::threads(input), Chunks::Bytes(CHUNK)) })
}

/// `hodo script`: prints the events of a session as they arrive, or lists the sessions.
pub fn script(command: &Script, address: &LiveAddress) -> Result<ExitCode, Failure> {
    events::refuse_flow(&command.input)?;
    events::refuse_marks(command)?;
    let format = events::format(&command.output)?;
    let mut out = Destination::open(command.output.output.as_deref())?;
    if address.session.is_none() {
        return list(address, out);
    }
    let progress = silent_progress();
    let wanted = Selection::new(&command.input, Some(&command.filter))?.wanted();
    let (reading, limit) = (reading(&command.input)?, command.output.limit);
    let keep_going = || !progress.is_interrupted();
    let outcome = live_script(address, &wanted, format, &reading, limit, &mut out, &keep_going)?;
    written(outcome.written)?;
    out.finish()?;
    let lossless = outcome.losses.is_empty();
    input::report_losses(outcome.losses);
    Ok(input::exit_code(&command.input, lossless))
}

/// Lists the sessions of a relay daemon, as addresses to read.
fn list(address: &LiveAddress, mut out: Destination) -> Result<ExitCode, Failure> {
    for session in live_sessions(address)? {
        let own = LiveAddress { session: Some((session.host, session.name)), ..address.clone() };
        let (timer, streams, clients) = (session.live_timer, session.streams, session.clients);
        written(writeln!(out, "{own} (timer {timer} us, {streams} streams, {clients} viewers)"))?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// `hodo report count`: draws the table at the session's end or at Ctrl-C, and periodically if requested.
pub fn report(command: &Report, address: &LiveAddress) -> Result<ExitCode, Failure> {
    let counts = hodo_engine::report_for(Role::Counts);
    let name = counts.description().name;
    if command.kind.as_deref() != Some(name) {
        return Err(Failure::usage(format!("live sessions support only `hodo report {name}`")));
    }
    events::refuse_flow(&command.input)?;
    if command.by.is_some() {
        return Err(Failure::usage("--by: events of a live session are always counted by name"));
    }
    if address.session.is_none() {
        return Err(Failure::usage(format!("which session? `hodo script {address}` lists them")));
    }
    let progress = silent_progress();
    let wanted = Selection::new(&command.input, Some(&command.filter))?.wanted();
    let mut last = Instant::now();
    let mut failed = None;
    let mut each = |table: &Table| {
        if command.refresh.is_some_and(|refresh| last.elapsed() >= refresh) {
            last = Instant::now();
            failed = redraw(table, command).err();
        }
    };
    let keep_going = || !progress.is_interrupted();
    let count = counts.make(&Parameters::default());
    let table =
        live_count(address, count.analysis(), &wanted, &reading(&command.input)?, &keep_going, &mut each)?;
    if let Some(failure) = failed {
        return Err(failure);
    }
    let lost = |name: &str| {
        table.figure(name).is_some_and(|value| !matches!(value, Value::Integer(0) | Value::Null))
    };
    let lossless = table.loss.is_empty() && !lost("events_lost") && !lost("packets_lost");
    clear(command)?;
    output::draw(table, &command.output)?;
    Ok(input::exit_code(&command.input, lossless))
}

/// Draws a table over the previous one.
fn redraw(table: &Table, command: &Report) -> Result<(), Failure> {
    clear(command)?;
    output::draw(table.clone(), &command.output)
}

/// Clears a terminal on which tables are redrawn.
fn clear(command: &Report) -> Result<(), Failure> {
    match command.refresh.is_some() && command.output.output.is_none() && io::stdout().is_terminal() {
        true => written(io::stdout().write_all(b"\x1b[H\x1b[2J")),
        false => Ok(()),
    }
}

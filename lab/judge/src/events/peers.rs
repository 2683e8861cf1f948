//! Runs trace-cmd and perf, and parses their output.

use std::process::Command;

use serde_json::Value;

use super::{
    Event, Events, Fields, Line, lines_of,
    recordings::{Peer, Recording},
};
use crate::{Outcome, command::root};

/// The most events that perf may print before an earlier one.
const LATE: usize = 100_000;

pub(super) fn name(recording: &Recording) -> &'static str {
    match recording.peer {
        Peer::TraceCmd => "trace-cmd report -R",
        Peer::Perf => "perf script",
    }
}

/// The peer's command that prints events as text.
pub(super) fn plain(recording: &Recording) -> Command {
    match recording.peer {
        Peer::TraceCmd => {
            let mut report = Command::new("trace-cmd");
            // Raw fields, full times.
            report.args(["report", "-R", "-t", "-i"]).arg(&recording.path);
            report
        }
        Peer::Perf => {
            let mut script = Command::new("perf");
            script
                .args(["script", "--ns", "-F", "comm,pid,tid,cpu,time,event,trace,ip", "-i"])
                .arg(&recording.path);
            script
        }
    }
}

/// The peer's events.
pub(super) fn lines(recording: &Recording) -> Outcome<Events<Box<dyn Iterator<Item = Outcome<Line>>>>> {
    let lines: Box<dyn Iterator<Item = Outcome<Line>>> = match recording.peer {
        Peer::TraceCmd => Box::new(lines_of(&mut plain(recording))?.map(|line| Ok(trace_cmd(&line?)))),
        Peer::Perf => {
            let mut script = Command::new("perf");
            script
                .arg("script")
                .arg("-i")
                .arg(&recording.path)
                .arg("-s")
                .arg(root().join("lab/judges/perf_samples.py"));
            Box::new(lines_of(&mut script)?.map(|line| perf(&line?)))
        }
    };
    Ok(Events::new(lines, if recording.peer == Peer::Perf { LATE } else { 0 }))
}

/// `[INSTANCE:] COMM-TID [CPU] SECONDS.NANOSECONDS: NAME: FIELDS`, or `CPU:0 [7 EVENTS DROPPED]`.
fn trace_cmd(line: &str) -> Line {
    if let Some((_, dropped)) = line.split_once("CPU:").filter(|_| line.ends_with("EVENTS DROPPED]")) {
        let count = dropped.split_once('[').and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        return Line::Lost(count.unwrap_or(0));
    }
    event(line).map_or(Line::Nothing, Line::Event)
}

fn event(line: &str) -> Option<Event> {
    // Names of threads may contain any of these characters, too.
    let (thread, cpu, rest) = line.match_indices(" [").find_map(|(end, opening)| {
        let (cpu, rest) = line[end + opening.len()..].split_once("] ")?;
        Some((line[..end].trim_end(), cpu.parse().ok()?, rest))
    })?;
    let (time, rest) = rest.split_once(": ")?;
    let (seconds, nanos) = time.trim().split_once('.')?;
    let (name, fields) = rest.split_once(':')?;
    Some(Event {
        time: seconds.parse::<i64>().ok()? * 1_000_000_000 + nanos.parse::<i64>().ok()?,
        cpu,
        thread: thread.rsplit_once('-')?.1.parse().ok()?,
        name: name.trim().to_owned(),
        fields: Fields::Text(fields.trim_start().to_owned()),
    })
}

/// A line of our script for perf: a list of name, time, CPU, process, thread, address, period, fields.
fn perf(line: &str) -> Outcome<Line> {
    let Ok(Value::Array(mut parts)) = serde_json::from_str::<Value>(line) else { return Ok(Line::Nothing) };
    let fields = parts.pop();
    let number = |index: usize| parts.get(index).and_then(Value::as_i64);
    // The ids of an ended thread are -1, which perf's Python treats as unsigned.
    let id = |index| number(index).map(|id| i64::from(id as i32));
    let Some(Value::Object(mut fields)) = fields else { return Err("fields expected".into()) };
    for (index, name) in [(5, "ip"), (6, "period")] {
        fields.insert(format!("sample {name}"), parts.get(index).cloned().unwrap_or_default());
    }
    fields.insert("sample pid".to_owned(), id(3).into());
    Ok(Line::Event(Event {
        time: number(1).ok_or("a time expected")?,
        cpu: number(2).unwrap_or(-1),
        thread: id(4).unwrap_or(-1),
        name: parts.first().and_then(Value::as_str).unwrap_or_default().to_owned(),
        fields: Fields::Values(fields),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_trace_cmd_are_read() {
        let line = "hodo:   a [b] c-d-23811 [001] 11965.344365040: sys_enter_openat:      dfd=0x1 name=x [y]";
        let Line::Event(event) = trace_cmd(line) else { panic!("an event") };
        assert_eq!((event.time, event.cpu, event.thread), (11_965_344_365_040, 1, 23811));
        assert_eq!(event.name, "sys_enter_openat");
        assert!(matches!(event.fields, Fields::Text(text) if text == "dfd=0x1 name=x [y]"));
        assert!(matches!(trace_cmd("CPU:0 [181700 EVENTS DROPPED]"), Line::Lost(181_700)));
    }
}

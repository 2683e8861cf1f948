//! Each call, indented by depth, in the manner of ftrace's function graph.

use std::{collections::BTreeMap, io::Write};

use hodo_analyses::{
    FrameEntry,
    calls::{Call, Calls, Moment},
};
use hodo_clock::Nanos;
use hodo_trace::{FunctionId, Names};

use super::{Lines, Outcome};
use crate::{
    Experiment, Reading,
    threads::{in_time, shared_streams},
};

/// How calls are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFormat {
    /// A line where a call begins and one where it ends; one for both where nothing happens between.
    Text,
    /// A JSON object for each call, when it ends.
    JsonLines,
}

/// Writes the calls of all threads to `out`, at most `limit` lines: thread by thread where each has a stream
/// of its own, else in order of time.
pub fn calls(
    experiment: &Experiment<'_>,
    format: CallFormat,
    reading: Reading<'_>,
    limit: Option<u64>,
    out: &mut dyn Write,
    progress: impl FnMut(u64) -> bool,
) -> Outcome {
    let lines = Lines::new(out, limit);
    let mut writer = Writer { experiment, format, lines, open: None, context: None, tid: 0 };
    let mut threads: BTreeMap<u32, Calls> = BTreeMap::new();
    let losses = in_time(
        experiment,
        reading,
        |context, seen| {
            // A thread of a stream of its own ends with it.
            if !shared_streams(experiment) && writer.context.is_some_and(|before| before != context) {
                let before = std::mem::take(&mut threads);
                before.into_values().for_each(|calls| calls.end(&mut |moment| writer.moment(moment)));
            }
            writer.switch(context);
            let calls = threads.entry(context).or_default();
            seen.into_iter().for_each(|seen| calls.follow(seen, &mut |moment| writer.moment(moment)));
            writer.lines.want_more()
        },
        progress,
    );
    for (context, calls) in threads {
        if writer.lines.want_more() {
            writer.switch(context);
            calls.end(&mut |moment| writer.moment(moment));
        }
    }
    writer.flush_open();
    Outcome { losses, written: writer.lines.result }
}

struct Writer<'x, 'f> {
    experiment: &'x Experiment<'f>,
    format: CallFormat,
    lines: Lines<'x>,
    /// A call that began last, whose line waits for whether it ends at once.
    open: Option<(usize, FunctionId, FrameEntry, Option<Nanos>)>,
    /// The thread.
    context: Option<u32>,
    tid: u32,
}

impl Writer<'_, '_> {
    /// Calls of the thread with this context follow.
    fn switch(&mut self, context: u32) {
        if self.context.replace(context) == Some(context) {
            return;
        }
        self.flush_open();
        let thread = self.experiment.threads[context as usize];
        self.tid = thread.tid;
        if self.format == CallFormat::Text {
            let name = self.experiment.thread_name(thread).unwrap_or_default();
            let heading = format!(
                "# pid {} tid {} {name}\n#       time (s)     duration  instructions  call\n",
                thread.pid, thread.tid
            );
            self.lines.write(heading.as_bytes());
        }
    }

    fn moment(&mut self, moment: Moment) {
        match (self.format, moment) {
            (CallFormat::JsonLines, Moment::End { call }) => self.object(&call),
            (CallFormat::JsonLines, _) => {}
            (CallFormat::Text, Moment::Begin { depth, function, entry, time, .. }) => {
                self.flush_open();
                self.open = Some((depth, function, entry, time));
            }
            (CallFormat::Text, Moment::End { call }) => self.end(&call),
            (CallFormat::Text, Moment::Gap) => {
                self.flush_open();
                self.lines.write(b"# gap\n");
            }
        }
    }

    fn name(&self, function: FunctionId) -> String {
        self.experiment.modules.names(function).0
    }

    /// Writes the line of a call that began and did not end at once.
    fn flush_open(&mut self) {
        if let Some((depth, function, entry, time)) = self.open.take() {
            let name = self.name(function);
            let indent = indent(depth);
            let line = format!(
                "{:>16} {:>12} {:>13}  {:indent$}{}{name} {{\n",
                seconds(time),
                "",
                "",
                "",
                arrow(entry)
            );
            self.lines.write(line.as_bytes());
        }
    }

    fn end(&mut self, call: &Call) {
        let indent = indent(call.depth);
        let duration = call
            .begin
            .zip(call.end)
            .map_or(String::new(), |(begin, end)| duration(end.0.saturating_sub(begin.0)));
        let name = self.name(call.function);
        let at_once =
            self.open.take_if(|(depth, function, ..)| (*depth, *function) == (call.depth, call.function));
        let (time, text) = match at_once {
            Some((.., time)) => (time, format!("{}{name};", arrow(call.entry))),
            None => {
                self.flush_open();
                (call.end, format!("}} {name}"))
            }
        };
        let instructions = call.instructions;
        let line = format!("{:>16} {duration:>12} {instructions:>13}  {:indent$}{text}\n", seconds(time), "");
        self.lines.write(line.as_bytes());
    }

    fn object(&mut self, call: &Call) {
        let (function, module) = self.experiment.modules.names(call.function);
        let object = serde_json::json!({
            "time_ns": call.begin.map(|time| time.0),
            "end_ns": call.end.map(|time| time.0),
            "tid": self.tid,
            "depth": call.depth,
            "function": function,
            "module": module,
            "entered_by": call.entry.name(),
            "instructions": call.instructions,
        });
        self.lines.write(format!("{object}\n").as_bytes());
    }
}

/// How a function was entered, where not by a call.
fn arrow(entry: FrameEntry) -> &'static str {
    match entry {
        FrameEntry::Root | FrameEntry::Call => "",
        FrameEntry::Tail => "-> ",
        FrameEntry::Interrupt => "=> ",
    }
}

/// Blanks before the name of a call; recursion that goes deeper is not moved further to the right.
fn indent(depth: usize) -> usize {
    const DEEPEST: usize = 100;
    2 * depth.min(DEEPEST)
}

fn seconds(time: Option<Nanos>) -> String {
    time.map_or(String::new(), |time| time.to_string())
}

/// A span of time with a unit that suits it.
fn duration(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.3} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}

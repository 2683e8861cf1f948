//! Each call, indented by depth, in the manner of ftrace's function graph.

use std::io::Write;

use hodo_analyses::{
    FrameEntry,
    calls::{Call, Moment},
};
use hodo_clock::Nanos;
use hodo_trace::{FunctionId, Names};
use rustc_hash::FxHashMap;

use super::{Lines, Outcome};
use crate::{CallSink, Experiment, Reading};

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
    let mut writer = Writer {
        experiment,
        format,
        lines: Lines::new(out, limit),
        text: Vec::new(),
        names: FxHashMap::default(),
        open: None,
        context: None,
        tid: 0,
    };
    let losses = crate::calls(experiment, reading, &mut writer, progress);
    writer.flush_open();
    writer.flush();
    Outcome { losses, written: writer.lines.result }
}

struct Writer<'x, 'f> {
    experiment: &'x Experiment<'f>,
    format: CallFormat,
    lines: Lines<'x>,
    /// Lines that are not written yet.
    text: Vec<u8>,
    names: FxHashMap<FunctionId, Name>,
    /// A call that began last, whose line waits for whether it ends at once.
    open: Option<(usize, FunctionId, FrameEntry, Option<Nanos>)>,
    /// The thread.
    context: Option<u32>,
    tid: u32,
}

/// The name of a function as it is written.
struct Name {
    text: String,
    /// That, and the module's, as members of a JSON object.
    members: [Box<[u8]>; 2],
}

/// Lines that are gathered before they are written.
const GATHERED: usize = 1 << 16;

impl CallSink for Writer<'_, '_> {
    fn begins(&self) -> bool {
        self.format == CallFormat::Text
    }

    fn thread(&mut self, context: u32) {
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
            self.text.extend_from_slice(heading.as_bytes());
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
                self.text.extend_from_slice(b"# gap\n");
            }
        }
        if self.text.len() >= GATHERED {
            self.flush();
        }
    }

    fn goes_on(&mut self) -> bool {
        self.flush();
        self.lines.want_more()
    }
}

impl Writer<'_, '_> {
    /// Writes the lines that were gathered.
    fn flush(&mut self) {
        self.lines.write(&self.text);
        self.text.clear();
    }

    /// Writes the line of a call that began and did not end at once.
    fn flush_open(&mut self) {
        if let Some((depth, function, entry, time)) = self.open.take() {
            let Writer { text, names, experiment, .. } = self;
            let name = &name(names, experiment, function).text;
            let (time, arrow, indent) = (seconds(time), arrow(entry), indent(depth));
            let _ = writeln!(text, "{time:>16} {:>12} {:>13}  {:indent$}{arrow}{name} {{", "", "", "");
        }
    }

    fn end(&mut self, call: &Call) {
        let indent = indent(call.depth);
        let duration = call
            .begin
            .zip(call.end)
            .map_or(String::new(), |(begin, end)| duration(end.0.saturating_sub(begin.0)));
        let at_once =
            self.open.take_if(|(depth, function, ..)| (*depth, *function) == (call.depth, call.function));
        let (time, before, behind) = match at_once {
            Some((.., time)) => (seconds(time), arrow(call.entry), ";"),
            None => {
                self.flush_open();
                (seconds(call.end), "} ", "")
            }
        };
        let Writer { text, names, experiment, .. } = self;
        let name = &name(names, experiment, call.function).text;
        let instructions = call.instructions;
        let _ = writeln!(
            text,
            "{time:>16} {duration:>12} {instructions:>13}  {:indent$}{before}{name}{behind}",
            ""
        );
    }

    /// A JSON object; its members are in order of their names.
    fn object(&mut self, call: &Call) {
        let Writer { text, names, experiment, tid, .. } = self;
        let [function, module] = &name(names, experiment, call.function).members;
        text.extend_from_slice(b"{\"depth\":");
        decimal(text, call.depth as u64);
        text.extend_from_slice(b",\"end_ns\":");
        nanoseconds(text, call.end);
        text.extend_from_slice(b",\"entered_by\":\"");
        text.extend_from_slice(call.entry.name().as_bytes());
        text.extend_from_slice(b"\",\"function\":");
        text.extend_from_slice(function);
        text.extend_from_slice(b",\"instructions\":");
        decimal(text, call.instructions);
        text.extend_from_slice(b",\"module\":");
        text.extend_from_slice(module);
        text.extend_from_slice(b",\"tid\":");
        decimal(text, u64::from(*tid));
        text.extend_from_slice(b",\"time_ns\":");
        nanoseconds(text, call.begin);
        text.extend_from_slice(b"}\n");
    }
}

/// The name of a function, which is looked up once.
fn name<'n>(
    names: &'n mut FxHashMap<FunctionId, Name>,
    experiment: &Experiment<'_>,
    function: FunctionId,
) -> &'n Name {
    names.entry(function).or_insert_with(|| {
        let (text, module) = experiment.modules.names(function);
        let members = [&text, &module].map(|name| serde_json::json!(name).to_string().into_bytes().into());
        Name { text, members }
    })
}

fn decimal(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn nanoseconds(text: &mut Vec<u8>, time: Option<Nanos>) {
    match time {
        Some(time) => decimal(text, time.0),
        None => text.extend_from_slice(b"null"),
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

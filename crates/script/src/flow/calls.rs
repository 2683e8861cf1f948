//! Writes each call, indented by depth, in the style of ftrace's function graph.

use std::io::Write;

use hodo_analyses::{
    FrameEntry,
    calls::{Call, Moment},
};
use hodo_clock::Nanos;
use hodo_engine::{CallSink, Reading, Trace};
use hodo_model::{
    FunctionId, Names,
    digits::{decimal, nine},
};
use rustc_hash::FxHashMap;

use crate::{Format, Outcome, lines::Lines};

/// Writes the calls of all threads to `out`, at most `limit` lines: thread by thread if each has its own stream, else
/// in order of time.
pub fn calls(
    trace: &Trace<'_>,
    format: Format,
    reading: Reading<'_>,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    progress: impl FnMut(u64) -> bool + Send,
) -> Outcome {
    let mut writer = Writer {
        trace,
        format,
        lines: Lines::new(out, limit),
        text: Vec::new(),
        names: FxHashMap::default(),
        open: None,
        thread: None,
        tid: 0,
    };
    let losses = hodo_engine::calls(trace, reading, &mut writer, progress);
    writer.flush_open();
    writer.flush();
    writer.lines.outcome(losses)
}

struct Writer<'x, 'f> {
    trace: &'x Trace<'f>,
    format: Format,
    lines: Lines<'x>,
    /// Lines not yet written.
    text: Vec<u8>,
    names: FxHashMap<FunctionId, Name>,
    /// The last call that began, whose line depends on whether it ends at once.
    open: Option<OpenCall>,
    /// Index of the current thread in the trace, and its id.
    thread: Option<u32>,
    tid: u32,
}

/// The name of a function in its output forms.
struct Name {
    text: String,
    /// Names of the function and of the module as JSON strings.
    json: [Box<[u8]>; 2],
}

/// The begin of a call.
struct OpenCall {
    depth: usize,
    function: FunctionId,
    entry: FrameEntry,
    time: Option<Nanos>,
}

/// The numbers in front of a line. `None` becomes blanks: the number is unknown, or the line shows none.
#[derive(Default)]
struct Columns {
    time: Option<Nanos>,
    /// Duration in nanoseconds.
    took: Option<u64>,
    instructions: Option<u64>,
}

/// The widths of the columns; a time has seconds, a point, and nine more digits.
const SECONDS_WIDTH: usize = 6;
const TIME_WIDTH: usize = SECONDS_WIDTH + 10;
const DURATION_WIDTH: usize = 12;
const INSTRUCTIONS_WIDTH: usize = 13;

/// What follows the name of a call that did not end.
const OPEN: &str = "   (open at the end)";

/// Number of bytes to gather before writing.
const GATHERED: usize = 1 << 16;

impl CallSink for Writer<'_, '_> {
    fn begins(&self) -> bool {
        self.format == Format::Text
    }

    fn thread(&mut self, index: u32) {
        if self.thread.replace(index) == Some(index) {
            return;
        }
        self.flush_open();
        let thread = self.trace.threads[index as usize];
        self.tid = thread.tid;
        if self.format == Format::Text {
            let name = self.trace.thread_name(thread).unwrap_or_default();
            let heading = format!(
                "# pid {} tid {} {name}\n#       time (s)     duration  instructions  call\n",
                thread.pid, thread.tid
            );
            self.text.extend_from_slice(heading.as_bytes());
        }
    }

    fn moment(&mut self, moment: Moment) {
        match (self.format, moment) {
            (Format::JsonLines, Moment::End { call }) => self.object(&call),
            (Format::JsonLines, _) => {}
            (Format::Text, Moment::Begin { depth, function, entry, time, .. }) => {
                self.flush_open();
                self.open = Some(OpenCall { depth, function, entry, time });
            }
            (Format::Text, Moment::End { call }) => self.end(&call),
            (Format::Text, Moment::Gap { .. }) => {
                self.flush_open();
                self.text.extend_from_slice(b"# gap\n");
            }
        }
        if self.text.len() >= GATHERED {
            self.flush();
        }
    }

    fn wants_more(&mut self) -> bool {
        self.flush();
        self.lines.want_more()
    }
}

impl Writer<'_, '_> {
    /// Writes the gathered lines.
    fn flush(&mut self) {
        self.lines.write(&self.text);
        self.text.clear();
    }

    /// Writes the line of a call that began and did not end at once.
    fn flush_open(&mut self) {
        if let Some(OpenCall { depth, function, entry, time }) = self.open.take() {
            self.line(Columns { time, ..Columns::default() }, depth, [arrow(entry), " {"], function);
        }
    }

    fn end(&mut self, call: &Call) {
        let took = call.begin.zip(call.end).map(|(begin, end)| end.0.saturating_sub(begin.0));
        let at_once = self.open.take_if(|open| (open.depth, open.function) == (call.depth, call.function));
        let (time, around) = match at_once {
            Some(open) if call.is_open => (open.time, [arrow(call.entry), OPEN]),
            Some(open) => (open.time, [arrow(call.entry), ";"]),
            None => {
                self.flush_open();
                (call.end, ["} ", if call.is_open { OPEN } else { "" }])
            }
        };
        let columns = Columns { time, took, instructions: Some(call.instructions) };
        self.line(columns, call.depth, around, call.function);
    }

    /// Appends a line of text: the columns, then the function's name between `before` and `behind`.
    fn line(
        &mut self,
        Columns { time, took, instructions }: Columns,
        depth: usize,
        [before, behind]: [&str; 2],
        function: FunctionId,
    ) {
        const SECOND: u64 = 1_000_000_000;
        let Writer { text, names, trace, .. } = self;
        let mut digits = itoa::Buffer::new();
        match time {
            Some(Nanos(time)) => {
                right(text, digits.format(time / SECOND), SECONDS_WIDTH);
                text.push(b'.');
                text.extend_from_slice(&nine((time % SECOND) as u32));
            }
            None => right(text, "", TIME_WIDTH),
        }
        text.push(b' ');
        match took {
            Some(nanos) => duration(text, nanos),
            None => right(text, "", DURATION_WIDTH),
        }
        text.push(b' ');
        let instructions = instructions.map_or("", |instructions| digits.format(instructions));
        right(text, instructions, INSTRUCTIONS_WIDTH);
        right(text, "", 2 + indent(depth));
        let name = &name(names, trace, function).text;
        [before, name, behind, "\n"].iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
    }

    /// Appends a JSON object with its members sorted by name.
    fn object(&mut self, call: &Call) {
        let Writer { text, names, trace, tid, .. } = self;
        let [function, module] = &name(names, trace, call.function).json;
        text.extend_from_slice(b"{\"depth\":");
        decimal(call.depth as u64, text);
        text.extend_from_slice(b",\"end_ns\":");
        nanoseconds(text, call.end);
        text.extend_from_slice(b",\"entered_by\":\"");
        text.extend_from_slice(call.entry.name().as_bytes());
        text.extend_from_slice(b"\",\"function\":");
        text.extend_from_slice(function);
        text.extend_from_slice(b",\"instructions\":");
        decimal(call.instructions, text);
        if call.is_open {
            text.extend_from_slice(b",\"is_open\":true");
        }
        text.extend_from_slice(b",\"module\":");
        text.extend_from_slice(module);
        text.extend_from_slice(b",\"tid\":");
        decimal(u64::from(*tid), text);
        text.extend_from_slice(b",\"time_ns\":");
        nanoseconds(text, call.begin);
        text.extend_from_slice(b"}\n");
    }
}

/// Returns the name of a function, which is looked up once.
fn name<'n>(names: &'n mut FxHashMap<FunctionId, Name>, trace: &Trace<'_>, function: FunctionId) -> &'n Name {
    names.entry(function).or_insert_with(|| {
        let (text, module) = trace.modules.names(function);
        let json = [&text, &module].map(|name| serde_json::json!(name).to_string().into_bytes().into());
        Name { text, json }
    })
}

fn nanoseconds(text: &mut Vec<u8>, time: Option<Nanos>) {
    match time {
        Some(time) => decimal(time.0, text),
        None => text.extend_from_slice(b"null"),
    }
}

/// Returns the mark for how a function was entered if not by a call.
fn arrow(entry: FrameEntry) -> &'static str {
    match entry {
        FrameEntry::Root | FrameEntry::Call => "",
        FrameEntry::Tail => "-> ",
        FrameEntry::Interrupt | FrameEntry::InterruptedCall | FrameEntry::InterruptedReturn => "=> ",
    }
}

/// Returns the number of blanks before a call's name; deep recursion is not indented further.
fn indent(depth: usize) -> usize {
    const DEEPEST: usize = 100;
    2 * depth.min(DEEPEST)
}

/// Appends text, right-aligned in `width` columns.
#[inline]
fn right(out: &mut Vec<u8>, text: &str, width: usize) {
    out.resize(out.len() + width.saturating_sub(text.len()), b' ');
    out.extend_from_slice(text.as_bytes());
}

/// Appends a duration with a suitable unit, in [`DURATION_WIDTH`] columns.
fn duration(out: &mut Vec<u8>, nanos: u64) {
    let mut digits = itoa::Buffer::new();
    let (thousandths, unit) = match nanos {
        0..1_000 => {
            right(out, digits.format(nanos), DURATION_WIDTH - " ns".len());
            return out.extend_from_slice(b" ns");
        }
        1_000..1_000_000 => (nanos, " us"),
        1_000_000..1_000_000_000 => ((nanos + 500) / 1_000, " ms"),
        _ => (nanos.saturating_add(500_000) / 1_000_000, " s"),
    };
    right(out, digits.format(thousandths / 1_000), DURATION_WIDTH - ".000".len() - unit.len());
    out.push(b'.');
    out.extend_from_slice(&nine((thousandths % 1_000) as u32)[6..]);
    out.extend_from_slice(unit.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_to_thousandths_of_their_unit() {
        let shown = |nanos| {
            let mut out = Vec::new();
            duration(&mut out, nanos);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(7), "        7 ns");
        assert_eq!(shown(999_999), "  999.999 us");
        assert_eq!(shown(1_000_499), "    1.000 ms");
        assert_eq!(shown(1_000_500), "    1.001 ms");
        assert_eq!(shown(61_000_499_999), "    61.000 s");
        assert_eq!(shown(u64::MAX), "18446744073.709 s");
    }
}

//! Writes each executed instruction on a line.

use std::{collections::HashMap, fmt::Write as _, io::Write, mem, str::FromStr};

use hodo_clock::Tsc;
use hodo_code::{Graph, Labels, Origin, Printer};
use hodo_engine::{Chunk, Reading, SelectionFilter, StreamSink, Trace};
use hodo_flow::{Event, Executed, Gap, PacketKind, Sink, Step};
use hodo_model::{
    Names, Sources,
    digits::{append_first, decimal, hexadecimal},
};
use hodo_symbols::{Frame, Lines as SourceLines};

use super::{TextSink, early_lines::EarlyLines, span::Span, write_chunks};
use crate::{Format, Outcome};

/// A column of an instruction's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The time of the last clock packet before the packet that reports the instruction, in seconds. The instruction
    /// ran at the latest at the next clock packet; it may have run earlier, because branches wait in the processor for
    /// their packet.
    Time,
    /// Lower and upper bound of its time, `from..to` in seconds: branches wait in the processor for their packet.
    Span,
    /// The CPU of its stream.
    Cpu,
    /// The process.
    Pid,
    /// The thread.
    Tid,
    /// The address.
    Ip,
    /// The function and the offset in it, after the functions inlined there, innermost first.
    Sym,
    /// The instruction itself, in AT&T syntax.
    Insn,
    /// Source file and line.
    Srcline,
}

impl Field {
    /// Returns the begin of its member in an object.
    fn member(self) -> &'static str {
        match self {
            Field::Time => "\"ts\":",
            Field::Span => "\"span\":",
            Field::Cpu => "\"cpu\":",
            Field::Pid => "\"pid\":",
            Field::Tid => "\"tid\":",
            Field::Ip => "\"ip\":",
            Field::Sym => "\"sym\":",
            Field::Insn => "\"insn\":",
            Field::Srcline => "\"srcline\":",
        }
    }
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Field, String> {
        Ok(match text {
            "time" => Field::Time,
            "span" => Field::Span,
            "cpu" => Field::Cpu,
            "pid" => Field::Pid,
            "tid" => Field::Tid,
            "ip" => Field::Ip,
            "sym" => Field::Sym,
            "insn" => Field::Insn,
            "srcline" => Field::Srcline,
            _ => {
                return Err(
                    "one of time, span, cpu, pid, tid, ip, sym, insn, srcline was expected".to_owned()
                );
            }
        })
    }
}

/// Writes the fields of every executed instruction to `out`, at most `limit` lines, with a line where the flow is
/// interrupted: why, and at which byte of the file.
pub fn instructions(
    trace: &Trace<'_>,
    (fields, format): (&[Field], Format),
    reading: Reading<'_>,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Outcome {
    let start = |chunk: &Chunk| InstructionSink {
        format,
        ..InstructionSink::new(SelectionFilter::new(trace, chunk, reading), chunk, fields)
    };
    write_chunks(trace, reading, limit, out, start, progress)
}

struct InstructionSink<'x, 'f> {
    filter: SelectionFilter<'x, 'f>,
    fields: &'x [Field],
    format: Format,
    text: Vec<u8>,
    cpu: Option<u32>,
    /// The time of the last clock packet, as text.
    time: String,
    span: Span,
    early: EarlyLines,
    printer: Printer,
    disassembly: String,
    /// DWARF lines by module; `None` if there are none.
    dwarf_lines: HashMap<u32, Option<SourceLines<'x>>>,
    /// Cached text of these two fields by origin.
    symbols: HashMap<Origin, Box<[u8]>>,
    source_lines: HashMap<Origin, Box<[u8]>>,
    paths: Paths,
}

/// Memoized lines of repeated paths.
#[derive(Default)]
struct Paths {
    text: Vec<u8>,
    /// Ends of the paths in `text`; each begins at the end of the previous one.
    ends: Vec<usize>,
}

impl<'x, 'f> InstructionSink<'x, 'f> {
    fn new(filter: SelectionFilter<'x, 'f>, chunk: &Chunk, fields: &'x [Field]) -> Self {
        InstructionSink {
            cpu: filter.trace.streams[chunk.stream].cpu,
            filter,
            fields,
            format: Format::Text,
            text: Vec::new(),
            time: "-".to_owned(),
            span: Span::default(),
            early: EarlyLines::default(),
            printer: Printer::default(),
            disassembly: String::new(),
            dwarf_lines: HashMap::new(),
            symbols: HashMap::new(),
            source_lines: HashMap::new(),
            paths: Paths::default(),
        }
    }

    fn line(&mut self, address: u64, executed: &Executed<'_>) {
        if self.format == Format::JsonLines {
            return self.object(address, executed);
        }
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                self.text.push(b' ');
            }
            self.field(*field, address, executed);
        }
        self.text.push(b'\n');
    }

    fn object(&mut self, address: u64, executed: &Executed<'_>) {
        self.text.push(b'{');
        for (index, &field) in self.fields.iter().enumerate() {
            if index > 0 {
                self.text.push(b',');
            }
            self.text.extend_from_slice(field.member().as_bytes());
            let begin = self.text.len();
            match field {
                Field::Ip => decimal(address, &mut self.text),
                // The upper bound is inserted later, so the value stays where it is. It needs no escapes.
                Field::Span => {
                    self.text.push(b'"');
                    self.field(field, address, executed);
                    self.text.push(b'"');
                }
                _ => {
                    self.field(field, address, executed);
                    let value = self.text.split_off(begin);
                    match field {
                        Field::Sym | Field::Insn | Field::Srcline => {
                            let value = serde_json::Value::from(String::from_utf8_lossy(&value));
                            self.text.extend_from_slice(value.to_string().as_bytes());
                        }
                        _ if value == b"-" => self.text.extend_from_slice(b"null"),
                        _ => self.text.extend_from_slice(&value),
                    }
                }
            }
        }
        self.text.extend_from_slice(b"}\n");
    }

    fn field(&mut self, field: Field, address: u64, executed: &Executed<'_>) {
        let thread = self.filter.trace.threads.get(self.filter.context as usize);
        match field {
            Field::Ip => {
                let (digits, count) = hexadecimal(address, b'a');
                append_first(digits, count, &mut self.text);
            }
            Field::Tid => self.number(thread.map(|thread| u64::from(thread.tid))),
            Field::Pid => self.number(thread.map(|thread| u64::from(thread.pid))),
            Field::Cpu => self.number(self.cpu.map(u64::from)),
            Field::Time => self.text.extend_from_slice(self.time.as_bytes()),
            // Without a clock, the span would stay open forever.
            Field::Span if self.filter.trace.recording.config.clock.is_none() => {
                self.text.extend_from_slice(b"-..-");
            }
            Field::Span => self.span.begin(&mut self.text),
            Field::Sym => self.symbol(origin(address, executed)),
            Field::Insn => {
                self.disassembly.clear();
                match executed.code.instruction(address) {
                    Ok(read) => self.printer.print(&read.instruction, &mut self.disassembly),
                    Err(_) => self.disassembly.push('?'),
                }
                self.text.extend_from_slice(self.disassembly.as_bytes());
            }
            Field::Srcline => self.source_line(origin(address, executed)),
        }
    }

    /// Returns whether lines contain nothing but an address.
    fn has_only_addresses(&self) -> bool {
        self.fields == [Field::Ip] && self.format == Format::Text
    }

    fn number(&mut self, number: Option<u64>) {
        match number {
            Some(number) => decimal(number, &mut self.text),
            None => self.text.push(b'-'),
        }
    }

    /// Returns the inlined frames at an instruction, innermost first, and the function that contains them.
    fn frames(&mut self, origin: Origin) -> Vec<Frame> {
        let modules = &self.filter.trace.modules;
        let lines = self.dwarf_lines.entry(origin.module).or_insert_with(|| modules.lines(origin.module));
        lines.as_ref().map(|lines| lines.frames_at(modules.address(origin))).unwrap_or_default()
    }

    fn source_line(&mut self, origin: Origin) {
        if !self.source_lines.contains_key(&origin) {
            let modules = &self.filter.trace.modules;
            let line = modules.line(origin.module, modules.address(origin));
            let line = line.map_or("??:0".to_owned(), |line| format!("{}:{}", line.file, line.line));
            self.source_lines.insert(origin, line.into_bytes().into());
        }
        self.text.extend_from_slice(&self.source_lines[&origin]);
    }

    /// Appends function and offset, after the functions inlined there.
    fn symbol(&mut self, origin: Origin) {
        if !self.symbols.contains_key(&origin) {
            let frames = self.frames(origin);
            let inlined = frames.iter().filter(|frame| frame.inlined);
            let mut symbol: String =
                inlined.map(|frame| format!("{} < ", frame.function.as_deref().unwrap_or("??"))).collect();
            let modules = &self.filter.trace.modules;
            let (function, offset) = modules.function(origin);
            symbol += &format!("{}+{offset:#x}", modules.names(function).0);
            self.symbols.insert(origin, symbol.into_bytes().into());
        }
        self.text.extend_from_slice(&self.symbols[&origin]);
    }

    fn set_time(&mut self, now: Tsc) {
        self.filter.time(now);
        if self.early.is_waiting() && self.early.decide(self.filter.open, &mut self.text) {
            self.span.forget();
        }
        let Some(clock) = self.filter.trace.recording.config.clock else { return };
        if self.fields.contains(&Field::Time) {
            self.time.clear();
            let now = clock.nanos(now);
            let _ = match self.format {
                Format::Text => write!(self.time, "{now}"),
                Format::JsonLines => write!(self.time, "{}", now.0),
            };
        }
        if self.fields.contains(&Field::Span) {
            self.span.time(clock.nanos(now), &mut self.text);
        }
    }

    /// Returns whether to write lines before the first timestamp, which may have to be truncated.
    #[cold]
    fn takes_early(&mut self, instructions: u64) -> bool {
        let replacement = match self.format {
            Format::Text => "# gap too many instructions ran before the first time\n",
            Format::JsonLines => {
                "{\"name\":\"gap\",\"fields\":{\"reason\":\"too many instructions ran before the first time\"}}\n"
            }
        };
        let length = self.text.len();
        let takes = self.early.takes(instructions, &mut self.text, replacement);
        if self.text.len() < length {
            self.span.forget();
        }
        takes
    }

    fn gap(&mut self, gap: Gap) {
        let trace = self.filter.trace;
        let line = match self.format {
            Format::Text => format!("# gap {}\n", trace.describe_gap(&gap)),
            Format::JsonLines => {
                let reason = trace.describe(&gap.trouble);
                let mut gap = serde_json::to_value(Event::Gap(gap)).unwrap_or_default();
                gap["fields"]["reason"] = reason.into();
                format!("{gap}\n")
            }
        };
        self.text.extend_from_slice(line.as_bytes());
    }
}

fn origin(address: u64, executed: &Executed<'_>) -> Origin {
    let content = executed.code.space.at(address, executed.code.tick);
    content.map_or(Origin { module: 0, offset: address }, |(content, _)| content.origin)
}

/// Appends the addresses of consecutive instructions, given by their lengths, one per line.
#[inline]
fn address_lines(text: &mut Vec<u8>, mut address: u64, lengths: &[u8]) {
    // All digits but the last two are mostly the same as for the previous instruction, so they are kept.
    let (mut page, mut high, mut count) = (0, [0; 16], 0);
    for &length in lengths {
        if address >> 8 != page {
            page = address >> 8;
            (high, count) = hexadecimal(page, b'a');
        }
        let end = &ENDS[usize::from(address as u8)];
        if page == 0 {
            text.extend_from_slice(&end[usize::from(address < 16)..]);
        } else {
            append_first(high, count, text);
            text.extend_from_slice(end);
        }
        address = address.wrapping_add(u64::from(length));
    }
}

/// The last two digits of a line and its line feed, for each byte.
static ENDS: [[u8; 3]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut all = [[0, 0, b'\n']; 256];
    let mut byte = 0;
    while byte < all.len() {
        (all[byte][0], all[byte][1]) = (DIGITS[byte >> 4], DIGITS[byte & 15]);
        byte += 1;
    }
    all
};

/// Appends the addresses of the blocks' instructions, one per line.
fn block_lines<L: Labels>(text: &mut Vec<u8>, blocks: &[Step], graph: &Graph<'_, L>) {
    for step in blocks {
        address_lines(text, step.start, graph.lengths(graph.block(step.block)));
    }
}

impl TextSink for InstructionSink<'_, '_> {
    type Memory = Paths;

    fn exchange(&mut self, memory: &mut Paths) {
        mem::swap(&mut self.paths, memory);
    }

    fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    fn is_complete(&self) -> bool {
        self.span.is_complete() && !self.early.is_waiting()
    }
}

impl StreamSink for InstructionSink<'_, '_> {
    fn begin_segment(&mut self) {
        self.filter.begin_segment();
        self.time.replace_range(.., "-");
        self.span = Span::default();
        self.early.begin(self.filter.is_part(), &self.text);
    }

    fn end_segment(&mut self) {
        let is_wanted = false;
        if self.early.decide(is_wanted, &mut self.text) {
            self.span.forget();
        }
        self.span.end(&mut self.text);
    }

    fn untimed(&self) -> u64 {
        self.early.left_out()
    }
}

impl Sink for InstructionSink<'_, '_> {
    const TAKES_BLOCKS: bool = true;

    /// Lines that contain only addresses are the same each time.
    #[inline]
    fn takes_paths(&self) -> bool {
        self.has_only_addresses()
            && self.filter.open
            && self.filter.wanted
            && !self.filter.numbers_instructions()
    }

    fn state(&mut self) -> Option<u32> {
        Some(0)
    }

    fn learn<L: Labels>(&mut self, state: u32, steps: &[Step], graph: &Graph<'_, L>) -> Option<(u32, u32)> {
        block_lines(&mut self.paths.text, steps, graph);
        self.paths.ends.push(self.paths.text.len());
        Some((self.paths.ends.len() as u32 - 1, state))
    }

    #[inline]
    fn path(&mut self, path: u32) {
        let path = path as usize;
        let start = path.checked_sub(1).map_or(0, |before| self.paths.ends[before]);
        self.text.extend_from_slice(&self.paths.text[start..self.paths.ends[path]]);
    }

    fn forget(&mut self) {
        self.paths = Paths::default();
    }

    fn executed(&mut self, executed: Executed<'_>) {
        let count = executed.lengths.len() as u64;
        let inside = self.filter.ran(count);
        if !(inside && self.filter.wanted && (self.filter.open || self.takes_early(count))) {
            return;
        }
        if self.has_only_addresses() {
            address_lines(&mut self.text, executed.block.start, executed.lengths);
        } else {
            executed.addresses().for_each(|address| self.line(address, &executed));
        }
    }

    #[inline]
    fn packet(&mut self, kind: PacketKind) {
        self.span.packet(kind);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(now) => self.set_time(now),
            Event::Switch(context) => self.filter.switch(context),
            Event::Gap(gap) => {
                self.span.gap();
                if self.filter.open || self.takes_early(0) {
                    self.gap(gap);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn address_lines_are_those_of_the_standard_library(start: u64, shift in 0u32..64, lengths: [u8; 20]) {
            let mut text = b"before\n".to_vec();
            address_lines(&mut text, start >> shift, &lengths);
            let mut expected = "before\n".to_owned();
            let mut address = start >> shift;
            for length in lengths {
                writeln!(expected, "{address:x}").unwrap();
                address = address.wrapping_add(u64::from(length));
            }
            prop_assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }
}

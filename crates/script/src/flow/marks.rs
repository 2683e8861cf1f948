//! Writes events beside the flow, one per line: PTWRITE values, power states, interrupts and the like.

use std::io::Write;

use hodo_code::Origin;
use hodo_engine::{Chunk, Reading, SelectionFilter, StreamSink, Trace};
use hodo_flow::{Event, Executed, Sink};
use hodo_model::Names;
use serde_json::{Value, json};

use super::{TextSink, early_lines::EarlyLines, write_chunks};
use crate::{Format, Outcome};

/// The kind of events to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// The operands of PTWRITE.
    PtWrite,
    /// MWAIT, power entry and exit, stops of execution, changes of the core-to-bus ratio.
    Power,
    /// All others: interrupts, transactions, modes, address spaces, PEBS values, triggers, thread switches, starts and
    /// ends of tracing, gaps.
    Rest,
}

impl Marks {
    fn want(self, event: &Event) -> bool {
        let kind = match event {
            Event::Time(_) | Event::Cycles(_) => return false,
            Event::PtWrite { .. } => Marks::PtWrite,
            Event::Mwait { .. }
            | Event::ExStop { .. }
            | Event::PowerEntry { .. }
            | Event::PowerExit { .. }
            | Event::CoreBusRatio(_) => Marks::Power,
            _ => Marks::Rest,
        };
        self == kind
    }
}

/// Writes the events beside the flow to `out`, at most `limit` lines: stream by stream, and in order of execution in
/// each.
pub fn marks(
    trace: &Trace<'_>,
    marks: Marks,
    format: Format,
    reading: Reading<'_>,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Outcome {
    let start = |chunk: &Chunk| MarkSink {
        filter: SelectionFilter::new(trace, chunk, reading),
        stream: chunk.stream,
        marks,
        format,
        inside: reading.spans.is_none(),
        last: None,
        text: Vec::new(),
        early: EarlyLines::default(),
    };
    write_chunks(trace, reading, limit, out, start, progress)
}

struct MarkSink<'x, 'f> {
    filter: SelectionFilter<'x, 'f>,
    stream: usize,
    marks: Marks,
    format: Format,
    /// Whether the last instructions were in a selected span.
    inside: bool,
    last: Option<LastBlock>,
    text: Vec<u8>,
    early: EarlyLines,
}

/// The last executed block: its addresses, and the origin of its code.
struct LastBlock {
    start: u64,
    end: u64,
    origin: Origin,
}

impl MarkSink<'_, '_> {
    fn write(&mut self, event: &Event) {
        let trace = self.filter.trace;
        let stream = &trace.streams[self.stream];
        let time = self.filter.now.zip(trace.recording.config.clock).map(|(now, clock)| clock.nanos(now));
        let thread = trace.threads.get(self.filter.context as usize);
        if self.format == Format::JsonLines {
            let mut object = json!({ "ts": time.map(|time| time.0), "stream": stream.name });
            if let Some(thread) = thread {
                (object["pid"], object["tid"]) = (thread.pid.into(), thread.tid.into());
            }
            let what = serde_json::to_value(event).unwrap_or_default();
            object["name"] = what["name"].clone();
            object["fields"] = match &what["fields"] {
                Value::Null => json!({}),
                fields @ Value::Object(_) => fields.clone(),
                value => json!({ "value": value }),
            };
            match event {
                // The thread is already in the line; the decoder's context number has no meaning outside.
                Event::Switch(_) => object["fields"] = json!({}),
                Event::Gap(gap) => object["fields"]["reason"] = trace.describe(&gap.trouble).into(),
                _ => {}
            }
            if let Some(symbol) = self.symbol(event.ip()) {
                object["symbol"] = symbol.into();
            }
            self.text.extend_from_slice(format!("{object}\n").as_bytes());
            return;
        }
        let time = time.map_or("-".to_owned(), |time| time.to_string());
        let cpu = stream.cpu.map_or("-".to_owned(), |cpu| cpu.to_string());
        let thread = thread.map_or("-".to_owned(), |thread| format!("{}/{}", thread.pid, thread.tid));
        let what = match event {
            Event::Gap(gap) => format!("gap: {}", trace.describe_gap(gap)),
            Event::Switch(_) => "runs from here on".to_owned(),
            event => {
                let symbol = self.symbol(event.ip()).map(|symbol| format!(" ({symbol})"));
                format!("{event}{}", symbol.unwrap_or_default())
            }
        };
        self.text.extend_from_slice(format!("{time} {cpu} {thread} {what}\n").as_bytes());
    }

    /// Returns `function+0x12` if the address is in the last executed block.
    fn symbol(&self, ip: Option<u64>) -> Option<String> {
        let &LastBlock { start, end, origin } = self.last.as_ref()?;
        let ip = ip.filter(|ip| (start..end).contains(ip))?;
        let modules = &self.filter.trace.modules;
        let (function, offset) =
            modules.function(Origin { offset: origin.offset.wrapping_add(ip - start), ..origin });
        Some(format!("{}+{offset:#x}", modules.names(function).0))
    }
}

impl TextSink for MarkSink<'_, '_> {
    type Memory = ();

    fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    fn is_complete(&self) -> bool {
        !self.early.is_waiting()
    }
}

impl StreamSink for MarkSink<'_, '_> {
    fn begin_segment(&mut self) {
        self.filter.begin_segment();
        self.last = None;
        self.early.begin(self.filter.is_part(), &self.text);
    }

    fn end_segment(&mut self) {
        let is_wanted = false;
        self.early.decide(is_wanted, &mut self.text);
    }

    fn untimed(&self) -> u64 {
        self.early.left_out()
    }
}

impl Sink for MarkSink<'_, '_> {
    #[inline]
    fn executed(&mut self, executed: Executed<'_>) {
        self.inside = self.filter.ran(executed.lengths.len() as u64);
        let block = executed.block;
        let origin = executed.provenance().origin;
        self.last = Some(LastBlock { start: block.start, end: block.end, origin });
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(now) => {
                self.filter.time(now);
                self.early.decide(self.filter.open, &mut self.text);
            }
            Event::Switch(context) => self.filter.switch(context),
            _ => {}
        }
        let wanted = self.marks.want(&event) && self.inside && self.filter.wanted;
        let no_replacement = "";
        if wanted && (self.filter.open || self.early.takes(1, &mut self.text, no_replacement)) {
            self.write(&event);
        }
    }
}

//! Each executed instruction, a line each.

use std::{collections::HashMap, io::Write, str::FromStr};

use hodo_clock::Tsc;
use hodo_code::Origin;
use hodo_intel_pt::flow::{Event, Executed, Sink};
use hodo_symbols::{Frame, Lines as SourceLines};
use hodo_trace::Names;
use iced_x86::{Formatter, GasFormatter};

use super::{Lines, Outcome};
use crate::{
    Chunk, Experiment, Reading,
    segments::{TrackSink, decode_all},
};

/// What a line tells of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The time of the last clock packet before it, in seconds.
    Time,
    /// The CPU of its stream.
    Cpu,
    /// The process.
    Pid,
    /// The thread.
    Tid,
    /// The address.
    Ip,
    /// The function and how far behind its start, after the functions inlined there, innermost first.
    Sym,
    /// The instruction itself, in AT&T syntax.
    Insn,
    /// File and line.
    Srcline,
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Field, String> {
        Ok(match text {
            "time" => Field::Time,
            "cpu" => Field::Cpu,
            "pid" => Field::Pid,
            "tid" => Field::Tid,
            "ip" => Field::Ip,
            "sym" => Field::Sym,
            "insn" => Field::Insn,
            "srcline" => Field::Srcline,
            _ => return Err("one of time, cpu, pid, tid, ip, sym, insn, srcline was expected".to_owned()),
        })
    }
}

/// Writes the fields of every executed instruction to `out`, at most `limit` lines; a line `# gap …` where
/// the flow is interrupted.
pub fn instructions(
    experiment: &Experiment<'_>,
    fields: &[Field],
    reading: Reading,
    limit: Option<u64>,
    out: &mut dyn Write,
    progress: impl FnMut(u64) -> bool,
) -> Outcome {
    let mut lines = Lines::new(out, limit);
    let losses = decode_all(
        experiment,
        reading,
        |chunk| TextSink::new(experiment, chunk, fields, reading),
        |sink| sink.text,
        |_, text| {
            lines.write(&text);
            lines.want_more()
        },
        progress,
    );
    Outcome { losses, written: lines.result }
}

struct TextSink<'x, 'f> {
    experiment: &'x Experiment<'f>,
    fields: &'x [Field],
    reading: Reading,
    text: Vec<u8>,
    first: u32,
    context: u32,
    cpu: Option<u32>,
    /// The time of the last clock packet, as text.
    time: String,
    open: bool,
    formatter: GasFormatter,
    disassembly: String,
    lines: HashMap<u32, Option<SourceLines<'x>>>,
    frames: HashMap<Origin, Vec<Frame>>,
}

impl<'x, 'f> TextSink<'x, 'f> {
    fn new(experiment: &'x Experiment<'f>, chunk: &Chunk, fields: &'x [Field], reading: Reading) -> Self {
        let track = &experiment.tracks[chunk.track];
        let first = track.schedule[0].context;
        TextSink {
            experiment,
            fields,
            reading,
            text: Vec::new(),
            first,
            context: first,
            cpu: track.cpu,
            time: "-".to_owned(),
            open: reading.window.is_none(),
            formatter: formatter(),
            disassembly: String::new(),
            lines: HashMap::new(),
            frames: HashMap::new(),
        }
    }

    fn line(&mut self, address: u64, executed: &Executed<'_>) {
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                self.text.push(b' ');
            }
            self.field(*field, address, executed);
        }
        self.text.push(b'\n');
    }

    fn field(&mut self, field: Field, address: u64, executed: &Executed<'_>) {
        let thread = self.experiment.threads.get(self.context as usize);
        match field {
            Field::Ip => hexadecimal(&mut self.text, address),
            Field::Tid => self.number(thread.map(|thread| u64::from(thread.tid))),
            Field::Pid => self.number(thread.map(|thread| u64::from(thread.pid))),
            Field::Cpu => self.number(self.cpu.map(u64::from)),
            Field::Time => self.text.extend_from_slice(self.time.as_bytes()),
            Field::Sym => self.symbol(origin(address, executed)),
            Field::Insn => {
                self.disassembly.clear();
                match executed.code.instruction(address) {
                    Ok((instruction, ..)) => self.formatter.format(&instruction, &mut self.disassembly),
                    Err(_) => self.disassembly.push('?'),
                }
                self.text.extend_from_slice(self.disassembly.as_bytes());
            }
            Field::Srcline => self.source_line(origin(address, executed)),
        }
    }

    fn number(&mut self, number: Option<u64>) {
        match number {
            Some(number) => decimal(&mut self.text, number),
            None => self.text.push(b'-'),
        }
    }

    /// Keeps the time as text: many instructions have the same one.
    fn set_time(&mut self, now: Tsc) {
        if self.fields.contains(&Field::Time)
            && let Some(clock) = self.experiment.recording.config.clock
        {
            self.time = clock.nanos(now).to_string();
        }
    }

    /// The inlined frames at an instruction, innermost first, and the function that holds them all.
    fn frames(&mut self, origin: Origin) -> &[Frame] {
        let modules = &self.experiment.modules;
        let lines = self.lines.entry(origin.module).or_insert_with(|| modules.lines(origin.module));
        let find =
            || lines.as_ref().map(|lines| lines.frames_at(modules.address(origin))).unwrap_or_default();
        self.frames.entry(origin).or_insert_with(find)
    }

    fn source_line(&mut self, origin: Origin) {
        let line = self.frames(origin).first().and_then(|frame| {
            let file = frame.file.as_deref()?;
            Some(format!("{file}:{}", frame.line.unwrap_or(0)))
        });
        self.text.extend_from_slice(line.as_deref().unwrap_or("??:0").as_bytes());
    }

    /// Function and offset, behind the functions that were inlined there.
    fn symbol(&mut self, origin: Origin) {
        let (function, behind) = self.experiment.modules.function(origin);
        let (name, _) = self.experiment.modules.names(function);
        let inlined: String = self
            .frames(origin)
            .iter()
            .filter(|frame| frame.inlined)
            .map(|frame| format!("{} < ", frame.function.as_deref().unwrap_or("??")))
            .collect();
        self.text.extend_from_slice(format!("{inlined}{name}+{behind:#x}").as_bytes());
    }
}

/// Addresses as in the other fields: lower-case, without padding.
fn formatter() -> GasFormatter {
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter
}

fn origin(address: u64, executed: &Executed<'_>) -> Origin {
    let found = executed.code.space.at(address, executed.code.at);
    found.map_or(Origin { module: 0, offset: address }, |(content, _)| content.origin)
}

/// Appends a number. There are billions of them.
#[inline]
fn decimal(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len() - 1;
    loop {
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break text.extend_from_slice(&digits[first..]);
        }
        first -= 1;
    }
}

/// Appends an address in lower-case hexadecimal, without padding.
#[inline]
fn hexadecimal(text: &mut Vec<u8>, address: u64) {
    let digits = (16 - (address | 1).leading_zeros() as usize / 4).max(1);
    for digit in (0..digits).rev() {
        text.push(b"0123456789abcdef"[(address >> (4 * digit)) as usize & 15]);
    }
}

impl TrackSink for TextSink<'_, '_> {
    fn begin_segment(&mut self) {
        self.context = self.first;
    }
}

impl Sink for TextSink<'_, '_> {
    fn executed(&mut self, executed: Executed<'_>) {
        if !self.open || !self.experiment.wants(self.context) {
            return;
        }
        if self.fields == [Field::Ip] {
            for address in executed.addresses() {
                hexadecimal(&mut self.text, address);
                self.text.push(b'\n');
            }
        } else {
            executed.addresses().for_each(|address| self.line(address, &executed));
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(now) => {
                self.set_time(now);
                self.open = self.reading.wants(now);
            }
            Event::Switch(context) => self.context = context,
            Event::Gap(gap) if self.open => {
                let reason = self.experiment.describe(&gap.trouble);
                self.text.extend_from_slice(format!("# gap {reason}\n").as_bytes());
            }
            _ => {}
        }
    }
}

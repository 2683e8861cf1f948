//! What a case's packets decode to, as lines of text.

use std::fmt::Write;

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Label, Labels, Origin, Program};
use hodo_intel_pt::{
    Config,
    flow::{Decoder, Event, Executed, Gap, Sink, Switch},
    packet::{PSB, find_psb},
};

use crate::{Assembly, Trace};

/// Decodes a trace: instructions are indented, events are not.
pub fn decode(config: &Config, assembly: &Assembly, trace: &Trace<'_>) -> String {
    let mut space = AddressSpace::new();
    for section in &assembly.sections {
        let content =
            Content { bytes: &section.bytes, origin: Origin { module: 0, offset: section.address } };
        space.map(section.range(), content, section.from);
    }
    let mut programs = [Program::new(&space, &NoLabels)];
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut sink = Lines { assembly, trace, text: String::new() };
    let next = |from: usize| Some(from + find_psb(trace.bytes.get(from..)?)?);
    let first = next(0).unwrap_or(trace.bytes.len());
    if first > 0 {
        sink.line(format_args!("skipped 0..{first}: no PSB yet"));
    }
    let mut start = Some(first);
    while let Some(begin) = start.filter(|&start| start < trace.bytes.len()) {
        start = next(begin + PSB.len());
        let span = begin..start.unwrap_or(trace.bytes.len());
        Decoder::new(&trace.bytes, span, config, &schedule).decode(&mut programs, &mut sink);
    }
    sink.text
}

struct NoLabels;

impl Labels for NoLabels {
    fn label(&self, _: Origin) -> (Label, u64) {
        (Label::default(), u64::MAX)
    }
}

/// Writes down what is decoded.
struct Lines<'x> {
    assembly: &'x Assembly,
    trace: &'x Trace<'x>,
    text: String,
}

impl Lines<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes all");
    }

    fn gap(&mut self, gap: &Gap) {
        let line = self.trace.lines.iter().rev().find(|&&(at, _)| at as u64 <= gap.from);
        let packet = line.map_or("", |&(_, packet)| packet);
        let doubtful = gap.doubtful_since.map_or(String::new(), |since| format!(", doubtful since {since}"));
        let trouble = self.named(&gap.trouble.to_string());
        self.line(format_args!("gap {}..{} ({packet}){doubtful}: {trouble}", gap.from, gap.to));
    }

    /// The text with labels for addresses of the code.
    fn named(&self, text: &str) -> String {
        let name = |word: &str| {
            let number = word.trim_end_matches([',', ':']);
            match u64::from_str_radix(number, 16) {
                Ok(address) if self.assembly.contains(address) => {
                    self.assembly.name(address) + &word[number.len()..]
                }
                _ => word.to_owned(),
            }
        };
        text.split(' ').map(name).collect::<Vec<_>>().join(" ")
    }
}

impl Sink for Lines<'_> {
    fn executed(&mut self, executed: Executed<'_>) {
        for address in executed.addresses() {
            let name = self.assembly.name(address);
            match executed.code.instruction(address) {
                Ok((instruction, ..)) => {
                    let mnemonic = format!("{:?}", instruction.mnemonic()).to_lowercase();
                    self.line(format_args!("    {name:16}  {mnemonic}"));
                }
                Err(_) => self.line(format_args!("    {name:16}  ?")),
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            // As packets have it.
            Event::Time(Tsc(tick)) => self.line(format_args!("time {tick:x}")),
            Event::Gap(gap) => self.gap(&gap),
            other => self.line(format_args!("{}", self.named(&other.to_string()))),
        }
    }
}

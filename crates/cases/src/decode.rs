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
        self.line(format_args!("gap {}..{} ({packet}): {}", gap.from, gap.to, gap.trouble));
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
        let name = |address: u64| self.assembly.name(address);
        match event {
            Event::Time(Tsc(tick)) => self.line(format_args!("time {tick:x}")),
            Event::Switch(context) => self.line(format_args!("switch {context}")),
            Event::Enabled(ip) => self.line(format_args!("enabled {}", name(ip))),
            Event::Disabled { to, asynchronous } => {
                let to = to.map_or(String::new(), |to| format!(" to {}", name(to)));
                let how = if asynchronous { " by an interrupt" } else { "" };
                self.line(format_args!("disabled{to}{how}"));
            }
            Event::Asynchronous { from, to } => {
                self.line(format_args!("asynchronous {} to {}", name(from), name(to)));
            }
            Event::Gap(gap) => self.gap(&gap),
        }
    }
}

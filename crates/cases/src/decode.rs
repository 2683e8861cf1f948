//! Decodes a case's packets to lines of text.

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_intel_pt::{
    Config,
    flow::{Decoder, Event, Executed, Gap, Guest, GuestCode, Sink, Switch},
    packet::{PSB, find_psb},
};

use crate::{Assembly, Owner, Section, Trace};

/// Decodes a trace to lines; lines of instructions are indented, lines of events are not.
pub fn decode(config: &Config, assembly: &Assembly, trace: &Trace<'_>) -> Vec<String> {
    let mut owners = vec![Owner::Traced];
    for section in &assembly.sections {
        if matches!(section.owner, Owner::Guest(_)) && !owners.contains(&section.owner) {
            owners.push(section.owner);
        }
    }
    let spaces: Vec<_> = owners.iter().map(|&owner| space(assembly, owner)).collect();
    let mut programs: Vec<_> = spaces.iter().map(|space| Program::new(space, &NoLabels)).collect();
    let guests = owners.iter().enumerate().filter_map(|(program, owner)| match *owner {
        Owner::Guest(vmcs) => Some(Guest { vmcs, host: None, code: GuestCode::Program(program) }),
        Owner::Traced | Owner::Host => None,
    });
    // Where all code is the traced program's, it also belongs to any guest.
    let has_no_owners = assembly.sections.iter().all(|section| section.owner == Owner::Traced);
    let any_guest = has_no_owners.then_some(Guest { vmcs: None, host: None, code: GuestCode::OfHost });
    let guests: Vec<_> = guests.chain(any_guest).collect();
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut sink = Lines { assembly, trace, lines: Vec::new() };
    let next = |from: usize| Some(from + find_psb(trace.bytes.get(from..)?)?);
    let first = next(0).unwrap_or(trace.bytes.len());
    if first > 0 {
        sink.line(format_args!("skipped 0..{first}: no PSB yet"));
    }
    let mut start = Some(first);
    while let Some(begin) = start.filter(|&start| start < trace.bytes.len()) {
        start = next(begin + PSB.len());
        let span = begin..start.unwrap_or(trace.bytes.len());
        let decoder = Decoder::new(&trace.bytes, span, config, &schedule).with_guests(&guests);
        decoder.decode(&mut programs, &mut sink);
    }
    sink.lines
}

/// The code of one owner; for the traced program, also the host's code.
fn space(assembly: &Assembly, owner: Owner) -> AddressSpace<'_> {
    let mut space = AddressSpace::new();
    let is_mine = |section: &&Section| {
        section.owner == owner || (owner == Owner::Traced && section.owner == Owner::Host)
    };
    for section in assembly.sections.iter().filter(is_mine) {
        let content =
            Content { bytes: &section.bytes, origin: Origin { module: 0, offset: section.address } };
        space.map(section.range(), content, section.from);
    }
    space
}

/// The most lines in an iteration of a folded loop, and the fewest iterations.
const LONGEST_ROUND: usize = 8;
const FEWEST_ROUNDS: usize = 4;

/// The lines as text. Iterations of a loop after the first are only counted.
pub fn fold(lines: &[String]) -> String {
    let mut text = String::new();
    let mut rest = lines;
    while !rest.is_empty() {
        let rounds =
            |length: usize| rest.chunks_exact(length).take_while(|round| *round == &rest[..length]).count();
        let of_loop = (1..=LONGEST_ROUND).find(|&length| rounds(length) >= FEWEST_ROUNDS);
        let length = of_loop.unwrap_or(1);
        let count = of_loop.map_or(1, rounds);
        rest[..length].iter().for_each(|line| text.extend([line, "\n"]));
        if count > 1 {
            text += &format!("    ... the last {length}, {} times more\n", count - 1);
        }
        rest = &rest[count * length..];
    }
    text
}

/// Collects the decoded lines.
struct Lines<'x> {
    assembly: &'x Assembly,
    trace: &'x Trace<'x>,
    lines: Vec<String>,
}

impl Lines<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.lines.push(line.to_string());
    }

    fn gap(&mut self, gap: &Gap) {
        let line = self.trace.lines.iter().rev().find(|line| line.offset as u64 <= gap.from);
        let packet = line.map_or("", |line| line.text);
        let doubtful = gap.doubtful_since.map_or(String::new(), |since| format!(", doubtful since {since}"));
        let trouble = self.with_labels(&gap.trouble.to_string());
        self.line(format_args!("gap {}..{} ({packet}){doubtful}: {trouble}", gap.from, gap.to));
    }

    /// Replaces addresses of the code by labels.
    fn with_labels(&self, text: &str) -> String {
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
                Ok(read) => {
                    let mnemonic = read.instruction.mnemonic();
                    self.line(format_args!("    {name:16}  {mnemonic}"));
                }
                Err(_) => self.line(format_args!("    {name:16}  ?")),
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            // In the format of packets.
            Event::Time(Tsc(tick)) => self.line(format_args!("time {tick:x}")),
            Event::Gap(gap) => self.gap(&gap),
            other => self.line(format_args!("{}", self.with_labels(&other.to_string()))),
        }
    }
}

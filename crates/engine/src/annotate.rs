//! One function, instruction by instruction, with how often each ran.

use std::collections::BTreeMap;

use hodo_analyses::{
    Time,
    blocks::{Block, Blocks, Flow, InstructionCount, Partial, Report, of_flow},
};
use hodo_clock::Tsc;
use hodo_model::{End, FunctionId, Names, Plain, Sources};
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter};
use serde::Serialize;

use crate::{FlowTrace, Losses, Reading, fold::fold};

/// Longest x86 instruction, in bytes.
const LONGEST_INSTRUCTION: usize = 15;
/// A function of more bytes is none; its end is not known.
const LONGEST_FUNCTION: u64 = 1 << 24;

/// A function with its counts.
#[derive(Debug, Serialize)]
pub struct Annotation {
    /// Its name.
    pub function: String,
    /// The name of its module.
    pub module: String,
    /// Instructions executed in it, without those of the functions that it called.
    pub instructions: u64,
    /// Nanoseconds spent in it, likewise.
    pub time_ns: u64,
    /// Core cycles spent in it, likewise, where the trace counts them.
    pub cycles: Option<u64>,
    /// Instructions per cycle, of those whose cycles are known.
    pub ipc: Option<f64>,
    /// The lines of source that its code was made from, in order of file and line.
    pub lines: Vec<Line>,
    /// Its instructions in order of address, also those that never ran.
    pub code: Vec<Instruction>,
}

/// A line of source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The file, as the debugging information has it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// Times that it ran.
    pub executions: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// Nanoseconds.
    pub time_ns: u64,
    /// Core cycles, where the trace counts them.
    pub cycles: Option<u64>,
    /// Instructions per cycle, of those whose cycles are known.
    pub ipc: Option<f64>,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instruction {
    /// Its address, as its module's symbols know it.
    pub address: u64,
    /// Times that it ran.
    pub executions: u64,
    /// Times that it was taken, of a conditional branch that ran.
    pub taken: Option<u64>,
    /// Times that it was not.
    pub not_taken: Option<u64>,
    /// Nanoseconds.
    pub time_ns: u64,
    /// Core cycles, where the trace counts them.
    pub cycles: Option<u64>,
    /// Itself, in AT&T syntax.
    pub instruction: String,
    /// The index in [`Annotation::lines`] of its line, where one is known.
    pub line: Option<usize>,
}

/// Counts what ran of a function. `progress` is told the bytes that were decoded, and returns whether to
/// go on.
pub fn annotate(
    experiment: &FlowTrace<'_>,
    function: FunctionId,
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> (Annotation, Losses) {
    let modules = &experiment.modules;
    let analysis = Plain(Blocks { report: Report::Lines });
    let (threads, losses) = fold(experiment, &analysis, reading, progress);
    let mut blocks: Vec<Block> = Partial::together(threads);
    blocks.retain(|block| block.function == function);
    let flow = Flow::of(&blocks, modules).into_iter().next();
    let counts: BTreeMap<u64, InstructionCount> = flow
        .iter()
        .flat_map(|flow| &flow.instructions)
        .map(|instruction| (instruction.address, *instruction))
        .collect();
    let counted = Cycles::of(counts.values());
    let lines: BTreeMap<(String, u32), Line> = flow
        .iter()
        .flat_map(|flow| of_flow(flow, modules))
        .filter(|line| line.line > 0)
        .map(|line| {
            let key = (line.file.clone(), line.line);
            let own = counted.of_part(line.cycles, line.counted);
            (
                key,
                Line {
                    file: line.file,
                    line: line.line,
                    executions: line.executions,
                    instructions: line.instructions,
                    time_ns: line.time.nanoseconds(),
                    cycles: own.cycles,
                    ipc: own.ipc(),
                },
            )
        })
        .collect();
    let (name, module) = modules.names(function);
    let time = counts.values().fold(Time::default(), |sum, count| sum.and(count.time));
    let mut annotation = Annotation {
        function: name,
        module,
        instructions: counts.values().map(|count| count.executions).sum(),
        time_ns: time.nanoseconds(),
        cycles: counted.cycles,
        ipc: counted.ipc(),
        lines: Vec::new(),
        code: Vec::new(),
    };
    list(experiment, function, &counts, counted, lines, &mut annotation);
    (annotation, losses)
}

/// Core cycles, where the trace counts them, and the instructions that ran in those.
#[derive(Clone, Copy)]
struct Cycles {
    cycles: Option<u64>,
    instructions: u64,
}

impl Cycles {
    fn of<'c>(counts: impl Iterator<Item = &'c InstructionCount>) -> Cycles {
        let (cycles, instructions) = counts.fold((0u64, 0u64), |(cycles, instructions), count| {
            (cycles.saturating_add(count.cycles), instructions.saturating_add(count.counted))
        });
        Cycles { cycles: (cycles > 0).then_some(cycles), instructions }
    }

    /// Those of a part: none where the whole has none.
    fn of_part(self, cycles: u64, instructions: u64) -> Cycles {
        Cycles { cycles: self.cycles.map(|_| cycles), instructions }
    }

    fn ipc(self) -> Option<f64> {
        self.cycles.filter(|&cycles| cycles > 0).map(|cycles| self.instructions as f64 / cycles as f64)
    }
}

/// Adds all instructions of the function, and the lines that they are of.
fn list(
    experiment: &FlowTrace<'_>,
    function: FunctionId,
    counts: &BTreeMap<u64, InstructionCount>,
    counted: Cycles,
    mut lines: BTreeMap<(String, u32), Line>,
    annotation: &mut Annotation,
) {
    let modules = &experiment.modules;
    let Some(first) = counts.values().next() else { return };
    let start = modules.start(function);
    let end = modules.end(function).min(start.saturating_add(LONGEST_FUNCTION));
    let offset = |address: u64| first.offset.wrapping_add(address.wrapping_sub(first.address));
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    let mut places = Vec::new();
    let mut address = start;
    while address < end {
        let bytes = bytes_at(experiment, function.module, offset(address));
        let mut decoder = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE);
        let decoded = decoder.decode();
        let mut text = String::new();
        match decoded.is_invalid() {
            true => text.push_str("(bad)"),
            false => formatter.format(&decoded, &mut text),
        }
        let count = counts.get(&address);
        let branch = count.filter(|count| count.end == End::Conditional);
        let place = modules.line(function.module, address).map(|line| (line.file.to_owned(), line.line));
        if let Some((file, line)) = &place {
            // What never ran has no counts.
            lines.entry((file.clone(), *line)).or_insert_with(|| Line {
                file: file.clone(),
                line: *line,
                executions: 0,
                instructions: 0,
                time_ns: 0,
                cycles: counted.of_part(0, 0).cycles,
                ipc: None,
            });
        }
        places.push(place);
        annotation.code.push(Instruction {
            address,
            executions: count.map_or(0, |count| count.executions),
            taken: branch.map(|count| count.taken),
            not_taken: branch.map(|count| count.not_taken),
            time_ns: count.map_or(0, |count| count.time.nanoseconds()),
            cycles: counted.of_part(count.map_or(0, |count| count.cycles), 0).cycles,
            instruction: text,
            line: None,
        });
        let length = if decoded.is_invalid() { 1 } else { decoded.len() as u64 };
        // Bytes between instructions that ran may be data.
        let next = counts.range(address + 1..).next().map_or(u64::MAX, |(&next, _)| next);
        address = (address + length).min(next);
    }
    let index: BTreeMap<&(String, u32), usize> = lines.keys().zip(0..).collect();
    for (instruction, place) in annotation.code.iter_mut().zip(&places) {
        instruction.line = place.as_ref().and_then(|place| index.get(place).copied());
    }
    annotation.lines = lines.into_values().collect();
}

/// The code of a module at an offset, from its file or from what was kept of it.
fn bytes_at(experiment: &FlowTrace<'_>, module: u32, offset: u64) -> Vec<u8> {
    let file = experiment.modules.list().get(module as usize).map_or(&[][..], |module| module.bytes);
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let found = match file.get(at..) {
        Some(bytes) if !bytes.is_empty() => bytes,
        _ => {
            let newest = Tsc(u64::MAX - 1).0;
            let kept = experiment.spaces.iter().filter_map(|space| space.at(offset, newest));
            kept.map(|(content, _)| content.bytes).find(|bytes| !bytes.is_empty()).unwrap_or_default()
        }
    };
    found[..found.len().min(LONGEST_INSTRUCTION)].to_vec()
}

//! Annotates one function: the execution count of each instruction.

use std::{borrow::Cow, collections::BTreeMap};

use hodo_analyses::{
    Time,
    blocks::{Blocks, BlocksReport, CountedBlock, ExecutedBlocks, Flow, InstructionCount, of_flow},
};
use hodo_code::{Origin, Printer};
use hodo_model::{End, FunctionId, Names, Sources};
use serde::Serialize;

use crate::{
    flow::{fold::fold, trace::Trace},
    losses::Losses,
    reading::Reading,
};

/// Longest x86 instruction, in bytes.
const LONGEST_INSTRUCTION: usize = 15;
/// Bound on a function's size, in bytes; the end of a larger one is unknown.
const LONGEST_FUNCTION: u64 = 1 << 24;

/// A function with its execution counts.
#[derive(Debug, Serialize)]
pub struct Annotation {
    /// Name of the function.
    pub function: String,
    /// Name of its module.
    pub module: String,
    /// Instructions executed in it, without its callees.
    pub instructions: u64,
    /// Nanoseconds spent in it, without its callees.
    pub time_ns: u64,
    /// Core cycles spent in it, without its callees; `None` if the trace doesn't count cycles.
    pub cycles: Option<u64>,
    /// Instructions per cycle, over the instructions with known cycles.
    pub ipc: Option<f64>,
    /// Source lines of its code, sorted by file and line.
    pub lines: Vec<Line>,
    /// Its instructions sorted by address, including those never executed.
    pub code: Vec<Instruction>,
}

/// A source line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// File name from the debug information.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
    /// Number of executions.
    pub executions: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// Nanoseconds.
    pub time_ns: u64,
    /// Core cycles; `None` if the trace doesn't count cycles.
    pub cycles: Option<u64>,
    /// Instructions per cycle, over the instructions with known cycles.
    pub ipc: Option<f64>,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instruction {
    /// Address in its module's symbol table.
    pub address: u64,
    /// Number of executions.
    pub executions: u64,
    /// Number of times taken, for an executed conditional branch.
    pub taken: Option<u64>,
    /// Number of times not taken, for an executed conditional branch.
    pub not_taken: Option<u64>,
    /// Nanoseconds.
    pub time_ns: u64,
    /// Core cycles; `None` if the trace doesn't count cycles.
    pub cycles: Option<u64>,
    /// The instruction in AT&T syntax.
    pub instruction: String,
    /// Index of its source line in [`Annotation::lines`], if known.
    pub line: Option<usize>,
}

/// Counts the executions of a function's instructions. `progress` gets the number of decoded bytes and returns whether
/// to continue.
pub fn annotate(
    trace: &Trace<'_>,
    function: FunctionId,
    reading: Reading<'_>,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> (Annotation, Losses) {
    annotated(trace, function, reading, &mut progress)
}

/// As [`annotate`]. Compiled once for all callers, because it contains a decoder.
fn annotated(
    trace: &Trace<'_>,
    function: FunctionId,
    reading: Reading<'_>,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> (Annotation, Losses) {
    let modules = &trace.modules;
    let analysis = Blocks { report: BlocksReport::Lines };
    let (threads, losses) = fold(trace, &analysis, reading, progress);
    let mut blocks: Vec<CountedBlock> = ExecutedBlocks::together(threads);
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
    let time = counts.values().fold(Time::default(), |sum, count| sum.saturating_add(count.time));
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
    add_code(trace, function, &counts, counted, lines, &mut annotation);
    (annotation, losses)
}

/// Core cycles, if the trace counts them, and the instructions that ran in them.
#[derive(Clone, Copy)]
struct Cycles {
    cycles: Option<u64>,
    instructions: u64,
}

impl Cycles {
    fn of<'c>(counts: impl Iterator<Item = &'c InstructionCount>) -> Cycles {
        let (mut cycles, mut instructions) = (0u64, 0u64);
        for count in counts {
            cycles = cycles.saturating_add(count.cycles);
            instructions = instructions.saturating_add(count.counted);
        }
        Cycles { cycles: (cycles > 0).then_some(cycles), instructions }
    }

    /// Returns the cycles of a part; `None` if the trace doesn't count cycles.
    fn of_part(self, cycles: u64, instructions: u64) -> Cycles {
        Cycles { cycles: self.cycles.map(|_| cycles), instructions }
    }

    fn ipc(self) -> Option<f64> {
        self.cycles.filter(|&cycles| cycles > 0).map(|cycles| self.instructions as f64 / cycles as f64)
    }
}

/// Adds all instructions of the function and their source lines to the annotation.
fn add_code(
    trace: &Trace<'_>,
    function: FunctionId,
    counts: &BTreeMap<u64, InstructionCount>,
    counted: Cycles,
    mut lines: BTreeMap<(String, u32), Line>,
    annotation: &mut Annotation,
) {
    let modules = &trace.modules;
    let Some(first) = counts.values().next() else { return };
    let start = modules.start(function);
    let end = modules.end(function).min(start.saturating_add(LONGEST_FUNCTION));
    let offset = |address: u64| first.offset.wrapping_add(address.wrapping_sub(first.address));
    let (isa, mut printer) = (modules.isa(function.module), Printer::default());
    let mut locations = Vec::new();
    let mut address = start;
    let code_at = |address: u64| trace.code_at(function.module, offset(address));
    while address < end {
        let decoded = isa.instruction(&code_at(address), address);
        let unknown = (address..end).take_while(|&address| code_at(address).is_empty()).count();
        let mut text = String::new();
        match &decoded {
            Ok(instruction) => printer.print(instruction, &mut text),
            Err(_) if unknown > 0 => text.push_str("(code that is not kept)"),
            Err(_) => text.push_str("(bad)"),
        }
        let count = counts.get(&address);
        let branch = count.filter(|count| count.end == End::Conditional);
        let location = modules.line(function.module, address).map(|line| (line.file.to_owned(), line.line));
        if let Some((file, line)) = &location {
            // Code that never ran has no counts.
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
        locations.push(location);
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
        let length = match decoded {
            Ok(instruction) => instruction.step().length.into(),
            Err(_) if unknown > 0 => unknown as u64,
            Err(_) => isa.alignment().into(),
        };
        // Bytes between instructions that ran may be data.
        let next = counts.range(address + 1..).next().map_or(u64::MAX, |(&next, _)| next);
        address = (address + length).min(next);
    }
    let index: BTreeMap<&(String, u32), usize> = lines.keys().zip(0..).collect();
    for (instruction, location) in annotation.code.iter_mut().zip(&locations) {
        instruction.line = location.as_ref().and_then(|location| index.get(location).copied());
    }
    annotation.lines = lines.into_values().collect();
}

impl Trace<'_> {
    /// Returns the code of a module at an offset, at most an instruction, from its file or from the recording; empty if it
    /// is unknown.
    pub fn code_at(&self, module: u32, offset: u64) -> Cow<'_, [u8]> {
        let file = self.modules.list().get(module as usize).map_or(&[][..], |module| module.bytes);
        let in_file = usize::try_from(offset).ok().and_then(|begin| file.get(begin..));
        // The last tick stands for "never ends", so the newest content is that of the tick before.
        let newest = u64::MAX - 1;
        let kept = self.spaces.iter().filter_map(|space| Some(space.at(offset, newest)?.0.bytes));
        match in_file.into_iter().chain(kept).find(|bytes| !bytes.is_empty()) {
            Some(bytes) => Cow::Borrowed(&bytes[..bytes.len().min(LONGEST_INSTRUCTION)]),
            None => Cow::Owned(self.compiled_code_at(module, offset)),
        }
    }

    /// The same for a run-time compiler's function, whose offset is no address. Its parts may have been kept one by one.
    fn compiled_code_at(&self, module: u32, offset: u64) -> Vec<u8> {
        let mut code = Vec::new();
        while code.len() < LONGEST_INSTRUCTION {
            let origin = Origin { module, offset: offset.saturating_add(code.len() as u64) };
            let kept = self.spaces.iter().find_map(|space| space.of_origin(origin));
            let Some(bytes) = kept.or_else(|| self.modules.compiled_code(origin)) else { break };
            code.extend_from_slice(&bytes[..bytes.len().min(LONGEST_INSTRUCTION - code.len())]);
        }
        code
    }
}

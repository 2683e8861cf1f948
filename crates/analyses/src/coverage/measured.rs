//! What ran of some modules, and what did not.

use std::collections::BTreeMap;

use hodo_isa::Terminator;
use hodo_model::{End, FunctionRange, SourceLine, Sources};

use crate::blocks::{ExecutedBlocks, Flow, of_flow};

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Location {
    pub(super) file: String,
    pub(super) line: u32,
}

/// The function whose first instruction is at an address.
#[derive(Clone, Debug)]
pub(super) struct FunctionCoverage {
    pub(super) name: String,
    pub(super) at: Location,
    /// Number of times that it was entered.
    pub(super) entries: u64,
}

/// A conditional branch of the machine code.
#[derive(Clone, Debug)]
pub(super) struct BranchCoverage {
    /// The name of the function that contains it.
    pub(super) function: String,
    pub(super) at: Location,
    pub(super) executions: u64,
    pub(super) taken: u64,
    pub(super) not_taken: u64,
}

/// The parts of a module that have a source line.
#[derive(Debug, Default)]
pub(super) struct ModuleCoverage {
    /// Executions of each line in which a statement begins.
    pub(super) lines: BTreeMap<Location, u64>,
    /// By address.
    pub(super) functions: BTreeMap<u64, FunctionCoverage>,
    /// By address.
    pub(super) branches: BTreeMap<u64, BranchCoverage>,
}

/// Counts of all modules, by name.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) modules: BTreeMap<String, ModuleCoverage>,
    pub(super) recordings: u64,
}

impl From<SourceLine<'_>> for Location {
    fn from(line: SourceLine<'_>) -> Location {
        Location { file: line.file.to_owned(), line: line.line }
    }
}

/// The location of an address, if the file of its code is known.
fn location(module: u32, address: u64, sources: &dyn Sources) -> Option<Location> {
    let line = sources.line(module, address)?;
    (line.line > 0 && !line.file.is_empty()).then(|| line.into())
}

impl Measured {
    /// Adds the threads of a recording.
    pub(super) fn add(&mut self, threads: Vec<ExecutedBlocks>, sources: &dyn Sources) {
        self.recordings += 1;
        for module in 0..sources.modules() {
            self.add_code(module, sources);
        }
        for flow in Flow::of(&ExecutedBlocks::together(threads), sources) {
            self.add_flow(&flow, sources);
        }
    }

    /// Adds what a module's file contains, without executions.
    fn add_code(&mut self, module: u32, sources: &dyn Sources) {
        let statements = sources.statements(module);
        let functions = sources.functions(module);
        let (Some(first), false) = (functions.first(), statements.is_empty()) else { return };
        let (_, module_name) = sources.names(first.function);
        let own = self.modules.entry(module_name).or_default();
        // The linker drops functions, and leaves their lines at addresses that have no code.
        for statement in statements {
            let before = functions.partition_point(|range| range.start <= statement.address);
            let is_code = before > 0 && statement.address < functions[before - 1].end;
            if is_code && !statement.file.is_empty() {
                let at = Location { file: statement.file.to_owned(), line: statement.line };
                own.lines.entry(at).or_default();
            }
        }
        for range in &functions {
            own.add_function(range, sources);
        }
    }

    /// Adds what ran of a module.
    fn add_flow(&mut self, flow: &Flow, sources: &dyn Sources) {
        let Some(first) = flow.instructions.first() else { return };
        let (_, module_name) = sources.names(first.function);
        let own = self.modules.entry(module_name).or_default();
        for line in of_flow(flow, sources) {
            let at = Location { file: line.file, line: line.line };
            // A line in which no statement begins is part of the lines around it.
            let is_listed = sources.modules() == 0 || own.lines.contains_key(&at);
            if is_listed && at.line > 0 && !at.file.is_empty() {
                let sum = own.lines.entry(at).or_default();
                *sum = sum.saturating_add(line.executions);
            }
        }
        for (instruction, entries) in flow.instructions.iter().zip(flow.entries()) {
            if let Some(function) = own.functions.get_mut(&instruction.address) {
                function.entries = function.entries.saturating_add(entries);
            }
            if instruction.end != End::Conditional {
                continue;
            }
            let Some(at) = location(flow.module, instruction.address, sources) else { continue };
            let branch = own.branches.entry(instruction.address).or_insert_with(|| BranchCoverage {
                function: sources.names(instruction.function).0,
                at,
                executions: 0,
                taken: 0,
                not_taken: 0,
            });
            branch.executions = branch.executions.saturating_add(instruction.executions);
            branch.taken = branch.taken.saturating_add(instruction.taken);
            branch.not_taken = branch.not_taken.saturating_add(instruction.not_taken);
        }
    }
}

impl ModuleCoverage {
    /// Adds a function whose source is known, and its conditional branches, without executions.
    fn add_function(&mut self, range: &FunctionRange, sources: &dyn Sources) {
        let module = range.function.module;
        let Some(at) = location(module, range.start, sources) else { return };
        let (name, _) = sources.names(range.function);
        let (isa, code) = sources.code(range);
        let (mut address, mut rest) = (range.start, code);
        while !rest.is_empty() {
            let step = isa.instruction(rest, address).map(|instruction| instruction.step());
            // Bytes that are no instruction are data, which ends at some later instruction.
            let length = step.map_or(isa.alignment(), |step| step.length).max(1);
            if step.is_ok_and(|step| step.terminator == Terminator::Conditional)
                && let Some(at) = location(module, address, sources)
            {
                self.branches.entry(address).or_insert_with(|| BranchCoverage {
                    function: name.clone(),
                    at,
                    executions: 0,
                    taken: 0,
                    not_taken: 0,
                });
            }
            address = address.wrapping_add(length.into());
            rest = rest.get(usize::from(length)..).unwrap_or_default();
        }
        // Compilers move code that rarely runs out of a function, and name that part of it after the function.
        if !name.ends_with(".cold") {
            self.functions.entry(range.start).or_insert(FunctionCoverage { name, at, entries: 0 });
        }
    }
}

//! Counts the executions of each source line.
//!
//! A line runs each time execution comes to one of its statements from elsewhere in the function, and each time a loop
//! within the line iterates. gcov counts in the same way, over the blocks of the compiler; this counts over the blocks
//! of the program. A call that returns to its line does not run the line again.

use std::collections::{BTreeMap, BTreeSet};

use hodo_model::{End, FunctionId, SourceLine, Sources};

use super::{CountedBlock, Flow, InstructionCount, flow::FlowStep};
use crate::clock::Time;

/// The cost of a source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCount {
    /// The module's name.
    pub module: String,
    /// The function of the line's first instruction.
    pub function: String,
    /// The file, as in the debugging information; empty if unknown.
    pub file: String,
    /// The line; 0 if unknown.
    pub line: u32,
    /// Number of executions.
    pub executions: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// Time of execution.
    pub time: Time,
    /// Core cycles of execution, if the trace counts them.
    pub cycles: u64,
    /// Number of instructions executed during these cycles.
    pub counted: u64,
}

/// Returns the executed lines by module, file and line; code without a known line is summed by function.
pub fn by_line(blocks: &[CountedBlock], sources: &dyn Sources) -> Vec<LineCount> {
    let flows = Flow::of(blocks, sources);
    flows.iter().flat_map(|flow| of_flow(flow, sources)).collect()
}

/// What code is summed by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LineKey<'a> {
    /// The function with this index: the line is unknown.
    Function(u32),
    /// A line of a file.
    Line(&'a str, u32),
}

/// The most steps from a piece without lines to its owner, as such pieces may form a cycle.
const MOST_STEPS: usize = 64;

/// Returns the executed lines of one module.
pub fn of_flow(flow: &Flow, sources: &dyn Sources) -> Vec<LineCount> {
    // Each with the address of its first instruction.
    let mut lines: BTreeMap<LineKey<'_>, (LineCount, u64)> = BTreeMap::new();
    for instruction in &flow.instructions {
        let key = match sources.line(flow.module, instruction.address) {
            Some(line) => LineKey::Line(line.file, line.line),
            None => LineKey::Function(instruction.function.index),
        };
        let (count, _) = lines.entry(key).or_insert_with(|| {
            let (function, module) = sources.names(instruction.function);
            let (file, line) = if let LineKey::Line(file, line) = key { (file, line) } else { ("", 0) };
            let count = LineCount {
                module,
                function,
                file: file.to_owned(),
                line,
                executions: 0,
                instructions: 0,
                time: Time::default(),
                cycles: 0,
                counted: 0,
            };
            (count, instruction.address)
        });
        count.instructions = count.instructions.saturating_add(instruction.executions);
        count.time = count.time.saturating_add(instruction.time);
        count.cycles = count.cycles.saturating_add(instruction.cycles);
        count.counted = count.counted.saturating_add(instruction.counted);
    }
    for ((file, line), executions) in executions(flow, sources) {
        if let Some((count, _)) = lines.get_mut(&LineKey::Line(file, line)) {
            count.executions = executions;
        }
    }
    let addresses: Vec<u64> = lines.values().map(|&(_, address)| address).collect();
    let functions = sources.inlined(flow.module, &addresses);
    let named = lines.into_values().zip(functions.into_iter().chain(std::iter::repeat(None)));
    let count = named.map(|((count, _), function)| match function {
        Some(function) if count.line > 0 => LineCount { function, ..count },
        _ => count,
    });
    count.collect()
}

/// Consecutive instructions, and the lines whose statements begin among them.
struct ExecutedLines<'a> {
    executions: u64,
    lines: Vec<(&'a str, u32)>,
}

/// The pieces of a flow, and the steps between them.
struct Pieces<'a> {
    pieces: Vec<ExecutedLines<'a>>,
    steps: Vec<FlowStep>,
}

/// Execution counts of each line.
fn executions<'a>(flow: &Flow, sources: &'a dyn Sources) -> BTreeMap<(&'a str, u32), u64> {
    let Pieces { pieces, steps } = Pieces::of(flow, sources);
    let owner = owners(&pieces, &steps);
    let mut executions: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    let mut ending: BTreeMap<(&str, u32), BTreeSet<usize>> = BTreeMap::new();
    for (index, piece) in pieces.iter().enumerate() {
        for &line in &piece.lines {
            let sum = executions.entry(line).or_default();
            *sum = sum.saturating_add(piece.executions);
        }
        if let Some(&line) = piece.lines.last() {
            ending.entry(line).or_default().insert(index);
        }
    }
    // Executions that come into a piece, possibly through pieces without a line. A step of a piece to itself changes a sum
    // only for a piece without a line, which may iterate more often than its owner runs.
    let mut into: BTreeMap<usize, Vec<FlowStep>> = BTreeMap::new();
    for &step in steps.iter().filter(|step| owner[step.from] != owner[step.to] || step.from == step.to) {
        into.entry(owner[step.to]).or_default().push(step);
    }
    for (line, pieces_of_line) in ending {
        let mut sum = 0u64;
        for piece in &pieces_of_line {
            let inside = into.get(piece).into_iter().flatten();
            let inside = inside.filter(|step| pieces_of_line.contains(&owner[step.from]));
            let (mut stays, mut again) = (0u64, 0u64);
            for &FlowStep { from, to, count } in inside {
                stays = stays.saturating_add(count);
                again = again.saturating_add(if to <= from { count } else { 0 });
            }
            sum = sum.saturating_add(pieces[*piece].executions.saturating_sub(stays).saturating_add(again));
        }
        // As in gcov: for a line that ends a piece, only the pieces that it ends count; the sums above are for all others.
        executions.insert(line, sum);
    }
    executions
}

/// Returns the owner of each piece. A piece in which no statement begins belongs to the piece before it; if there are
/// several before it, to the piece after it.
fn owners(pieces: &[ExecutedLines<'_>], steps: &[FlowStep]) -> Vec<usize> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); pieces.len()];
    let mut after = before.clone();
    for &FlowStep { from, to, .. } in steps.iter().filter(|step| step.from != step.to) {
        before[to].push(from);
        after[from].push(to);
    }
    let mut owners: Vec<usize> = (0..pieces.len()).collect();
    for owner in &mut owners {
        for _ in 0..pieces.len().min(MOST_STEPS) {
            match (&pieces[*owner].lines[..], &before[*owner][..], &after[*owner][..]) {
                ([], &[neighbour], _) | ([], _, &[neighbour]) => *owner = neighbour,
                _ => break,
            }
        }
    }
    owners
}

impl<'a> Pieces<'a> {
    fn of(flow: &Flow, sources: &'a dyn Sources) -> Pieces<'a> {
        let begins = beginnings(flow);
        let mut piece_of = Vec::with_capacity(flow.instructions.len());
        let mut coded: Vec<CodedPiece<'a>> = Vec::new();
        for (instruction, begins) in flow.instructions.iter().zip(begins) {
            if begins {
                coded.push(CodedPiece::beginning_with(instruction));
            }
            piece_of.push(coded.len() - 1);
            let piece = coded.last_mut().expect("the first instruction begins a piece");
            piece.add(instruction, sources.line(flow.module, instruction.address));
        }
        // Steps between pieces, and back within one.
        let leaves = |step: &&FlowStep| piece_of[step.from] != piece_of[step.to] || step.to <= step.from;
        let of_pieces = |step: &FlowStep| FlowStep {
            from: piece_of[step.from],
            to: piece_of[step.to],
            count: step.count,
        };
        let steps: Vec<FlowStep> = flow.steps.iter().filter(leaves).map(of_pieces).collect();
        correct_jumps(&mut coded, &steps);
        begin_elsewhere(&mut coded);
        end_functions(&mut coded);
        let pieces = coded.into_iter().map(|piece| {
            let mut lines: Vec<(&str, u32)> =
                piece.lines.iter().filter(|line| line.begins).map(|line| line.at).collect();
            lines.dedup();
            ExecutedLines { executions: piece.executions, lines }
        });
        Pieces { pieces: pieces.collect(), steps }
    }
}

/// A piece with the lines of its code.
struct CodedPiece<'a> {
    executions: u64,
    function: FunctionId,
    start: u64,
    /// The address after its last instruction.
    end: u64,
    /// Whether it ends with a return.
    returns: bool,
    lines: Vec<LineOfPiece<'a>>,
}

/// Consecutive instructions of a piece that have the same line.
struct LineOfPiece<'a> {
    at: (&'a str, u32),
    /// Whether a statement of the line begins there.
    begins: bool,
    /// Whether an entry of the line table is there.
    is_entry: bool,
    /// Whether it is a direct jump and nothing else.
    is_jump: bool,
}

impl<'a> CodedPiece<'a> {
    fn beginning_with(instruction: &InstructionCount) -> CodedPiece<'a> {
        let &InstructionCount { address, executions, function, .. } = instruction;
        CodedPiece { executions, function, start: address, end: address, returns: false, lines: Vec::new() }
    }

    fn add(&mut self, instruction: &InstructionCount, line: Option<SourceLine<'a>>) {
        self.end = instruction.address.wrapping_add(instruction.length.into());
        self.returns = instruction.end == End::Return;
        let Some(SourceLine { file, line, begins, is_entry }) = line else { return };
        match self.lines.last_mut() {
            Some(last) if last.at == (file, line) => {
                last.begins |= begins;
                last.is_entry |= is_entry;
                last.is_jump = false;
            }
            _ => self.lines.push(LineOfPiece {
                at: (file, line),
                begins,
                is_entry,
                is_jump: instruction.end == End::Jump,
            }),
        }
    }

    fn has(&self, at: (&str, u32)) -> bool {
        self.lines.iter().any(|line| line.at == at)
    }

    /// The line of the jump at its end, if the jump is all that it has of the line.
    fn jump(&self) -> Option<(&'a str, u32)> {
        self.lines.last().filter(|line| line.is_jump).map(|line| line.at)
    }
}

/// Takes the lines from jumps that are no statements: Clang gives the jump from the end of a block the line of the
/// statement that the block is part of, or of the statement after it.
fn correct_jumps(pieces: &mut [CodedPiece<'_>], steps: &[FlowStep]) {
    let mut is_part = vec![false; pieces.len()];
    for &FlowStep { from, to, .. } in steps.iter().filter(|step| step.from != step.to) {
        is_part[from] |= pieces[from].jump().is_some_and(|at| pieces[to].has(at));
        is_part[to] |=
            pieces[to].lines.len() == 1 && pieces[to].jump().is_some_and(|at| pieces[from].has(at));
    }
    for (index, is_part) in is_part.into_iter().enumerate() {
        let (before, after) = pieces.split_at_mut(index + 1);
        let (Some(piece), next) = (before.last_mut(), after.first_mut()) else { continue };
        let (Some(at), end) = (piece.jump(), piece.end) else { continue };
        let Some(jump) = piece.lines.last_mut() else { continue };
        let first = next.filter(|next| next.start == end).and_then(|next| next.lines.first_mut());
        let begins_after = |first: &&mut LineOfPiece<'_>| first.at == at && first.is_entry && !first.begins;
        match first.filter(begins_after).filter(|_| jump.begins) {
            Some(first) => (jump.begins, first.begins) = (false, true),
            None => jump.begins &= !is_part,
        }
    }
}

/// Lets a line of which no statement begins in what ran begin where its code has an entry: its statement begins in code that
/// did not run, such as a jump before it.
fn begin_elsewhere(pieces: &mut [CodedPiece<'_>]) {
    let lines = pieces.iter().flat_map(|piece| &piece.lines);
    let begun: BTreeSet<(&str, u32)> = lines.filter(|line| line.begins).map(|line| line.at).collect();
    for line in pieces.iter_mut().flat_map(|piece| &mut piece.lines) {
        line.begins |= line.is_entry && !begun.contains(&line.at);
    }
}

/// Lets the last line of a function begin where the function returns: where a statement jumps to the return, gcc gives the
/// closing brace an entry only for the way past the last statement, which may not have run.
fn end_functions(pieces: &mut [CodedPiece<'_>]) {
    let mut last_begun: BTreeMap<(FunctionId, &str), u32> = BTreeMap::new();
    for piece in &*pieces {
        for &LineOfPiece { at: (file, line), .. } in piece.lines.iter().filter(|line| line.begins) {
            let last = last_begun.entry((piece.function, file)).or_default();
            *last = line.max(*last);
        }
    }
    for piece in pieces.iter_mut().filter(|piece| piece.returns) {
        let function = piece.function;
        let Some(line) = piece.lines.last_mut() else { continue };
        let (file, number) = line.at;
        line.begins |= last_begun.get(&(function, file)).is_some_and(|&last| number > last);
    }
}

/// Marks the instructions that begin a piece: after a gap or an instruction that can branch, at a target, and where the
/// count changes.
fn beginnings(flow: &Flow) -> Vec<bool> {
    let mut begins = vec![true; flow.instructions.len()];
    for (pair, begins) in flow.instructions.windows(2).zip(begins.iter_mut().skip(1)) {
        let [before, here] = pair else { continue };
        let follows = before.address.wrapping_add(u64::from(before.length)) == here.address;
        *begins = !follows || before.end != End::Next || before.executions != here.executions;
    }
    for &FlowStep { from, to, .. } in &flow.steps {
        begins[to] |= from + 1 != to;
    }
    begins
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece that runs twice and has one line, whose entry begins no statement.
    fn piece(start: u64, line: u32) -> CodedPiece<'static> {
        let function = FunctionId { module: 0, index: 1 };
        let lines = vec![LineOfPiece { at: ("a.c", line), begins: false, is_entry: false, is_jump: false }];
        CodedPiece { executions: 2, function, start, end: start + 4, returns: false, lines }
    }

    fn begin(pieces: &mut [CodedPiece<'_>]) -> Vec<bool> {
        begin_elsewhere(pieces);
        end_functions(pieces);
        pieces.iter().map(|piece| piece.lines[0].begins).collect()
    }

    #[test]
    fn the_closing_brace_runs_where_a_statement_jumps_to_the_return() {
        let mut pieces = [piece(0, 7), piece(8, 9), piece(12, 7)];
        pieces[0].lines[0].begins = true;
        (pieces[1].returns, pieces[2].returns) = (true, true);
        // A return in the middle of an earlier line says nothing about that line.
        assert_eq!(begin(&mut pieces), [true, true, false]);
        // The code after the last statement of another function.
        let mut pieces = [piece(0, 7), piece(8, 9)];
        pieces[0].lines[0].begins = true;
        pieces[1].returns = true;
        pieces[1].function.index = 2;
        assert_eq!(begin(&mut pieces), [true, false]);
    }
}

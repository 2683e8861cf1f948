//! Finds the first divergence of two executions: the first instruction that one executes and the other does not.
//!
//! ```text
//! execution of A ─ digests of 65,536 instructions each ─┐
//!                                                       ├─ first that differ ─ instructions of both ─ first that differ
//! execution of B ─ digests of 65,536 instructions each ─┘
//! ```
//!
//! Memory use is 8 bytes per 65,536 instructions, plus the instructions compared in full. An instruction is identified
//! by its module and the offset in it, independent of mappings; so both executions must use the same files.

use std::{collections::BTreeMap, hash::Hasher, ops::Range};

use hodo_analyses::divergence::{Digests, ExecutedInstruction, InstructionCollector};
use hodo_code::Origin;
use hodo_model::{Analysis, FastFlow, Names, Sources, kernel::Threads};
use rustc_hash::FxHasher;

use crate::{
    flow::{
        calls::NthCalls,
        fold::fold,
        selection_filter::{Numbers, Spans},
        trace::Trace,
    },
    programs::modules::Module,
    reading::Reading,
    refusal::Refusal,
};

/// Number of instructions per digest.
const BLOCK: u64 = 1 << 16;

/// One execution of a function.
#[derive(Debug)]
pub struct Execution<'x, 'f> {
    trace: &'x Trace<'f>,
    spans: Spans,
    numbers: Numbers,
    span: Range<u64>,
    /// The module of the function.
    module: u32,
    /// For each module, a hash of its content, or of its name if the content is unknown.
    modules: Vec<u64>,
}

/// The place of an instruction in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLocation {
    /// The function.
    pub function: String,
    /// Offset from the function's first instruction.
    pub offset: u64,
    /// File and line, if the debug information has them.
    pub line: Option<String>,
    /// The module.
    pub module: String,
}

/// The first divergence of two executions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Number of common instructions at the start.
    pub common: u64,
    /// Number of instructions of each execution.
    pub instructions: [u64; 2],
    /// The last common instruction, which is the branch; `None` if there is none.
    pub branch: Option<CodeLocation>,
    /// The next instruction of each execution; `None` if it ends.
    pub next: [Option<CodeLocation>; 2],
}

impl Divergence {
    /// Returns whether the executions are equal.
    pub fn is_none(&self) -> bool {
        self.next == [None, None]
    }
}

impl<'x, 'f> Execution<'x, 'f> {
    /// Finds the execution in the first thread that has one.
    ///
    /// # Errors
    /// If no thread has the execution.
    pub fn find(
        trace: &'x Trace<'f>,
        calls: &NthCalls,
        reading: Reading<'_>,
        mut progress: impl FnMut(u64) -> bool + Send,
    ) -> Result<Execution<'x, 'f>, Refusal> {
        let found = crate::flow::calls::find_calls(trace, calls, reading, &mut progress);
        let first =
            found.by_context.iter().find_map(|(context, spans)| Some((*context, spans.first()?.clone())));
        let (context, span) = first.ok_or_else(|| calls.never_made(trace))?;
        let spans = Spans { by_context: BTreeMap::from([(context, vec![span.clone()])]) };
        let numbers = crate::flow::selection_filter::numbers(trace, reading, &mut progress);
        let module = calls.function.module;
        let content = |module: &Module<'_>| match module.bytes {
            [] => digest(module.name.as_bytes()),
            bytes => digest(bytes),
        };
        let modules = trace.modules.list().iter().map(content).collect();
        Ok(Execution { trace, spans, numbers, span, module, modules })
    }

    /// Checks that both executions use the same files.
    ///
    /// # Errors
    /// The file that differs.
    pub fn runs_the_same_files(&self, other: &Execution<'_, '_>) -> Result<(), Refusal> {
        let own = self.trace.modules.list().get(self.module as usize);
        let refused = |name: &str| {
            Err(Refusal(format!(
                "{name} is not the same file in both recordings, and instructions of two builds can't be held against each other; leave out --divergence"
            )))
        };
        let theirs = other.trace.modules.list().get(other.module as usize);
        if let Some(own) = own.filter(|own| theirs.is_none_or(|theirs| theirs.bytes != own.bytes)) {
            return refused(&own.name);
        }
        for module in self.trace.modules.list().iter().filter(|module| !module.bytes.is_empty()) {
            let others = other.trace.modules.list().iter();
            let mut others = others.filter(|other| other.name == module.name && !other.bytes.is_empty());
            if others.any(|other| other.bytes != module.bytes) {
                return refused(&module.name);
            }
        }
        Ok(())
    }

    fn fold<A: FastFlow>(&self, analysis: &A, reading: Reading<'_>) -> Vec<A::Partial> {
        let reading = Reading { spans: Some(&self.spans), numbers: Some(&self.numbers), ..reading };
        fold(self.trace, analysis, reading, |_| true).0
    }

    fn digests(&self, reading: Reading<'_>) -> BTreeMap<u64, u64> {
        let digests = Digests { wanted: self.span.clone(), block: BLOCK, modules: self.modules.clone() };
        let partials = self.fold(&digests, reading).into_iter();
        let all = partials.reduce(|all, next| digests.merge(all, next, &Threads::default()));
        all.unwrap_or_default().digests
    }

    /// Returns the instructions of a block, in order.
    fn steps(&self, block: u64, reading: Reading<'_>) -> Vec<ExecutedInstruction> {
        let begin = self.span.start + block * BLOCK;
        let steps = InstructionCollector {
            first: self.span.start,
            wanted: begin..begin + BLOCK,
            modules: self.modules.clone(),
        };
        let mut all: Vec<ExecutedInstruction> =
            self.fold(&steps, reading).into_iter().flat_map(|partial| partial.steps).collect();
        all.sort_by_key(|step| step.index);
        all
    }

    fn location(&self, step: &ExecutedInstruction) -> CodeLocation {
        let modules = &self.trace.modules;
        let origin = Origin { module: step.module, offset: step.offset };
        let (function, offset) = modules.function(origin);
        let (function, module) = modules.names(function);
        let line = modules.line(step.module, modules.address(origin));
        CodeLocation {
            function,
            offset,
            line: line.map(|line| format!("{}:{}", line.file, line.line)),
            module,
        }
    }

    fn instructions(&self) -> u64 {
        self.span.end - self.span.start
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Finds the first divergence of two executions.
pub fn divergence(
    a: &Execution<'_, '_>,
    b: &Execution<'_, '_>,
    [reading_a, reading_b]: [Reading<'_>; 2],
) -> Divergence {
    let (of_a, of_b) = (a.digests(reading_a), b.digests(reading_b));
    let blocks = of_a.keys().chain(of_b.keys()).copied().max().map_or(0, |last| last + 1);
    let instructions = [a.instructions(), b.instructions()];
    let Some(block) = (0..blocks).find(|block| of_a.get(block) != of_b.get(block)) else {
        return Divergence { common: instructions[0], instructions, branch: None, next: [None, None] };
    };
    // The last common instruction may be the last one of the previous block.
    let steps = |execution: &Execution<'_, '_>, reading| {
        let mut steps = if block > 0 { execution.steps(block - 1, reading) } else { Vec::new() };
        steps.extend(execution.steps(block, reading));
        steps
    };
    let (of_a, of_b) = (steps(a, reading_a), steps(b, reading_b));
    let same = of_a.iter().zip(&of_b).take_while(|(a, b)| (a.index, a.key) == (b.index, b.key)).count();
    let first = block.saturating_sub(1) * BLOCK;
    Divergence {
        common: first + same as u64,
        instructions,
        branch: same.checked_sub(1).map(|last| a.location(&of_a[last])),
        next: [of_a.get(same).map(|step| a.location(step)), of_b.get(same).map(|step| b.location(step))],
    }
}

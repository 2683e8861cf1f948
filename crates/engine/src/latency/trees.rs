//! Builds the call trees of single executions, with a second pass that decodes only these executions.

use std::{collections::BTreeMap, mem, ops::Range, sync::Arc};

use hodo_analyses::calls::{Call, Moment};
use hodo_model::{FunctionId, Names};
use rustc_hash::FxHashMap;

use super::{off_cpu::OffCpu, slowest::ExecutionLocation};
use crate::{
    flow::{
        calls::CallSink,
        selection_filter::{Numbers, Spans},
        trace::Trace,
    },
    losses::Losses,
    reading::{Reading, Window},
};

/// A function as called along execution path of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallNode {
    /// Index of the caller's node; `None` for a root.
    pub parent: Option<usize>,
    /// Number of callers above it.
    pub depth: usize,
    /// Name of the function.
    pub function: Arc<str>,
    /// Name of its module.
    pub module: Arc<str>,
    /// Number of calls along this path. A call of a function that is on the path already belongs to its node there.
    pub calls: u64,
    /// The most calls of the function that were open at once; above 1 if it is recursive.
    pub recursion: u64,
    /// Number of instructions, including callees.
    pub instructions: u64,
    /// Number of instructions without callees.
    pub self_instructions: u64,
    /// Nanoseconds, including callees; `None` if unknown.
    pub time: Option<u64>,
    /// Nanoseconds of these off the CPU; `None` if the recording has no context switches.
    pub waiting: Option<u64>,
}

/// The call tree of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTree {
    /// Nodes in depth-first order; siblings in order of their first call.
    pub nodes: Vec<CallNode>,
}

/// An execution that has begun and not ended.
struct OpenExecution {
    /// Its index in the list of requested executions.
    index: usize,
    range: Range<u64>,
    /// Stack depth of its root.
    base: usize,
    /// Its open calls, from the root.
    path: Vec<OpenCall>,
}

/// A call that has begun and not ended.
struct OpenCall {
    function: FunctionId,
    node: usize,
    /// Instructions of the calls that it made.
    below: u64,
}

/// A tree under construction. However deep the recursion, a path has each function once.
#[derive(Default)]
struct Tree {
    tree: CallTree,
    nodes: FxHashMap<(Option<usize>, FunctionId), usize>,
    /// The functions on the current path.
    open: FxHashMap<FunctionId, OpenFunction>,
}

/// A function with open calls.
#[derive(Clone, Copy)]
struct OpenFunction {
    node: usize,
    /// Number of its open calls.
    count: u64,
}

/// The names of functions and of their modules. A function has a node in each of many trees.
struct NodeNames<'x, 'f> {
    flow: &'x Trace<'f>,
    known: FxHashMap<FunctionId, [Arc<str>; 2]>,
}

impl NodeNames<'_, '_> {
    fn of(&mut self, function: FunctionId) -> [Arc<str>; 2] {
        let names = self.known.entry(function).or_insert_with(|| {
            let (name, module) = self.flow.modules.names(function);
            [name.into(), module.into()]
        });
        names.clone()
    }
}

struct Grower<'x, 'f> {
    flow: &'x Trace<'f>,
    names: NodeNames<'x, 'f>,
    off_cpu: Option<OffCpu>,
    /// Executions that have not begun.
    pending: PendingExecutions,
    growing: BTreeMap<u32, Vec<OpenExecution>>,
    trees: Vec<Tree>,
    context: u32,
    /// The executions of the current thread, which are taken out of the maps.
    current: ThreadExecutions,
}

/// The executions of a thread.
#[derive(Default)]
struct ThreadExecutions {
    pending: Vec<(usize, Range<u64>)>,
    growing: Vec<OpenExecution>,
}

/// Executions by context, each with its index; the next one is last.
type PendingExecutions = BTreeMap<u32, Vec<(usize, Range<u64>)>>;

/// Returns executions by context, and what to decode for them.
pub(super) fn spans_of(flow: &Trace<'_>, executions: &[ExecutionLocation]) -> (PendingExecutions, Spans) {
    let mut spans = Spans::default();
    let mut pending = PendingExecutions::new();
    for (index, ExecutionLocation { pid, tid, instructions }) in executions.iter().enumerate() {
        let mut of_thread =
            flow.threads.iter().zip(0..).filter(|(thread, _)| (thread.pid, thread.tid) == (*pid, *tid));
        if let Some((_, context)) = of_thread.find(|&(_, context)| flow.wants(context)) {
            pending.entry(context).or_default().push((index, instructions.clone()));
        }
    }
    for (&context, list) in &mut pending {
        list.sort_by_key(|(_, range)| (range.start, std::cmp::Reverse(range.end)));
        spans.by_context.insert(context, joined(list.iter().map(|(_, range)| range.clone())));
        list.reverse();
    }
    (pending, spans)
}

/// Returns the call trees of executions. `numbers` are of the same reading. `progress` receives the number of bytes decoded
/// so far, and returns whether to continue.
pub fn trees(
    flow: &Trace<'_>,
    executions: &[ExecutionLocation],
    numbers: &Numbers,
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> (Vec<CallTree>, Losses) {
    let (pending, spans) = spans_of(flow, executions);
    let reading = only(&spans, numbers, reading);
    let trees = executions.iter().map(|_| Tree::default()).collect();
    let off_cpu = OffCpu::of(flow.recording.of_host());
    let (growing, current) = (BTreeMap::new(), ThreadExecutions::default());
    let names = NodeNames { flow, known: FxHashMap::default() };
    let mut grower = Grower { flow, names, off_cpu, pending, growing, trees, context: 0, current };
    grower.resume();
    let losses = crate::flow::calls::calls(flow, reading, &mut grower, progress);
    (grower.trees.into_iter().map(Tree::finish).collect(), losses)
}

/// Returns the settings to read only the chunks of these spans.
pub(super) fn only<'r>(spans: &'r Spans, numbers: &'r Numbers, reading: Reading<'r>) -> Reading<'r> {
    let (numbers, spans) = (Some(numbers), Some(spans));
    Reading { numbers, spans, window: Window::ALL, skims: true, keeps_whole_chunks: true, ..reading }
}

/// Merges overlapping ranges; `ranges` are sorted by begin.
fn joined(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

impl CallSink for Grower<'_, '_> {
    fn begins(&self) -> bool {
        true
    }

    fn thread(&mut self, context: u32) {
        if self.context != context {
            let ThreadExecutions { pending, growing } = mem::take(&mut self.current);
            self.pending.insert(self.context, pending);
            self.growing.insert(self.context, growing);
            self.context = context;
            self.resume();
        }
    }

    fn moment(&mut self, moment: Moment) {
        match moment {
            Moment::Begin { depth, function, before, .. } => self.begin(depth, function, before),
            Moment::End { call } => self.end(&call),
            Moment::Gap { .. } => {}
        }
    }
}

impl Grower<'_, '_> {
    /// Takes the executions of the current thread.
    fn resume(&mut self) {
        self.current = ThreadExecutions {
            pending: self.pending.remove(&self.context).unwrap_or_default(),
            growing: self.growing.remove(&self.context).unwrap_or_default(),
        };
    }

    fn begin(&mut self, depth: usize, function: FunctionId, before: u64) {
        let ThreadExecutions { pending, growing } = &mut self.current;
        growing.retain(|execution| before < execution.range.end);
        while let Some((index, range)) = pending.pop_if(|(_, range)| range.start <= before) {
            if before < range.end {
                growing.push(OpenExecution { index, range, base: depth, path: Vec::new() });
            }
        }
        for execution in growing {
            // If the execution returns below its first frame, later calls become siblings of the earlier nodes.
            execution.base = execution.base.min(depth);
            let tree = &mut self.trees[execution.index];
            tree.close(&mut execution.path, depth - execution.base);
            let caller = execution.path.last().map(|caller| caller.node);
            let node = tree.begin(&mut self.names, caller, function);
            execution.path.push(OpenCall { function, node, below: 0 });
        }
    }

    fn end(&mut self, call: &Call) {
        let growing = &mut self.current.growing;
        if !growing.iter().any(|execution| execution.range.contains(&call.before)) {
            return;
        }
        let thread = self.flow.threads.get(self.context as usize);
        let span = call.begin.zip(call.end);
        let waiting = self.off_cpu.as_ref().zip(thread).zip(span);
        let waiting = waiting.map(|((off_cpu, &thread), (begin, end))| off_cpu.within(thread, begin, end));
        for execution in growing.iter_mut().filter(|execution| execution.range.contains(&call.before)) {
            let Some(level) = call.depth.checked_sub(execution.base) else { continue };
            if level < execution.path.len() {
                let tree = &mut self.trees[execution.index];
                tree.close(&mut execution.path, level + 1);
                tree.end(&execution.path[level], call, waiting);
                tree.close(&mut execution.path, level);
                if let Some(caller) = execution.path.last_mut() {
                    caller.below = caller.below.saturating_add(call.instructions);
                }
            }
        }
    }
}

impl CallNode {
    /// Adds a call that no other call of the function contains.
    fn add(&mut self, call: &Call, waiting: Option<u64>) {
        self.instructions += call.instructions;
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = more.map(|more| sum.unwrap_or(0).saturating_add(more)).or(*sum);
        };
        add(&mut self.time, call.begin.zip(call.end).map(|(begin, end)| end.0.saturating_sub(begin.0)));
        add(&mut self.waiting, waiting);
    }
}

impl Tree {
    /// Begins a call; returns its node.
    fn begin(&mut self, names: &mut NodeNames<'_, '_>, parent: Option<usize>, function: FunctionId) -> usize {
        let OpenFunction { node, count } = match self.open.get(&function) {
            Some(&OpenFunction { node, count }) => OpenFunction { node, count: count + 1 },
            None => OpenFunction { node: self.child(names, parent, function), count: 1 },
        };
        self.open.insert(function, OpenFunction { node, count });
        let deepest = &mut self.tree.nodes[node].recursion;
        *deepest = (*deepest).max(count);
        node
    }

    /// Ends the last call of the path.
    fn end(&mut self, ended: &OpenCall, call: &Call, waiting: Option<u64>) {
        let node = &mut self.tree.nodes[ended.node];
        node.calls += 1;
        node.self_instructions += call.instructions.saturating_sub(ended.below);
        if self.open.get(&ended.function).is_some_and(|open| open.count == 1) {
            node.add(call, waiting);
        }
    }

    /// Removes calls from a path, up to its first `length`.
    fn close(&mut self, path: &mut Vec<OpenCall>, length: usize) {
        for call in path.drain(length.min(path.len())..) {
            match self.open.get_mut(&call.function) {
                Some(open) if open.count > 1 => open.count -= 1,
                _ => drop(self.open.remove(&call.function)),
            }
        }
    }

    /// Returns the node of a function called by `parent`; creates it if it is new.
    fn child(&mut self, names: &mut NodeNames<'_, '_>, parent: Option<usize>, function: FunctionId) -> usize {
        let Tree { tree: CallTree { nodes }, nodes: known, .. } = self;
        *known.entry((parent, function)).or_insert_with(|| {
            let [function, module] = names.of(function);
            let depth = parent.map_or(0, |parent| nodes[parent].depth + 1);
            nodes.push(CallNode { parent, depth, function, module, ..CallNode::default() });
            nodes.len() - 1
        })
    }

    /// Returns the tree in depth-first order.
    fn finish(self) -> CallTree {
        let mut nodes = self.tree.nodes;
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        let mut order: Vec<usize> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            match node.parent {
                Some(parent) => children[parent].push(index),
                None => order.push(index),
            }
        }
        let (mut sorted, mut new_indices) = (Vec::new(), vec![0; nodes.len()]);
        order.reverse();
        while let Some(index) = order.pop() {
            new_indices[index] = sorted.len();
            let node = mem::take(&mut nodes[index]);
            let parent = node.parent.map(|parent| new_indices[parent]);
            sorted.push(CallNode { parent, ..node });
            order.extend(children[index].iter().rev());
        }
        CallTree { nodes: sorted }
    }
}

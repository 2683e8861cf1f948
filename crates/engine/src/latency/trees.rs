//! Builds the call trees of single executions, with a second pass that decodes only these executions.

use std::{collections::BTreeMap, ops::Range};

use hodo_analyses::calls::{Call, Moment};
use hodo_model::{FunctionId, Names};
use rustc_hash::FxHashMap;

use super::{off_cpu::OffCpu, slowest::ExecutionLocation};
use crate::{
    flow::{calls::CallSink, selection_filter::Spans, trace::Trace},
    losses::Losses,
    reading::{Reading, Window},
};

/// A function as called along one path of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallNode {
    /// Index of the caller's node; `None` for a root.
    pub parent: Option<usize>,
    /// Number of callers above it.
    pub depth: usize,
    /// Name of the function.
    pub function: String,
    /// Name of its module.
    pub module: String,
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
    /// For each function on the current path its node, and the number of its open calls.
    open: FxHashMap<FunctionId, (usize, u64)>,
}

struct Grower<'x, 'f> {
    flow: &'x Trace<'f>,
    off_cpu: Option<OffCpu>,
    /// Executions that have not begun, by context; the next one is last.
    waiting: BTreeMap<u32, Vec<(usize, Range<u64>)>>,
    growing: BTreeMap<u32, Vec<OpenExecution>>,
    trees: Vec<Tree>,
    context: u32,
}

/// Returns the call trees of executions. `progress` receives the number of bytes decoded so far, over two passes, and returns whether to continue.
pub fn trees(
    flow: &Trace<'_>,
    executions: &[ExecutionLocation],
    reading: Reading<'_>,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> (Vec<CallTree>, Losses) {
    let mut spans = Spans::default();
    let mut waiting: BTreeMap<u32, Vec<(usize, Range<u64>)>> = BTreeMap::new();
    for (index, ExecutionLocation { pid, tid, instructions }) in executions.iter().enumerate() {
        let mut of_thread =
            flow.threads.iter().zip(0..).filter(|(thread, _)| (thread.pid, thread.tid) == (*pid, *tid));
        if let Some((_, context)) = of_thread.find(|&(_, context)| flow.wants(context)) {
            waiting.entry(context).or_default().push((index, instructions.clone()));
        }
    }
    for (&context, list) in &mut waiting {
        list.sort_by_key(|(_, range)| (range.start, std::cmp::Reverse(range.end)));
        spans.by_context.insert(context, joined(list.iter().map(|(_, range)| range.clone())));
        list.reverse();
    }
    let numbers = crate::flow::selection_filter::numbers(flow, reading, &mut progress);
    let before = flow.bytes();
    let reading = Reading { numbers: Some(&numbers), spans: Some(&spans), window: Window::ALL, ..reading };
    let trees = executions.iter().map(|_| Tree::default()).collect();
    let off_cpu = OffCpu::of(flow.recording.of_host());
    let mut grower = Grower { flow, off_cpu, waiting, growing: BTreeMap::new(), trees, context: 0 };
    let losses = crate::flow::calls::calls(flow, reading, &mut grower, |done| progress(before + done));
    (grower.trees.into_iter().map(Tree::finish).collect(), losses)
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
        self.context = context;
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
    fn begin(&mut self, depth: usize, function: FunctionId, before: u64) {
        let growing = self.growing.entry(self.context).or_default();
        growing.retain(|one| before < one.range.end);
        let waiting = self.waiting.entry(self.context).or_default();
        while let Some((index, range)) = waiting.pop_if(|(_, range)| range.start <= before) {
            if before < range.end {
                growing.push(OpenExecution { index, range, base: depth, path: Vec::new() });
            }
        }
        for one in growing {
            // If the execution returns below its first frame, later calls become siblings of the earlier nodes.
            one.base = one.base.min(depth);
            let tree = &mut self.trees[one.index];
            tree.close(&mut one.path, depth - one.base);
            let node = tree.begin(self.flow, one.path.last().map(|caller| caller.node), function);
            one.path.push(OpenCall { function, node, below: 0 });
        }
    }

    fn end(&mut self, call: &Call) {
        let Some(growing) = self.growing.get_mut(&self.context) else { return };
        let thread = self.flow.threads.get(self.context as usize);
        let span = call.begin.zip(call.end);
        let waiting = self.off_cpu.as_ref().zip(thread).zip(span);
        let waiting = waiting.map(|((off_cpu, &thread), (begin, end))| off_cpu.within(thread, begin, end));
        for one in growing.iter_mut().filter(|one| one.range.contains(&call.before)) {
            let Some(level) = call.depth.checked_sub(one.base) else { continue };
            if level < one.path.len() {
                let tree = &mut self.trees[one.index];
                tree.close(&mut one.path, level + 1);
                tree.end(&one.path[level], call, waiting);
                tree.close(&mut one.path, level);
                if let Some(caller) = one.path.last_mut() {
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
    fn begin(&mut self, flow: &Trace<'_>, parent: Option<usize>, function: FunctionId) -> usize {
        let (node, count) = match self.open.get(&function) {
            Some(&(node, count)) => (node, count + 1),
            None => (self.child(flow, parent, function), 1),
        };
        self.open.insert(function, (node, count));
        let deepest = &mut self.tree.nodes[node].recursion;
        *deepest = (*deepest).max(count);
        node
    }

    /// Ends the last call of the path.
    fn end(&mut self, ended: &OpenCall, call: &Call, waiting: Option<u64>) {
        let node = &mut self.tree.nodes[ended.node];
        node.calls += 1;
        node.self_instructions += call.instructions.saturating_sub(ended.below);
        if self.open.get(&ended.function).is_some_and(|&(_, count)| count == 1) {
            node.add(call, waiting);
        }
    }

    /// Removes calls from a path, up to its first `length`.
    fn close(&mut self, path: &mut Vec<OpenCall>, length: usize) {
        for call in path.drain(length.min(path.len())..) {
            match self.open.get_mut(&call.function) {
                Some((_, count)) if *count > 1 => *count -= 1,
                _ => drop(self.open.remove(&call.function)),
            }
        }
    }

    /// Returns the node of a function called by `parent`; creates it if it is new.
    fn child(&mut self, flow: &Trace<'_>, parent: Option<usize>, function: FunctionId) -> usize {
        let Tree { tree: CallTree { nodes }, nodes: known, .. } = self;
        *known.entry((parent, function)).or_insert_with(|| {
            let (name, module) = flow.modules.names(function);
            let depth = parent.map_or(0, |parent| nodes[parent].depth + 1);
            nodes.push(CallNode {
                parent,
                depth,
                function: name,
                module,
                calls: 0,
                recursion: 0,
                instructions: 0,
                self_instructions: 0,
                time: None,
                waiting: None,
            });
            nodes.len() - 1
        })
    }

    /// Returns the tree in depth-first order.
    fn finish(self) -> CallTree {
        let nodes = self.tree.nodes;
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        let mut order: Vec<usize> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            match node.parent {
                Some(parent) => children[parent].push(index),
                None => order.push(index),
            }
        }
        let (mut sorted, mut places) = (Vec::new(), vec![0; nodes.len()]);
        order.reverse();
        while let Some(index) = order.pop() {
            places[index] = sorted.len();
            let parent = nodes[index].parent.map(|parent| places[parent]);
            sorted.push(CallNode { parent, ..nodes[index].clone() });
            order.extend(children[index].iter().rev());
        }
        CallTree { nodes: sorted }
    }
}

//! Compares slow executions with a typical one: which call paths executed more instructions.

use std::{cmp::Reverse, collections::BTreeMap, iter::Peekable, slice, sync::Arc};

use hodo_model::{Column, Shape, Summary, Table, Unit, Value};

use super::{CallNode, CallTree, Interval};
use crate::traces::cover;

/// The code that executed the extra instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The function itself.
    Own,
    /// Functions that it called.
    Callee,
    /// The kernel.
    Kernel,
}

impl Kind {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Own => "own code",
            Kind::Callee => "callees",
            Kind::Kernel => "kernel",
        }
    }
}

/// The instructions along a call path beyond those of the typical execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of callers above it.
    pub depth: usize,
    /// The function at its end.
    pub function: String,
    /// Its module.
    pub module: String,
    /// The kind of that function.
    pub kind: Kind,
    /// The most calls of the function that were open at once in an execution; above 1 if it is recursive.
    pub recursion: u64,
    /// Number of calls along the path in the typical execution.
    pub typical_calls: u64,
    /// The most calls along the path in a slow execution.
    pub slow_calls: u64,
    /// Number of instructions of the path in the typical execution, including callees.
    pub typical_instructions: u64,
    /// Number of executions that executed more than the typical one.
    pub executions: u64,
    /// The least and the most extra instructions of these executions, including callees.
    pub extra: (u64, u64),
    /// The least and the most extra instructions without callees.
    pub extra_self: (u64, u64),
    /// Sum over all executions of the extra instructions without callees; negative if they executed fewer.
    pub extra_self_total: i64,
    /// Sum over all executions of the extra nanoseconds without callees; `None` if a time is unknown.
    pub extra_self_time: Option<i64>,
    /// The part of that time off the CPU; `None` if the recording has no context switches.
    pub extra_self_waiting: Option<i64>,
}

/// Executions that are slow for the same reason: nearly all of their extra instructions lie along the same call path, or
/// this part of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The functions of the path, from the slow function on. The last one has at least 90 % of the extra instructions; if
    /// they divide among several callees, it is one of these.
    pub path: Vec<String>,
    /// Number of executions.
    pub executions: u64,
    /// The least and the most extra instructions of one of them, beyond those of the typical execution.
    pub extra: (u64, u64),
    /// The same of the function at the end of the path, including callees.
    pub extra_there: (u64, u64),
    /// The same of that function, without callees.
    pub extra_self: (u64, u64),
    /// Sum of their extra instructions; of a part of these, if they divide.
    pub total: u64,
    /// The calls of each function of the path.
    pub calls: Vec<Calls>,
}

/// The calls of a function on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// In the typical execution.
    pub typical: u64,
    /// The least and the most in a slow execution.
    pub slow: (u64, u64),
    /// The most that were open at once in a slow execution.
    pub recursion: u64,
}

impl Cause {
    /// Returns the path in words, with the depth of recursion: `sort_batch → quick_sort ×280 → split`.
    pub fn path_text(&self) -> String {
        let names = self.path.iter().zip(&self.calls).map(|(name, calls)| match calls.recursion {
            0 | 1 => name.clone(),
            depth => format!("{name} ×{depth}"),
        });
        names.collect::<Vec<_>>().join(" → ")
    }

    /// Adds executions that are slow for the same reason.
    fn join(&mut self, other: &Cause) {
        self.executions += other.executions;
        self.total = self.total.saturating_add(other.total);
        self.extra = cover(self.extra, other.extra);
        self.extra_there = cover(self.extra_there, other.extra_there);
        self.extra_self = cover(self.extra_self, other.extra_self);
        for (own, other) in self.calls.iter_mut().zip(&other.calls) {
            own.slow = cover(own.slow, other.slow);
            own.recursion = own.recursion.max(other.recursion);
        }
    }

    /// Returns the first function of the path that ran several times as often as in the typical execution.
    pub fn repeated(&self) -> Option<(&str, Calls)> {
        let calls = self.path.iter().zip(&self.calls).skip(1);
        let repeated = calls.filter(|(_, calls)| calls.slow.0 >= 2 * calls.typical.max(1));
        repeated.map(|(name, calls)| (name.as_str(), *calls)).next()
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Call paths in depth-first order; siblings with the most extra instructions first.
    pub paths: Vec<Difference>,
    /// Why executions ran more than the typical one, the most costly cause first.
    pub causes: Vec<Cause>,
    /// Sums over all executions, by kind.
    pub kinds: BTreeMap<Kind, ExtraSums>,
    /// Sum of the extra nanoseconds off the CPU over all executions; `None` if the recording has no context switches.
    pub waiting: Option<i64>,
}

/// Sums beyond the typical execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraSums {
    /// Instructions.
    pub instructions: i64,
    /// Nanoseconds, without the time off the CPU.
    pub time: i64,
}

/// The index of the typical execution.
const TYPICAL: usize = 0;

/// The name of a function, and that of its module.
type PathName = (Arc<str>, Arc<str>);

/// A call path, identified by the names of its functions. Addresses are ignored, so a call from another place is the
/// same path.
#[derive(Default)]
struct Path {
    children: BTreeMap<PathName, Path>,
    /// Figures by index of the execution: [`TYPICAL`], or that of a slow one from 1 on.
    by_execution: BTreeMap<usize, Figures>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    calls: u64,
    recursion: u64,
    instructions: u64,
    own: u64,
    /// Nanoseconds without callees.
    time: Option<u64>,
    /// The part of that time off the CPU.
    waiting: Option<u64>,
}

/// Returns the call trees of two executions as one tree, path by path in the order of [`compare`].
pub fn aligned(typical: &CallTree, slow: &CallTree) -> Table {
    let mut root = Path::default();
    root.add(TYPICAL, typical);
    root.add(1, slow);
    let columns = vec![
        Column::integer("depth", Unit::None),
        Column::name("function"),
        Column::name("module").secondary(),
        Column::integer("typical_calls", Unit::Count),
        Column::integer("slow_calls", Unit::Count),
        Column::integer("typical_instructions", Unit::Instructions),
        Column::integer("slow_instructions", Unit::Instructions),
        Column::integer("typical_self_instructions", Unit::Instructions),
        Column::integer("slow_self_instructions", Unit::Instructions),
    ];
    let mut rows = Vec::new();
    root.side_by_side(0, &mut rows);
    Table::new("aligned", Shape::Tree, Vec::new(), columns, rows)
}

/// Returns why slow executions ran more than a typical one, as [`compare`] does, without the paths.
pub fn causes(typical: &CallTree, slow: &[CallTree]) -> Compared {
    // One after the other: trees of many executions side by side would take much memory.
    let each = slow.iter().flat_map(|one| Path::of(typical, slice::from_ref(one)).causes_of(1));
    Compared { causes: joined(each), ..Compared::default() }
}

/// Compares the call trees of slow executions with that of a typical one.
pub fn compare(typical: &CallTree, slow: &[CallTree]) -> Compared {
    let root = Path::of(typical, slow);
    let mut compared = Compared::default();
    root.list(0, slow.len(), &mut compared.paths);
    compared.causes = joined((1..=slow.len()).flat_map(|index| root.causes_of(index)));
    for path in &compared.paths {
        let sums = compared.kinds.entry(path.kind).or_default();
        let waiting = path.extra_self_waiting;
        let running = path.extra_self_time.unwrap_or(0).saturating_sub(waiting.unwrap_or(0));
        sums.instructions = sums.instructions.saturating_add(path.extra_self_total);
        sums.time = sums.time.saturating_add(running);
        compared.waiting = sum(compared.waiting, waiting, i64::saturating_add);
    }
    compared
}

impl Compared {
    /// Returns the table of the paths, of `slow` executions beside a typical one.
    pub fn table(&self, slow: usize, typical: &Interval) -> Table {
        let mut summary: Summary = vec![
            ("slow_executions", (slow as u64).into()),
            ("typical_number", typical.number.into()),
            ("typical_thread", (&*typical.thread).into()),
            ("typical_instructions", typical.instructions.into()),
            ("typical_time_ns", typical.time.into()),
        ];
        for (kind, sums) in &self.kinds {
            let [instructions, time] = match kind {
                Kind::Own => ["extra_instructions_own_code", "extra_time_own_code_ns"],
                Kind::Callee => ["extra_instructions_callees", "extra_time_callees_ns"],
                Kind::Kernel => ["extra_instructions_kernel", "extra_time_kernel_ns"],
            };
            summary.extend([(instructions, sums.instructions.into()), (time, sums.time.into())]);
        }
        summary.extend(self.waiting.map(|time| ("extra_time_waiting_ns", time.into())));
        let mut columns = vec![
            Column::integer("depth", Unit::Count),
            Column::name("function"),
            Column::name("module").secondary(),
            Column::name("kind"),
            Column::integer("recursion", Unit::Count),
            Column::integer("typical_calls", Unit::Count),
            Column::integer("slow_calls", Unit::Count),
            Column::integer("typical_instructions", Unit::Count),
            Column::integer("executions", Unit::Count),
            Column::integer("extra_min", Unit::Count),
            Column::integer("extra_max", Unit::Count),
            Column::integer("extra_self_min", Unit::Count).secondary(),
            Column::integer("extra_self_max", Unit::Count).secondary(),
            Column::signed("extra_self_total", Unit::Count),
            Column::signed("extra_self_time_ns", Unit::Nanoseconds),
        ];
        let waiting =
            self.waiting.map(|_| Column::signed("extra_self_waiting_ns", Unit::Nanoseconds).secondary());
        columns.extend(waiting);
        let rows = self.paths.iter().map(|path| -> Vec<Value> {
            let mut row = vec![
                (path.depth as u64).into(),
                path.function.as_str().into(),
                path.module.as_str().into(),
                path.kind.name().into(),
                path.recursion.into(),
                path.typical_calls.into(),
                path.slow_calls.into(),
                path.typical_instructions.into(),
                path.executions.into(),
                path.extra.0.into(),
                path.extra.1.into(),
                path.extra_self.0.into(),
                path.extra_self.1.into(),
                path.extra_self_total.into(),
                path.extra_self_time.into(),
            ];
            row.extend(self.waiting.map(|_| path.extra_self_waiting.into()));
            row
        });
        Table::new("compare", Shape::Tree, summary, columns, rows.collect::<Vec<_>>())
    }

    /// Returns the table of the causes.
    pub fn causes_table(&self, summary: Summary) -> Table {
        let columns = vec![
            Column::integer("executions", Unit::Count),
            Column::integer("extra_min", Unit::Count),
            Column::integer("extra_max", Unit::Count),
            Column::integer("extra_there_min", Unit::Count),
            Column::integer("extra_there_max", Unit::Count),
            Column::integer("extra_self_min", Unit::Count).secondary(),
            Column::integer("extra_self_max", Unit::Count).secondary(),
            Column::integer("extra_total", Unit::Count),
            Column::text("path"),
            Column::name("repeated"),
            Column::integer("typical_calls", Unit::Count),
            Column::integer("calls_min", Unit::Count),
            Column::integer("calls_max", Unit::Count),
        ];
        let row = |cause: &Cause| -> Vec<Value> {
            let ranges = [cause.extra, cause.extra_there, cause.extra_self];
            let mut row: Vec<Value> = vec![cause.executions.into()];
            row.extend(ranges.into_iter().flat_map(|(least, most)| [least.into(), most.into()]));
            row.extend([cause.total.into(), cause.path_text().as_str().into()]);
            row.extend(match cause.repeated() {
                Some((name, Calls { typical, slow: (least, most), .. })) => {
                    [name.into(), typical.into(), least.into(), most.into()]
                }
                None => std::array::from_fn(|_| Value::Null),
            });
            row
        };
        Table::new(
            "causes",
            Shape::Counters,
            summary,
            columns,
            self.causes.iter().map(row).collect::<Vec<_>>(),
        )
    }
}

/// Adds two amounts, of which either may be unknown.
fn sum<N>(one: Option<N>, other: Option<N>, add: fn(N, N) -> N) -> Option<N> {
    match (one, other) {
        (Some(one), Some(other)) => Some(add(one, other)),
        (one, other) => one.or(other),
    }
}

/// Returns a time of each node, without that of its callees.
fn own_times(tree: &CallTree, time: fn(&CallNode) -> Option<u64>) -> Vec<Option<u64>> {
    let mut own: Vec<Option<u64>> = tree.nodes.iter().map(time).collect();
    for node in &tree.nodes {
        if let Some(parent) = node.parent {
            own[parent] = own[parent].zip(time(node)).map(|(all, part)| all.saturating_sub(part));
        }
    }
    own
}

/// Joins causes along the same path, the most costly first.
fn joined(each: impl Iterator<Item = Cause>) -> Vec<Cause> {
    let mut causes: BTreeMap<Vec<String>, Cause> = BTreeMap::new();
    for cause in each {
        match causes.get_mut(&cause.path) {
            Some(known) => known.join(&cause),
            None => drop(causes.insert(cause.path.clone(), cause)),
        }
    }
    let mut causes: Vec<Cause> = causes.into_values().collect();
    causes.sort_by_key(|cause| Reverse(cause.total));
    causes
}

impl Path {
    fn of(typical: &CallTree, slow: &[CallTree]) -> Path {
        let mut root = Path::default();
        for (index, tree) in [typical].into_iter().chain(slow).enumerate() {
            root.add(index, tree);
        }
        root
    }

    fn add(&mut self, index: usize, tree: &CallTree) {
        let times = own_times(tree, |node| node.time).into_iter().zip(own_times(tree, |node| node.waiting));
        let mut nodes = tree.nodes.iter().zip(times).peekable();
        self.add_below(index, 0, &mut nodes);
    }

    /// Adds the nodes of this depth that come next, each with those below it.
    fn add_below<'n>(
        &mut self,
        index: usize,
        depth: usize,
        nodes: &mut Peekable<impl Iterator<Item = (&'n CallNode, (Option<u64>, Option<u64>))>>,
    ) {
        while let Some((node, (time, waiting))) = nodes.next_if(|(node, _)| node.depth >= depth) {
            let name = (Arc::clone(&node.function), Arc::clone(&node.module));
            let path = self.children.entry(name).or_default();
            let figures = path.by_execution.entry(index).or_default();
            figures.calls += node.calls;
            figures.recursion = figures.recursion.max(node.recursion);
            figures.instructions += node.instructions;
            figures.own += node.self_instructions;
            figures.time = sum(figures.time, time, u64::saturating_add);
            figures.waiting = sum(figures.waiting, waiting, u64::saturating_add);
            path.add_below(index, depth + 1, nodes);
        }
    }

    fn side_by_side(&self, depth: u64, rows: &mut Vec<Vec<Value>>) {
        for ((function, module), path) in self.costliest_first(1) {
            let [typical, slow] =
                [TYPICAL, 1].map(|index| path.by_execution.get(&index).copied().unwrap_or_default());
            rows.push(vec![
                depth.into(),
                (&**function).into(),
                (&**module).into(),
                typical.calls.into(),
                slow.calls.into(),
                typical.instructions.into(),
                slow.instructions.into(),
                typical.own.into(),
                slow.own.into(),
            ]);
            path.side_by_side(depth + 1, rows);
        }
    }

    /// Returns the children, those with the most extra instructions first.
    fn costliest_first(&self, slow: usize) -> Vec<(&PathName, &Path)> {
        let mut children: Vec<_> = self.children.iter().collect();
        children.sort_by_key(|(name, path)| (Reverse(path.extra(slow)), (*name).clone()));
        children
    }

    /// Returns the sum of the extra instructions of all slow executions along the path.
    fn extra(&self, slow: usize) -> i128 {
        let typical = self.by_execution.get(&TYPICAL).map_or(0, |figures| figures.instructions);
        let all: u128 =
            self.by_execution.range(1..).map(|(_, figures)| u128::from(figures.instructions)).sum();
        all as i128 - i128::from(typical) * slow as i128
    }

    /// Returns the extra instructions of an execution along the path.
    fn extra_of(&self, index: usize) -> u64 {
        let ran = |index| self.by_execution.get(&index).map_or(0, |figures| figures.instructions);
        ran(index).saturating_sub(ran(TYPICAL))
    }

    /// Follows the extra instructions of an execution down to where no callee has 90 % of them all. If that is the slow
    /// function itself, its callees with at least 10 % are causes of their own.
    fn causes_of(&self, index: usize) -> Vec<Cause> {
        let Some((name, root)) = self.costliest_child(index) else { return Vec::new() };
        let all = root.extra_of(index);
        if all == 0 {
            return Vec::new();
        }
        let is_part = |extra: u64, percent: u128| u128::from(extra) * 100 >= u128::from(all) * percent;
        let (mut path, mut names, mut calls) = (root, vec![name.to_owned()], vec![root.calls_of(index)]);
        while let Some((name, child)) = path.costliest_child(index)
            && is_part(child.extra_of(index), 90)
        {
            names.push(name.to_owned());
            calls.push(child.calls_of(index));
            path = child;
        }
        let cause = |names: Vec<String>, calls, end: &Path, total| {
            let (there, own) = (end.extra_of(index), end.extra_self_of(index));
            let [extra, extra_there, extra_self] = [all, there, own].map(|extra| (extra, extra));
            Cause { path: names, executions: 1, extra, extra_there, extra_self, total, calls }
        };
        let own = path.extra_self_of(index);
        if names.len() > 1 || is_part(own, 90) {
            return vec![cause(names, calls, path, all)];
        }
        let parts = path.children.iter().filter(|(_, child)| is_part(child.extra_of(index), 10));
        let parts = parts.map(|((name, _), child)| {
            let names = names.iter().cloned().chain([name.to_string()]).collect();
            cause(names, vec![calls[0], child.calls_of(index)], child, child.extra_of(index))
        });
        let mut parts: Vec<Cause> = parts.collect();
        if parts.is_empty() || is_part(own, 10) {
            let total = if parts.is_empty() { all } else { own };
            parts.push(cause(names, calls, path, total));
        }
        parts
    }

    /// Returns the callee with the most extra instructions in an execution; of equal ones the first by name.
    fn costliest_child(&self, index: usize) -> Option<(&str, &Path)> {
        let children = self.children.iter().rev().map(|((name, _), child)| (&**name, child));
        children.max_by_key(|(_, child)| child.extra_of(index))
    }

    /// Returns the extra instructions of an execution without callees.
    fn extra_self_of(&self, index: usize) -> u64 {
        let own = |index| self.by_execution.get(&index).map_or(0, |figures| figures.own);
        own(index).saturating_sub(own(TYPICAL))
    }

    fn calls_of(&self, index: usize) -> Calls {
        let figures = |index| self.by_execution.get(&index).copied().unwrap_or_default();
        let (typical, slow) = (figures(TYPICAL), figures(index));
        Calls { typical: typical.calls, slow: (slow.calls, slow.calls), recursion: slow.recursion }
    }

    fn list(&self, depth: usize, slow: usize, reported: &mut Vec<Difference>) {
        for ((function, module), path) in self.costliest_first(slow) {
            reported.push(path.difference(depth, (&**function, &**module), slow));
            path.list(depth + 1, slow, reported);
        }
    }

    fn difference(&self, depth: usize, (function, module): (&str, &str), slow: usize) -> Difference {
        let typical = self.by_execution.get(&TYPICAL).copied().unwrap_or_default();
        let each = || (1..=slow).map(|index| self.by_execution.get(&index).copied().unwrap_or_default());
        let positive_extra = |figure: fn(&Figures) -> u64| -> Vec<u64> {
            let extra = each().map(|figures| figure(&figures).saturating_sub(figure(&typical)));
            extra.filter(|&extra| extra > 0).collect()
        };
        let least_and_most = |extra: &[u64]| {
            (extra.iter().min().copied().unwrap_or(0), extra.iter().max().copied().unwrap_or(0))
        };
        let extra = positive_extra(|figures| figures.instructions);
        let own = |figures: &Figures| i64::try_from(figures.own).unwrap_or(i64::MAX);
        let extra_self_total =
            each().fold(0i64, |sum, figures| sum.saturating_add(own(&figures) - own(&typical)));
        let extra_time = |time_of: fn(&Figures) -> Option<u64>| {
            let time = |figures: &Figures| i64::try_from(time_of(figures).unwrap_or(0)).unwrap_or(i64::MAX);
            let extra = each().fold(0i64, |sum, figures| sum.saturating_add(time(&figures) - time(&typical)));
            self.by_execution.values().all(|figures| time_of(figures).is_some()).then_some(extra)
        };
        let kind = match (module, depth) {
            (module, _) if module.contains("kernel") => Kind::Kernel,
            (_, 0) => Kind::Own,
            _ => Kind::Callee,
        };
        Difference {
            depth,
            function: function.to_owned(),
            module: module.to_owned(),
            kind,
            recursion: self.by_execution.values().map(|figures| figures.recursion).max().unwrap_or(0),
            typical_calls: typical.calls,
            slow_calls: each().map(|figures| figures.calls).max().unwrap_or(0),
            typical_instructions: typical.instructions,
            executions: extra.len() as u64,
            extra: least_and_most(&extra),
            extra_self: least_and_most(&positive_extra(|figures| figures.own)),
            extra_self_total,
            extra_self_time: extra_time(|figures| figures.time),
            extra_self_waiting: extra_time(|figures| figures.waiting),
        }
    }
}

#[cfg(test)]
mod tests;

//! Compares slow executions with a typical one: which call paths executed more instructions.

use std::collections::BTreeMap;

use super::CallTree;

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
    /// Number of calls along the path in the typical execution.
    pub typical_calls: u64,
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
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Call paths in depth-first order; siblings with the most extra instructions first.
    pub paths: Vec<Difference>,
    /// Sums of extra instructions and nanoseconds over all executions, by kind.
    pub kinds: Vec<(Kind, i64, i64)>,
}

/// A call path, identified by the names of its functions. Addresses are ignored, so a call from another place is the
/// same path.
#[derive(Default)]
struct Path {
    children: BTreeMap<(String, String), Path>,
    /// Figures by index of the execution; index 0 is the typical one.
    of: BTreeMap<usize, Figures>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    calls: u64,
    instructions: u64,
    own: u64,
    time: Option<u64>,
}

/// Compares the call trees of slow executions with that of a typical one.
pub fn compare(typical: &CallTree, slow: &[CallTree]) -> Compared {
    let mut root = Path::default();
    for (index, tree) in [typical].into_iter().chain(slow).enumerate() {
        root.add(index, tree);
    }
    let mut compared = Compared::default();
    let mut kinds: BTreeMap<Kind, (i64, i64)> = BTreeMap::new();
    root.tell(0, slow.len(), &mut compared.paths);
    for path in &compared.paths {
        let sums = kinds.entry(path.kind).or_default();
        sums.0 = sums.0.saturating_add(path.extra_self_total);
        sums.1 = sums.1.saturating_add(path.extra_self_time.unwrap_or(0));
    }
    compared.kinds =
        kinds.into_iter().map(|(kind, (instructions, time))| (kind, instructions, time)).collect();
    compared
}

impl Path {
    fn add(&mut self, index: usize, tree: &CallTree) {
        // A function's own time excludes that of its callees.
        let mut own_time: Vec<Option<u64>> = tree.nodes.iter().map(|node| node.time).collect();
        for node in &tree.nodes {
            if let Some(parent) = node.parent {
                own_time[parent] =
                    own_time[parent].zip(node.time).map(|(all, part)| all.saturating_sub(part));
            }
        }
        let mut names: Vec<(String, String)> = Vec::new();
        for (node, time) in tree.nodes.iter().zip(own_time) {
            names.truncate(node.depth);
            names.push((node.function.clone(), node.module.clone()));
            let path =
                names.iter().fold(&mut *self, |path, name| path.children.entry(name.clone()).or_default());
            let figures = path.of.entry(index).or_default();
            figures.calls += node.calls;
            figures.instructions += node.instructions;
            figures.own += node.self_instructions;
            figures.time = match (figures.time, time) {
                (Some(one), Some(other)) => Some(one + other),
                (one, other) => one.or(other),
            };
        }
    }

    /// Returns the sum of the extra instructions of all slow executions along the path.
    fn extra(&self, slow: usize) -> i128 {
        let typical = self.of.get(&0).map_or(0, |figures| figures.instructions);
        let all: u128 = self.of.range(1..).map(|(_, figures)| u128::from(figures.instructions)).sum();
        all as i128 - i128::from(typical) * slow as i128
    }

    fn tell(&self, depth: usize, slow: usize, told: &mut Vec<Difference>) {
        let mut children: Vec<_> = self.children.iter().collect();
        children.sort_by_key(|(name, path)| (std::cmp::Reverse(path.extra(slow)), (*name).clone()));
        for ((function, module), path) in children {
            told.push(path.difference(depth, (function.as_str(), module.as_str()), slow));
            path.tell(depth + 1, slow, told);
        }
    }

    fn difference(&self, depth: usize, (function, module): (&str, &str), slow: usize) -> Difference {
        let typical = self.of.get(&0).copied().unwrap_or_default();
        let each = || (1..=slow).map(|index| self.of.get(&index).copied().unwrap_or_default());
        let more = |of: fn(&Figures) -> u64| {
            let extra = each().map(move |figures| of(&figures).saturating_sub(of(&typical)));
            let extra: Vec<u64> = extra.filter(|&extra| extra > 0).collect();
            (
                extra.iter().min().copied().unwrap_or(0),
                extra.iter().max().copied().unwrap_or(0),
                extra.len() as u64,
            )
        };
        let (least, most, executions) = more(|figures| figures.instructions);
        let (least_self, most_self, _) = more(|figures| figures.own);
        let own = |figures: &Figures| i64::try_from(figures.own).unwrap_or(i64::MAX);
        let extra_self_total =
            each().fold(0i64, |sum, figures| sum.saturating_add(own(&figures) - own(&typical)));
        let is_known = self.of.values().all(|figures| figures.time.is_some());
        let time = |figures: &Figures| i64::try_from(figures.time.unwrap_or(0)).unwrap_or(i64::MAX);
        let extra_time =
            each().fold(0i64, |sum, figures| sum.saturating_add(time(&figures) - time(&typical)));
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
            typical_calls: typical.calls,
            typical_instructions: typical.instructions,
            executions,
            extra: (least, most),
            extra_self: (least_self, most_self),
            extra_self_total,
            extra_self_time: is_known.then_some(extra_time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::CallNode;

    fn node(parent: Option<usize>, depth: usize, function: &str, instructions: u64, own: u64) -> CallNode {
        let (function, module) = (function.to_owned(), "program".to_owned());
        CallNode {
            parent,
            depth,
            function,
            module,
            calls: 1,
            instructions,
            self_instructions: own,
            time: Some(instructions),
        }
    }

    #[test]
    fn what_only_some_executions_do_is_told_exactly() {
        let typical =
            CallTree { nodes: vec![node(None, 0, "serve", 100, 60), node(Some(0), 1, "hash", 40, 40)] };
        let grows = CallTree {
            nodes: vec![
                node(None, 0, "serve", 605, 65),
                node(Some(0), 1, "hash", 40, 40),
                node(Some(0), 1, "grow", 500, 500),
            ],
        };
        let hashes =
            CallTree { nodes: vec![node(None, 0, "serve", 107, 60), node(Some(0), 1, "hash", 47, 47)] };
        let compared = compare(&typical, &[grows.clone(), hashes, grows]);
        let told = |path: &Difference| (path.function.clone(), path.executions, path.extra, path.extra_self);
        let told: Vec<_> = compared.paths.iter().map(told).collect();
        let expected = [
            ("serve".to_owned(), 3, (7, 505), (5, 5)),
            ("grow".to_owned(), 2, (500, 500), (500, 500)),
            ("hash".to_owned(), 1, (7, 7), (7, 7)),
        ];
        assert_eq!(told, expected);
        assert_eq!(compared.kinds, [(Kind::Own, 10, 10), (Kind::Callee, 1007, 1007)]);
    }
}

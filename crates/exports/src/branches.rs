//! The rows of a table of branches.

use std::{cmp::Reverse, collections::BTreeMap};

use hodo_model::table::{Cell, RecordBatch, cells};

/// A pair of instructions of one module, by their addresses in its file, in order.
pub(crate) type Pair = (u64, u64);

/// The exact branch profile of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchProfile {
    /// Executions of taken branches with one side in the module, by their address and that of their target. A side in
    /// another module is `None`.
    pub taken: BTreeMap<(Option<u64>, Option<u64>), u64>,
    /// Executions of branches that were not taken, by their address and that of the next instruction.
    pub next: BTreeMap<Pair, u64>,
    /// Executions of straight-line code, by the addresses of its first and its last instruction.
    pub runs: BTreeMap<Pair, u64>,
}

/// The profiles of modules by name.
#[derive(Debug, Default)]
pub struct BranchProfiles(BTreeMap<String, BranchProfile>);

impl BranchProfiles {
    /// Adds the rows of a batch. Returns `false` if it lacks the columns of a table of branches.
    pub fn add(&mut self, batch: &RecordBatch) -> bool {
        let schema = batch.schema();
        let names = ["kind", "executions", "from", "to", "module", "to_module"];
        let indices: Vec<usize> = names.iter().filter_map(|name| schema.index_of(name).ok()).collect();
        let &[kind, executions, from, to, module, to_module] = &indices[..] else { return false };
        let columns = cells(batch);
        for row in 0..batch.num_rows() {
            let number = |column: usize| match columns[column].cell(row) {
                Cell::Integer(number) => number,
                _ => 0,
            };
            let text = |column: usize| match columns[column].cell(row) {
                Cell::Text(text) => text,
                _ => "",
            };
            let (executions, from, to) = (number(executions), number(from), number(to));
            let (module, to_module) = (text(module), text(to_module));
            match text(kind) {
                "taken" if module == to_module => {
                    add(&mut self.profile(module).taken, (Some(from), Some(to)), executions);
                }
                "taken" => {
                    add(&mut self.profile(module).taken, (Some(from), None), executions);
                    add(&mut self.profile(to_module).taken, (None, Some(to)), executions);
                }
                "next" => add(&mut self.profile(module).next, (from, to), executions),
                _ => add(&mut self.profile(module).runs, (from, to), executions),
            }
        }
        true
    }

    fn profile(&mut self, module: &str) -> &mut BranchProfile {
        if !self.0.contains_key(module) {
            self.0.insert(module.to_owned(), BranchProfile::default());
        }
        self.0.get_mut(module).expect("it was added")
    }

    /// Returns the names of the modules, the one with most executed code first.
    pub fn names(&self) -> Vec<&str> {
        let weight =
            |profile: &BranchProfile| profile.runs.values().fold(0, |sum: u64, &n| sum.saturating_add(n));
        let mut names: Vec<(u64, &str)> =
            self.0.iter().map(|(name, profile)| (weight(profile), name.as_str())).collect();
        names.sort_by_key(|&(weight, name)| (Reverse(weight), name));
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns the profile of the module with this name.
    pub fn get(&self, name: &str) -> Option<&BranchProfile> {
        self.0.get(name)
    }
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, executions: u64) {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(executions);
}

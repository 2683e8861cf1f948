//! Merges the call paths of both sides into one tree.

use std::collections::BTreeSet;

use hodo_model::{
    Table,
    table::{Cell, Cells, cells},
};
use rustc_hash::FxHashMap;

use crate::{
    Sides,
    identity::{Match, Modules, match_modules, own_name, without_clone},
    rename::renamed,
    sides::Side,
};

/// The cost of a node or function on one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Amount {
    /// Whether the side has the node or function.
    pub(crate) is_there: bool,
    pub(crate) instructions: u64,
    pub(crate) calls: u64,
    pub(crate) time: u64,
    /// Nonzero times by recording, sorted by recording.
    pub(crate) times: Vec<(u32, u64)>,
}

impl Amount {
    /// Adds what ran in a recording.
    fn add_run(&mut self, recording: u32, instructions: u64, time: u64) {
        self.is_there = true;
        self.instructions = self.instructions.saturating_add(instructions);
        self.time = self.time.saturating_add(time);
        if time > 0 {
            self.add_time(recording, time);
        }
    }

    fn add_time(&mut self, recording: u32, time: u64) {
        match self.times.binary_search_by_key(&recording, |(known, _)| *known) {
            Ok(index) => self.times[index].1 = self.times[index].1.saturating_add(time),
            Err(index) => self.times.insert(index, (recording, time)),
        }
    }

    pub(crate) fn add(&mut self, other: &Amount) {
        self.is_there |= other.is_there;
        self.instructions = self.instructions.saturating_add(other.instructions);
        self.calls = self.calls.saturating_add(other.calls);
        self.time = self.time.saturating_add(other.time);
        other.times.iter().for_each(|&(recording, time)| self.add_time(recording, time));
    }
}

/// A function of one or both sides.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// The name, without compilers' clone suffixes.
    pub(crate) name: String,
    /// The module; both modules if the sides differ.
    pub(crate) module: String,
    /// The function's names on each side.
    pub(crate) names: Sides<BTreeSet<String>>,
    /// Whether its names differ, and equal counts and neighbours say that it is one function.
    pub(crate) is_renamed: bool,
}

/// A function on one call path.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Index of the caller's node; a parent precedes its children.
    pub(crate) parent: Option<u32>,
    /// Index of the function.
    pub(crate) function: u32,
    pub(crate) amounts: Sides<Amount>,
}

/// The call paths of both sides.
#[derive(Debug, Default)]
pub(crate) struct Union {
    pub(crate) functions: Vec<Function>,
    pub(crate) nodes: Vec<Node>,
    /// Notes on matched modules and functions whose names differ.
    pub(crate) notes: Vec<String>,
}

/// The columns read from a table of paths.
struct PathColumns<'t> {
    depth: Cells<'t>,
    function: Cells<'t>,
    module: Cells<'t>,
    instructions: Cells<'t>,
    entries: Cells<'t>,
    time: Cells<'t>,
}

/// A row of a table of call paths. A row's caller is the last one before it with a smaller depth.
pub struct PathRow<'t> {
    /// The number of its callers.
    pub depth: usize,
    /// The function.
    pub function: &'t str,
    /// The file that the function is in.
    pub module: &'t str,
    /// Its own instructions on this path.
    pub instructions: u64,
    /// How often it was called on this path.
    pub entries: u64,
    /// Its own time on this path, in nanoseconds.
    pub time: u64,
}

/// Calls `each` with every row of a table of call paths.
///
/// # Panics
/// If the table does not hold call paths.
pub fn path_rows(table: &Table, mut each: impl FnMut(PathRow<'_>)) {
    let position = |name: &str| table.columns().iter().position(|column| column.name == name);
    for batch in table.batches() {
        let mut all: Vec<Option<Cells<'_>>> = cells(batch).into_iter().map(Some).collect();
        let mut column = |name: &str| {
            let cells = position(name).and_then(|index| all[index].take());
            cells.unwrap_or_else(|| panic!("the table `{}` has no column `{name}`", table.name()))
        };
        let columns = PathColumns {
            depth: column("depth"),
            function: column("function"),
            module: column("module"),
            instructions: column("self_instructions"),
            entries: column("entries"),
            time: column("self_time_ns"),
        };
        for row in 0..batch.num_rows() {
            let text = |cells: &Cells<'_>| match cells.cell(row) {
                Cell::Text(text) => text.to_owned(),
                _ => String::new(),
            };
            let number = |cells: &Cells<'_>| match cells.cell(row) {
                Cell::Integer(number) => number,
                _ => 0,
            };
            let (function, module) = (text(&columns.function), text(&columns.module));
            each(PathRow {
                depth: number(&columns.depth) as usize,
                function: &function,
                module: &module,
                instructions: number(&columns.instructions),
                entries: number(&columns.entries),
                time: number(&columns.time),
            });
        }
    }
}

impl Union {
    /// Builds the union of tables of call paths, one table per recording.
    ///
    /// # Panics
    /// If a table does not hold call paths.
    pub(crate) fn of(tables: Sides<&[Table]>) -> Union {
        let modules = tables.map(|tables| {
            let mut modules = Modules::new();
            for table in tables {
                path_rows(table, |row| {
                    let functions = modules.entry(row.module.to_owned()).or_default();
                    functions.insert(own_name(row.function, row.module).to_owned());
                });
            }
            modules
        });
        let matches = match_modules(modules);
        let by_names = Union::with(tables, &matches, Renames::default());
        let renames: Renames = renamed(&by_names)
            .into_iter()
            .map(|pair| {
                let [a, b] = [pair.a, pair.b].map(|function| &by_names.functions[function as usize]);
                ((b.module.clone(), b.name.clone()), a.name.clone())
            })
            .collect();
        if renames.is_empty() {
            return by_names;
        }
        let mut notes: Vec<String> = renames
            .iter()
            .map(|((_, b), a)| format!("{a} of A may be {b} of B: calls, callers and callees are equal"))
            .collect();
        notes.sort_unstable();
        let mut union = Union::with(tables, &matches, renames);
        union.notes.append(&mut notes);
        union
    }

    fn with(tables: Sides<&[Table]>, matches: &[Match], renames: Renames) -> Union {
        let union = Union { notes: matches.iter().filter_map(note).collect(), ..Union::default() };
        let mut builder = UnionBuilder {
            union,
            matches,
            renames,
            functions: FxHashMap::default(),
            nodes: FxHashMap::default(),
        };
        for (side, tables) in [(Side::A, tables.a), (Side::B, tables.b)] {
            let mut match_of_module: FxHashMap<String, usize> = FxHashMap::default();
            for (index, matched) in matches.iter().enumerate() {
                match_of_module.extend(matched.names.each().of(side).clone().map(|name| (name, index)));
            }
            for (recording, table) in (0u32..).zip(tables) {
                builder.add(table, recording, side, &match_of_module);
            }
        }
        builder.union
    }

    /// Returns the innermost frames of a path, at most `most`, the root first. In names, `;` is written as `\x3b`, as
    /// in folded text.
    pub(crate) fn path(&self, node: u32, most: usize) -> String {
        let above = |node: &u32| self.nodes[*node as usize].parent;
        let name = |node: u32| {
            self.functions[self.nodes[node as usize].function as usize].name.replace(';', "\\x3b")
        };
        let mut names: Vec<String> =
            std::iter::successors(Some(node), above).take(most + 1).map(name).collect();
        if names.len() > most {
            names[most] = "…".to_owned();
        }
        names.reverse();
        names.join(";")
    }
}

/// Returns a note on two modules that are matched in spite of different names.
fn note(matched: &Match) -> Option<String> {
    let (Some(a), Some(b)) = (&matched.names.a, &matched.names.b) else { return None };
    (a != b).then(|| {
        format!(
            "{a} of A is matched with {b} of B: {} executed functions have the same names",
            matched.shared
        )
    })
}

/// For the module and the name of a function of B, its name in A.
type Renames = FxHashMap<(String, String), String>;

/// A union under construction.
struct UnionBuilder<'m> {
    union: Union,
    matches: &'m [Match],
    renames: Renames,
    /// Function indices, by index of the module match and name.
    functions: FxHashMap<(usize, String), u32>,
    /// Node indices, by parent and function.
    nodes: FxHashMap<(Option<u32>, u32), u32>,
}

impl UnionBuilder<'_> {
    /// Adds a recording's table of paths. `match_of_module` has the index of the match of each module of the side.
    fn add(&mut self, table: &Table, recording: u32, side: Side, match_of_module: &FxHashMap<String, usize>) {
        // The nodes on the path of the previous row, with the names of its frames on this side.
        let mut path: Vec<(u32, String)> = Vec::new();
        path_rows(table, |row| {
            path.truncate(row.depth);
            let function = self.function(&row, side, match_of_module[row.module]);
            let above = path.last().map(|(node, name)| (*node, name.as_str()));
            // A part that the compiler split off (such as `.cold`) continues in the frame of its function.
            let is_part = above.is_some_and(|(node, name)| {
                self.union.nodes[node as usize].function == function && name != row.function
            });
            let node = match above {
                Some((node, _)) if is_part => node,
                _ => self.node(above.map(|(node, _)| node), function),
            };
            let amount = self.union.nodes[node as usize].amounts.of(side);
            amount.add_run(recording, row.instructions, row.time);
            amount.calls = amount.calls.saturating_add(if is_part { 0 } else { row.entries });
            path.push((node, row.function.to_owned()));
        });
    }

    /// Returns the index of a row's function; `module` is the index of its module's match.
    fn function(&mut self, row: &PathRow<'_>, side: Side, module: usize) -> u32 {
        let shown_module = match &self.matches[module].names {
            Sides { a: Some(a), b: Some(b) } if a != b => format!("{a} → {b}"),
            Sides { a: Some(name), .. } | Sides { b: Some(name), .. } => name.clone(),
            Sides { a: None, b: None } => String::new(),
        };
        let functions = &mut self.union.functions;
        let key = (shown_module, without_clone(row.function).to_owned());
        let old_name = self.renames.get(&key).filter(|_| side == Side::B);
        let name = old_name.map_or_else(|| own_name(row.function, row.module), String::as_str);
        let index = *self.functions.entry((module, name.to_owned())).or_insert_with(|| {
            let (module, name) = key.clone();
            functions.push(Function { name, module, names: Sides::default(), is_renamed: false });
            functions.len() as u32 - 1
        });
        functions[index as usize].is_renamed |= old_name.is_some();
        let names = functions[index as usize].names.of(side);
        if !names.contains(row.function) {
            names.insert(row.function.to_owned());
        }
        index
    }

    fn node(&mut self, parent: Option<u32>, function: u32) -> u32 {
        let nodes = &mut self.union.nodes;
        *self.nodes.entry((parent, function)).or_insert_with(|| {
            nodes.push(Node { parent, function, amounts: Sides::default() });
            u32::try_from(nodes.len() - 1).expect("fewer than 2^32 nodes")
        })
    }
}

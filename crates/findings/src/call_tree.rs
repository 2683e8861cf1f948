//! The call tree as rules read it: without the linker's stubs, and with the border between a program and its libraries.

use std::collections::{BTreeMap, HashMap};

use hodo_model::{Cell, Cells, Table, cells};

use crate::{Evidence, Need, Row};

/// The call tree of all threads.
pub(crate) const TREE: Need = ("tree", "");

/// Returns whether a function only jumps to the one that it is named after.
pub(crate) fn is_stub(function: &str) -> bool {
    function.ends_with("@plt")
}

/// Returns the name of a function of the library of C without the underscores and suffixes of its versions.
pub(crate) fn plain_name(function: &str) -> &str {
    let name = function.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    let name = name.strip_suffix("@plt").unwrap_or(name);
    name.strip_suffix("64").unwrap_or(name)
}

/// Functions that make the system call by which another program replaces the running one.
const REPLACES: &[&str] = &["execve", "execveat", "fexecve"];

/// Number of a name in its [`Tree`].
pub(crate) type NameId = u32;

/// A row of a call tree. Trees have up to millions of rows, and each rule visits all of them, so a row holds no text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeRow {
    pub(crate) function: NameId,
    pub(crate) module: NameId,
    pub(crate) depth: u32,
    pub(crate) entries: u64,
    pub(crate) recursion: u64,
    pub(crate) total_instructions: u64,
    pub(crate) self_instructions: u64,
    pub(crate) self_time_ns: u64,
    pub(crate) total_time_ns: u64,
    /// Time outside of the traced code: in system calls, or while others ran.
    pub(crate) outside_time_ns: u64,
    /// Whether it was entered by a jump, in place of the function before it.
    pub(crate) is_jumped: bool,
}

impl TreeRow {
    pub(crate) fn names(&self) -> [NameId; 2] {
        [self.function, self.module]
    }
}

/// A call tree.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    pub(crate) table: &'a Table,
    rows: Vec<TreeRow>,
    names: Names,
    /// The file of the program itself.
    program: Option<NameId>,
    /// By name, whether it is a module of the program's own code.
    is_own: Vec<bool>,
    /// By name, whether it is a function of the linker.
    is_stub: Vec<bool>,
    /// By name, whether it makes the system call that replaces a program by another.
    is_exec: Vec<bool>,
    /// By name, whether a program begins there.
    is_start: Vec<bool>,
}

/// The distinct names of functions and modules.
#[derive(Debug, Default)]
struct Names {
    texts: Vec<String>,
    ids: HashMap<String, NameId>,
}

impl Names {
    fn id(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.texts.len() as NameId;
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// A column of names in a batch, with the numbers of the names that it refers to.
struct NameColumn<'c, 'a> {
    cells: Option<&'c Cells<'a>>,
    /// By key of the batch's dictionary.
    known: Vec<Option<NameId>>,
}

impl<'c, 'a> NameColumn<'c, 'a> {
    fn new(cells: Option<&'c Cells<'a>>) -> NameColumn<'c, 'a> {
        NameColumn { cells, known: Vec::new() }
    }

    /// Returns the number of the name in a row; that of the empty one if it is unknown.
    fn id(&mut self, row: usize, names: &mut Names) -> NameId {
        let Some(cells) = self.cells else { return names.id("") };
        let Cell::Text(text) = cells.cell(row) else { return names.id("") };
        let Cells::Name(keys, _) = cells else { return names.id(text) };
        let key = keys.value(row) as usize;
        if self.known.len() <= key {
            self.known.resize(key + 1, None);
        }
        *self.known[key].get_or_insert_with(|| names.id(text))
    }
}

/// A function of the call tree, and those that called it.
#[derive(Clone, Copy)]
pub(crate) struct Node<'n, 't, 'a> {
    tree: &'t Tree<'a>,
    pub(crate) row: &'t TreeRow,
    /// Its callers without stubs, the outermost first.
    pub(crate) callers: &'n [&'t TreeRow],
    /// The number of the stub by which it was entered.
    pub(crate) stub: Option<usize>,
}

impl<'a> Tree<'a> {
    /// Reads a table of call paths.
    pub(crate) fn new(table: &'a Table) -> Tree<'a> {
        let (mut rows, mut names) = (Vec::with_capacity(table.row_count()), Names::default());
        let column = |name: &str| table.columns().iter().position(|column| column.name == name);
        for batch in table.batches() {
            let cells = cells(batch);
            let of = |name: &str| column(name).map(|index| &cells[index]);
            let [mut functions, mut modules, mut entered_by] =
                ["function", "module", "entered_by"].map(|name| NameColumn::new(of(name)));
            let numbers = [
                "depth",
                "entries",
                "recursion",
                "total_instructions",
                "self_instructions",
                "self_time_ns",
                "total_time_ns",
            ]
            .map(of);
            for row in 0..batch.num_rows() {
                let [
                    depth,
                    entries,
                    recursion,
                    total_instructions,
                    self_instructions,
                    self_time_ns,
                    total_time_ns,
                ] = numbers.map(|cells| integer(cells, row));
                let entered_by = entered_by.id(row, &mut names);
                rows.push(TreeRow {
                    function: functions.id(row, &mut names),
                    module: modules.id(row, &mut names),
                    depth: u32::try_from(depth).unwrap_or(u32::MAX),
                    entries,
                    recursion,
                    total_instructions,
                    self_instructions,
                    self_time_ns,
                    total_time_ns,
                    outside_time_ns: 0,
                    is_jumped: names.texts[entered_by as usize] == "jump",
                });
            }
        }
        add_outside_times(&mut rows);
        let [is_own, is_stub_function, is_exec, is_start] = [const { Vec::new() }; 4];
        let mut tree =
            Tree { table, rows, names, program: None, is_own, is_stub: is_stub_function, is_exec, is_start };
        tree.is_stub = tree.marked(is_stub);
        tree.is_exec = tree.marked(|name| REPLACES.contains(&name.trim_start_matches('_')));
        tree.is_start = tree.marked(|name| name == "_start");
        tree.program = tree.find_program();
        tree.is_own = tree.marked(is_jitted);
        if let Some(program) = tree.program {
            tree.is_own[program as usize] = true;
        }
        tree
    }

    /// Returns the rows, each before those that it called.
    pub(crate) fn rows(&self) -> &[TreeRow] {
        &self.rows
    }

    /// Returns a name.
    pub(crate) fn text(&self, id: NameId) -> &str {
        &self.names.texts[id as usize]
    }

    /// Returns whether a module is the program's own code.
    pub(crate) fn is_own(&self, module: NameId) -> bool {
        self.is_own[module as usize]
    }

    /// Returns by name whether it has a property.
    pub(crate) fn marked(&self, has: impl Fn(&str) -> bool) -> Vec<bool> {
        self.names.texts.iter().map(|text| has(text)).collect()
    }

    /// Returns the file of the program itself: the one that contains `main`. If that only starts what is in a library, as of
    /// Python, the library.
    pub(crate) fn program(&self) -> Option<&str> {
        self.program.map(|id| self.text(id))
    }

    fn find_program(&self) -> Option<NameId> {
        let name = *self.names.ids.get("main")?;
        let main = self.rows.iter().find(|row| row.function == name)?;
        let whole = main.total_instructions;
        let started = self.rows.iter().find(|row| {
            let is_most =
                row.total_instructions <= whole && row.total_instructions as f64 > whole as f64 * STARTED;
            let is_of_other = row.module != main.module && !self.is_stub[row.function as usize];
            is_most && row.entries == 1 && is_of_other
        });
        Some(started.unwrap_or(main).module).filter(|&module| !self.text(module).is_empty())
    }

    /// Visits the nodes without stubs, each before those that it called. A program that replaced another one (`execve`) has
    /// no callers.
    pub(crate) fn visit<'t>(&'t self, mut see: impl FnMut(Node<'_, 't, 'a>)) {
        let mut path: Vec<&TreeRow> = Vec::new();
        let mut stubs: Vec<(u32, usize)> = Vec::new();
        // Of the programs that replaced others on the path, the depths, and how many nodes come before them.
        let mut programs: Vec<(u32, usize)> = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            while path.last().is_some_and(|last| last.depth >= row.depth) {
                path.pop();
            }
            while stubs.last().is_some_and(|(depth, _)| *depth >= row.depth) {
                stubs.pop();
            }
            while programs.last().is_some_and(|(depth, _)| *depth >= row.depth) {
                programs.pop();
            }
            if self.is_stub[row.function as usize] {
                stubs.push((row.depth, index));
                continue;
            }
            let is_replaced = |caller: &&TreeRow| self.is_exec[caller.function as usize];
            if self.is_start[row.function as usize] && path.last().is_some_and(is_replaced) {
                programs.push((row.depth, path.len()));
            }
            let first = programs.last().map_or(0, |(_, first)| *first);
            let stub = stubs.last().filter(|(depth, _)| *depth + 1 == row.depth).map(|(_, stub)| *stub);
            see(Node { tree: self, row, callers: &path[first..], stub });
            path.push(row);
        }
    }
}

/// Sets the time of each row that neither its code nor its callees had.
fn add_outside_times(rows: &mut [TreeRow]) {
    let mut path: Vec<usize> = Vec::new();
    for row in rows.iter_mut() {
        row.outside_time_ns = row.total_time_ns.saturating_sub(row.self_time_ns);
    }
    for index in 0..rows.len() {
        let TreeRow { depth, total_time_ns, .. } = rows[index];
        while path.last().is_some_and(|&last| rows[last].depth >= depth) {
            path.pop();
        }
        if let Some(&caller) = path.last() {
            let outside = &mut rows[caller].outside_time_ns;
            *outside = outside.saturating_sub(total_time_ns);
        }
        path.push(index);
    }
}

/// Returns an integer; 0 if it is unknown or the column is missing.
fn integer(cells: Option<&Cells<'_>>, row: usize) -> u64 {
    match cells.map(|cells| cells.cell(row)) {
        Some(Cell::Integer(integer)) => integer,
        Some(Cell::Signed(integer)) => u64::try_from(integer).unwrap_or(0),
        _ => 0,
    }
}

/// A file whose `main` calls one function of a library once for this share of its instructions only starts a program.
const STARTED: f64 = 0.9;

/// Returns whether a module is the program's own code: the file that contains `main`, or what was compiled while it ran.
/// Not the runtime that a `main` only starts. Where no file has a `main`, all but shared libraries are the program's.
pub(crate) fn is_own(main: Option<&Row<'_>>, module: &str) -> bool {
    let is_file = main.map_or_else(|| !module.contains(".so"), |main| main.text("module") == module);
    is_file || is_jitted(module)
}

/// Returns whether a module is code that was compiled while the program ran.
fn is_jitted(module: &str) -> bool {
    module.starts_with("perf-") && module.ends_with(".map") || module.starts_with("jitted-")
}

impl<'t, 'a> Node<'_, 't, 'a> {
    /// Returns the name of its function.
    pub(crate) fn function(&self) -> &'t str {
        self.tree.text(self.row.function)
    }

    /// Returns the function by which the program entered a library, for what runs there, and the program's function that
    /// called it; the node itself and its caller elsewhere.
    pub(crate) fn entry(&self) -> (&'t TreeRow, Option<&'t TreeRow>) {
        let is_own = |row: &TreeRow| self.tree.is_own[row.module as usize];
        if !is_own(self.row)
            && let Some(caller) = self.callers.iter().rposition(|caller| is_own(caller))
        {
            let entry = self.callers.get(caller + 1).copied().unwrap_or(self.row);
            return (entry, Some(self.callers[caller]));
        }
        (self.row, self.callers.last().copied())
    }
}

/// Returns the function and the module of a row.
pub(crate) fn names<'r>(row: &'r Row<'_>) -> [&'r str; 2] {
    ["function", "module"].map(|name| row.text(name))
}

/// Returns what runs below a function, at any depth: how often each function was entered there, and its instructions
/// with those of its callees. Names are those of function and module.
pub(crate) fn callees(evidence: &Evidence<'_>, of: [&str; 2]) -> BTreeMap<[String; 2], (u64, u64)> {
    let mut callees = BTreeMap::<_, (u64, u64)>::new();
    for tree in evidence.trees() {
        let [Some(&function), Some(&module)] = of.map(|name| tree.names.ids.get(name)) else { continue };
        let mut of_tree = HashMap::<[NameId; 2], (u64, u64)>::new();
        tree.visit(|node| {
            let Some(at) = node.callers.iter().position(|caller| caller.names() == [function, module]) else {
                return;
            };
            // A recursive function contains its inner executions.
            if node.callers[at..].iter().any(|caller| caller.names() == node.row.names()) {
                return;
            }
            let callee = of_tree.entry(node.row.names()).or_default();
            callee.0 = callee.0.saturating_add(node.row.entries);
            callee.1 = callee.1.saturating_add(node.row.total_instructions);
        });
        for (names, (entries, total)) in of_tree {
            let callee = callees.entry(names.map(|name| tree.text(name).to_owned())).or_default();
            callee.0 = callee.0.saturating_add(entries);
            callee.1 = callee.1.saturating_add(total);
        }
    }
    callees
}

/// Returns whether a function is of a language's standard library, of which templates are compiled into programs.
fn is_of_language(function: &str) -> bool {
    let name = function.trim_start_matches('<').split(['<', '(']).next().unwrap_or_default();
    let name = name.rsplit(' ').next().unwrap_or_default();
    ["std::", "__gnu_cxx::", "core::", "alloc::"].iter().any(|space| name.starts_with(space))
}

/// Returns the program's own function for which a function of a library, or of the language's library, runs most of its
/// instructions; `None` if it is the program's own.
pub(crate) fn program_caller(evidence: &Evidence<'_>, function: &str) -> Option<String> {
    let (mut whole, mut callers) = (0u64, BTreeMap::<&str, u64>::new());
    for tree in evidence.trees() {
        let Some(&id) = tree.names.ids.get(function) else { continue };
        let is_of_language = tree.marked(is_of_language);
        let is_own = |row: &TreeRow| tree.is_own(row.module) && !is_of_language[row.function as usize];
        tree.visit(|node| {
            if node.row.function != id || is_own(node.row) {
                return;
            }
            whole = whole.saturating_add(node.row.total_instructions);
            if let Some(caller) = node.callers.iter().rfind(|caller| is_own(caller)) {
                let of_caller = callers.entry(tree.text(caller.function)).or_default();
                *of_caller = of_caller.saturating_add(node.row.total_instructions);
            }
        });
    }
    let (caller, total) = callers.into_iter().max_by_key(|(_, total)| *total)?;
    (total > whole / 2).then(|| caller.to_owned())
}

/// Returns the callee of a function that has most of the function's instructions, if one has more than half of them.
pub(crate) fn main_callee(evidence: &Evidence<'_>, function: &str) -> Option<String> {
    let (mut whole, mut callees) = (0u64, BTreeMap::<&str, u64>::new());
    for tree in evidence.trees() {
        let Some(&function) = tree.names.ids.get(function) else { continue };
        tree.visit(|node| {
            if node.row.function == function {
                whole = whole.saturating_add(node.row.total_instructions);
            } else if node.callers.last().is_some_and(|caller| caller.function == function) {
                let of_callee = callees.entry(node.function()).or_default();
                *of_callee = of_callee.saturating_add(node.row.total_instructions);
            }
        });
    }
    let (callee, total) = callees.into_iter().max_by_key(|(_, total)| *total)?;
    (total > whole / 2).then(|| callee.to_owned())
}

//! The call tree as rules read it: without the linker's stubs, and with the border between a program and its libraries.

use std::collections::BTreeMap;

use crate::{Evidence, Need, Row};

/// The call tree of all threads.
pub(crate) const TREE: Need = ("tree", "");

/// Returns whether a function only jumps to the one that it is named after.
pub(crate) fn is_stub(function: &str) -> bool {
    function.ends_with("@plt")
}

/// A function of the call tree, and those that called it.
#[derive(Clone, Copy)]
pub(crate) struct Node<'n, 't, 'a> {
    pub(crate) row: &'t Row<'a>,
    /// Its callers without stubs, the outermost first.
    pub(crate) callers: &'n [&'t Row<'a>],
}

/// Visits the nodes of a call tree without stubs, each before those that it called.
pub(crate) fn visit<'t, 'a>(rows: &'t [Row<'a>], mut see: impl FnMut(Node<'_, 't, 'a>)) {
    let mut path: Vec<&Row<'a>> = Vec::new();
    for row in rows {
        let depth = row.integer("depth");
        while path.last().is_some_and(|last| last.integer("depth") >= depth) {
            path.pop();
        }
        if !is_stub(row.text("function")) {
            see(Node { row, callers: &path });
            path.push(row);
        }
    }
}

/// A file whose `main` calls one function of a library once for this share of its instructions only starts a program.
const STARTED: f64 = 0.9;

/// Returns the file of the program itself: the one that contains `main`. If that only starts what is in a library, as of
/// Python, the library. Rows are those of a call tree or of functions.
pub(crate) fn program<'t>(rows: &'t [Row<'_>]) -> Option<&'t str> {
    let main = rows.iter().find(|row| row.text("function") == "main")?;
    let whole = main.integer("total_instructions");
    let started = rows.iter().find(|row| {
        let total = row.integer("total_instructions");
        let entries = row.integer("entries").max(row.integer("calls").saturating_add(row.integer("jumps")));
        let is_most = total <= whole && total as f64 > whole as f64 * STARTED;
        is_most && entries == 1 && row.text("module") != main.text("module") && !is_stub(row.text("function"))
    });
    Some(started.unwrap_or(main).text("module")).filter(|module| !module.is_empty())
}

/// Returns whether a module is the program's own code: the file that contains `main`, or what was compiled while it ran.
/// Not the runtime that a `main` only starts. Where no file has a `main`, all but shared libraries are the program's.
pub(crate) fn is_own(functions: &[Row<'_>], module: &str) -> bool {
    let main = functions.iter().find(|row| row.text("function") == "main");
    let is_file = main.map_or_else(|| !module.contains(".so"), |main| main.text("module") == module);
    is_file || is_jitted(module)
}

/// Returns whether a module is code that was compiled while the program ran.
fn is_jitted(module: &str) -> bool {
    module.starts_with("perf-") && module.ends_with(".map") || module.starts_with("jitted-")
}

impl<'t, 'a> Node<'_, 't, 'a> {
    /// Returns the function by which the program entered a library, for what runs there, and the program's function that
    /// called it; the node itself and its caller elsewhere.
    pub(crate) fn entry(&self, program: Option<&str>) -> (&'t Row<'a>, Option<&'t Row<'a>>) {
        let is_own = |row: &Row<'_>| program == Some(row.text("module")) || is_jitted(row.text("module"));
        match self.callers.iter().rposition(|caller| is_own(caller)) {
            Some(caller) if !is_own(self.row) => {
                (self.callers.get(caller + 1).copied().unwrap_or(self.row), Some(self.callers[caller]))
            }
            _ => (self.row, self.callers.last().copied()),
        }
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
    visit(&evidence.rows(TREE), |node| {
        let Some(at) = node.callers.iter().position(|caller| names(caller) == of) else { return };
        // A recursive function contains its inner executions.
        if node.callers[at..].iter().any(|caller| names(caller) == names(node.row)) {
            return;
        }
        let callee = callees.entry(names(node.row).map(str::to_owned)).or_default();
        callee.0 = callee.0.saturating_add(node.row.integer("entries"));
        callee.1 = callee.1.saturating_add(node.row.integer("total_instructions"));
    });
    callees
}

/// Returns the callee of a function that has most of the function's instructions, if one has more than half of them.
pub(crate) fn main_callee(evidence: &Evidence<'_>, function: &str) -> Option<String> {
    let rows = evidence.rows(TREE);
    let (mut whole, mut callees) = (0u64, BTreeMap::<&str, u64>::new());
    visit(&rows, |node| {
        let total = node.row.integer("total_instructions");
        if node.row.text("function") == function {
            whole = whole.saturating_add(total);
        } else if node.callers.last().is_some_and(|caller| caller.text("function") == function) {
            let of_callee = callees.entry(node.row.text("function")).or_default();
            *of_callee = of_callee.saturating_add(total);
        }
    });
    let (callee, total) = callees.into_iter().max_by_key(|(_, total)| *total)?;
    (total > whole / 2).then(|| callee.to_owned())
}

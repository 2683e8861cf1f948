//! Memory that is allocated and freed all the time, by call path.

use std::collections::BTreeMap;

use crate::{
    Evidence, Finding, Rule,
    call_tree::{TREE, Tree, TreeRow},
    evidence::figure,
    link,
    numbers::Numbers,
    text::{self, share},
};

/// Functions that allocate memory, of the libraries of C, C++ and Rust.
const ALLOCATES: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "operator new(unsigned long)",
    "operator new[](unsigned long)",
    "operator new(unsigned long, std::align_val_t)",
    "_Znwm",
    "_Znam",
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
];
/// Functions that free it.
const FREES: &[&str] = &[
    "free",
    "cfree",
    "operator delete(void*)",
    "operator delete(void*, unsigned long)",
    "operator delete[](void*)",
    "operator delete[](void*, unsigned long)",
    "_ZdlPv",
    "_ZdlPvm",
    "_ZdaPv",
    "__rust_dealloc",
];
/// Largest acceptable share of the executed instructions.
const THRESHOLD: f64 = 0.3;
/// Least number of allocations.
const FEWEST: u64 = 1_000;

pub(crate) const RULE: Rule = Rule {
    name: "allocation",
    help: "allocating and freeing memory, by the program itself, takes more than 30 % of the executed instructions, with at least 1,000 allocations; the call path with most of it",
    needs: &[TREE],
    find,
};

/// What a call path allocated and freed.
#[derive(Default)]
struct Allocations {
    allocated: u64,
    freed: u64,
    instructions: u64,
}

impl Allocations {
    fn add(&mut self, entries: u64, instructions: u64, kind: Kind) {
        let count = match kind {
            Kind::Allocates => &mut self.allocated,
            Kind::Frees => &mut self.freed,
        };
        *count = count.saturating_add(entries);
        self.instructions = self.instructions.saturating_add(instructions);
    }
}

/// What a function of an allocator does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Allocates,
    Frees,
}

/// Where functions of the allocator jump to each other, as `operator delete(void*, unsigned long)` does to
/// `operator delete(void*)` and that to `free`: they have one caller, and are one call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Chain {
    callers: Vec<*const TreeRow>,
    stub: Option<usize>,
    kind: Kind,
}

/// Returns what a function of an allocator does; `None` for other functions. A version of Rust's has a hash in its name.
fn kind_of(function: &str) -> Option<Kind> {
    let name = match function.split_once("::__rust_") {
        Some((_, name)) => format!("__rust_{name}"),
        None => function.to_owned(),
    };
    let is_in = |names: &[&str]| names.contains(&name.as_str());
    if is_in(ALLOCATES) { Some(Kind::Allocates) } else { is_in(FREES).then_some(Kind::Frees) }
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    evidence.trees().iter().filter_map(of_tree).collect()
}

fn of_tree(tree: &Tree<'_>) -> Option<Finding> {
    let (mut all, mut paths) = (Allocations::default(), BTreeMap::<String, Allocations>::new());
    let mut add = |path: String, entries, instructions, kind| {
        all.add(entries, instructions, kind);
        paths.entry(path).or_default().add(entries, instructions, kind);
    };
    let mut chains: BTreeMap<Chain, (String, u64, u64)> = BTreeMap::new();
    let is_kind = tree.marked(|function| kind_of(function).is_some());
    tree.visit(|node| {
        if !is_kind[node.row.function as usize] {
            return;
        }
        let Some(kind) = kind_of(node.function()) else { return };
        let is_outermost = node.callers.iter().all(|caller| !is_kind[caller.function as usize]);
        // What a library allocates counts for the function that the program called.
        let is_direct = std::ptr::eq(node.entry().0, node.row);
        if !is_outermost || !is_direct {
            return;
        }
        let callers: Vec<&str> = node.callers.iter().map(|caller| tree.text(caller.function)).collect();
        let (path, entries, instructions) =
            (callers.join(" → "), node.row.entries, node.row.total_instructions);
        if !node.row.is_jumped {
            return add(path, entries, instructions, kind);
        }
        let callers = node.callers.iter().map(|caller| std::ptr::from_ref(*caller)).collect();
        let chain = Chain { callers, stub: node.stub, kind };
        let chain = chains.entry(chain).or_insert((path, 0, 0));
        // Each function of a chain ran at most as often as the chain was called.
        chain.1 = chain.1.max(entries);
        chain.2 = chain.2.saturating_add(instructions);
    });
    for (Chain { kind, .. }, (path, entries, instructions)) in chains {
        add(path, entries, instructions, kind);
    }
    let weight = share(all.instructions, figure(tree.table, "instructions"));
    let (path, most) = paths.iter().max_by_key(|(_, one)| one.instructions)?;
    (weight > THRESHOLD && all.allocated >= FEWEST).then(|| finding(weight, &all, path, most))
}

fn finding(weight: f64, all: &Allocations, path: &str, most: &Allocations) -> Finding {
    let mut numbers = Numbers::default();
    let calls = all.allocated.saturating_add(all.freed).max(1);
    let sentence = format!(
        "{} of the run is in malloc, free and the like (threshold {}): memory was allocated {} and freed {}, {} instructions \
         each. {} of that is for {}, which allocated {}{}.",
        numbers.percent("share", weight),
        numbers.percent("threshold", THRESHOLD),
        numbers.times("allocations", all.allocated),
        numbers.times("frees", all.freed),
        numbers.count("instructions_each", all.instructions / calls),
        numbers.percent("path_share", share(most.instructions, all.instructions)),
        {
            numbers.text("path", path);
            text::path(path)
        },
        numbers.times("path_allocations", most.allocated),
        match numbers.times("path_frees", most.freed) {
            // Others free it.
            _ if most.freed == 0 => String::new(),
            frees => format!(" and freed {frees}"),
        },
    );
    let (command, link) = ("report tree".to_owned(), link::flame());
    Finding { rule: RULE.name, weight, sentence, command, link, numbers: numbers.list() }
}

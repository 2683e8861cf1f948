//! Allocations, exceptions and recursion, by call path.

use hodo_findings::Finding;
use hodo_model::{Table, Value};

use super::{found, made};

/// A call tree: depth, function, all of its instructions, how often it was entered, and its most calls at once.
fn tree(rows: &[(u64, &str, u64, u64, u64)]) -> Table {
    let row = |&(depth, function, total, entries, recursion): &(u64, &str, u64, u64, u64)| -> [Value; 6] {
        let module = if function.starts_with("libc") || function == "malloc" { "libc" } else { "m" };
        [depth.into(), function.into(), module.into(), total.into(), entries.into(), recursion.into()]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
    let columns = ["depth", "function", "module", "total_instructions", "entries", "recursion"];
    made("tree", &[("instructions", 10_000)], &columns, &rows)
}

fn of_tree(rule: &str, tree: &Table) -> Option<Finding> {
    found(&[(("tree", ""), tree)]).into_iter().find(|finding| finding.rule == rule)
}

#[test]
fn allocations_are_counted_by_call_path() {
    let allocated = |instructions: u64, entries: u64| {
        let tree = tree(&[
            (0, "main", 10_000, 1, 1),
            (1, "make", instructions + 300, entries, 1),
            (2, "operator new(unsigned long)", instructions - 500, entries, 1),
            (3, "malloc", instructions - 600, entries, 1),
            (2, "free", 400, entries, 1),
            (1, "free", 100, 2, 1),
        ]);
        of_tree("allocation", &tree)
    };
    let finding = allocated(3_001, 1_000).expect("a finding");
    let expected = "30 % of the run is in malloc, free and the like (threshold 30 %): memory was allocated 1,000 times and freed \
                    1,002 times, 1 instructions each. 97 % of that is for main → make, which allocated 1,000 times and freed \
                    1,000 times.";
    assert_eq!(finding.sentence, expected);
    assert_eq!(allocated(3_000, 1_000), None);
    let of_library =
        tree(&[(0, "main", 10_000, 1, 1), (1, "libc_compile", 9_000, 20, 1), (2, "malloc", 8_000, 2_000, 1)]);
    assert_eq!(of_tree("allocation", &of_library), None, "the program called libc_compile");
    assert_eq!(allocated(3_001, 999), None);
}

#[test]
fn functions_of_the_allocator_that_jump_to_each_other_are_one_call() {
    let row = |depth: u64, function: &str, entered_by: &str, total: u64| -> [Value; 6] {
        let module = if depth == 0 { "m" } else { "libc" };
        let entries = if depth == 0 { 1 } else { 1_000u64 };
        let names = [function, module, entered_by].map(Value::from);
        let [function, module, entered_by] = names;
        [depth.into(), function, module, entered_by, total.into(), entries.into()]
    };
    let rows = [
        row(0, "main", "start", 10_000),
        row(1, "malloc", "call", 3_000),
        row(1, "operator delete(void*, unsigned long)@plt", "call", 3_000),
        row(2, "operator delete(void*, unsigned long)", "jump", 10),
        row(2, "operator delete(void*)", "jump", 10),
        row(2, "free", "jump", 2_980),
    ];
    let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
    let columns = ["depth", "function", "module", "entered_by", "total_instructions", "entries"];
    let tree = made("tree", &[("instructions", 10_000)], &columns, &rows);
    let finding = of_tree("allocation", &tree).expect("a finding");
    let expected = "memory was allocated 1,000 times and freed 1,000 times, 3 instructions each. 100 % of that is for main, which \
                    allocated 1,000 times and freed 1,000 times.";
    assert!(finding.sentence.ends_with(expected), "{}", finding.sentence);
}

#[test]
fn deep_recursion_is_named_with_its_depth() {
    let deep = |depth, total| {
        let tree = tree(&[(0, "main", 10_000, 1, 1), (1, "parse", total, 4_000, depth)]);
        of_tree("deep-recursion", &tree)
    };
    let finding = deep(501, 1_001).expect("a finding");
    let expected =
        "parse calls itself, up to 501 deep (threshold 500), from main: 4,000 calls with 10 % of the run. ";
    assert!(finding.sentence.starts_with(expected), "{}", finding.sentence);
    assert_eq!(deep(500, 5_000), None);
    assert_eq!(deep(501, 1_000), None);
}

#[test]
fn exceptions_name_who_throws_and_who_catches() {
    let row: [Value; 3] = ["_Unwind_RaiseException".into(), 5_100u64.into(), 10u64.into()];
    let columns = ["function", "total_instructions", "calls"];
    let functions = made("functions", &[("instructions", 10_000)], &columns, &[&row]);
    let tree = tree(&[
        (0, "main", 10_000, 1, 1),
        (1, "parse_or_zero", 9_000, 10, 1),
        (2, "parse", 9_000, 10, 1),
        (3, "__cxa_throw", 6_000, 9, 1),
        (4, "_Unwind_RaiseException", 6_000, 9, 1),
        (2, "__cxa_begin_catch", 10, 9, 1),
        (1, "other", 900, 1, 1),
        (2, "std::panicking::try", 600, 1, 1),
        (3, "__cxa_throw", 500, 1, 1),
        (3, "__cxa_begin_catch", 10, 1, 1),
    ]);
    let found = found(&[(("functions", ""), &functions), (("tree", ""), &tree)]);
    let expected = "Exceptions are thrown in a hot path, by parse 9 times of 10, and caught by parse_or_zero 9 times of 10: \
                    _Unwind_RaiseException ran 10 times and executed 5,100 instructions";
    assert!(found[0].sentence.starts_with(expected), "{found:?}");
}

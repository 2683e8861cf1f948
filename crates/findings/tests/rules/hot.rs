//! Where the run is spent.

use hodo_findings::Need;
use hodo_model::{Table, Value};

use super::{found, kinds, made, rules};

/// A call tree: depth, function, its own instructions, and how often it was entered. Names with `libc` are of a library.
fn tree(rows: &[(u64, &str, u64, u64)]) -> Table {
    let row = |(index, &(depth, function, own, entries)): (usize, &(u64, &str, u64, u64))| -> [Value; 6] {
        let module = match function {
            _ if function.starts_with("libc") => "libc",
            _ if function.starts_with("JS:") => "perf-7.map",
            _ if function.starts_with("Py") => "libpython",
            _ => "program",
        };
        let below = rows[index + 1..].iter().take_while(|below| below.0 > depth);
        let total = own + below.map(|below| below.2).sum::<u64>();
        [depth.into(), function.into(), module.into(), own.into(), entries.into(), total.into()]
    };
    let rows: Vec<_> = rows.iter().enumerate().map(row).collect();
    let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
    let columns = ["depth", "function", "module", "self_instructions", "entries", "total_instructions"];
    made("tree", &[("instructions", 1000)], &columns, &rows)
}

#[test]
fn what_is_hot_is_named_if_nothing_else_stands_out() {
    let hot = tree(&[(0, "main", 49, 0), (1, "append", 1, 200), (2, "strlen", 900, 200), (1, "copy", 50, 1)]);
    let sentences = |tables: &[(Need, &Table)]| -> Vec<String> {
        found(tables).into_iter().map(|finding| finding.sentence).collect()
    };
    let expected = [
        "90 % of the run is in strlen, called by append 200 times, 4 instructions each. Fewer calls would make it less.",
        "5.0 % of the run is in copy, called by main once, 50 instructions each. Less work in each call would make it less.",
    ];
    assert_eq!(sentences(&[(("tree", ""), &hot)]), expected);
    assert_eq!(rules(&[(("tree", ""), &hot)]), ["hot"; 2]);
    let slow = kinds([1500, 1500], [5, 80_000], 0.9, 5);
    assert_eq!(rules(&[(("tree", ""), &hot), (("latency", "instructions"), &slow)]), ["heavy-tail"]);
    let slow = kinds([1500, 1500], [5, 80_000], 0.3, 5);
    let both = rules(&[(("tree", ""), &hot), (("latency", "instructions"), &slow)]);
    assert_eq!(both, ["heavy-tail", "hot", "hot"], "a tail of less than half of the run hides nothing");
    let own = tree(&[(0, "main", 1000, 0)]);
    let expected =
        "100 % of the run is in main itself, 1,000 instructions. Less work there would make it less.";
    assert_eq!(sentences(&[(("tree", ""), &own)]), [expected]);
}

#[test]
fn what_a_library_runs_counts_for_the_function_that_the_program_called() {
    let tree = tree(&[
        (0, "libc_start", 10, 0),
        (1, "main", 90, 1),
        (2, "debug", 0, 20),
        (3, "libc_format@plt", 0, 20),
        (4, "libc_format", 300, 20),
        (5, "libc_digits", 600, 700),
    ]);
    let found = found(&[(("tree", ""), &tree)]);
    let expected = "90 % of the run is in libc_format, called by debug 20 times, 45 instructions each. Less work in each call would make it less.";
    assert_eq!(found[0].sentence, expected);
    assert!(found[1].sentence.starts_with("9.0 % of the run is in main"), "{found:?}");
}

#[test]
fn code_of_run_time_compilers_is_the_programs_own() {
    let tree =
        tree(&[(0, "main", 90, 0), (1, "JS:run", 10, 1), (2, "JS:find", 800, 20), (3, "libc_copy", 100, 20)]);
    let found = found(&[(("tree", ""), &tree)]);
    assert!(found[0].sentence.starts_with("80 % of the run is in JS:find, called by JS:run 20"), "{found:?}");
}

#[test]
fn a_program_may_be_in_a_library_that_main_starts() {
    let tree = |starts| {
        tree(&[
            (0, "main", 1, 0),
            (1, "Py_Main", 10, starts),
            (2, "PyList_Contains", 300, 20),
            (3, "PyObject_Compare", 689, 5_000),
        ])
    };
    let first = |starts| found(&[(("tree", ""), &tree(starts))]).swap_remove(0).sentence;
    assert!(first(1).contains("is in PyObject_Compare, called by PyList_Contains 5,000"), "{}", first(1));
    assert!(first(20).contains("is in Py_Main, called by main 20"), "{}", first(20));
}

//! Where the run is spent.

use hodo_findings::{Evidence, Need, further};
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

/// A call tree with times: depth, function, own instructions, entries, own time and that of callees. The run takes 1,000 ns.
fn timed(rows: &[(u64, &str, u64, u64, u64, u64)]) -> Table {
    let row =
        |&(depth, function, own, entries, time, total): &(u64, &str, u64, u64, u64, u64)| -> [Value; 7] {
            let module = if ["write", "pthread_join", "pthread_mutex_lock", "execve"].contains(&function) {
                "libc"
            } else {
                "program"
            };
            [
                depth.into(),
                function.into(),
                module.into(),
                own.into(),
                entries.into(),
                time.into(),
                total.into(),
            ]
        };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
    let columns =
        ["depth", "function", "module", "self_instructions", "entries", "self_time_ns", "total_time_ns"];
    made("tree", &[("instructions", 1000), ("time_ns", 200), ("outside_time_ns", 800)], &columns, &rows)
}

#[test]
fn system_calls_that_take_the_time_come_before_instructions() {
    let run = |name, outside: u64, calls: u64| {
        timed(&[
            (0, "main", 50, 0, 20, 100 + 100 + outside),
            (1, "format", 900, 5, 80, 80),
            (1, name, 50, calls, 100, 100 + outside),
        ])
    };
    let found = |tree: &Table| found(&[(("tree", ""), tree)]);
    let written = found(&run("write", 800, 200));
    let expected = "80 % of the time passes in system calls of write, called by main 200 times, 4 ns each, with 5.0 % of the \
                    instructions. Fewer calls would make it less.";
    assert_eq!(written[0].sentence, expected);
    let formats = "90 % of the instructions are in format (8.0 % of the time), called by main 5 times";
    assert!(written.iter().any(|finding| finding.sentence.starts_with(formats)), "{written:?}");
    assert!(!found(&run("write", 800, 99))[0].sentence.contains("system calls"), "one may have been slow");
    assert!(!found(&run("write", 249, 200))[0].sentence.contains("system calls"), "a quarter of the time");
    assert!(
        !found(&run("pthread_join", 800, 200))[0].sentence.contains("system calls"),
        "it waits by design"
    );
}

#[test]
fn a_program_that_replaced_another_is_none_of_its_callees() {
    let tree = timed(&[
        (0, "main", 90, 0, 0, 0),
        (1, "execve", 10, 1, 0, 0),
        (2, "_start", 100, 1, 0, 0),
        (3, "work", 800, 20, 0, 0),
    ]);
    let found = found(&[(("tree", ""), &tree)]);
    assert!(
        found[0].sentence.starts_with("80 % of the run is in work, called by _start 20 times"),
        "{found:?}"
    );
    assert!(found.iter().all(|finding| !finding.sentence.contains("execve")), "{found:?}");
}

#[test]
fn a_function_that_is_called_once_is_explained_by_its_lines() {
    let tree = tree(&[(0, "_start", 10, 0), (1, "main", 990, 1)]);
    let evidence = Evidence::new(vec![(("tree", ""), &tree)]);
    assert_eq!(further(&evidence), [("lines", "function")]);
    let often = self::tree(&[(0, "_start", 10, 0), (1, "main", 990, 101)]);
    assert_eq!(further(&Evidence::new(vec![(("tree", ""), &often)])), [], "its calls say why");
    let row = |line: &str, function: &str, instructions: u64| -> [Value; 4] {
        [line.into(), function.into(), "program".into(), instructions.into()]
    };
    let rows = [row("/x/d.c:6", "main", 200), row("/x/d.c:5", "main", 700), row("/x/d.c:9", "other", 900)];
    let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
    let lines = made("lines", &[], &["line", "function", "module", "instructions"], &rows);
    let found = found(&[(("tree", ""), &tree), (("lines", "function"), &lines)]);
    assert!(found[0].sentence.ends_with("Of that, 71 % at d.c:5, 20 % at d.c:6."), "{found:?}");
}

#[test]
fn a_template_of_the_languages_library_is_named_with_the_program_that_uses_it() {
    let tree = tree(&[
        (0, "main", 10, 0),
        (1, "fill", 10, 20),
        (2, "std::vector<int>::push_back(int)", 10, 20),
        (3, "void std::copy<int>(int*)", 970, 20),
    ]);
    let found = found(&[(("tree", ""), &tree)]);
    assert!(found[0].sentence.contains("called by std::vector<int>::push_back(int) 20 times"), "{found:?}");
    assert!(found[0].sentence.ends_with("It runs for fill."), "{found:?}");
}

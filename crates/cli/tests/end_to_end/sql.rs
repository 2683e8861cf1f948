//! `hodo sql` over fixtures: tables of the longest, calls, units, functions, files of statements, the shell, kept tables.

use std::{fs, io::Write, process::Stdio};

use serde_json::Value;

use crate::run::{Folder, Ran, command, fixture, hodo, wait};

fn sql(options: &[&str], input: &str, query: &str) -> Ran {
    hodo(&[&["sql", "-q"], options, &[input, query]].concat()).fine()
}

/// Returns the only integer of a query's result.
fn number(options: &[&str], input: &str, query: &str) -> u64 {
    let json = sql(&[options, &["--format", "json"]].concat(), input, query).json();
    json["rows"][0][0].as_u64().unwrap_or_else(|| panic!("{query}: {json}"))
}

/// Tables of the longest note how many rows there were, and the complete tables have all of them.
#[test]
fn tables_of_the_longest_note_what_they_lack() {
    let kernel = &fixture("ctf/lttng2.13-kernel");
    let period = ["--begin", "sched_switch", "--end", "sched_switch", "--match", "cpu"];
    for (report, options) in [("syscalls", &[][..]), ("irq", &[]), ("sched", &[]), ("periods", &period)] {
        let all = number(options, kernel, &format!("select count(*) from {report}_interval"));
        let shown = number(options, kernel, &format!("select count(*) from {report}_slowest"));
        // Delays of softirqs are no intervals of handlers.
        let which = if report == "irq" { " where kind <> 'raise'" } else { "" };
        let longest = |table: &str, which: &str| {
            let column = if (report, table) == ("sched", "slowest") { "latency_ns" } else { "duration_ns" };
            number(options, kernel, &format!("select max({column}) from {report}_{table}{which}"))
        };
        if shown == 100 && report != "irq" {
            assert!(all > 100, "{report}");
        }
        assert_eq!(longest("interval", ""), longest("slowest", which), "{report}");
        let query = format!("select * from {report}_slowest limit 1");
        let json = sql(&[options, &["--format", "json"]].concat(), kernel, &query).json();
        match json["summary"]["note"].as_str() {
            Some(note) => {
                let expected = format!("{report}_slowest: the 100 longest of ");
                assert!(shown == 100 && note.starts_with(&expected), "{note}");
                assert!(note.ends_with("; the view `interval` has all"), "{note}");
            }
            None => assert!(shown < 100 || all == 100, "{report}: {shown} of {all}"),
        }
        let text = hodo(&[&["report", report, "--by", "slowest", "-q"], options, &[kernel]].concat()).fine();
        assert_eq!(text.stdout.contains("  note "), !json["summary"]["note"].is_null(), "{}", text.stdout);
    }
    assert!(number(&[], kernel, "select count(*) from sched_interval") > 100, "some table is cut");
}

/// A heading loses `_ns` only if its values have a unit.
#[test]
fn a_unit_is_in_the_heading_or_in_the_values() {
    let kernel = &fixture("ctf/lttng2.13-kernel");
    let query =
        "select duration_ns, duration_ns * 2 as twice_ns from syscalls_interval order by 1 desc limit 1";
    let text = sql(&[], kernel, query).stdout;
    let headings = text.lines().find(|line| line.starts_with("duration"));
    assert_eq!(
        headings.map(|line| line.split_whitespace().collect()),
        Some(vec!["duration", "ns"]),
        "{text}"
    );
    let markdown = sql(&["--format", "markdown"], kernel, query).stdout;
    assert!(markdown.contains("| duration | twice ns |"), "{markdown}");
}

#[test]
fn functions_beyond_those_of_sqlite_are_there() {
    let kernel = &fixture("ctf/lttng2.13-kernel");
    let query = "select round(sqrt(pow(3, 2) + pow(4, 2)), 6) as five, floor(log10(1500)) as three,
        (select count(*) from generate_series(1, 7)) as seven,
        (select count(*) from syscalls where call regexp '^(read|write)$') as two";
    let json = sql(&["--format", "json"], kernel, query).json();
    assert_eq!(json["rows"][0], serde_json::json!([5.0, 3.0, 7, 2]), "{json}");
    let both = "select percentile(duration_ns, 0.9) = percentile(duration_ns, 90) from syscalls_interval";
    assert_eq!(number(&[], kernel, both), 1);
}

/// A part that was folded for the longest has not all of them.
#[test]
fn a_part_of_the_longest_does_not_claim_to_have_all() {
    let folder = Folder::new();
    let (kernel, part) = (&fixture("ctf/lttng2.13-kernel"), &folder.file("part"));
    hodo(&["fold", "-q", "sched", "--part", "1/1", "-o", part, kernel]).fine();
    let ran = hodo(&["merge", "--by", "interval", part]);
    assert!(ran.code == 2 && ran.stderr.contains("fold them with --by"), "{ran:?}");
    hodo(&["fold", "-q", "sched", "--by", "interval", "--part", "1/1", "-o", part, kernel]).fine();
    let merged: Value = hodo(&["merge", "--by", "interval", "--format", "json", part]).fine().json();
    let whole =
        hodo(&["report", "sched", "-q", "--by", "interval", "--format", "json", kernel]).fine().json();
    assert_eq!(merged, whole);
}

/// Each call has its caller, as `hodo script --calls` nests them.
#[test]
fn calls_have_their_callers() {
    let (flow, symfs) = (&fixture("perf/tiny.data"), &format!("--symfs={}", fixture("perf/symfs")));
    let calls = "select tid, depth, begin_ns as time_ns, end_ns, function, module, instructions, entered_by from calls";
    let table = sql(&[symfs, "--format", "jsonl"], flow, calls).stdout;
    let script = hodo(&["script", "--calls", "-q", "--format", "jsonl", symfs, flow]).fine().stdout;
    let rows = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    };
    let (table, script) = (rows(&table), rows(&script));
    assert!(script.len() > 1000, "{}", script.len());
    for (row, call) in table.iter().zip(&script) {
        for (name, value) in call.as_object().expect("a call is an object") {
            match name.as_str() {
                "is_open" => assert_eq!(row["end_ns"], Value::Null, "{row} {call}"),
                name => assert_eq!(&row[name], value, "{row} {call}"),
            }
        }
    }
    assert_eq!(table.len(), script.len());
    // A caller is one frame below, begins no later, and executes at least what it calls.
    let wrong = "select count(*) from calls c join calls p on p.id = c.parent
        where p.depth <> c.depth - 1 or p.function <> c.caller or p.begin_instructions > c.begin_instructions
        or p.begin_instructions + p.instructions < c.begin_instructions + c.instructions";
    assert_eq!(number(&[symfs], flow, wrong), 0);
    assert!(number(&[symfs], flow, "select count(*) from calls c join calls p on p.id = c.parent") > 1000);
    let sums = "select (select sum(self_instructions) from functions) = (select sum(self_instructions) from functions_thread)";
    assert_eq!(number(&[symfs], flow, sums), 1);
}

/// Files of statements come first; the shell answers statements that end with a semicolon.
#[test]
fn statements_come_from_files_and_from_the_shell() {
    let folder = Folder::new();
    let (kernel, views) = (&fixture("ctf/lttng2.13-kernel"), &folder.file("views.sql"));
    fs::write(views, "-- waits\ncreate view w as select * from states_interval where state = 'runnable'")
        .unwrap();
    let alone = number(&[], kernel, "select count(*) from states_interval where state = 'runnable'");
    assert_eq!(number(&["-f", views], kernel, "select count(*) from w"), alone);
    let both =
        hodo(&["sql", "-q", "--format", "json", kernel, "select 1 as one; select 2 as two"]).fine().json();
    assert_eq!((&both[0]["rows"], &both[1]["rows"]), (&serde_json::json!([[1]]), &serde_json::json!([[2]])));
    let wrong = hodo(&["sql", "-q", "-f", views, kernel, "select nix from w"]);
    assert!(
        wrong.code == 2 && wrong.stderr.contains("no such column: nix, at line 4, character 8"),
        "{wrong:?}"
    );
    let mut shell = command(&["sql", "-q", "--shell", "--format", "csv", "-f", views, kernel])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let typed = "select count(*) as n\nfrom w;\nselect nix;\n.tables\nselect 7 as seven";
    shell.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let ran = wait(shell).expect("it ends with its input").fine();
    assert!(ran.stdout.contains(&format!("n\n{alone}\n")) && ran.stdout.contains("seven\n7\n"), "{ran:?}");
    assert!(
        ran.stdout.lines().any(|line| line == "sched_switch") && ran.stderr.contains("no such column: nix")
    );
}

/// A second question reads a file; a changed input, another selection, or --no-cache reads the trace.
#[test]
fn tables_are_kept_until_an_input_changes() {
    let folder = Folder::new();
    let (flow, store) = (&folder.file("perf.data"), &folder.file("store"));
    fs::copy(fixture("perf/tiny.data"), flow).unwrap();
    let symfs = &format!("--symfs={}", fixture("perf/symfs"));
    let options = [symfs, "--store", store];
    let count = |options: &[&str]| number(options, flow, "select count(*) from calls");
    let all = count(&options);
    let files = || -> Vec<String> {
        let entries = fs::read_dir(format!("{store}/sql")).unwrap().map(|entry| entry.unwrap().path());
        let kept = entries.filter(|path| path.extension().is_some_and(|extension| extension == "arrow"));
        kept.map(|path| path.display().to_string()).collect()
    };
    let [file] = files().try_into().expect("one table is kept");
    // A file with less shows what is read: the file, and the trace only with --no-cache.
    let first = sql(
        &[symfs, "--store", &folder.file("other"), "--time", "0%-1%"],
        flow,
        "select count(*) from calls",
    );
    assert!(first.stdout.contains("count"), "{first:?}");
    let [other] = fs::read_dir(folder.path().join("other/sql"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "arrow"))
        .collect::<Vec<_>>()
        .try_into()
        .expect("one table is kept");
    fs::copy(other, &file).unwrap();
    assert!(count(&options) < all);
    assert_eq!(count(&[&options[..], &["--no-cache"]].concat()), all);
    assert_eq!(count(&[&options[..], &["--tid", "30171"]].concat()), all);
    assert_eq!(files().len(), 2);
    // The time of the last change is part of the identity.
    fs::File::options()
        .append(true)
        .open(flow)
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    assert_eq!(count(&options), all);
    assert_eq!(files().len(), 1);
}

//! `hodo sql` over fixtures: tables of the longest, units, and functions.

use serde_json::Value;

use crate::run::{Folder, Ran, fixture, hodo};

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

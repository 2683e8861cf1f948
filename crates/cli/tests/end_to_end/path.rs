//! `hodo path`: what a thread waited for.

use serde_json::Value;

use crate::run::{Folder, fixture, hodo, rows};

/// The rows of a view, by the names of columns, and the summary.
fn path(view: &str, arguments: &[&str]) -> (Vec<Value>, Value) {
    let table = hodo(&[&["path", "-q", "--format", "json", "--by", view], arguments].concat()).fine().json();
    (rows(&table), table["summary"].clone())
}

/// The wait, cause and thread of each row, the longest first.
fn causes(arguments: &[&str]) -> Vec<[String; 3]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (rows, _) = path("cause", arguments);
    rows.iter().map(|row| ["wait", "cause", "comm"].map(|name| text(&row[name]))).collect()
}

#[test]
fn an_inverted_priority_leads_to_the_thread_in_the_middle() {
    let trace = fixture("ctf/path-inversion");
    let (rows, summary) = path("cause", &["--thread", "subject", &trace]);
    let first = &rows[0];
    assert_eq!(
        (&first["wait"], &first["call"], &first["cause"]),
        (&"lock".into(), &"futex".into(), &"cpu".into())
    );
    assert_eq!(first["comm"], "low");
    assert!(first["detail"].as_str().unwrap().starts_with("middle ("), "{first:?}");
    assert!(first["share"].as_f64().unwrap() > 0.8, "{first:?}");
    assert_eq!((&summary["total_ns"], &summary["unknown_ns"]), (&summary["span_ns"], &0.into()));
    // Each piece begins where the one before ends.
    let (pieces, summary) = path("piece", &["--thread", "subject", &trace]);
    let number = |value: &Value| value.as_u64().unwrap();
    let begin = number(&summary["path_begin_ns"]);
    let end = pieces.iter().fold(begin, |now, piece| {
        assert_eq!(number(&piece["begin_ns"]), now);
        now + number(&piece["duration_ns"])
    });
    assert_eq!(end - begin, number(&summary["span_ns"]));
    // Any chunks and threads give the same.
    let cut = path("piece", &["--thread", "subject", "-j", "3", "--chunk-size", "1K", &trace]);
    assert_eq!(cut, (pieces, summary));
    let text = hodo(&["path", "-q", "--thread", "subject", &trace]).fine().stdout;
    assert!(
        text.contains("waits: lock (futex)") && text.contains("low (") && text.contains("middle ("),
        "{text}"
    );
}

#[test]
fn an_answer_from_the_network_leads_to_the_server() {
    let causes = causes(&["--thread", "subject", &fixture("ctf/path-network")]);
    let index_of = |wanted: [&str; 3]| causes.iter().position(|cause| *cause == wanted);
    assert_eq!(index_of(["data", "running", "server"]), Some(0), "{causes:?}");
    assert!(index_of(["data", "network", "subject"]).is_some(), "{causes:?}");
}

#[test]
fn a_window_is_a_part_of_the_path() {
    let trace = fixture("ctf/path-inversion");
    let (whole, _) = path("piece", &["--thread", "subject", &trace]);
    let (part, summary) = path("piece", &["--thread", "subject", "--from", "+0.03", "--to", "+0.05", &trace]);
    assert_eq!(summary["span_ns"], 20_000_000);
    assert_eq!(part.len(), 1, "{part:?}");
    let holds = whole.iter().find(|piece| piece["detail"] == part[0]["detail"] && piece["comm"] == "low");
    assert!(holds.is_some(), "{part:?}");
}

#[test]
fn a_board_names_the_urgent_task_of_its_slave() {
    let folder = Folder::new();
    let experiment = folder.file("board.toml");
    let traces =
        ["master", "slave-0", "slave-1", "slave-2"].map(|name| fixture(&format!("ctf/board/{name}")));
    let mut sync = vec!["sync", "-q", "-o", &experiment];
    sync.extend(traces.iter().map(String::as_str));
    hodo(&sync).fine();
    // The master sent pieces and waited for answers, which the slaves worked on.
    let (rows, summary) = path("cause", &[&experiment]);
    assert_eq!(summary["thread"], "master");
    assert_eq!(summary["total_ns"], summary["span_ns"]);
    for slave in 0..3 {
        let works = |row: &&Value| {
            row["host"] == format!("slave-{slave}") && row["cause"] == "running" && row["wait"] == "message"
        };
        assert!(rows.iter().any(|row| works(&row)), "{rows:?}");
    }
    let (rows, summary) = path("cause", &["--thread", "slave-1/sobel", &experiment]);
    assert_eq!(summary["thread"], "sobel of slave-1");
    let urgent = rows.iter().find(|row| row["detail"] == "urgent of slave-1");
    let urgent = urgent.unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!((&urgent["cause"], &urgent["comm"]), (&"cpu".into(), &"sobel".into()));
    for report in ["waits", "callstack", "messages"] {
        let text = hodo(&["report", report, "-q", &experiment]).fine().stdout;
        assert!(text.contains("slave-1"), "{text}");
    }
}

#[test]
fn a_thread_that_is_not_there_is_refused() {
    let trace = fixture("ctf/path-inversion");
    let ran = hodo(&["path", "-q", "--thread", "nobody", &trace]);
    assert!(ran.code == 2 && ran.stderr.contains("nobody") && ran.stderr.contains("report waits"), "{ran:?}");
    let ran = hodo(&["path", "-q", "--from", "+2", "--to", "+1", &trace]);
    assert!(ran.code == 2 && ran.stderr.contains("ends before it begins"), "{ran:?}");
    let ran = hodo(&["path", "-q", "--by", "tid", &trace]);
    assert!(ran.code == 2 && ran.stderr.contains("tree, cause, piece"), "{ran:?}");
}

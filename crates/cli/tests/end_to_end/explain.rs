//! `hodo explain`: findings, and the commands that show their evidence.

use std::path::Path;

use crate::run::hodo;

fn fixture(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    fixtures.join(name).to_string_lossy().into_owned()
}

#[test]
fn each_finding_says_how_to_see_it() {
    let input = fixture("ctf/lttng2.13-kernel");
    let text = hodo(&["explain", &input]).fine().stdout;
    assert!(text.starts_with(" 1. Interrupts come in a storm: hard virtio2-req.2 ran 44 times"), "{text}");
    let table = hodo(&["explain", "--format", "json", &input]).fine().json();
    let rows = table["rows"].as_array().expect("rows");
    assert_eq!(table["summary"]["findings"], rows.len());
    for row in rows {
        let command = row[3].as_str().expect("a command");
        let arguments: Vec<&str> = command.split(' ').chain([input.as_str()]).collect();
        hodo(&arguments).fine();
        assert!(text.contains(&format!("hodo {command} {input}")), "{text}");
    }
}

#[test]
fn a_quiet_span_has_no_findings() {
    let text = hodo(&["explain", "--time", "99.9%-100%", &fixture("ctf/ust2.16-ctf2")]).fine().stdout;
    assert!(text.starts_with("Nothing stands out: no number of "), "{text}");
}

#[test]
fn rules_are_listed_with_their_thresholds() {
    let list = hodo(&["explain", "--list"]).fine().stdout;
    assert!(list.contains("cpu-contention") && list.contains("20 %"), "{list}");
}

//! What is missing from the input.

use hodo_model::{Cause, Loss, Table};

use super::{found, made};

fn loss(cause: Cause, stream: &str) -> Loss {
    let detail = "it ends here".to_owned();
    Loss { stream: stream.to_owned(), cause, bytes: 0..0, time: None, count: 2, detail }
}

/// An empty table, with losses.
fn with(name: &'static str, figures: &[(&'static str, u64)], loss: Vec<Loss>) -> Table {
    let mut table = made(name, figures, &["tid"], &[]);
    table.loss = loss;
    table
}

#[test]
fn each_cause_of_a_loss_is_a_finding() {
    let flow = with("tree", &[], vec![loss(Cause::Corrupt, "tid 7"), loss(Cause::Corrupt, "tid 8")]);
    // Tables of one pass have the same losses.
    let events = with("syscalls", &[], vec![loss(Cause::CutShort, ""), loss(Cause::Corrupt, "tid 8")]);
    let found = found(&[(("tree", ""), &flow), (("syscalls", "call"), &events)]);
    let sentences: Vec<(&str, &str)> =
        found.iter().map(|finding| (finding.sentence.as_str(), finding.command.as_str())).collect();
    let expected = [
        (
            "A part of the input can't be read, and is in no finding: 4 times, first tid 7: it ends here.",
            "report functions",
        ),
        ("The input is cut short, and what follows is in no finding: 2 times, it ends here.", "report count"),
    ];
    assert_eq!(sentences, expected);
    assert!(found.iter().all(|finding| finding.rule == "lost" && finding.weight == 1.0));
}

#[test]
fn gaps_that_are_counted_already_are_one_finding() {
    let gaps = |loss| {
        let functions = with("functions", &[("gaps", 3), ("time_ns", 1), ("lost_time_ns", 1)], loss);
        found(&[(("functions", ""), &functions)]).len()
    };
    assert_eq!(gaps(vec![loss(Cause::Mismatch, "tid 7")]), 1);
    assert_eq!(gaps(vec![loss(Cause::Mismatch, "tid 7"), loss(Cause::CutShort, "")]), 2);
}

//! What is missing from the input.

use hodo_model::{Cause, Loss};

use crate::{
    Evidence, Finding, Need, Rule,
    call_tree::TREE,
    evidence::{FUNCTIONS, figure},
    link,
    numbers::Numbers,
    text::{self, share},
};

const EVENTS: Need = ("cpu", "thread");

pub(crate) const RULE: Rule = Rule {
    name: "lost",
    help: "what is missing: events and packets that the tracer lost, gaps in control flow, and parts of the input that are cut short or can't be read; threshold: any",
    needs: &[EVENTS, TREE],
    find,
};

/// Reports of control flow among those that rules read.
const OF_FLOW: &[&str] = &["functions", "tree", "threads", "latency"];
/// The longest detail of a loss in a sentence, in characters.
const DETAIL: usize = 120;

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in evidence.tables(EVENTS) {
        let (events, packets) = (figure(table, "events_lost"), figure(table, "packets_lost"));
        if events > 0 || packets > 0 {
            let mut numbers = Numbers::default();
            let mut lost = Vec::new();
            for (what, count) in [("events", events), ("packets", packets)] {
                let shown = numbers.count(what, count);
                if count > 0 {
                    lost.push(format!("{shown} {what}"));
                }
            }
            findings.push(Finding {
                rule: RULE.name,
                weight: 1.0,
                sentence: format!(
                    "The tracer lost {}; figures of the time around them are too small.",
                    lost.join(" and ")
                ),
                command: "report lost".to_owned(),
                link: link::table("lost", ""),
                numbers: numbers.list(),
            });
        }
    }
    for table in evidence.tables(FUNCTIONS) {
        let (gaps, lost) = (figure(table, "gaps"), figure(table, "lost_time_ns"));
        if gaps > 0 {
            let part = share(lost, lost + figure(table, "time_ns"));
            let mut numbers = Numbers::default();
            findings.push(Finding {
                rule: RULE.name,
                weight: part,
                sentence: format!(
                    "Control flow is missing in {} gaps of {} in all, {} of the traced time; `report functions` names their \
                     causes.",
                    numbers.count("gaps", gaps),
                    numbers.duration("lost_ns", lost),
                    numbers.percent("share", part)
                ),
                command: "report functions".to_owned(),
                link: link::table("functions", ""),
                numbers: numbers.list(),
            });
        }
    }
    // Gaps and lost events have their own findings.
    let is_counted = !findings.is_empty();
    for (cause, losses) in by_cause(evidence) {
        let is_of_input = matches!(cause, Cause::CutShort | Cause::Corrupt);
        if is_of_input || !is_counted {
            findings.push(of_cause(cause, &losses));
        }
    }
    findings
}

/// Returns the losses of each cause, with the report that lists them.
fn by_cause<'a>(evidence: &Evidence<'a>) -> Vec<(Cause, Vec<(Need, &'a Loss)>)> {
    let mut causes: Vec<(Cause, Vec<(Need, &Loss)>)> = Vec::new();
    for (need, loss) in evidence.losses() {
        match causes.iter_mut().find(|(cause, _)| *cause == loss.cause) {
            Some((_, losses)) => losses.push((need, loss)),
            None => causes.push((loss.cause, vec![(need, loss)])),
        }
    }
    causes
}

/// What the losses of a cause mean, as the begin of a sentence, and the weight. Of what is cut off nobody knows how much it
/// is, so it comes first.
fn meaning(cause: Cause) -> (&'static str, f64) {
    match cause {
        Cause::CutShort => ("The input is cut short, and what follows is in no finding", 1.0),
        Cause::Corrupt => ("A part of the input can't be read, and is in no finding", 1.0),
        Cause::Overflow | Cause::Truncated => ("The tracer lost data, which are in no finding", 0.0),
        Cause::Mismatch | Cause::MissingCode => {
            ("Control flow can't be decoded everywhere, for lack of the code that ran", 0.0)
        }
        Cause::Untraced => ("A program ran that was not traced, and is in no finding", 0.0),
        Cause::Untimed => ("The times of some control flow are unknown, so that it is left out", 0.0),
        Cause::UnrelatedClocks => {
            ("How the clocks of the inputs are related is unknown, and so is the order of their events", 0.0)
        }
    }
}

fn of_cause(cause: Cause, losses: &[(Need, &Loss)]) -> Finding {
    let (begin, weight) = meaning(cause);
    let mut numbers = Numbers::default();
    numbers.text("cause", cause.name());
    let count = losses.iter().fold(0, |sum: u64, (_, loss)| sum.saturating_add(loss.count));
    let times = numbers.times("count", count);
    let (need, loss) = losses[0];
    let detail = match loss.stream.is_empty() {
        true => loss.detail.clone(),
        false => format!("{}: {}", loss.stream, loss.detail),
    };
    let first = if losses.len() > 1 { "first " } else { "" };
    let report = if OF_FLOW.contains(&need.0) { "functions" } else { "count" };
    Finding {
        rule: RULE.name,
        weight,
        sentence: format!("{begin}: {times}, {first}{}.", text::cut(&detail, DETAIL)),
        command: format!("report {report}"),
        link: link::table(report, ""),
        numbers: numbers.list(),
    }
}

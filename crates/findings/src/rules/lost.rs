//! Data missing from the traces, which limits all other conclusions.

use crate::{Evidence, Finding, Rule, evidence::figure, link, numbers::Numbers, text::share};

pub(crate) const RULE: Rule = Rule {
    name: "lost",
    help: "events, packets or control flow that the traces lost; threshold: any",
    needs: &[("cpu", "thread"), ("functions", "")],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in evidence.tables(("cpu", "thread")) {
        let (events, packets) = (figure(table, "events_lost"), figure(table, "packets_lost"));
        if events > 0 || packets > 0 {
            let mut numbers = Numbers::default();
            findings.push(Finding {
                rule: RULE.name,
                weight: 1.0,
                sentence: format!(
                    "The tracer lost {} events and {} packets; figures of the time around them are too small.",
                    numbers.count("events", events),
                    numbers.count("packets", packets)
                ),
                command: "report lost".to_owned(),
                link: link::table("lost", ""),
                numbers: numbers.list(),
            });
        }
    }
    for table in evidence.tables(("functions", "")) {
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
    findings
}

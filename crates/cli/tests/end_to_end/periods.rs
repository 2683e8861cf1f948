//! Periods between any two kinds of events.

use crate::run::{Folder, fixture, hodo};

const HARD: [&str; 6] = ["--begin", "irq_handler_entry", "--end", "irq_handler_exit", "--match", "irq,cpu"];

fn periods(trace: &str, more: &[&str]) -> serde_json::Value {
    hodo(&[&["report", "periods", "-q", "--format", "json", trace], more].concat()).fine().json()
}

#[test]
fn periods_of_interrupts_are_what_the_analysis_of_interrupts_reports() {
    for trace in ["ctf/lttng2.13-kernel", "ctf/lttng2.16-kernel-ctf2"].map(fixture) {
        let irq = hodo(&["report", "irq", "-q", "--format", "json", &trace]).fine().json();
        let hard = periods(&trace, &HARD);
        assert_eq!(hard["summary"]["total_ns"], irq["summary"]["hard_ns"]);
        let soft = ["--begin", "irq_softirq_entry", "--end", "irq_softirq_exit", "--match", "vec,cpu"];
        let soft = periods(&trace, &[&soft[..], &["--group", "vec"]].concat());
        assert_eq!(soft["summary"]["total_ns"], irq["summary"]["soft_ns"]);
        let rows = irq["rows"].as_array().unwrap().iter().filter(|row| row[0] == "soft");
        // Rows of `irq` begin with kind, number and name, those of periods with the group; the figures are the same.
        let of_irq: Vec<_> =
            rows.map(|row| [row[1].to_string().into(), row[3].clone(), row[4].clone()]).collect();
        let rows = soft["rows"].as_array().unwrap().iter();
        let of_periods: Vec<_> = rows.map(|row| [0, 1, 2].map(|index| row[index].clone())).collect();
        assert_eq!(of_periods, of_irq);
    }
}

#[test]
fn one_event_ends_a_period_and_begins_another() {
    let trace = fixture("ctf/lttng2.13-kernel");
    let switch = ["--begin", "sched_switch where next_tid != 0", "--end", "sched_switch where prev_tid != 0"];
    let ran = periods(
        &trace,
        &[&switch[..], &["--match", "next_tid=prev_tid,cpu", "--group", "next_comm"]].concat(),
    );
    let cpu = hodo(&["report", "cpu", "-q", "--format", "json", &trace]).fine().json();
    // The analysis of CPU use also counts time before the first switch and after the last.
    let (ran, busy) = (&ran["summary"]["total_ns"], &cpu["summary"]["busy_ns"]);
    assert!(ran.as_u64().unwrap() > 0 && ran.as_u64() <= busy.as_u64(), "{ran} {busy}");
}

#[test]
fn periods_travel_in_parts() {
    let trace = fixture("ctf/lttng2.13-kernel");
    let folder = Folder::new();
    let fold = |part: &str, more: &[&str]| {
        let file = folder.file(&part.replace('/', "-"));
        let fixed = ["fold", "-q", "periods", "--part", part, "-o", &file, &trace];
        hodo(&[&fixed, &HARD[..], more].concat()).fine();
        file
    };
    let parts = ["1/3", "2/3", "3/3"].map(|part| fold(part, &["--chunk-size", "16K", "--group", "name"]));
    let merged = hodo(&["merge", &parts[1], &parts[2], &parts[0], "--by", "slowest", "--format", "json"]);
    assert_eq!(
        merged.fine().json(),
        periods(&trace, &[&HARD[..], &["--group", "name", "--by", "slowest"]].concat())
    );
    let other = fold("2/3", &["--chunk-size", "16K"]);
    let refused = hodo(&["merge", &parts[0], &other, &parts[2]]);
    assert!(refused.code == 2 && refused.stderr.contains("the definition of periods differs"), "{refused:?}");
}

#[test]
fn wrong_periods_are_refused() {
    let trace = fixture("ctf/lttng2.13-kernel");
    for (arguments, expected) in [
        (&[][..], "needs --begin EVENT and --end EVENT"),
        (&["--begin", "irq_handler_entry"], "need both"),
        (&["--begin", "nothing", "--end", "irq_handler_exit"], "--begin nothing: no event has such a name"),
        (&["--begin", "irq_handler_entry where x == 1", "--end", "irq_*"], "has the fields of its condition"),
        (
            &["--begin", "irq_handler_entry", "--end", "irq_handler_exit", "--match", "nothing"],
            "all fields of --match",
        ),
        (&["--begin", "irq_handler_entry where irq", "--end", "irq_handler_exit"], "condition"),
    ] {
        let ran = hodo(&[&["report", "periods", &trace], arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{ran:?}");
    }
    let ran = hodo(&[&["report", "cpu", &trace], &HARD[..]].concat());
    assert!(ran.code == 2 && ran.stderr.contains("hodo report periods"), "{ran:?}");
}

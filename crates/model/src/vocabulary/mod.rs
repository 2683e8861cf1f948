//! One vocabulary for events and fields that tracers name differently, so that one query fits every tracer.
//!
//! ```text
//!                  LTTng                 ftrace                perf
//! sched_switch     sched_switch          sched_switch          sched:sched_switch
//!   .prev_tid        prev_tid              prev_pid              prev_pid
//! syscall_entry_x  syscall_entry_x       sys_enter_x           syscalls:sys_enter_x
//! syscall_entry                          sys_enter             raw_syscalls:sys_enter
//! (context) tid    tid, vtid             common_pid            tid
//! ```
//!
//! The words are LTTng's, which distinguish threads (`tid`) from processes (`pid`). They serve queries only: output
//! keeps the tracer's own names, and queries accept those too.
//!
//! Sources: `instrumentation/events` of lttng-modules, and the format files of Linux 6.

pub mod system_calls;

use std::borrow::Cow;

/// The word for an event whose names differ between tracers by more than the rules in [`word`].
struct Event {
    word: &'static str,
    /// The names in ftrace and perf.
    others: &'static [&'static str],
    /// Pairs of the word for a field and its name in ftrace and perf.
    fields: &'static [(&'static str, &'static str)],
}

const fn event(
    word: &'static str,
    others: &'static [&'static str],
    fields: &'static [(&'static str, &'static str)],
) -> Event {
    Event { word, others, fields }
}

/// The field of the thread that an event is about.
const TID: &[(&str, &str)] = &[("tid", "pid")];

const EVENTS: &[Event] = &[
    event("sched_switch", &[], &[("prev_tid", "prev_pid"), ("next_tid", "next_pid")]),
    event("sched_wakeup", &[], TID),
    event("sched_wakeup_new", &[], TID),
    event("sched_waking", &[], TID),
    event("sched_migrate_task", &[], TID),
    event("sched_pi_setprio", &[], TID),
    event("sched_process_exec", &[], &[("tid", "pid"), ("old_tid", "old_pid")]),
    event("sched_process_exit", &[], TID),
    event("sched_process_fork", &[], &[("parent_tid", "parent_pid"), ("child_tid", "child_pid")]),
    event("sched_process_free", &[], TID),
    event("sched_process_wait", &[], TID),
    event("sched_stat_blocked", &[], TID),
    event("sched_stat_iowait", &[], TID),
    event("sched_stat_runtime", &[], TID),
    event("sched_stat_sleep", &[], TID),
    event("sched_stat_wait", &[], TID),
    event("irq_softirq_entry", &["softirq_entry"], &[]),
    event("irq_softirq_exit", &["softirq_exit"], &[]),
    event("irq_softirq_raise", &["softirq_raise"], &[]),
    event("timer_hrtimer_cancel", &["hrtimer_cancel"], &[]),
    event("timer_hrtimer_expire_entry", &["hrtimer_expire_entry"], &[]),
    event("timer_hrtimer_expire_exit", &["hrtimer_expire_exit"], &[]),
    event("timer_hrtimer_init", &["hrtimer_init", "hrtimer_setup"], &[]),
    event("timer_hrtimer_start", &["hrtimer_start"], &[]),
    event("kmem_mm_page_alloc", &["mm_page_alloc"], &[]),
    event("kmem_mm_page_free", &["mm_page_free"], &[]),
    event("net_if_receive_skb", &["netif_receive_skb"], &[]),
    event("preemptirq_irq_disable", &["irq_disable"], &[]),
    event("preemptirq_irq_enable", &["irq_enable"], &[]),
    event("x86_exceptions_page_fault_kernel", &["page_fault_kernel"], &[]),
    event("x86_exceptions_page_fault_user", &["page_fault_user"], &[]),
    event("syscall_entry", &["sys_enter"], &[]),
    event("syscall_exit", &["sys_exit"], &[]),
];

/// Words for context fields, and their names in tracers in the order of look-up.
const CONTEXTS: &[(&str, &[&str])] = &[
    ("tid", &["tid", "vtid", "common_pid"]),
    ("pid", &["pid", "vpid"]),
    ("cpu_id", &["cpu_id", "cpu"]),
    ("procname", &["procname", "comm"]),
];

/// Prefixes of system call names: the vocabulary's, and that of ftrace and perf.
const CALLS: [(&str, &str); 2] = [("syscall_entry_", "sys_enter_"), ("syscall_exit_", "sys_exit_")];

/// Strips the subsystem that perf prepends: `sched:sched_switch`. LTTng's user-space names, such as `app:request`,
/// lose their provider; names with `::`, as in C++, stay whole.
fn without_system(name: &str) -> &str {
    name.split_once(':').filter(|(_, event)| !event.contains(':')).map_or(name, |(_, event)| event)
}

/// The word for an event of any tracer, or the event's own name if there is no word for it.
pub fn word(name: &str) -> Cow<'_, str> {
    if let Some(event) = known(name) {
        return Cow::Borrowed(event.word);
    }
    let bare = without_system(name);
    let call = CALLS.iter().find_map(|(word, other)| Some(format!("{word}{}", bare.strip_prefix(other)?)));
    call.map_or(Cow::Borrowed(name), Cow::Owned)
}

/// The names that select an event: its own, the one without the subsystem, and the word.
pub fn names(name: &str) -> [Cow<'_, str>; 3] {
    [Cow::Borrowed(name), Cow::Borrowed(without_system(name)), word(name)]
}

/// The word for an event's field, given the tracer's name for it, if the two differ.
pub fn field_word(event: &str, name: &str) -> Option<&'static str> {
    let known = known(event)?;
    known.fields.iter().find_map(|&(word, other)| (other == name).then_some(word))
}

/// The names of an event in ftrace and perf, if they differ from the word.
pub fn others(word: &str) -> &'static [&'static str] {
    known(word).map_or(&[], |event| event.others)
}

fn known(event: &str) -> Option<&'static Event> {
    let bare = without_system(event);
    EVENTS.iter().find(|event| event.word == bare || event.others.contains(&bare))
}

/// The name of an event's field in ftrace and perf, if it differs from the word.
pub fn field(event: &str, field: &str) -> Option<&'static str> {
    known(event)?.fields.iter().find_map(|&(word, other)| (word == field).then_some(other))
}

/// The names of a context field in tracers, the word first. Empty for other fields.
pub fn context(field: &str) -> &'static [&'static str] {
    CONTEXTS.iter().find_map(|&(word, others)| (word == field).then_some(others)).unwrap_or_default()
}

/// The prefixes of single system calls that a generic event stands for (`sys_enter`: `syscall_entry_`, `sys_enter_`).
/// The event's field `id` is the call's number. `None` for other events.
pub fn every_call(name: &str) -> Option<[&'static str; 2]> {
    match without_system(name) {
        "sys_enter" => Some(CALLS[0].into()),
        "sys_exit" => Some(CALLS[1].into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracers_names_become_one_word() {
        for (name, expected) in [
            ("sched_switch", "sched_switch"),
            ("sched:sched_switch", "sched_switch"),
            ("softirq_entry", "irq_softirq_entry"),
            ("irq:softirq_entry", "irq_softirq_entry"),
            ("irq_softirq_entry", "irq_softirq_entry"),
            ("sys_enter_openat", "syscall_entry_openat"),
            ("syscalls:sys_exit_openat", "syscall_exit_openat"),
            ("raw_syscalls:sys_enter", "syscall_entry"),
            ("app:request", "app:request"),
            ("cpu-clock", "cpu-clock"),
        ] {
            assert_eq!(word(name), expected);
        }
    }

    #[test]
    fn fields_are_found_by_our_words() {
        assert_eq!(field("sched:sched_switch", "prev_tid"), Some("prev_pid"));
        assert_eq!(field("sched_wakeup", "tid"), Some("pid"));
        assert_eq!(field("sched_wakeup", "prio"), None);
        assert_eq!(context("tid"), ["tid", "vtid", "common_pid"]);
        assert!(context("prio").is_empty());
    }

    #[test]
    fn each_name_belongs_to_one_word() {
        let mut names: Vec<&str> =
            EVENTS.iter().flat_map(|event| event.others.iter().chain([&event.word])).copied().collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

//! One vocabulary for what tracers call by different names, so that a question is asked once.
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
//! The words are LTTng's, which tell threads (`tid`) from processes (`pid`). They are for asking: what is
//! shown keeps the tracer's own names, and those can be asked for too.
//!
//! Sources: lttng-modules' instrumentation/events, and the format files of Linux 6.

pub mod system_calls;

use std::borrow::Cow;

/// What an event is called here, where tracers differ in more than what `name` does by rule.
struct Event {
    word: &'static str,
    /// What ftrace and perf call it.
    others: &'static [&'static str],
    /// Our word for a field, and what ftrace and perf call it.
    fields: &'static [(&'static str, &'static str)],
}

const fn event(
    word: &'static str,
    others: &'static [&'static str],
    fields: &'static [(&'static str, &'static str)],
) -> Event {
    Event { word, others, fields }
}

/// A thread that something happens to.
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

/// Our words for fields of contexts, and what tracers call them, in the order in which to look.
const CONTEXTS: &[(&str, &[&str])] = &[
    ("tid", &["tid", "vtid", "common_pid"]),
    ("pid", &["pid", "vpid"]),
    ("cpu_id", &["cpu_id", "cpu"]),
    ("procname", &["procname", "comm"]),
];

/// The beginnings of names of system calls: ours, and those of ftrace and perf.
const CALLS: [(&str, &str); 2] = [("syscall_entry_", "sys_enter_"), ("syscall_exit_", "sys_exit_")];

/// A tracer's name without the system that perf puts before it: `sched:sched_switch`. LTTng's names of user
/// space, such as `app:request`, and those of C++ stay whole.
fn without_system(name: &str) -> &str {
    name.split_once(':').filter(|(_, event)| !event.contains(':')).map_or(name, |(_, event)| event)
}

/// Our word for an event, whatever tracer named it; its own name where we have none.
pub fn word(name: &str) -> Cow<'_, str> {
    if let Some(event) = known(name) {
        return Cow::Borrowed(event.word);
    }
    let bare = without_system(name);
    let call = CALLS.iter().find_map(|(word, other)| Some(format!("{word}{}", bare.strip_prefix(other)?)));
    call.map_or(Cow::Borrowed(name), Cow::Owned)
}

/// The names by which an event may be asked for: its own, that without a system, and our word.
pub fn names(name: &str) -> [Cow<'_, str>; 3] {
    [Cow::Borrowed(name), Cow::Borrowed(without_system(name)), word(name)]
}

/// Our word for what a tracer calls a field of an event, where that is another.
pub fn field_word(event: &str, name: &str) -> Option<&'static str> {
    let known = known(event)?;
    known.fields.iter().find_map(|&(word, other)| (other == name).then_some(word))
}

/// What ftrace and perf call an event, where that is not our word for it.
pub fn others(word: &str) -> &'static [&'static str] {
    known(word).map_or(&[], |event| event.others)
}

fn known(event: &str) -> Option<&'static Event> {
    let bare = without_system(event);
    EVENTS.iter().find(|event| event.word == bare || event.others.contains(&bare))
}

/// What a tracer calls a field of an event, where that is not our word for it.
pub fn field(event: &str, field: &str) -> Option<&'static str> {
    known(event)?.fields.iter().find_map(|&(word, other)| (word == field).then_some(other))
}

/// What tracers call a field of a context, our own word first; nothing for other fields.
pub fn context(field: &str) -> &'static [&'static str] {
    CONTEXTS.iter().find_map(|&(word, others)| (word == field).then_some(others)).unwrap_or_default()
}

/// How the name of an event begins that stands for every system call (`sys_enter`: `syscall_entry_`,
/// `sys_enter_`) with the call's number in its field `id`; `None` for other events.
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

//! The functions of a recorded kernel that work for the recorder.

/// The functions of Linux that make a record of a mapping, a name, a fork, an exit or a switch (`kernel/events/core.c`).
/// None of them calls another.
pub const RECORDERS_FUNCTIONS: [&str; 9] = [
    "perf_event_mmap",
    "perf_event_comm",
    "perf_event_exec",
    "perf_event_fork",
    "perf_event_exit_task",
    "perf_event_namespaces",
    "perf_event_ksymbol",
    "__perf_event_task_sched_in",
    "__perf_event_task_sched_out",
];

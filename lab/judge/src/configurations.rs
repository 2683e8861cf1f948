//! The trace settings with which programs are recorded.

/// Trace settings, and the programs that are judged with them.
pub(super) struct Configuration {
    /// Its name on the command line and in the output.
    pub(super) name: &'static str,
    /// Its purpose.
    pub(super) what: &'static str,
    /// The event, in perf's syntax.
    pub(super) event: &'static str,
    /// The only file whose code is traced.
    pub(super) filter: Option<&'static str>,
    /// The programs; all if empty.
    programs: &'static [&'static str],
}

impl Configuration {
    /// Whether the program of this name is judged with these settings by default.
    pub(super) fn takes(&self, program: &str) -> bool {
        self.programs.is_empty() || self.programs.contains(&program)
    }
}

/// The C library, which every dynamic program enters and leaves all the time.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

pub(super) const CONFIGURATIONS: &[Configuration] = &[
    Configuration {
        name: "default",
        what: "TSC, MTC each 8 crystal ticks, PSB each 16 kB, returns compressed",
        event: "intel_pt//u",
        filter: None,
        programs: &[],
    },
    Configuration {
        name: "cyc",
        what: "a count of cycles with each packet",
        event: "intel_pt/cyc=1/u",
        filter: None,
        programs: &["ls", "sqlite3", "awk", "sh", "throws", "signals", "eight_threads", "static_pie", "fib"],
    },
    Configuration {
        name: "mtc-off",
        what: "no clock between TSC packets",
        event: "intel_pt/mtc=0/u",
        filter: None,
        programs: &["gzip", "eight_threads", "rusty", "slowpath", "threads"],
    },
    Configuration {
        name: "noretcomp",
        what: "a TIP for each return",
        event: "intel_pt/noretcomp/u",
        filter: None,
        programs: &["python3", "perl", "awk", "sh", "throws", "fib"],
    },
    Configuration {
        name: "psb-smallest",
        what: "a PSB each 2 kB",
        event: "intel_pt/psb_period=0/u",
        filter: None,
        programs: &["find", "gcc", "signals", "static_pie", "slowpath"],
    },
    Configuration {
        name: "psb-largest",
        what: "a PSB each 64 MB: one at the beginning",
        event: "intel_pt/psb_period=15/u",
        filter: None,
        programs: &["ls", "find", "sqlite3", "rusty", "threads"],
    },
    Configuration {
        name: "filter",
        what: "the C library alone: trace goes on and off",
        event: "intel_pt//u",
        filter: Some(LIBRARY),
        programs: &["gzip", "python3", "perl", "gcc", "sh", "eight_threads"],
    },
];

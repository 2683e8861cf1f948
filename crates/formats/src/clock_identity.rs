//! Identifies the clock of a trace's times, as far as the format records it, to detect that two traces have the same
//! clock.

use std::fmt;

use hodo_clock::PerfClock;

use crate::{
    events::{
        Trace,
        schema::{ClockClass, TraceClass},
    },
    recording::{RecorderData, Recording},
};

/// A kind of clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClockKind {
    /// The format does not record it.
    #[default]
    Unknown,
    /// A clock of the kernel, by its number for `clock_gettime(2)`: 1 is `CLOCK_MONOTONIC`.
    Posix(u32),
    /// The kernel's `sched_clock`: perf's default clock, and ftrace's clock `perf`.
    Perf,
    /// Another of ftrace's clocks, by name.
    Ftrace(String),
    /// The processor's time-stamp counter.
    Tsc,
    /// Virtual time that counts instructions, which is unrelated to any other clock.
    Virtual,
    /// A clock of which only the name is known.
    Named(String),
}

impl fmt::Display for ClockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let posix = |number| match number {
            0 => "CLOCK_REALTIME".to_owned(),
            1 => "CLOCK_MONOTONIC".to_owned(),
            4 => "CLOCK_MONOTONIC_RAW".to_owned(),
            7 => "CLOCK_BOOTTIME".to_owned(),
            11 => "CLOCK_TAI".to_owned(),
            number => format!("the kernel's clock {number}"),
        };
        match self {
            ClockKind::Unknown => f.write_str("an unknown clock"),
            ClockKind::Posix(number) => f.write_str(&posix(*number)),
            ClockKind::Perf => f.write_str("perf's clock"),
            ClockKind::Ftrace(name) => write!(f, "ftrace's clock `{name}`"),
            ClockKind::Tsc => f.write_str("the TSC"),
            ClockKind::Virtual => f.write_str("virtual time that counts instructions"),
            ClockKind::Named(name) => write!(f, "the clock `{name}`"),
        }
    }
}

/// The conversion of time-stamp counter ticks to times: `time = ((ticks * multiplier) >> shift) + zero`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TscScale {
    /// Nanoseconds per tick, times `2^shift`.
    pub multiplier: u64,
    /// Bits.
    pub shift: u64,
    /// Time at tick 0, in nanoseconds.
    pub zero: i128,
}

/// A clock, as far as a format identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockIdentity {
    /// What it is.
    pub kind: ClockKind,
    /// The host's name.
    pub host: Option<String>,
    /// Identifies a clock among those of its kind: LTTng's UUID of the boot, or a CTF clock's own identifier.
    pub uid: Option<String>,
    /// The time of the clock's zero, in nanoseconds since 1970.
    pub unix_zero: Option<i128>,
    /// The timestamp at the clock's zero, in nanoseconds.
    pub shown_zero: i128,
    /// The conversion from the time-stamp counter, if known.
    pub tsc: Option<TscScale>,
}

impl ClockIdentity {
    /// Returns the clock of a recording of control flow.
    pub fn of_recording(recording: &Recording<'_>) -> ClockIdentity {
        let mut identity = recording.clock_identity.clone();
        identity.tsc = recording.config.clock.map(TscScale::of);
        // Threads of an emulated processor have clocks of their own. Those of a machine have the clock of its kernel. The
        // counters of all machines have the same frequency, so the host's name identifies the machine.
        let is_virtual = |recorder: &RecorderData<'_>| {
            let notes = &recorder.notes;
            if notes.slowed { notes.counts_time } else { notes.cpus.is_empty() || identity.host.is_none() }
        };
        if recording.recorder.as_ref().is_some_and(is_virtual) {
            identity = ClockIdentity { kind: ClockKind::Virtual, tsc: None, ..identity };
        }
        identity
    }

    /// Returns the clock of a trace of events.
    pub fn of_trace(trace: &Trace<'_>) -> ClockIdentity {
        match &trace.clock_identity {
            Some(identity) => identity.clone(),
            None => ClockIdentity::of_class(&trace.class),
        }
    }

    /// Returns the clock that the metadata of a CTF trace describes.
    fn of_class(class: &TraceClass) -> ClockIdentity {
        let used = class.streams.values().find_map(|stream| stream.clock);
        let Some(clock) = class.clocks.get(used.unwrap_or(0)).filter(|_| !class.has_implied_clock) else {
            return ClockIdentity::default();
        };
        let is_lttng = class.environment_text("tracer_name").is_some_and(|name| name.starts_with("lttng"));
        let kind = match clock.name.as_str() {
            "monotonic" if is_lttng => ClockKind::Posix(1),
            // The module of `hodo record --engine machine --with lttng`.
            "perf" if is_lttng => ClockKind::Perf,
            name => ClockKind::Named(name.to_owned()),
        };
        let shown_zero = clock.cycles.nanos(0).0;
        ClockIdentity {
            kind,
            host: class.environment_text("hostname").map(str::to_owned),
            uid: clock.uid.clone(),
            // An origin of 1970 without an offset is a default value and not the clock's real origin.
            unix_zero: (clock.unix && shown_zero != 0).then_some(shown_zero),
            shown_zero,
            tsc: None,
        }
    }

    /// Returns the clock of an ftrace buffer; `system` is the output of `uname -a`, and `tsc` the conversion of clock
    /// `x86-tsc`.
    pub(crate) fn of_ftrace(
        clock: &ClockClass,
        system: Option<&str>,
        tsc: Option<TscScale>,
    ) -> ClockIdentity {
        let kind = match clock.name.as_str() {
            "" => ClockKind::Unknown,
            "mono" => ClockKind::Posix(1),
            "mono_raw" => ClockKind::Posix(4),
            "boot" => ClockKind::Posix(7),
            "tai" => ClockKind::Posix(11),
            "perf" => ClockKind::Perf,
            "x86-tsc" => ClockKind::Tsc,
            name => ClockKind::Ftrace(name.to_owned()),
        };
        let shown_zero = clock.cycles.nanos(0).0;
        ClockIdentity {
            kind,
            // As `uname` prints it: the name of the system, then that of the host.
            host: system.and_then(|system| system.split_whitespace().nth(1)).map(str::to_owned),
            uid: None,
            unix_zero: clock.unix.then_some(shown_zero),
            shown_zero,
            tsc: tsc.map(|tsc| TscScale { zero: tsc.zero + shown_zero, ..tsc }),
        }
    }
}

impl TscScale {
    /// The scale of perf's clock.
    pub(crate) fn of(clock: PerfClock) -> TscScale {
        TscScale {
            multiplier: clock.multiplier().into(),
            shift: clock.shift().into(),
            // Zeros wrap: one in the upper half lies before tick 0.
            zero: i128::from(clock.zero().cast_signed()),
        }
    }
}

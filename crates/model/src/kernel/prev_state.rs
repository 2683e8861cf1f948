//! Why a thread left its CPU: `prev_state` of `sched_switch`, whose codes differ between kernels.
//!
//! ```text
//!                     S  D  T  t   ended       parked  idle   preempted
//! up to Linux 3.8     1  2  4  8   16 32 64      –      –       512 (from 3.2)
//! 3.9 to 4.1          1  2  4  8   16 32 64     512     –      1024
//! 4.2 to 4.7          1  2  4  8   16 32 64     512   2|1024   2048
//! 4.8 to 4.13         1  2  4  8   16 32 64     512   2|1024   4096
//! from 4.14           1  2  4  8   16 32         64    128      256
//! ```
//!
//! Up to 4.13 the code is the thread's state as it is, so further bits may be set: 128 (`TASK_WAKEKILL`: a fatal signal
//! ends the wait too), 256 (`TASK_WAKING`), 2048 (`TASK_NEW`). Ended threads have `TASK_DEAD` (64) there, because their
//! exit state is not in the code. From 4.14 on the code is one bit of `TASK_REPORT`.
//!
//! Two series of kernels printed codes that their own format does not describe. Linux 4.14 recorded the number of the bit
//! (`efb40f588b43`): numbers with several bits (3, 5, 6, 7) are recognised; 8 is not, so an idle kernel thread counts as
//! stopped there. 4.15 and later recorded the next higher bit until `3054426dc68e`; those without that fix are recognised
//! by their idle threads, see [`StateCodes::shifted`].
//!
//! Sources: `include/linux/sched.h` and `include/trace/events/sched.h` of Linux 2.6.32 to 6.18; lttng-modules'
//! `instrumentation/events/sched.h`, which records the codes of the kernel, from 4.14 on in the form of later kernels.

use serde::{Deserialize, Serialize};

/// Why a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PrevState {
    /// It can still run: it was preempted, or yielded.
    Runnable,
    /// It waits; a signal ends the wait.
    Interruptible,
    /// It waits; no signal ends the wait, but for a fatal one where the kernel allows it.
    Uninterruptible,
    /// Stopped, traced or parked.
    Stopped,
    /// An idle kernel thread.
    Idle,
    /// It has ended.
    Ended,
    /// The code has no known meaning.
    Unknown,
}

impl PrevState {
    const ALL: [PrevState; 7] = [
        PrevState::Runnable,
        PrevState::Interruptible,
        PrevState::Uninterruptible,
        PrevState::Stopped,
        PrevState::Idle,
        PrevState::Ended,
        PrevState::Unknown,
    ];

    /// The number that stands for it in records.
    pub fn number(self) -> i64 {
        self as i64
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            PrevState::Runnable => "runnable",
            PrevState::Interruptible => "interruptible",
            PrevState::Uninterruptible => "uninterruptible",
            PrevState::Stopped => "stopped",
            PrevState::Idle => "idle",
            PrevState::Ended => "ended",
            PrevState::Unknown => "unknown",
        }
    }

    /// The state with a number.
    pub fn of(number: i64) -> PrevState {
        let index = usize::try_from(number).ok();
        index.and_then(|index| PrevState::ALL.get(index)).copied().unwrap_or(PrevState::Unknown)
    }
}

/// The codes of `prev_state` in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateCodes {
    bits: Bits,
    /// Bits that mark a thread which was preempted.
    preempted: u64,
    /// Whether a code is one of the bits, and never several: `TASK_REPORT`, from 4.14 on.
    is_report: bool,
    /// Whether codes are one bit higher than they should be.
    is_shifted: bool,
}

/// The bits of states. One state may have several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bits {
    all: u64,
    ended: u64,
    stopped: u64,
    idle: u64,
    uninterruptible: u64,
    /// With `uninterruptible`, the thread is idle.
    no_load: u64,
    interruptible: u64,
}

impl Bits {
    /// By letters of `TASK_STATE_TO_CHAR_STR`.
    fn of(bits: impl IntoIterator<Item = (u64, char)>) -> Bits {
        let mut letters = Bits::default();
        for (bit, letter) in bits {
            letters.all |= bit;
            match letter {
                'X' | 'Z' | 'x' => letters.ended |= bit,
                'T' | 't' | 'P' => letters.stopped |= bit,
                'I' => letters.idle |= bit,
                'D' => letters.uninterruptible |= bit,
                'N' => letters.no_load |= bit,
                'S' => letters.interruptible |= bit,
                _ => {}
            }
        }
        letters
    }
}

/// `TASK_REPORT` with `TASK_REPORT_IDLE`, and `TASK_REPORT_MAX`.
const REPORT: [(u64, char); 8] =
    [(1, 'S'), (2, 'D'), (4, 'T'), (8, 't'), (16, 'X'), (32, 'Z'), (64, 'P'), (128, 'I')];
const REPORT_MAX: u64 = 256;

/// The first kernel with a bit of states before 4.14, the bit, and its letter.
const STATES: [((u32, u32), u64, char); 12] = [
    ((2, 6), 1, 'S'),
    ((2, 6), 2, 'D'),
    ((2, 6), 4, 'T'),
    ((2, 6), 8, 't'),
    ((2, 6), 16, 'Z'),
    ((2, 6), 32, 'X'),
    ((2, 6), 64, 'x'),
    ((2, 6), 128, 'K'),
    ((2, 6), 256, 'W'),
    ((3, 9), 512, 'P'),
    ((4, 2), 1024, 'N'),
    ((4, 8), 2048, 'n'),
];

/// Codes that mean the same in all kernels.
const COMMON_CODES: [(u64, char); 6] = [(1, 'S'), (2, 'D'), (4, 'T'), (8, 't'), (16, 'Z'), (32, 'X')];

/// States by the number of the bit in [`REPORT`], from 1, that 4.14 recorded in place of the bit. `None` for numbers that
/// are also a bit.
const BY_BIT_NUMBER: [Option<PrevState>; 8] = [
    None,
    None,
    None,
    Some(PrevState::Stopped),
    None,
    Some(PrevState::Ended),
    Some(PrevState::Ended),
    Some(PrevState::Stopped),
];

impl StateCodes {
    /// The codes that an event's print format describes: bits with their letters, and the bits that are printed as `+`.
    pub fn of_format(bits: &[(u64, char)], preempted: u64) -> StateCodes {
        let is_report = bits.contains(&(128, 'I'));
        StateCodes { bits: Bits::of(bits.iter().copied()), preempted, is_report, is_shifted: false }
    }

    /// The codes of a kernel's release, such as `4.4.0-21-generic`; `None` if it does not begin with a version.
    pub fn of_release(release: &str) -> Option<StateCodes> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let version: (u32, u32) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        if version >= (4, 14) {
            return Some(StateCodes::of_format(&REPORT, REPORT_MAX));
        }
        let known = STATES.iter().filter(|(since, ..)| *since <= version);
        let bits = Bits::of(known.map(|&(_, bit, letter)| (bit, letter)));
        // The bit after the last one.
        let preempted = (bits.all + 1) & !1;
        Some(StateCodes { bits, preempted, is_report: false, is_shifted: false })
    }

    /// The codes by the names of an enumeration, as LTTng can record it. `None` if it does not name the states.
    ///
    /// The names are those of the kernel's constants, of which some share their value with codes that have no name. So
    /// only what distinguishes kernels is taken from them: the value of `TASK_DEAD`.
    pub fn of_names<'n>(names: impl Iterator<Item = (&'n str, i128)>) -> Option<StateCodes> {
        let (mut dead, mut last) = (None, None);
        for (name, value) in names {
            match name {
                "TASK_DEAD" => dead = Some(value),
                "TASK_STATE_MAX" => last = u64::try_from(value).ok(),
                _ => {}
            }
        }
        match dead? {
            64 => {
                let bits = STATES.iter().map(|&(_, bit, letter)| (bit, letter));
                let bits = Bits::of(bits.filter(|(bit, _)| last.is_none_or(|last| *bit < last)));
                Some(StateCodes { bits, preempted: last.unwrap_or(0), is_report: false, is_shifted: false })
            }
            _ => Some(StateCodes::of_format(&REPORT, REPORT_MAX)),
        }
    }

    /// The codes of an unknown kernel: only those that mean the same in all.
    pub fn of_any_kernel() -> StateCodes {
        StateCodes { bits: Bits::of(COMMON_CODES), preempted: 0, is_report: false, is_shifted: false }
    }

    /// Whether an idle CPU's code can show that the kernel recorded wrong codes.
    pub fn may_be_shifted(&self) -> bool {
        self.is_report
    }

    /// The codes of a kernel that recorded the next higher bit. There the code of an idle CPU's thread, which is always
    /// runnable, is 1 and not 0.
    #[must_use]
    pub fn shifted(self) -> StateCodes {
        StateCodes { is_shifted: true, ..self }
    }

    /// What a code means.
    #[inline]
    pub fn state(&self, code: i64) -> PrevState {
        if code == 0 { PrevState::Runnable } else { self.nonzero_state(code as u64) }
    }

    fn nonzero_state(&self, code: u64) -> PrevState {
        if self.is_shifted {
            // The codes for idle and for preempted are the same there. It counts as preempted, as few threads are idle in
            // this sense.
            return if code & (REPORT_MAX | 1) != 0 { PrevState::Runnable } else { self.of_bits(code >> 1) };
        }
        let rest = code & !self.preempted;
        let index = usize::try_from(rest).ok().filter(|_| self.is_report);
        match index.and_then(|index| BY_BIT_NUMBER.get(index).copied().flatten()) {
            _ if rest == 0 => PrevState::Runnable,
            Some(state) => state,
            None => self.of_bits(rest),
        }
    }

    fn of_bits(&self, code: u64) -> PrevState {
        let bits = &self.bits;
        let has = |bit: u64| code & bit != 0;
        if self.is_report && !has(bits.all) {
            // The kernel prints such codes as runnable. 4.14 marks a thread that was preempted with one.
            PrevState::Runnable
        } else if has(!bits.all) {
            PrevState::Unknown
        } else if has(bits.ended) {
            PrevState::Ended
        } else if has(bits.stopped) {
            PrevState::Stopped
        } else if has(bits.idle) || has(bits.uninterruptible) && has(bits.no_load) {
            PrevState::Idle
        } else if has(bits.uninterruptible) {
            PrevState::Uninterruptible
        } else if has(bits.interruptible) {
            PrevState::Interruptible
        } else {
            PrevState::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use PrevState::{Ended, Idle, Interruptible, Runnable, Stopped, Uninterruptible, Unknown};

    use super::*;

    /// What each kernel means by a code: release, code, state.
    const CASES: &[(&str, i64, PrevState)] = &[
        ("2.6.32-754.el6.x86_64", 64, Ended),
        ("2.6.32-754.el6.x86_64", 130, Uninterruptible),
        ("3.2.0-4-amd64", 512, Runnable),
        ("3.2.0-4-amd64", 64, Ended),
        ("3.10.0-1160.el7.x86_64", 1, Interruptible),
        ("3.10.0-1160.el7.x86_64", 2, Uninterruptible),
        ("3.10.0-1160.el7.x86_64", 132, Stopped),
        ("3.10.0-1160.el7.x86_64", 512, Stopped),
        ("3.10.0-1160.el7.x86_64", 1024, Runnable),
        ("3.10.0-1160.el7.x86_64", 64, Ended),
        ("4.4.0-21-generic", 0, Runnable),
        ("4.4.0-21-generic", 64, Ended),
        ("4.4.0-21-generic", 129, Interruptible),
        ("4.4.0-21-generic", 136, Stopped),
        ("4.4.0-21-generic", 1026, Idle),
        ("4.4.0-21-generic", 2048, Runnable),
        ("4.4.0-21-generic", 256, Unknown),
        ("4.9.0-19-amd64", 2048, Unknown),
        ("4.9.0-19-amd64", 4096, Runnable),
        ("4.13.0", 64, Ended),
        ("4.14.336", 64, Stopped),
        ("4.14.336", 128, Idle),
        ("4.14.336", 256, Runnable),
        ("4.14.0", 4096, Runnable),
        ("4.14.0", 5, Ended),
        ("4.14.0", 6, Ended),
        ("4.14.0", 7, Stopped),
        ("5.4.0-26-generic", 16, Ended),
        ("5.4.0-26-generic", 32, Ended),
        ("5.10.0", 2, Uninterruptible),
        ("6.1.0-56-amd64", 128, Idle),
        ("6.18.44", 256, Runnable),
        ("6.18.44", 8, Stopped),
    ];

    #[test]
    fn codes_are_those_of_the_kernel() {
        for &(release, code, state) in CASES {
            assert_eq!(StateCodes::of_release(release).unwrap().state(code), state, "{release} {code}");
        }
        assert_eq!(StateCodes::of_release("generic"), None);
        assert_eq!(StateCodes::of_release(""), None);
    }

    #[test]
    fn codes_that_differ_between_kernels_are_unknown_without_a_release() {
        let codes = StateCodes::of_any_kernel();
        let known = [0, 1, 2, 4, 8, 16, 32].map(|code| codes.state(code));
        assert_eq!(known, [Runnable, Interruptible, Uninterruptible, Stopped, Stopped, Ended, Ended]);
        for code in [64, 128, 256, 512, 1024, 1026, 2048, 4096, -1, i64::MIN] {
            assert_eq!(codes.state(code), Unknown, "{code}");
        }
    }

    #[test]
    fn the_value_of_task_dead_distinguishes_kernels() {
        let old = [("TASK_RUNNING", 0), ("TASK_DEAD", 64), ("TASK_PARKED", 512), ("TASK_STATE_MAX", 2048)];
        let codes = StateCodes::of_names(old.into_iter()).unwrap();
        assert_eq!([64, 1026, 2048].map(|code| codes.state(code)), [Ended, Idle, Runnable]);
        // The value that is called TASK_WAKEKILL is that of a thread which was preempted.
        let new = [("TASK_DEAD", 128), ("TASK_WAKEKILL", 256), ("TASK_STATE_MAX", 4096)];
        let codes = StateCodes::of_names(new.into_iter()).unwrap();
        assert_eq!([128, 256, 64].map(|code| codes.state(code)), [Idle, Runnable, Stopped]);
        assert_eq!(StateCodes::of_names([("on", 1)].into_iter()), None);
    }

    #[test]
    fn shifted_codes_are_one_bit_lower() {
        let codes = StateCodes::of_release("4.18.0").unwrap();
        assert!(codes.may_be_shifted());
        let codes = codes.shifted();
        let states = [1, 2, 4, 8, 32, 64, 128, 256].map(|code| codes.state(code));
        let expected = [Runnable, Interruptible, Uninterruptible, Stopped, Ended, Ended, Stopped, Runnable];
        assert_eq!(states, expected);
    }

    #[test]
    fn numbers_of_states_are_stable() {
        for (number, state) in (0..).zip(PrevState::ALL) {
            assert_eq!((state.number(), PrevState::of(number)), (number, state));
        }
        assert_eq!(PrevState::of(-1), Unknown);
    }
}

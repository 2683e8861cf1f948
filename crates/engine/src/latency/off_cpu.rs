//! When threads were off the CPU, by a recording's context switches.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_formats::recording::{Sideband, SidebandKind, Thread};

/// The times in which each thread was off the CPU.
#[derive(Debug)]
pub(super) struct OffCpu(BTreeMap<Thread, Vec<Absence>>);

/// A time off the CPU.
#[derive(Debug)]
struct Absence {
    from: Nanos,
    to: Nanos,
    /// Nanoseconds off the CPU before it.
    before: u64,
}

impl OffCpu {
    /// Reads context switches, which are in order of time. `None` if no thread leaves a CPU and comes back: the recording
    /// does not contain context switches then.
    pub(super) fn of<'s>(sideband: impl Iterator<Item = &'s Sideband<'s>>) -> Option<OffCpu> {
        let mut left: BTreeMap<Thread, Nanos> = BTreeMap::new();
        let mut absences: BTreeMap<Thread, Vec<Absence>> = BTreeMap::new();
        for Sideband { time, thread, kind, .. } in sideband {
            let Some(time) = *time else { continue };
            let back = match kind {
                SidebandKind::SwitchOut { next, .. } => {
                    left.entry(*thread).or_insert(time);
                    *next
                }
                SidebandKind::SwitchIn => Some(*thread),
                _ => None,
            };
            // Both the record of the thread before and its own record say that a thread is back: the first one counts.
            let Some((thread, from)) = back.and_then(|back| left.remove_entry(&back)) else { continue };
            let own = absences.entry(thread).or_default();
            let before = own.last().map_or(0, |last| last.before + (last.to.0 - last.from.0));
            own.push(Absence { from, to: time.max(from), before });
        }
        (!absences.is_empty()).then_some(OffCpu(absences))
    }

    /// Returns the number of nanoseconds between two times in which a thread was off the CPU.
    pub(super) fn within(&self, thread: Thread, from: Nanos, to: Nanos) -> u64 {
        let absences = self.0.get(&thread).map_or(&[][..], Vec::as_slice);
        let until = |time: Nanos| {
            let count = absences.partition_point(|absence| absence.from < time);
            let last = count.checked_sub(1).map(|last| &absences[last]);
            last.map_or(0, |last| last.before + (time.min(last.to).0 - last.from.0))
        };
        until(to).saturating_sub(until(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Thread = Thread { pid: 1, tid: 1 };
    const TWO: Thread = Thread { pid: 1, tid: 2 };

    fn record(time: u64, thread: Thread, kind: SidebandKind<'static>) -> Sideband<'static> {
        Sideband { time: Some(Nanos(time)), cpu: Some(0), thread, guest: None, kind }
    }

    fn out(next: Option<Thread>) -> SidebandKind<'static> {
        SidebandKind::SwitchOut { preempted: false, next }
    }

    #[test]
    fn time_off_the_cpu_is_between_leaving_and_coming_back() {
        let records = [
            record(0, ONE, SidebandKind::SwitchIn),
            record(10, ONE, out(Some(TWO))),
            // The record before this one says the same.
            record(12, TWO, SidebandKind::SwitchIn),
            record(30, TWO, out(Some(ONE))),
            record(50, ONE, out(None)),
            record(55, ONE, SidebandKind::SwitchIn),
            record(60, TWO, SidebandKind::SwitchIn),
        ];
        let off = OffCpu::of(records.iter()).expect("there are switches");
        let of_one = [(0, 10), (0, 15), (12, 20), (15, 100), (30, 50), (0, 100), (52, 53)]
            .map(|(from, to)| (from, to, off.within(ONE, Nanos(from), Nanos(to))));
        let expected =
            [(0, 10, 0), (0, 15, 5), (12, 20, 8), (15, 100, 20), (30, 50, 0), (0, 100, 25), (52, 53, 1)];
        assert_eq!(of_one, expected);
        assert_eq!(off.within(TWO, Nanos(0), Nanos(100)), 30);
        assert_eq!(off.within(Thread { pid: 2, tid: 2 }, Nanos(0), Nanos(100)), 0);
    }

    #[test]
    fn without_a_thread_that_comes_back_nothing_is_known() {
        let records = [record(0, ONE, SidebandKind::SwitchIn), record(9, ONE, out(None))];
        assert!(OffCpu::of(records.iter()).is_none());
    }
}

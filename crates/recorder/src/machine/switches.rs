//! Switches of threads, as the guest's kernel recorded them.

use hodo_clock::Nanos;
use hodo_formats::{
    perf::ring::RingRecord,
    recording::{SidebandKind, Thread},
};

/// A switch of threads on a CPU.
pub(super) struct ThreadSwitch {
    pub(super) cpu: u32,
    pub(super) time: Nanos,
    pub(super) from: Thread,
    pub(super) to: Thread,
}

/// The switches of threads among records.
pub(super) fn switches(records: &[RingRecord<'_>]) -> impl Iterator<Item = ThreadSwitch> {
    records.iter().filter_map(|record| {
        let said = record.sideband.as_ref()?;
        let SidebandKind::SwitchOut { next: Some(to), .. } = said.kind else { return None };
        let (cpu, time) = (record.cpu.unwrap_or(0), record.time.unwrap_or_default());
        Some(ThreadSwitch { cpu, time, from: said.thread, to })
    })
}

/// Gives each switch of a CPU the time at which the stack changes: the first change after the kernel's record, if the next
/// record of a switch comes later. `stacks` are the times of the changes.
pub(super) fn date_switches(records: &mut [RingRecord<'_>], stacks: &[Nanos]) {
    let mut next_switch = None;
    for record in records.iter_mut().rev() {
        let kind = record.sideband.as_ref().map(|sideband| &sideband.kind);
        if !matches!(kind, Some(SidebandKind::SwitchOut { .. })) {
            continue;
        }
        let recorded = record.time;
        let after = stacks.partition_point(|&change| Some(change) < recorded);
        let change =
            stacks.get(after).copied().filter(|&change| next_switch.is_none_or(|next| Some(change) < next));
        record.time = change.or(recorded);
        next_switch = Some(recorded);
    }
}

#[cfg(test)]
mod tests {
    use hodo_formats::perf::ring::ring_records;

    use super::*;

    #[test]
    fn a_switch_has_the_time_at_which_the_stack_changes() {
        // SWITCH_CPU_WIDE, out: next_prev_pid 7, next_prev_tid 8; trailer of thread 5/6, the time, CPU 1.
        let record = |time: u32| [15, 48 << 16 | 1 << 13, 7, 8, 5, 6, time, 0, 1, 0, 3, 0];
        let words: Vec<u32> = [10, 20, 30, 40].into_iter().flat_map(record).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut records = ring_records(&bytes).unwrap();
        // No change is known of the second switch, and none of the last.
        date_switches(&mut records, &[Nanos(5), Nanos(12), Nanos(33)]);
        let times: Vec<_> = records.iter().map(|record| record.time).collect();
        assert_eq!(times, [12, 20, 33, 40].map(|time| Some(Nanos(time))));
    }
}

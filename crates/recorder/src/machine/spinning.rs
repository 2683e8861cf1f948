//! Processors that wait for each other in loops. They share the CPUs of the computer, so the processor that holds a lock may
//! not run while others wait for the lock.

use super::collect::Collected;

/// The share of PAUSE instructions from which on the recording shows more waiting than work; a loop has four or five
/// instructions.
const THRESHOLD: f64 = 0.02;

/// Warns of a recording whose processors waited for each other.
pub(super) fn warning(recording: &Collected, counts_time: bool) -> Option<String> {
    sentence(recording.pauses(), recording.all_instructions()).filter(|_| !counts_time)
}

fn sentence(pauses: u64, instructions: u64) -> Option<String> {
    let share = pauses as f64 / instructions.max(1) as f64;
    (share > THRESHOLD).then(|| {
        format!(
            "{:.1} % of the instructions are PAUSE, YIELD or WFE, which a processor executes in each round of a loop while it waits for a lock \
             of another: the emulated processors share those of this computer, so a lock's holder may stand still. hodo \
             report functions shows the loops (such as native_queued_spin_lock_slowpath). --icount records one processor, which \
             never waits for another",
            100.0 * share
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_distinguished_from_work() {
        assert_eq!(sentence(0, 0), None);
        assert_eq!(sentence(2_000, 100_000), None);
        let text = sentence(1_060, 20_000).unwrap();
        assert!(
            text.starts_with("5.3 % of the instructions are PAUSE") && text.contains("--icount"),
            "{text}"
        );
    }
}

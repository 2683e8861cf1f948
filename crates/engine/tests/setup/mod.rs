//! The settings of the recordings that tests write.

use hodo_clock::PerfClock;
use hodo_formats::perf::{
    layout::intel_pt_config,
    write::{Setup, TraceUnit},
};

/// A recording with times: a tick is a nanosecond.
pub(crate) fn setup() -> Setup<'static> {
    Setup {
        unit: TraceUnit::IntelPt,
        config: intel_pt_config::TSC,
        clock: PerfClock::new(10, 1024, 0).unwrap(),
        tsc_ctc_ratio: (40, 1),
        max_nonturbo_ratio: 10,
        snapshot: false,
        filter: "",
        event: "intel_pt//",
        command: &[],
        version: "test",
        host: "",
    }
}

//! What the processor can do.

use core::{
    arch::x86_64::__cpuid_count,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Features that `CPUID` reports in EBX of leaf 7.
const BMI2: u32 = 1 << 8;
const RTM: u32 = 1 << 11;
/// Set once [`FEATURES`] are known.
const KNOWN: u32 = 1;

/// The features that are asked for.
static FEATURES: AtomicU32 = AtomicU32::new(0);

/// Whether it has `RORX`, which rotates without changing flags.
pub fn has_rotation() -> bool {
    features() & BMI2 != 0
}

/// Whether it has transactional memory.
pub fn has_transactions() -> bool {
    features() & RTM != 0
}

fn features() -> u32 {
    let known = FEATURES.load(Relaxed);
    if known != 0 {
        return known;
    }
    let has_leaf = __cpuid_count(0, 0).eax >= 7;
    let features = if has_leaf { __cpuid_count(7, 0).ebx & (BMI2 | RTM) } else { 0 } | KNOWN;
    FEATURES.store(features, Relaxed);
    features
}

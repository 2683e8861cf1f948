//! Where the landing of an indirect branch's target is in a thread's table of targets.

use core::{
    arch::x86_64::__cpuid_count,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use crate::layout::TARGET_BITS;

/// The lowest bits of a target that do not choose its entry, if the processor can leave them out: two branches rarely
/// lead to the same eight bytes, and functions begin at multiples of 16.
pub const ROTATION: u32 = 3;

/// Values of [`KIND`].
const UNKNOWN: u32 = 0;
const ROTATED: u32 = 1;
const LOWEST: u32 = 2;

/// How targets are numbered.
static KIND: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Whether the processor has `RORX` (BMI2), which rotates without changing flags.
pub fn are_rotated() -> bool {
    const BMI2: u32 = 1 << 8;
    let kind = KIND.load(Relaxed);
    if kind != UNKNOWN {
        return kind == ROTATED;
    }
    let rotated = __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).ebx & BMI2 != 0;
    KIND.store(if rotated { ROTATED } else { LOWEST }, Relaxed);
    rotated
}

/// The index of a target's entry.
pub fn index(target: u64) -> u64 {
    let rotation = if are_rotated() { ROTATION } else { 0 };
    target >> rotation & ((1 << TARGET_BITS) - 1)
}

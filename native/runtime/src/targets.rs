//! Where the landing of an indirect branch's target is in a thread's table of targets.

use crate::{layout::TARGET_BITS, processor};

/// The lowest bits of a target that do not choose its entry, where the processor can leave them out: two branches rarely
/// lead to the same eight bytes, and functions begin at multiples of 16. Neighbouring targets then share lines of the cache.
pub const ROTATION: u32 = 3;

/// The index of a target's entry.
pub fn index(target: u64) -> u64 {
    let rotation = if processor::has_rotation() { ROTATION } else { 0 };
    target >> rotation & ((1 << TARGET_BITS) - 1)
}

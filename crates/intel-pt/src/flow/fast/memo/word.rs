//! Plain packets in the bytes of a word.

use crate::packet::{LONG_TNT, Tnt, tnt};

/// Size of plain packets of the flow, by their first byte; 0 for others. These are TNT-8, and TIP with 2, 4 or 6
/// address bytes.
pub(in crate::flow) static PLAIN: [u8; 256] = {
    let mut sizes = [0; 256];
    // 0 is PAD, and 2 begins longer packets.
    let mut opcode = 4;
    while opcode < 256 {
        sizes[opcode] = match opcode {
            0x2d => 3,
            0x4d => 5,
            0x6d => 7,
            _ if opcode & 1 == 0 => 1,
            _ => 0,
        };
        opcode += 1;
    }
    sizes
};

/// Size of a TNT-64.
pub(in crate::flow) const LONG_SIZE: usize = 8;

/// Returns the size of the plain packet in the lowest bytes of a word; 0 if there is another packet.
pub(in crate::flow) fn plain_size(word: u64) -> u8 {
    PLAIN[usize::from(word as u8)]
}

/// Returns whether the packet in the lowest bytes of a word is a TNT or a plain TIP.
pub(super) fn begins_flow(word: u64) -> bool {
    plain_size(word) != 0 || word as u16 == LONG_TNT
}

/// Converts a TNT-64 to TNT-8 packets, the first in the lowest byte; returns 0 if it is malformed.
pub(super) fn short_tnts(long: u64) -> u64 {
    let field = long >> 16;
    let (mut left, mut shorts, mut shift) = (field.checked_ilog2().unwrap_or(0), 0, 0);
    while left > 0 {
        let count = left.min(6);
        left -= count;
        let branches = field >> left & ((1 << count) - 1) | 1 << count;
        shorts |= branches << 1 << shift;
        shift += 8;
    }
    shorts
}

/// Returns the branches of TNT-8 packets, the first in the lowest byte.
pub(super) fn branches(shorts: u64) -> Tnt {
    let packets = shorts.to_le_bytes().into_iter().take_while(|&opcode| opcode != 0);
    packets.map(|opcode| tnt(u64::from(opcode >> 1))).fold(Tnt { bits: 0, count: 0 }, |all, next| Tnt {
        bits: all.bits << next.count | next.bits,
        count: all.count + next.count,
    })
}

/// Maximum packets per look-up, if they fit eight bytes.
const TOGETHER: usize = 4;

/// Returns the size of the plain packets in the lowest bytes of a word, at most [`TOGETHER`] of them.
///
/// The next look-up waits for this size. So it is computed without a table, as the loads for one packet after the other
/// would take longer, and in the same steps for all packets, so that no branch is mispredicted.
#[inline(always)]
pub(super) fn plain(word: u64) -> u32 {
    let sizes = sizes(word);
    // One less than the size in bits: 63 rather than 64 if the word is full, and all ones if there is no packet. In both
    // cases, the next shift gives 0.
    let mut last = (sizes & SIZE).wrapping_sub(1);
    for _ in 1..TOGETHER {
        last = last.wrapping_add((sizes >> 1).wrapping_shr(last as u32) & SIZE);
    }
    last.wrapping_add(1) as u32 / 8
}

/// The bits in which sizes of one to seven bytes differ, if they are counted in bits.
const SIZE: u64 = 0x38;

/// One in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Returns for each byte the size in bits of the plain packet that may begin there and ends in the word; 0 if there is
/// none. All bytes are computed at once.
#[inline(always)]
fn sizes(word: u64) -> u64 {
    // One in each byte that is not 0.
    let is_set = |bytes: u64| (((bytes & (0x7f * ONES)) + 0x7f * ONES) | bytes) >> 7 & ONES;
    // One in each of the first bytes.
    let first = |count: u32| ONES >> (u64::BITS - 8 * count);
    let tnt = is_set(word & (0xfc * ONES)) & !word;
    let tip = !is_set((word ^ (0x0d * ONES)) & (0x9f * ONES));
    // IPBytes.
    let (low, high) = (word >> 5 & tip, word >> 6 & tip);
    let three = low & !high & first(6);
    let five = high & !low & first(4);
    let seven = low & high & first(2);
    (tnt | three | five | seven) << 3 | (three | seven) << 4 | (five | seven) << 5
}

/// Returns whether plain packets include a TIP.
pub(super) fn has_tip(mut packets: u64) -> bool {
    while packets & 1 == 0 && plain_size(packets) != 0 {
        packets = packets.unbounded_shr(8 * u32::from(plain_size(packets)));
    }
    packets & 1 == 1
}

/// Removes the first branches of the first packet, a TNT, so that `left` remain.
pub(super) fn without_branches(packets: u64, left: u8) -> u64 {
    let branches = packets >> 1 & ((1 << left) - 1) | 1 << left;
    packets & !0xff | branches << 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plain_packets_are_those_of_the_table(
            opcodes in prop::array::uniform8(prop::sample::select(vec![0u8, 2, 4, 6, 0x0d, 0x2d, 0x4d, 0x6d, 0x8d, 0xcd, 0xed, 0xfe])),
            any: u64,
            mask: u64,
        ) {
            let word = u64::from_le_bytes(opcodes) & mask | any & !mask;
            for word in [u64::from_le_bytes(opcodes), any, word] {
                let mut size = 0;
                for _ in 0..TOGETHER {
                    let more = u32::from(plain_size(word.unbounded_shr(8 * size)));
                    size += if size + more <= u64::BITS / 8 { more } else { 0 };
                }
                prop_assert_eq!(plain(word), size, "{:#018x}", word);
            }
        }
    }
}

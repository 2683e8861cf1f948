//! Atoms and addresses: nearly all packets.

use super::{
    Address, Atoms, Decoder,
    decode::{Fields, atoms},
};

/// Atoms of consecutive packets, and the address after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainPackets {
    /// A bit each, the oldest lowest: 1 for E. A 1 above the newest marks the end.
    pub(crate) atoms: u64,
    /// The target of the last branch, if a packet gives it.
    pub(crate) address: Option<u64>,
    /// The position after the packets.
    pub(crate) end: usize,
}

/// No packets.
const NO_ATOMS: u64 = 1;

/// Maximum number of atoms: they fit a word with their mark.
const MOST_ATOMS: u8 = 48;

/// The first header of atoms.
const FIRST: u8 = 0xc0;

/// The atoms of each header from [`FIRST`] on.
static ATOMS: [Atoms; 1 << 6] = {
    let mut all = [Atoms { bits: 0, count: 0 }; 1 << 6];
    let mut index = 0;
    while index < all.len() {
        all[index] = atoms(FIRST + index as u8);
        index += 1;
    }
    all
};

impl PlainPackets {
    /// Returns whether there is no packet.
    pub(crate) fn is_empty(&self) -> bool {
        self.atoms == NO_ATOMS && self.address.is_none()
    }
}

impl Decoder<'_> {
    /// Reads at most `most` packets with atoms, and an address in A64 code after them, up to position `end`. The position
    /// stays.
    #[inline(always)]
    pub(crate) fn plain_packets(&self, most: u32, end: usize) -> PlainPackets {
        let bytes = self.bytes.get(..end).unwrap_or(self.bytes);
        let (mut bits, mut count, mut position) = (0, 0, self.position);
        let mut address = None;
        for _ in 0..most {
            let Some(&header) = bytes.get(position) else { break };
            if header < FIRST {
                break;
            }
            let next = ATOMS[usize::from(header - FIRST)];
            if count + next.count > MOST_ATOMS {
                break;
            }
            bits |= u64::from(next.bits) << count;
            count += next.count;
            position += 1;
        }
        if (count == 0 || most > 1)
            && let Some((found, size)) = self.plain_address(bytes.get(position..).unwrap_or_default())
        {
            (address, position) = (Some(found), position + size);
        }
        PlainPackets { atoms: bits | NO_ATOMS << count, address, end: position }
    }

    /// Reads an address in A64 code, and returns it with the size of its packet.
    #[inline(always)]
    fn plain_address(&self, bytes: &[u8]) -> Option<(u64, usize)> {
        let (&header, payload) = bytes.split_first()?;
        if header & 0xf0 != 0x90 {
            return None;
        }
        let mut fields = Fields { payload, taken: 0 };
        let Address { value, is_t32 } = self.address(header & 0xf, &mut fields).ok()?;
        (!is_t32).then_some((value, 1 + fields.taken))
    }

    /// Continues after packets that this decoder has read.
    #[inline(always)]
    pub(crate) fn pass(&mut self, packets: &PlainPackets) {
        self.position = packets.end;
        if let Some(value) = packets.address {
            self.remember(Address { value, is_t32: false });
        }
    }
}

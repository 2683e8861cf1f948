//! Encodes packets to bytes.

use std::ops::Deref;

use super::{FUP, IpPayload, PSB, Packet, TIP, TIP_PGD, TIP_PGE, Tnt};

/// The bytes of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    bytes: [u8; 16],
    length: usize,
}

impl Encoded {
    /// Creates a packet of fixed bytes.
    fn fixed(bytes: &[u8]) -> Encoded {
        Encoded::new(bytes, 0, 0)
    }

    /// Creates a packet of `head` and the first `count` bytes of `payload` in little-endian order.
    fn new(head: &[u8], payload: u64, count: usize) -> Encoded {
        let mut bytes = [0; 16];
        bytes[..head.len()].copy_from_slice(head);
        bytes[head.len()..head.len() + count].copy_from_slice(&payload.to_le_bytes()[..count]);
        Encoded { bytes, length: head.len() + count }
    }
}

impl Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The fields of an IP packet after its opcode.
pub(crate) struct IpFields {
    /// IPBytes: how the payload updates the last IP.
    pub(crate) ip_bytes: u8,
    pub(crate) payload: u64,
    /// Size of the payload in bytes.
    pub(crate) size: usize,
}

impl IpPayload {
    /// Returns the fields of the packet that carries this payload.
    #[inline]
    pub(crate) fn fields(self) -> IpFields {
        let (ip_bytes, payload, size) = match self {
            IpPayload::Suppressed => (0, 0, 0),
            IpPayload::Update16(low) => (1, u64::from(low), 2),
            IpPayload::Update32(low) => (2, u64::from(low), 4),
            IpPayload::Sext48(low) => (3, low, 6),
            IpPayload::Update48(low) => (4, low, 6),
            IpPayload::Full(ip) => (6, ip, 8),
        };
        IpFields { ip_bytes, payload, size }
    }
}

impl Tnt {
    /// Returns the branches with the stop bit above them.
    fn with_stop_bit(self) -> u64 {
        1 << self.count | self.bits
    }
}

impl Packet {
    /// Returns the packet's bytes; reserved bits are zero.
    ///
    /// Bits that do not fit their field are dropped. A [`Packet::Bip`] takes its size from the previous
    /// [`Packet::Bbp`], so use [`Packet::encode_item`] for it.
    pub fn encode(&self) -> Encoded {
        match *self {
            Packet::Pad => Encoded::fixed(&[0]),
            Packet::Psb => Encoded::fixed(&PSB),
            Packet::PsbEnd => Encoded::fixed(&[2, 0x23]),
            Packet::Tnt8(tnt) => Encoded::new(&[], tnt.with_stop_bit() << 1, 1),
            Packet::Tnt64(tnt) => Encoded::new(&[2, 0xa3], tnt.with_stop_bit(), 6),
            Packet::Tip(ip) => with_ip(TIP, ip),
            Packet::TipPge(ip) => with_ip(TIP_PGE, ip),
            Packet::TipPgd(ip) => with_ip(TIP_PGD, ip),
            Packet::Fup(ip) => with_ip(FUP, ip),
            Packet::Pip { cr3, non_root } => Encoded::new(&[2, 0x43], cr3 >> 5 << 1 | u64::from(non_root), 6),
            Packet::ModeExec { cs_l, cs_d, interrupt_flag } => {
                Encoded::fixed(&[0x99, bit(cs_l, 0) | bit(cs_d, 1) | bit(interrupt_flag, 2)])
            }
            Packet::ModeTsx { in_transaction, aborted } => {
                Encoded::fixed(&[0x99, 0x20 | bit(in_transaction, 0) | bit(aborted, 1)])
            }
            Packet::TraceStop => Encoded::fixed(&[2, 0x83]),
            Packet::Cbr(ratio) => Encoded::fixed(&[2, 3, ratio, 0]),
            Packet::Tsc(tsc) => Encoded::new(&[0x19], tsc, 7),
            Packet::Tma { ctc, fast_counter } => {
                Encoded::new(&[2, 0x73], u64::from(ctc) | u64::from(fast_counter & 0x1ff) << 24, 5)
            }
            Packet::Mtc(ctc) => Encoded::fixed(&[0x59, ctc]),
            Packet::Cyc(cycles) => cyc(cycles),
            Packet::Vmcs(base) => Encoded::new(&[2, 0xc8], base >> 12, 5),
            Packet::Overflow => Encoded::fixed(&[2, 0xf3]),
            Packet::Mnt(payload) => Encoded::new(&[2, 0xc3, 0x88], payload, 8),
            Packet::PtWrite { payload, wide, ip } => {
                Encoded::new(&[2, 0x12 | bit(wide, 5) | bit(ip, 7)], payload, if wide { 8 } else { 4 })
            }
            _ => self.encode_optional(),
        }
    }

    /// Packets of the power event, PEBS and event trace features.
    fn encode_optional(&self) -> Encoded {
        match *self {
            Packet::ExStop { ip } => Encoded::fixed(&[2, 0x62 | bit(ip, 7)]),
            Packet::Mwait { hints, extensions } => {
                Encoded::new(&[2, 0xc2], u64::from(hints) | u64::from(extensions & 3) << 32, 8)
            }
            Packet::Pwre { hardware, state, sub_state } => {
                Encoded::fixed(&[2, 0x22, bit(hardware, 7), state << 4 | sub_state & 15])
            }
            Packet::Pwrx { last, deepest, reason } => {
                Encoded::new(&[2, 0xa2, last << 4 | deepest & 15, reason & 15], 0, 3)
            }
            Packet::Bbp { short_items, kind } => {
                Encoded::fixed(&[2, 0x63, bit(short_items, 7) | kind & 0x1f])
            }
            Packet::Bip { .. } => {
                let short_items = false;
                self.encode_item(short_items)
            }
            Packet::Bep { ip } => Encoded::fixed(&[2, 0x33 | bit(ip, 7)]),
            Packet::Cfe { ip, kind, vector } => Encoded::fixed(&[2, 0x13, bit(ip, 7) | kind & 0x1f, vector]),
            Packet::Evd { kind, payload } => Encoded::new(&[2, 0x53, kind & 0x3f], payload, 8),
            Packet::Trig { ip, instructions, multiple, triggers } => {
                let flags = bit(ip, 7) | bit(instructions.is_some(), 6) | bit(multiple, 5);
                let size = if instructions.is_some() { 2 } else { 0 };
                Encoded::new(&[0xd9, flags, triggers], instructions.unwrap_or(0).into(), size)
            }
            _ => unreachable!("encoded by `encode`"),
        }
    }

    /// Encodes a block item, with 4 bytes if `short_items` is set, else 8; other packets as [`Packet::encode`] does.
    pub fn encode_item(&self, short_items: bool) -> Encoded {
        match *self {
            Packet::Bip { id, payload } => {
                Encoded::new(&[id << 3 | 4], payload, if short_items { 4 } else { 8 })
            }
            _ => self.encode(),
        }
    }
}

fn bit(set: bool, index: u8) -> u8 {
    u8::from(set) << index
}

fn with_ip(opcode: u8, ip: IpPayload) -> Encoded {
    let IpFields { ip_bytes, payload, size } = ip.fields();
    Encoded::new(&[opcode | ip_bytes << 5], payload, size)
}

/// CYC: 5 bits in the first byte, 7 in each further byte, the lowest bits first.
fn cyc(cycles: u64) -> Encoded {
    let mut encoded = Encoded { bytes: [0; 16], length: 1 };
    let mut rest = cycles >> 5;
    encoded.bytes[0] = (cycles as u8) << 3 | bit(rest != 0, 2) | 3;
    while rest != 0 {
        let part = (rest as u8) << 1;
        rest >>= 7;
        encoded.bytes[encoded.length] = part | bit(rest != 0, 0);
        encoded.length += 1;
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::Decoder;

    fn ip_payload() -> impl Strategy<Value = IpPayload> {
        prop_oneof![
            Just(IpPayload::Suppressed),
            any::<u16>().prop_map(IpPayload::Update16),
            any::<u32>().prop_map(IpPayload::Update32),
            (0u64..1 << 48).prop_map(IpPayload::Sext48),
            (0u64..1 << 48).prop_map(IpPayload::Update48),
            any::<u64>().prop_map(IpPayload::Full),
        ]
    }

    fn tnt(max: u8) -> impl Strategy<Value = Tnt> {
        (1..=max, any::<u64>()).prop_map(|(count, bits)| Tnt { bits: bits & ((1 << count) - 1), count })
    }

    fn flow() -> impl Strategy<Value = Packet> {
        prop_oneof![
            Just(Packet::Pad),
            Just(Packet::Psb),
            Just(Packet::PsbEnd),
            Just(Packet::TraceStop),
            Just(Packet::Overflow),
            tnt(6).prop_map(Packet::Tnt8),
            tnt(47).prop_map(Packet::Tnt64),
            ip_payload().prop_map(Packet::Tip),
            ip_payload().prop_map(Packet::TipPge),
            ip_payload().prop_map(Packet::TipPgd),
            ip_payload().prop_map(Packet::Fup),
        ]
    }

    fn state() -> impl Strategy<Value = Packet> {
        prop_oneof![
            (0u64..1 << 47, any::<bool>())
                .prop_map(|(cr3, non_root)| Packet::Pip { cr3: cr3 << 5, non_root }),
            (any::<bool>(), any::<bool>(), any::<bool>())
                .prop_map(|(cs_l, cs_d, interrupt_flag)| { Packet::ModeExec { cs_l, cs_d, interrupt_flag } }),
            (any::<bool>(), any::<bool>())
                .prop_map(|(in_transaction, aborted)| Packet::ModeTsx { in_transaction, aborted }),
            any::<u8>().prop_map(Packet::Cbr),
            (0u64..1 << 56).prop_map(Packet::Tsc),
            (any::<u16>(), 0u16..512).prop_map(|(ctc, fast_counter)| Packet::Tma { ctc, fast_counter }),
            any::<u8>().prop_map(Packet::Mtc),
            any::<u64>().prop_map(Packet::Cyc),
            (0u64..32).prop_map(Packet::Cyc),
            (0u64..1 << 40).prop_map(|base| Packet::Vmcs(base << 12)),
            any::<u64>().prop_map(Packet::Mnt),
        ]
    }

    fn optional() -> impl Strategy<Value = Packet> {
        prop_oneof![
            (any::<u32>(), any::<bool>()).prop_map(|(payload, ip)| Packet::PtWrite {
                payload: payload.into(),
                wide: false,
                ip
            }),
            (any::<u64>(), any::<bool>()).prop_map(|(payload, ip)| Packet::PtWrite {
                payload,
                wide: true,
                ip
            }),
            any::<bool>().prop_map(|ip| Packet::ExStop { ip }),
            (any::<u8>(), 0u8..4).prop_map(|(hints, extensions)| Packet::Mwait { hints, extensions }),
            (any::<bool>(), 0u8..16, 0u8..16).prop_map(|(hardware, state, sub_state)| Packet::Pwre {
                hardware,
                state,
                sub_state
            }),
            (0u8..16, 0u8..16, 0u8..16).prop_map(|(last, deepest, reason)| Packet::Pwrx {
                last,
                deepest,
                reason
            }),
            (any::<bool>(), 0u8..32).prop_map(|(short_items, kind)| Packet::Bbp { short_items, kind }),
            (0u8..32, any::<u32>()).prop_map(|(id, payload)| Packet::Bip { id, payload: payload.into() }),
            any::<bool>().prop_map(|ip| Packet::Bep { ip }),
            (any::<bool>(), 0u8..32, any::<u8>()).prop_map(|(ip, kind, vector)| Packet::Cfe {
                ip,
                kind,
                vector
            }),
            (0u8..64, any::<u64>()).prop_map(|(kind, payload)| Packet::Evd { kind, payload }),
            (any::<bool>(), any::<Option<u16>>(), any::<bool>(), any::<u8>()).prop_map(
                |(ip, instructions, multiple, triggers)| Packet::Trig {
                    ip,
                    instructions,
                    multiple,
                    triggers
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn encoded_packets_decode_to_themselves(packet in prop_oneof![flow(), state(), optional()], short_items: bool) {
            let mut bytes = Vec::new();
            if matches!(packet, Packet::Bip { .. }) {
                bytes.extend_from_slice(&Packet::Bbp { short_items, kind: 1 }.encode());
            }
            let start = bytes.len();
            bytes.extend_from_slice(&packet.encode_item(short_items));
            let mut decoder = Decoder::new(&bytes, 0);
            if start != 0 {
                decoder.next_packet().unwrap();
            }
            prop_assert_eq!(decoder.next_packet(), Ok(Some(packet)));
            prop_assert_eq!(decoder.next_packet(), Ok(None));
        }
    }
}

//! Packets from and to the structures of C.

use hodo_intel_pt::packet::{IpPayload, Packet, Tnt};

use crate::{
    Error, abi,
    packet::{Content, Kind},
};

/// `pt_packet_type`, in its order from 1 on.
const KINDS: [Kind; 26] = [
    Kind::Unknown,
    Kind::Pad,
    Kind::Psb,
    Kind::PsbEnd,
    Kind::Fup,
    Kind::Tip,
    Kind::TipPge,
    Kind::TipPgd,
    Kind::Tnt8,
    Kind::Tnt64,
    Kind::Mode,
    Kind::Pip,
    Kind::Vmcs,
    Kind::Cbr,
    Kind::Tsc,
    Kind::Tma,
    Kind::Mtc,
    Kind::Cyc,
    Kind::Stop,
    Kind::Overflow,
    Kind::Mnt,
    Kind::ExStop,
    Kind::Mwait,
    Kind::Pwre,
    Kind::Pwrx,
    Kind::Ptw,
];

/// `ppt_invalid`.
const INVALID: u32 = 0;
/// `pt_mol_tsx`.
const LEAF_TSX: u32 = 0x20;

/// Returns the structure of C. `at` is the packet's address, for unknown packets.
pub(crate) fn to_raw(kind: Kind, content: Content, size: usize, at: usize) -> abi::Packet {
    let number = KINDS.iter().position(|&listed| listed == kind).map_or(INVALID, |index| index as u32 + 1);
    let (kind, payload) = match content {
        Content::Invalid => (INVALID, [0; 2]),
        Content::Unknown { private } => (number, [at as u64, private as u64]),
        Content::Mwait { hints, extensions } => (number, [u64::from(hints) | u64::from(extensions) << 32, 0]),
        Content::Known(packet) => (number, payload(packet)),
    };
    abi::Packet { kind, size: size as u8, payload }
}

/// Returns the union, in words of eight bytes.
fn payload(packet: Packet) -> [u64; 2] {
    let bit = |set: bool, index: u32| u64::from(set) << index;
    match packet {
        Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => [tnt.count.into(), tnt.bits],
        Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => match ip {
            IpPayload::Suppressed => [0, 0],
            IpPayload::Update16(ip) => [1, ip.into()],
            IpPayload::Update32(ip) => [2, ip.into()],
            IpPayload::Sext48(ip) => [3, ip],
            IpPayload::Update48(ip) => [4, ip],
            IpPayload::Full(ip) => [6, ip],
        },
        Packet::ModeExec { cs_l, cs_d, .. } => [bit(cs_l, 32) | bit(cs_d, 33), 0],
        Packet::ModeTsx { in_transaction, aborted } => {
            [u64::from(LEAF_TSX) | bit(in_transaction, 32) | bit(aborted, 33), 0]
        }
        Packet::Pip { cr3, non_root } => [cr3, bit(non_root, 0)],
        Packet::Vmcs(value) | Packet::Tsc(value) | Packet::Cyc(value) | Packet::Mnt(value) => [value, 0],
        Packet::Cbr(value) | Packet::Mtc(value) => [value.into(), 0],
        Packet::Tma { ctc, fast_counter } => [u64::from(ctc) | u64::from(fast_counter) << 16, 0],
        Packet::ExStop { ip } => [bit(ip, 0), 0],
        Packet::Pwre { hardware, state, sub_state } => {
            [u64::from(state) | u64::from(sub_state) << 8 | bit(hardware, 16), 0]
        }
        Packet::Pwrx { last, deepest, reason } => {
            let reasons = bit(reason & 1 != 0, 16) | bit(reason & 4 != 0, 17) | bit(reason & 8 != 0, 18);
            [u64::from(last) | u64::from(deepest) << 8 | reasons, 0]
        }
        Packet::PtWrite { payload, wide, ip } => [payload, u64::from(wide) | bit(ip, 8)],
        _ => [0, 0],
    }
}

/// Returns the bytes of a packet given as a structure of C. `room` is what is left of the buffer.
pub(crate) fn encode(raw: &abi::Packet, room: usize) -> Result<Vec<u8>, Error> {
    let index = raw.kind.checked_sub(1).ok_or(Error::BAD_OPCODE)? as usize;
    let &kind = KINDS.get(index).ok_or(Error::BAD_OPCODE)?;
    let [first, second] = raw.payload;
    let bytes = match kind {
        Kind::Unknown => return Err(Error::BAD_OPCODE),
        Kind::Tnt8 => return short_tnt(first as u8, second, room),
        // libipt has its bit for hardware elsewhere.
        Kind::Pwre => {
            let hardware = (first >> 16 & 1) as u8;
            vec![0x02, 0x22, hardware << 3, (first as u8) << 4 | (first >> 8) as u8 & 15]
        }
        Kind::Mwait => [&[0x02, 0xc2], &first.to_le_bytes()[..]].concat(),
        _ => {
            let (packet, late) = packet(kind, first, second)?;
            let bytes = packet.encode().to_vec();
            // libipt looks for room before it looks at some payloads.
            if let Some(error) = late {
                return Err(if bytes.len() > room { Error::END } else { error });
            }
            bytes
        }
    };
    if bytes.len() > room { Err(Error::END) } else { Ok(bytes) }
}

fn short_tnt(count: u8, bits: u64, room: usize) -> Result<Vec<u8>, Error> {
    if count >= 7 {
        return Err(Error::BAD_PACKET);
    }
    if room == 0 {
        return Err(Error::END);
    }
    Ok(vec![(bits << 1) as u8 | 1u8.wrapping_shl(u32::from(count) + 1)])
}

/// Returns a packet, and the error of its payload if room for it counts first.
fn packet(kind: Kind, first: u64, second: u64) -> Result<(Packet, Option<Error>), Error> {
    let bit = |index: u32| first >> index & 1 == 1;
    let mut late = None;
    let packet = match kind {
        Kind::Pad => Packet::Pad,
        Kind::Psb => Packet::Psb,
        Kind::PsbEnd => Packet::PsbEnd,
        Kind::Overflow => Packet::Overflow,
        Kind::Stop => Packet::TraceStop,
        Kind::Tip => Packet::Tip(ip(first as u32, second)?),
        Kind::TipPge => Packet::TipPge(ip(first as u32, second)?),
        Kind::TipPgd => Packet::TipPgd(ip(first as u32, second)?),
        Kind::Fup => Packet::Fup(ip(first as u32, second)?),
        Kind::Tnt64 => {
            let count = first as u8;
            let fits = count < 48 && second >> count == 0;
            late = (!fits).then_some(Error::INVALID);
            Packet::Tnt64(if fits { Tnt { bits: second, count } } else { Tnt { bits: 0, count: 1 } })
        }
        Kind::Mode => match first as u32 {
            0 => Packet::ModeExec { cs_l: bit(32), cs_d: bit(33), interrupt_flag: false },
            LEAF_TSX => Packet::ModeTsx { in_transaction: bit(32), aborted: bit(33) },
            _ => {
                late = Some(Error::BAD_PACKET);
                Packet::ModeTsx { in_transaction: false, aborted: false }
            }
        },
        Kind::Pip => Packet::Pip { cr3: first, non_root: second & 1 == 1 },
        Kind::Vmcs => Packet::Vmcs(first),
        Kind::Cbr => Packet::Cbr(first as u8),
        Kind::Tsc => Packet::Tsc(first),
        Kind::Tma => {
            let fast_counter = (first >> 16) as u16;
            late = (fast_counter > 0x1ff).then_some(Error::BAD_PACKET);
            Packet::Tma { ctc: first as u16, fast_counter }
        }
        Kind::Mtc => Packet::Mtc(first as u8),
        Kind::Cyc => Packet::Cyc(first),
        Kind::Mnt => Packet::Mnt(first),
        Kind::ExStop => Packet::ExStop { ip: bit(0) },
        Kind::Pwrx => {
            let reason = u8::from(bit(16)) | u8::from(bit(17)) << 2 | u8::from(bit(18)) << 3;
            Packet::Pwrx { last: first as u8, deepest: (first >> 8) as u8, reason }
        }
        Kind::Ptw => {
            let wide = match second as u8 {
                0 => false,
                1 => true,
                2 | 3 => return Err(Error::BAD_PACKET),
                _ => return Err(Error::INTERNAL),
            };
            Packet::PtWrite { payload: first, wide, ip: second >> 8 & 1 == 1 }
        }
        Kind::Unknown | Kind::Tnt8 | Kind::Mwait | Kind::Pwre => return Err(Error::BAD_OPCODE),
    };
    Ok((packet, late))
}

fn ip(compression: u32, ip: u64) -> Result<IpPayload, Error> {
    const LOW_48: u64 = (1 << 48) - 1;
    Ok(match compression {
        0 => IpPayload::Suppressed,
        1 => IpPayload::Update16(ip as u16),
        2 => IpPayload::Update32(ip as u32),
        3 => IpPayload::Sext48(ip & LOW_48),
        4 => IpPayload::Update48(ip & LOW_48),
        6 => IpPayload::Full(ip),
        _ => return Err(Error::INVALID),
    })
}

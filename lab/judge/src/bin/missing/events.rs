//! The trace that the same run has with event trace, power events and PEBS records, and with interrupts of the kernel.
//!
//! The emulated processor runs user space only, which nothing interrupts but signals. A real one is interrupted at any
//! place: CFE, FUP and TIP.PGD, then CFE for the return and TIP.PGE at the same address. Such packets are inserted
//! between those of a recording; what ran stays the same.

use fastrand::Rng;
use hodo_intel_pt::packet::{Decoder, IpPayload, PSB, Packet, find_psb};

use crate::truth::Segments;

/// Of the packets that show a branch, the share before which others are inserted: one in this number.
const RATE: u64 = 12;

/// Returns the trace of a stream with inserted packets. `truth` is what the stream shows with all code.
pub(crate) fn insert(trace: &[u8], truth: &Segments, random: &mut Rng) -> Result<Vec<u8>, String> {
    let next = |from: usize| Some(from + find_psb(trace.get(from..)?)?);
    let starts: Vec<usize> = std::iter::successors(next(0), |&start| next(start + PSB.len())).collect();
    if starts.len() != truth.len() {
        return Err(format!("{} segments are read, the stream has {}", truth.len(), starts.len()));
    }
    let ends = starts.iter().skip(1).copied().chain([trace.len()]);
    let mut rewritten = Rewriter { random, out: Vec::new(), read: 0, written: 0 };
    for ((start, end), segment) in starts.iter().copied().zip(ends).zip(truth) {
        let mut packets = Decoder::new(&trace[..end], start);
        let (mut index, mut in_psb_plus, mut leaves) = (0, false, false);
        while let Some(packet) = packets.next_packet().map_err(|error| error.to_string())? {
            in_psb_plus |= packet == Packet::Psb;
            let shows_branch =
                matches!(packet, Packet::Tnt8(_) | Packet::Tnt64(_) | Packet::Tip(_) | Packet::TipPgd(_));
            if shows_branch && !std::mem::take(&mut leaves) {
                let ran = segment.before.get(index).ok_or("a packet is not counted")?;
                let ip = segment.instructions.get(*ran as usize).copied();
                if let Some(ip) = ip.filter(|_| rewritten.random.u64(0..RATE) == 0) {
                    rewritten.event(ip);
                }
            }
            if matches!(packet, Packet::Fup(_)) && !in_psb_plus {
                leaves = true;
                rewritten.put(Packet::Cfe { ip: false, kind: INTERRUPT, vector: PAGE_FAULT });
            }
            rewritten.copy(packet);
            // The status in a PSB+ is part of its PSB.
            index += usize::from(!in_psb_plus && packet != Packet::Pad || packet == Packet::Psb);
            in_psb_plus &= packet != Packet::PsbEnd;
        }
    }
    Ok(rewritten.out)
}

/// Types of CFE packets (SDM, "CFE Packet Type and Vector Fields Details").
const INTERRUPT: u8 = 1;
const INTERRUPT_RETURN: u8 = 2;
const PAGE_FAULT: u8 = 14;
const TIMER: u8 = 236;

/// Copies packets and inserts others, with the last IP of both traces.
struct Rewriter<'r> {
    random: &'r mut Rng,
    out: Vec<u8>,
    read: u64,
    written: u64,
}

impl Rewriter<'_> {
    fn put(&mut self, packet: Packet) {
        self.out.extend_from_slice(&packet.encode());
    }

    /// Copies a packet of the recording.
    fn copy(&mut self, packet: Packet) {
        match packet {
            Packet::Psb => (self.read, self.written) = (0, 0),
            Packet::Tip(payload) => return self.copy_ip(payload, Packet::Tip),
            Packet::TipPge(payload) => return self.copy_ip(payload, Packet::TipPge),
            Packet::TipPgd(payload) => return self.copy_ip(payload, Packet::TipPgd),
            Packet::Fup(payload) => return self.copy_ip(payload, Packet::Fup),
            _ => {}
        }
        self.put(packet);
    }

    fn copy_ip(&mut self, payload: IpPayload, packet: fn(IpPayload) -> Packet) {
        let keep = |bits: u32, low: u64| self.read & (u64::MAX << bits) | low;
        self.read = match payload {
            IpPayload::Suppressed => return self.put(packet(payload)),
            IpPayload::Update16(low) => keep(16, low.into()),
            IpPayload::Update32(low) => keep(32, low.into()),
            IpPayload::Sext48(low) => ((low << 16) as i64 >> 16) as u64,
            IpPayload::Update48(low) => keep(48, low),
            IpPayload::Full(ip) => ip,
        };
        self.ip(self.read, packet);
    }

    /// Writes a packet with an address.
    fn ip(&mut self, ip: u64, packet: fn(IpPayload) -> Packet) {
        let payload = match self.written ^ ip {
            differ if differ >> 16 == 0 => IpPayload::Update16(ip as u16),
            differ if differ >> 32 == 0 => IpPayload::Update32(ip as u32),
            _ => IpPayload::Full(ip),
        };
        self.written = ip;
        self.put(packet(payload));
    }

    /// Something happens before the instruction at `ip`.
    fn event(&mut self, ip: u64) {
        match self.random.u8(0..8) {
            0..=3 => self.interrupt(ip),
            4 => {
                self.put(Packet::Pwre { hardware: false, state: 2, sub_state: 1 });
                self.beside(Packet::ExStop { ip: true }, ip);
                self.put(Packet::Pwrx { last: 2, deepest: 2, reason: 1 });
            }
            5 => self.beside(Packet::PtWrite { payload: ip, wide: true, ip: true }, ip),
            6 => {
                self.put(Packet::Bbp { short_items: false, kind: 4 });
                let short_items = false;
                self.out.extend_from_slice(&Packet::Bip { id: 0, payload: ip }.encode_item(short_items));
                self.beside(Packet::Bep { ip: true }, ip);
            }
            _ => {
                let interrupt_flag = self.random.bool();
                self.beside(Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag }, ip);
            }
        }
    }

    /// A packet and the FUP that stands alone after it.
    fn beside(&mut self, packet: Packet, ip: u64) {
        self.put(packet);
        self.ip(ip, Packet::Fup);
    }

    /// The kernel serves an interrupt, which is not traced.
    fn interrupt(&mut self, ip: u64) {
        let vector = if self.random.bool() { TIMER } else { PAGE_FAULT };
        if vector == PAGE_FAULT {
            self.put(Packet::Evd { kind: 0, payload: ip });
        }
        let own_fup = self.random.u8(0..4) == 0;
        self.put(Packet::Cfe { ip: own_fup, kind: INTERRUPT, vector });
        if own_fup {
            self.ip(ip, Packet::Fup);
        }
        self.ip(ip, Packet::Fup);
        self.put(Packet::TipPgd(IpPayload::Suppressed));
        self.put(Packet::Cfe { ip: false, kind: INTERRUPT_RETURN, vector: 0 });
        self.ip(ip, Packet::TipPge);
    }
}

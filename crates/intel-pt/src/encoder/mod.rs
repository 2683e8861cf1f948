//! The encoder: converts the control flow of a program to packets, as the processor does.
//!
//! ```text
//! branch, ret, indirect, enable, … ──Encoder──► Sink (trace bytes)
//!            ▲
//!       the caller's clock, in TSC ticks
//! ```
//!
//! [`Encoder`] has the same state as the processor: the last IP, the branches pending for a TNT packet, the return
//! stack, the counters of the timing packets. It consists of 64-bit words only, so that it can lie in shared memory
//! that another process reads after this one died.

mod cause;
mod guest;
mod time;

pub use guest::{Exit, Guest};
pub use time::{TSC_TICKS_PER_CTC, Timing};

use crate::packet::{FUP, IpFields, IpPayload, LONG_TNT, PSB, Packet, TIP, TIP_PGD, TIP_PGE};

/// Receives trace bytes.
pub trait Sink {
    /// Appends the low `length` bytes of `word`, at most 8, in little-endian order.
    fn put(&mut self, word: u64, length: usize);
}

impl Sink for Vec<u8> {
    fn put(&mut self, word: u64, length: usize) {
        self.extend_from_slice(&word.to_le_bytes()[..length]);
    }
}

/// Where a transfer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address of the next instruction.
    pub ip: u64,
    /// Width of the code there: 16, 32 or 64 bits.
    pub bits: u64,
}

/// The trace settings: the fields of IA32_RTIT_CTL that the caller selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether returns are compressed (RTIT_CTL.DisRETC clear).
    pub return_compression: bool,
    /// The timing packets to emit.
    pub timing: Timing,
}

/// Entries of the return stack (SDM, "Indirect Transfer Compression for Returns").
const RETURNS: usize = 64;

/// A last IP that shares no upper bytes with any address, so that the next address is sent whole. Processors do this
/// after a PSB; compressing against zero is allowed too, but perf fails on it.
const NO_IP: u64 = 1 << 63;

/// The bits of CR3 in a PIP packet: 51 to 5.
const CR3_SHOWN: u64 = ((1 << 52) - 1) & !0x1f;

/// A CR3 that no processor has: its reserved bits are set.
const NO_CR3: u64 = u64::MAX;

/// Maximum branches of a TNT-64 packet.
const LONG_TNT_BRANCHES: u32 = 47;
/// Maximum branches of a TNT-8 packet.
const SHORT_TNT_BRANCHES: u32 = 6;

/// In place of the address of a VMCS while no guest runs.
const HOST: u64 = u64::MAX;

/// Trace state of one logical processor.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Encoder {
    /// Pending branches, the newest in bit 0, below a stop bit.
    tnt: u64,
    /// Value of `tnt` from which on one packet is full.
    tnt_full: u64,
    last_ip: u64,
    /// Ring of return addresses; `returns_top` counts pushes less pops.
    returns: [u64; RETURNS],
    returns_top: u64,
    returns_depth: u64,
    return_compression: u64,
    /// Whether MODE.Exec was sent since the last PSB.
    mode_known: u64,
    /// CR3, or [`NO_CR3`] if the caller never set it.
    cr3: u64,
    /// Address of the running guest's VMCS, or [`HOST`].
    vmcs: u64,
    /// The width of the code: 16, 32 or 64 bits.
    bits: u64,
    time: time::State,
}

impl Encoder {
    /// Creates the state of a processor that does not trace yet; `now` is its clock.
    pub fn new(settings: Settings, now: u64) -> Encoder {
        // CYC packets precede TNT packets, so short TNT packets give more cycle counts.
        let capacity =
            if settings.timing.cyc_threshold.is_some() { SHORT_TNT_BRANCHES } else { LONG_TNT_BRANCHES };
        Encoder {
            tnt: 1,
            tnt_full: 1 << capacity,
            last_ip: NO_IP,
            returns: [0; RETURNS],
            returns_top: 0,
            returns_depth: 0,
            return_compression: settings.return_compression.into(),
            mode_known: 0,
            cr3: NO_CR3,
            vmcs: HOST,
            bits: 64,
            time: time::State::new(settings.timing, now),
        }
    }

    /// Encodes a conditional branch.
    #[inline(always)]
    pub fn branch(&mut self, taken: bool, now: u64, sink: &mut impl Sink) {
        self.tnt = self.tnt << 1 | u64::from(taken);
        if self.tnt >= self.tnt_full {
            self.flush(now, sink);
        }
    }

    /// Records a near call, direct or indirect, with its return address. Must not be called for a call to the next
    /// instruction, which only reads the instruction pointer.
    #[inline(always)]
    pub fn call(&mut self, return_address: u64) {
        self.returns[(self.returns_top % RETURNS as u64) as usize] = return_address;
        self.returns_top = self.returns_top.wrapping_add(1);
        self.returns_depth = (self.returns_depth + 1).min(RETURNS as u64);
    }

    /// Encodes a near return to `target`: a TNT bit if it matches its call, else a TIP.
    #[inline(always)]
    pub fn ret(&mut self, target: u64, now: u64, sink: &mut impl Sink) {
        if self.pop() == Some(target) && self.return_compression != 0 {
            self.branch(true, now, sink);
        } else {
            self.indirect(target, now, sink);
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u64> {
        self.returns_depth = self.returns_depth.checked_sub(1)?;
        self.returns_top = self.returns_top.wrapping_sub(1);
        Some(self.returns[(self.returns_top % RETURNS as u64) as usize])
    }

    /// Encodes an indirect jump or call, or a far transfer that stays in traced code.
    #[inline]
    pub fn indirect(&mut self, target: u64, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        self.ip_packet(TIP, target, sink);
    }

    /// Begins tracing at `ip`: emits TIP.PGE, preceded by MODE.Exec unless that was sent since the last PSB.
    pub fn enable(&mut self, ip: u64, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        if self.mode_known == 0 {
            self.mode(sink);
        }
        self.ip_packet(TIP_PGE, ip, sink);
    }

    /// Tracing ends with a branch: emits TIP.PGD, with the branch's target unless it belongs to another privilege
    /// level.
    pub fn disable(&mut self, target: Option<u64>, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        match target {
            Some(ip) => {
                // Calls may leave and return untraced; later returns must not match older calls.
                self.returns_depth = 0;
                self.ip_packet(TIP_PGD, ip, sink);
            }
            None => packet(Packet::TipPgd(IpPayload::Suppressed), sink),
        }
    }

    /// An interrupt, fault or trap leaves traced code and will return to `ip`: emits FUP, then TIP.PGD without an
    /// address.
    pub fn interrupt(&mut self, ip: u64, now: u64, sink: &mut impl Sink) {
        self.interrupt_out(ip, None, now, sink);
    }

    /// As [`Encoder::interrupt`], with the address of the handler, unless that belongs to another privilege level: the
    /// address filter excludes it.
    pub fn interrupt_out(&mut self, ip: u64, handler: Option<u64>, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        self.ip_packet(FUP, ip, sink);
        self.disable(handler, now, sink);
    }

    /// An interrupt, fault or trap transfers from before the instruction at `ip` to traced code at `target`: emits
    /// FUP, then TIP.
    pub fn interrupt_to(&mut self, ip: u64, target: u64, now: u64, sink: &mut impl Sink) {
        self.interrupt_to_code(ip, Target { ip: target, bits: self.bits }, now, sink);
    }

    /// As [`Encoder::interrupt_to`], to code of any width: emits MODE.Exec before the TIP if the width changes.
    pub fn interrupt_to_code(&mut self, ip: u64, target: Target, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        self.ip_packet(FUP, ip, sink);
        self.set_bits(target.bits, sink);
        self.ip_packet(TIP, target.ip, sink);
    }

    /// Encodes a far transfer that stays in traced code: emits MODE.Exec if the width changes, then TIP.
    pub fn far(&mut self, target: Target, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.set_bits(target.bits, sink);
        self.indirect(target.ip, now, sink);
    }

    /// Encodes the FUP of a packet beside the flow, which the caller just emitted (SDM, "FUP Packet"): PTW, EXSTOP, BEP or
    /// CFE with IP, or MODE.Exec. [`Encoder::flush`] comes before that packet.
    pub fn fup(&mut self, ip: u64, sink: &mut impl Sink) {
        self.ip_packet(FUP, ip, sink);
    }

    /// Returns the width of the code, as the trace shows it.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// The code has this width where tracing is enabled next: that TIP.PGE is preceded by MODE.Exec if the width has
    /// changed. Must not be called while tracing is on.
    pub fn expect_bits(&mut self, bits: u64) {
        if bits != self.bits {
            (self.bits, self.mode_known) = (bits, 0);
        }
    }

    fn set_bits(&mut self, bits: u64, sink: &mut impl Sink) {
        if bits != self.bits {
            self.bits = bits;
            self.mode(sink);
        }
    }

    /// Sets CR3: emits a PIP (SDM, "PIP packet"). Each later PSB+ repeats it.
    pub fn set_cr3(&mut self, cr3: u64, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.cr3 = cr3;
        packet(Packet::Pip { cr3: cr3 & CR3_SHOWN, non_root: self.vmcs != HOST }, sink);
    }

    fn paging(&self, sink: &mut impl Sink) {
        let non_root = self.vmcs != HOST;
        if non_root {
            packet(Packet::Vmcs(self.vmcs), sink);
        }
        if self.cr3 != NO_CR3 {
            packet(Packet::Pip { cr3: self.cr3 & CR3_SHOWN, non_root }, sink);
        }
    }

    /// Packets were lost: emits OVF, and a FUP with the next instruction if tracing is on.
    pub fn overflow(&mut self, next: Option<u64>, now: u64, sink: &mut impl Sink) {
        self.tnt = 1;
        self.returns_depth = 0;
        // The decoder does not know the last IP, so the next address is sent whole.
        self.last_ip = NO_IP;
        self.time.cyc(now, sink);
        packet(Packet::Overflow, sink);
        if let Some(ip) = next {
            self.ip_packet(FUP, ip, sink);
        }
    }

    /// Discards pending branches and the compression state, as after a PSB at `now`.
    pub fn forget(&mut self, now: u64) {
        self.tnt = 1;
        self.last_ip = NO_IP;
        self.returns_depth = 0;
        self.time.forget(now);
    }

    /// Emits a PSB+, where decoding may start. `next` is the next instruction if tracing is on; the caller has
    /// encoded all branches before it.
    pub fn synchronize(&mut self, next: Option<u64>, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        let (head, tail) = PSB.split_at(8);
        for half in [head, tail] {
            sink.put(half.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)), half.len());
        }
        self.last_ip = NO_IP;
        self.returns_depth = 0;
        self.mode_known = 0;
        self.time.status(now, sink);
        self.paging(sink);
        if let Some(ip) = next {
            self.mode(sink);
            self.ip_packet(FUP, ip, sink);
        }
        packet(Packet::PsbEnd, sink);
    }

    /// Returns the tick at which the next MTC packet is due; `u64::MAX` if MTC is off.
    #[inline(always)]
    pub fn next_mtc(&self) -> u64 {
        self.time.next_mtc()
    }

    /// Returns the ticks between MTC packets, if MTC is on.
    pub fn mtc_ticks(&self) -> u64 {
        self.time.mtc_ticks()
    }

    /// Skips the MTC packets due at `now`. The caller emits a TSC packet next, which is more precise.
    pub fn skip_mtc(&mut self, now: u64) {
        self.time.skip(now);
    }

    /// Emits the MTC packets due at `now`.
    pub fn tick(&mut self, now: u64, sink: &mut impl Sink) {
        self.time.tick(now, sink);
    }

    /// Emits a CYC packet for the cycles so far, if CYC packets are enabled. A decoder restarts its count of cycles at a
    /// TSC packet only if a CYC packet is right before it.
    pub fn count_cycles(&mut self, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
    }

    /// The clock was set forward while tracing was off: emits the new time as TSC and TMA.
    pub fn set_clock(&mut self, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.set(now, sink);
    }

    /// Emits the pending branches: as TNT-8 packets if four suffice, else as a TNT-64.
    pub fn flush(&mut self, now: u64, sink: &mut impl Sink) {
        let mut count = self.tnt.ilog2();
        if count == 0 {
            return;
        }
        self.time.cyc(now, sink);
        if count > 4 * SHORT_TNT_BRANCHES {
            sink.put(self.tnt << 16 | u64::from(LONG_TNT), 8);
        } else {
            let mask = (1 << SHORT_TNT_BRANCHES) - 1;
            while count > SHORT_TNT_BRANCHES {
                count -= SHORT_TNT_BRANCHES;
                sink.put((self.tnt >> count & mask | 1 << SHORT_TNT_BRANCHES) << 1, 1);
            }
            let rest = self.tnt & ((1 << count) - 1);
            sink.put((rest | 1 << count) << 1, 1);
        }
        self.tnt = 1;
    }

    /// Emits MODE.Exec with the width of the code.
    fn mode(&mut self, sink: &mut impl Sink) {
        let (cs_l, cs_d) = (self.bits == 64, self.bits == 32);
        packet(Packet::ModeExec { cs_l, cs_d, interrupt_flag: false }, sink);
        self.mode_known = 1;
    }

    /// Emits an IP packet with the shortest update of the last IP.
    #[inline]
    fn ip_packet(&mut self, opcode: u8, ip: u64, sink: &mut impl Sink) {
        let IpFields { ip_bytes, payload, size } = compress(self.last_ip, ip).fields();
        self.last_ip = ip;
        let head = u64::from(opcode | ip_bytes << 5);
        if size == 8 {
            sink.put(head, 1);
            sink.put(payload, 8);
        } else {
            sink.put(payload << 8 | head, 1 + size);
        }
    }
}

/// Returns the shortest payload that turns `last` into `ip` (SDM, "IP Compression").
#[inline]
fn compress(last: u64, ip: u64) -> IpPayload {
    let differ = last ^ ip;
    let low48 = ip & ((1 << 48) - 1);
    if differ >> 16 == 0 {
        IpPayload::Update16(ip as u16)
    } else if differ >> 32 == 0 {
        IpPayload::Update32(ip as u32)
    } else if (ip << 16) as i64 >> 16 == ip as i64 {
        IpPayload::Sext48(low48)
    } else if differ >> 48 == 0 {
        IpPayload::Update48(low48)
    } else {
        IpPayload::Full(ip)
    }
}

/// Emits any packet; slow, so for rare ones only.
fn packet(packet: Packet, sink: &mut impl Sink) {
    for part in packet.encode().chunks(8) {
        sink.put(part.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)), part.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::{Decoder, Tnt};

    const QUIET: Settings = Settings {
        return_compression: true,
        timing: Timing { tsc: true, mtc_period: None, cyc_threshold: None },
    };

    fn packets(bytes: &[u8]) -> Vec<Packet> {
        let mut decoder = Decoder::new(bytes, 0);
        std::iter::from_fn(|| decoder.next_packet().unwrap()).collect()
    }

    fn branches(packets: &[Packet]) -> Vec<bool> {
        let tnts = packets.iter().filter_map(|packet| match packet {
            Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => Some(*tnt),
            _ => None,
        });
        tnts.flat_map(|Tnt { bits, count }| (0..count).rev().map(move |bit| bits >> bit & 1 == 1)).collect()
    }

    proptest! {
        #[test]
        fn every_branch_is_encoded_in_order(taken in prop::collection::vec(any::<bool>(), 0..300), dense: bool) {
            let timing = Timing { cyc_threshold: dense.then_some(0), ..QUIET.timing };
            let mut encoder = Encoder::new(Settings { timing, ..QUIET }, 0);
            let mut bytes = Vec::new();
            (1..).zip(&taken).for_each(|(now, &taken)| encoder.branch(taken, now, &mut bytes));
            encoder.flush(taken.len() as u64, &mut bytes);
            let packets = packets(&bytes);
            prop_assert_eq!(branches(&packets), taken.clone());
            let cycles: u64 = packets.iter().map(|p| if let Packet::Cyc(cycles) = p { *cycles } else { 0 }).sum();
            prop_assert_eq!(cycles, if dense { taken.len() as u64 } else { 0 });
        }
    }

    #[test]
    fn addresses_are_as_short_as_they_can_be() {
        let mut encoder = Encoder::new(QUIET, 0);
        let mut bytes = Vec::new();
        let targets = [
            0x7f00_1234_5678,
            0x7f00_1234_0001,
            0x7f00_0000_0001,
            0x40_0000,
            0x8000_0000_0000,
            0x8000_0000_0001,
        ];
        targets.iter().for_each(|&target| encoder.indirect(target, 0, &mut bytes));
        let expected = [
            IpPayload::Sext48(0x7f00_1234_5678),
            IpPayload::Update16(1),
            IpPayload::Update32(1),
            IpPayload::Sext48(0x40_0000),
            IpPayload::Update48(0x8000_0000_0000),
            IpPayload::Update16(1),
        ];
        assert_eq!(packets(&bytes), expected.map(Packet::Tip));
    }

    #[test]
    fn returns_are_compressed_if_their_calls_are_on_the_return_stack() {
        let mut encoder = Encoder::new(QUIET, 0);
        let mut bytes = Vec::new();
        (0..70).for_each(|address| encoder.call(address));
        (0..70).rev().for_each(|address| encoder.ret(address, 0, &mut bytes));
        encoder.flush(0, &mut bytes);
        let packets = packets(&bytes);
        assert_eq!(branches(&packets), [true; RETURNS]);
        assert_eq!(packets.iter().filter(|packet| matches!(packet, Packet::Tip(_))).count(), 70 - RETURNS);
    }

    #[test]
    fn an_address_space_is_shown_when_it_changes_and_at_each_psb() {
        let mut encoder = Encoder::new(QUIET, 0);
        let mut bytes = Vec::new();
        encoder.branch(true, 0, &mut bytes);
        encoder.set_cr3(0x1234_5678_9007, 0, &mut bytes);
        encoder.interrupt_to(0x40_1000, 0xffff_ffff_8100_0000, 0, &mut bytes);
        encoder.synchronize(None, 7, &mut bytes);
        let pip = Packet::Pip { cr3: 0x1234_5678_9000, non_root: false };
        let expected = [
            Packet::Tnt8(Tnt { bits: 1, count: 1 }),
            pip,
            Packet::Fup(IpPayload::Sext48(0x40_1000)),
            Packet::Tip(IpPayload::Sext48(0xffff_8100_0000)),
            Packet::Psb,
            Packet::Tsc(7),
            Packet::Cbr(10),
            pip,
            Packet::PsbEnd,
        ];
        assert_eq!(packets(&bytes), expected);
    }

    #[test]
    fn a_guest_is_entered_and_left() {
        let mut encoder = Encoder::new(QUIET, 0);
        let mut bytes = Vec::new();
        encoder.set_cr3(0x5000, 0, &mut bytes);
        encoder.enter_guest(
            0x2000,
            Guest { vmcs: 0x7000, cr3: 0 },
            Target { ip: 0x1000, bits: 16 },
            0,
            &mut bytes,
        );
        encoder.far(Target { ip: 0x1100, bits: 32 }, 0, &mut bytes);
        encoder.synchronize(Some(0x1102), 7, &mut bytes);
        encoder.exit_guest(Exit { ip: 0x1102, reason: 0x72 }, 0x2003, 0x5000, 0, &mut bytes);
        let mode = |cs_l, cs_d| Packet::ModeExec { cs_l, cs_d, interrupt_flag: false };
        let host = Packet::Pip { cr3: 0x5000, non_root: false };
        let guest = Packet::Pip { cr3: 0, non_root: true };
        let expected = [
            host,
            Packet::Cfe { ip: true, kind: 7, vector: 0 },
            Packet::Fup(IpPayload::Sext48(0x2000)),
            Packet::Vmcs(0x7000),
            guest,
            mode(false, false),
            Packet::Tip(IpPayload::Update16(0x1000)),
            mode(false, true),
            Packet::Tip(IpPayload::Update16(0x1100)),
            Packet::Psb,
            Packet::Tsc(7),
            Packet::Cbr(10),
            Packet::Vmcs(0x7000),
            guest,
            mode(false, true),
            Packet::Fup(IpPayload::Sext48(0x1102)),
            Packet::PsbEnd,
            Packet::Evd { kind: 2, payload: 0x72 },
            Packet::Cfe { ip: false, kind: 8, vector: 0 },
            Packet::Fup(IpPayload::Update16(0x1102)),
            host,
            mode(true, false),
            Packet::Tip(IpPayload::Update16(0x2003)),
        ];
        assert_eq!(packets(&bytes), expected);
    }

    #[test]
    fn a_psb_starts_anew() {
        let mut encoder =
            Encoder::new(Settings { timing: Timing { mtc_period: Some(0), ..QUIET.timing }, ..QUIET }, 85);
        let mut bytes = Vec::new();
        encoder.call(1);
        encoder.branch(false, 85, &mut bytes);
        encoder.synchronize(Some(0x1000), 85, &mut bytes);
        encoder.ret(1, 85, &mut bytes);
        encoder.tick(120, &mut bytes);
        let mode = Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false };
        let expected = [
            Packet::Tnt8(Tnt { bits: 0, count: 1 }),
            Packet::Psb,
            Packet::Tsc(85),
            Packet::Tma { ctc: 2, fast_counter: 5 },
            Packet::Cbr(10),
            mode,
            Packet::Fup(IpPayload::Sext48(0x1000)),
            Packet::PsbEnd,
            Packet::Tip(IpPayload::Update16(1)),
            Packet::Mtc(3),
        ];
        assert_eq!(packets(&bytes), expected);
    }

    #[test]
    fn code_of_another_width_begins_with_its_mode() {
        let mut encoder = Encoder::new(QUIET, 0);
        let mut bytes = Vec::new();
        encoder.enable(0x1000, 0, &mut bytes);
        encoder.interrupt(0x1001, 0, &mut bytes);
        for (bits, ip) in [(32, 0x2000), (32, 0x3000), (16, 0x4000)] {
            encoder.expect_bits(bits);
            encoder.enable(ip, 0, &mut bytes);
            encoder.interrupt(ip, 0, &mut bytes);
        }
        let modes = packets(&bytes).into_iter().filter_map(|packet| match packet {
            Packet::ModeExec { cs_l, cs_d, .. } => Some((cs_l, cs_d)),
            _ => None,
        });
        assert_eq!(modes.collect::<Vec<_>>(), [(true, false), (false, true), (false, false)]);
    }
}

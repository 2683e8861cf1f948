//! The processor's side of Intel PT: from what a program does to packets.
//!
//! ```text
//! branch, ret, indirect, enable, … ──Encoder──► Sink (trace bytes)
//!            ▲
//!       the caller's clock, in ticks of the time-stamp counter
//! ```
//!
//! [`Encoder`] keeps what the processor keeps: the last IP, the branches that wait for their TNT
//! packet, the stack of return addresses, the counters of the timing packets. It is plain data of
//! 64-bit words, so that it may lie in memory that another process reads after this one died.

mod time;

pub use time::{TSC_TICKS_PER_CTC, Timing};

use crate::packet::{IpPayload, PSB, Packet};

/// Where trace bytes go.
pub trait Sink {
    /// Appends the low `length` bytes of `word`, at most 8, the lowest first.
    fn put(&mut self, word: u64, length: usize);
}

impl Sink for Vec<u8> {
    fn put(&mut self, word: u64, length: usize) {
        self.extend_from_slice(&word.to_le_bytes()[..length]);
    }
}

/// What is traced, and how (the fields of IA32_RTIT_CTL that a caller chooses).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether returns are compressed (RTIT_CTL.DisRETC clear).
    pub return_compression: bool,
    /// Which timing packets are made.
    pub timing: Timing,
}

/// Entries of the stack of return addresses (SDM, "Indirect Transfer Compression for Returns").
const RETURNS: usize = 64;

/// A last IP that no address is near to, so that the next one is sent whole. That is what processors
/// do after a PSB, although compressing against zero is allowed too and perf fails on it.
const NO_IP: u64 = 1 << 63;

/// The bits of CR3 that a PIP packet shows: 51 to 5.
const CR3_SHOWN: u64 = ((1 << 52) - 1) & !0x1f;

/// A CR3 that no processor has: its reserved bits are set.
const NO_CR3: u64 = u64::MAX;

/// Branches that a TNT-64 packet holds.
const LONG_TNT: u32 = 47;
/// Branches that a TNT-8 packet holds.
const SHORT_TNT: u32 = 6;

/// The state of one logical processor's trace.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Encoder {
    /// Branches that wait, the newest in bit 0, below a stop bit.
    tnt: u64,
    /// `tnt` has as many branches as one packet may hold when it reaches this.
    tnt_full: u64,
    last_ip: u64,
    /// Ring of return addresses; `returns_top` counts pushes less pops.
    returns: [u64; RETURNS],
    returns_top: u64,
    returns_depth: u64,
    return_compression: u64,
    /// Whether MODE.Exec was sent since the last PSB.
    mode_known: u64,
    /// CR3, or [`NO_CR3`] where the caller never set it.
    cr3: u64,
    time: time::State,
}

impl Encoder {
    /// A processor that is not tracing yet; `now` is its clock.
    pub fn new(settings: Settings, now: u64) -> Encoder {
        // Cycle counts stand before TNT packets; short packets keep them dense.
        let capacity = if settings.timing.cyc_threshold.is_some() { SHORT_TNT } else { LONG_TNT };
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
            time: time::State::new(settings.timing, now),
        }
    }

    /// A conditional branch.
    #[inline(always)]
    pub fn branch(&mut self, taken: bool, now: u64, sink: &mut impl Sink) {
        self.tnt = self.tnt << 1 | u64::from(taken);
        if self.tnt >= self.tnt_full {
            self.flush(now, sink);
        }
    }

    /// A near call, direct or indirect, that will return to `return_address`; not for a call to the
    /// next instruction, which programs use to learn their own address.
    #[inline(always)]
    pub fn call(&mut self, return_address: u64) {
        self.returns[(self.returns_top % RETURNS as u64) as usize] = return_address;
        self.returns_top = self.returns_top.wrapping_add(1);
        self.returns_depth = (self.returns_depth + 1).min(RETURNS as u64);
    }

    /// A near return to `target`: one TNT bit where it goes where its call said, else a TIP.
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

    /// An indirect jump or call, or a far transfer that stays in traced code.
    #[inline]
    pub fn indirect(&mut self, target: u64, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        self.ip_packet(0x0d, target, sink);
    }

    /// Tracing begins at `ip`: TIP.PGE, after MODE.Exec where the mode was not told since the last PSB.
    pub fn enable(&mut self, ip: u64, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        if self.mode_known == 0 {
            self.mode(sink);
        }
        self.ip_packet(0x11, ip, sink);
    }

    /// Tracing ends with a branch: TIP.PGD, with the branch's target where that is no secret of
    /// another privilege level.
    pub fn disable(&mut self, target: Option<u64>, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        match target {
            Some(ip) => {
                // Calls that leave and return unseen must not be matched with later returns.
                self.returns_depth = 0;
                self.ip_packet(0x01, ip, sink);
            }
            None => packet(Packet::TipPgd(IpPayload::Suppressed), sink),
        }
    }

    /// An interrupt, fault or trap that leaves traced code; `ip` is the instruction that it
    /// returns to: FUP, then TIP.PGD without an address.
    pub fn interrupt(&mut self, ip: u64, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        self.ip_packet(0x1d, ip, sink);
        self.disable(None, now, sink);
    }

    /// An interrupt, fault or trap within traced code, from before the instruction at `ip` to `target`:
    /// FUP, then TIP.
    pub fn interrupt_to(&mut self, ip: u64, target: u64, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        self.ip_packet(0x1d, ip, sink);
        self.ip_packet(0x0d, target, sink);
    }

    /// CR3 has a new value: PIP (SDM, "PIP packet"). Each PSB+ repeats it from then on.
    pub fn set_cr3(&mut self, cr3: u64, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.cr3 = cr3;
        self.paging(sink);
    }

    fn paging(&self, sink: &mut impl Sink) {
        if self.cr3 != NO_CR3 {
            packet(Packet::Pip { cr3: self.cr3 & CR3_SHOWN, non_root: false }, sink);
        }
    }

    /// Packets were lost: OVF, and a FUP with the instruction that runs next, where tracing is on.
    pub fn overflow(&mut self, next: Option<u64>, now: u64, sink: &mut impl Sink) {
        self.tnt = 1;
        self.returns_depth = 0;
        // The decoder can't know what was sent last, so the next address is sent whole.
        self.last_ip = NO_IP;
        self.time.cyc(now, sink);
        packet(Packet::Overflow, sink);
        if let Some(ip) = next {
            self.ip_packet(0x1d, ip, sink);
        }
    }

    /// Forgets what waits and what was sent, as right after a PSB at `now`.
    pub fn forget(&mut self, now: u64) {
        self.tnt = 1;
        self.last_ip = NO_IP;
        self.returns_depth = 0;
        self.time.forget(now);
    }

    /// PSB+: a place where decoding may start. `next` is the instruction that runs next, where
    /// tracing is on; every branch before it is already known to the encoder.
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
            self.ip_packet(0x1d, ip, sink);
        }
        packet(Packet::PsbEnd, sink);
    }

    /// When the next MTC packet is due; never, where there are none.
    #[inline(always)]
    pub fn next_mtc(&self) -> u64 {
        self.time.next_mtc()
    }

    /// Ticks between MTC packets, where there are any.
    pub fn mtc_ticks(&self) -> u64 {
        self.time.mtc_ticks()
    }

    /// Leaves out the MTC packets that are due at `now`; to be called right before a TSC packet, which says more.
    pub fn skip_mtc(&mut self, now: u64) {
        self.time.skip(now);
    }

    /// The MTC packets that are due at `now`.
    pub fn tick(&mut self, now: u64, sink: &mut impl Sink) {
        self.time.tick(now, sink);
    }

    /// The clock was set forward while tracing was off: TSC and TMA say to what.
    pub fn set_clock(&mut self, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.set(now, sink);
    }

    /// Sends the branches that wait. Few go into TNT-8 packets; where a TNT-64 is not longer, it.
    pub fn flush(&mut self, now: u64, sink: &mut impl Sink) {
        let mut count = self.tnt.ilog2();
        if count == 0 {
            return;
        }
        self.time.cyc(now, sink);
        if count > 4 * SHORT_TNT {
            sink.put(self.tnt << 16 | 0xa302, 8);
        } else {
            let mask = (1 << SHORT_TNT) - 1;
            while count > SHORT_TNT {
                count -= SHORT_TNT;
                sink.put((self.tnt >> count & mask | 1 << SHORT_TNT) << 1, 1);
            }
            let rest = self.tnt & ((1 << count) - 1);
            sink.put((rest | 1 << count) << 1, 1);
        }
        self.tnt = 1;
    }

    /// MODE.Exec of 64-bit code, the only mode that a 64-bit program runs in.
    fn mode(&mut self, sink: &mut impl Sink) {
        packet(Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false }, sink);
        self.mode_known = 1;
    }

    /// An IP packet with the shortest update of the last IP.
    #[inline]
    fn ip_packet(&mut self, opcode: u64, ip: u64, sink: &mut impl Sink) {
        let (ip_bytes, payload, size) = compress(self.last_ip, ip).parts();
        self.last_ip = ip;
        let head = opcode | u64::from(ip_bytes) << 5;
        if size == 8 {
            sink.put(head, 1);
            sink.put(payload, 8);
        } else {
            sink.put(payload << 8 | head, 1 + size);
        }
    }
}

/// The shortest payload that turns `last` into `ip` (SDM, "IP Compression").
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

/// Any packet; for those that are rare.
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
        fn every_branch_is_told_in_order(taken in prop::collection::vec(any::<bool>(), 0..300), dense: bool) {
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
    fn returns_are_compressed_where_their_calls_are_remembered() {
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
}

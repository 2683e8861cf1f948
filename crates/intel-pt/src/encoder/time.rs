//! Timing packets: TSC, TMA, CBR, MTC, CYC.

use super::{Sink, packet};
use crate::packet::Packet;

/// TSC ticks per crystal-clock tick (CPUID leaf 15H, EBX over EAX): a TSC of 1 GHz over a crystal of 25 MHz.
pub const TSC_TICKS_PER_CTC: u64 = 40;

/// The core-to-bus ratio in CBR packets: 1 GHz over the 100 MHz bus, so that a core cycle is a tick.
const CORE_TO_BUS: u8 = 10;

/// The timing packets to emit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// TSC packets.
    pub tsc: bool,
    /// MTC packets, one every `2^period` crystal-clock ticks, and TMA packets beside TSC.
    pub mtc_period: Option<u8>,
    /// CYC packets, if at least this many cycles passed since the last one.
    pub cyc_threshold: Option<u64>,
}

/// State of the timing packets: 64-bit words only, see [`super::Encoder`].
#[repr(C)]
#[derive(Clone, Debug)]
pub(super) struct State {
    tsc: u64,
    mtc: u64,
    cyc: u64,
    cyc_threshold: u64,
    /// Ticks between MTC packets: a multiple of the crystal clock's period.
    mtc_ticks: u64,
    next_mtc: u64,
    /// Time of the last CYC packet.
    last_cyc: u64,
}

impl State {
    pub(super) fn new(timing: Timing, now: u64) -> State {
        let mtc_ticks = TSC_TICKS_PER_CTC << timing.mtc_period.unwrap_or(0);
        State {
            tsc: timing.tsc.into(),
            mtc: timing.mtc_period.is_some().into(),
            cyc: timing.cyc_threshold.is_some().into(),
            cyc_threshold: timing.cyc_threshold.unwrap_or(0),
            mtc_ticks,
            next_mtc: match timing.mtc_period {
                Some(_) => (now / mtc_ticks + 1) * mtc_ticks,
                None => u64::MAX,
            },
            last_cyc: now,
        }
    }

    #[inline(always)]
    pub(super) fn next_mtc(&self) -> u64 {
        self.next_mtc
    }

    pub(super) fn mtc_ticks(&self) -> u64 {
        self.mtc_ticks
    }

    /// Omits the MTC packets up to `now`.
    pub(super) fn skip(&mut self, now: u64) {
        if self.mtc != 0 {
            self.next_mtc = (now / self.mtc_ticks + 1) * self.mtc_ticks;
        }
    }

    /// Emits one MTC for each boundary that `now` has reached.
    pub(super) fn tick(&mut self, now: u64, sink: &mut impl Sink) {
        while self.next_mtc <= now {
            // The packet gives the time of the boundary, not of the instruction that reached it.
            self.cyc(self.next_mtc, sink);
            packet(Packet::Mtc((self.next_mtc / self.mtc_ticks) as u8), sink);
            self.next_mtc += self.mtc_ticks;
        }
    }

    /// Emits a CYC packet if enough cycles passed. It precedes the packet that it times.
    #[inline]
    pub(super) fn cyc(&mut self, now: u64, sink: &mut impl Sink) {
        let cycles = now.saturating_sub(self.last_cyc);
        if self.cyc != 0 && cycles > 0 && cycles >= self.cyc_threshold {
            packet(Packet::Cyc(cycles), sink);
            self.last_cyc = now;
        }
    }

    /// Emits the timing part of PSB+: TSC, TMA, CBR.
    pub(super) fn status(&mut self, now: u64, sink: &mut impl Sink) {
        self.alignment(now, sink);
        packet(Packet::Cbr(CORE_TO_BUS), sink);
    }

    /// The clock jumped to `now`, and no core cycles passed.
    pub(super) fn set(&mut self, now: u64, sink: &mut impl Sink) {
        self.last_cyc = now;
        self.skip(now);
        self.alignment(now, sink);
    }

    /// Counts no cycles before `now`.
    pub(super) fn forget(&mut self, now: u64) {
        self.last_cyc = now;
    }

    fn alignment(&mut self, now: u64, sink: &mut impl Sink) {
        if self.tsc != 0 {
            packet(Packet::Tsc(now), sink);
        }
        if self.tsc != 0 && self.mtc != 0 {
            let ctc = (now / TSC_TICKS_PER_CTC) as u16;
            packet(Packet::Tma { ctc, fast_counter: (now % TSC_TICKS_PER_CTC) as u16 }, sink);
        }
    }
}

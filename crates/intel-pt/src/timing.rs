//! Estimates the time-stamp counter from TSC, TMA, MTC, CYC and CBR packets (SDM, "Timing Packets").
//!
//! ```text
//! TSC ──────────────────────► the counter
//! TSC + TMA + MTC ──────────► the counter at a tick of the crystal clock
//! any of these + CYC + CBR ─► the counter some core cycles later
//! ```
//!
//! The estimate is the time of the last timing packet: what runs next runs no earlier than it, and no later than the
//! next estimate. Each segment starts afresh, so packets lost before a PSB (erratum SKL168) affect no time after it.

use hodo_clock::Tsc;

use crate::{Config, packet::Packet};

/// TSC packets carry 56 bits.
const TSC_BITS: u32 = 56;

/// TMA packets carry 16 bits of the crystal clock's count.
const TMA_BITS: u32 = 16;

/// MTC packets carry 8 bits of that count, from bit `mtc_shift` on.
const MTC_BITS: u32 = 8;

/// The estimated time-stamp counter. It never decreases: if a TSC packet seems to step back, as it may around an MTC,
/// the estimate stays.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// TSC ticks per crystal-clock tick, as numerator and denominator.
    ratio: Option<(u64, u64)>,
    /// An MTC packet comes every `2^mtc_shift` crystal-clock ticks.
    mtc_shift: u32,
    max_nonturbo_ratio: Option<u64>,
    /// Maximum number of cycles that are too few for a CYC packet.
    uncounted: u64,
    now: Option<u64>,
    crystal: Option<Crystal>,
    cycles: Cycles,
}

/// The crystal clock's state since the last TMA.
#[derive(Clone, Copy, Debug)]
struct Crystal {
    /// TSC at the crystal-clock tick in the TMA packet.
    tsc: u64,
    /// Low bits of that tick.
    ctc: u64,
    /// Crystal-clock ticks from there to the last MTC, if one came.
    elapsed: u64,
    /// The MTC payload for `ctc + elapsed`, as far as its bits are known.
    mtc: u8,
    /// Its known bits: a TMA packet lacks the upper ones if MTC packets are rare.
    mtc_mask: u8,
}

/// Core cycles since `base`, at the last CYC packet.
#[derive(Clone, Copy, Debug, Default)]
struct Cycles {
    base: u64,
    count: u64,
    /// Cycles of the whole segment.
    total: u64,
    /// Whether a CYC packet gave the cycles up to `base`. If not, the next one may include earlier cycles that were
    /// too few for a packet.
    exact: bool,
    /// Whether the last packet was a CYC, which then times the next packet.
    just_counted: bool,
    /// Core-to-bus ratio of the last CBR packet; zero before.
    core_bus_ratio: u64,
    /// The last measured duration of cycles.
    rate: Option<Rate>,
}

/// Duration of cycles, in ticks of the time-stamp counter.
#[derive(Clone, Copy, Debug)]
struct Rate {
    ticks: u64,
    cycles: u64,
    by: Reference,
}

/// The reference of a measured rate; a later variant is more precise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reference {
    Tsc,
    Mtc,
}

impl Timing {
    /// Creates an estimate without a known time.
    pub(crate) fn new(config: &Config) -> Timing {
        let ratio = config.tsc_ctc_ratio.filter(|&(n, d)| n != 0 && d != 0);
        Timing {
            ratio: ratio.map(|(n, d)| (u64::from(n), u64::from(d))),
            mtc_shift: u32::from(config.mtc_frequency.unwrap_or(0)).min(15),
            max_nonturbo_ratio: config.max_nonturbo_ratio.filter(|&ratio| ratio != 0).map(u64::from),
            uncounted: config.cyc_threshold.saturating_sub(1),
            now: None,
            crystal: None,
            cycles: Cycles::default(),
        }
    }

    /// Returns the latest estimate; `None` before the first TSC packet.
    #[inline]
    pub(crate) fn now(&self) -> Option<Tsc> {
        self.now.map(Tsc)
    }

    /// Returns the core cycles of the segment up to the last CYC packet.
    #[inline]
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles.total
    }

    /// Follows a packet; returns whether it is a timing packet.
    #[inline]
    pub(crate) fn follow(&mut self, packet: &Packet) -> bool {
        match *packet {
            Packet::Cyc(cycles) => self.cyc(cycles),
            Packet::Mtc(payload) => self.mtc(payload),
            Packet::Tsc(tsc) => self.tsc(tsc),
            Packet::Tma { ctc, fast_counter } => self.tma(ctc, fast_counter),
            Packet::Cbr(ratio) => self.cbr(u64::from(ratio)),
            _ => return false,
        }
        true
    }

    fn advance(&mut self, tsc: u64) {
        self.now = self.now.map(|now| now.max(tsc));
    }

    /// Handles a known time. The processor counts cycles from one CYC packet to the next, so counting may restart
    /// here only right after a CYC. Otherwise the cycles since the last one, fewer than the CYC threshold, would
    /// count twice.
    fn rebase(&mut self, tsc: u64, by: Reference) {
        if self.cycles.just_counted {
            self.measure(tsc, by);
        }
        if self.cycles.just_counted || self.cycles.base == 0 {
            self.restart(tsc);
        }
    }

    /// Counts cycles from `tsc` on.
    fn restart(&mut self, tsc: u64) {
        self.cycles.base = tsc;
        self.cycles.count = 0;
        self.cycles.exact = self.cycles.just_counted;
    }

    /// Measures the duration of cycles from `base` to `tsc`. Meanwhile, the core's frequency may have changed, the
    /// core may have slept, or its counter may have wrapped (erratum SKL168: at 4,096). So a rate that differs much
    /// from the last CBR packet's is discarded.
    fn measure(&mut self, tsc: u64, by: Reference) {
        let Cycles { base, count, exact, rate, .. } = self.cycles;
        let ticks = tsc.saturating_sub(base);
        let better = rate.is_none_or(|rate| by >= rate.by);
        if !(better && exact && ticks > 0 && count > 0) {
            return;
        }
        let plausible = self.nominal_rate().is_none_or(|nominal| {
            let (measured, expected) = (
                u128::from(ticks) * u128::from(nominal.cycles),
                u128::from(nominal.ticks) * u128::from(count),
            );
            measured <= expected.saturating_mul(2) && expected <= measured.saturating_mul(2)
        });
        if plausible {
            self.cycles.rate = Some(Rate { ticks, cycles: count, by });
        }
    }

    /// Returns the duration of cycles according to the last CBR packet.
    fn nominal_rate(&self) -> Option<Rate> {
        let (ticks, cycles) = (self.max_nonturbo_ratio?, self.cycles.core_bus_ratio);
        (cycles != 0).then_some(Rate { ticks, cycles, by: Reference::Tsc })
    }

    /// Records that a packet other than a timing packet came.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.cycles.just_counted = false;
    }

    fn tsc(&mut self, low: u64) {
        // The packet lacks the high bits: they are those of the previous time, or one more.
        let high = self.now.unwrap_or(0) >> TSC_BITS << TSC_BITS;
        let wrapped = self.now.is_some_and(|now| (high | low).saturating_add(1 << (TSC_BITS - 1)) < now);
        let tsc = if wrapped { (high | low).wrapping_add(1 << TSC_BITS) } else { high | low };
        self.now = Some(self.now.map_or(tsc, |now| now.max(tsc)));
        // The next TMA gives a new start for MTC packets.
        self.crystal = None;
        self.rebase(tsc, Reference::Tsc);
    }

    /// Binds a TMA to the previous TSC packet: `fast_counter` ticks before that packet, the crystal clock reached `ctc`.
    fn tma(&mut self, ctc: u16, fast_counter: u16) {
        let Some(now) = self.now else { return };
        let ctc = u64::from(ctc);
        let known = TMA_BITS.saturating_sub(self.mtc_shift).min(MTC_BITS);
        self.crystal = Some(Crystal {
            tsc: now.saturating_sub(u64::from(fast_counter)),
            ctc,
            elapsed: 0,
            mtc: (ctc >> self.mtc_shift) as u8,
            mtc_mask: ((1u16 << known) - 1) as u8,
        });
    }

    fn mtc(&mut self, payload: u8) {
        // Without a TMA since the last TSC, the crystal clock's state is unknown.
        let (Some(crystal), Some((numerator, denominator))) = (&mut self.crystal, self.ratio) else { return };
        // The count may have wrapped, but not more than once.
        let periods = u64::from(payload.wrapping_sub(crystal.mtc) & crystal.mtc_mask);
        let at_mtc = ((crystal.ctc + crystal.elapsed) >> self.mtc_shift) + periods;
        crystal.elapsed = (at_mtc << self.mtc_shift).saturating_sub(crystal.ctc);
        crystal.mtc = payload;
        crystal.mtc_mask = u8::MAX;
        let tsc = crystal.tsc.saturating_add(scaled(crystal.elapsed, numerator, denominator));
        self.advance(tsc);
        self.rebase(tsc, Reference::Mtc);
    }

    fn cyc(&mut self, cycles: u64) {
        self.cycles.total = self.cycles.total.saturating_add(cycles);
        // The estimate must never be later than the real time.
        let first = self.cycles.count == 0;
        let overlap = if first && !self.cycles.exact { self.uncounted } else { 0 };
        self.cycles.count = self.cycles.count.saturating_add(cycles.saturating_sub(overlap));
        self.cycles.just_counted = true;
        let Some(rate) = self.cycles.rate.or_else(|| self.nominal_rate()) else { return };
        let ticks = scaled(self.cycles.count, rate.ticks, rate.cycles);
        self.advance(self.cycles.base.saturating_add(ticks));
    }

    /// Sets the core's frequency; a change invalidates the measured rate. The CBR packet of a PSB+ repeats it.
    fn cbr(&mut self, ratio: u64) {
        if ratio != self.cycles.core_bus_ratio {
            self.restart(self.now.unwrap_or(0));
            self.cycles.core_bus_ratio = ratio;
            self.cycles.rate = None;
        }
    }
}

/// Computes `count * numerator / denominator`, rounded down and saturating.
#[inline]
fn scaled(count: u64, numerator: u64, denominator: u64) -> u64 {
    match count.checked_mul(numerator) {
        // A 64-bit division is far faster than a 128-bit one.
        Some(product) => product / denominator,
        None => {
            let wide = u128::from(count) * u128::from(numerator) / u128::from(denominator);
            u64::try_from(wide).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing() -> Timing {
        Timing::new(&Config {
            mtc_frequency: Some(3),
            tsc_ctc_ratio: Some((40, 1)),
            max_nonturbo_ratio: Some(10),
            ..Config::default()
        })
    }

    fn times(packets: &[Packet]) -> Vec<Option<u64>> {
        let mut timing = timing();
        packets
            .iter()
            .map(|packet| {
                if !timing.follow(packet) {
                    timing.pass();
                }
                timing.now().map(|tsc| tsc.0)
            })
            .collect()
    }

    #[test]
    fn mtc_counts_crystal_periods_from_the_tma() {
        // TSC 1000 is exactly crystal tick 25; MTC packets come at ticks 32 and 40.
        let packets =
            [Packet::Tsc(1000), Packet::Tma { ctc: 25, fast_counter: 0 }, Packet::Mtc(4), Packet::Mtc(5)];
        assert_eq!(times(&packets), [Some(1000), Some(1000), Some(1280), Some(1600)]);
    }

    #[test]
    fn cycles_are_scaled_by_the_core_to_bus_ratio_and_restart_at_each_time() {
        let packets =
            [Packet::Tsc(1000), Packet::Cbr(20), Packet::Cyc(100), Packet::Cyc(100), Packet::Tsc(1090)];
        assert_eq!(times(&packets), [Some(1000), Some(1000), Some(1050), Some(1100), Some(1100)]);
    }

    #[test]
    fn cycles_before_an_mtc_count_once() {
        let tsc = [Packet::Tsc(1000), Packet::Tma { ctc: 25, fast_counter: 0 }, Packet::Cbr(10)];
        // 270 cycles to a branch, 10 more to the MTC at 1280, which has no CYC before it, 20 more to a branch.
        let branch = Packet::TipPgd(crate::packet::IpPayload::Suppressed);
        let packets =
            [&tsc[..], &[Packet::Cyc(270), branch, Packet::Mtc(4), Packet::Cyc(30), branch]].concat();
        assert_eq!(times(&packets)[3..], [1270, 1270, 1280, 1300, 1300].map(Some));
        // The same, with a CYC that times the MTC.
        let packets = [&tsc[..], &[Packet::Cyc(280), Packet::Mtc(4), Packet::Cyc(20), branch]].concat();
        assert_eq!(times(&packets)[3..], [1280, 1280, 1300, 1300].map(Some));
    }

    #[test]
    fn nothing_is_known_before_the_first_tsc() {
        assert_eq!(times(&[Packet::Mtc(4), Packet::Cyc(5)]), [None, None]);
    }

    #[test]
    fn damaged_clocks_stay_within_their_range() {
        // The cycles exceed the range of the clock; then any time may follow.
        let packets = [Packet::Tsc(1000), Packet::Cbr(1), Packet::Cyc(u64::MAX), Packet::Tsc(7)];
        assert_eq!(times(&packets)[2..], [Some(u64::MAX); 2]);
        // The crystal-clock tick would precede tick 0 of the counter.
        let packets = [Packet::Tsc(5), Packet::Tma { ctc: 8, fast_counter: 500 }, Packet::Mtc(1)];
        assert_eq!(times(&packets)[2], Some(5));
    }

    #[test]
    fn a_tsc_of_56_bits_wraps() {
        let last = (1 << 56) - 5;
        assert_eq!(times(&[Packet::Tsc(last), Packet::Tsc(3)]), [Some(last), Some((1 << 56) + 3)]);
    }

    #[test]
    fn the_rate_of_cycles_is_measured_between_mtc_packets() {
        // By its CBR, the core runs at the counter's frequency; in fact it runs at 5/4 of that.
        let start =
            [Packet::Cbr(10), Packet::Cyc(9), Packet::Tsc(1280), Packet::Tma { ctc: 32, fast_counter: 0 }];
        let packets = [Packet::Cyc(400), Packet::Mtc(5), Packet::Cyc(100), Packet::Cyc(300), Packet::Mtc(6)];
        let estimates = times(&[&start[..], &packets].concat());
        // 400 cycles end after the MTC by the nominal rate, but not by the measured one.
        assert_eq!(estimates[4..], [1680, 1680, 1680, 1920, 1920].map(Some));
    }

    #[test]
    fn another_frequency_discards_the_measured_rate() {
        let start =
            [Packet::Cbr(10), Packet::Cyc(9), Packet::Tsc(1280), Packet::Tma { ctc: 32, fast_counter: 0 }];
        let measured = [Packet::Cyc(250), Packet::Mtc(5), Packet::Cbr(20), Packet::Cyc(100)];
        assert_eq!(times(&[&start[..], &measured].concat())[6..], [1600, 1650].map(Some));
    }

    #[test]
    fn a_count_of_cycles_that_wrapped_measures_nothing() {
        // Of about 17,000 cycles, the wrapping counter lost all but 320 (SKL168).
        let start =
            [Packet::Cbr(10), Packet::Cyc(9), Packet::Tsc(1280), Packet::Tma { ctc: 32, fast_counter: 0 }];
        let packets = [Packet::Cyc(320), Packet::Mtc(58), Packet::Cyc(100)];
        assert_eq!(times(&[&start[..], &packets].concat())[5..], [18_560, 18_660].map(Some));
    }

    #[test]
    fn without_mtc_the_rate_is_measured_between_tsc_packets() {
        let mut timing = Timing::new(&Config { cyc: true, ..Config::default() });
        for packet in
            [Packet::Cyc(7), Packet::Tsc(1000), Packet::Cyc(100), Packet::Tsc(1400), Packet::Cyc(50)]
        {
            timing.follow(&packet);
        }
        assert_eq!((timing.now(), timing.cycles()), (Some(Tsc(1600)), 157));
    }

    #[test]
    fn the_first_mtc_brings_the_bits_that_tma_lacks() {
        // MTC has bits 12 to 19 of the crystal clock, TMA bits 0 to 15: four of the eight.
        let config = Config { mtc_frequency: Some(12), tsc_ctc_ratio: Some((1, 1)), ..Config::default() };
        let mut timing = Timing::new(&config);
        let start = 0x73_f000;
        for (packet, expected) in [
            (Packet::Tsc(start), start),
            (Packet::Tma { ctc: start as u16, fast_counter: 0 }, start),
            (Packet::Mtc(0x40), 0x74_0000),
            (Packet::Mtc(0x41), 0x74_1000),
            (Packet::Mtc(0x00), 0x80_0000),
        ] {
            timing.follow(&packet);
            assert_eq!(timing.now(), Some(Tsc(expected)));
        }
    }

    #[test]
    fn mtc_between_tsc_and_tma_gives_no_time() {
        let packets =
            [Packet::Tsc(1000), Packet::Mtc(4), Packet::Tma { ctc: 25, fast_counter: 0 }, Packet::Mtc(5)];
        assert_eq!(times(&packets), [1000, 1000, 1000, 1600].map(Some));
    }

    #[test]
    fn a_tsc_that_steps_back_holds_time() {
        let packets =
            [Packet::Tsc(1000), Packet::Tma { ctc: 25, fast_counter: 0 }, Packet::Mtc(4), Packet::Tsc(1270)];
        assert_eq!(times(&packets)[2..], [1280, 1280].map(Some));
    }
}

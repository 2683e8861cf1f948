//! TSC, TMA, MTC, CYC and CBR packets to one estimate of the time-stamp counter
//! (SDM, "Timing Packets").

use hodo_clock::Tsc;

use crate::{Config, packet::Packet};

/// TSC packets carry 56 bits.
const TSC_BITS: u32 = 56;

/// The estimate of the time-stamp counter as the packets go by. It never runs backwards.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// TSC ticks per crystal-clock tick.
    ratio: Option<(u64, u64)>,
    /// An MTC packet comes each `2^mtc_shift` crystal-clock ticks.
    mtc_shift: u32,
    max_nonturbo_ratio: Option<u64>,
    now: Option<u64>,
    crystal: Option<Crystal>,
    cycles: Cycles,
}

/// Where the crystal clock stands, since the last TMA.
#[derive(Clone, Copy, Debug)]
struct Crystal {
    /// TSC at the tick of the crystal clock that the TMA packet names.
    tsc: u64,
    /// Low bits of that tick.
    ctc: u64,
    /// Crystal-clock ticks from there to the last MTC, once one was seen.
    elapsed: u64,
    /// The MTC payload that belongs to `ctc + elapsed`.
    mtc: u8,
}

/// Core cycles since `base`, at the last CYC packet.
#[derive(Clone, Copy, Debug, Default)]
struct Cycles {
    base: u64,
    count: u64,
    /// No packet came since the last CYC, so the next one is the one that it times.
    just_counted: bool,
    /// Core-to-bus ratio of the last CBR packet; zero before.
    core_bus_ratio: u64,
}

impl Timing {
    /// No time is known yet.
    pub(crate) fn new(config: &Config) -> Timing {
        let ratio = config.tsc_ctc_ratio.filter(|&(n, d)| n != 0 && d != 0);
        Timing {
            ratio: ratio.map(|(n, d)| (u64::from(n), u64::from(d))),
            mtc_shift: u32::from(config.mtc_frequency.unwrap_or(0)).min(15),
            max_nonturbo_ratio: config.max_nonturbo_ratio.filter(|&ratio| ratio != 0).map(u64::from),
            now: None,
            crystal: None,
            cycles: Cycles::default(),
        }
    }

    /// The latest estimate; `None` before the first TSC packet.
    #[inline]
    pub(crate) fn now(&self) -> Option<Tsc> {
        self.now.map(Tsc)
    }

    /// Takes a packet in; whether it was one that tells the time.
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

    /// The time is known to be `tsc`. The processor counts cycles from one CYC packet to the next, so
    /// counting may start anew only where that packet comes right after a CYC; elsewhere the cycles since
    /// the last one, fewer than the threshold of CYC packets, would count twice.
    fn rebase(&mut self, tsc: u64) {
        if self.cycles.just_counted || self.cycles.base == 0 {
            self.cycles.base = tsc;
            self.cycles.count = 0;
        }
    }

    /// A packet went by that tells no time.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.cycles.just_counted = false;
    }

    fn tsc(&mut self, low: u64) {
        // The packet leaves out the high bits; they are those of the time before, or one more.
        let high = self.now.unwrap_or(0) >> TSC_BITS << TSC_BITS;
        let wrapped = self.now.is_some_and(|now| (high | low).saturating_add(1 << (TSC_BITS - 1)) < now);
        let tsc = if wrapped { (high | low).wrapping_add(1 << TSC_BITS) } else { high | low };
        self.now = Some(self.now.map_or(tsc, |now| now.max(tsc)));
        self.crystal = None;
        self.rebase(tsc);
    }

    /// TMA binds to the TSC packet before it: `fast_counter` ticks ago the crystal clock became `ctc`.
    fn tma(&mut self, ctc: u16, fast_counter: u16) {
        let Some(now) = self.now else { return };
        let ctc = u64::from(ctc);
        self.crystal = Some(Crystal {
            tsc: now.saturating_sub(u64::from(fast_counter)),
            ctc,
            elapsed: 0,
            mtc: (ctc >> self.mtc_shift) as u8,
        });
    }

    fn mtc(&mut self, payload: u8) {
        // Without a TMA since the last TSC, nothing says where the crystal clock stands.
        let (Some(crystal), Some((numerator, denominator))) = (&mut self.crystal, self.ratio) else { return };
        let periods = u64::from(payload.wrapping_sub(crystal.mtc));
        let at_mtc = ((crystal.ctc + crystal.elapsed) >> self.mtc_shift) + periods;
        crystal.elapsed = (at_mtc << self.mtc_shift).saturating_sub(crystal.ctc);
        crystal.mtc = payload;
        let ticks = u128::from(crystal.elapsed) * u128::from(numerator) / u128::from(denominator);
        let tsc = crystal.tsc.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX));
        self.advance(tsc);
        self.rebase(tsc);
    }

    fn cyc(&mut self, cycles: u64) {
        self.cycles.count = self.cycles.count.saturating_add(cycles);
        self.cycles.just_counted = true;
        let Cycles { base, count, core_bus_ratio, .. } = self.cycles;
        let (Some(nominal), true) = (self.max_nonturbo_ratio, core_bus_ratio != 0) else { return };
        let ticks = u128::from(count) * u128::from(nominal) / u128::from(core_bus_ratio);
        self.advance(base.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX)));
    }

    fn cbr(&mut self, ratio: u64) {
        if ratio != self.cycles.core_bus_ratio {
            (self.cycles.base, self.cycles.count) = (self.now.unwrap_or(0), 0);
            self.cycles.core_bus_ratio = ratio;
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
        // TSC 1000 is crystal tick 25, exactly; the next MTC comes at tick 32, the one after at 40.
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
        // 270 cycles to a branch, 10 more to the MTC at 1280, which no CYC precedes, 20 more to a branch.
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
        // More cycles than a clock can hold, and then any time.
        let packets = [Packet::Tsc(1000), Packet::Cbr(1), Packet::Cyc(u64::MAX), Packet::Tsc(7)];
        assert_eq!(times(&packets)[2..], [Some(u64::MAX); 2]);
        // The crystal clock's tick would lie before the counter's beginning.
        let packets = [Packet::Tsc(5), Packet::Tma { ctc: 8, fast_counter: 500 }, Packet::Mtc(1)];
        assert_eq!(times(&packets)[2], Some(5));
    }

    #[test]
    fn a_tsc_of_56_bits_wraps() {
        let last = (1 << 56) - 5;
        assert_eq!(times(&[Packet::Tsc(last), Packet::Tsc(3)]), [Some(last), Some((1 << 56) + 3)]);
    }
}

//! Time by libipt's rules: a TSC, refined by MTC and CYC packets as far as the configuration allows.
//!
//! Its names: the *fast counter* (FC) ticks like the TSC; its ratio to core cycles (FCR, shifted left by [`SHIFT`]) is
//! calibrated from CYC between MTC or TSC packets, or from CBR.

use hodo_intel_pt::packet::Packet;

use crate::{Error, Settings};

/// Fractional bits of the ratio of fast counter to cycles.
const SHIFT: u32 = 8;
/// Bits of the crystal clock in an MTC packet.
const MTC_BITS: u32 = 8;
/// Bits of the crystal clock in a TMA packet.
const TMA_BITS: u32 = 16;
/// Bits of a TSC packet.
const TSC_BITS: u32 = 56;

/// The time at a position of the trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Time {
    /// The estimated timestamp.
    tsc: u64,
    /// The timestamp at the last packet that tells it without CYC.
    base: u64,
    /// Fast counter since `base`, from CYC packets.
    fast_counter: u64,
    /// Crystal clock at the last MTC or TMA.
    crystal: u32,
    /// Crystal clock at the last MTC or TMA before the present CYC packets began to count.
    crystal_of_cycles: u32,
    has_tsc: bool,
    has_tma: bool,
    has_mtc: bool,
    ratio: Option<u8>,
    lost_mtc: u32,
    lost_cyc: u32,
}

/// A time as `pt_qry_time` returns it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) tsc: u64,
    pub(crate) lost_mtc: u32,
    pub(crate) lost_cyc: u32,
    /// Whether the trace told a timestamp; else the time counts from the synchronization point.
    pub(crate) is_absolute: bool,
}

impl Time {
    pub(crate) fn read(&self) -> Reading {
        let &Time { tsc, lost_mtc, lost_cyc, has_tsc: is_absolute, .. } = self;
        Reading { tsc, lost_mtc, lost_cyc, is_absolute }
    }

    pub(crate) fn ratio(&self) -> Result<u32, Error> {
        self.ratio.map(u32::from).ok_or(Error::NO_RATIO)
    }

    fn tsc(&mut self, tsc: u64) {
        *self = Time {
            tsc,
            base: tsc,
            has_tsc: true,
            crystal_of_cycles: self.crystal_of_cycles,
            ratio: self.ratio,
            ..Time::default()
        };
    }

    fn cbr(&mut self, ratio: u8) -> Result<(), Error> {
        if ratio == 0 {
            return Err(Error::BAD_PACKET);
        }
        self.ratio = Some(ratio);
        Ok(())
    }

    fn tma(&mut self, crystal: u16, fast_counter: u16, settings: &Settings) -> Result<(), Error> {
        if !self.has_tsc || self.has_tma {
            return Err(Error::BAD_CONTEXT);
        }
        if self.has_mtc {
            return Err(Error::INTERNAL);
        }
        let bits = u32::from(settings.raw.mtc_frequency) + MTC_BITS;
        self.has_tma = true;
        self.base = self.base.wrapping_sub(fast_counter.into());
        self.fast_counter = self.fast_counter.wrapping_add(fast_counter.into());
        // With fewer bits in MTC than in TMA, the TMA stands for the MTC before it.
        self.has_mtc = bits <= TMA_BITS;
        self.crystal = u32::from(crystal) & 1u32.wrapping_shl(bits).wrapping_sub(1);
        self.crystal_of_cycles = self.crystal;
        Ok(())
    }

    fn mtc(&mut self, field: u8, settings: &Settings) -> Result<(), Error> {
        // MTCs between TSC and TMA are left out: the TMA tells where in the period the TSC lies.
        if self.has_tsc && !self.has_tma {
            return Ok(());
        }
        let mut last = self.crystal;
        let now = crystal(field, settings);
        if self.fast_counter != 0 || self.lost_cyc != 0 || !self.has_mtc {
            self.crystal_of_cycles = now;
        }
        let is_first = !self.has_mtc;
        self.has_mtc = true;
        self.fast_counter = 0;
        self.crystal = now;
        self.lost_cyc = 0;
        if is_first {
            // Nothing tells where in the first period the trace began.
            if !self.has_tma {
                return Ok(());
            }
            last = before_first_mtc(last, now, settings)?;
        }
        let ticks = crystal_between(last, now, settings).inspect_err(|_| self.lost_mtc += 1)?;
        self.base = self.base.wrapping_add(fast_counter_of(ticks, settings)?);
        self.tsc = self.base;
        Ok(())
    }

    fn cyc(&mut self, cycles: u64, ratio: Option<u64>, settings: &Settings) -> Result<(), Error> {
        let Some(ratio) = ratio.filter(|&ratio| ratio != 0) else {
            self.lost_cyc += 1;
            return Ok(());
        };
        let mut cycles = cycles;
        if self.fast_counter == 0 && self.crystal != self.crystal_of_cycles {
            // The cycles reach back over earlier MTC packets, which already count.
            let ticks = crystal_between(self.crystal_of_cycles, self.crystal, settings)?;
            let before = (fast_counter_of(ticks, settings)? << SHIFT) / ratio;
            cycles = cycles.saturating_sub(before);
        }
        self.fast_counter = self.fast_counter.wrapping_add(cycles.wrapping_mul(ratio) >> SHIFT);
        self.tsc = self.base.wrapping_add(self.fast_counter);
        Ok(())
    }
}

/// Returns the crystal clock that an MTC tells.
fn crystal(field: u8, settings: &Settings) -> u32 {
    u32::from(field).wrapping_shl(settings.raw.mtc_frequency.into())
}

/// Returns the crystal clock before the first MTC after a TMA that lacks high bits, which the MTC tells.
fn before_first_mtc(last: u32, now: u32, settings: &Settings) -> Result<u32, Error> {
    const LOW: u32 = (1 << TMA_BITS) - 1;
    if last & !LOW != 0 {
        return Err(Error::INTERNAL);
    }
    let mut high = now & !LOW;
    if now & LOW < last {
        high = high.wrapping_sub(1 << TMA_BITS) & crystal(u8::MAX, settings);
    }
    Ok(last | high)
}

/// Returns the ticks of the crystal clock between two MTCs, at most one period apart.
fn crystal_between(last: u32, mut now: u32, settings: &Settings) -> Result<u32, Error> {
    if now < last {
        now = now.wrapping_add(1u32.wrapping_shl(u32::from(settings.raw.mtc_frequency) + MTC_BITS));
    }
    now.checked_sub(last).ok_or(Error::BAD_PACKET)
}

/// Converts ticks of the crystal clock.
fn fast_counter_of(ticks: u32, settings: &Settings) -> Result<u64, Error> {
    let (numerator, denominator) = (settings.raw.cpuid_15_ebx, settings.raw.cpuid_15_eax);
    if numerator == 0 || denominator == 0 {
        return Err(Error::BAD_CONFIG);
    }
    Ok(u64::from(ticks).wrapping_mul(numerator.into()) / u64::from(denominator))
}

/// The ratio of fast counter to cycles, as estimated so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calibration {
    ratio: Option<u64>,
    /// The last timestamp; 0 if none.
    tsc: u64,
    cycles_since_tsc: u64,
    crystal: u32,
    cycles_since_mtc: u64,
    has_mtc: bool,
}

impl Calibration {
    fn tsc(&mut self, tsc: u64, in_header: bool) -> Result<(), Error> {
        let (last, cycles) = (self.tsc, self.cycles_since_tsc);
        self.tsc = tsc;
        self.cycles_since_tsc = 0;
        // A TSC outside of PSB+ may follow a loss of time. MTCs are preferred.
        if !in_header || last == 0 || cycles == 0 || self.has_mtc {
            return Ok(());
        }
        let now = if tsc < last { tsc.wrapping_add(1 << TSC_BITS) } else { tsc };
        let ticks = now.checked_sub(last).ok_or(Error::BAD_PACKET)?;
        self.ratio = Some(shifted(ticks)? / cycles);
        Ok(())
    }

    fn cbr(&mut self, ratio: u8, in_header: bool, settings: &Settings) -> Result<(), Error> {
        // Outside of PSB+, the frequency changes.
        if !in_header {
            *self = Calibration::default();
        }
        let nominal = settings.raw.nominal_frequency;
        if nominal == 0 {
            return Ok(());
        }
        if ratio == 0 {
            return Err(Error::BAD_PACKET);
        }
        self.ratio = Some((u64::from(nominal) << SHIFT) / u64::from(ratio));
        Ok(())
    }

    fn mtc(&mut self, field: u8, settings: &Settings) -> Result<(), Error> {
        let now = crystal(field, settings);
        if !self.has_mtc {
            self.cycles_since_mtc = 0;
            self.crystal = now;
            self.has_mtc = true;
            return Ok(());
        }
        // Without cycles, this period and the next are one.
        if self.cycles_since_mtc == 0 {
            return Ok(());
        }
        let (last, cycles) = (self.crystal, std::mem::take(&mut self.cycles_since_mtc));
        self.crystal = now;
        let ticks = crystal_between(last, now, settings)?;
        let fast_counter = fast_counter_of(ticks, settings)?;
        self.ratio = Some(shifted(fast_counter)? / cycles);
        Ok(())
    }

    fn cyc(&mut self, cycles: u64) {
        self.cycles_since_mtc = self.cycles_since_mtc.wrapping_add(cycles);
        self.cycles_since_tsc = self.cycles_since_tsc.wrapping_add(cycles);
    }
}

/// Shifts to fixed point.
fn shifted(value: u64) -> Result<u64, Error> {
    if value >> (u64::BITS - SHIFT) != 0 { Err(Error::INTERNAL) } else { Ok(value << SHIFT) }
}

/// A timing packet where: in a PSB+, or elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Header,
    Stream,
}

/// Time and its calibration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub(crate) time: Time,
    pub(crate) calibration: Calibration,
}

impl Clock {
    /// Applies a packet if it is one of timing. What the configuration lacks makes time less precise, and is no error.
    pub(crate) fn apply(&mut self, packet: Packet, place: Place, settings: &Settings) -> Result<(), Error> {
        let in_header = place == Place::Header;
        let Clock { time, calibration } = self;
        match packet {
            Packet::Tsc(tsc) => {
                lenient(calibration.tsc(tsc, in_header))?;
                time.tsc(tsc);
                Ok(())
            }
            Packet::Cbr(ratio) => {
                lenient(calibration.cbr(ratio, in_header, settings))?;
                lenient(time.cbr(ratio))
            }
            Packet::Tma { ctc, fast_counter } => lenient(time.tma(ctc, fast_counter, settings)),
            Packet::Mtc(field) => {
                lenient(calibration.mtc(field, settings))?;
                lenient(time.mtc(field, settings))
            }
            Packet::Cyc(cycles) => {
                calibration.cyc(cycles);
                lenient(time.cyc(cycles, calibration.ratio, settings))
            }
            _ => Ok(()),
        }
    }
}

fn lenient(result: Result<(), Error>) -> Result<(), Error> {
    result.or_else(|error| if error == Error::BAD_CONFIG { Ok(()) } else { Err(error) })
}

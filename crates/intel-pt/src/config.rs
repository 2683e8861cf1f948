//! What a recording says about the processor and the settings that it was made with.

use hodo_clock::PerfClock;

use crate::{Errata, Erratum};

/// A processor model, as CPUID leaf 1 gives it (display family and model).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    /// Display family; 6 for all processors with Intel PT so far.
    pub family: u16,
    /// Display model.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
}

/// The settings of a trace that its packets do not carry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// The processor, where known; decides which errata apply.
    pub cpu: Option<Cpu>,
    /// RTIT_CTL.DisRETC: returns are never compressed.
    pub no_return_compression: bool,
    /// RTIT_CTL.DisTNT: conditional branches are not traced, and compressed returns neither.
    pub no_tnt: bool,
    /// RTIT_CTL.BranchEn is clear: no flow is traced at all, only events.
    pub no_branches: bool,
    /// Whether TSC packets are enabled; without them a trace has no times.
    pub tsc: bool,
    /// RTIT_CTL.MTCFreq: an MTC packet each `2^mtc_frequency` crystal-clock ticks.
    pub mtc_frequency: Option<u8>,
    /// CPUID leaf 15H: TSC ticks per crystal-clock tick, as numerator and denominator.
    pub tsc_ctc_ratio: Option<(u32, u32)>,
    /// Whether CYC packets are enabled.
    pub cyc: bool,
    /// RTIT_CTL.CycThresh: the fewest cycles that a CYC packet tells; 0 where it tells any.
    pub cyc_threshold: u64,
    /// Maximum non-turbo ratio (MSR_PLATFORM_INFO bits 15:8): TSC frequency over bus frequency.
    pub max_nonturbo_ratio: Option<u8>,
    /// Address filter of the recording, in the syntax of perf; empty where there was none.
    pub filter: String,
    /// How ticks become nanoseconds of the recording's clock.
    pub clock: Option<PerfClock>,
}

impl Config {
    /// What the processor gets wrong, or is assumed to.
    pub fn errata(&self) -> Errata {
        Errata::of(self.cpu)
    }

    /// Whether `erratum` is to be reckoned with.
    pub fn has(&self, erratum: Erratum) -> bool {
        self.errata().has(erratum)
    }

    /// Which errata the decoder reckons with, and why, in a sentence.
    pub fn errata_note(&self) -> String {
        let errata = self.errata();
        match self.cpu {
            Some(cpu) if Errata::known(cpu).is_some() => format!("{errata}, as this model has them"),
            Some(cpu) => {
                let Cpu { family, model, .. } = cpu;
                format!("{errata}: assumed, as nothing is known of family {family} model {model:#x}")
            }
            None => format!("{errata}: assumed, as the model is not known"),
        }
    }
}

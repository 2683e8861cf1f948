//! The processor and trace settings of a recording.

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

/// The trace settings that are not in the packets.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// The processor, if known; it decides which errata apply.
    pub cpu: Option<Cpu>,
    /// RTIT_CTL.DisRETC: returns are never compressed.
    pub no_return_compression: bool,
    /// RTIT_CTL.DisTNT: neither conditional branches nor compressed returns are traced.
    pub no_tnt: bool,
    /// RTIT_CTL.BranchEn is clear: only events are traced, no flow.
    pub no_branches: bool,
    /// Whether TSC packets are enabled; without them a trace has no time.
    pub tsc: bool,
    /// RTIT_CTL.MTCFreq: an MTC packet each `2^mtc_frequency` crystal-clock ticks.
    pub mtc_frequency: Option<u8>,
    /// CPUID leaf 15H: TSC ticks per crystal-clock tick, as numerator and denominator.
    pub tsc_ctc_ratio: Option<(u32, u32)>,
    /// Whether CYC packets are enabled.
    pub cyc: bool,
    /// RTIT_CTL.CycThresh: minimum cycles between CYC packets; 0 for no minimum.
    pub cyc_threshold: u64,
    /// Maximum non-turbo ratio (MSR_PLATFORM_INFO bits 15:8): TSC frequency over bus frequency.
    pub max_nonturbo_ratio: Option<u8>,
    /// Address filter of the recording, in the syntax of perf; empty if there was none.
    pub filter: String,
    /// Conversion from ticks to nanoseconds of the recording's clock.
    pub clock: Option<PerfClock>,
}

impl Config {
    /// Returns the errata that the processor has or is assumed to have.
    pub fn errata(&self) -> Errata {
        Errata::of(self.cpu)
    }

    /// Returns whether the decoder works around `erratum`.
    pub fn has(&self, erratum: Erratum) -> bool {
        self.errata().has(erratum)
    }

    /// Describes in a sentence which errata the decoder works around, and why.
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

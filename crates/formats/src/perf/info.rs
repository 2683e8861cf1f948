//! Intel PT's AUXTRACE_INFO record: the trace settings.

use hodo_bytes::{Cursor, Eof};
use hodo_clock::PerfClock;
use hodo_intel_pt::Config;

use super::{
    events::Attr,
    layout::{auxtrace_type, intel_pt_config, intel_pt_info as word},
    records::Record,
};
use crate::error::{Error, ErrorKind};

/// A parsed AUXTRACE_INFO record of Intel PT.
#[derive(Clone, Debug)]
pub(super) struct Info {
    words: [u64; word::WORDS],
    filter: String,
}

impl Info {
    /// Reads the record: u32 type, u32 reserved, u64 words, filter string. Words that older perf versions do not
    /// write are zero.
    ///
    /// # Errors
    /// The trace is not Intel PT, or the record ends before its first word.
    pub(super) fn read(record: &Record<'_>) -> Result<Info, Error> {
        let mut cursor = Cursor::new(record.body, record.body_offset());
        let cut = |eof: Eof| Error::cut_short("AUXTRACE_INFO record", eof);
        let kind = cursor.u32().map_err(cut)?;
        if kind != auxtrace_type::INTEL_PT {
            let kind = ErrorKind::Unsupported {
                what: name(kind),
                help: "hodo reads traces of Intel PT, Arm CoreSight and its own of RISC-V",
            };
            return Err(Error { at: record.body_offset(), kind });
        }
        let _reserved = cursor.u32().map_err(cut)?;
        let mut words = [0; word::WORDS];
        for word in &mut words {
            *word = cursor.u64().unwrap_or(0);
        }
        let filter = if words[word::FILTER_STR_LEN] == 0 { &[] } else { cursor.c_string() };
        Ok(Info { words, filter: String::from_utf8_lossy(filter).into_owned() })
    }

    /// Returns whether an AUXTRACE_INFO record is of CoreSight.
    pub(super) fn is_coresight(record: &Record<'_>) -> bool {
        Cursor::new(record.body, record.body_offset()).u32() == Ok(auxtrace_type::CS_ETM)
    }

    /// Whether the recording consists of snapshots.
    pub(super) fn snapshots(&self) -> bool {
        self.words[word::SNAPSHOT_MODE] != 0
    }

    /// Whether queues belong to CPUs.
    pub(super) fn per_cpu(&self) -> bool {
        self.words[word::PER_CPU_MMAPS] != 0
    }

    /// The trace settings, given the recorded events.
    pub(super) fn config(&self, attrs: &[Attr]) -> Config {
        let info_word = |index: usize| self.words[index];
        let traced = attrs.iter().filter(|attr| u64::from(attr.kind) == info_word(word::PMU_TYPE));
        let config = traced.map(|attr| attr.config).fold(0, |all, config| all | config);
        let has = |index: usize| config & info_word(index) != 0;
        let ratio = Some((info_word(word::TSC_CTC_N) as u32, info_word(word::TSC_CTC_D) as u32));
        let mask = info_word(word::MTC_FREQ_BITS);
        let frequency = (config & mask).checked_shr(mask.trailing_zeros()).unwrap_or(0);
        let threshold = config & intel_pt_config::CYC_THRESH;
        let threshold = threshold >> intel_pt_config::CYC_THRESH.trailing_zeros();
        let clock = PerfClock::new(
            info_word(word::TIME_SHIFT),
            info_word(word::TIME_MULT),
            info_word(word::TIME_ZERO),
        );
        Config {
            cpu: None,
            no_return_compression: has(word::NORETCOMP_BIT),
            no_tnt: config & rtit_ctl::DIS_TNT != 0,
            // If the event omits "pt", the kernel sets BranchEn.
            no_branches: config & (rtit_ctl::TRACE_EN | rtit_ctl::BRANCH_EN) == rtit_ctl::TRACE_EN,
            tsc: has(word::TSC_BIT),
            mtc_frequency: u8::try_from(frequency).ok().filter(|_| has(word::MTC_BIT)),
            tsc_ctc_ratio: ratio.filter(|&(numerator, denominator)| numerator != 0 && denominator != 0),
            cyc: has(word::CYC_BIT),
            // The field's value n stands for 2^(n-1) cycles, and 0 for no threshold.
            cyc_threshold: (1 << threshold) >> 1,
            max_nonturbo_ratio: u8::try_from(info_word(word::MAX_NONTURBO_RATIO))
                .ok()
                .filter(|&ratio| ratio != 0),
            filter: self.filter.clone(),
            clock: clock.filter(|_| info_word(word::CAP_USER_TIME_ZERO) != 0),
        }
    }
}

/// Bits of IA32_RTIT_CTL in the event's `config` (SDM, "IA32_RTIT_CTL MSR").
mod rtit_ctl {
    pub(super) const TRACE_EN: u64 = 1;
    pub(super) const BRANCH_EN: u64 = 1 << 13;
    pub(super) const DIS_TNT: u64 = 1 << 55;
}

fn name(kind: u32) -> &'static str {
    match kind {
        auxtrace_type::INTEL_BTS => "a trace of Intel BTS",
        auxtrace_type::ARM_SPE => "a trace of Arm SPE",
        _ => "a trace of an unknown kind",
    }
}

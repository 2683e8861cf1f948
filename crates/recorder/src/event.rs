//! perf's syntax for an Intel PT event: `intel_pt/tsc,mtc_period=5,noretcomp/u`.

use hodo_formats::perf::layout::intel_pt_config as bit;

use crate::Error;

/// The event's settings, those of the kernel's intel_pt PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The original text.
    pub(crate) text: String,
    pub(crate) tsc: bool,
    pub(crate) mtc: bool,
    pub(crate) mtc_period: u8,
    pub(crate) cyc: bool,
    pub(crate) cyc_thresh: u8,
    pub(crate) psb_period: u8,
    pub(crate) no_return_compression: bool,
}

impl Default for Event {
    /// perf's default on processors with all features.
    fn default() -> Self {
        Event {
            text: "intel_pt//u".to_owned(),
            tsc: true,
            mtc: true,
            mtc_period: 3,
            cyc: false,
            cyc_thresh: 0,
            psb_period: 3,
            no_return_compression: false,
        }
    }
}

impl Event {
    pub(crate) fn parse(text: &str) -> Result<Event, Error> {
        let (event, modifier) = Event::parse_with_modifier(text, Event::default())?;
        match modifier.as_str() {
            "" | "u" => Ok(event),
            _ => Err(Error::Event {
                event: text.to_owned(),
                reason: format!(
                    "`{modifier}`: the emulated processor runs user space only, /u; --engine machine has a kernel"
                ),
            }),
        }
    }

    /// Parses an event whose terms modify `default`; also returns the text after its second slash.
    pub(crate) fn parse_with_modifier(text: &str, default: Event) -> Result<(Event, String), Error> {
        let wrong = |reason: String| Error::Event { event: text.to_owned(), reason };
        let rest =
            text.strip_prefix("intel_pt").ok_or_else(|| wrong("only intel_pt can be recorded".into()))?;
        let (terms, modifier) = match rest.strip_prefix('/') {
            None if rest.is_empty() => ("", ""),
            None => return Err(wrong("a / is expected after intel_pt".into())),
            Some(rest) => rest.split_once('/').ok_or_else(|| wrong("it ends without a second /".into()))?,
        };
        let mut event = Event { text: text.to_owned(), ..default };
        for term in terms.split(',').filter(|term| !term.is_empty()) {
            event.set(term).map_err(wrong)?;
        }
        Ok((event, modifier.to_owned()))
    }

    fn set(&mut self, term: &str) -> Result<(), String> {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let value: u8 = value
            .parse()
            .ok()
            .filter(|&value| value < 16)
            .ok_or(format!("`{term}`: a number from 0 to 15 is expected"))?;
        match name {
            "tsc" => self.tsc = value != 0,
            "mtc" => self.mtc = value != 0,
            "mtc_period" => self.mtc_period = value,
            "cyc" => self.cyc = value != 0,
            "cyc_thresh" => self.cyc_thresh = value,
            "psb_period" => self.psb_period = value,
            "noretcomp" => self.no_return_compression = value != 0,
            // Always on, as in perf's default.
            "pt" | "branch" if value != 0 => {}
            _ => {
                return Err(format!(
                    "`{name}` is not one of tsc, mtc, mtc_period, cyc, cyc_thresh, psb_period, noretcomp"
                ));
            }
        }
        Ok(())
    }

    /// `perf_event_attr.config`.
    pub(crate) fn config(&self) -> u64 {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let field = |value: u8, mask: u64| u64::from(value) << mask.trailing_zeros();
        // Bit 0: tracing is on.
        1 | bit::BRANCH
            | flag(self.tsc, bit::TSC)
            | flag(self.mtc, bit::MTC)
            | flag(self.cyc, bit::CYC)
            | flag(self.no_return_compression, bit::NORETCOMP)
            | field(self.mtc_period, bit::MTC_PERIOD)
            | field(self.cyc_thresh, bit::CYC_THRESH)
            | field(self.psb_period, bit::PSB_PERIOD)
    }

    /// Bytes between PSB packets (SDM, RTIT_CTL.PSBFreq).
    pub(crate) fn psb_bytes(&self) -> u64 {
        2048 << self.psb_period
    }

    /// Cycles between CYC packets (SDM, RTIT_CTL.CycThresh): 0, then powers of two from 1.
    pub(crate) fn cyc_cycles(&self) -> u64 {
        (1 << self.cyc_thresh) >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_change_the_default() {
        assert_eq!(Event::parse("intel_pt//u").unwrap(), Event::default());
        let event = Event::parse("intel_pt/cyc,cyc_thresh=3,mtc=0,psb_period=0,noretcomp/u").unwrap();
        assert!(event.tsc && !event.mtc && event.cyc && event.no_return_compression);
        assert_eq!((event.cyc_cycles(), event.psb_bytes()), (4, 2048));
        assert_eq!(event.config(), 1 | 1 << 1 | 1 << 10 | 1 << 11 | 1 << 13 | 3 << 14 | 3 << 19);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, what) in [
            ("cycles", "only intel_pt"),
            ("intel_pt/tsc", "second /"),
            ("intel_pt//k", "user space only"),
            ("intel_pt/mtc_period=99/u", "from 0 to 15"),
            ("intel_pt/fast/u", "`fast`"),
        ] {
            let error = Event::parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}

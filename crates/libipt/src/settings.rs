//! A decoder's configuration: the trace, the errata to work around, the address filter.

use hodo_intel_pt::{Cpu, Errata, Erratum};

use crate::{Error, abi};

/// The bits of `pt_errata`, the lowest first.
const ERRATA: [Erratum; 10] = [
    Erratum::Bdm70,
    Erratum::Bdm64,
    Erratum::Skd007,
    Erratum::Skd022,
    Erratum::Skd010,
    Erratum::Skl014,
    Erratum::Apl12,
    Erratum::Apl11,
    Erratum::Skl168,
    Erratum::Skz84,
];

/// The configuration of a decoder.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The caller's structure, to give back and to pass to callbacks. It stays where it is, as callers keep its address.
    pub(crate) raw: Box<abi::Config>,
    /// The trace.
    pub(crate) trace: &'static [u8],
}

impl Settings {
    /// Returns whether to work around an erratum.
    pub(crate) fn has(&self, erratum: Erratum) -> bool {
        let bit = ERRATA.iter().position(|&listed| listed == erratum);
        bit.is_some_and(|bit| self.raw.errata.bits >> bit & 1 == 1)
    }

    /// Returns whether the caller described an address filter.
    pub(crate) fn has_filter(&self) -> bool {
        self.raw.filter.kinds != 0
    }

    /// Returns whether an address is traced, as far as the described filter says.
    pub(crate) fn traces(&self, address: u64) -> bool {
        const FILTER: u64 = 1;
        const STOP: u64 = 2;
        let filter = &self.raw.filter;
        let mut filters = false;
        let mut inside = false;
        for (index, &[first, last]) in filter.ranges.iter().enumerate() {
            let contains = (first..=last).contains(&address);
            match filter.kinds >> (4 * index) & 15 {
                STOP if contains => return false,
                FILTER => {
                    filters = true;
                    inside |= contains;
                }
                _ => {}
            }
        }
        inside || !filters
    }
}

/// Returns the bits of `pt_errata` for a processor of Intel. The list knows all processors of libipt 2.0.5, and later ones.
pub(crate) fn errata_of(family: u16, model: u8) -> Result<u32, Error> {
    let known = Errata::known(Cpu { family, model, stepping: 0 }).ok_or(Error::BAD_CPU)?;
    let bits = ERRATA.iter().enumerate().filter(|&(_, &erratum)| known.has(erratum));
    Ok(bits.fold(0, |set, (bit, _)| set | 1 << bit))
}

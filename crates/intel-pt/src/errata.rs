//! Errata of Intel PT, by processor model.
//!
//! Sources: Intel's specification updates of the processors that give the errata their names, and libipt's list of
//! affected models.

use std::fmt;

use crate::Cpu;

/// An erratum of Intel PT. The decoder works around each in a single place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Erratum {
    /// The last conditional branch before a transaction abort may be reported wrongly.
    Bdm64 = 1,
    /// A PSB+ right before TIP.PGE may claim that tracing is on already.
    Bdm70 = 1 << 1,
    /// An OVF may replace the second byte of a CYC.
    Skd007 = 1 << 2,
    /// The FUP or TIP.PGE after an OVF may be missing.
    Skd010 = 1 << 3,
    /// A VM entry that ends tracing may look like an interrupt: a FUP precedes its TIP.PGD.
    Skd022 = 1 << 4,
    /// TIP.PGD may lack the address if a direct branch leaves the address filter.
    Skl014 = 1 << 5,
    /// CYC and MTC packets may be missing before a PSB; the cycle counter wraps at 4,096.
    Skl168 = 1 << 6,
    /// In a guest with TSC scaling or offset, TMA packets may be wrong, followed by a bogus byte.
    Skz84 = 1 << 7,
    /// A TIP.PGD may follow an OVF.
    Apl11 = 1 << 8,
    /// A FUP may follow an OVF although tracing is off.
    Apl12 = 1 << 9,
}

use Erratum::*;

/// All errata, ordered by name.
const ALL: [Erratum; 10] = [Apl11, Apl12, Bdm64, Bdm70, Skd007, Skd010, Skd022, Skl014, Skl168, Skz84];

/// Processor family, models, and their errata.
const MODELS: &[(u16, &[u8], &[Erratum])] = &[
    // Broadwell.
    (6, &[0x3d, 0x47, 0x4f, 0x56], &[Bdm70, Bdm64]),
    // Skylake, Kaby Lake, Coffee Lake, Comet Lake.
    (6, &[0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6], &[Bdm70, Skd007, Skd010, Skd022, Skl014, Skl168]),
    // Server cores from Skylake to Granite Rapids.
    (6, &[0x55, 0x6a, 0x6c, 0x8f, 0xad, 0xae, 0xcf], &[Bdm70, Skd022, Skl014, Skz84]),
    (19, &[0x01], &[Bdm70, Skd022, Skl014, Skz84]),
    // Cannon Lake, Ice Lake, Tiger Lake, Rocket Lake.
    (6, &[0x66, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7, 0xa8], &[Bdm70, Skd022, Skl014]),
    // Hybrids from Alder Lake on.
    (
        6,
        &[0x97, 0x9a, 0xbf, 0xb7, 0xb5, 0xaa, 0xac, 0xba, 0xcc, 0xbd, 0xc5, 0xc6],
        &[Bdm70, Skd022, Skl014, Apl11],
    ),
    // Goldmont.
    (6, &[0x5c, 0x5f], &[Apl11, Apl12]),
    // Goldmont Plus, Tremont, Crestmont, Darkmont.
    (6, &[0x7a, 0x86, 0x96, 0x9c, 0xb6, 0xaf, 0xdd], &[Apl11]),
];

/// Errata assumed for an unlisted processor: their workarounds do not change the decoding of a trace without them.
const ASSUMED: &[Erratum] = &[Apl11, Apl12, Bdm64, Bdm70, Skd007, Skd010, Skd022, Skl014];

/// A set of errata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errata(u16);

impl Errata {
    /// The empty set.
    pub const NONE: Errata = Errata(0);

    /// Returns the known errata of `cpu`, or `None` if it is not listed.
    pub fn known(cpu: Cpu) -> Option<Errata> {
        let row =
            MODELS.iter().find(|(family, models, _)| *family == cpu.family && models.contains(&cpu.model));
        row.map(|(_, _, errata)| Errata::from(*errata))
    }

    /// Returns the known errata of `cpu`, or the assumed ones if it is not listed.
    pub fn of(cpu: Option<Cpu>) -> Errata {
        cpu.and_then(Errata::known).unwrap_or(Errata::from(ASSUMED))
    }

    /// Returns whether the set contains `erratum`.
    #[inline]
    pub fn has(self, erratum: Erratum) -> bool {
        self.0 & erratum as u16 != 0
    }
}

impl From<&[Erratum]> for Errata {
    fn from(errata: &[Erratum]) -> Errata {
        Errata(errata.iter().fold(0, |set, &erratum| set | erratum as u16))
    }
}

impl fmt::Display for Erratum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bdm64 => "BDM64",
            Bdm70 => "BDM70",
            Skd007 => "SKD007",
            Skd010 => "SKD010",
            Skd022 => "SKD022",
            Skl014 => "SKL014",
            Skl168 => "SKL168",
            Skz84 => "SKZ84",
            Apl11 => "APL11",
            Apl12 => "APL12",
        })
    }
}

impl fmt::Display for Errata {
    /// Writes the names, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        ALL.iter().filter(|&&erratum| self.has(erratum)).try_for_each(|erratum| {
            write!(f, "{separator}{erratum}")?;
            separator = ", ";
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(family: u16, model: u8) -> Cpu {
        Cpu { family, model, stepping: 0 }
    }

    #[test]
    fn models_have_the_errata_of_their_row() {
        assert_eq!(Errata::known(cpu(6, 0x3d)).unwrap().to_string(), "BDM64, BDM70");
        assert_eq!(Errata::known(cpu(19, 1)).unwrap().to_string(), "BDM70, SKD022, SKL014, SKZ84");
        assert_eq!(Errata::known(cpu(6, 0x5c)).unwrap().to_string(), "APL11, APL12");
    }

    #[test]
    fn an_unlisted_model_has_the_assumed_errata() {
        assert_eq!(Errata::known(cpu(18, 1)), None);
        assert!(Errata::of(Some(cpu(18, 1))).has(Bdm70));
        assert!(!Errata::of(None).has(Skz84));
    }

    #[test]
    fn no_model_stands_in_two_rows() {
        for (index, (family, models, _)) in MODELS.iter().enumerate() {
            let others = MODELS[index + 1..].iter().filter(|(other, ..)| other == family);
            assert!(others.flat_map(|(_, models, _)| *models).all(|model| !models.contains(model)));
        }
    }
}

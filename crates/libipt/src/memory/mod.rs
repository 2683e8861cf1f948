//! The memory of the traced programs: parts of files at addresses, and a callback for the rest.

mod cache;
mod image;
mod section;

pub(crate) use cache::SectionCache;
pub(crate) use image::{Image, Located, Reader};
pub(crate) use section::{Content, Section};

use crate::abi;

/// An address space; `None` matches any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) cr3: Option<u64>,
    pub(crate) vmcs: Option<u64>,
}

/// The value of `pt_asid_no_cr3` and `pt_asid_no_vmcs`.
const UNKNOWN: u64 = u64::MAX;

impl Space {
    /// Returns whether two address spaces may be the same.
    pub(crate) fn matches(&self, other: &Space) -> bool {
        let agree = |one: Option<u64>, two: Option<u64>| one.is_none() || two.is_none() || one == two;
        agree(self.cr3, other.cr3) && agree(self.vmcs, other.vmcs)
    }

    /// Creates one from the fields of `pt_asid`.
    pub(crate) fn of_fields(cr3: u64, vmcs: u64) -> Space {
        let known = |value| if value == UNKNOWN { None } else { Some(value) };
        Space { cr3: known(cr3), vmcs: known(vmcs) }
    }

    /// Returns the structure of C.
    pub(crate) fn raw(&self) -> abi::Asid {
        abi::Asid {
            size: size_of::<abi::Asid>(),
            cr3: self.cr3.unwrap_or(UNKNOWN),
            vmcs: self.vmcs.unwrap_or(UNKNOWN),
        }
    }
}

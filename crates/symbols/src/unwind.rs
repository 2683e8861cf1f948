//! Code ranges known to the unwinder, with or without symbols (`.eh_frame`; Linux Standard Base, "Exception Frames").

use std::collections::HashMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, RunTimeEndian, UnwindSection};

use crate::names::Name;
use crate::table::Extent;

/// Adds the range of every frame description, up to the first unreadable one. `address` is that of the section, to
/// which most descriptions are relative.
pub(crate) fn read(
    section: &[u8],
    address: u64,
    (endian, address_size): (RunTimeEndian, u8),
    ranges: &mut Vec<Extent>,
) -> gimli::Result<()> {
    let mut frames = EhFrame::new(section, endian);
    frames.set_address_size(address_size);
    let bases = BaseAddresses::default().set_eh_frame(address);
    // Caches the common part of several descriptions.
    let mut common = HashMap::new();
    let mut entries = frames.entries(&bases);
    while let Some(entry) = entries.next()? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let description = partial.parse(|section, bases, offset| match common.get(&offset) {
            Some(known) => Ok(Clone::clone(known)),
            None => {
                let read = section.cie_from_offset(bases, offset)?;
                common.insert(offset, read.clone());
                Ok(read)
            }
        })?;
        let start = description.initial_address();
        ranges.push(Extent { start, end: start.saturating_add(description.len()), name: Name::default() });
    }
    Ok(())
}

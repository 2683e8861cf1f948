//! A raw buffer of CoreSight, as given by `--etm FILE --etm-config FILE`.

use super::{
    ini,
    unit::{Layout, Unit, Writer, separate},
};
use crate::{
    Unpacked,
    raw::{self, BadElf, Code, Elf, Owner},
    recording::{Recording, Sideband, SidebandKind, Thread},
};

/// The trace units of a raw buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawUnits {
    layout: Layout,
    units: Vec<Unit>,
}

impl RawUnits {
    /// Reads settings: an optional `[buffer]` with its `format`, and for each unit what the file of a device in a snapshot
    /// contains, `[device]` with `name` and `type`, and `[regs]`.
    ///
    /// # Errors
    /// There is no unit, or one whose trace is not read, or a register is missing.
    pub fn parse(text: &str) -> Result<RawUnits, String> {
        let sections = ini::sections(text);
        let format = ini::section(&sections, "buffer").and_then(|buffer| buffer.get("format"));
        let starts =
            (0..sections.len()).filter(|&index| sections[index].name == "device").collect::<Vec<_>>();
        let mut units = Vec::new();
        for (number, &start) in starts.iter().enumerate() {
            let end = starts.get(number + 1).copied().unwrap_or(sections.len());
            let unit = Unit::read(&sections[start..end])?;
            if let super::UnitKind::Other(kind) = &unit.kind {
                return Err(format!("{}: type={kind}: expected ETM4 or ETE", unit.name));
            }
            units.push(unit);
        }
        match units.is_empty() {
            true => Err("no [device] with type=ETM4 or type=ETE".to_owned()),
            false => Ok(RawUnits { layout: Layout::named(format.unwrap_or_default())?, units }),
        }
    }
}

/// Makes a recording of one raw buffer, as [`raw::recording`] does. Each unit's trace is that of a thread.
///
/// # Errors
/// An invalid ELF file, or one without loadable segments.
pub fn recording<'a>(
    buffer: &'a [u8],
    units: &RawUnits,
    unpacked: &'a Unpacked,
    code: &[(Owner, &'a Code, u64)],
    elf: &[(Owner, &'a Elf, &[u8])],
) -> Result<Recording<'a>, BadElf> {
    let thread = |number| Thread { tid: number, ..raw::THREAD };
    let writers: Vec<Writer<'_>> =
        units.units.iter().zip(0..).map(|(unit, number)| Writer { unit, thread: thread(number) }).collect();
    let separated = separate(buffer, units.layout, &writers, unpacked);
    let streams = separated.sources.into_iter().map(|source| source.stream).collect();
    let mut read = raw::recording(streams, "raw ETMv4 or ETE", code, elf)?;
    read.sideband.extend(writers.iter().map(|writer| Sideband {
        time: None,
        cpu: None,
        thread: writer.thread,
        guest: None,
        kind: SidebandKind::Comm { name: unpacked.keep(writer.unit.name.clone().into_bytes()), exec: false },
    }));
    if !separated.unknown.is_empty() {
        read.facts.push(("not read", super::snapshot::unknown_sources(&separated.unknown)));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = "[device]\nname=ETM_0\ntype=ETM4\n[regs]\nTRCCONFIGR=0x1000\nTRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\n\
                        TRCIDR2=0x488\n";

    #[test]
    fn units_are_those_of_the_settings() {
        let two = format!("[buffer]\nformat=dstream_coresight\n{UNIT}{}", UNIT.replace("0x10\n", "0x12\n"));
        let read = RawUnits::parse(&two).unwrap();
        assert_eq!((read.layout, read.units.len()), (Layout::PortFrames, 2));
        let ids = read.units.iter().map(|unit| match unit.kind {
            super::super::UnitKind::Etm { trace_id, config } => (trace_id, config.return_stack),
            super::super::UnitKind::Other(_) => panic!("another unit"),
        });
        assert_eq!(ids.collect::<Vec<_>>(), [(0x10, true), (0x12, true)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let problem = |text: &str| RawUnits::parse(text).unwrap_err();
        assert_eq!(problem(""), "no [device] with type=ETM4 or type=ETE");
        assert_eq!(problem(&UNIT.replace("TRCIDR2", "X")), "ETM_0: register TRCIDR2 is missing");
        assert_eq!(problem(&UNIT.replace("0x488", "x")), "TRCIDR2=x in [regs]: not a number");
        assert_eq!(problem(&UNIT.replace("ETM4", "PTM1.0")), "ETM_0: type=PTM1.0: expected ETM4 or ETE");
        let format = format!("[buffer]\nformat=x\n{UNIT}");
        assert_eq!(problem(&format), "format=x: expected coresight, dstream_coresight or source_data");
    }
}

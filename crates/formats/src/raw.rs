//! A raw Intel PT buffer and its code, as given by `--pt FILE --code … --elf … --cpu …`.
//!
//! A raw buffer has no magic number, so the options identify it. `--code` and `--elf` give the code of the traced
//! program, on the host or in a guest. An option for one side (`--guest-code`, `--host-elf` …) leaves the unqualified
//! ones to the other side.

use std::{fmt, num::IntErrorKind, str::FromStr};

use hodo_intel_pt::{Config, Cpu};
use hodo_model::{Cause, Loss};
use object::{Object, ObjectSegment};

use crate::{
    error::{Error, ErrorKind},
    recording::{
        Guest, GuestCode, Mapping, Piece, Recording, Sideband, SidebandKind, Stream, StreamKind, Thread,
    },
};

/// Process and thread of a raw buffer and its code, which the buffer does not name.
pub const THREAD: Thread = Thread { pid: 0, tid: 0 };

/// An invalid option value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// The invalid part.
    found: String,
    /// What was expected instead.
    expected: &'static str,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` where {} was expected", self.found, self.expected)
    }
}

impl std::error::Error for OptionError {}

fn wrong(found: &str, expected: &'static str) -> OptionError {
    OptionError { found: found.to_owned(), expected }
}

/// Parses a number: hexadecimal with `0x`, else decimal.
fn number(text: &str) -> Result<u64, OptionError> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => wrong(text, "a number below 2^64"),
        _ => wrong(text, "a number (decimal, or hexadecimal with 0x)"),
    })
}

fn small<T: TryFrom<u64>>(text: &str) -> Result<T, OptionError> {
    T::try_from(number(text)?).map_err(|_| wrong(text, "a smaller number"))
}

/// The machine on which the code of an option ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The machine of the traced program.
    Traced,
    /// On the host.
    Host,
    /// In a guest.
    Guest,
}

/// Unusable content of an ELF file.
#[derive(Debug)]
pub struct BadElf {
    /// The file's path.
    pub file: String,
    /// The error.
    pub error: Error,
}

/// Code in a file, loaded at an address: `FILE@ADDRESS[:OFFSET[:SIZE]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The file's path.
    pub file: String,
    /// Address of the first byte used.
    pub address: u64,
    /// File offset of that byte.
    pub offset: u64,
    /// Number of bytes; `None` for the rest of the file.
    pub size: Option<u64>,
}

impl FromStr for Code {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Code, OptionError> {
        let (file, mapping) = text.rsplit_once('@').ok_or(wrong(text, "FILE@ADDRESS[:OFFSET[:SIZE]]"))?;
        let mut parts = mapping.split(':').map(number);
        let address = parts.next().unwrap_or(Err(wrong(mapping, "an address")))?;
        let offset = parts.next().transpose()?.unwrap_or(0);
        let size = parts.next().transpose()?;
        match parts.next() {
            None => Ok(Code { file: file.to_owned(), address, offset, size }),
            Some(_) => Err(wrong(mapping, "ADDRESS[:OFFSET[:SIZE]]")),
        }
    }
}

/// Code in an ELF file: `FILE[@BASE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// The file's path.
    pub file: String,
    /// Address of the lowest segment; `None` for the address in the file.
    pub base: Option<u64>,
}

impl FromStr for Elf {
    type Err = OptionError;

    /// The part after the last `@` is a base only if it is a number: library names may contain an `@`.
    fn from_str(text: &str) -> Result<Elf, OptionError> {
        let split = text.rsplit_once('@').and_then(|(file, base)| Some((file, number(base).ok()?)));
        let (file, base) = split.map_or((text, None), |(file, base)| (file, Some(base)));
        Ok(Elf { file: file.to_owned(), base })
    }
}

/// Parses a processor model, `FAMILY/MODEL[/STEPPING]`, in display numbers. The stepping defaults to 0.
pub fn cpu(text: &str) -> Result<Cpu, OptionError> {
    let expected = "FAMILY/MODEL[/STEPPING], such as 6/85/4";
    let parts: Vec<&str> = text.split('/').collect();
    match parts[..] {
        [family, model] => Ok(Cpu { family: small(family)?, model: small(model)?, stepping: 0 }),
        [family, model, stepping] => {
            Ok(Cpu { family: small(family)?, model: small(model)?, stepping: small(stepping)? })
        }
        _ => Err(wrong(text, expected)),
    }
}

/// Parses `EAX:EBX` of CPUID leaf 15H. Returns the TSC's ticks per crystal tick as numerator (EBX) and denominator
/// (EAX).
pub fn tsc_ctc_ratio(text: &str) -> Result<(u32, u32), OptionError> {
    let expected = "EAX:EBX of CPUID leaf 15H, neither of them 0";
    let (eax, ebx) = text.split_once(':').ok_or(wrong(text, expected))?;
    let (denominator, numerator) = (small(eax)?, small(ebx)?);
    if denominator == 0 || numerator == 0 { Err(wrong(text, expected)) } else { Ok((numerator, denominator)) }
}

/// Parses `--mtc-freq`: the value of RTIT_CTL.MTCFreq, 0 to 15.
pub fn mtc_frequency(text: &str) -> Result<u8, OptionError> {
    small(text).ok().filter(|&frequency| frequency < 16).ok_or(wrong(text, "RTIT_CTL.MTCFreq, 0 to 15"))
}

/// Parses `--nom-freq`: the maximum non-turbo ratio, bits 15:8 of MSR_PLATFORM_INFO.
pub fn max_nonturbo_ratio(text: &str) -> Result<u8, OptionError> {
    small(text).ok().filter(|&ratio| ratio != 0).ok_or(wrong(text, "MSR_PLATFORM_INFO[15:8], 1 to 255"))
}

/// The only stream of a raw buffer.
pub fn stream<'a>(trace: &'a [u8], kind: StreamKind<'a>) -> Stream<'a> {
    let piece = Piece { file_offset: 0, bytes: trace, after_gap: false };
    Stream { cpu: None, thread: Some(THREAD), pieces: vec![piece], kind }
}

/// Makes a recording of the streams of a raw buffer. Its code becomes sideband without a timestamp: all of it is mapped
/// before the trace begins.
///
/// `format` names the buffer for users. `code` comes with the length of each file in bytes, `elf` with the content of each
/// file. Paths become the names of the mappings.
///
/// # Errors
/// An invalid ELF file, or one without loadable segments. Code outside its file is a loss.
pub fn recording<'a>(
    streams: Vec<Stream<'a>>,
    format: &str,
    code: &[(Owner, &'a Code, u64)],
    elf: &[(Owner, &'a Elf, &[u8])],
) -> Result<Recording<'a>, BadElf> {
    let mut loss = Vec::new();
    let mut mappings = Vec::new();
    for &(owner, code, length) in code {
        let left = length.saturating_sub(code.offset);
        let size = code.size.unwrap_or(left);
        if size > left || size == 0 {
            loss.push(outside(code, size, length));
        }
        let mapping = Mapping {
            address: code.address,
            length: size.min(left),
            file_offset: code.offset,
            ..unplaced(&code.file)
        };
        mappings.push((owner, mapping));
    }
    for &(owner, elf, content) in elf {
        let segments = segments(elf, content).map_err(|error| BadElf { file: elf.file.clone(), error })?;
        mappings.extend(segments.into_iter().map(|mapping| (owner, mapping)));
    }
    let (sideband, guest_code) = by_side(&mappings);
    Ok(Recording {
        config: Config { tsc: true, ..Config::default() },
        streams,
        sideband,
        guest_code,
        facts: vec![("format", format.to_owned())],
        flat_files: code.iter().map(|(_, code, _)| code.file.clone()).collect(),
        loss,
        ..Recording::default()
    })
}

/// Assigns the mappings to host and guest. The traced program runs on the side without code of its own, or on both.
fn by_side<'a>(mappings: &[(Owner, Mapping<'a>)]) -> (Vec<Sideband<'a>>, GuestCode) {
    let has = |wanted| mappings.iter().any(|(owner, _)| *owner == wanted);
    let (has_host, has_guest) = (has(Owner::Host), has(Owner::Guest));
    let sideband = |guest, mapping| Sideband {
        time: None,
        cpu: None,
        thread: THREAD,
        guest,
        kind: SidebandKind::Map(mapping),
    };
    let mut all = Vec::new();
    for &(owner, mapping) in mappings {
        if owner == Owner::Host || owner == Owner::Traced && !has_host {
            all.push(sideband(None, mapping));
        }
        if owner == Owner::Guest || owner == Owner::Traced && !has_guest && has_host {
            all.push(sideband(Some(Guest { pid: THREAD.pid, vcpu: None }), mapping));
        }
    }
    (all, if has_host || has_guest { GuestCode::Mapped } else { GuestCode::OfHost })
}

/// A mapping of a file, still without its addresses and offset.
fn unplaced(file: &str) -> Mapping<'_> {
    Mapping { address: 0, length: 0, file_offset: 0, name: file.as_bytes(), build_id: &[], kernel: false }
}

fn outside(code: &Code, size: u64, length: u64) -> Loss {
    Loss {
        stream: String::new(),
        cause: Cause::MissingCode,
        bytes: 0..0,
        time: None,
        count: 1,
        detail: format!(
            "{}: {size} bytes at offset {:#x} expected for address {:#x}, but the file has {length} bytes",
            code.file, code.offset, code.address
        ),
    }
}

/// The loadable segments, moved so that the lowest lies at the base.
fn segments<'a>(elf: &'a Elf, content: &[u8]) -> Result<Vec<Mapping<'a>>, Error> {
    let error = |reason: String| Error { at: 0, kind: ErrorKind::Text { what: "ELF file", reason } };
    let parsed = object::File::parse(content).map_err(|reason| error(reason.to_string()))?;
    let lowest = parsed.segments().map(|segment| segment.address()).min();
    let lowest = lowest.ok_or_else(|| error("no segments to load; is it an object file?".to_owned()))?;
    let slide = elf.base.unwrap_or(lowest).wrapping_sub(lowest);
    let mapping = |segment: object::Segment<'_, '_>| {
        let (file_offset, length) = segment.file_range();
        Mapping { address: segment.address().wrapping_add(slide), length, file_offset, ..unplaced(&elf.file) }
    };
    Ok(parsed.segments().map(mapping).filter(|mapping| mapping.length > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T>(parsed: Result<T, OptionError>) -> Result<T, String> {
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn code_is_a_file_at_an_address() {
        let code =
            |file: &str, address, offset, size| Ok(Code { file: file.to_owned(), address, offset, size });
        assert_eq!("a.bin@0x1000".parse(), code("a.bin", 0x1000, 0, None));
        assert_eq!("a@b:c@4096:0x10".parse(), code("a@b:c", 4096, 16, None));
        assert_eq!("/x@1:2:3".parse(), code("/x", 1, 2, Some(3)));
    }

    #[test]
    fn code_without_an_address_is_refused() {
        let parse = |text: &str| message(text.parse::<Code>()).unwrap_err();
        assert_eq!(parse("a.bin"), "`a.bin` where FILE@ADDRESS[:OFFSET[:SIZE]] was expected");
        assert_eq!(parse("a@x"), "`x` where a number (decimal, or hexadecimal with 0x) was expected");
        assert_eq!(parse("a@1:2:3:4"), "`1:2:3:4` where ADDRESS[:OFFSET[:SIZE]] was expected");
        assert_eq!(
            parse("a@0x10000000000000000"),
            "`0x10000000000000000` where a number below 2^64 was expected"
        );
    }

    #[test]
    fn an_elf_has_a_base_where_a_number_follows() {
        let elf = |file: &str, base| Ok(Elf { file: file.to_owned(), base });
        assert_eq!("a.out".parse(), elf("a.out", None));
        assert_eq!("lib@2.so".parse(), elf("lib@2.so", None));
        assert_eq!("lib@2.so@0x7f0000000000".parse(), elf("lib@2.so", Some(0x7f00_0000_0000)));
    }

    #[test]
    fn a_processor_is_family_model_and_stepping() {
        assert_eq!(cpu("6/85/4"), Ok(Cpu { family: 6, model: 85, stepping: 4 }));
        assert_eq!(cpu("6/0x55"), Ok(Cpu { family: 6, model: 85, stepping: 0 }));
        assert_eq!(
            message(cpu("6")).unwrap_err(),
            "`6` where FAMILY/MODEL[/STEPPING], such as 6/85/4 was expected"
        );
        assert_eq!(message(cpu("6/300")).unwrap_err(), "`300` where a smaller number was expected");
    }

    #[test]
    fn clock_settings_are_checked() {
        assert_eq!(tsc_ctc_ratio("2:216"), Ok((216, 2)));
        assert!(tsc_ctc_ratio("0:216").is_err());
        assert!(tsc_ctc_ratio("216").is_err());
        assert_eq!(mtc_frequency("3"), Ok(3));
        assert!(mtc_frequency("16").is_err());
        assert_eq!(max_nonturbo_ratio("26"), Ok(26));
        assert!(max_nonturbo_ratio("0").is_err());
    }

    #[test]
    fn segments_lie_at_the_base() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf { file: "program".to_owned(), base: Some(0x1000_0000) };
        let recording = recording(Vec::new(), "", &[], &[(Owner::Traced, &elf, &program)]).unwrap();
        let mapped = |sideband: &Sideband<'_>| match sideband.kind {
            SidebandKind::Map(mapping) => (mapping.address, mapping.file_offset, mapping.name == b"program"),
            _ => unreachable!("a raw recording has mappings only"),
        };
        let mappings: Vec<_> = recording.sideband.iter().map(mapped).collect();
        assert_eq!(mappings.iter().min(), Some(&(0x1000_0000, 0, true)));
        assert!(mappings.len() > 1);
    }

    #[test]
    fn code_outside_its_file_is_a_loss_and_no_elf_an_error() {
        let code = "a@0x1000:8:16".parse::<Code>().unwrap();
        let read = recording(Vec::new(), "", &[(Owner::Traced, &code, 20)], &[]).unwrap();
        assert_eq!(
            read.loss[0].detail,
            "a: 16 bytes at offset 0x8 expected for address 0x1000, but the file has 20 bytes"
        );
        let elf = Elf { file: "x".to_owned(), base: None };
        let read = recording(Vec::new(), "", &[], &[(Owner::Traced, &elf, b"no ELF")]);
        assert_eq!(read.unwrap_err().file, "x");
    }

    #[test]
    fn code_is_of_the_host_or_of_its_guests_as_options_say() {
        let code = ["t@0x1000", "h@0x2000", "g@0x3000"].map(|text| text.parse::<Code>().unwrap());
        let [traced, host, guest] =
            [(Owner::Traced, &code[0], 16), (Owner::Host, &code[1], 16), (Owner::Guest, &code[2], 16)];
        // The names of the host's and of the guest's code.
        let sides = |given: &[(Owner, &Code, u64)]| {
            let read = recording(Vec::new(), "", given, &[]).unwrap();
            let name = |sideband: &Sideband<'_>| match sideband.kind {
                SidebandKind::Map(mapping) => String::from_utf8_lossy(mapping.name).into_owned(),
                _ => unreachable!("a raw recording has mappings only"),
            };
            let names = |in_guest| {
                let of_side = read.sideband.iter().filter(|sideband| sideband.guest.is_some() == in_guest);
                of_side.map(name).collect::<String>()
            };
            (format!("host: {}, guest: {}", names(false), names(true)), read.guest_code)
        };
        let shown = |sides: &str, code| (sides.to_owned(), code);
        assert_eq!(sides(&[traced]), shown("host: t, guest: ", GuestCode::OfHost));
        assert_eq!(sides(&[traced, host]), shown("host: h, guest: t", GuestCode::Mapped));
        assert_eq!(sides(&[traced, guest]), shown("host: t, guest: g", GuestCode::Mapped));
        assert_eq!(sides(&[host, guest]), shown("host: h, guest: g", GuestCode::Mapped));
        assert_eq!(sides(&[host]), shown("host: h, guest: ", GuestCode::Mapped));
    }
}

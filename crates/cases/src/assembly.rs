//! Assembled code: bytes at addresses, and labels.

use std::{collections::BTreeMap, fs, io, ops::Range, process::Command};

use crate::{Code, Error, Owner};

/// Code with its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// The sections in order of time.
    pub sections: Vec<Section>,
    /// The address of each label.
    pub labels: BTreeMap<String, u64>,
}

/// Bytes at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The address of the first byte.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The tick from which the bytes are mapped.
    pub from: u64,
    /// Their owner.
    pub owner: Owner,
}

impl Section {
    /// The addresses.
    pub fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes.len() as u64)
    }
}

impl Assembly {
    /// The address of `label`, `label+2` or `label-2`.
    pub fn address(&self, text: &str) -> Option<u64> {
        let (label, offset) = match text.find(['+', '-']) {
            Some(sign) => (&text[..sign], text[sign..].parse::<i64>().ok()?),
            None => (text, 0),
        };
        self.labels.get(label)?.checked_add_signed(offset)
    }

    /// Whether the address is inside or directly after some code.
    pub fn contains(&self, address: u64) -> bool {
        self.sections
            .iter()
            .any(|section| section.range().contains(&address) || section.range().end == address)
    }

    /// The address as text: relative to the last label before it in its section, else the number.
    pub fn name(&self, address: u64) -> String {
        let ranges = self.sections.iter().map(Section::range);
        let start = ranges
            .filter(|range| range.start <= address && address <= range.end)
            .map(|range| range.start)
            .max();
        let labels = self.labels.iter().map(|(name, &label)| (label, name));
        let before =
            labels.filter(|&(label, _)| start.is_some_and(|start| (start..=address).contains(&label)));
        // Of several labels at one address, the first by name.
        match before.reduce(|last, other| if other.0 > last.0 { other } else { last }) {
            Some((label, name)) if label == address => name.clone(),
            Some((label, name)) => format!("{name}+{}", address - label),
            None => format!("{address:x}"),
        }
    }

    /// Adds the assembled bytes of one part of the code, according to nasm's map.
    fn add(&mut self, part: &Code<'_>, bytes: &[u8], map: &str) -> Option<()> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut first = None;
        for line in map.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [address, start, _stop, length, "progbits", _name] => {
                    let start = hex(start)?;
                    let offset = (start - *first.get_or_insert(start)) as usize;
                    let bytes = bytes.get(offset..offset + hex(length)? as usize)?.to_vec();
                    let Code { from, owner, .. } = *part;
                    self.sections.push(Section { address: hex(address)?, bytes, from, owner });
                }
                [real, address, name] => {
                    if let (Some(_), Some(address)) = (hex(real), hex(address)) {
                        self.labels.insert(name.to_owned(), address);
                    }
                }
                _ => {}
            }
        }
        Some(())
    }
}

/// Assembles all code of a case with nasm.
///
/// # Errors
/// nasm's messages, or that it can't be started.
pub fn assemble(code: &[Code<'_>]) -> Result<Assembly, Error> {
    let mut assembly = Assembly::default();
    for part in code {
        let (bytes, map) =
            nasm(part.source).map_err(|error| Error::new(part.line, format!("nasm: {error}")))?;
        assembly
            .add(part, &bytes, &map)
            .ok_or_else(|| Error::new(part.line, "nasm's map is not as expected"))?;
    }
    Ok(assembly)
}

/// The assembled bytes, and the map of their sections and symbols.
fn nasm(source: &str) -> io::Result<(Vec<u8>, String)> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    fs::write(path("code"), source)?;
    fs::write(path("map.mac"), "[map sections symbols map]\n")?;
    let output = Command::new("nasm")
        .current_dir(folder.path())
        .args(["-f", "bin", "-w+error", "-P", "map.mac", "-o", "bytes", "code"])
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok((fs::read(path("bytes"))?, fs::read_to_string(path("map"))?))
}

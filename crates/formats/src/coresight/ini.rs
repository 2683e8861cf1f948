//! The text files of a snapshot: `[section]`, `key=value`, comments after `;` or `#`.

/// A section, with its entries in order. A key may come more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section<'t> {
    pub(super) name: &'t str,
    pub(super) entries: Vec<(&'t str, &'t str)>,
}

impl<'t> Section<'t> {
    /// Returns the value of a key. Keys of registers are `NAME` or `NAME(NUMBER)`.
    pub(super) fn get(&self, key: &str) -> Option<&'t str> {
        let is_it =
            |found: &str| found.split('(').next().unwrap_or_default().trim().eq_ignore_ascii_case(key);
        self.entries.iter().find(|(found, _)| is_it(found)).map(|&(_, value)| value)
    }

    /// Returns the number of a key.
    ///
    /// # Errors
    /// The value is no number.
    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let parsed = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
        parsed.map(Some).map_err(|_| format!("{key}={text} in [{}]: not a number", self.name))
    }
}

/// Reads the sections of a file. Entries before the first section are in one without a name.
pub(super) fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections = vec![Section::default()];
    for line in text.lines() {
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if let Some((name, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            sections.push(Section { name: name.trim(), entries: Vec::new() });
        } else if let (Some((key, value)), Some(section)) = (line.split_once('='), sections.last_mut()) {
            section.entries.push((key.trim(), value.trim().trim_matches(['"', '\''])));
        }
    }
    sections.retain(|section| !section.name.is_empty() || !section.entries.is_empty());
    sections
}

/// Returns the first section with a name.
pub(super) fn section<'s, 't>(sections: &'s [Section<'t>], name: &str) -> Option<&'s Section<'t>> {
    sections.iter().find(|section| section.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_entries_in_order() {
        let text = "; a comment\r\n[regs] # more\nTRCCONFIGR(0x4)=0x880\ntrcidr8 = 10\n\n[core_trace_sources]\n\
                    cpu_0=ETE_0_s1\ncpu_0=ETE_0_s2\nfile=\"a b.bin\"\nbad=0x\n";
        let sections = sections(text);
        let [registers, cores] = &sections[..] else { panic!("{sections:?}") };
        assert_eq!((registers.name, registers.number("TRCCONFIGR")), ("regs", Ok(Some(0x880))));
        assert_eq!((registers.number("TRCIDR8"), registers.number("TRCIDR2")), (Ok(Some(10)), Ok(None)));
        assert_eq!(cores.entries[..2], [("cpu_0", "ETE_0_s1"), ("cpu_0", "ETE_0_s2")]);
        assert_eq!((cores.get("file"), cores.number("bad").is_err()), (Some("a b.bin"), true));
    }
}

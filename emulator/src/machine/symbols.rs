//! The symbols of the guest's kernel.

use std::{collections::HashMap, io, ops::Range, path::Path};

use super::spool::SYMBOLS;

/// The functions of the kernel and its modules.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// The addresses of each name; static functions may share one.
    addresses: HashMap<String, Vec<u64>>,
    /// All addresses, sorted.
    sorted: Vec<u64>,
}

impl Symbols {
    /// Reads the file that the guest wrote.
    pub(crate) fn load(spool: &Path) -> io::Result<Symbols> {
        Ok(Symbols::parse(&String::from_utf8_lossy(&std::fs::read(spool.join(SYMBOLS))?)))
    }

    /// Parses lines of `/proc/kallsyms`: address, type, name.
    fn parse(text: &str) -> Symbols {
        let mut symbols = Symbols::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if ["t", "T", "w", "W"].contains(&kind) && address != 0 {
                symbols.addresses.entry(name.to_owned()).or_default().push(address);
                symbols.sorted.push(address);
            }
        }
        symbols.sorted.sort_unstable();
        symbols.sorted.dedup();
        symbols
    }

    /// The functions with this name: from their address to that of the next function.
    ///
    /// # Errors
    /// The name, if there is none.
    pub(crate) fn functions(&self, name: &str) -> Result<Vec<Range<u64>>, String> {
        let found = self.addresses.get(name).ok_or_else(|| name.to_owned())?;
        let end = |address: u64| {
            let next = self.sorted.partition_point(|&other| other <= address);
            self.sorted.get(next).copied().unwrap_or(address + 1)
        };
        Ok(found.iter().map(|&address| address..end(address)).collect())
    }

    /// The addresses at which functions with this name begin.
    ///
    /// # Errors
    /// As [`Symbols::functions`].
    pub(crate) fn entries(&self, name: &str) -> Result<Vec<u64>, String> {
        Ok(self.functions(name)?.into_iter().map(|function| function.start).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_ends_where_the_next_one_begins() {
        let text = "0000000000000000 A fixed\nffffffff81000000 T _text\nffffffff81000010 t twice\n\
                    ffffffff81000020 T other\nffffffff81000020 T alias\nffffffff81000028 D data\n\
                    ffffffffc0000000 t twice\t[module]\nffffffffc0000040 t last\t[module]\n";
        let symbols = Symbols::parse(text);
        let (low, high) = (0xffff_ffff_8100_0000, 0xffff_ffff_c000_0000);
        assert_eq!(symbols.functions("twice").unwrap(), [low + 0x10..low + 0x20, high..high + 0x40]);
        assert_eq!(symbols.entries("alias").unwrap(), [low + 0x20]);
        assert_eq!(symbols.functions("other").unwrap()[0], low + 0x20..high);
        assert_eq!(symbols.functions("data").unwrap_err(), "data");
    }
}

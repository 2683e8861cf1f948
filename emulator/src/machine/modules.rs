//! Modules that the guest's kernel loads while it is recorded: the names of their functions are lost when they are
//! unloaded.
//!
//! Source: Linux, `kernel/module/main.c`. `do_init_module(module)` runs when the module is in place, with all of its
//! symbols, and before its first instruction.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use super::{
    settings::ModuleLayout,
    spool::{LOADED, Loaded, ModuleFunction},
    symbols::Symbols,
    watch::ReadMemory,
};

/// The kernel's function that runs a module that it has loaded.
const LOADS: &str = "do_init_module";
/// Size of an ELF symbol (ELF-64 Object File Format, "Symbol Table"): u32 name, u8 info, u8 other, u16 section, u64 value,
/// u64 size.
const SYMBOL: usize = 24;
/// The most symbols of a module; the largest ones have a tenth of it.
const MOST_SYMBOLS: u64 = 1 << 20;
/// The most bytes of a module's name, with the NUL at its end (`MODULE_NAME_LEN`).
const MODULE_NAME: usize = 56;
/// The most bytes of a symbol's name, with the NUL at its end (`KSYM_NAME_LEN`).
const SYMBOL_NAME: usize = 512;
const PAGE: u64 = 4096;

/// Follows the loading of modules.
pub(crate) struct Modules {
    /// The address of the kernel's function.
    pub(crate) loads_at: u64,
    layout: ModuleLayout,
    out: Mutex<File>,
}

impl Modules {
    /// Returns `None` if the kernel has no such function: it loads no modules.
    ///
    /// # Errors
    /// The file in the spool can't be created.
    pub(crate) fn new(layout: ModuleLayout, symbols: &Symbols, spool: &Path) -> io::Result<Option<Modules>> {
        let Some(&loads_at) = symbols.entries(LOADS).ok().as_ref().and_then(|found| found.first()) else {
            return Ok(None);
        };
        Ok(Some(Modules { loads_at, layout, out: Mutex::new(File::create(spool.join(LOADED))?) }))
    }

    /// The kernel has loaded the module that `module` points to.
    #[cold]
    pub(crate) fn loaded(&self, module: u64, time: u64, read: ReadMemory) {
        let Some(loaded) = describe(&self.layout, module, time, read) else {
            say!("hodo: the kernel loaded a module whose functions can't be read; they have no names");
            return;
        };
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let line = serde_json::to_vec(&loaded).map(|line| [line.as_slice(), b"\n"].concat());
        if let Err(error) = line.map_err(io::Error::from).and_then(|line| out.write_all(&line)) {
            say!("hodo: the functions of module {} have no names: {error}", loaded.name);
        }
    }
}

/// Reads the name and the functions of a module.
fn describe(layout: &ModuleLayout, module: u64, time: u64, read: ReadMemory) -> Option<Loaded> {
    let word = |address: u64| {
        let mut bytes = [0; 8];
        read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let kallsyms = word(module.wrapping_add(layout.kallsyms))?;
    let [symbols, names, types] =
        [layout.symbols, layout.names, layout.types].map(|offset| word(kallsyms.wrapping_add(offset)));
    let (symbols, names, types) = (symbols?, names?, types?);
    let count = (word(kallsyms.wrapping_add(layout.count))? & u64::from(u32::MAX)).min(MOST_SYMBOLS) as usize;
    let (mut table, mut kinds) = (vec![0; count * SYMBOL], vec![0; count]);
    if !(read_pages(symbols, &mut table, read) && read_pages(types, &mut kinds, read)) {
        return None;
    }
    let mut functions = Vec::new();
    for (symbol, kind) in table.chunks_exact(SYMBOL).zip(kinds) {
        let (name, rest) = symbol.split_at(4);
        let name = name.try_into().map(u32::from_le_bytes).ok()?;
        let (address, size) = rest[4..].split_at(8);
        let (address, size) =
            (u64::from_le_bytes(address.try_into().ok()?), u64::from_le_bytes(size.try_into().ok()?));
        // A section has a symbol too, without a name.
        if b"tTwW".contains(&kind) && address != 0 && name != 0 {
            let name = text::<SYMBOL_NAME>(names.wrapping_add(name.into()), read)?;
            functions.push(ModuleFunction { address, size, name });
        }
    }
    functions.sort_unstable();
    Some(Loaded { name: text::<MODULE_NAME>(module.wrapping_add(layout.name), read)?, time, functions })
}

/// Reads page by page: what lies next to each other in the address space is not next to each other in memory.
fn read_pages(address: u64, mut into: &mut [u8], read: ReadMemory) -> bool {
    let mut address = address;
    while !into.is_empty() {
        let (piece, rest) = into.split_at_mut(((PAGE - address % PAGE) as usize).min(into.len()));
        if !read(address, piece) {
            return false;
        }
        address = address.wrapping_add(piece.len() as u64);
        into = rest;
    }
    true
}

/// The text at an address, of less than `MOST` bytes; what follows it may not be mapped.
fn text<const MOST: usize>(address: u64, read: ReadMemory) -> Option<String> {
    let mut bytes = [0; MOST];
    let within = ((PAGE - address % PAGE) as usize).min(MOST);
    let (first, rest) = bytes.split_at_mut(within);
    if !read(address, first) {
        return None;
    }
    if !first.contains(&0) {
        read(address.wrapping_add(within as u64), rest);
    }
    let text = bytes.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: ModuleLayout =
        ModuleLayout { name: 8, kallsyms: 64, symbols: 0, count: 8, names: 16, types: 24 };
    const MODULE: u64 = 0x1_0000;

    /// A guest's memory: a page with a module, its symbols and their names; the last name ends with the page.
    fn memory(address: u64, into: &mut [u8]) -> bool {
        let mut page = vec![0u8; PAGE as usize];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(8, b"tiny\0");
        put(64, &(MODULE + 128).to_le_bytes());
        for (index, word) in
            [MODULE + 256, 0xffff_0000_0003, MODULE + 1024, MODULE + 512].into_iter().enumerate()
        {
            put(128 + 8 * index, &u64::to_le_bytes(word));
        }
        let symbols =
            [(0u32, 0, 0), (3072 - 2, 0xffff_ffff_c000_1000u64, 64u64), (1, 0xffff_ffff_c000_0000, 16)];
        for (index, (name, value, size)) in symbols.into_iter().enumerate() {
            put(256 + SYMBOL * index, &name.to_le_bytes());
            put(256 + SYMBOL * index + 8, &value.to_le_bytes());
            put(256 + SYMBOL * index + 16, &size.to_le_bytes());
        }
        put(512, b"?tT");
        put(1024, b"\0init_module\0");
        put(4094, b"f\0");
        let Some(start) = address.checked_sub(MODULE).map(|start| start as usize) else { return false };
        let Some(found) = page.get(start..start + into.len()) else { return false };
        into.copy_from_slice(found);
        true
    }

    #[test]
    fn a_module_is_read_with_its_functions() {
        let expected = Loaded {
            name: "tiny".to_owned(),
            time: 7,
            functions: vec![
                ModuleFunction { address: 0xffff_ffff_c000_0000, size: 16, name: "init_module".to_owned() },
                ModuleFunction { address: 0xffff_ffff_c000_1000, size: 64, name: "f".to_owned() },
            ],
        };
        assert_eq!(describe(&LAYOUT, MODULE, 7, memory), Some(expected));
        assert_eq!(describe(&LAYOUT, MODULE + PAGE, 7, memory), None);
    }
}

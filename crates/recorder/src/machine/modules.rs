//! The modules of the guest's kernel: those of its list, and those that it loaded while it was recorded.

use std::ops::Range;

use hodo_clock::Nanos;
use hodo_emulator::machine::spool::{Loaded, ModuleFunction};
use hodo_formats::recording::{KeptCode, Sideband, Thread};

use super::collect::map;

const PAGE: u64 = 4096;

/// The modules in the text of /proc/modules, and their addresses.
pub(super) fn listed(modules: &str) -> impl Iterator<Item = (&str, Range<u64>)> {
    modules.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, size) = (words.next()?, words.next()?.parse::<u64>().ok()?);
        let address = u64::from_str_radix(words.nth(3)?.strip_prefix("0x")?, 16).ok()?;
        Some((name, address..address.checked_add(size)?))
    })
}

/// The name of a module's mapping. Names must live as long as the recorder runs.
pub(super) fn bracketed(name: &str) -> &'static [u8] {
    format!("[{name}]").into_bytes().leak()
}

/// Second names that the kernel gives two functions of every module: they say when the functions run, not which they are.
const ALIASES: [&str; 2] = ["init_module", "cleanup_module"];

/// Adds the functions of loaded modules to the text of /proc/kallsyms. A module that was loaded twice at the same address
/// adds them once.
pub(super) fn add_symbols(kallsyms: &mut Vec<u8>, loaded: &[Loaded]) {
    let mut lines = Vec::new();
    for module in loaded {
        let line = |function: &ModuleFunction| {
            format!("{:016x} t {}\t[{}]\n", function.address, function.name, module.name)
        };
        let is_alias = |function: &&ModuleFunction| {
            let is_other_name =
                |other: &ModuleFunction| other.address == function.address && other.name != function.name;
            ALIASES.contains(&function.name.as_str()) && module.functions.iter().any(is_other_name)
        };
        lines.extend(module.functions.iter().filter(|function| !is_alias(function)).map(line));
    }
    lines.sort_unstable();
    lines.dedup();
    kallsyms.extend(lines.concat().bytes());
}

/// The mappings of a module that was loaded at this time: the pages of its functions, which are in order of address.
pub(super) fn mappings(module: &Loaded, time: Nanos) -> impl Iterator<Item = Sideband<'static>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for &ModuleFunction { address, size, .. } in &module.functions {
        let begin = address / PAGE * PAGE;
        let end = address.saturating_add(size.max(1)).next_multiple_of(PAGE);
        match ranges.last_mut() {
            Some(last) if begin <= last.end => last.end = last.end.max(end),
            _ => ranges.push(begin..end),
        }
    }
    let name = bracketed(&module.name);
    ranges.into_iter().map(move |range| Sideband {
        time: Some(time),
        cpu: None,
        thread: Thread { pid: KeptCode::KERNEL, tid: 0 },
        guest: None,
        kind: map(range.start, range.end - range.start, name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hodo_formats::recording::SidebandKind;

    #[test]
    fn the_list_of_modules_is_read() {
        let text = "virtio_pci 36864 0 - Live 0xffffffffc0013000\nbad line\noverlay 167936 1 - Live 0xffffffffc005a000 (E)\n";
        let expected =
            [("virtio_pci", 0xffff_ffff_c001_3000, 36864), ("overlay", 0xffff_ffff_c005_a000, 167_936)];
        assert_eq!(
            listed(text).collect::<Vec<_>>(),
            expected.map(|(name, address, size)| (name, address..address + size))
        );
    }

    #[test]
    fn a_loaded_module_has_the_pages_of_its_functions() {
        let low = 0xffff_ffff_c000_0000;
        let function = |address, size, name: &str| ModuleFunction { address, size, name: name.to_owned() };
        let functions =
            vec![function(low, 16, "f"), function(low + 0xff8, 16, "g"), function(low + 0x9000, 1, "init")];
        let module = Loaded { name: "m".to_owned(), time: 5, functions };
        let ranges = mappings(&module, Nanos(7)).map(|event| match event.kind {
            SidebandKind::Map(map) => (map.address - low, map.length, map.name.to_vec()),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            ranges.collect::<Vec<_>>(),
            [(0, 0x2000, b"[m]".to_vec()), (0x9000, 0x1000, b"[m]".to_vec())]
        );
        let mut kallsyms = b"ffffffff81000000 T _text\n".to_vec();
        add_symbols(&mut kallsyms, &[module.clone(), module]);
        let text = String::from_utf8(kallsyms).unwrap();
        assert!(text.starts_with("ffffffff81000000 T _text\nffffffffc0000000 t f\t[m]\n"), "{text}");
        assert_eq!(text.lines().count(), 4);
    }
}

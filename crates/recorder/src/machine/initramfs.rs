//! The initramfs of the guest: an archive in the "newc" format of cpio (Linux,
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use object::{Object, ObjectSection};

/// The modules that the guest needs, besides their dependencies.
const MODULES: [&str; 5] = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console"];
/// The module that runs guests of the guest.
const NESTED: &str = "kvm_amd";

/// Makes the archive of `init` and the modules that it loads: the guest's, those for nested guests, and `more`.
pub(super) fn build(init: &Path, modules: &Path, nested: bool, more: &[PathBuf]) -> io::Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "modules"] {
        archive.folder(folder);
    }
    archive.device("dev/console", CONSOLE);
    archive.file("init", 0o755, &fs::read(init)?);
    let mut order = String::new();
    for (name, bytes) in in_order(modules, nested, more)? {
        archive.file(&format!("modules/{name}.ko"), 0o644, &bytes);
        order.push_str(&format!("{name}.ko\n"));
    }
    archive.file("modules/order", 0o644, order.as_bytes());
    Ok(archive.finish())
}

/// The modules and their dependencies, each after its dependencies.
fn in_order(folder: &Path, nested: bool, more: &[PathBuf]) -> io::Result<Vec<(String, Vec<u8>)>> {
    let list = fs::read_to_string(folder.join("modules.order"))?;
    let own = list.lines().map(|line| folder.join(line));
    let named = |path: PathBuf| Some((name_of(path.to_str()?)?, path));
    let paths: HashMap<String, PathBuf> = own.chain(more.iter().cloned()).filter_map(named).collect();
    let own = MODULES.into_iter().chain(nested.then_some(NESTED)).map(str::to_owned);
    let wanted = own.chain(more.iter().filter_map(|path| name_of(path.to_str()?)));
    let mut ordered = Vec::new();
    for name in wanted {
        add(&name, &paths, &mut ordered)?;
    }
    Ok(ordered)
}

fn name_of(path: &str) -> Option<String> {
    Some(path.rsplit('/').next()?.strip_suffix(".ko")?.replace('-', "_"))
}

/// Adds a module after its dependencies. A module without a file is built into the kernel.
fn add(name: &str, paths: &HashMap<String, PathBuf>, ordered: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let name = name.replace('-', "_");
    if ordered.iter().any(|(known, _)| *known == name) {
        return Ok(());
    }
    let Some(path) = paths.get(&name) else { return Ok(()) };
    let bytes = fs::read(path)?;
    for needed in needs(&bytes) {
        add(&needed, paths, ordered)?;
    }
    ordered.push((name, bytes));
    Ok(())
}

/// The dependencies of a module: `depends=a,b` and `softdep=pre: a b` in its section .modinfo.
fn needs(module: &[u8]) -> Vec<String> {
    let info = object::File::parse(module)
        .ok()
        .and_then(|file| file.section_by_name(".modinfo")?.data().ok().map(<[u8]>::to_vec))
        .unwrap_or_default();
    let mut names = Vec::new();
    for entry in info.split(|&byte| byte == 0) {
        let entry = String::from_utf8_lossy(entry);
        let list = entry.strip_prefix("depends=").or_else(|| entry.strip_prefix("softdep=pre: "));
        let words = list.into_iter().flat_map(|list| list.split([',', ' ']));
        names.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    }
    names
}

/// An archive under construction.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

/// The number of a device file.
#[derive(Clone, Copy)]
struct Device {
    major: u32,
    minor: u32,
}

const CONSOLE: Device = Device { major: 5, minor: 1 };
/// The number of files that are no devices.
const NO_DEVICE: Device = Device { major: 0, minor: 0 };

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

impl Archive {
    fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER | 0o755, NO_DEVICE, &[]);
    }

    fn device(&mut self, name: &str, device: Device) {
        self.entry(name, CHARACTER_DEVICE | 0o600, device, &[]);
    }

    fn file(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.entry(name, FILE | mode, NO_DEVICE, bytes);
    }

    fn entry(&mut self, name: &str, mode: u32, device: Device, bytes: &[u8]) {
        self.entries += 1;
        let (size, name_size) = (bytes.len() as u32, name.len() as u32 + 1);
        // Inode, mode, user, group, links, time, size, device of the file, number of the device, size of the name, sum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.major, device.minor, name_size, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, NO_DEVICE, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_headers_of_the_newc_form() {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.device("dev/console", CONSOLE);
        archive.file("init", 0o755, b"#!/bin/sh\n");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        // The header of the last entry but one: its mode and its size.
        let header = &text[text.find("init").unwrap() - 110..];
        assert_eq!(&header[..6], "070701");
        assert_eq!((&header[14..22], &header[54..62]), ("000081ed", "0000000a"));
    }
}

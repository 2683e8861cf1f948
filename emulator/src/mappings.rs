//! The origin of code: mapped files, or bytes that no file contains.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    ops::Range,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::Path,
};

use object::Object;
use rustc_hash::FxHashMap;

use crate::{memory, spool::MapNote};

const PAGE: u64 = 4096;

/// The mappings of executed code. Each is looked up and described when its code first runs.
#[derive(Default)]
pub(crate) struct Mappings {
    /// Mappings from which code ran, and that still exist.
    regions: Vec<Region>,
    /// Mappings that were removed: their replacement did not exist from the start.
    gone: Vec<Range<u64>>,
    /// Bytes of code that no file contains, as last seen.
    kept: FxHashMap<u64, Page>,
    /// Files that were mapped only to announce them, and whose addresses are not known yet.
    marks: Vec<Vec<u8>>,
    /// Contents of files, by device (major and minor number) and inode.
    files: FxHashMap<(u32, u32, u64), &'static [u8]>,
}

struct Region {
    note: MapNote,
    not_before: u64,
    contents: &'static [u8],
}

struct Page {
    bytes: Box<[Option<u8>; PAGE as usize]>,
    not_before: u64,
}

/// What to record about some code.
#[derive(Default)]
pub(crate) struct ToRecord {
    /// Its mapping, if that was not recorded before.
    pub(crate) new_mapping: Option<MapNote>,
    /// Whether to record its bytes: no file contains them, and they were not recorded before.
    pub(crate) keep: bool,
    /// Time since which the code was there; 0 if from the start.
    pub(crate) not_before: u64,
}

impl MapNote {
    fn addresses(&self) -> Range<u64> {
        self.address..self.address + self.length
    }

    fn contains(&self, address: u64) -> bool {
        self.addresses().contains(&address)
    }
}

impl Region {
    /// The file's bytes from `address` to the end of the mapping.
    fn contents_at(&self, address: u64) -> &[u8] {
        let into = address - self.note.address;
        let start = usize::try_from(self.note.file_offset + into).unwrap_or(usize::MAX);
        let rest = self.contents.get(start..).unwrap_or(&[]);
        &rest[..rest.len().min((self.note.length - into) as usize)]
    }
}

impl Mappings {
    /// Drops the mappings of this range, which may change.
    pub(crate) fn forget(&mut self, address: u64, length: u64) {
        let changed = address..address.saturating_add(length);
        let gone = &mut self.gone;
        self.regions.retain(|region| {
            let addresses = region.note.addresses();
            let stays = !overlap(&addresses, &changed);
            if !stays {
                gone.push(addresses);
            }
            stays
        });
    }

    /// A file of this name is about to be mapped, perhaps only to announce it to a tracer: run-time compilers do so
    /// with the jitdump that they write (Linux, `jitdump-specification.txt`).
    pub(crate) fn mark(&mut self, name: Vec<u8>) {
        let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(&name);
        if file.starts_with(b"jit-") && file.ends_with(b".dump") {
            self.marks.push(name);
        }
    }

    /// The mappings that [`Mappings::mark`] announced.
    pub(crate) fn marked(&mut self) -> Vec<MapNote> {
        if self.marks.is_empty() {
            return Vec::new();
        }
        let marks = std::mem::take(&mut self.marks);
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        let lines = maps.split(|&byte| byte == b'\n').filter_map(parse);
        lines.filter(|map| marks.contains(&map.name)).collect()
    }

    /// What to record about `bytes` that are about to run at `pc`. `later` returns a time after everything that ran so
    /// far.
    pub(crate) fn look_up(&mut self, pc: u64, bytes: &[u8], later: &dyn Fn() -> u64) -> ToRecord {
        let mut to_record = ToRecord::default();
        let index = match self.regions.iter().position(|region| region.note.contains(pc)) {
            Some(index) => index,
            None => match self.discover(pc, later) {
                Some(region) => {
                    to_record.new_mapping = Some(region.note.clone());
                    self.regions.push(region);
                    self.regions.len() - 1
                }
                None => return to_record,
            },
        };
        let region = &self.regions[index];
        to_record.not_before = region.not_before;
        let contents = region.contents_at(pc);
        let common = contents.len().min(bytes.len());
        // Bytes beyond the end of the mapping are in another mapping of the same file, or are kept.
        let rest_is_elsewhere =
            common == bytes.len() || !contents.is_empty() && self.is_in_next(pc, bytes, common);
        if contents[..common] == bytes[..common] && rest_is_elsewhere {
            return to_record;
        }
        self.keep(pc, bytes, later, &mut to_record);
        to_record
    }

    /// Whether the bytes after the first `from` are those of the next mapping.
    fn is_in_next(&self, pc: u64, bytes: &[u8], from: usize) -> bool {
        let address = pc + from as u64;
        let region = self.regions.iter().find(|region| region.note.contains(address));
        region.is_some_and(|region| region.contents_at(address).starts_with(&bytes[from..]))
    }

    /// Looks up the mapping around `pc` in /proc/self/maps.
    fn discover(&mut self, pc: u64, later: &dyn Fn() -> u64) -> Option<Region> {
        let maps = std::fs::read("/proc/self/maps").ok()?;
        let mut note = maps.split(|&byte| byte == b'\n').filter_map(parse).find(|map| map.contains(pc))?;
        let contents = self.file_contents(&note);
        note.build_id = build_id(contents);
        let addresses = note.addresses();
        let replaces = self.gone.iter().any(|gone| overlap(gone, &addresses))
            || self.regions.iter().any(|region| overlap(&region.note.addresses(), &addresses));
        self.regions.retain(|region| !overlap(&region.note.addresses(), &addresses));
        Some(Region { note, not_before: if replaces { later() } else { 0 }, contents })
    }

    fn file_contents(&mut self, note: &MapNote) -> &'static [u8] {
        if note.inode == 0 {
            return &[];
        }
        let key = (note.device.0, note.device.1, note.inode);
        let map = || map_file(Path::new(OsStr::from_bytes(&note.name))).unwrap_or(&[]);
        self.files.entry(key).or_insert_with(map)
    }

    /// Keeps bytes that no file contains, and checks whether they replace others.
    fn keep(&mut self, pc: u64, bytes: &[u8], later: &dyn Fn() -> u64, to_record: &mut ToRecord) {
        let addressed = || bytes.iter().enumerate().map(|(index, &byte)| (pc + index as u64, byte));
        let (mut known, mut differs) = (true, false);
        for number in pc / PAGE..=(pc + bytes.len() as u64 - 1) / PAGE {
            if self.kept.get(&number).is_some_and(|page| page.has_changed(number)) {
                self.kept.insert(number, Page::new());
                differs = true;
            }
        }
        for (address, byte) in addressed() {
            let page = self.kept.get(&(address / PAGE));
            to_record.not_before = to_record.not_before.max(page.map_or(0, |page| page.not_before));
            match page.and_then(|page| page.bytes[(address % PAGE) as usize]) {
                Some(old) => differs |= old != byte,
                None => known = false,
            }
        }
        if differs {
            to_record.not_before = later();
        }
        to_record.keep = differs || !known;
        for (address, byte) in addressed() {
            let page = self.kept.entry(address / PAGE).or_insert_with(Page::new);
            page.bytes[(address % PAGE) as usize] = Some(byte);
            page.not_before = to_record.not_before;
        }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Page {
    fn new() -> Page {
        Page { bytes: Box::new([None; PAGE as usize]), not_before: 0 }
    }

    /// Whether some of the code that ran from the page is gone. The whole page then counts as new: another function may
    /// begin with the very bytes of its predecessor.
    fn has_changed(&self, number: u64) -> bool {
        let mut now = [0; PAGE as usize];
        memory::read(number * PAGE, &mut now)
            && self.bytes.iter().zip(&now).any(|(known, now)| known.is_some_and(|known| known != *now))
    }
}

/// Parses a line of /proc/self/maps (proc(5)).
fn parse(line: &[u8]) -> Option<MapNote> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let field = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or(&[]);
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let (address, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let _permissions = field()?;
    let file_offset = hexadecimal(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let device = (hexadecimal(major)? as u32, hexadecimal(minor)? as u32);
    let inode = field()?.parse().ok()?;
    let name = rest.trim_ascii_start();
    let name = if name.is_empty() { b"//anon".to_vec() } else { name.to_vec() };
    let length = end.checked_sub(address)?;
    Some(MapNote { address, length, file_offset, device, inode, name, build_id: Vec::new() })
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// A file's bytes, mapped for the lifetime of the process.
fn map_file(path: &Path) -> io::Result<&'static [u8]> {
    let file = File::open(path)?;
    let length = file.metadata()?.len() as usize;
    // SAFETY: a new private mapping of an open file; the kernel chooses a free address.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is `length` bytes and is never removed. The program runs from the same file, so the file is
    // not truncated.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), length) })
}

/// The GNU build id of an ELF file; empty if it has none.
fn build_id(contents: &[u8]) -> Vec<u8> {
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(contents);
    file.ok().and_then(|file| file.build_id().ok().flatten().map(<[u8]>::to_vec)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_parsed() {
        let line = b"7f0000001000-7f0000003000 r--p 00002000 fe:01 1234                       /lib/a b.so";
        let map = parse(line).unwrap();
        assert_eq!((map.address, map.length, map.file_offset), (0x7f00_0000_1000, 0x2000, 0x2000));
        assert_eq!((map.device, map.inode, &map.name[..]), ((0xfe, 1), 1234, &b"/lib/a b.so"[..]));
        assert!(map.contains(0x7f00_0000_1fff) && !map.contains(0x7f00_0000_3000));
        assert_eq!(parse(b"1000-2000 rw-p 00000000 00:00 0 ").unwrap().name, b"//anon");
    }

    #[test]
    fn rewritten_code_gets_a_later_time() {
        let mut mappings = Mappings::default();
        let code = vec![0x90u8; 64].leak();
        let pc = code.as_ptr() as u64;
        let mut look_up = |code: &[u8], range: std::ops::Range<usize>, later: u64| {
            mappings.look_up(pc + range.start as u64, &code[range], &|| later)
        };
        let first = look_up(code, 0..4, 7);
        assert!(first.keep && first.new_mapping.is_some() && first.not_before == 0);
        let again = look_up(code, 0..4, 8);
        assert!(!again.keep && again.not_before == 0);
        code[2] = 1;
        let other = look_up(code, 0..4, 9);
        assert!(other.keep && other.not_before == 9);
        let more = look_up(code, 4..5, 10);
        assert!(more.keep && more.not_before == 9);
        code[3] = 1;
        let same_beginning = look_up(code, 0..2, 11);
        assert!(same_beginning.keep && same_beginning.not_before == 11);
    }
}

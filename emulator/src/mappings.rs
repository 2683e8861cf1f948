//! Where code comes from: files that are mapped, or bytes that no file holds.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::Path,
};

use object::Object;
use rustc_hash::FxHashMap;

use crate::spool::MapNote;

const PAGE: u64 = 4096;

/// Code is looked for where it is executed, and described when it is first.
#[derive(Default)]
pub(crate) struct Mappings {
    /// Mappings from which code ran, and that are still there.
    regions: Vec<Region>,
    /// Mappings that went away: what replaces them did not stand there from the start.
    gone: Vec<(u64, u64)>,
    /// Bytes of code that no file holds, as last seen.
    kept: FxHashMap<u64, Page>,
    /// Contents of files, by device and inode.
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

/// What is to be told about a run of code.
#[derive(Default)]
pub(crate) struct Placed {
    /// The mapping that it lies in, where that was not told before.
    pub(crate) new_mapping: Option<MapNote>,
    /// No file holds the bytes, and they were not told before.
    pub(crate) keep: bool,
    /// When the code was there, if that was not from the start; else 0.
    pub(crate) not_before: u64,
}

impl Region {
    fn contains(&self, address: u64) -> bool {
        (self.note.address..self.note.address + self.note.length).contains(&address)
    }

    /// The file's bytes from `address` on, up to the end of the mapping.
    fn contents_at(&self, address: u64) -> &[u8] {
        let into = address - self.note.address;
        let start = usize::try_from(self.note.file_offset + into).unwrap_or(usize::MAX);
        let rest = self.contents.get(start..).unwrap_or(&[]);
        &rest[..rest.len().min((self.note.length - into) as usize)]
    }
}

impl Mappings {
    /// Something else may be mapped in this range from now on.
    pub(crate) fn forget(&mut self, address: u64, length: u64) {
        let end = address.saturating_add(length);
        let overlaps = |start: u64, length: u64| start < end && address < start + length;
        let gone = &mut self.gone;
        self.regions.retain(|region| {
            let goes = overlaps(region.note.address, region.note.length);
            if goes {
                gone.push((region.note.address, region.note.length));
            }
            !goes
        });
    }

    /// What is to be told about `bytes` that are about to run at `pc`. `later` gives a time after
    /// everything that ran so far.
    pub(crate) fn place(&mut self, pc: u64, bytes: &[u8], later: &dyn Fn() -> u64) -> Placed {
        let mut placed = Placed::default();
        let index = match self.regions.iter().position(|region| region.contains(pc)) {
            Some(index) => index,
            None => match self.discover(pc, later) {
                Some(region) => {
                    placed.new_mapping = Some(region.note.clone());
                    self.regions.push(region);
                    self.regions.len() - 1
                }
                None => return placed,
            },
        };
        let region = &self.regions[index];
        placed.not_before = region.not_before;
        let contents = region.contents_at(pc);
        let common = contents.len().min(bytes.len());
        // What lies beyond the end of the mapping is another mapping of the same file, or is kept.
        let rest_is_elsewhere =
            common == bytes.len() || !contents.is_empty() && self.elsewhere(pc, bytes, common);
        if contents[..common] == bytes[..common] && rest_is_elsewhere {
            return placed;
        }
        self.keep(pc, bytes, later, &mut placed);
        placed
    }

    fn elsewhere(&self, pc: u64, bytes: &[u8], from: usize) -> bool {
        let address = pc + from as u64;
        let region = self.regions.iter().find(|region| region.contains(address));
        region.is_some_and(|region| region.contents_at(address).starts_with(&bytes[from..]))
    }

    /// Looks up the mapping around `pc` in what the system says.
    fn discover(&mut self, pc: u64, later: &dyn Fn() -> u64) -> Option<Region> {
        let maps = std::fs::read("/proc/self/maps").ok()?;
        let mut note = maps.split(|&byte| byte == b'\n').find_map(|line| parse(line, pc))?;
        let contents = self.file_contents(&note);
        note.build_id = build_id(contents);
        let (start, end) = (note.address, note.address + note.length);
        let overlaps = |&(address, length): &(u64, u64)| address < end && start < address + length;
        let replaces = self.gone.iter().any(overlaps)
            || self.regions.iter().any(|region| overlaps(&(region.note.address, region.note.length)));
        self.regions.retain(|region| !overlaps(&(region.note.address, region.note.length)));
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

    /// Remembers bytes that no file holds, and finds out whether they replace others.
    fn keep(&mut self, pc: u64, bytes: &[u8], later: &dyn Fn() -> u64, placed: &mut Placed) {
        let places = || bytes.iter().enumerate().map(|(index, &byte)| (pc + index as u64, byte));
        let (mut known, mut differs) = (true, false);
        for (address, byte) in places() {
            let page = self.kept.get(&(address / PAGE));
            placed.not_before = placed.not_before.max(page.map_or(0, |page| page.not_before));
            match page.and_then(|page| page.bytes[(address % PAGE) as usize]) {
                Some(old) => differs |= old != byte,
                None => known = false,
            }
        }
        if differs {
            placed.not_before = later();
        }
        placed.keep = differs || !known;
        for (address, byte) in places() {
            let page = self.kept.entry(address / PAGE).or_insert_with(Page::new);
            page.bytes[(address % PAGE) as usize] = Some(byte);
            page.not_before = placed.not_before;
        }
    }
}

impl Page {
    fn new() -> Page {
        Page { bytes: Box::new([None; PAGE as usize]), not_before: 0 }
    }
}

/// A line of /proc/self/maps, where it is about the mapping around `pc` (proc(5)).
fn parse(line: &[u8], pc: u64) -> Option<MapNote> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let field = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or(&[]);
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let (address, end) = (hexadecimal(start)?, hexadecimal(end)?);
    if !(address..end).contains(&pc) {
        return None;
    }
    let _permissions = field()?;
    let file_offset = hexadecimal(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let device = (hexadecimal(major)? as u32, hexadecimal(minor)? as u32);
    let inode = field()?.parse().ok()?;
    let name = rest.trim_ascii_start();
    let name = if name.is_empty() { b"//anon".to_vec() } else { name.to_vec() };
    Some(MapNote { address, length: end - address, file_offset, device, inode, name, build_id: Vec::new() })
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// A file's bytes, mapped for as long as the process lives.
fn map_file(path: &Path) -> io::Result<&'static [u8]> {
    let file = File::open(path)?;
    let length = file.metadata()?.len() as usize;
    // SAFETY: a new private mapping of a file that is open; nothing else is at the address that the
    // kernel chooses.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is `length` bytes and is never taken away. The program runs from the same
    // file, so it is not cut short.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), length) })
}

/// The GNU build id of an ELF file; empty where there is none.
fn build_id(contents: &[u8]) -> Vec<u8> {
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(contents);
    file.ok().and_then(|file| file.build_id().ok().flatten().map(<[u8]>::to_vec)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_understood() {
        let line = b"7f0000001000-7f0000003000 r--p 00002000 fe:01 1234                       /lib/a b.so";
        let map = parse(line, 0x7f00_0000_1fff).unwrap();
        assert_eq!((map.address, map.length, map.file_offset), (0x7f00_0000_1000, 0x2000, 0x2000));
        assert_eq!((map.device, map.inode, &map.name[..]), ((0xfe, 1), 1234, &b"/lib/a b.so"[..]));
        assert_eq!(parse(line, 0x7f00_0000_3000), None);
        assert_eq!(parse(b"1000-2000 rw-p 00000000 00:00 0 ", 0x1000).unwrap().name, b"//anon");
    }

    #[test]
    fn rewritten_code_gets_a_later_time() {
        let mut mappings = Mappings::default();
        let code = vec![0x90u8; 64].leak();
        let pc = code.as_ptr() as u64;
        let first = mappings.place(pc, &code[..4], &|| 7);
        assert!(first.keep && first.new_mapping.is_some() && first.not_before == 0);
        let again = mappings.place(pc, &code[..4], &|| 8);
        assert!(!again.keep && again.not_before == 0);
        let other = mappings.place(pc, &[1, 2, 3, 4], &|| 9);
        assert!(other.keep && other.not_before == 9);
        let more = mappings.place(pc + 4, &[5], &|| 10);
        assert!(more.keep && more.not_before == 9);
    }
}

//! The kernel's code and symbols: from copies of `/proc/kcore` and `/proc/kallsyms`, or from a `vmlinux`.

use std::{
    collections::HashMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use hodo_code::Origin;
use hodo_formats::recording::{KeptCode, KernelSymbol, Mapping, Recording, SidebandKind};
use hodo_symbols::{KernelEntry, Module, kallsyms, loaded_segments, symbol_address};

use crate::{files::Files, programs::find::FileSearchPaths};

/// The kernel's files as named by the user.
#[derive(Clone, Debug, Default)]
pub struct KernelFiles {
    /// A copy of `/proc/kallsyms`.
    pub kallsyms: Option<PathBuf>,
    /// A copy of `/proc/kcore`, as made by `perf record --kcore`.
    pub kcore: Option<PathBuf>,
    /// The kernel as linked.
    pub vmlinux: Option<PathBuf>,
}

/// The traced kernel's code and symbols.
#[derive(Debug, Default)]
pub(crate) struct Kernel<'f> {
    /// Code by run-time address.
    code: Vec<(u64, &'f [u8])>,
    /// Functions by run-time address.
    functions: Vec<KernelEntry<'f>>,
    /// The kernel as linked; its addresses must be shifted to those at run time.
    vmlinux: Option<&'f [u8]>,
    /// Problems with the files.
    problems: Vec<String>,
    /// Whether the recording contains the code that ran.
    is_kept: bool,
    /// Code that the kernel generated at run time: the offset in its module, by address and name.
    made: HashMap<(u64, &'f [u8]), u64>,
    /// Code of BPF programs by address; `None` for an address with several programs.
    bpf: HashMap<u64, Option<&'f [u8]>>,
}

/// The symbols whose run-time address is the file offset of the kernel's own mapping (perf, `machine.c`).
const REFERENCES: [&str; 2] = ["_stext", "_text"];

/// The shift of code that is known by its run-time addresses, as in kcore.
const UNSHIFTED: u64 = 0;

impl<'f> Kernel<'f> {
    /// Opens the files named by the user, or else those in the recording's folder or in perf's cache.
    pub(crate) fn open(
        files: &'f Files,
        named: &KernelFiles,
        places: &FileSearchPaths,
        recording: &Recording<'f>,
    ) -> Kernel<'f> {
        let mut kernel = Kernel::default();
        let Some(image) = mappings(recording).find(|mapping| is_image(mapping)) else { return kernel };
        let copies = copies(places, image.build_id);
        let copy = |name: &str| copies.iter().map(|folder| folder.join(name)).find(|path| path.exists());
        let kcore = named.kcore.clone().or_else(|| copy("kcore"));
        if let Some(bytes) = kcore.and_then(|path| kernel.read(files, &path)) {
            kernel.add_code(bytes, UNSHIFTED);
        }
        let cached = || places.cached(image.build_id, "kallsyms").filter(|path| path.exists());
        let list = named.kallsyms.clone().or_else(|| copy("kallsyms")).or_else(cached);
        let list = list.and_then(|path| kernel.read(files, &path));
        let own = recording.recorder.as_ref().map(|emulated| emulated.kallsyms);
        if let Some(bytes) = list.or(own.filter(|own| !own.is_empty())) {
            kernel.add_symbols(kallsyms(bytes).collect());
        }
        kernel.is_kept = kept(recording).next().is_some();
        let cached = || places.cached(image.build_id, "elf").filter(|path| path.exists());
        if let Some(path) = named.vmlinux.clone().or_else(cached) {
            kernel.vmlinux = kernel.read(files, &path);
            kernel.place_vmlinux(image);
        }
        kernel.add_generated(recording);
        kernel
    }

    /// Opens the kernel of a guest. No record contains its mapping, so this returns one too, with the addresses of
    /// kallsyms or else those that it was linked for.
    pub(crate) fn of_guest(files: &'f Files, named: &KernelFiles) -> (Kernel<'f>, Mapping<'static>) {
        let mut kernel = Kernel::default();
        if let Some(bytes) = named.kcore.as_ref().and_then(|path| kernel.read(files, path)) {
            kernel.add_code(bytes, UNSHIFTED);
        }
        if let Some(bytes) = named.kallsyms.as_ref().and_then(|path| kernel.read(files, path)) {
            kernel.add_symbols(kallsyms(bytes).collect());
        }
        kernel.vmlinux = named.vmlinux.as_ref().and_then(|path| kernel.read(files, path));
        let mut image = Mapping {
            address: 0,
            length: 0,
            file_offset: 0,
            name: b"[kernel.kallsyms]",
            build_id: &[],
            kernel: true,
        };
        let named = [("_text", &b"[kernel.kallsyms]_text"[..]), ("_stext", b"[kernel.kallsyms]_stext")];
        for (reference, name) in named {
            let linked = kernel.vmlinux.and_then(|vmlinux| symbol_address(vmlinux, reference));
            let Some(linked) = linked else { continue };
            let ran = kernel.functions.iter().find(|entry| entry.name == reference.as_bytes());
            (image.file_offset, image.name) = (ran.map_or(linked, |entry| entry.address), name);
            break;
        }
        kernel.place_vmlinux(&image);
        (kernel, image)
    }

    fn read(&mut self, files: &'f Files, path: &Path) -> Option<&'f [u8]> {
        let read = files.bytes(path);
        self.problems.extend(read.as_ref().err().map(|error| format!("{}: {error}", path.display())));
        read.ok()
    }

    /// Adds the code of a file whose addresses are `shift` below those at run time.
    fn add_code(&mut self, file: &'f [u8], shift: u64) {
        match loaded_segments(file) {
            Ok(segments) => self
                .code
                .extend(segments.into_iter().map(|(address, bytes)| (address.wrapping_add(shift), bytes))),
            Err(problem) => self.problems.push(problem),
        }
    }

    fn add_symbols(&mut self, mut entries: Vec<KernelEntry<'f>>) {
        if entries.iter().all(|entry| entry.address == 0) {
            self.problems.push("kallsyms has no addresses: copy it as root".to_owned());
            return;
        }
        let underscores = |name: &[u8]| name.iter().take_while(|&&byte| byte == b'_').count();
        // Of the names of an address the first counts: a visible, plain, short one.
        entries.sort_by_key(|entry| {
            (
                entry.address,
                entry.kind.is_ascii_lowercase(),
                underscores(entry.name),
                entry.name.len(),
                entry.name,
            )
        });
        self.functions = entries;
    }

    /// Computes from a symbol how far the kernel's run-time addresses are from those it was linked for.
    fn place_vmlinux(&mut self, image: &Mapping<'_>) {
        let Some(vmlinux) = self.vmlinux else { return };
        let name = String::from_utf8_lossy(image.name);
        let reference = REFERENCES.into_iter().find(|reference| name.ends_with(reference));
        let Some(linked) = reference.and_then(|reference| symbol_address(vmlinux, reference)) else {
            self.problems.push("vmlinux has no symbol that determines its run-time address".to_owned());
            self.vmlinux = None;
            return;
        };
        let shift = image.file_offset.wrapping_sub(linked);
        if self.code.is_empty() {
            self.add_code(vmlinux, shift);
            let doubt = "the kernel modifies its code at boot, so it differs from vmlinux in places";
            self.problems.push(doubt.to_owned());
        }
    }

    /// Adds the code that the kernel generated at run time.
    fn add_generated(&mut self, recording: &Recording<'f>) {
        let mut end = 0u64;
        for symbol in made(recording) {
            self.made.entry((symbol.address, symbol.name)).or_insert(end);
            end = end.saturating_add(symbol.length);
        }
        for &(address, code) in recording.bpf.iter().flat_map(|program| &program.functions) {
            let known = self.bpf.entry(address).or_insert(Some(code));
            *known = known.filter(|known| *known == code);
        }
    }

    /// Describes the problems with the files for the user.
    pub(crate) fn problem(&self) -> Option<String> {
        (!self.problems.is_empty()).then(|| self.problems.join("; "))
    }

    /// Returns whether the recording contains the code that ran.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns whether any code of a range is known.
    pub(crate) fn has_code(&self, range: Range<u64>) -> bool {
        self.code(range).next().is_some()
    }

    /// Returns the known bytes of a range, with their addresses.
    pub(crate) fn code(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &'f [u8])> {
        self.code.iter().filter_map(move |&(address, bytes)| {
            let end = address.saturating_add(bytes.len() as u64).min(range.end);
            let start = address.max(range.start);
            let within = (start < end).then(|| (start - address) as usize..(end - address) as usize)?;
            Some((start, &bytes[within]))
        })
    }

    /// Returns the functions of the image or of a module at these ranges, by run-time address.
    pub(crate) fn symbols(&self, name: &str, ranges: &[Range<u64>], image: &Mapping<'_>) -> Module {
        let within = |address: u64| ranges.iter().any(|range| range.contains(&address));
        if let (Some(vmlinux), true) = (self.vmlinux.filter(|_| is_image(image)), self.functions.is_empty()) {
            let linked = Module::parse(name, vmlinux, None);
            let reference =
                REFERENCES.into_iter().find(|reference| image.name.ends_with(reference.as_bytes()));
            let origin = reference.and_then(|reference| symbol_address(vmlinux, reference)).unwrap_or(0);
            let moved = |address: u64| address.wrapping_sub(origin).wrapping_add(image.file_offset);
            let functions = (0..linked.function_count()).map(|index| linked.function(index));
            let functions = functions.filter(|function| !function.is_nameless());
            let functions = functions.map(|function| {
                (moved(function.start())..moved(function.end()), function.raw_name().as_bytes())
            });
            let functions: Vec<_> = functions.filter(|(range, _)| within(range.start)).collect();
            return Module::of_functions(name, ranges, &functions);
        }
        // Two modules may have been at one address, one after the other.
        let of_another = |entry: &KernelEntry<'_>| {
            let own = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            own.is_some_and(|own| !entry.module.is_empty() && entry.module != own.as_bytes())
        };
        let here = self.functions.iter().filter(|entry| within(entry.address) && !of_another(entry));
        let functions: Vec<_> = here.map(|entry| (entry.address..entry.address, entry.name)).collect();
        Module::of_functions(name, ranges, &functions)
    }

    /// Returns the functions that the kernel generated at run time.
    pub(crate) fn symbols_made(&self, name: &str, recording: &Recording<'f>) -> Module {
        let mut functions = Vec::new();
        let mut end = 0u64;
        for symbol in made(recording) {
            let start = end;
            end = end.saturating_add(symbol.length);
            functions.push((start..end, symbol.name));
        }
        Module::of_functions(name, std::slice::from_ref(&(0..end)), &functions)
    }

    /// Returns whether the kernel generated code at run time.
    pub(crate) fn made_code(&self) -> bool {
        !self.made.is_empty()
    }

    /// Returns the origin of code that the kernel generated at run time, and its bytes if known.
    pub(crate) fn made_origin(&self, symbol: &KernelSymbol<'f>, module: u32) -> (Origin, Option<&'f [u8]>) {
        let offset = self.made.get(&(symbol.address, symbol.name)).copied().unwrap_or(0);
        let code = self.bpf.get(&symbol.address).copied().flatten().filter(|_| symbol.bpf);
        (Origin { module, offset }, code)
    }
}

/// Returns the kernel's code that the recording contains.
fn kept<'r, 'f>(recording: &'r Recording<'f>) -> impl Iterator<Item = &'r KeptCode<'f>> {
    let code = recording.recorder.iter().flat_map(|emulated| &emulated.code);
    code.filter(|code| code.pid == KeptCode::KERNEL)
}

/// Returns the symbols of code that the kernel generated at run time, in order of time.
fn made<'r, 'f>(recording: &'r Recording<'f>) -> impl Iterator<Item = &'r KernelSymbol<'f>> {
    recording.of_host().filter_map(|sideband| match &sideband.kind {
        SidebandKind::KernelSymbol(symbol) if !symbol.dropped => Some(symbol),
        _ => None,
    })
}

/// Returns the mappings of the kernel.
fn mappings<'r, 'f>(recording: &'r Recording<'f>) -> impl Iterator<Item = &'r Mapping<'f>> {
    recording.of_host().filter_map(|sideband| match &sideband.kind {
        SidebandKind::Map(mapping) if mapping.kernel => Some(mapping),
        _ => None,
    })
}

/// Returns whether a mapping is the kernel itself, not one of its modules.
pub(crate) fn is_image(mapping: &Mapping<'_>) -> bool {
    mapping.kernel && mapping.name.starts_with(b"[kernel.kallsyms]")
}

/// Returns the folders with copies of the kernel's files: in the recording's folder, and in perf's cache.
fn copies(places: &FileSearchPaths, build_id: &[u8]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = places.beside.iter().map(|folder| folder.join("kcore_dir")).collect();
    if let Some(cache) = places.build_ids.as_ref().filter(|_| !build_id.is_empty()) {
        let name: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let of_build = fs::read_dir(cache.join("[kernel.kcore]").join(name)).into_iter().flatten();
        let mut of_build: Vec<PathBuf> = of_build.filter_map(|entry| Some(entry.ok()?.path())).collect();
        // The folders are named by time, so the last is the newest.
        of_build.sort();
        folders.extend(of_build.pop());
    }
    folders
}

//! The files that code was mapped from, with their bytes and functions.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    sync::OnceLock,
};

use hodo_analyses::latency;
use hodo_code::{Content, Isa, Label, Labels, Origin};
use hodo_formats::recording::{
    GuestCode, KeptCode, KernelSymbol, Mapping, Recording, SidebandKind, Stream, StreamKind,
};
use hodo_model::{FunctionId, Names, Place, Root, function_name};
use hodo_symbols::{DebugSections, Lines, Rows, Symbols};

use crate::{
    files::Files,
    flow::info::Source,
    input::Options,
    programs::{
        find::DebugFiles,
        generated::{Generated, Load, is_jitdump},
        guests::GuestKernel,
        kernel::{Kernel, is_image},
    },
};

/// A file that code was mapped from, or a pseudo-file for code without a file.
#[derive(Debug)]
pub struct Module<'f> {
    /// Path in the traced system, or a name such as `[vdso]`.
    pub name: String,
    /// Build id from the recording; empty if there is none.
    pub build_id: Vec<u8>,
    /// The file's bytes; empty if unavailable.
    pub bytes: &'f [u8],
    /// Where its code comes from.
    pub source: Source,
    /// Why the bytes are unavailable, or the symbols unreadable.
    pub problem: Option<String>,
    /// The address ranges where it was mapped in any process.
    pub(crate) ranges: Vec<Range<u64>>,
    /// The files with its debug information.
    debug_files: DebugFiles<'f>,
    /// Its DWARF sections, read on first use.
    debug: OnceLock<Dwarf<'f>>,
    /// Its line tables, read on first use.
    rows: OnceLock<Rows>,
}

/// The DWARF sections of the file and of the shared file, or why they can't be read.
type Dwarf<'f> = Result<Option<(DebugSections<'f>, Option<DebugSections<'f>>)>, String>;

impl<'f> Module<'f> {
    pub(crate) fn new(name: &str, source: Source, problem: Option<String>) -> Module<'f> {
        Module {
            name: name.to_owned(),
            build_id: Vec::new(),
            bytes: &[],
            source,
            problem,
            ranges: Vec::new(),
            debug_files: DebugFiles::default(),
            debug: OnceLock::new(),
            rows: OnceLock::new(),
        }
    }
}

/// All modules of an experiment, by number; module 0 stands for code without a known mapping.
#[derive(Debug)]
pub struct Modules<'f> {
    pub(super) modules: Vec<Module<'f>>,
    pub(super) symbols: Symbols,
    index: HashMap<(String, Vec<u8>), u32>,
    /// The instruction set of code whose file does not say it, or that is in none.
    isa: Isa,
    /// The module of code contained in the recording.
    kept: u32,
    /// The module of code that the kernel generated at run time.
    made: u32,
    generated: Generated<'f>,
    kernel: Kernel<'f>,
    guests: Vec<GuestKernel<'f>>,
}

/// Returns the instruction set of a recording, as far as the units that wrote it say it.
fn isa_of(recording: &Recording<'_>) -> Isa {
    let of_stream = |stream: &Stream<'_>| match &stream.kind {
        StreamKind::Etm(config) => Some(if config.is_m_profile { Isa::T32 } else { Isa::A64 }),
        StreamKind::RiscV(settings) => Some(settings.isa()),
        StreamKind::IntelPt | StreamKind::Log(_) => None,
    };
    recording.streams.iter().find_map(of_stream).unwrap_or(Isa::X86_64)
}

/// Number of similar names that are returned.
const SHOWN: usize = 3;
/// Whether a function has a name.
type IsNamed = fn(&hodo_symbols::Function<'_>, &str) -> bool;
/// Name of the module of code contained in the recording.
const KEPT: &str = "[generated code]";
/// Name of the module of code that the kernel generated at run time.
const MADE: &str = "[kernel, generated code]";

impl<'f> Modules<'f> {
    /// Opens the files that a recording maps code from.
    pub(crate) fn open(files: &'f Files, recording: &Recording<'f>, options: &Options) -> Modules<'f> {
        let mut modules = Modules {
            modules: vec![Module::new("[unknown]", Source::Missing, None)],
            symbols: Symbols::default(),
            index: HashMap::new(),
            isa: isa_of(recording),
            kept: 0,
            made: 0,
            generated: Generated::default(),
            kernel: Kernel::open(files, &options.kernel, &options.places, recording),
            guests: Vec::new(),
        };
        let mut mapped: HashMap<_, Vec<Range<u64>>> = HashMap::new();
        for mapping in mappings(recording).map(|(_, mapping)| mapping) {
            let range = mapping.address..mapping.address.saturating_add(mapping.length);
            mapped.entry((mapping.name, mapping.build_id)).or_default().push(range);
        }
        let mut mapped: HashMap<_, _> =
            mapped.into_iter().map(|(key, ranges)| (key, joined(ranges))).collect();
        let image = mappings(recording).map(|(_, mapping)| mapping).find(|mapping| is_image(mapping));
        for (pid, mapping) in mappings(recording) {
            let Some(ranges) = mapped.remove(&(mapping.name, mapping.build_id)) else { continue };
            let (module, symbols) = match image.filter(|_| mapping.kernel) {
                Some(image) => modules.kernel_module(mapping, &ranges, image),
                None if is_jitdump(mapping.name) => modules.jitdump(files, options, mapping, pid),
                None => file_module(files, options, mapping),
            };
            let key = (String::from_utf8_lossy(mapping.name).into_owned(), mapping.build_id.to_vec());
            let build_id = mapping.build_id.to_vec();
            let index = modules.push(Module { ranges, build_id, ..module }, symbols);
            modules.index.insert(key, index);
        }
        modules.add_generated(files, options, recording);
        let first_module = modules.modules.len() as u32;
        for opened in GuestKernel::open(files, &options.guests, first_module) {
            modules.push(opened.module, opened.symbols);
            modules.guests.push(opened.kernel);
        }
        modules
    }

    /// Clears the problem of files of code without headers, which need none.
    pub(crate) fn accept_flat(&mut self, recording: &Recording<'f>) {
        let names: BTreeSet<&str> = recording.flat_files.iter().map(String::as_str).collect();
        for module in &mut self.modules {
            if names.contains(&*module.name) && !is_elf(module.bytes) && !module.bytes.is_empty() {
                module.problem = None;
            }
        }
    }

    /// Returns the kernels of guests, those with a pid first.
    pub(crate) fn guest_kernels(&self) -> &[GuestKernel<'f>] {
        &self.guests
    }

    fn push(&mut self, module: Module<'f>, symbols: hodo_symbols::Module) -> u32 {
        self.modules.push(module);
        self.symbols.add(symbols)
    }

    /// Opens the kernel or one of its modules.
    fn kernel_module(
        &self,
        mapping: &Mapping<'_>,
        ranges: &[Range<u64>],
        image: &Mapping<'_>,
    ) -> (Module<'f>, hodo_symbols::Module) {
        let name = String::from_utf8_lossy(mapping.name);
        // perf appends the name of the symbol that locates the kernel.
        let name = if is_image(mapping) { "[kernel.kallsyms]" } else { &*name };
        let known = ranges.iter().any(|range| self.kernel.has_code(range.clone())) || self.kernel.is_kept();
        let source = match known {
            _ if self.kernel.is_kept() => Source::Recording,
            true => Source::File,
            false => Source::Missing,
        };
        let problem = match (known, self.kernel.problem().filter(|_| is_image(mapping))) {
            (_, Some(problem)) => Some(problem),
            (true, None) => None,
            (false, None) if is_image(mapping) => {
                Some("record with perf record --kcore, or name a copy with --kcore or --vmlinux".to_owned())
            }
            (false, None) => {
                Some("a module's file does not contain its run-time address; a copy of kcore does".to_owned())
            }
        };
        (Module::new(name, source, problem), self.kernel.symbols(name, ranges, image))
    }

    fn jitdump(
        &mut self,
        files: &'f Files,
        options: &Options,
        mapping: &Mapping<'_>,
        pid: u32,
    ) -> (Module<'f>, hodo_symbols::Module) {
        let name = String::from_utf8_lossy(mapping.name);
        match options.places.written(files, &name) {
            Ok((_, bytes)) => {
                let index = self.modules.len() as u32;
                let (symbols, problem) = self.generated.read_dump(&name, bytes, pid, index);
                (Module::new(&name, Source::File, problem), symbols)
            }
            Err(problem) => {
                let symbols = hodo_symbols::Module::without_file(&name, &[]);
                (Module::new(&name, Source::Missing, Some(problem)), symbols)
            }
        }
    }

    /// Adds modules without a mapping: code contained in the recording, lists of names for it, and code that the kernel
    /// generated.
    fn add_generated(&mut self, files: &'f Files, options: &Options, recording: &Recording<'f>) {
        let kept = || {
            let code = recording.recorder.iter().flat_map(|emulated| &emulated.code);
            code.filter(|code| code.pid != KeptCode::KERNEL)
        };
        let processes: BTreeSet<u32> =
            kept().filter(|code| code.guest.is_none()).map(|code| code.pid).collect();
        for pid in processes {
            // A jitdump has the same names, with times.
            if self.generated.has(pid) {
                continue;
            }
            let name = format!("/tmp/perf-{pid}.map");
            let Ok((_, bytes)) = options.places.written(files, &name) else { continue };
            let index = self.modules.len() as u32;
            let (symbols, problem) = self.generated.read_map(&name, bytes, pid, index);
            self.push(Module::new(&name, Source::Names, problem), symbols);
        }
        let end = |code: &KeptCode<'_>| code.address.saturating_add(code.bytes.len() as u64);
        let ranges = joined(kept().map(|code| code.address..end(code)).collect());
        if !ranges.is_empty() {
            let symbols = hodo_symbols::Module::without_file(KEPT, &ranges);
            self.kept = self.push(Module::new(KEPT, Source::Recording, None), symbols);
        }
        if self.kernel.made_code() {
            let symbols = self.kernel.symbols_made(MADE, recording);
            self.made = self.push(Module::new(MADE, Source::Recording, None), symbols);
        }
    }

    /// Returns all modules by index.
    pub fn list(&self) -> &[Module<'f>] {
        &self.modules
    }

    /// Returns the module of a mapping.
    pub(crate) fn of(&self, mapping: &Mapping<'_>) -> u32 {
        let key = (String::from_utf8_lossy(mapping.name).into_owned(), mapping.build_id.to_vec());
        self.index.get(&key).copied().unwrap_or(0)
    }

    /// Returns the origin of code that the recording contains, at an address and at a time on the clock of run-time
    /// compilers' files, and the number of bytes from there with that origin.
    pub(crate) fn of_kept(&self, pid: u32, address: u64, time: u64) -> (Origin, u64) {
        let (origin, end) = self.generated.at(pid, address, time);
        let kept = Origin { module: self.kept, offset: address };
        (origin.unwrap_or(kept), end.saturating_sub(address).max(1))
    }

    /// Returns the module of code that the recording contains and no file names.
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    /// Returns whether a file of a run-time compiler describes a process.
    pub(crate) fn knows(&self, pid: u32) -> bool {
        self.generated.has(pid)
    }

    /// Returns the code in the files of run-time compilers, in their order.
    pub(crate) fn loads(&self) -> &[Load<'f>] {
        self.generated.loads()
    }

    /// Returns the code that a run-time compiler's file has of a function, from this offset in its module on.
    pub(crate) fn compiled_code(&self, origin: Origin) -> Option<&'f [u8]> {
        self.generated.code(origin)
    }

    /// Returns the code of a kernel mapping, with its addresses.
    pub(crate) fn kernel_code(&self, range: Range<u64>, module: u32) -> Vec<(u64, Content<'f>)> {
        let content =
            |(address, bytes)| (address, Content { bytes, origin: Origin { module, offset: address } });
        self.kernel.code(range).map(content).collect()
    }

    /// Returns the origin of code that the kernel generated, and its bytes if known.
    pub(crate) fn made_by_kernel(&self, symbol: &KernelSymbol<'f>) -> (Origin, Option<&'f [u8]>) {
        self.kernel.made_origin(symbol, self.made)
    }

    /// Returns the mapped range of a module that contains an address.
    pub(crate) fn range_around(&self, module: u32, address: u64) -> Option<Range<u64>> {
        let module = self.modules.get(module as usize)?;
        module.ranges.iter().find(|range| range.contains(&address)).cloned()
    }

    /// Returns the address of the code at `origin` in its module's symbol table.
    pub fn address(&self, origin: Origin) -> u64 {
        let module = self.symbols.modules().get(origin.module as usize);
        module.and_then(|module| module.address(origin.offset)).unwrap_or(origin.offset)
    }

    /// Returns the function of the code at `origin`, and the offset from the function's start.
    pub fn function(&self, origin: Origin) -> (FunctionId, u64) {
        let address = self.address(origin);
        let id = self.symbols.function_at(origin.module, address);
        (id, address.wrapping_sub(self.symbols.function(id).start()))
    }

    /// Returns the instruction set of a module.
    pub fn isa(&self, module: u32) -> Isa {
        self.symbols.modules().get(module as usize).and_then(hodo_symbols::Module::isa).unwrap_or(self.isa)
    }

    /// Returns the address of a function in its module's symbol table.
    pub fn start(&self, function: FunctionId) -> u64 {
        self.symbols.function(function).start()
    }

    /// Returns the address after a function in its module's symbol table.
    pub fn end(&self, function: FunctionId) -> u64 {
        self.symbols.function(function).end()
    }

    /// Returns the functions with a name. The name may be demangled or as in the file, or an address such as `0x1234`,
    /// and may end in `@` and the name of the module's file. If there is none, returns those for which the name is short.
    pub fn functions_named(&self, name: &str) -> Vec<FunctionId> {
        let is_short: IsNamed = |function, name| function_name::is_short(name, &function.name());
        for matches in [is_named, is_short] {
            let in_any_file = None;
            let mut found = self.named(name, in_any_file, matches);
            if let Some((name, file)) = name.rsplit_once('@').filter(|_| found.is_empty()) {
                found = self.named(name, Some(file), matches);
            }
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    fn named(&self, name: &str, file: Option<&str>, matches: IsNamed) -> Vec<FunctionId> {
        let functions = self.all_functions(file).filter(|(_, function)| matches(function, name));
        functions.map(|(id, _)| id).collect()
    }

    /// Returns the roots of call paths that a root of the user stands for: itself, or those for whose functions its name is
    /// short. If there is none, returns the most similar names.
    pub fn find_roots(&self, root: &Root) -> Result<BTreeSet<Root>, Vec<String>> {
        if self.functions_of_root(root).next().is_some() {
            return Ok(BTreeSet::from([root.clone()]));
        }
        match root {
            Root::Function(name) => {
                let file = name.rsplit_once('@').map_or(String::new(), |(_, file)| format!("@{file}"));
                let full = |function: FunctionId| {
                    let (name, module) = self.names(function);
                    let of_file = file.strip_prefix('@') == Some(&*module);
                    Root::Function(if of_file { name + &file } else { name })
                };
                let roots: BTreeSet<Root> = self.functions_named(name).into_iter().map(full).collect();
                if roots.is_empty() { Err(self.functions_near(name)) } else { Ok(roots) }
            }
            Root::SystemCall(name) => {
                let names = self.all_functions(None).map(|(_, function)| function.name().into_owned());
                let calls = names.filter_map(|name| Root::system_call(&name).map(str::to_owned));
                Err(latency::nearest_of(name, calls, SHOWN))
            }
        }
    }

    /// Returns the functions of a root, in order. Those of system calls are in the kernel's half of the addresses: names
    /// such as `sys_read` may mean anything elsewhere.
    pub fn functions_of_root(&self, root: &Root) -> impl Iterator<Item = FunctionId> {
        const KERNEL: u64 = 1 << 63;
        let from = if matches!(root, Root::SystemCall(_)) { KERNEL } else { 0 };
        self.symbols.modules().iter().zip(0..).flat_map(move |(module, module_index)| {
            let file = base_name(module.name());
            let is_root = move |&index: &u32| {
                let function = module.function(index);
                function.start() >= from && root.is(&function.name(), file)
            };
            let functions = (1..module.function_count()).filter(is_root);
            functions.map(move |index| FunctionId { module: module_index, index })
        })
    }

    /// Returns the functions whose name, demangled or as in the file, matches a pattern in which `*` matches any text.
    /// The pattern may end in `@` and the name of the module's file.
    pub fn functions_like(&self, pattern: &str) -> Vec<FunctionId> {
        let (names, file) =
            pattern.rsplit_once('@').map_or((pattern, None), |(names, file)| (names, Some(file)));
        let is_like = |function: &hodo_symbols::Function<'_>| {
            latency::is_like(&function.name(), names) || latency::is_like(function.raw_name(), names)
        };
        self.all_functions(file).filter(|(_, function)| is_like(function)).map(|(id, _)| id).collect()
    }

    /// Returns the name of each function, and the name of its module.
    pub fn function_names(&self) -> impl Iterator<Item = (String, String)> {
        self.all_functions(None).map(|(id, _)| self.names(id))
    }

    /// Returns the names of the functions that are most similar to `name`.
    pub fn functions_near(&self, name: &str) -> Vec<String> {
        let names = self.all_functions(None).map(|(_, function)| function.name().into_owned());
        latency::nearest_of(name, names, SHOWN)
    }

    /// Returns all functions; if `file` is given, only those of modules with this file name.
    pub(crate) fn all_functions(
        &self,
        file: Option<&str>,
    ) -> impl Iterator<Item = (FunctionId, hodo_symbols::Function<'_>)> {
        let modules = self.symbols.modules().iter().zip(0..);
        let in_file = move |module: &str| file.is_none_or(|file| base_name(module) == file);
        modules.filter(move |(module, _)| in_file(module.name())).flat_map(|(module, module_index)| {
            let id = move |index| FunctionId { module: module_index, index };
            (1..module.function_count()).map(move |index| (id(index), module.function(index)))
        })
    }

    /// Returns the module and file offset of each place where code of a source line begins. `file` is the end of the
    /// source file's path.
    pub fn code_of_line(&self, file: &str, line: u32) -> Vec<(u32, u64)> {
        let modules = self.symbols.modules().iter().zip(0..);
        let places = modules.flat_map(|(module, index)| {
            let addresses = self.rows(index).map_or_else(Vec::new, |rows| rows.addresses_of_line(file, line));
            let offsets = addresses.into_iter().filter_map(|address| module.offset(address));
            offsets.map(|offset| (index, offset)).collect::<Vec<_>>()
        });
        places.collect()
    }

    /// Whether all code of a function has the same source line, or none.
    pub fn is_one_line(&self, function: FunctionId) -> bool {
        let range = self.start(function)..self.end(function);
        self.rows(function.module).is_none_or(|rows| rows.is_one_line(range))
    }

    /// The line table of a module.
    pub(super) fn rows(&self, module: u32) -> Option<&Rows> {
        Some(self.modules.get(module as usize)?.rows.get_or_init(|| {
            let sections = self.sections(module).as_ref().ok().and_then(Option::as_ref);
            sections.map(|(sections, _)| Rows::read(sections)).unwrap_or_default()
        }))
    }

    /// Returns the range of a function in its module.
    pub(crate) fn extent(&self, origin: Origin) -> Range<u64> {
        let module = self.symbols.modules().get(origin.module as usize);
        let function = module.map(|module| module.function(module.function_at(origin.offset)));
        function.map_or(0..0, |function| function.start()..function.end())
    }

    /// Returns the number of a module's functions with a name.
    pub(crate) fn named_functions(&self, module: u32) -> u64 {
        self.symbols.modules().get(module as usize).map_or(0, |module| {
            let functions = (0..module.function_count()).map(|index| module.function(index));
            functions.filter(|function| !function.raw_name().is_empty()).count() as u64
        })
    }

    /// Returns the inlined frames and source lines of a module, if its file has DWARF for them. Each call takes some
    /// milliseconds.
    pub fn lines(&self, module: u32) -> Option<Lines<'_>> {
        self.debug(module).ok().flatten()
    }

    /// Returns [`lines`](Modules::lines), or why the DWARF can't be read.
    pub(crate) fn debug(&self, module: u32) -> Result<Option<Lines<'_>>, String> {
        match self.sections(module) {
            Ok(Some((sections, shared))) => Lines::new(sections, shared.as_ref()).map(Some),
            Ok(None) => Ok(None),
            Err(problem) => Err(problem.clone()),
        }
    }

    fn sections(&self, module: u32) -> &Dwarf<'f> {
        match self.modules.get(module as usize) {
            Some(module) => module.debug.get_or_init(|| read_debug(module)),
            None => &Ok(None),
        }
    }
}

fn read_debug<'f>(module: &Module<'f>) -> Dwarf<'f> {
    let own = if is_elf(module.bytes) { DebugSections::read(module.bytes)? } else { None };
    let DebugFiles { separate, shared } = module.debug_files;
    let separate = || if separate.is_empty() { Ok(None) } else { DebugSections::read(separate) };
    let Some(sections) = own.map_or_else(separate, |own| Ok(Some(own)))? else { return Ok(None) };
    let shared = if shared.is_empty() { None } else { DebugSections::read(shared)? };
    Ok(Some((sections, shared)))
}

fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

pub(super) fn base_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, file)| file)
}

/// Returns whether `name` is an address or a name of the function: that in the file, or the demangled one with or
/// without parameters.
fn is_named(function: &hodo_symbols::Function<'_>, name: &str) -> bool {
    let address = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    if function.raw_name() == name || address == Some(function.start()) {
        return true;
    }
    function_name::is_name(name, &function.name())
}

/// Opens a file that code was mapped from.
fn file_module<'f>(
    files: &'f Files,
    options: &Options,
    mapping: &Mapping<'_>,
) -> (Module<'f>, hodo_symbols::Module) {
    let name = String::from_utf8_lossy(mapping.name);
    let found = options.places.find(files, mapping);
    let debug = Some(found.debug.separate).filter(|bytes| !bytes.is_empty());
    let symbols = hodo_symbols::Module::parse(&name, found.bytes, debug);
    let source = if found.bytes.is_empty() { Source::Missing } else { Source::File };
    let unreadable = || symbols.problem().filter(|_| source == Source::File).map(str::to_owned);
    let problem = found.problem.or_else(unreadable);
    let module =
        Module { bytes: found.bytes, debug_files: found.debug, ..Module::new(&name, source, problem) };
    (module, symbols)
}

/// Returns all mappings of the recorded machine with their processes, and those of guests if all of these are known.
fn mappings<'r, 'f>(recording: &'r Recording<'f>) -> impl Iterator<Item = (u32, &'r Mapping<'f>)> {
    let of_guests = recording.guest_code == GuestCode::Mapped;
    let of_guests = recording.sideband.iter().filter(move |sideband| of_guests && sideband.guest.is_some());
    recording.of_host().chain(of_guests).filter_map(|sideband| match &sideband.kind {
        SidebandKind::Map(mapping) => Some((sideband.thread.pid, mapping)),
        _ => None,
    })
}

/// Merges ranges to ascending, disjoint ones.
pub(crate) fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, before| {
        let touches = next.start <= before.end;
        if touches {
            before.end = before.end.max(next.end);
        }
        touches
    });
    ranges
}

impl Labels for Modules<'_> {
    fn label(&self, origin: Origin) -> (Label, u64) {
        let Origin { module: index, offset } = origin;
        let Some(module) = self.symbols.modules().get(index as usize) else {
            let FunctionId { module, index } = Symbols::UNKNOWN;
            return (Label { module, function: index, place: Place::Unknown }, u64::MAX);
        };
        let address = module.address(offset);
        let (address, is_in_file) = (address.unwrap_or(offset), address.is_some());
        let (function, range) = module.owner_range(address);
        let found = module.function(function);
        let place = match address == found.start() {
            _ if !is_in_file && found.is_nameless() => Place::Unknown,
            true => Place::Entry,
            false => Place::Middle,
        };
        (Label { module: index, function, place }, range.end - address)
    }

    fn is_file(&self, module: u32, name: &str) -> bool {
        self.modules.get(module as usize).is_some_and(|module| module.name == name)
    }
}

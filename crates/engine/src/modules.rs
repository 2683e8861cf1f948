//! The files that code was mapped from, their bytes and their functions.

use std::{collections::HashMap, ops::Range, path::Path, sync::OnceLock};

use hodo_code::{Label, Labels, Origin};
use hodo_formats::recording::{Mapping, Recording, SidebandKind};
use hodo_symbols::{DebugSections, Lines, Rows, Symbols};
use hodo_trace::{FunctionId, Names, SourceLine, Sources};

use crate::Files;

/// A file that code was mapped from, or what stands for code that no file holds.
#[derive(Debug)]
pub struct Module<'f> {
    /// The path as the traced system named it, or a name such as `[vdso]`.
    pub name: String,
    /// The build id that the recording has of it; empty where it has none.
    pub build_id: Vec<u8>,
    /// The file's bytes; empty where they are not available.
    pub bytes: &'f [u8],
    /// Why the bytes are not available, or their symbols can't be read.
    pub problem: Option<String>,
    /// What DWARF says of it, once somebody asked.
    debug: OnceLock<Option<DebugSections<'f>>>,
    /// Its line tables, likewise.
    rows: OnceLock<Rows>,
}

impl<'f> Module<'f> {
    fn new(name: String, build_id: Vec<u8>, bytes: &'f [u8], problem: Option<String>) -> Module<'f> {
        Module { name, build_id, bytes, problem, debug: OnceLock::new(), rows: OnceLock::new() }
    }
}

/// All modules of an experiment. Module 0 stands for code of which not even a mapping is known.
#[derive(Debug)]
pub struct Modules<'f> {
    modules: Vec<Module<'f>>,
    symbols: Symbols,
    index: HashMap<(String, Vec<u8>), u32>,
    /// The module of code that the recording itself keeps.
    kept: u32,
}

/// Name of the module of code that the recording itself keeps.
const KEPT: &str = "[generated code]";

impl<'f> Modules<'f> {
    /// Opens the files that a recording maps code from, below `symfs` where it is given.
    pub(crate) fn open(files: &'f Files, recording: &Recording<'_>, symfs: Option<&Path>) -> Modules<'f> {
        let unknown = Module::new("[unknown]".to_owned(), Vec::new(), &[], None);
        let mut modules =
            Modules { modules: vec![unknown], symbols: Symbols::default(), index: HashMap::new(), kept: 0 };
        for sideband in recording.of_host() {
            if let SidebandKind::Map(mapping) = &sideband.kind {
                modules.open_module(files, mapping, symfs);
            }
        }
        let kept = recording.emulated.iter().flat_map(|emulated| &emulated.code);
        let mut ranges: Vec<Range<u64>> =
            kept.map(|code| code.address..code.address.saturating_add(code.bytes.len() as u64)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, before| {
            let joined = next.start <= before.end;
            before.end = if joined { before.end.max(next.end) } else { before.end };
            joined
        });
        if !ranges.is_empty() {
            let kept = Module::new(KEPT.to_owned(), Vec::new(), &[], None);
            modules.modules.push(kept);
            modules.kept = modules.symbols.add(hodo_symbols::Module::without_file(KEPT, &ranges));
        }
        modules
    }

    fn open_module(&mut self, files: &'f Files, mapping: &Mapping<'_>, symfs: Option<&Path>) {
        let name = String::from_utf8_lossy(mapping.name).into_owned();
        let key = (name, mapping.build_id.to_vec());
        if self.index.contains_key(&key) {
            return;
        }
        let name = key.0.clone();
        let (bytes, problem) = match read(files, &name, symfs) {
            Ok(bytes) => (bytes, None),
            Err(problem) => (&[][..], Some(problem)),
        };
        let symbols = hodo_symbols::Module::parse(&name, bytes, None);
        let other_build = !mapping.build_id.is_empty()
            && !symbols.build_id().is_empty()
            && !mapping.build_id.starts_with(symbols.build_id())
            && !symbols.build_id().starts_with(mapping.build_id);
        let build_id = mapping.build_id.to_vec();
        let module = if other_build {
            self.symbols.add(hodo_symbols::Module::without_file(&name, &[]));
            let problem = "the file is not the one that ran: its build id differs".to_owned();
            Module::new(name, build_id, &[], Some(problem))
        } else {
            let unreadable = symbols.problem().filter(|_| problem.is_none()).map(str::to_owned);
            self.symbols.add(symbols);
            Module::new(name, build_id, bytes, problem.or(unreadable))
        };
        self.index.insert(key, self.modules.len() as u32);
        self.modules.push(module);
    }

    /// All modules, in the order of their indexes.
    pub fn list(&self) -> &[Module<'f>] {
        &self.modules
    }

    /// The module that a mapping is of.
    pub(crate) fn of(&self, mapping: &Mapping<'_>) -> u32 {
        let key = (String::from_utf8_lossy(mapping.name).into_owned(), mapping.build_id.to_vec());
        self.index.get(&key).copied().unwrap_or(0)
    }

    /// The module of code that the recording itself keeps.
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    /// The address that a symbol table knows the code at `origin` by.
    pub fn address(&self, origin: Origin) -> u64 {
        let module = self.symbols.modules().get(origin.module as usize);
        module.and_then(|module| module.address(origin.offset)).unwrap_or(origin.offset)
    }

    /// The function of the code at `origin`, and how far behind the function's start that is.
    pub fn function(&self, origin: Origin) -> (FunctionId, u64) {
        let address = self.address(origin);
        let id = self.symbols.function_at(origin.module, address);
        (id, address.wrapping_sub(self.symbols.function(id).start()))
    }

    /// The address of a function, as its module's symbols know it.
    pub fn start(&self, function: FunctionId) -> u64 {
        self.symbols.function(function).start()
    }

    /// The address after a function, likewise.
    pub(crate) fn end(&self, function: FunctionId) -> u64 {
        self.symbols.function(function).end()
    }

    /// The functions with a name, which may be demangled or as the file has it, or an address such as
    /// `0x1234`; and may end in `@` and the name of the module's file.
    pub fn functions_named(&self, name: &str) -> Vec<FunctionId> {
        let found = self.named(name, None);
        match name.rsplit_once('@') {
            Some((name, module)) if found.is_empty() => self.named(name, Some(module)),
            _ => found,
        }
    }

    fn named(&self, name: &str, file: Option<&str>) -> Vec<FunctionId> {
        let in_file = |module: &str| file.is_none_or(|file| base_name(module) == file);
        let modules = self.symbols.modules().iter().zip(0..);
        let modules = modules.filter(|(module, _)| in_file(module.name()));
        let functions = modules.flat_map(|(module, index)| {
            let functions = (1..module.function_count()).map(|at| (at, module.function(at)));
            let named = functions.filter(|(_, function)| is_named(function, name));
            named.map(move |(at, _)| FunctionId { module: index, index: at }).collect::<Vec<_>>()
        });
        functions.collect()
    }

    /// How many functions of a module have a name.
    pub(crate) fn named_functions(&self, module: u32) -> u64 {
        self.symbols.modules().get(module as usize).map_or(0, |module| {
            let functions = (0..module.function_count()).map(|index| module.function(index));
            functions.filter(|function| !function.raw_name().is_empty()).count() as u64
        })
    }

    /// Inlined frames and source lines of a module, where its file has DWARF for them. Costs some
    /// milliseconds each time.
    pub fn lines(&self, module: u32) -> Option<Lines<'_>> {
        Lines::new(self.debug(module)?, None).ok()
    }

    fn debug(&self, module: u32) -> Option<&DebugSections<'f>> {
        let module = self.modules.get(module as usize)?;
        module.debug.get_or_init(|| DebugSections::read(module.bytes).ok().flatten()).as_ref()
    }
}

/// Whether a mapping's name is that of a file; anonymous memory and what the kernel provides have names
/// such as `//anon` and `[vdso]`.
pub(crate) fn is_file(name: &str) -> bool {
    !name.starts_with("//") && !name.starts_with('[') && !name.is_empty()
}

fn base_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, file)| file)
}

/// Whether people may call a function so: by its name in the file, or its demangled name with or without
/// parameters.
fn is_named(function: &hodo_symbols::Function<'_>, name: &str) -> bool {
    let address = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    if function.raw_name() == name || address == Some(function.start()) {
        return true;
    }
    let demangled = function.name();
    demangled == name || demangled.strip_prefix(name).is_some_and(|rest| rest.starts_with('('))
}

fn read<'f>(files: &'f Files, name: &str, symfs: Option<&Path>) -> Result<&'f [u8], String> {
    if !is_file(name) {
        return Err("no file holds it".to_owned());
    }
    let path = match symfs {
        Some(root) => root.join(name.trim_start_matches('/')),
        None => Path::new(name).to_owned(),
    };
    files.bytes(&path).map_err(|error| format!("{}: {error}", path.display()))
}

impl Labels for Modules<'_> {
    fn label(&self, origin: Origin) -> (Label, u64) {
        let (id, behind) = self.function(origin);
        let known = self.symbols.modules().get(id.module as usize).is_some_and(|module| {
            !module.function(id.index).raw_name().is_empty() || module.address(origin.offset).is_some()
        });
        let label = Label { module: id.module, function: id.index, at_entry: known.then_some(behind == 0) };
        (label, 1)
    }

    fn is_file(&self, module: u32, name: &str) -> bool {
        self.modules.get(module as usize).is_some_and(|module| module.name == name)
    }
}

impl Names for Modules<'_> {
    fn names(&self, function: FunctionId) -> (String, String) {
        let found = self.symbols.function(function);
        let module = self.modules.get(function.module as usize).map_or("[unknown]", |module| &module.name);
        (found.name().into_owned(), base_name(module).to_owned())
    }
}

impl Sources for Modules<'_> {
    fn address(&self, module: u32, offset: u64) -> u64 {
        Modules::address(self, Origin { module, offset })
    }

    fn line(&self, module: u32, address: u64) -> Option<SourceLine<'_>> {
        let found = self.modules.get(module as usize)?;
        let rows = found.rows.get_or_init(|| self.debug(module).map(Rows::read).unwrap_or_default());
        let (file, line, begins) = rows.at(address)?;
        (line > 0).then_some(SourceLine { file, line, begins })
    }

    fn inlined(&self, module: u32, addresses: &[u64]) -> Vec<Option<String>> {
        let Some(lines) = self.lines(module) else { return vec![None; addresses.len()] };
        let innermost = |&address: &u64| lines.frames_at(address).into_iter().next()?.function;
        addresses.iter().map(innermost).collect()
    }
}

//! The functions of a file, or of code that is in no file.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;

use hodo_code::Isa;

use crate::demangle;
use crate::elf::{Image, LoadSegment, Symbol};
use crate::names::Names;
use crate::plt::{PltEntry, Target};
use crate::table::{Extent, Table};

/// The functions of one file (or of code that is in no file). They cover the whole address space.
///
/// Function 0 is the rest of the module: all addresses that are not executable as far as known. The others follow in
/// order of address. Indices depend only on the bytes.
#[derive(Debug)]
pub struct Module {
    name: String,
    build_id: Vec<u8>,
    segments: Vec<LoadSegment>,
    table: Table,
    names: Names,
    isa: Option<Isa>,
    problem: Option<String>,
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    module: &'a Module,
    extent: Extent,
    is_rest: bool,
}

impl Module {
    /// Reads the functions of an ELF file, and of its separate debug file if there is one.
    ///
    /// `name` is the file's path in the traced system. If the bytes are no ELF file, function 0 of the module covers
    /// everything; of a damaged file, the module has what is readable.
    ///
    /// Of several symbols at one address, the first of these rules that distinguishes them selects the name: it has a
    /// size; it is a function rather than a label; it is visible outside its file; it has fewer leading underscores;
    /// it is not weak; it is shorter; it is first alphabetically.
    pub fn parse(name: &str, bytes: &[u8], debug: Option<&[u8]>) -> Module {
        let mut image = Image::read(bytes);
        let debug_image = debug.map(Image::read).unwrap_or_default();
        if debug.is_some() && debug_image.build_id != image.build_id {
            image.problem.get_or_insert("the separate debug file has another build id".to_owned());
        } else {
            image.symbols.extend(debug_image.symbols);
        }
        let Image { segments, sections, symbols, plt, mut unwind, build_id, isa, problem } = image;
        let mut names = Names::new(bytes.len() + debug.map_or(0, <[u8]>::len));
        let named = named_functions(symbols, plt, &mut names);
        unwind.sort_unstable_by_key(|e| (e.start, e.end));
        let is_padding = |range: Range<u64>| is_padding(&segments, bytes, range);
        let table = Table::new(&executable_areas(&segments, sections), named, &unwind, is_padding);
        let build_id = build_id.to_vec();
        Module { name: name.to_owned(), build_id, segments, table, names: names.finish(), isa, problem }
    }

    /// Creates a module for code in no file, such as `[jit]`, with one function per range. `ranges` must be ascending
    /// and disjoint, in addresses of the process.
    pub fn without_file(name: &str, ranges: &[Range<u64>]) -> Module {
        Module {
            name: name.to_owned(),
            build_id: Vec::new(),
            segments: Vec::new(),
            table: Table::new(ranges, Vec::new(), &[], |_| false),
            names: Names::default(),
            isa: None,
            problem: None,
        }
    }

    /// Creates a module from a list of functions, such as code in no file. `areas` are the code ranges, ascending and
    /// disjoint; `functions` are address ranges and names. A function of size zero extends to the next one; of
    /// several at one address, the first counts.
    pub fn of_functions(name: &str, areas: &[Range<u64>], functions: &[(Range<u64>, &[u8])]) -> Module {
        let mut names = Names::new(functions.iter().map(|(_, name)| 3 * name.len()).sum());
        let mut named: Vec<Extent> = functions
            .iter()
            .map(|(range, name)| Extent { start: range.start, end: range.end, name: names.push([name, b""]) })
            .collect();
        named.retain(|function| !function.name.is_empty());
        named.sort_by_key(|function| function.start);
        named.dedup_by_key(|function| function.start);
        let table = Table::new(areas, named, &[], |_| false);
        Module { table, names: names.finish(), ..Module::without_file(name, &[]) }
    }

    /// The name passed at creation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The GNU build id; empty if the file has none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// The instruction set of its functions, as far as there is a file that says its machine.
    pub fn isa(&self) -> Option<Isa> {
        self.isa
    }

    /// Returns a message about the unreadable parts of the file, if there are any.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The index of the function at an address.
    pub fn function_at(&self, address: u64) -> u32 {
        self.table.owner(address)
    }

    /// The index of the function at an address, and the contiguous range around the address that belongs to it.
    pub fn owner_range(&self, address: u64) -> (u32, Range<u64>) {
        self.table.owner_range(address)
    }

    /// The function with this index; function 0 for an index out of range.
    pub fn function(&self, index: u32) -> Function<'_> {
        let functions = self.table.functions();
        let index = if (index as usize) < functions.len() { index as usize } else { 0 };
        let extent = functions[index];
        Function { module: self, extent, is_rest: index == 0 }
    }

    /// The number of functions, including function 0.
    pub fn function_count(&self) -> u32 {
        self.table.functions().len() as u32
    }

    /// Converts a file offset to an address before relocation.
    ///
    /// Mappings begin at page boundaries, so offsets in partly used pages belong to the segment too. Executable
    /// segments take precedence. `None` if no segment contains the offset.
    pub fn address(&self, file_offset: u64) -> Option<u64> {
        const PAGE: u64 = 4096;
        let holds = |s: &&LoadSegment| {
            let end = s.file_offset.saturating_add(s.file_size);
            let pages = s.file_offset & !(PAGE - 1)..end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
            pages.contains(&file_offset)
        };
        let executable = self.segments.iter().filter(|s| s.executable).find(holds);
        let segment = executable.or_else(|| self.segments.iter().find(holds))?;
        Some(segment.address.wrapping_add(file_offset).wrapping_sub(segment.file_offset))
    }

    /// Returns the file offset of the code at an address; `None` if no executable segment contains it.
    pub fn offset(&self, address: u64) -> Option<u64> {
        let holds = |s: &&LoadSegment| {
            s.executable && (s.address..s.address.saturating_add(s.file_size)).contains(&address)
        };
        let segment = self.segments.iter().find(holds)?;
        Some(address - segment.address + segment.file_offset)
    }
}

impl<'a> Function<'a> {
    /// The name for people: demangled, or `module+0xADDRESS` for a function without a name. For function 0 it is the
    /// module's file name.
    pub fn name(&self) -> Cow<'a, str> {
        let module = self.module();
        let file_name = module.rsplit_once('/').map_or(module, |(_, name)| name);
        match (self.is_rest, self.raw_name()) {
            (true, _) => Cow::Borrowed(file_name),
            (false, "") => Cow::Owned(format!("{file_name}+{:#x}", self.extent.start)),
            (false, name) => demangle(name),
        }
    }

    /// The name in the file, mangled and without version; `foo@plt` for an entry of the procedure linkage table;
    /// empty for a function without a name.
    pub fn raw_name(&self) -> &'a str {
        self.module.names.get(self.extent.name)
    }

    /// The module's name.
    pub fn module(&self) -> &'a str {
        &self.module.name
    }

    /// The first address.
    pub fn start(&self) -> u64 {
        self.extent.start
    }

    /// The address after the last one. Another function may lie inside, and the padding after this address may belong
    /// to the function: [`Module::function_at`] decides.
    pub fn end(&self) -> u64 {
        self.extent.end
    }

    /// Whether it has no name, only a range.
    pub fn is_nameless(&self) -> bool {
        self.extent.name.is_empty()
    }
}

/// One function per address of symbols and PLT entries, ascending.
fn named_functions(mut symbols: Vec<Symbol<'_>>, plt: Vec<PltEntry<'_>>, names: &mut Names) -> Vec<Extent> {
    symbols.sort_unstable_by_key(|s| s.address);
    // Compares names only at shared addresses: names are scattered over the file.
    let groups = symbols.chunk_by_mut(|one, other| one.address == other.address);
    groups.for_each(|group| group.sort_unstable_by_key(preference));
    symbols.dedup_by_key(|s| s.address);
    let name_of = |address| {
        let index = symbols.binary_search_by_key(&address, |s| s.address).ok()?;
        symbols.get(index).map(|s| s.name)
    };
    let mut extents: Vec<Extent> = Vec::with_capacity(symbols.len() + plt.len());
    extents.extend(symbols.iter().map(|s| Extent {
        start: s.address,
        end: s.address.saturating_add(s.size),
        name: names.push([s.name, b""]),
    }));
    for PltEntry { start, end, target } in plt {
        let target = match target {
            Target::Symbol(name) => Some(name),
            Target::ChosenBy(resolver) => name_of(resolver),
        };
        if let Some(name) = target.filter(|name| !name.is_empty()) {
            extents.push(Extent { start, end, name: names.push([name, b"@plt"]) });
        }
    }
    extents.retain(|e| !e.name.is_empty());
    // A stable sort: a symbol precedes a PLT entry.
    extents.sort_by_key(|e| e.start);
    extents.dedup_by_key(|e| e.start);
    extents
}

/// Sort key of symbols at one address, by the rules of [`Module::parse`].
fn preference<'a>(s: &Symbol<'a>) -> impl Ord + use<'a> {
    let underscores = s.name.iter().take_while(|&&byte| byte == b'_').count();
    let kind = (s.size == 0, !s.is_function, s.is_local);
    (kind, underscores, s.is_weak, s.name.len(), s.name, Reverse(s.size))
}

/// Executable address ranges, disjoint and ascending, split at section boundaries.
fn executable_areas(segments: &[LoadSegment], sections: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let segments = segments.iter().filter(|s| s.executable);
    let segments = segments.map(|s| s.address..s.address.saturating_add(s.size));
    let mut ranges: Vec<Range<u64>> = segments.chain(sections.iter().cloned()).collect();
    ranges.retain(|r| !r.is_empty());
    ranges.sort_unstable_by_key(|r| r.start);
    let mut cuts: Vec<u64> = sections.iter().flat_map(|s| [s.start, s.end]).collect();
    cuts.sort_unstable();
    let mut areas = Vec::new();
    let mut covered_until = 0;
    for range in ranges {
        let mut start = range.start.max(covered_until);
        let first_cut = cuts.partition_point(|&cut| cut <= start);
        for cut in cuts.iter().skip(first_cut).copied().take_while(|&cut| cut < range.end).chain([range.end])
        {
            if start < cut {
                areas.push(start..cut);
                start = cut;
            }
        }
        covered_until = covered_until.max(range.end);
    }
    areas
}

/// Whether a range contains only padding between functions: bytes that occur in no-operation instructions, `int3` and
/// zeros. Useful code has other bytes, as it must leave the range by a jump or return.
fn is_padding(segments: &[LoadSegment], bytes: &[u8], range: Range<u64>) -> bool {
    const PADDING: &[u8] = &[0x00, 0x0f, 0x1f, 0x2e, 0x40, 0x44, 0x66, 0x80, 0x84, 0x90, 0xcc];
    let in_file = |s: &LoadSegment| {
        let offset = range.start.checked_sub(s.address)?;
        let length = range.end.checked_sub(range.start)?;
        (offset.checked_add(length)? <= s.file_size).then_some(())?;
        let start = usize::try_from(s.file_offset.checked_add(offset)?).ok()?;
        bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    };
    segments.iter().find_map(in_file).is_some_and(|gap| gap.iter().all(|byte| PADDING.contains(byte)))
}

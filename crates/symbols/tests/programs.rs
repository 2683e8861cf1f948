//! Real programs: this test, a small program from the C compiler, and the C library.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, hint};

use hodo_symbols::{DebugSections, Frame, Lines, Module, Symbols, debug_references};

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A directory for the files of one test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Compiles a program with a hidden function, an alias, an assembly label, an indirect function and calls to the C
/// library.
fn compile(folder: &Path, flags: &[&str]) -> PathBuf {
    let source = folder.join("program.c");
    fs::write(&source, include_str!("program.c")).unwrap();
    let program = folder.join("program");
    run(Command::new("cc").args(["-O1", "-g"]).args(flags).arg("-o").arg(&program).arg(&source));
    program
}

fn parse(path: &Path) -> Module {
    Module::parse(path.to_str().unwrap(), &fs::read(path).unwrap(), None)
}

/// Checks the laws of every module.
fn assert_laws(module: &Module) {
    let functions = (0..module.function_count()).map(|index| module.function(index));
    let starts: Vec<u64> = functions.map(|function| function.start()).collect();
    assert!(starts.is_sorted());
    for (index, &start) in starts.iter().enumerate().skip(1) {
        assert_eq!(module.function_at(start) as usize, index, "{start:#x}");
    }
}

/// The address range of each function, by name.
fn ranges(module: &Module) -> BTreeMap<String, Range<u64>> {
    let functions = (0..module.function_count()).map(|index| module.function(index));
    functions.map(|f| (f.name().into_owned(), f.start()..f.end())).collect()
}

#[test]
fn every_function_that_nm_lists_owns_its_range() {
    let path = env::current_exe().unwrap();
    let module = parse(&path);
    assert_laws(&module);
    let listed = run(Command::new("nm").args(["--defined-only", "--print-size"]).arg(&path));
    let mut compared = 0;
    for line in listed.lines() {
        let [address, size, "t" | "T" | "w" | "W", name] = line.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let address = u64::from_str_radix(address, 16).unwrap();
        let size = u64::from_str_radix(size, 16).unwrap();
        let function = module.function(module.function_at(address));
        assert_eq!((function.start(), function.end()), (address, address + size), "{name}");
        assert_eq!(module.function_at(address + size - 1), module.function_at(address), "{name}");
        compared += 1;
    }
    assert!(compared > 1_000, "{compared}");
}

#[test]
fn symbols_labels_and_plt_entries_have_names() {
    let folder = folder("kinds");
    let module = parse(&compile(&folder, &[]));
    assert_laws(&module);
    assert_eq!(module.problem(), None);
    let names = ranges(&module);
    for name in ["main", "hidden", "visible", "label", "chosen", "puts@plt", "_start", "_init"] {
        assert!(names.contains_key(name), "{name} is not in {names:#x?}");
    }
    assert!(!names.contains_key("__other_name_of_visible") && !names.contains_key("inside"), "{names:#x?}");
    // Calls to the resolver of `chosen` use an entry whose relocation has no symbol.
    assert!(names.contains_key("chosen@plt"), "{names:#x?}");
    let label = &names["label"];
    assert_eq!(label.end, label.start + 8, "a label lasts until the next one");
}

#[test]
fn entries_that_push_an_index_are_named_too() {
    let folder = folder("ibt");
    let module = parse(&compile(&folder, &["-fcf-protection=full", "-Wl,-z,ibtplt,-z,lazy"]));
    let functions = (0..module.function_count()).map(|index| module.function(index));
    let entries = functions.filter(|function| function.name() == "puts@plt").count();
    assert_eq!(entries, 2, "one in .plt, one in .plt.sec");
}

#[test]
fn entries_of_eight_bytes_are_named_one_by_one() {
    let folder = folder("static");
    let module = parse(&compile(&folder, &["-static", "-no-pie"]));
    assert_laws(&module);
    let entry = &ranges(&module)["chosen@plt"];
    assert_eq!(entry.end - entry.start, 8);
}

#[test]
fn a_stripped_program_keeps_its_ranges_and_its_debug_file_the_names() {
    let folder = folder("stripped");
    let program = compile(&folder, &[]);
    let [stripped, debug] = ["program.stripped", "program.debug"].map(|name| folder.join(name));
    run(Command::new("objcopy").arg("--only-keep-debug").args([&program, &debug]));
    run(Command::new("strip").arg("-o").args([&stripped, &program]));
    run(Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", debug.display())).arg(&stripped));

    let whole = parse(&program);
    let main = ranges(&whole)["main"].clone();
    let nameless = parse(&stripped);
    assert_laws(&nameless);
    let function = nameless.function(nameless.function_at(main.start + 1));
    assert_eq!(function.start()..function.end(), main);
    assert!(function.is_nameless());
    assert_eq!(function.name(), format!("program.stripped+{:#x}", main.start));

    let bytes = fs::read(&stripped).unwrap();
    let debug_bytes = fs::read(&debug).unwrap();
    let named = Module::parse(program.to_str().unwrap(), &bytes, Some(&debug_bytes));
    assert_eq!(ranges(&named), ranges(&whole));
    assert_eq!(named.build_id(), whole.build_id());
    let references = debug_references(&bytes);
    assert_eq!(references.build_id, whole.build_id());
    assert_eq!(references.link.unwrap().0, "program.debug");

    let other = Module::parse("other", &bytes, Some(&fs::read(env::current_exe().unwrap()).unwrap()));
    assert!(other.problem().unwrap().contains("build id"), "{:?}", other.problem());
    assert_eq!(other.function_count(), nameless.function_count());
}

#[test]
fn a_library_without_symtab_has_the_names_of_dynsym() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path =
        maps.lines().find_map(|line| Some(&line[line.find('/')?..]).filter(|path| path.contains("/libc.so")));
    let module = parse(Path::new(path.expect("this test runs with the C library as a shared one")));
    assert_laws(&module);
    let names = ranges(&module);
    for name in ["malloc", "write", "strlen"] {
        assert!(names.contains_key(name), "{name}");
    }
}

#[inline(always)]
fn inlined(value: u64) -> u64 {
    hint::black_box(value) * 3
}

#[inline(never)]
fn outer(value: u64) -> u64 {
    inlined(value) + 1
}

#[test]
fn an_address_of_this_process_leads_to_its_line_and_inlined_frames() {
    assert_eq!(outer(2), 7);
    let path = env::current_exe().unwrap();
    let bytes = fs::read(&path).unwrap();
    let mut symbols = Symbols::default();
    let index = symbols.add(Module::parse(path.to_str().unwrap(), &bytes, None));
    let module = &symbols.modules()[index as usize];

    let mapped = outer as fn(u64) -> u64 as usize as u64;
    let address = module.address(file_offset(mapped, path.to_str().unwrap())).unwrap();
    let id = symbols.function_at(index, address);
    assert_eq!(symbols.function(id).name(), "programs::outer");
    assert_eq!(symbols.function(id).start(), address);

    let sections = DebugSections::read(&bytes).unwrap().expect("tests have debugging information");
    let lines = Lines::new(&sections, None).unwrap();
    let function = symbols.function(id);
    let mut all = (function.start()..function.end()).map(|address| lines.frames_at(address));
    // Release builds only have line tables, which contain no modules.
    let name = |frame: &Frame| frame.function.as_deref().unwrap().trim_start_matches("programs::").to_owned();
    let is_inlined = |frame: &Frame| name(frame) == "inlined";
    let mut frames =
        all.find(|frames| frames.iter().any(is_inlined)).expect("an address of the inlined function");
    // In optimised tests, the function's callees may be inlined too.
    frames.drain(..frames.iter().position(is_inlined).unwrap());
    assert_eq!(frames.iter().map(name).collect::<Vec<_>>(), ["inlined", "outer"]);
    assert_eq!(frames.iter().map(|frame| frame.inlined).collect::<Vec<_>>(), [true, false]);
    for (frame, expected) in frames.iter().zip(["hint::black_box(value) * 3", "inlined(value) + 1"]) {
        assert!(frame.file.as_ref().unwrap().ends_with("tests/programs.rs"), "{frame:?}");
        let line = include_str!("programs.rs").lines().nth(frame.line.unwrap() as usize - 1).unwrap();
        assert!(line.contains(expected), "{frame:?} is {line}");
    }
}

/// The file offset that is mapped at an address of this process.
fn file_offset(address: u64, path: &str) -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let mapping = maps.lines().filter(|line| line.ends_with(path)).find_map(|line| {
        let mut fields = line.split(' ');
        let (begin, end) = fields.next()?.split_once('-')?;
        let contains = (number(begin)..number(end)).contains(&address);
        contains.then(|| address - number(begin) + number(fields.nth(1).unwrap()))
    });
    mapping.expect("a mapping of this program")
}

#[test]
fn compressed_debugging_information_gives_the_same_frames() {
    let folder = folder("compressed");
    let read = |flags: &[&str]| fs::read(compile(&folder, flags)).unwrap();
    let (plain, compressed) = (read(&["-gz=none"]), read(&["-gz=zlib"]));
    let main = ranges(&Module::parse("program", &plain, None))["main"].clone();
    assert_eq!(ranges(&Module::parse("program", &compressed, None))["main"], main);
    let sections = [&plain, &compressed].map(|bytes| DebugSections::read(bytes).unwrap().unwrap());
    let [plain, compressed] = sections.each_ref().map(|sections| Lines::new(sections, None).unwrap());
    for address in main {
        assert_eq!(plain.frames_at(address), compressed.frames_at(address));
        assert_eq!(plain.frames_at(address).last().unwrap().function.as_deref(), Some("main"));
    }
}

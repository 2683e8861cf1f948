//! Recorded programs do what they do alone, and their recordings are consistent.

#![allow(missing_docs)]

use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use hodo_native::{Control, Error, Options, Outcome, Select, record};
use hodo_native_log::{Item, Recording};
use hodo_native_runtime::{
    emit::Emitter,
    wire::{exit, note},
};
use tempfile::TempDir;

fn compile(folder: &TempDir, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.path().join(name.replace('.', "-"));
    let status = Command::new("gcc")
        .args(["-O1", "-pthread", "-w"])
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-lm")
        .status();
    assert!(status.expect("gcc").success());
    program
}

/// A command that was recorded.
struct Recorded {
    /// What it printed.
    output: String,
    outcome: Outcome,
    file: Vec<u8>,
}

/// Records a command whose output goes to a file.
fn recorded(folder: &TempDir, command: Command) -> Recorded {
    recorded_with(folder, command, Options::default())
}

/// As [`recorded`], with options.
fn recorded_with(folder: &TempDir, mut command: Command, options: Options) -> Recorded {
    let output = folder.path().join("output");
    let sink = std::fs::File::create(&output).expect("a file");
    command.stdout(sink);
    let mut file = Vec::new();
    let outcome = record(command, &mut file, options).expect("a recording");
    Recorded { output: std::fs::read_to_string(output).expect("text"), outcome, file }
}

/// The size of a recording.
struct Size {
    threads: usize,
    instructions: u64,
}

/// Checks that all threads of a recording are consistent.
#[track_caller]
fn consistent(file: &[u8]) -> Size {
    let recording = Recording::read(file).expect("a readable recording");
    assert_eq!(recording.damage, None);
    let mut instructions = 0;
    for thread in recording.threads() {
        let mut items = recording.items(thread).expect("a table");
        let mut leads = 0;
        for item in items.by_ref() {
            leads = match item {
                Item::Path(path) => follow(&path, leads),
                Item::Call(..) | Item::CallEnd(_) | Item::Time(_) => leads,
                _ => 0,
            };
        }
        assert_eq!(items.contradictions(), 0, "thread {}", thread.thread);
        instructions += items.instructions();
    }
    Size { threads: recording.threads().len(), instructions }
}

/// Checks that the spans of a path follow each other, and that it begins where the one before led, if that is not 0; returns
/// where it leads.
#[track_caller]
fn follow(path: &hodo_native_log::Path<'_>, mut leads: u64) -> u64 {
    for span in path.all() {
        assert!(leads == 0 || leads == span.start, "{leads:x} leads to {:x}", span.start);
        leads = if span.kind == exit::NONE { span.end } else { span.target };
    }
    leads
}

fn notes(file: &[u8]) -> Vec<u32> {
    let recording = Recording::read(file).expect("a readable recording");
    recording.tables().iter().flat_map(|(_, table)| table.notes.iter().map(|note| note.note)).collect()
}

/// Runs a program alone and recorded: output and status are the same.
#[track_caller]
fn same(alone: Command, recorded_command: Command) -> Size {
    same_with(alone, recorded_command, Options::default())
}

#[track_caller]
fn same_with(mut alone: Command, recorded_command: Command, options: Options) -> Size {
    let folder = TempDir::new().expect("a folder");
    let expected = alone.output().expect("the program runs");
    let Recorded { output, outcome, file } = recorded_with(&folder, recorded_command, options);
    assert_eq!((output.as_bytes(), outcome.status), (&*expected.stdout, expected.status));
    assert_eq!(outcome.warnings, Vec::<String>::new());
    consistent(&file)
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

#[test]
fn signals_arrive_where_the_program_stands() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "signals.c");
    let Size { threads, .. } = same(Command::new(&program), Command::new(&program));
    assert_eq!(threads, 2);
}

/// An indirect branch before a signal does not say where it led: the log does.
#[test]
fn a_log_says_where_a_signal_finds_the_program() {
    let folder = TempDir::new().expect("a folder");
    for name in ["signals.c", "jumps.c", "faults.c"] {
        let program = compile(&folder, name);
        let file = recorded(&folder, Command::new(&program)).file;
        let recording = Recording::read(&file).expect("a readable recording");
        let mut signals = 0;
        for thread in recording.threads() {
            let mut stands = false;
            for item in recording.items(thread).expect("a table") {
                if let Item::Signal(number, 1..) = item {
                    assert!(stands, "{name}: signal {number} in thread {}", thread.thread);
                    signals += 1;
                }
                stands = matches!(item, Item::Continue(_)) || stands && matches!(item, Item::Time(_));
            }
        }
        assert!(signals > 10, "{name}: {signals} signals");
    }
}

#[test]
fn many_threads() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "threads.c");
    let Size { threads, .. } = same(Command::new(&program), Command::new(&program));
    assert_eq!(threads, 129);
}

#[test]
fn breakpoints_of_the_program_itself() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "faults.c");
    let with_traps = || {
        let mut command = Command::new(&program);
        command.arg("traps");
        command
    };
    same(with_traps(), with_traps());
}

#[test]
fn children_and_the_programs_that_they_execute() {
    let script = "for i in 1 2 3; do /bin/true; (echo in $i); done; ls / | sort -r | head -n 3; \
                  missing 2>/dev/null; echo $?; exec /bin/sh -c 'exit 7'";
    let Size { threads, .. } = same(shell(script), shell(script));
    assert!(threads > 10, "{threads}");
}

#[test]
fn interpreters_of_the_system() {
    let program =
        "my %h; $h{$_ % 100} .= $_ for 1..20000; my $n = 0; $n += length for values %h; print \"$n\\n\"";
    let perl = || {
        let mut command = Command::new("/usr/bin/perl");
        command.args(["-e", program]).env("PERL_HASH_SEED", "0");
        command
    };
    let Size { instructions, .. } = same(perl(), perl());
    assert!(instructions > 1_000_000);
}

/// Libraries that come and go at the same addresses, masks that hold while a call waits, and prefixes that count for nothing.
#[test]
fn programs_end_as_they_do_alone() {
    let folder = TempDir::new().expect("a folder");
    for name in ["libraries.c", "waiting.c", "high_registers.c"] {
        let program = compile(&folder, name);
        same(Command::new(&program), Command::new(&program));
    }
}

#[test]
fn code_that_changes_and_is_written_by_the_kernel() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "changes.c");
    same(Command::new(&program), Command::new(&program));
    let file = recorded(&folder, Command::new(&program)).file;
    let recording = Recording::read(&file).expect("a readable recording");
    let (_, table) = recording.tables()[0];
    // lea eax, [rdi + 49]; ret
    assert!(table.code.iter().any(|code| code.bytes == [0x8d, 0x87, 49, 0, 0, 0, 0xc3]));
    assert!(table.unmaps.iter().filter(|unmap| unmap.replaced).count() > 50);
}

/// Each write to a page with code removes its translations: threads do so together.
#[test]
fn threads_that_write_to_one_page_of_code() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "shared_page.c");
    for _ in 0..5 {
        same(Command::new(&program), Command::new(&program));
    }
}

/// Compilers at run time, handlers of their own, threads: where these are installed.
#[test]
fn runtimes_with_compilers() {
    let programs: [(&str, &[&str]); 2] = [
        ("/usr/bin/node", &["-e", "let s=0;for(let i=0;i<3e5;i++)s+=('x'+i).length;console.log(s)"]),
        ("/usr/bin/java", &["-version"]),
    ];
    for (program, arguments) in programs.into_iter().filter(|(program, _)| Path::new(program).exists()) {
        let command = || {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        let Size { threads, .. } = same(command(), command());
        assert!(threads > 4, "{program}: {threads} threads");
    }
}

#[test]
fn a_program_without_room_is_refused() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -v 500000; exec /bin/true"]);
    let mut file = Vec::new();
    let outcome = record(command, &mut file, Options::default()).expect("a recording");
    assert_eq!(outcome.status.code(), Some(0));
    assert!(outcome.warnings[0].contains("no room"), "{:?}", outcome.warnings);
}

#[test]
fn programs_with_other_rights_are_refused() {
    let found = ["/bin/su", "/usr/bin/passwd"].into_iter().find(|path| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o2010 == 0o2010)
    });
    if let Some(program) = found {
        let result = record(Command::new(program), Vec::new(), Options::default());
        assert!(matches!(result, Err(Error::Privileged(_))));
    }
}

#[test]
fn what_is_refused_is_noted() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "refused.c");
    let Recorded { output, outcome, file } = recorded(&folder, Command::new(&program));
    assert_eq!((output.as_str(), outcome.status.code()), ("goes on\n", Some(0)));
    let own = note::OWN_MEMORY;
    let expected = [own, own, own, note::SEGMENT, note::FILTER, note::JUMPED_INTO];
    assert_eq!(notes(&file), expected);
}

#[test]
fn a_killed_program_keeps_its_log() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "killed.c");
    let Recorded { outcome, file, .. } = recorded(&folder, Command::new(&program));
    assert_eq!(outcome.status.signal(), Some(9));
    let Size { instructions, .. } = consistent(&file);
    assert!(instructions > 9_000_000, "{instructions}");
}

#[test]
fn closed_files_and_forks_of_busy_programs() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "careless.c");
    let Size { threads, .. } = same(Command::new(&program), Command::new(&program));
    assert_eq!(threads, 44);
}

#[test]
fn far_returns_to_other_segments_are_noted() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "far.c");
    let mut command = Command::new(&program);
    command.arg("elsewhere");
    let alone = Command::new(&program).arg("elsewhere").output().expect("the program runs");
    let Recorded { output, file, .. } = recorded(&folder, command);
    assert_eq!(output.as_bytes(), alone.stdout);
    assert_eq!(notes(&file), [note::INSTRUCTION]);
    consistent(&file);
}

/// So little memory that translations are removed again and again, while other threads run and signals arrive.
#[test]
fn translations_are_removed_when_there_are_too_many() {
    let folder = TempDir::new().expect("a folder");
    let options = Options { memory: 250_000, ..Options::default() };
    for name in ["signals.c", "threads.c", "changes.c", "careless.c"] {
        let program = compile(&folder, name);
        same_with(Command::new(&program), Command::new(&program), options.clone());
    }
    let script = "for i in 1 2 3; do (echo in $i); ls / | sort -r | head -n 3; done";
    same_with(shell(script), shell(script), options.clone());
    let blocks = |options| {
        let file = recorded_with(&folder, Command::new(folder.path().join("changes-c")), options).file;
        Recording::read(&file).expect("a readable recording").tables()[0].1.blocks()
    };
    let (few, many) = (blocks(Options::default()), blocks(options));
    assert!(many > few + 100, "{few} blocks, {many} with little memory");
}

/// The recording ends while the programs go on: they do what they would have done.
#[test]
fn programs_get_their_own_code_back() {
    let folder = TempDir::new().expect("a folder");
    for (index, name) in
        ["signals.c", "threads.c", "careless.c", "waiting.c", "changes.c"].into_iter().enumerate()
    {
        let program = compile(&folder, name);
        for milliseconds in [15, 40 + 10 * index as u64] {
            let duration = Some(std::time::Duration::from_millis(milliseconds));
            let options = Options { duration, ..Options::default() };
            same_with(Command::new(&program), Command::new(&program), options);
        }
    }
    let script = "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; (echo in $i); ls / | sort -r | head -n 3; done";
    for milliseconds in [5, 20, 35] {
        let duration = Some(std::time::Duration::from_millis(milliseconds));
        let options = Options { duration, ..Options::default() };
        let folder = TempDir::new().expect("a folder");
        let expected = shell(script).output().expect("the shell runs");
        let Recorded { output, outcome, file } = recorded_with(&folder, shell(script), options);
        assert_eq!((output.as_bytes(), outcome.status), (&*expected.stdout, expected.status));
        consistent(&file);
    }
}

#[test]
fn time_is_written_as_often_as_wanted() {
    let folder = TempDir::new().expect("a folder");
    for name in ["signals.c", "killed.c"] {
        let program = compile(&folder, name);
        let options = Options { time_every: 500, ..Options::default() };
        let file = recorded_with(&folder, Command::new(&program), options).file;
        let Size { instructions, .. } = consistent(&file);
        let recording = Recording::read(&file).expect("a readable recording");
        let (mut paths, mut times) = (0, 0);
        for thread in recording.threads() {
            let mut last = 0;
            for item in recording.items(thread).expect("a table") {
                match item {
                    Item::Path(_) => paths += 1,
                    Item::Call(_, time) | Item::CallEnd(time) | Item::Time(time) => {
                        assert!(time >= last, "time goes back");
                        last = time;
                        times += u64::from(matches!(item, Item::Time(_)));
                    }
                    _ => {}
                }
            }
        }
        assert!(
            paths < 500 * (times + 200),
            "{name}: {instructions} instructions, {paths} paths, {times} times"
        );
    }
}

#[test]
fn the_last_part_is_kept() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "killed.c");
    let Recorded { outcome, file: whole, .. } = recorded(&folder, Command::new(&program));
    let options = Options { ring: Some(3000), ..Options::default() };
    let ring = recorded_with(&folder, Command::new(&program), options);
    assert_eq!(ring.outcome.status, outcome.status);
    let all = consistent(&whole).instructions;
    let kept = consistent(&ring.file).instructions;
    assert!(kept > 500_000 && kept < all / 2, "{kept} of {all} instructions");
    let recording = Recording::read(&ring.file).expect("a readable recording");
    let thread = &recording.threads()[0];
    assert_eq!(thread.losses, [note::OVERWRITTEN]);
    let first = recording.items(thread).expect("a table").next();
    assert!(matches!(first, Some(Item::Loss(note::OVERWRITTEN))), "{first:?}");
}

#[test]
fn snapshots_of_a_running_program() {
    let control = Arc::new(Control::default());
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "threads.c");
    let options = Options { ring: Some(30_000), control: control.clone(), ..Options::default() };
    let over = AtomicBool::new(false);
    let (taken, file) = std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            let mut taken = 0;
            while !over.load(Relaxed) {
                taken += u64::from(!control.snapshot.swap(true, Relaxed));
                std::thread::sleep(std::time::Duration::from_millis(7));
            }
            taken
        });
        let file = recorded_with(&folder, Command::new(&program), options).file;
        over.store(true, Relaxed);
        (requests.join().expect("it ends"), file)
    });
    assert!(taken > 2, "{taken} snapshots");
    let Size { threads, .. } = consistent(&file);
    let recording = Recording::read(&file).expect("a readable recording");
    let losses =
        recording.threads().iter().flat_map(|thread| &thread.losses).map(|&lost| note::counted(lost));
    let forgotten: u64 = losses.filter(|loss| loss.0 == note::FORGOTTEN).map(|loss| loss.1).sum();
    assert_eq!(threads as u64 + forgotten, 129, "{forgotten} are not in the file");
}

/// The processor of the tests may have no transactional memory. So the translation also runs with another instruction in place
/// of `CPUID`, which sets all bits.
#[test]
fn transactions_are_hidden() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "cpuid.c");
    same(Command::new(&program), Command::new(&program));

    let mut code = vec![0u8; 256];
    let start = code.as_mut_ptr() as u64;
    let mut emitter = Emitter { address: start, limit: start + code.len() as u64, full: false };
    // mov eax, 1; mov ecx, 2; mov edx, 3; mov ebx, -1
    emitter.cpuid(&[0xb8, 1, 0, 0, 0, 0xb9, 2, 0, 0, 0, 0xba, 3, 0, 0, 0, 0xbb, 0xff, 0xff, 0xff, 0xff]);
    assert!(!emitter.full);
    code.truncate((emitter.address - start) as usize);
    let bytes: Vec<_> = code.iter().map(u8::to_string).collect();
    std::fs::write(
        folder.path().join("translated.h"),
        format!("#define CPUID \".byte {}\"\n", bytes.join(",")),
    )
    .expect("a file");
    let translated = folder.path().join("translated");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/cpuid.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-include"])
        .arg(folder.path().join("translated.h"))
        .arg(source)
        .arg("-o")
        .arg(&translated);
    assert!(gcc.status().expect("gcc").success());
    let output = Command::new(&translated).output().expect("it runs").stdout;
    let output = String::from_utf8(output).expect("text");
    let all = "1 ffffffff 2 3 flags kept";
    let hidden = "1 fffff7ef 2 3 flags kept";
    assert_eq!(output.lines().collect::<Vec<_>>(), [all, hidden, all, all, all]);
}

#[test]
fn handlers_that_jump_repair_and_skip() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "jumps.c");
    same(Command::new(&program), Command::new(&program));
}

#[test]
fn a_thousand_threads_and_chains_of_programs() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "families.c");
    let Size { threads, .. } = same(Command::new(&program), Command::new(&program));
    assert!(threads > 1000, "{threads} threads");
}

/// Languages with signals, stacks and system calls of their own: where these are installed.
#[test]
fn other_languages() {
    let folder = TempDir::new().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let rust = folder.path().join("rust");
    let mut rustc = Command::new("rustc");
    rustc.args(["-O", "-o"]).arg(&rust).arg(source.join("panics.rs"));
    if rustc.status().is_ok_and(|status| status.success()) {
        let Size { threads, .. } = same(Command::new(&rust), Command::new(&rust));
        assert!(threads > 8, "{threads} threads");
    }
    let go = folder.path().join("go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&go).arg(source.join("routines.go"));
    build
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"))
        .env("GOFLAGS", "-mod=mod")
        .env("CGO_ENABLED", "0");
    if build.status().is_ok_and(|status| status.success()) {
        let Size { threads, .. } = same(Command::new(&go), Command::new(&go));
        assert!(threads > 2, "{threads} threads");
    }
    let luajit = || {
        let mut command = Command::new("luajit");
        command.args(["-e", "local s = 0 for i = 1, 3e6 do s = (s + i * i) % 1000003 end print(s)"]);
        command
    };
    if luajit().output().is_ok() {
        same(luajit(), luajit());
    }
}

/// Only the program's own file is recorded, not its libraries; signals arrive in both.
#[test]
fn code_that_is_selected() {
    let folder = TempDir::new().expect("a folder");
    for name in ["jumps.c", "faults.c", "workers.c"] {
        let program = compile(&folder, name);
        let file = program.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let parts = vec![Select { file: format!("/{file}"), offsets: 0..u64::MAX }];
        let options = Options { select: parts, ..Options::default() };
        let command = || shell(&format!("(sleep 0.1; echo) | {}", program.display()));
        let expected = command().output().expect("the program runs");
        let Recorded { output, outcome, file } = recorded_with(&folder, command(), options);
        assert_eq!((output.as_bytes(), outcome.status), (&*expected.stdout, expected.status), "{name}");
        consistent(&file);
        let recording = Recording::read(&file).expect("a readable recording");
        let mut paths = 0;
        for thread in recording.threads() {
            let table = recording.table(thread).expect("a table");
            let own: Vec<_> =
                table.maps.iter().filter(|map| map.name.ends_with(file_name(&program).as_bytes())).collect();
            let inherited = table.parent.is_some();
            for item in recording.items(thread).expect("a table") {
                let Item::Path(path) = item else { continue };
                for span in path.all() {
                    let inside =
                        own.iter().any(|map| (map.address..map.address + map.length).contains(&span.start));
                    assert!(inside || inherited || span.count == 0, "{name}: {span:x?}");
                }
                paths += 1;
            }
        }
        assert!(paths > 100, "{name}: {paths} paths");
    }
}

fn file_name(program: &Path) -> String {
    format!("/{}", program.file_name().expect("a name").to_string_lossy())
}

#[test]
fn missing_programs_are_an_error() {
    let result = record(Command::new("/nowhere/program"), Vec::new(), Options::default());
    assert!(matches!(result, Err(Error::Start(..))));
}

/// A disk that becomes full.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_program_goes_on_when_the_disk_is_full() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "threads.c");
    let outcome = record(Command::new(&program), Full(50_000), Options::default()).expect("it runs");
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(outcome.warnings.iter().any(|warning| warning.contains("ends early")), "{outcome:?}");
}

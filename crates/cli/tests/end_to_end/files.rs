//! Finding a program's file and its debug information: functions keep their names, and lines their numbers.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    recorded::{can_record, record},
    run::{Folder, command, wait},
};

/// Runs a tool, which must succeed.
fn tool(name: &str, arguments: &[&str]) {
    let ran = Command::new(name).args(arguments).stderr(Stdio::null()).status();
    assert!(ran.is_ok_and(|status| status.success()), "{name} {arguments:?}");
}

/// A recorded program in its own folder, and its build id in hexadecimal.
struct Recorded {
    folder: Folder,
    program: String,
    recording: String,
    build_id: String,
}

impl Recorded {
    fn new() -> Option<Recorded> {
        if !can_record() {
            return None;
        }
        let folder = Folder::new();
        let program = folder.file("program");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/workloads/fib.c");
        tool("cc", &["-O0", "-g", "-static", "-Wl,--build-id", "-o", &program, source]);
        let (recording, ran) = record(&folder, &[], &[&program, "5"]);
        ran.fine();
        let notes = Command::new("readelf").args(["-n", &program]).output().expect("readelf starts");
        let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
        let build_id = notes.split_once("Build ID: ").expect("a build id").1;
        let build_id = build_id.split_whitespace().next().expect("a build id").to_owned();
        Some(Recorded { folder, program, recording, build_id })
    }

    /// Moves the debug information and the symbols from the program to a separate file.
    fn strip(&self, debug: &str) {
        fs::create_dir_all(Path::new(debug).parent().expect("a folder")).expect("a folder");
        tool("objcopy", &["--only-keep-debug", &self.program, debug]);
        tool("strip", &[&self.program]);
    }

    /// Returns the build id as `xx/yyyy`.
    fn by_build_id(&self) -> String {
        let (first, rest) = self.build_id.split_at(2);
        format!("{first}/{rest}")
    }

    /// Returns the output of `hodo report KIND`, with perf's cache of files in this folder.
    fn report(&self, kind: &str, options: &[&str]) -> String {
        let arguments = [&["report", kind, "--format", "csv"], options, &[&self.recording]].concat();
        let mut command = command(&arguments);
        command.env("HOME", self.folder.path());
        wait(command.spawn().expect("hodo starts")).expect("hodo does not hang").stdout
    }

    #[track_caller]
    fn knows_lines(&self, options: &[&str]) {
        self.check(options, true);
    }

    #[track_caller]
    fn knows_no_lines(&self, options: &[&str]) {
        self.check(options, false);
    }

    /// Checks whether reports know the program's functions and lines as `expected`.
    #[track_caller]
    fn check(&self, options: &[&str], expected: bool) {
        let functions = self.report("functions", options);
        assert_eq!(functions.lines().any(|line| line.contains(",fib,")), expected, "{functions}");
        let lines = self.report("lines", options);
        assert_eq!(lines.contains("fib.c:7"), expected, "{lines}");
    }
}

#[test]
fn a_debug_file_beside_the_program_is_found_by_its_link() {
    let Some(recorded) = Recorded::new() else { return };
    recorded.knows_lines(&[]);
    let debug = recorded.folder.file("program.debug");
    recorded.strip(&debug);
    recorded.knows_no_lines(&[]);
    tool("objcopy", &[&format!("--add-gnu-debuglink={debug}"), &recorded.program]);
    recorded.knows_lines(&[]);
    // A file of another build has another checksum.
    fs::write(&debug, [fs::read(&debug).expect("the file"), vec![0]].concat()).expect("a file");
    recorded.knows_no_lines(&[]);
}

#[test]
fn a_debug_file_is_found_by_build_id() {
    let Some(recorded) = Recorded::new() else { return };
    let root = recorded.folder.file("root");
    let debug = format!("{root}/usr/lib/debug/.build-id/{}.debug", recorded.by_build_id());
    recorded.strip(&debug);
    recorded.knows_no_lines(&[]);
    let below = format!("{root}{}", recorded.program);
    fs::create_dir_all(Path::new(&below).parent().expect("a folder")).expect("a folder");
    fs::rename(&recorded.program, &below).expect("the program moves");
    recorded.knows_lines(&["--symfs", &root]);
    fs::remove_file(&debug).expect("the debug file goes");
    recorded.knows_no_lines(&["--symfs", &root]);
}

#[test]
fn perfs_cache_has_the_program_and_its_debug_file() {
    let Some(recorded) = Recorded::new() else { return };
    let cache = recorded.folder.file(&format!(".debug/.build-id/{}", recorded.by_build_id()));
    fs::create_dir_all(&cache).expect("a folder");
    recorded.strip(&format!("{cache}/debug"));
    fs::rename(&recorded.program, format!("{cache}/elf")).expect("the program moves");
    recorded.knows_lines(&[]);
    // A file of another build is rejected.
    fs::copy("/bin/true", format!("{cache}/elf")).expect("a file");
    recorded.knows_no_lines(&[]);
}

//! A trace gives the same instructions in every container that perf writes.

use std::{fs, io::Write, path::Path};

use hodo_repack::{Recorded, compressed, file, folder, in_samples, per_cpu, pipe};

use crate::run::{Folder, Ran, command, hodo, wait};

/// Recordings of one thread with several PSBs.
const FIXTURES: [&str; 2] = ["tiny-exact-time.data", "tiny-no-return-compression.data"];

fn fixture(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf");
    fixtures.join(name).to_string_lossy().into_owned()
}

/// Returns the arguments that print the instructions of a recording with their threads.
fn script(path: &str) -> Vec<String> {
    let symfs = fixture("symfs");
    ["script", "--insns", "--fields", "tid,ip", "--symfs", &symfs, path].map(str::to_owned).to_vec()
}

/// Returns the instructions without the names of streams.
fn instructions(ran: Ran) -> Vec<String> {
    assert_eq!(ran.stderr, "");
    ran.fine().stdout.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn sideband_needs_no_control_flow() {
    let text = hodo(&["script", "--sideband", &fixture("events.data")]).fine().stdout;
    assert!(text.lines().any(|line| line.ends_with("name perf-exec")), "{text}");
}

#[test]
fn every_container_gives_the_same_instructions() {
    let own = Folder::new();
    for name in FIXTURES {
        let original = fixture(name);
        let recorded = Recorded::read(&fs::read(&original).expect("a fixture"));
        let expected = instructions(hodo(&script(&original)));
        assert!(expected.len() > 1000, "{name} has {} instructions", expected.len());
        let forms = [
            ("file", file(&recorded)),
            ("pipe", pipe(&recorded)),
            ("compressed", compressed(&recorded)),
            ("samples", file(&in_samples(&recorded))),
            ("compressed samples", compressed(&in_samples(&recorded))),
        ];
        for (form, bytes) in forms {
            let path = own.write(form, &bytes);
            assert!(instructions(hodo(&script(&path))) == expected, "{name} as {form}");
        }
        let parts = own.file(&format!("{name}.folder"));
        fs::create_dir(&parts).expect("a new folder");
        folder(&recorded).iter().for_each(|(part, bytes)| {
            fs::write(Path::new(&parts).join(part), bytes).expect("a file of the folder");
        });
        assert!(instructions(hodo(&script(&parts))) == expected, "{name} as a folder");
    }
}

#[test]
fn a_pipe_is_read_from_standard_input() {
    let original = fixture(FIXTURES[0]);
    let recorded = Recorded::read(&fs::read(&original).expect("a fixture"));
    let mut command = command(&script("-"));
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().expect("hodo starts");
    child.stdin.take().expect("a pipe").write_all(&pipe(&recorded)).expect("hodo reads");
    let piped = wait(child).expect("it ends");
    assert!(instructions(piped) == instructions(hodo(&script(&original))));
}

#[test]
fn a_thread_that_moves_between_cpus_keeps_its_instructions() {
    let own = Folder::new();
    let original = fixture(FIXTURES[0]);
    let recorded = per_cpu(&Recorded::read(&fs::read(&original).expect("a fixture")));
    let path = own.write("cpus", &file(&recorded));
    let timed = |path: &str| {
        let mut script = script(path);
        script[3] = "time,tid,ip".to_owned();
        let mut lines = instructions(hodo(&script));
        // CPUs are printed one after the other, and lines of one CPU in order.
        lines.sort_by_key(|line| line.split(' ').next().map(str::to_owned));
        lines
    };
    let reported = hodo(&["info", &path]).fine().stdout;
    assert!(reported.contains("cpu 0") && reported.contains("cpu 1"), "{reported}");
    assert!(timed(&path) == timed(&original));
}

#[test]
fn one_file_of_a_folder_says_that_others_are_missing() {
    let own = Folder::new();
    let recorded = Recorded::read(&fs::read(fixture(FIXTURES[0])).expect("a fixture"));
    let path = own.write("data", &folder(&recorded)["data"]);
    let reported = hodo(&["info", &path]).fine().stdout;
    assert!(reported.contains("the other files of the folder"), "{reported}");
}

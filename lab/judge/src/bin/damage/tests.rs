//! A small everyday check: the fixtures, damaged some hundred times.

use std::path::{Path, PathBuf};

use crate::{trial::Bench, truth::Subject};

#[test]
fn damaged_recordings_show_nothing_wrong() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf");
    let symfs = fixtures.join("symfs");
    let subjects: Vec<Subject> = ["tiny", "tiny-exact-time", "tiny-no-return-compression"]
        .iter()
        .map(|name| {
            let file: PathBuf = fixtures.join(format!("{name}.data"));
            Subject::new(name, &file, Some(&symfs), None).expect("a fixture is whole")
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let bench = Bench { folder: folder.path().to_owned(), hodo: None, perf: false, seed: 1 };
    for number in 0..231 {
        let trial = bench.trial(&subjects, number).expect("files can be written");
        assert_eq!(trial.violation, None, "trial {number}");
    }
}

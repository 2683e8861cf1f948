//! A small everyday check: the fixtures, with code withheld in each way.

use std::path::Path;

use crate::trial::Subject;

#[test]
fn what_is_shown_without_some_code_is_what_ran() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf");
    let folder = tempfile::tempdir().expect("a folder");
    let mut gaps = 0;
    for name in ["tiny", "tiny-exact-time", "tiny-no-return-compression"] {
        let (file, symfs) = (fixtures.join(format!("{name}.data")), fixtures.join("symfs"));
        let subject = Subject::new(name, &file, Some(&symfs), folder.path()).expect("a fixture is whole");
        for number in 0..24 {
            let Some(trial) = subject.trial(1, number).expect("files can be written") else { continue };
            assert_eq!(trial.shown.violation, None, "{name}, trial {number}: {}", trial.what);
            assert!(trial.shown.instructions <= trial.ran);
            gaps += trial.shown.gaps;
        }
    }
    assert!(gaps > 0, "code was withheld");
}

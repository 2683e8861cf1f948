//! Files that end early, or are damaged: what is before is read.

#![allow(missing_docs)]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hodo_native::{Options, record};
use hodo_native_log::{FileError, MAGIC, Recording};
use tempfile::TempDir;

fn compile(folder: &TempDir, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.path().join(name.replace('.', "-"));
    let mut command = Command::new("gcc");
    command.args(["-O1", "-pthread", "-w"]).arg(source).arg("-o").arg(&program).arg("-lm");
    assert!(command.status().expect("gcc").success());
    program
}

/// Records a command, and drops its output.
fn recorded(mut command: Command) -> Vec<u8> {
    let mut file = Vec::new();
    command.stdout(Stdio::null());
    record(command, &mut file, Options::default()).expect("a recording");
    file
}

/// The begin of a recording whose recorder was killed, or whose disk was full.
#[test]
fn a_file_that_ends_anywhere_can_be_read_up_to_there() {
    let folder = TempDir::new().expect("a folder");
    for name in ["killed.c", "threads.c", "waiting.c"] {
        let program = compile(&folder, name);
        let file = recorded(Command::new(&program));
        let whole = Recording::read(&file).expect("a readable recording");
        let mut blocks: Vec<_> = whole.threads().iter().flat_map(|thread| &thread.blocks).collect();
        blocks.sort_unstable_by_key(|block| block.offset);
        assert!(blocks.len() > 2, "{name}: {} blocks", blocks.len());
        for (number, last) in blocks.iter().enumerate() {
            let end = last.offset + last.whole().len();
            let cut = Recording::read(&file[..end]).expect("what is before the cut");
            assert_eq!(cut.damage, Some(FileError::Cut(end)), "{name}");
            assert_eq!(cut.threads().iter().map(|thread| thread.blocks.len()).sum::<usize>(), number + 1);
            for thread in cut.threads() {
                let mut items = cut.items(thread).expect("the table is in the file");
                items.finish();
                assert_eq!(items.contradictions(), 0, "{name}: block {number}");
            }
        }
    }
}

#[test]
fn damaged_files_are_reported() {
    let file = recorded(Command::new("/bin/true"));
    assert!(Recording::read(b"something else").is_err());
    let cut = Recording::read(&file[..file.len() - 100]).expect("what is before the cut");
    assert!(cut.damage.is_some());
    for position in (MAGIC.len()..file.len()).step_by(97) {
        let mut damaged = file.clone();
        damaged[position] ^= 0x55;
        let Ok(recording) = Recording::read(&damaged) else { continue };
        for thread in recording.threads() {
            if let Some(mut items) = recording.items(thread) {
                items.finish();
            }
        }
    }
}

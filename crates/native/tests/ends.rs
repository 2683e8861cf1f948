//! Files that end early, or are damaged: what is before is read.

#![allow(missing_docs)]

use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hodo_native::{Options, record};
use hodo_native_log::{Block, BlockHeader, Codec, FileError, Item, MAGIC, Recording, Writer, note};
use hodo_native_runtime::wire::escape;
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

/// A block as its bytes in a file.
fn bytes_of(header: BlockHeader, content: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    writer.block(BlockHeader { length: content.len() as u32, ..header }, content).expect("memory");
    writer.into_inner()[MAGIC.len()..].to_vec()
}

/// The first half of a block's words, which ends between two exits.
fn first_half(block: &Block<'_>) -> Vec<u8> {
    let words = block.words().expect("words");
    let exits = |position: &usize| words[position - 4..position + 4].iter().all(|&word| word < escape::FIRST);
    let end = (words.len() / 2..words.len() - 4).find(exits).expect("exits");
    words[..end].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A snapshot has the begin of a part, the ring loses that part, and the next snapshot has the part after it.
#[test]
fn a_begin_of_a_part_is_not_followed_by_the_next_part() {
    let folder = TempDir::new().expect("a folder");
    let file = recorded(Command::new(compile(&folder, "killed.c")));
    let whole = Recording::read(&file).expect("a readable recording");
    let part = &whole.threads()[0].blocks[1];
    let header = BlockHeader { codec: Codec::default(), ..part.header };
    let loss = BlockHeader { kind: hodo_native_log::BlockKind::Loss, ..header };
    for (unfinished, expected) in [(true, 1), (false, 0)] {
        let cut = [
            &file[..part.offset],
            &bytes_of(BlockHeader { unfinished, ..header }, &first_half(part)),
            &bytes_of(loss, &note::OVERWRITTEN.to_le_bytes()),
            &file[part.offset + part.whole().len()..],
        ]
        .concat();
        let recording = Recording::read(&cut).expect("a readable recording");
        let mut items = recording.items(&recording.threads()[0]).expect("a table");
        let losses = items.by_ref().filter(|item| matches!(item, Item::Loss(note::OVERWRITTEN))).count();
        assert_eq!((losses, items.contradictions()), (expected, 0), "unfinished: {unfinished}");
    }
    // The whole part counts, where both are there.
    let both = [
        &file[..part.offset],
        &bytes_of(BlockHeader { unfinished: true, ..header }, &first_half(part)),
        &file[part.offset..],
    ]
    .concat();
    let recording = Recording::read(&both).expect("a readable recording");
    assert_eq!(recording.threads()[0].blocks.len(), whole.threads()[0].blocks.len());
    assert!(recording.threads()[0].blocks.iter().all(|block| !block.header.unfinished));
}

/// A program raises the signal that ends it: its log is complete, and says when that was.
#[test]
fn a_crash_is_the_end_of_a_log() {
    let folder = TempDir::new().expect("a folder");
    let mut file = Vec::new();
    let program = Command::new(compile(&folder, "crashes.c"));
    let outcome = record(program, &mut file, Options::default()).expect("a recording");
    assert_eq!((outcome.status.signal(), outcome.killed), (Some(11), 0), "{outcome:?}");
    let recording = Recording::read(&file).expect("a readable recording");
    let thread = &recording.threads()[0];
    assert_eq!(thread.losses, [0; 0]);
    let mut items: Vec<Item<'_>> = recording.items(thread).expect("a table").collect();
    assert!(matches!(items.pop(), Some(Item::Signal(11, 0))));
    let time = items.pop();
    assert!(matches!(time, Some(Item::Time(time)) if time > thread.blocks[0].header.first_tsc), "{time:?}");
}

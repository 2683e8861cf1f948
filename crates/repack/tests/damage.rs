//! Every container, truncated and damaged anywhere: no panic, and memory stays in proportion.

use std::{fs, mem::size_of, path::Path, sync::OnceLock};

use hodo_formats::{
    Input, Unpacked,
    perf::layout::PIPE_HEADER_SIZE,
    recording::{Piece, Recording, Sideband},
};
use hodo_model::Loss;
use hodo_repack::{Recorded, compressed, file, folder, in_samples, per_cpu, pipe};
use proptest::prelude::*;

/// The index of the pipe in [`forms`].
const PIPE: usize = 1;

/// A small recording in every form; for a folder, its `data`.
fn forms() -> &'static [Vec<u8>] {
    static FORMS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FORMS.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf/tiny.data");
        let recorded = Recorded::read(&fs::read(path).expect("a fixture"));
        let samples = in_samples(&recorded);
        let first = folder(&recorded).remove("data").expect("the first file");
        let cpus = file(&per_cpu(&recorded));
        vec![
            file(&recorded),
            pipe(&recorded),
            compressed(&recorded),
            first,
            cpus,
            file(&samples),
            compressed(&samples),
        ]
    })
}

/// Memory that a recording takes in addition to its file, in bytes.
fn weight(recording: &Recording<'_>) -> usize {
    let pieces: usize = recording.streams.iter().map(|stream| stream.pieces.len()).sum();
    recording.sideband.len() * size_of::<Sideband<'_>>()
        + pieces * size_of::<Piece<'_>>()
        + recording.loss.len() * size_of::<Loss>()
}

fn check(bytes: &[u8]) {
    let unpacked = Unpacked::default();
    if let Ok(recording) = hodo_formats::read(&Input::file(bytes, &unpacked)) {
        assert!(weight(&recording) < 64 * bytes.len() + 4096);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damage_never_panics_and_memory_stays_in_proportion(
        form in 0..forms().len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 0..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = forms()[form].clone();
        for (index, mask) in flips {
            let offset = index.index(bytes.len());
            bytes[offset] ^= mask;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        check(&bytes);
    }
}

#[test]
fn a_pipe_that_is_cut_anywhere_gives_only_records_of_the_whole() {
    let pipe = &forms()[PIPE];
    let unpacked = Unpacked::default();
    let whole = hodo_formats::read(&Input::file(pipe, &unpacked)).expect("a recording");
    assert_eq!(whole.loss, []);
    for end in PIPE_HEADER_SIZE as usize..pipe.len() {
        let cut = hodo_formats::read(&Input::file(&pipe[..end], &unpacked)).expect("a recording");
        let mut rest = whole.sideband.iter();
        assert!(cut.sideband.iter().all(|record| rest.any(|other| other == record)), "at {end}");
    }
}

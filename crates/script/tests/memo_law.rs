//! The law: memoizing the effect of packets changes no result, however a recording is cut or damaged.

use std::{fs, path::PathBuf};

use hodo_analyses::profile::{Functions, Profile, ProfileReport};
use hodo_engine::{Chunks, FileSearchPaths, Files, Input, KernelFiles, Options, Reading, Trace, profile};
use hodo_model::Every;
use hodo_script::{Format, flow};
use proptest::prelude::*;

const RECORDINGS: [&str; 3] = ["tiny.data", "tiny-exact-time.data", "tiny-no-return-compression.data"];

/// Returns all results of a recording as text, computed with or without memoized paths.
fn results(recording: &[u8], every: Option<Every>, chunk_size: u64, threads: usize, memo: bool) -> String {
    let fixtures = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/perf"));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), recording).unwrap();
    let files = Files::default();
    let places = FileSearchPaths { symfs: Some(fixtures.join("symfs")), build_ids: None, beside: None };
    let kernel = KernelFiles { kallsyms: None, kcore: None, vmlinux: None };
    let options = Options { places, kernel, ..Options::default() };
    let input = Input::File(file.path().to_owned());
    let trace = match Trace::open(&files, &input, &options) {
        Ok(trace) => trace,
        Err(error) => return format!("{:?}", error.reason),
    };
    let chunks = Chunks::Bytes(chunk_size);
    let reading = Reading { memo, ..Reading::new(threads, chunks) };
    let mut reported = String::new();
    for report in [ProfileReport::Functions, ProfileReport::Tree] {
        let analysis = Profile { report, every };
        reported += &format!("{:?}\n", profile(&trace, &analysis, reading, |_| true));
    }
    let functions = profile(&trace, &Functions, reading, |_| true);
    if every.is_none() {
        let tree = Profile { report: ProfileReport::Functions, every };
        assert_eq!(functions, profile(&trace, &tree, reading, |_| true));
    }
    reported += &format!("{functions:?}\n");
    let mut calls = Vec::new();
    let limit = None;
    flow::calls(&trace, Format::Text, reading, limit, &mut calls, |_| true);
    reported + &String::from_utf8_lossy(&calls)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_memo_changes_no_result(
        which in 0..RECORDINGS.len(),
        chunk_size in prop_oneof![64u64..4096, Just(1 << 20)],
        threads in 1usize..4,
        every in prop::option::of((1u64..5000).prop_map(Every::Nanoseconds)),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
    ) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/perf/");
        let mut recording = fs::read(format!("{folder}{}", RECORDINGS[which])).unwrap();
        // Most bytes of the second half are trace.
        let half = recording.len() / 2;
        for (position, byte) in damage {
            let position = half + position.index(half);
            recording[position] = byte;
        }
        let memo = true;
        let memoized = results(&recording, every, chunk_size, threads, memo);
        let (whole, one_thread, memo) = (1 << 30, 1, false);
        prop_assert_eq!(memoized, results(&recording, every, whole, one_thread, memo));
    }
}

#[test]
fn the_results_of_fixtures_have_functions() {
    for name in RECORDINGS {
        let path = format!("{}/../../fixtures/perf/{name}", env!("CARGO_MANIFEST_DIR"));
        let (every, chunk_size, threads, memo) = (None, 1 << 20, 1, true);
        let reported = results(&fs::read(path).unwrap(), every, chunk_size, threads, memo);
        assert!(reported.contains("twice"), "{reported}");
    }
}

//! Parts that processes folded, forged: their sum is right, their states are not what was folded. The first byte
//! chooses the analysis, and each four that follow change a byte of one of two parts.

#![no_main]

use std::{path::Path, sync::LazyLock};

use hodo_analyses::kernel_analyses;
use hodo_engine::{
    Files,
    events::{Chunks, EventReading, EventTraces, Part, Portion, fold_part, merge_parts},
};
use hodo_trace::{AnyEventAnalysis, Choice};
use libfuzzer_sys::fuzz_target;

/// What a file with a part begins with, and the length of its sum.
const BEFORE: usize = "hodo part\n".len() + 4;

type Folded = (&'static dyn AnyEventAnalysis, [Vec<u8>; 2]);

/// Each analysis and two parts of a trace.
static PARTS: LazyLock<Vec<Folded>> = LazyLock::new(|| {
    let files = Files::default();
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/ctf/lttng2.13-kernel");
    let traces = EventTraces::open(&files, &input, 1, |_, _| ()).expect("a fixture");
    let reading = EventReading { threads: 1, chunks: Chunks::Bytes(1 << 14), from: None, to: None };
    let fold = |(name, analysis)| {
        let part = |portion| {
            let portion = Portion::parse(portion).expect("there is one");
            fold_part(&traces, &[(name, Some(analysis))], portion, &reading, |_| true).to_bytes()
        };
        (analysis, ["1/2", "2/2"].map(part))
    };
    kernel_analyses("all").map(|(entry, analysis)| (entry.name, analysis)).map(fold).collect()
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, edits)) = bytes.split_first() else { return };
    let (analysis, parts) = &PARTS[usize::from(which) % PARTS.len()];
    let mut parts = parts.clone();
    for edit in edits.chunks_exact(4) {
        let part = &mut parts[usize::from(edit[0] & 1)];
        let place = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % (part.len() - BEFORE);
        part[BEFORE + place] = edit[3];
        let sum = crc32fast::hash(&part[BEFORE..]).to_le_bytes();
        part[BEFORE - 4..BEFORE].copy_from_slice(&sum);
    }
    let parts: Result<Vec<Part>, _> = parts.iter().map(|part| Part::from_bytes(part)).collect();
    let view = analysis.views()[usize::from(which) % analysis.views().len()].to_owned();
    let choice = Choice { view, ..Choice::default() };
    let _ = parts.map(|parts| merge_parts(parts, &[*analysis], &choice));
});

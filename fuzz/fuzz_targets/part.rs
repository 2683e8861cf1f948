//! Parts that processes folded, forged: their sum is right, their partials are not what was folded. The first byte
//! chooses the report, and each four that follow change a byte of one of two parts.

#![no_main]

use std::{path::Path, sync::LazyLock};

use hodo_engine::{Chunks, Experiment, Input, Needs, Options, Part, Portion, Request, reports};
use hodo_model::{Selection, Parameters};
use libfuzzer_sys::fuzz_target;

/// What a file with a part begins with, and the length of its sum.
const BEFORE: usize = "hodo part\n".len() + 4;

/// A report's views, its two parts of a trace, and the trace.
struct Folded {
    views: &'static [&'static str],
    parts: [Vec<u8>; 2],
    experiment: &'static Experiment,
}

/// Each report.
static PARTS: LazyLock<Vec<Folded>> = LazyLock::new(|| {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let open = |name: &str| -> &'static Experiment {
        let input = vec![Input::File(fixtures.join(name))];
        let opened = Experiment::open(input, &Options::default(), Needs::ALL, 1, |_, _| ());
        Box::leak(Box::new(opened.expect("a fixture")))
    };
    let traces = [open("ctf/lttng2.13-kernel"), open("perf/tiny.data")];
    let fold = |(experiment, report): (&'static Experiment, &'static hodo_engine::AnyReport)| {
        let chunks = Chunks::Bytes(1 << 14);
        let request = Request { chunks, ..Request::of(vec![report], Parameters::default()) };
        let part = |portion| {
            let portion = Portion::parse(portion).expect("there is one");
            Some(experiment.fold(&request, &[], portion, &mut |_| true).ok()?.to_bytes())
        };
        let parts = [part("1/2")?, part("2/2")?];
        Some(Folded { views: report.description().views, parts, experiment })
    };
    let all = traces.into_iter().flat_map(|trace| reports().iter().map(move |report| (trace, report)));
    all.filter_map(fold).collect()
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, edits)) = bytes.split_first() else { return };
    let Folded { views, parts, experiment } = &PARTS[usize::from(which) % PARTS.len()];
    let mut parts = parts.clone();
    for edit in edits.chunks_exact(4) {
        let part = &mut parts[usize::from(edit[0] & 1)];
        let offset = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % (part.len() - BEFORE);
        part[BEFORE + offset] = edit[3];
        let sum = crc32fast::hash(&part[BEFORE..]).to_le_bytes();
        part[BEFORE - 4..BEFORE].copy_from_slice(&sum);
    }
    let parts: Result<Vec<Part>, _> = parts.iter().map(|part| Part::from_bytes(part)).collect();
    let view = views.get(usize::from(which) % views.len().max(1)).copied().unwrap_or_default();
    let selection = Selection { view: view.to_owned(), ..Selection::default() };
    let _ = parts.and_then(Part::merge).and_then(|whole| whole.tables(&selection, Some(experiment), 1));
});

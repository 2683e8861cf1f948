//! Any blocks as a native recording: reports can be made of it, whatever is read becomes packets, block by block, of bounded
//! length, and a file cut in half gives no more streams.

#![no_main]

use hodo_engine::{Experiment, Input, Needs, Options, Request, report};
use hodo_formats::{Input as FormatInput, Unpacked, native, recording::StreamKind};
use hodo_model::Parameters;
use hodo_native_log::{BlockHeader, BlockKind, Codec, Writer, empty, packets};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

#[derive(Arbitrary, Debug)]
struct FuzzedBlock {
    kind: u8,
    packed: bool,
    key: u8,
    table: u8,
    sequence: u8,
    first_tsc: u16,
    last_tsc: u16,
    content: Vec<u8>,
}

fuzz_target!(|blocks: Vec<FuzzedBlock>| {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    for block in &blocks {
        let kinds = [BlockKind::Log, BlockKind::Table, BlockKind::Clock, BlockKind::Loss, BlockKind::Snapshot, BlockKind::Facts];
        let kind = kinds[usize::from(block.kind) % kinds.len()];
        let packed = block.packed && kind == BlockKind::Log;
        let header = BlockHeader {
            codec: Codec { packed, lz4: false },
            // How many bytes packed ones become is a guess.
            length: block.content.len() as u32 * if block.packed { 8 } else { 1 },
            key: (block.key % 4).into(),
            table_key: (block.table % 4).into(),
            sequence: (block.sequence % 8).into(),
            first_tsc: block.first_tsc.into(),
            last_tsc: block.last_tsc.into(),
            process: (block.table % 4).into(),
            thread: (block.key % 4).into(),
            ..empty(kind)
        };
        writer.block(header, &block.content).expect("memory");
    }
    let file = writer.into_inner();
    make_reports(&file);
    let unpacked = Unpacked::default();
    let Ok(read) = native::read(&FormatInput::file(&file, &unpacked)) else { return };
    for stream in &read.streams {
        let StreamKind::Log(log) = &stream.kind else { continue };
        let mut converter = packets::Converter::new(log, packets::Options { return_compression: true });
        for index in 0..log.blocks.len() {
            if let Ok(segment) = converter.segment(index) {
                assert!(segment.length <= segment.bytes.len());
            }
        }
    }
    if let Ok(half) = native::read(&FormatInput::file(&file[..file.len() / 2], &unpacked)) {
        assert!(half.streams.len() <= read.streams.len());
    }
});

/// Makes reports by paths, by function runs and by blocks.
fn make_reports(file: &[u8]) {
    let path = std::env::temp_dir().join(format!("hodo-fuzz-native-{}.data", std::process::id()));
    std::fs::write(&path, file).expect("space on the disk");
    let opened = Experiment::open(vec![Input::File(path)], &Options::default(), Needs::ALL, 1, |_, _| ());
    let Ok(experiment) = opened else { return };
    let made = ["functions", "blocks", "tree"].into_iter().filter_map(report).collect();
    let request = Request::of(made, Parameters::default());
    _ = experiment.run(&request, &mut |_| true);
}

//! Texts that fields of tracepoints point to.

use hodo_formats::perf::{
    layout::{TYPE_TRACEPOINT, feature, record, sample},
    samples,
};
use hodo_formats::{Input, Unpacked};

use crate::{
    file::{Bytes, PerfFile},
    show,
};

const ID: u64 = 77;
const FORMAT: &str = "name: rcu_utilization\nID: 77\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:const char * s;\toffset:8;\tsize:8;\tsigned:0;\n\nprint fmt: \"%s\", REC->s\n";

/// The description of the tracepoint, with a list of texts.
fn tracing_data(texts: &str) -> Vec<u8> {
    let sized = |bytes: Bytes, text: &str| bytes.u64([text.len() as u64]).raw(text.as_bytes());
    let head = Bytes::new().raw(b"\x17\x08\x44tracing0.6\0\0\x08").u32([4096]);
    let head = sized(sized(head.raw(b"header_page\0"), "page").raw(b"header_event\0"), "event");
    let formats = sized(head.u32([0, 1]).raw(b"rcu\0").u32([1]), FORMAT);
    formats.u32([0, texts.len() as u32]).raw(texts.as_bytes()).0
}

fn lines(texts: &str) -> Vec<String> {
    let fields = sample::TID | sample::TIME | sample::RAW;
    let mut file = PerfFile::new(&[fields]);
    file.attrs[0].0[..4].copy_from_slice(&TYPE_TRACEPOINT.to_le_bytes());
    file.attrs[0].0[8..16].copy_from_slice(&ID.to_le_bytes());
    for (time, address) in [(5, 0xffff_ffff_8200_0100), (6, 1)] {
        let raw = Bytes::new().u32([ID as u32, 7]).u64([address]).0;
        let body = Bytes::new().u32([7, 7]).u64([time]).u32([20]).raw(&raw).u32([0]);
        file.record(record::SAMPLE, 0, body);
    }
    file.features.insert(feature::TRACING_DATA, tracing_data(texts));
    let bytes = file.finish();
    let unpacked = Unpacked::default();
    let traces = samples::read(&Input::file(&bytes, &unpacked)).unwrap();
    traces.iter().flat_map(show::read).collect()
}

#[test]
fn texts_that_fields_point_to_are_shown_where_the_file_lists_them() {
    let read = lines("0xffffffff82000100 : \"Start context switch\"\n");
    assert!(read[0].contains(" s_name=\"Start context switch\" common_pid=7 "), "{read:?}");
    assert!(!read[1].contains("s_name") && read[1].ends_with(" s=1"), "{read:?}");
    assert!(!lines("")[0].contains("s_name"));
}

//! Any bytes as a jitdump, a perf map or a list of the kernel's symbols: whatever is read lies within the
//! bytes, and a file that is cut gives no more.

#![no_main]

use hodo_symbols::{JitDump, JitRecordKind, kallsyms, perf_map};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let records = dump(bytes);
    assert!(dump(&bytes[..bytes.len() / 2]) <= records);
    let lines = bytes.iter().filter(|&&byte| byte == b'\n').count() + 1;
    assert!(
        perf_map(bytes).inspect(|entry| assert!(entry.size > 0 && !entry.name.is_empty())).count() <= lines
    );
    assert!(kallsyms(bytes).inspect(|entry| assert!(!entry.name.is_empty())).count() <= lines);
});

/// How many records are whole.
fn dump(bytes: &[u8]) -> usize {
    // Most random input is no jitdump; all of it is taken for the records of one.
    let mut header = 0x4a69_5444u32.to_le_bytes().to_vec();
    // Version, size of the header, EM_X86_64, padding, process.
    header.extend([1u32, 40, 62, 0, 7].iter().flat_map(|word| word.to_le_bytes()));
    header.extend([0; 16]);
    if let Ok(dump) = JitDump::parse(bytes) {
        dump.records().for_each(drop);
    }
    let whole = [&header[..], bytes].concat();
    let dump = JitDump::parse(&whole).expect("the header is whole");
    let records = dump.records().inspect(|record| {
        if let Ok(JitRecordKind::Load { code, size, name, .. }) = record.as_ref().map(|record| record.kind) {
            assert!(code.len() as u64 <= size && code.len() + name.len() <= bytes.len());
        }
    });
    records.filter(Result::is_ok).count()
}

//! Writes a perf.data in other containers: the same trace and sideband as other ways of recording write them. For tests
//! and judges only.
//!
//! ```text
//! perf.data ──Recorded──┬─► records over a pipe      ─┐
//!                       ├─► a folder of files         │
//!                       ├─► compressed records        ├─► bytes of files that perf reads too
//!                       ├─► a stream a CPU            │
//!                       └─► trace in samples         ─┘
//! ```
//!
//! A broken input is a broken test: it panics.

mod cpus;
mod recorded;
mod samples;
mod segments;

use std::collections::BTreeMap;

use hodo_formats::perf::layout::{FILE_HEADER_SIZE, MAGIC, PIPE_HEADER_SIZE, SECTION_SIZE, feature, record};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

pub use cpus::per_cpu;
pub use recorded::{RawRecord, Recorded};
pub use samples::in_samples;

/// Bytes of records per compressed record.
const PACKED_TOGETHER: usize = 1 << 14;

/// The file as `perf record` writes it.
pub fn file(recorded: &Recorded) -> Vec<u8> {
    let Recorded { attrs, records, features } = recorded;
    let ids: Vec<u8> = attrs.iter().flat_map(|(_, ids)| words(ids)).collect();
    let attr_size = attrs[0].0.len() as u64 + SECTION_SIZE;
    let attrs_at = FILE_HEADER_SIZE + ids.len() as u64;
    let data_at = attrs_at + attr_size * attrs.len() as u64;
    let data: Vec<u8> = records.iter().flat_map(RawRecord::bytes).collect();
    let mut features = features.clone();
    if features.contains_key(&feature::AUXTRACE) {
        features.insert(feature::AUXTRACE, index(records, data_at));
    }
    let mut bits = [0; 32];
    features.keys().for_each(|bit| bits[usize::from(bit / 8)] |= 1 << (bit % 8));
    let mut file = MAGIC.to_vec();
    let attrs_size = attr_size * attrs.len() as u64;
    file.extend(words(&[
        FILE_HEADER_SIZE,
        attr_size,
        attrs_at,
        attrs_size,
        data_at,
        data.len() as u64,
        0,
        0,
    ]));
    file.extend(bits);
    file.extend(&ids);
    let mut ids_at = FILE_HEADER_SIZE;
    for (attr, ids) in attrs {
        file.extend(attr);
        file.extend(words(&[ids_at, 8 * ids.len() as u64]));
        ids_at += 8 * ids.len() as u64;
    }
    file.extend(&data);
    let mut offset = file.len() as u64 + SECTION_SIZE * features.len() as u64;
    for section in features.values() {
        file.extend(words(&[offset, section.len() as u64]));
        offset += section.len() as u64;
    }
    features.values().for_each(|section| file.extend(section));
    file
}

/// The positions of the AUXTRACE records, in the format of the index.
fn index(records: &[RawRecord], data_at: u64) -> Vec<u8> {
    let mut offset = data_at;
    let mut entries = Vec::new();
    for kept in records {
        if kept.kind == record::AUXTRACE {
            entries.push([offset, kept.body.len() as u64 + 8]);
        }
        offset += kept.bytes().len() as u64;
    }
    [words(&[entries.len() as u64]), words(entries.as_flattened())].concat()
}

/// The output of `perf record -o -`. Features that don't fit into a record are left out, as is the index of AUXTRACE: its
/// positions are those of a file.
pub fn pipe(recorded: &Recorded) -> Vec<u8> {
    let mut out = [&MAGIC[..], &PIPE_HEADER_SIZE.to_le_bytes()].concat();
    for (attr, ids) in &recorded.attrs {
        out.extend(RawRecord::new(record::HEADER_ATTR, 0, [&attr[..], &words(ids)].concat()).bytes());
    }
    for (bit, section) in recorded.features.iter().filter(|(bit, _)| **bit != feature::AUXTRACE) {
        let body = [&words(&[u64::from(*bit)])[..], section].concat();
        if body.len() < usize::from(u16::MAX) - 8 {
            out.extend(RawRecord::new(record::HEADER_FEATURE, 0, body).bytes());
        }
    }
    out.extend(recorded.records.iter().flat_map(RawRecord::bytes));
    out
}

/// The files of the folder that `perf record --threads` writes: the kernel's records alternate between two files, all
/// others are in `data`.
pub fn folder(recorded: &Recorded) -> BTreeMap<String, Vec<u8>> {
    let mut parts = [Vec::new(), Vec::new()];
    let mut first = Recorded { records: Vec::new(), ..recorded.clone() };
    first.features.insert(feature::DIR_FORMAT, words(&[1]));
    for (number, kept) in recorded.records.iter().enumerate() {
        if kept.kind < record::USER_START {
            parts[number % 2].extend(kept.bytes());
        } else if kept.kind != record::FINISHED_ROUND {
            // Rounds concern a single file; a recorder with threads writes none.
            first.records.push(kept.clone());
        }
    }
    let [part_0, part_1] = parts;
    [("data", file(&first)), ("data.0", part_0), ("data.1", part_1)]
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .into()
}

/// The output of `perf record -z`, with the kernel's records compressed.
pub fn compressed(recorded: &Recorded) -> Vec<u8> {
    let mut packed = Recorded { records: Vec::new(), ..recorded.clone() };
    let version_type_level_ratio_length = [1u32, 1, 1, 4, 1 << 20].map(u32::to_le_bytes).concat();
    packed.features.insert(feature::COMPRESSED, version_type_level_ratio_length);
    let mut waiting = Vec::new();
    for kept in &recorded.records {
        if kept.kind < record::USER_START {
            waiting.extend(kept.bytes());
            continue;
        }
        pack(&mut waiting, &mut packed.records);
        packed.records.push(kept.clone());
    }
    pack(&mut waiting, &mut packed.records);
    file(&packed)
}

/// Moves the waiting bytes into compressed records.
fn pack(waiting: &mut Vec<u8>, records: &mut Vec<RawRecord>) {
    for bytes in waiting.chunks(PACKED_TOGETHER) {
        let body = compress_to_vec(bytes, CompressionLevel::Fastest);
        records.push(RawRecord::new(record::COMPRESSED, 0, body));
    }
    waiting.clear();
}

/// Little-endian words.
fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

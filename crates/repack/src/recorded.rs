//! The parts of a perf.data.

use std::collections::BTreeMap;

use hodo_clock::PerfClock;
use hodo_formats::{
    Input, Unpacked,
    perf::{
        self,
        layout::{FEATURES_OFFSET, SECTION_SIZE, feature, record},
    },
};

use crate::file;

/// The parts of a perf.data.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Each event's `perf_event_attr` and ids.
    pub attrs: Vec<(Vec<u8>, Vec<u64>)>,
    /// All records.
    pub records: Vec<RawRecord>,
    /// Feature sections by their bits.
    pub features: BTreeMap<u8, Vec<u8>>,
}

/// A record.
#[derive(Clone, Debug)]
pub struct RawRecord {
    /// Its type.
    pub kind: u32,
    /// Its header's `misc` bits.
    pub misc: u16,
    /// The bytes after the header.
    pub body: Vec<u8>,
    /// The bytes after the record.
    pub trailing: Vec<u8>,
}

impl RawRecord {
    /// A record with no bytes after it.
    pub fn new(kind: u32, misc: u16, mut body: Vec<u8>) -> RawRecord {
        if kind != record::COMPRESSED {
            body.resize(body.len().next_multiple_of(8), 0);
        }
        RawRecord { kind, misc, body, trailing: Vec::new() }
    }

    /// The bytes in a file.
    pub fn bytes(&self) -> Vec<u8> {
        let size = u16::try_from(self.body.len() + 8).expect("a record fits in its size");
        let header = [&self.kind.to_le_bytes()[..], &self.misc.to_le_bytes(), &size.to_le_bytes()].concat();
        [&header[..], &self.body, &self.trailing].concat()
    }

    /// A word of the body, counted from its end.
    pub(crate) fn word_from_end(&self, word: usize) -> u64 {
        let start = self.body.len() - 8 * word;
        u64::from_le_bytes(self.body[start..start + 8].try_into().expect("eight bytes"))
    }

    /// Sets a word of the body, counted from its end.
    pub(crate) fn set_word_from_end(&mut self, word: usize, value: u64) {
        let start = self.body.len() - 8 * word;
        self.body[start..start + 8].copy_from_slice(&value.to_le_bytes());
    }
}

impl Recorded {
    /// Parses a file.
    pub fn read(bytes: &[u8]) -> Recorded {
        let file = perf::File::open(bytes).expect("a perf.data");
        let word =
            |offset: u64| u64::from_le_bytes(bytes[offset as usize..][..8].try_into().expect("eight bytes"));
        let (attr_size, attrs_at) = (word(16), word(24));
        let attrs = file.events.attrs.iter().enumerate().map(|(index, attr)| {
            let start = (attrs_at + attr_size * index as u64) as usize;
            (bytes[start..][..(attr_size - SECTION_SIZE) as usize].to_vec(), attr.ids.clone())
        });
        let records = file.records().map(|record| {
            let record = record.expect("a whole record");
            let (body, trailing) = (record.body.to_vec(), record.trailing.to_vec());
            RawRecord { kind: record.kind, misc: record.misc, body, trailing }
        });
        let bits = &bytes[FEATURES_OFFSET..FEATURES_OFFSET + 32];
        let present = (0..=u8::MAX).filter(|bit| bits[usize::from(bit / 8)] >> (bit % 8) & 1 == 1);
        let features = present.zip(0..).map(|(bit, index)| {
            let entry = file.data.end + SECTION_SIZE * index;
            (bit, bytes[word(entry) as usize..][..word(entry + 8) as usize].to_vec())
        });
        let features = features.collect::<BTreeMap<u8, Vec<u8>>>();
        assert!(!features.contains_key(&feature::COMPRESSED), "records are compressed already");
        Recorded { attrs: attrs.collect(), records: records.collect(), features }
    }

    /// The bytes of each thread's trace, in order, by thread id.
    pub(crate) fn traces(&self) -> BTreeMap<u32, Vec<u8>> {
        let mut traces: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for kept in self.records.iter().filter(|kept| kept.kind == record::AUXTRACE) {
            let tid = u32::from_le_bytes(kept.body[28..32].try_into().expect("four bytes"));
            traces.entry(tid).or_default().extend(&kept.trailing);
        }
        traces
    }

    /// The conversion of ticks to nanoseconds.
    pub(crate) fn clock(&self) -> PerfClock {
        let unpacked = Unpacked::default();
        let bytes = file(self);
        let recording = hodo_formats::read(&Input::file(&bytes, &unpacked)).expect("a recording");
        recording.config.clock.expect("a clock")
    }

    /// The process of each thread, by thread id, according to ITRACE_START records.
    pub(crate) fn processes(&self) -> BTreeMap<u32, u32> {
        let starts = self.records.iter().filter(|kept| kept.kind == record::ITRACE_START);
        let word = |kept: &RawRecord, offset: usize| {
            u32::from_le_bytes(kept.body[offset..offset + 4].try_into().expect("four bytes"))
        };
        starts.map(|kept| (word(kept, 4), word(kept, 0))).collect()
    }
}

//! Builds small perf.data files for tests, byte by byte.

use std::collections::BTreeMap;

use hodo_formats::{
    Input,
    error::Error,
    perf::layout::{
        AUXTRACE_ALIGNMENT, AUXTRACE_SIZE, FILE_HEADER_SIZE, MAGIC, RECORD_HEADER_SIZE, SECTION_SIZE,
        attr_flag, feature, intel_pt_config, intel_pt_info, record, sample,
    },
    recording::Recording,
};

/// Reads a file, and leaks the unpacked bytes.
pub(crate) fn read(bytes: &[u8]) -> Result<Recording<'_>, Error> {
    hodo_formats::read(&Input::file(bytes, Box::leak(Box::default())))
}

/// The `type` of Intel PT's events in these files.
pub(crate) const PMU: u32 = 8;
/// Size of a `perf_event_attr` in these files: the first published version.
const ATTR_SIZE: u64 = 64;

/// A builder of little-endian bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    /// Creates an empty builder.
    pub(crate) fn new() -> Bytes {
        Bytes::default()
    }

    /// Adds 32-bit numbers.
    pub(crate) fn u32(mut self, numbers: impl IntoIterator<Item = u32>) -> Bytes {
        self.0.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
        self
    }

    /// Adds 64-bit numbers.
    pub(crate) fn u64(mut self, numbers: impl IntoIterator<Item = u64>) -> Bytes {
        self.0.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        self
    }

    /// Adds bytes.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Bytes {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a text with its NUL, padded to eight bytes.
    pub(crate) fn text(mut self, text: &str) -> Bytes {
        self.0.extend_from_slice(text.as_bytes());
        self.0.resize((self.0.len() + 8) & !7, 0);
        self
    }

    /// Adds a text of a feature section: padded length and bytes.
    pub(crate) fn counted_text(self, text: &str) -> Bytes {
        let padded = Bytes::new().text(text).0;
        self.u32([padded.len() as u32]).raw(&padded)
    }
}

/// A perf.data under construction.
#[derive(Clone, Debug)]
pub(crate) struct PerfFile {
    /// Words of each attr, and the ids of its event.
    pub(crate) attrs: Vec<(Vec<u8>, Vec<u64>)>,
    /// The records so far.
    pub(crate) records: Vec<u8>,
    /// Offset of each AUXTRACE record in `records`.
    pub(crate) traces: Vec<u64>,
    /// Feature sections.
    pub(crate) features: BTreeMap<u8, Vec<u8>>,
}

/// Settings of Intel PT.
#[derive(Default)]
pub(crate) struct Settings {
    /// The time of tick 0 of the processor's clock, of which each tick takes 1 ns.
    pub(crate) zero: u64,
    pub(crate) snapshots: bool,
    pub(crate) per_cpu: bool,
    pub(crate) filter: &'static str,
}

impl PerfFile {
    /// A file of events with these `sample_type`s, each with ids `100·n + 1` and `100·n + 2`. All are Intel PT with
    /// TSC, MTC (period 3) and CYC.
    pub(crate) fn new(sample_types: &[u64]) -> PerfFile {
        let flags = attr_flag::SAMPLE_ID_ALL;
        let config = intel_pt_config::TSC | intel_pt_config::MTC | intel_pt_config::CYC | 3 << 14;
        let attr = |&sample_type: &u64| {
            Bytes::new().u32([PMU, ATTR_SIZE as u32]).u64([config, 1, sample_type, 0, flags, 0, 0]).0
        };
        let ids = |event: usize| vec![100 * event as u64 + 1, 100 * event as u64 + 2];
        let attrs =
            sample_types.iter().map(attr).enumerate().map(|(event, attr)| (attr, ids(event))).collect();
        PerfFile { attrs, records: Vec::new(), traces: Vec::new(), features: BTreeMap::new() }
    }

    /// Adds a record.
    pub(crate) fn record(&mut self, kind: u32, misc: u16, body: Bytes) -> &mut PerfFile {
        let size = body.0.len() as u16 + RECORD_HEADER_SIZE;
        let header = Bytes::new().u32([kind]).raw(&misc.to_le_bytes()).raw(&size.to_le_bytes());
        self.records.extend(header.raw(&body.0).0);
        self
    }

    /// Adds an AUXTRACE record and its padded bytes.
    pub(crate) fn trace(&mut self, tid: u32, cpu: u32, offset: u64, bytes: &[u8]) -> &mut PerfFile {
        self.traces.push(self.records.len() as u64);
        let size = (bytes.len() as u64).next_multiple_of(AUXTRACE_ALIGNMENT);
        self.record(record::AUXTRACE, 0, Bytes::new().u64([size, offset, 0]).u32([0, tid, cpu, 0]));
        self.records.extend_from_slice(bytes);
        self.records.resize(self.records.len() + (size as usize - bytes.len()), 0);
        self
    }

    /// Adds the Intel PT settings.
    pub(crate) fn settings(&mut self, settings: &Settings) -> &mut PerfFile {
        let Settings { zero, snapshots, per_cpu, filter } = *settings;
        let mut words = [0; intel_pt_info::WORDS];
        words[intel_pt_info::PMU_TYPE] = u64::from(PMU);
        words[intel_pt_info::TIME_SHIFT] = 10;
        words[intel_pt_info::TIME_MULT] = 1024;
        words[intel_pt_info::TIME_ZERO] = zero;
        words[intel_pt_info::CAP_USER_TIME_ZERO] = 1;
        words[intel_pt_info::TSC_BIT] = intel_pt_config::TSC;
        words[intel_pt_info::NORETCOMP_BIT] = intel_pt_config::NORETCOMP;
        words[intel_pt_info::SNAPSHOT_MODE] = u64::from(snapshots);
        words[intel_pt_info::PER_CPU_MMAPS] = u64::from(per_cpu);
        words[intel_pt_info::MTC_BIT] = intel_pt_config::MTC;
        words[intel_pt_info::MTC_FREQ_BITS] = intel_pt_config::MTC_PERIOD;
        words[intel_pt_info::TSC_CTC_N] = 40;
        words[intel_pt_info::TSC_CTC_D] = 1;
        words[intel_pt_info::CYC_BIT] = intel_pt_config::CYC;
        words[intel_pt_info::MAX_NONTURBO_RATIO] = 10;
        words[intel_pt_info::FILTER_STR_LEN] = filter.len() as u64;
        let body = Bytes::new().u32([1, 0]).u64(words);
        let body = if filter.is_empty() { body } else { body.text(filter) };
        self.record(record::AUXTRACE_INFO, 0, body)
    }

    /// Offset of the records in the finished file.
    pub(crate) fn data_start(&self) -> u64 {
        let ids: usize = self.attrs.iter().map(|(_, ids)| ids.len()).sum();
        FILE_HEADER_SIZE + 8 * ids as u64 + self.attrs.len() as u64 * (ATTR_SIZE + SECTION_SIZE)
    }

    /// Builds the file, with an index of its trace.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let data = self.data_start();
        let attrs_size = self.attrs.len() as u64 * (ATTR_SIZE + SECTION_SIZE);
        let mut features = self.features.clone();
        let index = self.traces.iter().flat_map(|offset| [data + offset, u64::from(AUXTRACE_SIZE)]);
        features.insert(feature::AUXTRACE, Bytes::new().u64([self.traces.len() as u64]).u64(index).0);
        let mut bits = [0u8; 32];
        features.keys().for_each(|bit| bits[usize::from(bit / 8)] |= 1 << (bit % 8));
        let sections = [data - attrs_size, attrs_size, data, self.records.len() as u64, 0, 0];
        let header = Bytes::new().raw(MAGIC).u64([FILE_HEADER_SIZE, ATTR_SIZE + SECTION_SIZE]);
        let mut file = header.u64(sections).raw(&bits);
        let mut ids_offset = FILE_HEADER_SIZE;
        file = file.u64(self.attrs.iter().flat_map(|(_, ids)| ids.iter().copied()));
        for (attr, ids) in &self.attrs {
            let size = 8 * ids.len() as u64;
            file = file.raw(attr).u64([ids_offset, size]);
            ids_offset += size;
        }
        file = file.raw(&self.records);
        let mut offset = data + self.records.len() as u64 + features.len() as u64 * SECTION_SIZE;
        for section in features.values() {
            file = file.u64([offset, section.len() as u64]);
            offset += section.len() as u64;
        }
        features.values().fold(file, |file, section| file.raw(section)).0
    }
}

/// The fields that perf samples for Intel PT.
pub(crate) const FIELDS: u64 = sample::IP | sample::TID | sample::TIME | sample::CPU | sample::IDENTIFIER;

/// A trailer of [`FIELDS`].
pub(crate) fn trailer(thread: (u32, u32), time: u64, cpu: u32, id: u64) -> Vec<u8> {
    Bytes::new().u32([thread.0, thread.1]).u64([time]).u32([cpu, 0]).u64([id]).0
}

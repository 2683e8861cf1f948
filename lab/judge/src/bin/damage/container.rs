//! The parts of a perf.data, to be written again around other trace bytes.

use std::ops::Range;

use hodo_formats::perf::layout::{
    AUXTRACE_ALIGNMENT, FEATURES_OFFSET, RECORD_HEADER_SIZE, SECTION_SIZE, aux_flag, feature, intel_pt_info,
    record,
};

/// Offset of the header's word with the position of the records; their length follows.
const DATA_SECTION: usize = 40;
/// Size of a record's header.
const HEADER: usize = RECORD_HEADER_SIZE as usize;

/// A perf.data with the trace of one thread in one AUXTRACE record.
pub(crate) struct Container {
    bytes: Vec<u8>,
    /// The AUX record, which contains the size of the trace.
    aux: Range<usize>,
    /// The header and body of the AUXTRACE record.
    auxtrace: Range<usize>,
    trace: Range<usize>,
    data_end: usize,
    /// The offset of the word in AUXTRACE_INFO that marks snapshots.
    snapshot: usize,
}

/// Trace bytes with a separate AUX record.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    /// Their offset in the AUX area.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    /// The offset before which the recorder reports lost trace.
    pub(crate) lost_at: Option<u64>,
}

impl Container {
    /// Finds the parts of a recording of one thread.
    pub(crate) fn new(bytes: Vec<u8>) -> Result<Container, String> {
        let mut offset = word(&bytes, DATA_SECTION) as usize;
        let data_end = offset + word(&bytes, DATA_SECTION + 8) as usize;
        let (mut aux, mut auxtrace, mut trace, mut snapshot) = (None, None, None, None);
        while offset < data_end {
            let kind = u32::from_le_bytes(array(&bytes, offset));
            let size = usize::from(u16::from_le_bytes(array(&bytes, offset + 6)));
            let mut end = offset + size;
            match kind {
                // The record's type precedes the private words.
                record::AUXTRACE_INFO => {
                    snapshot = Some(offset + HEADER + 8 * (1 + intel_pt_info::SNAPSHOT_MODE))
                }
                record::AUX => {
                    let earlier = aux.replace(offset..end);
                    if earlier.is_some() {
                        return Err("more than one AUX record".into());
                    }
                }
                record::AUXTRACE => {
                    auxtrace = Some(offset..end);
                    let length = word(&bytes, offset + HEADER) as usize;
                    trace = Some(end..end + length);
                    end += length;
                }
                _ => {}
            }
            offset = end;
        }
        let missing = || "a recording of one thread was expected".to_owned();
        Ok(Container {
            aux: aux.ok_or_else(missing)?,
            auxtrace: auxtrace.ok_or_else(missing)?,
            trace: trace.ok_or_else(missing)?,
            snapshot: snapshot.ok_or_else(missing)?,
            data_end,
            bytes,
        })
    }

    /// The bytes of the recorded trace.
    pub(crate) fn trace(&self) -> &[u8] {
        &self.bytes[self.trace.clone()]
    }

    /// The offset of the trace in the file.
    pub(crate) fn trace_offset(&self) -> u64 {
        self.trace.start as u64
    }

    /// The recording with these buffers as its trace, and the offset of each buffer's bytes in it.
    pub(crate) fn with(&self, buffers: &[Buffer], snapshots: bool) -> (Vec<u8>, Vec<u64>) {
        let mut file = self.bytes[..self.aux.start].to_vec();
        if snapshots {
            put(&mut file, self.snapshot, 1);
        }
        let (mut index, mut offsets) = (vec![buffers.len() as u64], Vec::new());
        for buffer in buffers {
            let end = buffer.offset + buffer.bytes.len() as u64;
            let overwrite = if snapshots { aux_flag::OVERWRITE } else { 0 };
            match buffer.lost_at {
                None => self.aux(&mut file, buffer.offset..end, overwrite),
                Some(lost_at) => {
                    self.aux(&mut file, buffer.offset..lost_at, aux_flag::TRUNCATED);
                    self.aux(&mut file, lost_at..end, overwrite);
                }
            }
            index.extend([file.len() as u64, self.auxtrace.len() as u64]);
            let head = file.len();
            file.extend_from_slice(&self.bytes[self.auxtrace.clone()]);
            let padded = buffer.bytes.len().next_multiple_of(AUXTRACE_ALIGNMENT as usize);
            put(&mut file, head + HEADER, padded as u64);
            put(&mut file, head + HEADER + 8, buffer.offset);
            offsets.push(file.len() as u64);
            file.extend_from_slice(&buffer.bytes);
            file.resize(file.len() + padded - buffer.bytes.len(), 0);
        }
        file.extend_from_slice(&self.bytes[self.trace.end..self.data_end]);
        let start = word(&file, DATA_SECTION);
        let length = file.len() as u64 - start;
        put(&mut file, DATA_SECTION + 8, length);
        self.features(&mut file, &index);
        (file, offsets)
    }

    /// Writes a copy of the recording's AUX record for these bytes.
    fn aux(&self, file: &mut Vec<u8>, bytes: Range<u64>, flags: u64) {
        let at = file.len() + HEADER;
        file.extend_from_slice(&self.bytes[self.aux.clone()]);
        put(file, at, bytes.start);
        put(file, at + 8, bytes.end - bytes.start);
        put(file, at + 16, flags);
    }

    /// The feature sections after the records, with a new index of the AUXTRACE records.
    fn features(&self, file: &mut Vec<u8>, index: &[u64]) {
        let bits = (0..=u8::MAX)
            .filter(|bit| self.bytes[FEATURES_OFFSET + usize::from(bit / 8)] >> (bit % 8) & 1 == 1);
        let sections: Vec<Vec<u8>> = (self.data_end..)
            .step_by(SECTION_SIZE as usize)
            .zip(bits)
            .map(|(at, bit)| match bit {
                feature::AUXTRACE => index.iter().flat_map(|word| word.to_le_bytes()).collect(),
                _ => {
                    let (offset, size) = (word(&self.bytes, at) as usize, word(&self.bytes, at + 8) as usize);
                    self.bytes[offset..offset + size].to_vec()
                }
            })
            .collect();
        let mut offset = file.len() as u64 + sections.len() as u64 * SECTION_SIZE;
        for section in &sections {
            file.extend_from_slice(&offset.to_le_bytes());
            file.extend_from_slice(&(section.len() as u64).to_le_bytes());
            offset += section.len() as u64;
        }
        file.extend(sections.concat());
    }
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[offset + index])
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(bytes, offset))
}

fn put(bytes: &mut [u8], offset: usize, word: u64) {
    bytes[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
}

//! Reads the files of a perf.data into a [`Recording`].

use std::ops::Range;

use hodo_model::{Cause, Loss};

use super::{
    file::File,
    layout::record,
    reader::{Reader, corrupt},
    records::{Record, Records},
    unpack::unpack,
};
use crate::{
    Input,
    error::{Error, ErrorKind},
    recording::Recording,
};

/// Reads a perf.data: a file, or the folder of `perf record --threads`.
///
/// Damage is a loss, not an error: the result contains the data before it, and the data after it if the file's index
/// allows to resume.
///
/// # Errors
/// Returns the errors of [`File::open`].
pub fn read<'a>(input: &Input<'a>) -> Result<Recording<'a>, Error> {
    let file = File::open(input.bytes)?;
    let mut reader = Reader::new(&file);
    read_records(&mut reader, &file, input);
    Ok(reader.finish(input.others.is_empty(), input.unpacked))
}

/// Reads the records of all files.
pub(super) fn read_records<'a>(reader: &mut Reader<'a>, file: &File<'a>, input: &Input<'a>) {
    let cut_at =
        read_all(reader, input, file.records(), &RecordSource::default(), file.cut_short().is_some());
    if let Some(detail) = file.cut_short() {
        let end = input.bytes.len() as u64;
        reader.loss.push(Loss { cause: Cause::CutShort, ..corrupt(cut_at.unwrap_or(end)..end, detail) });
    }
    for other in &input.others {
        let records = Records::new(other.bytes, 0..other.bytes.len() as u64, Vec::new());
        let source = RecordSource { prefix: format!("{}: ", other.name), packed: None };
        let is_cut = false;
        read_all(reader, input, records, &source, is_cut);
    }
}

/// The source of records.
#[derive(Default)]
struct RecordSource {
    /// Prefix of offsets in messages.
    prefix: String,
    /// The file's byte range that the records were unpacked from. Offsets then refer to the unpacked bytes.
    packed: Option<Range<u64>>,
}

impl RecordSource {
    fn lost(&self, bytes: Range<u64>, error: &Error) -> Loss {
        corrupt(self.packed.clone().unwrap_or(bytes), format!("{}{error}", self.prefix))
    }
}

/// Reads all records of a file. Returns where they end, if the file is known to be cut short and they end early.
fn read_all<'a>(
    reader: &mut Reader<'a>,
    input: &Input<'a>,
    mut records: Records<'a>,
    source: &RecordSource,
    is_cut: bool,
) -> Option<u64> {
    let mut packed = Some(records.clone());
    let mut cut_at = None;
    loop {
        let start = records.offset();
        let result = match records.next() {
            None => return cut_at,
            Some(Ok(record)) if source.packed.is_some() && never_packed(&record) => {
                let kind =
                    ErrorKind::Unsupported { what: name(&record), help: "perf does not compress these" };
                Err(Error { at: start, kind })
            }
            Some(Ok(record)) if is_packed(&record) => {
                reader.count(record.kind);
                // The first one stands for all of the file, as they contain one compressed stream.
                packed.take().into_iter().for_each(|packed| read_packed(reader, input, packed, source));
                continue;
            }
            Some(Ok(record)) => {
                reader.index(records.bytes(), &record);
                reader.take(&record)
            }
            Some(Err(_)) if records.is_done() && is_cut => {
                cut_at = Some(start);
                continue;
            }
            Some(Err(error)) => Err(error),
        };
        if let Err(error) = result {
            reader.loss.push(source.lost(start..records.offset(), &error));
        }
    }
}

fn name(record: &Record<'_>) -> &'static str {
    record::name(record.kind).unwrap_or("record")
}

fn is_packed(record: &Record<'_>) -> bool {
    [record::COMPRESSED, record::COMPRESSED2].contains(&record.kind)
}

/// Whether a record cannot come from a compressed one: it is compressed, or its trace bytes are in the file.
fn never_packed(record: &Record<'_>) -> bool {
    is_packed(record) || [record::AUXTRACE, record::HEADER_TRACING_DATA].contains(&record.kind)
}

/// Unpacks the compressed records of a file and reads them.
fn read_packed<'a>(reader: &mut Reader<'a>, input: &Input<'a>, records: Records<'a>, source: &RecordSource) {
    let packed: Vec<Record<'a>> = records.filter_map(Result::ok).filter(is_packed).collect();
    let span = packed.iter().map(|record| record.offset).min().unwrap_or(0)
        ..packed.iter().map(Record::trailing_offset).max().unwrap_or(0);
    let bodies: Vec<&[u8]> = packed.iter().map(packed_bytes).collect();
    let (bytes, problem) = unpack(&bodies.concat());
    let bytes = input.unpacked.keep(bytes);
    let unpacked = RecordSource {
        prefix: format!("{}in compressed records: ", source.prefix),
        packed: Some(span.clone()),
    };
    if let Some(reason) = problem {
        let error = Error { at: span.start, kind: ErrorKind::Text { what: "compressed records", reason } };
        reader.loss.push(source.lost(span, &error));
    }
    let (records, is_cut) = (Records::new(bytes, 0..bytes.len() as u64, Vec::new()), false);
    read_all(reader, input, records, &unpacked, is_cut);
}

/// The packed bytes: the whole body of COMPRESSED; for COMPRESSED2, those after u64 size, without the padding.
fn packed_bytes<'a>(record: &Record<'a>) -> &'a [u8] {
    match record.body.split_first_chunk() {
        Some((size, bytes)) if record.kind == record::COMPRESSED2 => {
            let size = usize::try_from(u64::from_le_bytes(*size)).unwrap_or(usize::MAX);
            bytes.get(..size).unwrap_or(bytes)
        }
        _ => record.body,
    }
}

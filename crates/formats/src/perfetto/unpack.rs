//! Packets that a trace has compressed.

use std::io::Read;

use flate2::read::ZlibDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::packet;

/// The largest size in bytes of packets that were compressed together. Perfetto's own are below 1 MiB.
const LARGEST: u64 = 1 << 26;
/// The highest ratio of all unpacked bytes to the file's: a higher one is an attempt to fill memory.
pub(super) const MOST_GROWTH: usize = 256;

/// Unpacks the packets in a field of `TracePacket`.
///
/// # Errors
/// The reason, as text.
pub(super) fn unpack(number: u32, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let read = match number {
        packet::ZSTD_COMPRESSED => {
            let decoder = StreamingDecoder::new(bytes).map_err(|error| error.to_string())?;
            decoder.take(LARGEST + 1).read_to_end(&mut unpacked)
        }
        _ => ZlibDecoder::new(bytes).take(LARGEST + 1).read_to_end(&mut unpacked),
    };
    let length = read.map_err(|error| error.to_string())?;
    if length as u64 > LARGEST {
        return Err(format!("{} compressed bytes become more than {LARGEST}", bytes.len()));
    }
    Ok(unpacked)
}

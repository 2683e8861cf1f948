//! Compressed sections and pages of a trace.dat.

use std::io::Read;

use flate2::read::ZlibDecoder;
use ruzstd::decoding::FrameDecoder;

use super::cursor::Cursor;

/// The highest accepted compression ratio. A higher one is an attempt to fill memory.
const MOST_GROWTH: usize = 1 << 14;

/// The compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Uncompressed.
    None,
    /// Zstandard (RFC 8878).
    Zstd,
    /// zlib (RFC 1950).
    Zlib,
}

impl Packing {
    /// The compression with this name in the file's header.
    pub(super) fn named(name: &[u8]) -> Option<Packing> {
        match name {
            b"none" | b"" => Some(Packing::None),
            b"zstd" => Some(Packing::Zstd),
            b"zlib" => Some(Packing::Zlib),
            _ => None,
        }
    }
}

/// Unpacks a chunk: u32 packed size, u32 size, packed bytes.
///
/// # Errors
/// The reason, as text.
pub(super) fn chunk(cursor: &mut Cursor<'_>, packing: Packing) -> Result<Vec<u8>, String> {
    let packed_size = cursor.u32().map_err(|eof| eof.to_string())? as usize;
    let size = cursor.u32().map_err(|eof| eof.to_string())? as usize;
    let packed = cursor.take(packed_size).map_err(|eof| eof.to_string())?;
    if size / MOST_GROWTH > packed.len() {
        return Err(format!("{} compressed bytes can't contain {size}", packed.len()));
    }
    if packing == Packing::Zlib {
        let mut bytes = Vec::with_capacity(size);
        // No more than the file says, whatever the stream holds.
        let mut stream = ZlibDecoder::new(packed).take(size as u64);
        return stream.read_to_end(&mut bytes).map(|_| bytes).map_err(|error| error.to_string());
    }
    let mut bytes = vec![0; size];
    let length = FrameDecoder::new().decode_all(packed, &mut bytes).map_err(|error| error.to_string())?;
    bytes.truncate(length);
    Ok(bytes)
}

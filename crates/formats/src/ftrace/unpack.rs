//! Compressed sections and pages of a trace.dat.

use hodo_bytes::Cursor;
use ruzstd::decoding::FrameDecoder;

/// Most bytes that a packed one may stand for; more is no trace, but meant to fill memory.
const MOST_GROWTH: usize = 1 << 14;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Not at all.
    None,
    /// By Zstandard (RFC 8878).
    Zstd,
}

impl Packing {
    /// By the name in the file's header.
    pub(super) fn named(name: &[u8]) -> Option<Packing> {
        match name {
            b"none" | b"" => Some(Packing::None),
            b"zstd" => Some(Packing::Zstd),
            _ => None,
        }
    }
}

/// Unpacks u32 packed size, u32 size, and as many packed bytes.
///
/// # Errors
/// Why it can't be.
pub(super) fn chunk(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, String> {
    let sizes = cursor.u32().and_then(|packed| Ok((packed as usize, cursor.u32()? as usize)));
    let (packed, size) = sizes.map_err(|eof| eof.to_string())?;
    let packed = cursor.take(packed).map_err(|eof| eof.to_string())?;
    if size / MOST_GROWTH > packed.len() {
        return Err(format!("{} bytes stand for {size}, which can't be", packed.len()));
    }
    let mut bytes = vec![0; size];
    let length = FrameDecoder::new().decode_all(packed, &mut bytes).map_err(|error| error.to_string())?;
    bytes.truncate(length);
    Ok(bytes)
}

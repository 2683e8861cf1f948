//! Unpacks records compressed by `perf record -z`.
//!
//! The bodies of a file's COMPRESSED records form one Zstandard stream (RFC 8878) that is flushed with each of them
//! but never ended: the last block of its frame is missing. A record may begin in one body and end in the next.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The highest accepted compression ratio. A higher one is an attempt to fill memory.
const MOST_GROWTH: usize = 1024;
/// The window at perf's highest compression level.
const LARGEST_WINDOW: u64 = 1 << 27;
/// An empty last block, and space for a checksum, which is not verified.
const END: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// Unpacks a stream that may lack its end. If it is damaged, returns the data before the damage and the reason.
pub(super) fn unpack(packed: &[u8]) -> (Vec<u8>, Option<String>) {
    match decode(packed) {
        Ok(bytes) => (bytes, None),
        // The decoder withholds a window until the frame ends, so end the frame before the damage.
        Err(damage) => {
            let intact = packed.get(..damage.intact).unwrap_or_default();
            (decode(intact).unwrap_or_default(), Some(damage.reason))
        }
    }
}

/// Why a stream cannot be unpacked.
struct Damage {
    /// Bytes before the unreadable block.
    intact: usize,
    reason: String,
}

fn decode(packed: &[u8]) -> Result<Vec<u8>, Damage> {
    let stream = [packed, &END].concat();
    let mut rest = &stream[..];
    let mut bytes = Vec::new();
    let done = |rest: &[u8]| stream.len() - rest.len();
    while done(rest) < packed.len() {
        let intact = done(rest);
        let damage = |reason: String| Damage { intact, reason };
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(LARGEST_WINDOW);
        frame.init(&mut rest).map_err(|error| damage(error.to_string()))?;
        while !frame.is_finished() {
            let intact = done(rest);
            let damage = |reason: String| Damage { intact, reason };
            frame
                .decode_blocks(&mut rest, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(|error| damage(error.to_string()))?;
            if intact < packed.len() && done(rest) > packed.len() {
                return Err(damage("its last block is cut short".to_owned()));
            }
            bytes.extend(frame.collect().unwrap_or_default());
            if bytes.len() / MOST_GROWTH > packed.len() {
                return Err(damage(format!("it unpacks to more than {MOST_GROWTH} times its size")));
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a frame without an end, as perf writes it: magic, descriptor, a window of 128 KiB.
    const FRAME: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];

    /// A block's header: type and content size.
    fn header(kind: u32, size: usize) -> [u8; 3] {
        let [a, b, c, _] = ((size as u32) << 3 | kind << 1).to_le_bytes();
        [a, b, c]
    }

    /// A frame of uncompressed blocks.
    fn stream(blocks: &[&[u8]]) -> Vec<u8> {
        let mut stream = FRAME.to_vec();
        blocks.iter().for_each(|block| stream.extend([&header(0, block.len())[..], block].concat()));
        stream
    }

    #[test]
    fn a_stream_is_unpacked_with_and_without_its_end() {
        let endless = stream(&[b"one", b"two"]);
        let ended = [&endless[..], &END[..3]].concat();
        let expected = b"onetwo".to_vec();
        assert_eq!(unpack(&endless), (expected.clone(), None));
        assert_eq!(unpack(&ended), (expected.clone(), None));
        assert_eq!(unpack(&[&ended[..], &endless[..]].concat()), (expected.repeat(2), None));
        assert_eq!(unpack(&[]), (Vec::new(), None));
    }

    #[test]
    fn a_stream_that_is_cut_gives_its_whole_blocks() {
        let packed = stream(&[b"one", b"two"]);
        let whole = |end: usize| (end.saturating_sub(FRAME.len()) / 6) * 3;
        for end in 1..packed.len() {
            let (bytes, problem) = unpack(&packed[..end]);
            assert_eq!(bytes, b"onetwo"[..whole(end)], "at {end}");
            assert_eq!(problem.is_some(), end != FRAME.len() && end != FRAME.len() + 6, "at {end}");
        }
    }

    #[test]
    fn a_stream_that_grows_without_measure_is_refused() {
        let one_repeated_byte = [&header(1, 128 << 10)[..], &[7]].concat();
        let packed = [&FRAME[..], &one_repeated_byte.repeat(100)].concat();
        let (bytes, problem) = unpack(&packed);
        assert!(bytes.len() <= packed.len() * MOST_GROWTH + (256 << 10), "{}", bytes.len());
        assert!(problem.unwrap().contains("more than 1024 times"));
    }
}

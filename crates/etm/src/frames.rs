//! CoreSight frames: the bytes of several sources in one stream (IHI 0029, "Trace formatter").

/// Size of a frame in bytes.
pub const FRAME: usize = 16;

/// Full-frame synchronization, which a trace port inserts between frames.
const FULL_SYNC: [u8; 4] = [0xff, 0xff, 0xff, 0x7f];

/// Half-frame synchronization, which a trace port inserts within frames.
const HALF_SYNC: [u8; 2] = [0xff, 0x7f];

/// A barrier that Linux writes where data was lost.
const BARRIER: [u8; FRAME] = {
    let mut barrier = [0xff; FRAME];
    barrier[3] = 0x7f;
    barrier[7] = 0x7f;
    barrier[11] = 0x7f;
    barrier[15] = 0x7f;
    barrier
};

/// The first number that is no source: 70 to 7F are reserved.
pub const FIRST_RESERVED: u8 = 0x70;

/// The bytes of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Its trace ID.
    pub id: u8,
    /// Its bytes, without those that were lost.
    pub bytes: Vec<u8>,
    /// Positions in `bytes` where bytes are missing before.
    pub losses: Vec<usize>,
}

/// The sources of a stream of frames, by trace ID.
///
/// `frames` may begin with full-frame synchronizations, and have them between frames. Bytes before the first trace ID
/// belong to no source, and are dropped, as is an incomplete frame at the end.
pub fn sources(frames: &[u8]) -> Vec<Source> {
    let mut separator = Separator::default();
    let mut rest = frames;
    while rest.len() >= FULL_SYNC.len() {
        if rest.starts_with(&BARRIER) {
            separator.lose();
            rest = &rest[FRAME..];
        } else if rest.starts_with(&FULL_SYNC) {
            rest = &rest[FULL_SYNC.len()..];
        } else {
            let Some((frame, after)) = rest.split_first_chunk::<FRAME>() else { break };
            separator.frame(frame);
            rest = after;
        }
    }
    separator.sources.sort_by_key(|source| source.id);
    separator.sources
}

/// The sources of frames that a trace port sent: they may begin anywhere, and synchronizations are between and within
/// them. Without a full-frame synchronization the first frame is at the start.
pub fn port_sources(bytes: &[u8]) -> Vec<Source> {
    let mut separator = Separator::default();
    let mut rest = &bytes[memchr::memmem::find(bytes, &FULL_SYNC).unwrap_or(0)..];
    let (mut frame, mut filled) = ([0; FRAME], 0);
    loop {
        if let Some(after) = rest.strip_prefix(&FULL_SYNC) {
            rest = after;
            if filled > 0 {
                // Bytes of the frame are missing.
                filled = 0;
                separator.lose();
            }
            continue;
        }
        let Some((&pair, after)) = rest.split_first_chunk::<2>() else { break };
        rest = after;
        // No source has the number that these bytes would select.
        if pair == HALF_SYNC {
            continue;
        }
        frame[filled..filled + 2].copy_from_slice(&pair);
        filled += 2;
        if filled == FRAME {
            separator.frame(&frame);
            filled = 0;
        }
    }
    separator.sources.sort_by_key(|source| source.id);
    separator.sources
}

#[derive(Default)]
struct Separator {
    sources: Vec<Source>,
    /// Index of the current source.
    current: Option<usize>,
}

impl Separator {
    fn lose(&mut self) {
        self.current = None;
        for source in &mut self.sources {
            source.losses.push(source.bytes.len());
        }
    }

    fn select(&mut self, id: u8) {
        if id == 0 || id >= FIRST_RESERVED {
            self.current = None;
            return;
        }
        let known = self.sources.iter().position(|source| source.id == id);
        self.current = Some(known.unwrap_or_else(|| {
            self.sources.push(Source { id, ..Source::default() });
            self.sources.len() - 1
        }));
    }

    fn data(&mut self, byte: u8) {
        if let Some(current) = self.current {
            self.sources[current].bytes.push(byte);
        }
    }

    /// Even bytes are a trace ID or data, whose lowest bit is in the last byte; odd bytes are data.
    fn frame(&mut self, frame: &[u8; FRAME]) {
        let low_bits = frame[FRAME - 1];
        for index in (0..FRAME).step_by(2) {
            let (first, low) = (frame[index], low_bits >> (index / 2) & 1);
            let second = frame.get(index + 1).copied().filter(|_| index + 1 < FRAME - 1);
            if first & 1 == 0 {
                self.data(first | low);
                second.into_iter().for_each(|byte| self.data(byte));
            } else if low == 0 {
                self.select(first >> 1);
                second.into_iter().for_each(|byte| self.data(byte));
            } else {
                // The byte after the ID still belongs to the source before.
                second.into_iter().for_each(|byte| self.data(byte));
                self.select(first >> 1);
            }
        }
    }
}

/// Puts the bytes of one source into frames. The rest of the last frame belongs to source 0.
pub fn frames_of(id: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / 15 * FRAME + 2 * FRAME);
    let mut rest = bytes.iter().copied();
    let mut is_first = true;
    while rest.len() > 0 {
        let mut frame = [0; FRAME];
        for index in 0..FRAME - 1 {
            if std::mem::take(&mut is_first) {
                frame[index] = id << 1 | 1;
                continue;
            }
            // The last byte comes after the ID of the padding, which does not hold for it yet.
            if rest.len() == 1 && index % 2 == 0 && index + 1 < FRAME - 1 {
                frame[index] = 1;
                frame[FRAME - 1] |= 1 << (index / 2);
                continue;
            }
            match rest.next() {
                Some(byte) if index % 2 == 1 => frame[index] = byte,
                Some(byte) => {
                    frame[index] = byte & !1;
                    frame[FRAME - 1] |= (byte & 1) << (index / 2);
                }
                None if index % 2 == 0 => frame[index] = 1,
                None => {}
            }
        }
        out.extend_from_slice(&frame);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_contain_the_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), id in 1..FIRST_RESERVED) {
            let framed = sources(&frames_of(id, &bytes));
            let expected = Source { id, bytes: bytes.clone(), losses: Vec::new() };
            prop_assert_eq!(framed, if bytes.is_empty() { Vec::new() } else { vec![expected] });
        }

        #[test]
        fn any_bytes_are_frames(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for found in [sources(&bytes), port_sources(&bytes)] {
                let total: usize = found.iter().map(|source| source.bytes.len()).sum();
                prop_assert!(total <= bytes.len());
            }
        }

        #[test]
        fn a_port_synchronizes_within_frames(
            bytes in prop::collection::vec(any::<u8>(), 1..200),
            before in prop::collection::vec(any::<u8>(), 0..8),
            marks in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            prop_assume!(memchr::memmem::find(&before, &FULL_SYNC).is_none() && !before.ends_with(&[0xff]));
            let framed = frames_of(3, &bytes);
            let mut sent = [&before[..], &FULL_SYNC].concat();
            let marks: Vec<usize> = marks.iter().map(|mark| mark.index(framed.len() / 2)).collect();
            for (index, pair) in framed.chunks(2).enumerate() {
                if marks.contains(&index) {
                    sent.extend(HALF_SYNC);
                }
                if index % 8 == 0 && index % 3 == 0 {
                    sent.extend(FULL_SYNC);
                }
                sent.extend(pair);
            }
            prop_assert_eq!(port_sources(&sent), vec![Source { id: 3, bytes, losses: Vec::new() }]);
        }
    }

    #[test]
    fn sources_alternate_and_losses_have_a_place() {
        let mut frame = [0; FRAME];
        // Source 1 from the first byte on, source 2 after the third; 1A is still source 1's, as bit 1 of the last byte says.
        frame[..6].copy_from_slice(&[0x03, 0x11, 0x05, 0x1a, 0x20, 0x21]);
        frame[6] = 0x01;
        frame[15] = 0b0000_0110;
        let found = sources(&[&frame[..], &BARRIER, &frame].concat());
        let bytes = |id: u8| found.iter().find(|source| source.id == id).map(|source| source.bytes.clone());
        assert_eq!(bytes(1), Some(vec![0x11, 0x1a, 0x11, 0x1a]));
        assert_eq!(bytes(2), Some(vec![0x21, 0x21, 0x21, 0x21]));
        assert!(found.iter().all(|source| source.losses == [2]));
    }
}

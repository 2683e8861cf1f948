//! Ways to damage a trace.

use std::ops::Range;

use fastrand::Rng;

use crate::container::Buffer;

/// A way to damage a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The trace begins later, at any byte.
    CutFront,
    /// The trace ends early, at any byte.
    CutEnd,
    /// A span is missing, and the AUX record reports that.
    CutMiddle,
    /// Two snapshots of a ring, which may overlap.
    Wrap,
    /// The processor lost the packets of a span and wrote OVF. Such a trace is recorded again, so that it is as a
    /// processor leaves it.
    Overflow,
    /// One to eight bits are flipped.
    FlippedBits,
    /// A few consecutive bytes have other values.
    FlippedBytes,
    /// A few bytes are missing without a mark.
    Missing,
    /// A few bytes are duplicated.
    Duplicated,
    /// A few random bytes are inserted.
    Inserted,
    /// A page reads as zeros.
    Zeroed,
}

/// All kinds.
pub(crate) const KINDS: [Kind; 11] = [
    Kind::CutFront,
    Kind::CutEnd,
    Kind::CutMiddle,
    Kind::Wrap,
    Kind::Overflow,
    Kind::FlippedBits,
    Kind::FlippedBytes,
    Kind::Missing,
    Kind::Duplicated,
    Kind::Inserted,
    Kind::Zeroed,
];

impl Kind {
    /// The name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::CutFront => "cut at the front",
            Kind::CutEnd => "cut at the end",
            Kind::CutMiddle => "cut in the middle, marked",
            Kind::Wrap => "snapshots of a ring",
            Kind::Overflow => "overflow, marked",
            Kind::FlippedBits => "flipped bits",
            Kind::FlippedBytes => "flipped bytes",
            Kind::Missing => "missing bytes",
            Kind::Duplicated => "duplicated bytes",
            Kind::Inserted => "inserted bytes",
            Kind::Zeroed => "zeroed page",
        }
    }

    /// Whether the recording marks its damage.
    pub(crate) fn is_marked(self) -> bool {
        self <= Kind::Overflow
    }
}

/// A part of a damaged trace.
#[derive(Clone, Debug)]
enum Part {
    /// These bytes of the trace.
    Original(Range<usize>),
    /// Other bytes.
    Foreign(Vec<u8>),
}

/// A damaged trace, by the parts of each of its buffers.
#[derive(Clone, Debug)]
pub(crate) struct Damaged {
    buffers: Vec<Vec<Part>>,
    /// The offset before which the recorder reports lost trace.
    lost_at: Option<usize>,
    pub(crate) snapshots: bool,
}

/// The most bytes that are damaged together, except pages.
const LONGEST: usize = 16;
/// The size of a block that a file system or a network loses at once; smaller than a page, as the traces here are
/// small.
const PAGE: usize = 512;

impl Damaged {
    /// An undamaged trace of this length.
    pub(crate) fn nothing(length: usize) -> Damaged {
        Damaged::of(vec![Part::Original(0..length)])
    }

    /// Only this part of a trace.
    pub(crate) fn only(part: Range<usize>) -> Damaged {
        Damaged::of(vec![Part::Original(part)])
    }

    fn of(parts: Vec<Part>) -> Damaged {
        Damaged { buffers: vec![parts], lost_at: None, snapshots: false }
    }

    /// Damages a trace, of at least 64 bytes, in this way at random positions.
    pub(crate) fn random(kind: Kind, trace: &[u8], random: &mut Rng) -> Damaged {
        let length = trace.len();
        let count = random.usize(1..=LONGEST);
        let start = random.usize(0..length - LONGEST);
        let around = |inside: Part, until: usize| {
            Damaged::of(vec![Part::Original(0..start), inside, Part::Original(until..length)])
        };
        match kind {
            Kind::CutFront => Damaged::of(vec![Part::Original(random.usize(1..length)..length)]),
            // Writers pad a trace to eight bytes with zeros, which are only skipped at its end.
            Kind::CutEnd => Damaged::of(vec![Part::Original(0..random.usize(8..length) / 8 * 8)]),
            Kind::CutMiddle => {
                let from = random.usize(1..length - 1);
                let to = random.usize(from + 1..length);
                let parts = vec![Part::Original(0..from), Part::Original(to..length)];
                Damaged { lost_at: Some(from), ..Damaged::of(parts) }
            }
            Kind::Wrap => Damaged::ring(length, random),
            Kind::Overflow => Damaged::nothing(length),
            Kind::FlippedBits => Damaged::flipped(trace, random),
            Kind::FlippedBytes => around(Part::Foreign(bytes(count, random)), start + count),
            Kind::Missing => around(Part::Foreign(Vec::new()), start + count),
            Kind::Duplicated => around(Part::Original(start..start + count), start),
            Kind::Inserted => around(Part::Foreign(bytes(count, random)), start),
            Kind::Zeroed => {
                let until = (start + PAGE).min(length);
                around(Part::Foreign(vec![0; until - start]), until)
            }
        }
    }

    fn ring(length: usize, random: &mut Rng) -> Damaged {
        let size = random.usize(length / 8..length / 2) / 8 * 8;
        let first = random.usize(size..length - 8) / 8 * 8;
        let second = random.usize(first + 1..=length);
        let buffers = [first, second].map(|end| vec![Part::Original(end.saturating_sub(size)..end)]);
        Damaged { buffers: buffers.into(), lost_at: None, snapshots: true }
    }

    fn flipped(trace: &[u8], random: &mut Rng) -> Damaged {
        let mut flipped: Vec<usize> =
            (0..random.usize(1..=8)).map(|_| random.usize(0..trace.len())).collect();
        // Most damage is one bit.
        flipped.truncate(if random.bool() { 1 } else { flipped.len() });
        flipped.sort_unstable();
        flipped.dedup();
        let (mut parts, mut from) = (Vec::new(), 0);
        for at in flipped {
            parts.push(Part::Original(from..at));
            parts.push(Part::Foreign(vec![trace[at] ^ 1 << random.u8(0..8)]));
            from = at + 1;
        }
        parts.push(Part::Original(from..trace.len()));
        Damaged::of(parts)
    }

    /// The buffers to write.
    pub(crate) fn buffers(&self, trace: &[u8]) -> Vec<Buffer> {
        let buffer = |parts: &Vec<Part>| {
            let bytes = parts.iter().map(|part| match part {
                Part::Original(range) => &trace[range.clone()],
                Part::Foreign(bytes) => bytes,
            });
            Buffer {
                // Snapshots all begin at the start of the AUX area.
                offset: 0,
                bytes: bytes.collect::<Vec<_>>().concat(),
                lost_at: self.lost_at.map(|at| at as u64),
            }
        };
        self.buffers.iter().map(buffer).collect()
    }

    /// The byte of the original trace at an offset of the file, if the buffers begin at `starts`.
    pub(crate) fn original(&self, offset: u64, starts: &[u64]) -> Option<usize> {
        let index = starts.partition_point(|&start| start <= offset).checked_sub(1)?;
        let mut left = (offset - starts[index]) as usize;
        for part in &self.buffers[index] {
            match part {
                Part::Original(range) if left < range.len() => return Some(range.start + left),
                Part::Original(range) => left -= range.len(),
                Part::Foreign(bytes) => left = left.checked_sub(bytes.len())?,
            }
        }
        None
    }

    /// The spans of the trace that a reader sees undamaged. Spans of two snapshots that overlap are joined if
    /// `overlaps` confirms that the overlap is recognizable.
    pub(crate) fn intact(&self, overlaps: impl Fn(Range<usize>) -> bool) -> Vec<Range<usize>> {
        let mut spans: Vec<Range<usize>> = Vec::new();
        for buffer in &self.buffers {
            for (index, part) in buffer.iter().enumerate() {
                let Part::Original(range) = part else { continue };
                match spans.last_mut() {
                    Some(last)
                        if index > 0
                            && range.start == last.end
                            && matches!(buffer[index - 1], Part::Original(_)) =>
                    {
                        last.end = range.end;
                    }
                    Some(last)
                        if index == 0 && range.start <= last.end && overlaps(range.start..last.end) =>
                    {
                        last.end = range.end;
                    }
                    _ => spans.push(range.clone()),
                }
            }
        }
        spans
    }
}

fn bytes(length: usize, random: &mut Rng) -> Vec<u8> {
    (0..length).map(|_| random.u8(..)).collect()
}

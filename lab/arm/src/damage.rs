//! Damaged traces: a segment without damage shows what it showed, one with damage what its bytes before the damage prove.

use std::ops::Range;

use fastrand::Rng;
use hodo_etm::{Config, packet::A_SYNC};

use crate::{
    account::Code,
    pieces::{decode_segments, segments},
};

/// A way to damage bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    CutFront,
    CutEnd,
    FlippedBits,
    FlippedBytes,
    Missing,
    Duplicated,
    Inserted,
    Zeroed,
}

pub(crate) const KINDS: [Kind; 8] = [
    Kind::CutFront,
    Kind::CutEnd,
    Kind::FlippedBits,
    Kind::FlippedBytes,
    Kind::Missing,
    Kind::Duplicated,
    Kind::Inserted,
    Kind::Zeroed,
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::CutFront => "cut: later begin",
            Kind::CutEnd => "cut: early end",
            Kind::FlippedBits => "flipped bits",
            Kind::FlippedBytes => "other bytes",
            Kind::Missing => "missing bytes",
            Kind::Duplicated => "bytes twice",
            Kind::Inserted => "inserted bytes",
            Kind::Zeroed => "page of zeros",
        }
    }
}

/// A damaged trace.
pub(crate) struct Damaged {
    pub(crate) bytes: Vec<u8>,
    /// Where bytes that are whole begin in the trace, and where they are now.
    intact: Vec<(usize, Range<usize>)>,
}

impl Damaged {
    pub(crate) fn random(kind: Kind, trace: &[u8], random: &mut Rng) -> Damaged {
        let at = random.usize(..trace.len());
        let few = random.usize(1..=8).min(trace.len() - at);
        match kind {
            Kind::CutFront => Damaged::replaced(trace, 0..at, &[]),
            Kind::CutEnd => Damaged::replaced(trace, at..trace.len(), &[]),
            Kind::FlippedBits => {
                let bits: Vec<u8> =
                    trace[at..at + few].iter().map(|byte| byte ^ 1 << random.u8(..8)).collect();
                Damaged::replaced(trace, at..at + few, &bits)
            }
            Kind::FlippedBytes => {
                let bytes: Vec<u8> = (0..few).map(|_| random.u8(..)).collect();
                Damaged::replaced(trace, at..at + few, &bytes)
            }
            Kind::Missing => Damaged::replaced(trace, at..at + few, &[]),
            Kind::Duplicated => {
                let twice = [&trace[at..at + few]; 2].concat();
                Damaged::replaced(trace, at..at + few, &twice)
            }
            Kind::Inserted => {
                let bytes: Vec<u8> = (0..few).map(|_| random.u8(..)).collect();
                Damaged::replaced(trace, at..at, &bytes)
            }
            Kind::Zeroed => {
                let end = (at + 4096).min(trace.len());
                Damaged::replaced(trace, at..end, &vec![0; end - at])
            }
        }
    }

    fn replaced(trace: &[u8], span: Range<usize>, by: &[u8]) -> Damaged {
        let bytes = [&trace[..span.start], by, &trace[span.end..]].concat();
        let behind = span.start + by.len();
        Damaged { intact: vec![(0, 0..span.start), (span.end, behind..bytes.len())], bytes }
    }

    /// The place in the trace of a byte that is whole, and where the damage behind it begins in the trace.
    fn origin(&self, at: usize) -> Option<(usize, usize)> {
        let (origin, now) = self.intact.iter().find(|(_, now)| now.contains(&at))?;
        Some((origin + at - now.start, origin + now.len()))
    }
}

/// The instructions of a segment.
fn of_segment(code: &Code, trace: &[u8], span: Range<usize>, config: &Config) -> Vec<u64> {
    let shown = decode_segments(code, trace, config, vec![span]);
    shown.pieces.into_iter().flat_map(|piece| piece.addresses).collect()
}

/// Checks each segment of a damaged trace that begins with whole bytes.
pub(crate) fn check(trace: &[u8], damaged: &Damaged, config: &Config, code: &Code) -> Result<(), String> {
    let whole = segments(trace);
    for (number, span) in segments(&damaged.bytes).into_iter().enumerate() {
        let Some((origin, damage)) = damaged.origin(span.start) else { continue };
        let Some(segment) = whole.iter().find(|segment| segment.start == origin) else { continue };
        // The end of a segment is found by the A-Sync behind it.
        let needed = if segment.end == trace.len() { segment.end } else { segment.end + A_SYNC.len() };
        let is_whole = needed <= damage;
        let end = if is_whole { segment.end } else { damage.min(segment.end) };
        let proved = of_segment(code, &trace[..end], segment.start..end, config);
        let mut decoded = of_segment(code, &damaged.bytes, span, config);
        if !is_whole {
            decoded.truncate(proved.len());
        }
        if decoded != proved {
            let same = decoded.iter().zip(&proved).take_while(|(one, other)| one == other).count();
            let what = if is_whole { "whole" } else { "damaged later" };
            return Err(format!(
                "segment {number}, which is {what}, shows {} instructions, {} are proved, {same} are the same",
                decoded.len(),
                proved.len()
            ));
        }
    }
    Ok(())
}

//! The law: whatever code is missing, the decoded instructions are those that ran.

use hodo_engine::{Chunk, StreamSink, Trace, decode_all};
use hodo_flow::{Event, Executed, PacketKind, Sink};

use crate::truth::{READING, Segment, Segments};

/// The decoded instructions and gaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) instructions: u64,
    pub(crate) gaps: u64,
    /// The first violation.
    pub(crate) violation: Option<String>,
}

/// Reads an experiment; each of its trace streams must show what ran in the same stream of the truth. Segments are
/// matched by index: missing code does not change their number.
pub(crate) fn check(trace: &Trace<'_>, truth: &[&Segments]) -> Shown {
    let mut shown = Shown::default();
    let mut next = vec![0; truth.len()];
    decode_all(
        trace,
        READING,
        |chunk: &Chunk, ()| Recorder { stream: chunk.stream, ..Recorder::default() },
        |recorder| (recorder, ()),
        |_, recorder| {
            for decoded_segment in recorder.segments {
                let index = &mut next[recorder.stream];
                match truth[recorder.stream].get(*index) {
                    Some(segment) => compare(&mut shown, segment, &decoded_segment, *index),
                    None => _ = shown.violation.get_or_insert("there are more segments".into()),
                }
                *index += 1;
            }
            true
        },
        |_| true,
    );
    if truth.iter().zip(&next).any(|(truth, &count)| truth.len() != count) {
        shown.violation.get_or_insert("there are fewer segments".into());
    }
    shown
}

/// The decoded content of a segment.
#[derive(Debug, Default)]
struct DecodedSegment {
    instructions: Vec<u64>,
    packets: usize,
    gaps: Vec<DecodedGap>,
    /// Asynchronous transfers: from where to where.
    transfers: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct DecodedGap {
    /// Number of instructions before it.
    instructions: usize,
    /// Number of packets up to its end; `None` at the end of the segment.
    packets: Option<usize>,
    trouble: String,
    /// Whether earlier decoding is doubtful.
    is_doubtful: bool,
}

#[derive(Default)]
struct Recorder {
    stream: usize,
    segments: Vec<DecodedSegment>,
}

impl StreamSink for Recorder {
    fn begin_segment(&mut self) {
        self.segments.push(DecodedSegment::default());
    }
}

impl Sink for Recorder {
    fn executed(&mut self, executed: Executed<'_>) {
        if let Some(decoded_segment) = self.segments.last_mut() {
            decoded_segment.instructions.extend(executed.addresses());
        }
    }

    fn packet(&mut self, _: PacketKind) {
        if let Some(decoded_segment) = self.segments.last_mut() {
            decoded_segment.packets += 1;
        }
    }

    fn event(&mut self, event: Event) {
        let Some(decoded_segment) = self.segments.last_mut() else { return };
        match event {
            Event::Gap(gap) => {
                decoded_segment.gaps.push(DecodedGap {
                    instructions: decoded_segment.instructions.len(),
                    packets: Some(decoded_segment.packets),
                    trouble: gap.trouble.to_string(),
                    is_doubtful: gap.doubtful_since.is_some(),
                });
            }
            Event::Asynchronous { from, to, .. } => decoded_segment.transfers.push((from, to)),
            _ => {}
        }
    }
}

/// Compares a segment with what ran.
fn compare(shown: &mut Shown, truth: &Segment, decoded_segment: &DecodedSegment, index: usize) {
    shown.instructions += decoded_segment.instructions.len() as u64;
    shown.gaps += decoded_segment.gaps.len() as u64;
    if shown.violation.is_none() {
        shown.violation = violation(truth, decoded_segment).map(|what| format!("segment {index}: {what}"));
    }
}

/// The violation in a segment, if any.
fn violation(truth: &Segment, decoded_segment: &DecodedSegment) -> Option<String> {
    let mut transfers = truth.transfers.iter();
    if let Some((from, to)) =
        decoded_segment.transfers.iter().find(|one| !transfers.any(|other| other == *one))
    {
        return Some(format!("an interrupt at {from:x}, to {to:x} is shown that did not happen"));
    }
    let (mut shown, mut ran, mut why) = (0, 0, "");
    let (instructions, trouble) = (decoded_segment.instructions.len(), String::new());
    let end = DecodedGap { instructions, packets: None, trouble, is_doubtful: false };
    for DecodedGap { instructions: until, packets, trouble, is_doubtful } in
        decoded_segment.gaps.iter().chain([&end])
    {
        let decoded = &decoded_segment.instructions[shown..*until];
        let rest = &truth.instructions[ran..];
        let alike = decoded.iter().zip(rest).take_while(|(one, other)| one == other).count();
        if alike < decoded.len() {
            return Some(format!(
                "after {shown} instructions, and the gap \"{why}\", {alike} of {} ran; then {:x?} is shown, {:x?} ran",
                decoded.len(),
                &decoded[alike.saturating_sub(2)..decoded.len().min(alike + 4)],
                &rest[alike.saturating_sub(2).min(rest.len())..rest.len().min(alike + 4)],
            ));
        }
        ran += decoded.len();
        if *is_doubtful {
            return Some(format!("after {until} instructions doubtful: {trouble}"));
        }
        if packets.is_none() && ran < truth.instructions.len() {
            return Some(format!("{} instructions at the end are not shown", truth.instructions.len() - ran));
        }
        // The packet that ended a gap follows the instructions that ran before the next packet.
        let next = packets.and_then(|packets| truth.before.get(packets));
        let resumed = next.map_or(truth.instructions.len(), |&at| at as usize);
        if resumed < ran {
            return Some(format!("what ran before the end of the gap \"{trouble}\" is shown twice"));
        }
        (shown, ran, why) = (*until, resumed, trouble);
    }
    None
}

//! What our decoder shows of a trace, in pieces between gaps.

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_etm::{
    Config,
    flow::Decoder,
    packet::{A_SYNC, find_sync},
};
use hodo_flow::{Continuity, Event, Executed, Sink, Switch};

use crate::{account::Code, ours::contiguous};

/// Instructions without a gap between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) addresses: Vec<u64>,
    /// Times, each after this many of the instructions.
    pub(crate) times: Vec<(usize, usize)>,
    /// The newest time before the first instruction.
    pub(crate) since: usize,
}

/// Everything that is shown.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) pieces: Vec<Piece>,
    /// Whether a gap calls something doubtful.
    pub(crate) is_doubtful: bool,
    pub(crate) continuity: Continuity,
    pub(crate) gaps: u64,
}

impl Shown {
    fn last(&mut self) -> &mut Piece {
        if self.pieces.is_empty() {
            self.pieces.push(Piece::default());
        }
        let last = self.pieces.len() - 1;
        &mut self.pieces[last]
    }
}

impl Sink for Shown {
    fn executed(&mut self, executed: Executed<'_>) {
        self.continuity.executed(&executed);
        self.last().addresses.extend(executed.addresses());
    }

    fn event(&mut self, event: Event) {
        self.continuity.event(&event);
        match event {
            Event::Time(Tsc(time)) => {
                let piece = self.last();
                match piece.addresses.len() {
                    0 => piece.since = time as usize,
                    count => piece.times.push((count, time as usize)),
                }
            }
            Event::Gap(gap) => {
                self.gaps += 1;
                self.is_doubtful |= gap.doubtful_since.is_some();
                // A gap is reported at its end, after the times within it.
                let before = self.last();
                let count = before.addresses.len();
                let known = gap.since.map_or(0, |Tsc(since)| since as usize);
                let since = before.times.last().map_or(before.since, |&(_, time)| time);
                before.times.retain(|&(position, time)| position < count || time <= known);
                self.pieces.push(Piece { since, ..Piece::default() });
            }
            _ => {}
        }
    }
}

/// The segments of a trace.
pub(crate) fn segments(trace: &[u8]) -> Vec<Range<usize>> {
    let mut starts = Vec::new();
    let mut next = 0;
    while let Some(at) = find_sync(&trace[next..]) {
        starts.push(next + at);
        next += at + A_SYNC.len();
    }
    let ends = starts.iter().skip(1).copied().chain([trace.len()]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// Decodes all segments of a trace.
pub(crate) fn decode(code: &Code, trace: &[u8], config: &Config) -> Shown {
    decode_segments(code, trace, config, segments(trace))
}

/// Decodes these segments.
pub(crate) fn decode_segments(code: &Code, trace: &[u8], config: &Config, spans: Vec<Range<usize>>) -> Shown {
    let ranges = contiguous(code);
    let mut space = AddressSpace::new();
    for (start, bytes) in &ranges {
        let content = Content { bytes, origin: Origin { module: 0, offset: *start } };
        space.map(*start..start + bytes.len() as u64, content, 0);
    }
    let mut programs = [Program::new(&space, &NoLabels)];
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut shown = Shown::default();
    for span in spans {
        Decoder::new(trace, span, config, &schedule).decode(&mut programs, &mut shown);
    }
    shown
}

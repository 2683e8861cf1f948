//! What our decoder shows of a trace, in pieces between gaps.

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Block, Content, NoLabels, Origin, Program, Terminator};
use hodo_etm::{
    Config,
    flow::Decoder,
    packet::{A_SYNC, find_sync},
};
use hodo_flow::{Event, Executed, Sink, Switch};

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
    /// The first address that nothing leads to, without a gap or an event that says so.
    pub(crate) jump: Option<u64>,
    /// Where the last block leads to; `None` if anything is possible.
    leads_to: Option<[u64; 2]>,
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

/// Where execution may continue after a block that ran to its end; `None` if anywhere.
fn continuations(block: &Block) -> Option<[u64; 2]> {
    match block.terminator {
        Terminator::Conditional => Some([block.target, block.end]),
        Terminator::Jump | Terminator::Call => Some([block.target; 2]),
        Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return | Terminator::Far => None,
        _ => Some([block.end; 2]),
    }
}

impl Sink for Shown {
    fn executed(&mut self, executed: Executed<'_>) {
        let start = executed.block.start;
        if self.leads_to.is_some_and(|targets| !targets.contains(&start)) {
            self.jump.get_or_insert(start);
        }
        let end = start + executed.lengths.iter().map(|&length| u64::from(length)).sum::<u64>();
        self.leads_to = match executed.is_whole() {
            true => continuations(executed.block),
            false => Some([end; 2]),
        };
        // A branch of A32 or T32 may have failed.
        self.leads_to = self.leads_to.filter(|_| executed.lengths.iter().all(|&length| length == 4));
        self.last().addresses.extend(executed.addresses());
    }

    fn event(&mut self, event: Event) {
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
                self.leads_to = None;
                // A gap is reported at its end, after the times within it.
                let before = self.last();
                let count = before.addresses.len();
                let known = gap.since.map_or(0, |Tsc(since)| since as usize);
                let since = before.times.last().map_or(before.since, |&(_, time)| time);
                before.times.retain(|&(position, time)| position < count || time <= known);
                self.pieces.push(Piece { since, ..Piece::default() });
            }
            Event::Disabled { .. } | Event::Enabled(_) | Event::Asynchronous { .. } => self.leads_to = None,
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

//! Buffers the events of a segment before its first timestamp.
//!
//! If the selection is a time window, the first timestamp decides whether to keep them. The PSB+ normally contains the
//! time before the first instruction, so such events are rare and few.

use std::mem;

use hodo_model::{Code, FlowEvent};

/// Maximum number of buffered events. A segment may be as long as the recording.
const MOST: usize = 1 << 18;

/// Events before the first timestamp.
#[derive(Default)]
pub(crate) struct Early {
    /// The events; runs are stored without their instructions.
    events: Vec<FlowEvent<'static>>,
    /// Lengths of the instructions of all runs.
    lengths: Vec<u8>,
    /// Bytes of the instructions of all runs.
    bytes: Vec<u8>,
    /// Instructions executed since the first buffered event, selected or not.
    ran: u64,
    /// Instructions dropped because the buffer was full.
    left_out: u64,
}

impl Early {
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the number of instructions buffered or dropped.
    pub(crate) fn instructions(&self) -> u64 {
        self.lengths.len() as u64 + self.left_out
    }

    /// Returns the number of instructions executed since the first buffered event.
    pub(crate) fn ran(&self) -> u64 {
        self.ran
    }

    /// Returns the number of instructions dropped because the buffer was full.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.lengths.clear();
        self.bytes.clear();
        (self.ran, self.left_out) = (0, 0);
    }

    #[cold]
    pub(crate) fn push(&mut self, event: FlowEvent<'_>) {
        if self.left_out > 0 {
            if let FlowEvent::Run { instructions, .. } = event {
                self.left_out += instructions;
            }
            return;
        }
        match &event {
            FlowEvent::Run { code, .. } => {
                self.lengths.extend_from_slice(code.lengths);
                self.bytes.extend_from_slice(code.bytes);
                self.ran += code.lengths.len() as u64;
            }
            FlowEvent::Skip { instructions } => self.ran += instructions,
            _ => {}
        }
        self.events.push(event.without_instructions());
        if self.events.len() > MOST {
            self.left_out = self.lengths.len().max(1) as u64;
            self.lengths.clear();
            self.bytes.clear();
            self.ran = 0;
            // The next event doesn't follow from a known one.
            self.events = vec![FlowEvent::Gap];
        }
    }

    /// Drains the buffered events in order.
    pub(crate) fn emit(&mut self, mut take: impl FnMut(FlowEvent<'_>)) {
        let (mut lengths, mut bytes) = (&self.lengths[..], &self.bytes[..]);
        for event in mem::take(&mut self.events) {
            match event {
                FlowEvent::Run { at, instructions, code } => {
                    let (of_run, rest) = lengths.split_at(instructions as usize);
                    lengths = rest;
                    let size: usize = of_run.iter().map(|&length| usize::from(length)).sum();
                    let (of_code, rest) = bytes.split_at(size.min(bytes.len()));
                    bytes = rest;
                    take(FlowEvent::Run {
                        at,
                        instructions,
                        code: Code { lengths: of_run, bytes: of_code, ..code },
                    });
                }
                other => take(other),
            }
        }
        self.lengths.clear();
        self.bytes.clear();
        self.ran = 0;
    }
}

#[cfg(test)]
mod tests {
    use hodo_model::{Arrival, End, FunctionId, Place};

    use super::*;

    const NOPS: [u8; 16] = [0x90; 16];

    fn run(address: u64, lengths: &[u8]) -> FlowEvent<'_> {
        let at = Arrival { address, function: FunctionId { module: 0, index: 0 }, place: Place::Entry };
        let bytes = &NOPS[..lengths.iter().map(|&length| usize::from(length)).sum()];
        let code = Code {
            offset: address,
            since: 0,
            lengths,
            bytes,
            isa: hodo_code::Isa::X86_64,
            end: End::Next,
            target: 0,
        };
        FlowEvent::Run { at, instructions: lengths.len() as u64, code }
    }

    #[test]
    fn runs_keep_their_instructions() {
        let mut early = Early::default();
        [run(1, &[1, 2, 3]), FlowEvent::Enter, run(7, &[]), run(9, &[4])]
            .into_iter()
            .for_each(|event| early.push(event));
        assert_eq!(early.instructions(), 4);
        let mut reported = Vec::new();
        early.emit(|event| reported.push(format!("{event:?}")));
        let expected = [run(1, &[1, 2, 3]), FlowEvent::Enter, run(7, &[]), run(9, &[4])];
        assert_eq!(reported, expected.map(|event| format!("{event:?}")));
        assert!(early.is_empty() && early.instructions() == 0);
    }

    #[test]
    fn too_much_is_a_gap_and_is_counted() {
        let mut early = Early::default();
        for _ in 0..2 * MOST {
            early.push(run(1, &[1, 2, 3]));
        }
        assert_eq!((early.left_out(), early.instructions()), (6 * MOST as u64, 6 * MOST as u64));
        let mut reported = Vec::new();
        early.emit(|event| reported.push(matches!(event, FlowEvent::Gap)));
        assert_eq!(reported, [true]);
    }
}

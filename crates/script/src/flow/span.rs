//! Computes bounds for the time at which an instruction ran.
//!
//! ```text
//! clock ─ packet ─ clock ─ ── ─ clock ─ packet ─ clock
//!   └ lower bound for the packet's branches ┘       └ upper bound
//! ```
//!
//! A packet is sent when its last branch retires, so the branches of the next packet ran later: not before the clock
//! packet that precedes the first packet, or the CYC that times it. But a TNT packet may be forced out by the packet
//! after it, long after its last branch (SDM, "Packet Generation Scenarios"): of a TNT packet and those that follow
//! without a clock packet in between, only the first has a bound of its own. With CYC packets the bounds are as good as
//! the measured cycle rate.

use std::io::Write;

use hodo_clock::Nanos;
use hodo_flow::PacketKind;

/// Tracks the bounds, and writes them into lines whose upper bound is not known yet.
#[derive(Debug, Default)]
pub(super) struct Span {
    now: Option<Nanos>,
    /// Lower bound for the current packet's branches.
    since: Option<Nanos>,
    /// Lower bound for the next packet's branches.
    next_since: Option<Nanos>,
    /// Whether the current packet is a TNT without a clock packet after it.
    tnt: bool,
    /// Whether the last packet was a clock packet.
    clock: bool,
    /// Positions in the text where an upper bound is missing.
    open: Vec<usize>,
}

impl Span {
    /// Advances to the next packet.
    #[inline]
    pub(super) fn packet(&mut self, kind: PacketKind) {
        self.clock = kind == PacketKind::Clock;
        if self.clock {
            self.tnt = false;
            return;
        }
        if !self.tnt {
            self.since = self.next_since;
        }
        self.tnt = kind == PacketKind::Tnt;
        self.next_since = self.now;
    }

    /// Resumes after a gap, with the current packet.
    pub(super) fn gap(&mut self) {
        (self.since, self.next_since, self.tnt) = (self.now, self.now, false);
    }

    /// Returns whether all upper bounds are written.
    pub(super) fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// Appends a lower bound.
    pub(super) fn begin(&mut self, text: &mut Vec<u8>) {
        write(self.since, text);
        text.extend_from_slice(b"..");
        self.open.push(text.len());
    }

    /// Advances the clock to `now`, the upper bound of the open spans.
    pub(super) fn time(&mut self, now: Nanos, text: &mut Vec<u8>) {
        self.close(Some(now), text);
        self.now = Some(now);
        if !self.clock {
            self.next_since = self.now;
        }
    }

    /// Ends the open spans without an upper bound.
    pub(super) fn end(&mut self, text: &mut Vec<u8>) {
        self.close(None, text);
    }

    /// Forgets the open spans, whose lines were truncated.
    pub(super) fn forget(&mut self) {
        self.open.clear();
    }

    /// Inserts the upper bound of the open spans.
    fn close(&mut self, end: Option<Nanos>, text: &mut Vec<u8>) {
        let Some(&first) = self.open.first() else { return };
        let lines = text.split_off(first);
        let mut written = first;
        for position in self.open.drain(..) {
            text.extend_from_slice(&lines[written - first..position - first]);
            write(end, text);
            written = position;
        }
        text.extend_from_slice(&lines[written - first..]);
    }
}

fn write(time: Option<Nanos>, text: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = match time {
        Some(time) => write!(text, "{time}"),
        None => text.write_all(b"-"),
    };
}

#[cfg(test)]
mod tests {
    use PacketKind::{Clock, Other, Tnt};

    use super::*;

    /// Formats the spans of a list of packets, each with a line, and of times.
    fn spans(steps: &[(Option<PacketKind>, Option<u64>)]) -> String {
        let (mut span, mut text) = (Span::default(), Vec::new());
        for &(packet, time) in steps {
            if let Some(kind) = packet {
                span.packet(kind);
                if kind != Clock {
                    span.begin(&mut text);
                    text.push(b'\n');
                }
            }
            if let Some(time) = time {
                span.time(Nanos(time), &mut text);
            }
        }
        span.end(&mut text);
        String::from_utf8(text).unwrap().replace("0.00000000", "")
    }

    #[test]
    fn a_packet_shows_what_ran_since_the_clock_before_the_last_one() {
        let steps = [
            (Some(Clock), Some(1)),
            (Some(Other), None),
            (Some(Tnt), None),
            (Some(Clock), Some(2)),
            (Some(Clock), Some(3)),
            (Some(Tnt), None),
            (Some(Tnt), None),
            (Some(Clock), Some(4)),
            (Some(Tnt), None),
        ];
        assert_eq!(spans(&steps), "-..2\n1..2\n1..4\n1..4\n3..-\n");
    }

    #[test]
    fn a_tip_may_have_forced_out_the_tnt_before_it() {
        let steps = [
            (Some(Clock), Some(1)),
            (Some(Other), None),
            (Some(Clock), Some(2)),
            (Some(Tnt), None),
            (Some(Other), None),
            (Some(Tnt), None),
            (Some(Clock), Some(3)),
        ];
        assert_eq!(spans(&steps), "-..2\n1..3\n1..3\n2..3\n");
    }

    #[test]
    fn a_packet_that_is_timed_itself_bounds_the_next() {
        let steps = [
            (Some(Other), Some(1)),
            (Some(Clock), None),
            (Some(Tnt), Some(2)),
            (Some(Clock), None),
            (Some(Tnt), Some(3)),
            (Some(Other), None),
        ];
        assert_eq!(spans(&steps), "-..1\n1..2\n2..3\n2..-\n");
    }
}

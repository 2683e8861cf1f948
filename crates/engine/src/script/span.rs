//! The times between which an instruction ran.
//!
//! ```text
//! clock ─ packet ─ clock ─ ── ─ clock ─ packet ─ clock
//!   └ what this packet tells ran not before ┘       └ and not after this
//! ```
//!
//! A packet is sent when its last branch retires, so what the next one tells ran after that: not before the clock
//! that stands before the packet, or times it (CYC). But a TNT packet may have been forced out by a packet close
//! behind it, long after its last branch (SDM, "Packet Generation Scenarios"): of those that no clock packet parts
//! only the first has a bound of its own. By CYC packets the bounds are as good as the measured rate of cycles.

use std::io::Write;

use hodo_clock::Nanos;
use hodo_intel_pt::flow::PacketKind;

/// Follows the bounds, and writes them into lines whose end is not known yet.
#[derive(Debug, Default)]
pub(super) struct Span {
    now: Option<Nanos>,
    /// What the packet at hand tells ran not before this.
    since: Option<Nanos>,
    /// What the next one tells ran not before this.
    next_since: Option<Nanos>,
    /// The packet at hand is a TNT, and no clock packet came since.
    tnt: bool,
    /// The last packet told the time alone.
    clock: bool,
    /// Where in the text the end of a span is to be written.
    open: Vec<usize>,
}

impl Span {
    /// What follows is told by another packet.
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

    /// The flow goes on after a gap: at once with the packet at hand.
    pub(super) fn gap(&mut self) {
        (self.since, self.next_since, self.tnt) = (self.now, self.now, false);
    }

    /// Whether the end of each span was written.
    pub(super) fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// Appends the beginning of a span.
    pub(super) fn begin(&mut self, text: &mut Vec<u8>) {
        write(self.since, text);
        text.extend_from_slice(b"..");
        self.open.push(text.len());
    }

    /// The clock stands at `now`: what was told so far ran not later.
    pub(super) fn time(&mut self, now: Nanos, text: &mut Vec<u8>) {
        self.close(Some(now), text);
        self.now = Some(now);
        if !self.clock {
            self.next_since = self.now;
        }
    }

    /// No clock tells when what was told so far ran at the latest.
    pub(super) fn end(&mut self, text: &mut Vec<u8>) {
        self.close(None, text);
    }

    /// The lines with spans that are open are taken back.
    pub(super) fn forget(&mut self) {
        self.open.clear();
    }

    fn close(&mut self, end: Option<Nanos>, text: &mut Vec<u8>) {
        let Some(&first) = self.open.first() else { return };
        let lines = text.split_off(first);
        let mut written = first;
        for at in self.open.drain(..) {
            text.extend_from_slice(&lines[written - first..at - first]);
            write(end, text);
            written = at;
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

    /// Told by a list of packets, each followed by a line, and of times.
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
    fn a_packet_tells_what_ran_since_the_clock_before_the_last_one() {
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

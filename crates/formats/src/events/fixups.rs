//! Corrects packet times that known tracer versions record wrongly.

use hodo_clock::OriginNanos;

use super::{
    schema::TraceClass,
    trace::{Stream, Trace},
};

/// The known errors in a trace's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fixups {
    /// The last events of a packet can be later than its end time (LTTng, before its fix in 2019).
    event_after_packet: bool,
    /// The first event of a packet can be earlier than its begin time (barectf before 2.3.1).
    event_before_packet: bool,
    /// A packet with end time 0 was open when the machine crashed (LTTng).
    open_packet: bool,
}

impl Fixups {
    /// The corrections that a trace needs, by the tracer's name and version.
    pub(super) fn of(trace: &TraceClass) -> Fixups {
        let number =
            |names: &[&str]| names.iter().find_map(|name| trace.environment_integer(name)).unwrap_or(0);
        let version = (
            number(&["tracer_major"]),
            number(&["tracer_minor"]),
            number(&["tracer_patchlevel", "tracer_patch"]),
        );
        match trace.environment_text("tracer_name") {
            Some("lttng-ust") => {
                Fixups { event_after_packet: version < (2, 11, 0), open_packet: true, ..Fixups::default() }
            }
            Some("lttng-modules") => {
                // Fixed in three release lines.
                let fixed = match version {
                    (2, 9, patch) => patch >= 13,
                    (2, 10, patch) => patch >= 10,
                    version => version >= (2, 11, 0),
                };
                Fixups { event_after_packet: !fixed, open_packet: true, ..Fixups::default() }
            }
            Some("barectf") => Fixups { event_before_packet: version < (2, 3, 1), ..Fixups::default() },
            _ => Fixups::default(),
        }
    }

    /// Corrects the times of a stream's packets.
    pub(super) fn apply<'a>(self, trace: &Trace<'a>, stream: &mut Stream<'a>) {
        for index in 0..stream.packets.len() {
            let next = stream.packets.get(index + 1).and_then(|next| next.begin);
            let packet = &stream.packets[index];
            let ends_at_zero = packet.packet.end.is_some_and(|end| end.value == 0)
                && packet.packet.begin.is_some_and(|begin| begin.value != 0);
            if self.event_after_packet || (self.open_packet && ends_at_zero) {
                stream.packets[index].end =
                    next.or_else(|| event_time(trace, stream, index, EdgeEvent::Last));
            }
            if self.event_before_packet
                && let Some(first) = event_time(trace, stream, index, EdgeEvent::First)
            {
                let begin = &mut stream.packets[index].begin;
                *begin = Some(begin.map_or(first, |begin| begin.min(first)));
            }
        }
    }
}

/// An event at the edge of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EdgeEvent {
    First,
    Last,
}

/// The time of a packet's first or last event.
fn event_time<'a>(
    trace: &Trace<'a>,
    stream: &Stream<'a>,
    index: usize,
    edge: EdgeEvent,
) -> Option<OriginNanos> {
    let packet = &stream.packets[index];
    let mut reader = trace.reader(stream);
    reader.open(packet.bytes, &packet.packet, packet.clock);
    let mut time = None;
    while let Ok(Some(parts)) = reader.next_event() {
        time = parts.cycles;
        if edge == EdgeEvent::First {
            break;
        }
    }
    Some(trace.clock(stream)?.nanos(time?))
}

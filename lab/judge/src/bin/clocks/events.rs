//! Reads the traces of a board: the events of each clock with their true times, and the messages between clocks.

use std::{error::Error, path::Path};

use hodo_engine::{
    Chunks, Files, Input, Needs, Options, Reading, Traces,
    events::{PacketRange, each_range, info},
};
use hodo_formats::events::{Item, schema::Scope};
use hodo_model::event::{FieldSink, Meaning, Name};
use hodo_sync::{Clock, ClockGraph, ClockId, Direction, Matcher, MessageEnd, Pair};

/// An event of a clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) ticks: u64,
    /// The true time in nanoseconds of the master's clock; `None` for events of the master.
    pub(crate) truth: Option<u64>,
    message: Option<(Direction, u64)>,
}

/// The events of a clock, in order.
#[derive(Clone, Debug)]
pub(crate) struct RecordedClock {
    name: String,
    /// Ticks per second.
    frequency: u64,
    pub(crate) events: Vec<Event>,
}

/// The traces of a board.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// The master's first.
    pub(crate) clocks: Vec<RecordedClock>,
}

/// What is known of the default bound of wander.
#[derive(Clone, Copy)]
pub(crate) enum WanderBound {
    /// It holds, as for the clocks that boards emulate.
    Known,
    /// It may not hold.
    Assumed,
}

impl Recorded {
    /// Reads the folder of a board's recording.
    pub(crate) fn read(folder: &Path) -> Result<Recorded, Box<dyn Error>> {
        let files = Files::default();
        let inputs = [Input::File(folder.to_owned())];
        let (traces, _) = Traces::open(&files, &inputs, &Options::default(), Needs::ALL, 1, |_, _| ())?;
        let mut recorded = Recorded::default();
        for trace in info(&traces) {
            let clock = trace.clocks.first().ok_or_else(|| format!("{}: no clock", trace.name))?;
            let (name, frequency) = (clock.name.clone(), clock.frequency);
            recorded.clocks.push(RecordedClock { name, frequency, events: Vec::new() });
        }
        let reading = Reading::new(1, Chunks::Streams);
        let mut wrong = None;
        each_range(&traces, &reading, events, |range, read| {
            match read {
                Ok(events) => recorded.clocks[range.trace_index].events.extend(events),
                Err(reason) => wrong = Some(reason),
            }
            wrong.is_none()
        });
        match wrong {
            Some(reason) => Err(reason.into()),
            None if recorded.clocks.first().is_none_or(|clock| clock.name != "master_clk") => {
                Err(format!("{}: no board's master was recorded here", folder.display()).into())
            }
            None => Ok(recorded),
        }
    }

    /// Returns the same recording with slaves whose clocks are slewed: in the middle third of the time of each, it runs `ppm`
    /// faster.
    pub(crate) fn slewed(&self, ppm: u64) -> Recorded {
        let mut clocks = self.clocks.clone();
        for RecordedClock { frequency, events, .. } in &mut clocks {
            let times = events.iter().filter_map(|event| event.truth);
            let (Some(first), Some(last)) = (times.clone().min(), times.max()) else { continue };
            let third = (last - first) / 3;
            for event in events {
                let Some(truth) = event.truth else { continue };
                let time = truth.saturating_sub(first + third).min(third);
                let ahead =
                    u128::from(time) * u128::from(ppm) * u128::from(*frequency) / 1_000_000_000_000_000;
                event.ticks += ahead as u64;
            }
        }
        Recorded { clocks }
    }

    /// Returns the graph of clocks, and the messages between them.
    pub(crate) fn graph(&self, wander: WanderBound) -> Result<(ClockGraph, Vec<Pair>), Box<dyn Error>> {
        let mut graph = ClockGraph::new();
        let mut matcher = Matcher::new(self.clocks.iter().map(|clock| clock.events.len()).sum());
        let mut pairs = Vec::new();
        for RecordedClock { name, frequency, events } in &self.clocks {
            let clock = Clock::new(name.clone(), *frequency);
            let clock = graph.add(match wander {
                WanderBound::Known => clock.with_known_wander(),
                WanderBound::Assumed => clock,
            });
            for event in events {
                let Some((direction, number)) = event.message else { continue };
                pairs.extend(matcher.push(number, MessageEnd { clock, ticks: event.ticks, direction }));
            }
        }
        pairs.iter().try_for_each(|pair| graph.push(*pair))?;
        match matcher.finish().repeated {
            0 => Ok((graph, pairs)),
            repeated => Err(format!("{repeated} sequence numbers come more than once").into()),
        }
    }

    /// Returns the round-trip times of all exchanges between the master and a slave, in nanoseconds, sorted.
    pub(crate) fn round_trips(&self, pairs: &[Pair]) -> Vec<u64> {
        let there = pairs.iter().filter(|pair| pair.send_clock == ClockId(0));
        let back = pairs.iter().filter(|pair| pair.recv_clock == ClockId(0));
        let mut sent: Vec<u64> = there.map(|pair| pair.send_ticks).collect();
        let mut received: Vec<u64> = back.map(|pair| pair.recv_ticks).collect();
        sent.sort_unstable();
        received.sort_unstable();
        let answer = |&sent: &u64| {
            let next = received.get(received.partition_point(|&received| received < sent))?;
            Some(next - sent)
        };
        let mut round_trips: Vec<u64> = sent.iter().filter_map(answer).collect();
        round_trips.sort_unstable();
        round_trips
    }
}

/// Decodes the events of a run of packets.
fn events(range: &PacketRange<'_, '_>) -> Result<Vec<Event>, String> {
    let mut cursor = range.cursor();
    let mut events = Vec::new();
    while let Some((_, item)) = cursor.next_item() {
        let Item::Event(parts) = item else { continue };
        let ticks = parts.cycles.ok_or("an event without a time")?;
        let direction = match range.classes()[parts.class as usize].name.as_str() {
            "sync_send" => Some(Direction::Send),
            "sync_recv" => Some(Direction::Receive),
            _ => None,
        };
        let mut fields = Fields::default();
        let event = cursor.event(parts);
        let reported = event.emit(Scope::CommonContext, &mut fields);
        reported
            .and_then(|()| event.emit(Scope::Payload, &mut fields))
            .map_err(|trouble| format!("{trouble:?}"))?;
        let message = direction.zip(fields.seq);
        events.push(Event { ticks, truth: fields.truth, message });
    }
    match cursor.loss.first() {
        Some(loss) => Err(format!("{loss:?}")),
        None => Ok(events),
    }
}

/// The fields that are read.
#[derive(Default)]
struct Fields {
    truth: Option<u64>,
    seq: Option<u64>,
}

impl FieldSink for Fields {
    fn unsigned(&mut self, name: Name<'_>, value: u64, _: &Meaning) {
        match name {
            Name::Member("truth") => self.truth = Some(value),
            Name::Member("seq") => self.seq = Some(value),
            _ => {}
        }
    }
}

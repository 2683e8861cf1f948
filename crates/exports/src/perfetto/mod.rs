//! Perfetto's trace format: protobuf packets with track descriptors, slices and interned names.
//!
//! Source: `protos/perfetto/trace` of Perfetto, and "Synthetic TrackEvent" of its documentation.

mod messages;
mod scheduling;

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use hodo_model::Loss;

use self::messages::{
    CounterDescriptor, DebugAnnotation, EventName, InternedData, Packet, ProcessDescriptor, ThreadDescriptor,
    TrackDescriptor, TrackEvent,
};
use crate::{Content, EventThread, Export, Output, Switch, Timeline, Track, Wakeup, loss_line};

pub(crate) const EXPORT: Export = Export {
    name: "perfetto",
    help: "slices for Perfetto's page and SQL (protobuf)",
    content: Content::Timeline(begin),
};

/// All packets are one sequence.
const SEQUENCE: u32 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`, of the first packet.
const CLEARED: u32 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`, of packets that use interned names.
const NEEDS_STATE: u32 = 2;
/// Values of `TrackEvent.Type`.
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;
/// `CounterDescriptor.UNIT_COUNT`.
const UNIT_COUNT: i32 = 2;
/// The name of the counter of a thread, and of the argument of a call.
const INSTRUCTIONS: &str = "instructions";
/// Field `packet` of `Trace`.
const PACKET: u32 = 1;

struct Perfetto<'o> {
    out: Output<'o>,
    packet: Vec<u8>,
    /// The identifier of each track, by its number.
    tracks: Vec<u64>,
    /// The identifiers of the tracks of threads, by process and thread.
    threads: BTreeMap<(u32, u32), u64>,
    /// The identifiers of the tracks of processes.
    processes: BTreeMap<u32, u64>,
    /// The identifier of the counter of each track that has one.
    counters: BTreeMap<u32, u64>,
    /// The last identifier of a track.
    last_track: u64,
    /// The last identifier of a flow.
    flows: u64,
    /// The number of names, which is the last identifier of a name.
    names: u64,
    last_time: u64,
}

fn begin<'o>(out: Output<'o>) -> io::Result<Box<dyn Timeline + 'o>> {
    let mut perfetto = Perfetto {
        out,
        packet: Vec::new(),
        tracks: Vec::new(),
        threads: BTreeMap::new(),
        processes: BTreeMap::new(),
        counters: BTreeMap::new(),
        last_track: 0,
        flows: 0,
        names: 0,
        last_time: 0,
    };
    perfetto.write(Packet { sequence_flags: Some(CLEARED), ..Packet::default() })?;
    Ok(Box::new(perfetto))
}

impl Perfetto<'_> {
    fn write(&mut self, packet: Packet) -> io::Result<()> {
        let packet = Packet { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        let Perfetto { out, packet: bytes, .. } = self;
        bytes.clear();
        prost::encoding::message::encode(PACKET, &packet, bytes);
        out.write_all(bytes)
    }

    /// Describes a track, and returns its identifier.
    fn describe(&mut self, track: TrackDescriptor) -> io::Result<u64> {
        self.last_track += 1;
        let track_descriptor = Some(TrackDescriptor { uuid: Some(self.last_track), ..track });
        self.write(Packet { track_descriptor, ..Packet::default() })?;
        Ok(self.last_track)
    }

    /// Returns the track of a thread, described once.
    fn thread(&mut self, pid: u32, tid: u32, name: &str) -> io::Result<u64> {
        if let Some(track) = self.threads.get(&(pid, tid)) {
            return Ok(*track);
        }
        let (process, thread) = (i32::try_from(pid).ok(), i32::try_from(tid).ok());
        let parent_uuid = match self.processes.get(&pid) {
            Some(track) => *track,
            None => {
                let own = Some(ProcessDescriptor { pid: process });
                let track = self.describe(TrackDescriptor { process: own, ..TrackDescriptor::default() })?;
                *self.processes.entry(pid).or_insert(track)
            }
        };
        let thread_name = Some(name.to_owned()).filter(|name| !name.is_empty());
        let own = Some(ThreadDescriptor { pid: process, tid: thread, thread_name });
        let parent_uuid = Some(parent_uuid);
        let track =
            self.describe(TrackDescriptor { thread: own, parent_uuid, ..TrackDescriptor::default() })?;
        Ok(*self.threads.entry((pid, tid)).or_insert(track))
    }

    /// The counter of instructions of a track, described once.
    fn counter(&mut self, track: u32) -> io::Result<u64> {
        if let Some(counter) = self.counters.get(&track) {
            return Ok(*counter);
        }
        let described = self.describe(TrackDescriptor {
            name: Some(INSTRUCTIONS.to_owned()),
            parent_uuid: Some(self.tracks[track as usize]),
            counter: Some(CounterDescriptor { unit: Some(UNIT_COUNT) }),
            ..TrackDescriptor::default()
        })?;
        Ok(*self.counters.entry(track).or_insert(described))
    }

    /// An instant on the track of a thread.
    fn instant(&mut self, time: u64, thread: EventThread<'_>, event: TrackEvent) -> io::Result<()> {
        let track_uuid = Some(self.thread(thread.pid, thread.tid, thread.name)?);
        self.event(time, TrackEvent { kind: Some(INSTANT), track_uuid, ..event })
    }

    fn event(&mut self, time: u64, event: TrackEvent) -> io::Result<()> {
        self.last_time = self.last_time.max(time);
        self.write(Packet {
            timestamp: Some(time),
            sequence_flags: Some(NEEDS_STATE),
            track_event: Some(event),
            ..Packet::default()
        })
    }
}

impl Timeline for Perfetto<'_> {
    fn begin_track(&mut self, track: &Track) -> io::Result<()> {
        let described = match track {
            Track::Thread { pid, tid, name, what } => {
                let thread = self.thread(*pid, *tid, name)?;
                let own = TrackDescriptor {
                    name: Some(what.clone()),
                    parent_uuid: Some(thread),
                    ..TrackDescriptor::default()
                };
                if what.is_empty() { thread } else { self.describe(own)? }
            }
            Track::Named(name) => {
                self.describe(TrackDescriptor { name: Some(name.clone()), ..TrackDescriptor::default() })?
            }
        };
        self.tracks.push(described);
        Ok(())
    }

    fn name(&mut self, name: &str) -> io::Result<()> {
        // Identifiers begin at 1: 0 is invalid.
        self.names += 1;
        let event_names = vec![EventName { iid: Some(self.names), name: Some(name.to_owned()) }];
        self.write(Packet {
            sequence_flags: Some(NEEDS_STATE),
            interned_data: Some(InternedData { event_names }),
            ..Packet::default()
        })
    }

    fn begin(&mut self, track: u32, time: u64, name: u32) -> io::Result<()> {
        let track_uuid = Some(self.tracks[track as usize]);
        let name_iid = Some(u64::from(name) + 1);
        self.event(
            time,
            TrackEvent { kind: Some(SLICE_BEGIN), track_uuid, name_iid, ..TrackEvent::default() },
        )
    }

    fn end(&mut self, track: u32, time: u64) -> io::Result<()> {
        let track_uuid = Some(self.tracks[track as usize]);
        self.event(time, TrackEvent { kind: Some(SLICE_END), track_uuid, ..TrackEvent::default() })
    }

    fn end_counted(&mut self, track: u32, time: u64, instructions: u64) -> io::Result<()> {
        let annotation =
            DebugAnnotation { uint_value: Some(instructions), name: Some(INSTRUCTIONS.to_owned()) };
        self.event(
            time,
            TrackEvent {
                kind: Some(SLICE_END),
                track_uuid: Some(self.tracks[track as usize]),
                debug_annotations: vec![annotation],
                ..TrackEvent::default()
            },
        )
    }

    fn executed(&mut self, track: u32, time: u64, instructions: u64) -> io::Result<()> {
        let track_uuid = Some(self.counter(track)?);
        let counter_value = i64::try_from(instructions).ok();
        self.event(
            time,
            TrackEvent { kind: Some(COUNTER), track_uuid, counter_value, ..TrackEvent::default() },
        )
    }

    fn switch(&mut self, switch: &Switch<'_>) -> io::Result<()> {
        self.last_time = self.last_time.max(switch.time);
        let ftrace_events = Some(scheduling::switch(switch));
        self.write(Packet { ftrace_events, ..Packet::default() })
    }

    fn wakeup(&mut self, wakeup: &Wakeup<'_>) -> io::Result<()> {
        let ftrace_events = Some(scheduling::waking(wakeup));
        self.write(Packet { ftrace_events, ..Packet::default() })?;
        let &Wakeup { time, waker, woken, .. } = wakeup;
        self.flows += 1;
        let flow = vec![self.flows];
        let wakes = TrackEvent {
            name: Some(format!("wakes {}", woken.name)),
            flow_ids: flow.clone(),
            ..TrackEvent::default()
        };
        let is_woken = TrackEvent {
            name: Some(format!("woken by {}", waker.name)),
            terminating_flow_ids: flow,
            ..TrackEvent::default()
        };
        self.instant(time, waker, wakes)?;
        self.instant(time, woken, is_woken)
    }

    fn finish(mut self: Box<Self>, losses: &[Loss]) -> io::Result<()> {
        if !losses.is_empty() {
            let name = Some("lost".to_owned());
            let track_uuid = Some(self.describe(TrackDescriptor { name, ..TrackDescriptor::default() })?);
            for loss in losses {
                let time = loss.time.map_or(self.last_time, |(begin, _)| begin.0);
                let name = Some(loss_line(loss));
                self.event(
                    time,
                    TrackEvent { kind: Some(INSTANT), track_uuid, name, ..TrackEvent::default() },
                )?;
            }
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_these_bytes() {
        let mut out = Vec::new();
        let mut timeline = begin(&mut out).unwrap();
        timeline.begin_track(&Track::Named("t".to_owned())).unwrap();
        timeline.name("f").unwrap();
        timeline.begin(0, 300, 0).unwrap();
        timeline.finish(&[]).unwrap();
        let expected: &[&[u8]] = &[
            &[0x0a, 4, 0x50, 1, 0x68, CLEARED as u8],
            // track_descriptor (60): uuid 1, name "t".
            &[0x0a, 10, 0x50, 1, 0xe2, 3, 5, 0x08, 1, 0x12, 1, b't'],
            // interned_data (12): event_names (2): iid 1, name "f"; sequence_flags (13).
            &[0x0a, 13, 0x50, 1, 0x62, 7, 0x12, 5, 0x08, 1, 0x12, 1, b'f', 0x68, 2],
            // timestamp (8); track_event (11): type 1, name_iid 1, track_uuid 1.
            &[0x0a, 15, 0x40, 0xac, 2, 0x50, 1, 0x5a, 6, 0x48, 1, 0x50, 1, 0x58, 1, 0x68, 2],
        ];
        assert_eq!(out, expected.concat());
    }
}

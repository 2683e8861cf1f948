//! Reads every field of every event of a trace, and prints their number and a checksum of their values: the minimum
//! time of an analysis that uses all fields. `cargo bench-peers ctf` measures it.
//!
//! usage: `hodo-fields TRACE [THREADS]`

use std::{env, error::Error};

use hodo_engine::{
    Chunks, Files, Input, Needs, Options, Reading, Traces,
    events::{PacketRange, each_range},
};
use hodo_formats::events::{Item, Trouble, schema::Scope};
use hodo_model::event::{FieldSink, Meaning, Name};

/// Bytes of trace per chunk.
const CHUNK: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (trace, threads) = match arguments.as_slice() {
        [trace] => (trace, 1),
        [trace, threads] => (trace, threads.parse()?),
        _ => return Err("usage: hodo-fields TRACE [THREADS]".into()),
    };
    let files = Files::default();
    let inputs = [Input::File(trace.into())];
    let (traces, _) = Traces::open(&files, &inputs, &Options::default(), Needs::ALL, threads, |_, _| ())?;
    let reading = Reading::new(threads, Chunks::Bytes(CHUNK));
    let mut total = Sums::default();
    each_range(&traces, &reading, read, |_, sums| {
        total.add(&sums);
        true
    });
    println!("events {}  values {}  checksum {:016x}", total.events, total.values, total.checksum);
    match traces.event_losses().len() as u64 + total.unreadable {
        0 => Ok(()),
        troubles => Err(format!("{troubles} places that can't be read").into()),
    }
}

/// The sums over a range of packets. Those of all ranges do not depend on where ranges begin and end.
#[derive(Default)]
struct Sums {
    events: u64,
    values: u64,
    checksum: u64,
    unreadable: u64,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.events += other.events;
        self.values += other.values;
        self.checksum = self.checksum.wrapping_add(other.checksum);
        self.unreadable += other.unreadable;
    }
}

/// Reads the fields of packet contexts once per packet, and all others once per event.
fn read(range: &PacketRange<'_, '_>) -> Sums {
    let mut sums = Sums::default();
    let mut cursor = range.cursor();
    let mut fields = Checksum { hash: 0, values: 0 };
    let mut packet = None;
    while let Some((time, item)) = cursor.next_item() {
        let Item::Event(parts) = item else { continue };
        let event = cursor.event(parts);
        fields.hash = parts.class.into();
        fields.value(time.map_or(0, |time| time.0 as u64));
        let failed = |reported: Result<(), Trouble>| u64::from(reported.is_err());
        if cursor.packet_index() != packet {
            packet = cursor.packet_index();
            sums.unreadable += failed(event.emit(Scope::PacketContext, &mut fields));
        }
        sums.unreadable += failed(event.emit(Scope::CommonContext, &mut fields));
        sums.unreadable += failed(event.emit(Scope::SpecificContext, &mut fields));
        sums.unreadable += failed(event.emit(Scope::Payload, &mut fields));
        sums.events += 1;
        sums.checksum = sums.checksum.wrapping_add(fields.hash);
    }
    sums.values = fields.values;
    sums.unreadable += cursor.loss.len() as u64;
    sums
}

/// A checksum of the values of an event, in order, and the number of values of all events.
struct Checksum {
    hash: u64,
    values: u64,
}

impl Checksum {
    #[inline]
    fn mix(&mut self, value: u64) {
        // The multiplier of Knuth's multiplicative hashing: 2^64 divided by the golden ratio.
        self.hash = (self.hash.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn value(&mut self, value: u64) {
        self.values += 1;
        self.mix(value);
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.value(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|&word| self.mix(u64::from_le_bytes(word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last));
    }
}

impl FieldSink for Checksum {
    #[inline]
    fn unsigned(&mut self, _: Name<'_>, value: u64, _: &Meaning) {
        self.value(value);
    }

    #[inline]
    fn signed(&mut self, _: Name<'_>, value: i64, _: &Meaning) {
        self.value(value as u64);
    }

    fn real(&mut self, _: Name<'_>, value: f64) {
        self.value(value.to_bits());
    }

    fn boolean(&mut self, _: Name<'_>, value: bool) {
        self.value(value.into());
    }

    #[inline]
    fn text(&mut self, _: Name<'_>, text: &[u8]) {
        self.bytes(text);
    }

    fn blob(&mut self, _: Name<'_>, bytes: &[u8]) {
        self.bytes(bytes);
    }
}

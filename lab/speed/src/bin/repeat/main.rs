//! Writes a long trace from a short one: repeats its packets, and each time the clocks continue where they ended
//! before. For measuring analyses on traces that are larger than memory.
//!
//! Only times and counters change, in place: full times, the discarded events so far and packet numbers. Event times
//! with only the lowest bits stay the same, as clocks advance by a multiple of 2^32. So it accepts only traces in the
//! layout of LTTng.
//!
//! usage: hodo-repeat TRACE TIMES FOLDER

use std::{
    env,
    error::Error,
    fs::{self, File},
    io::{BufWriter, Write},
    ops::Range,
    path::Path,
};

use hodo_engine::{Files, Input, Needs, Options, Traces};
use hodo_formats::events::{
    Cursor, Item, Stream, Trace,
    schema::{ByteOrder, FieldClass, Role},
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The range of the lowest bits of clocks.
const WRAP: u64 = 1 << 32;

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [trace, times, folder] = arguments.as_slice() else {
        return Err("usage: hodo-repeat TRACE TIMES FOLDER".into());
    };
    let (times, folder) = (times.parse()?, Path::new(folder));
    let files = Files::default();
    let inputs = [Input::File(trace.into())];
    let (threads, no_progress) = (1, |_: u64, _: u64| ());
    let (traces, _) = Traces::open(&files, &inputs, &Options::default(), Needs::ALL, threads, no_progress)?;
    let [trace] = traces.events.as_slice() else { return Err("one trace expected".into()) };
    fs::create_dir_all(folder)?;
    let metadata = trace.files[0].name.rsplit_once('/').map_or("", |(folder, _)| folder);
    fs::copy(Path::new(&arguments[0]).join(metadata).join("metadata"), folder.join("metadata"))?;
    let clock = clock(trace)?;
    let shift = (clock.end - clock.start + 1).next_multiple_of(WRAP);
    trace.streams.iter().try_for_each(|stream| repeat(trace, stream, shift, times, folder))
}

/// The clock from the first packet's beginning to the last one's end.
fn clock(trace: &Trace<'_>) -> Outcome<Range<u64>> {
    let packets = || trace.streams.iter().flat_map(|stream| &stream.packets).map(|packet| &packet.packet);
    let first = packets().filter_map(|packet| packet.begin).map(|clock| clock.value).min();
    let last = packets().filter_map(|packet| packet.end).map(|clock| clock.value).max();
    let (first, last) = first.zip(last).ok_or("packets that say when they begin and end expected")?;
    Ok(first..last)
}

/// A kind of number that differs in each repetition.
#[derive(Clone, Copy)]
enum NumberKind {
    Time,
    Discarded,
    PacketNumber,
}

/// The position of a 64-bit number in a packet.
struct NumberPosition {
    byte: usize,
    order: ByteOrder,
    kind: NumberKind,
}

fn repeat(trace: &Trace<'_>, stream: &Stream<'_>, shift: u64, times: u64, folder: &Path) -> Outcome {
    let name = Path::new(&stream.name).file_name().ok_or("a stream without a file")?;
    let mut out = BufWriter::with_capacity(1 << 20, File::create_new(folder.join(name))?);
    let positions: Vec<Vec<NumberPosition>> =
        (0..stream.packets.len()).map(|index| positions(trace, stream, index)).collect::<Outcome<_>>()?;
    let discarded = stream.packets.iter().filter_map(|packet| packet.packet.discarded);
    let discarded = discarded.map(|count| count.value).max().unwrap_or(0);
    for repetition in 0..times {
        for (packet, positions) in stream.packets.iter().zip(&positions) {
            let mut bytes = packet.bytes.to_vec();
            for position in positions {
                let more = match position.kind {
                    NumberKind::Time => shift * repetition,
                    NumberKind::Discarded => discarded * repetition,
                    NumberKind::PacketNumber => stream.packets.len() as u64 * repetition,
                };
                add(&mut bytes[position.byte..], position.order, more);
            }
            out.write_all(&bytes)?;
        }
    }
    Ok(out.flush()?)
}

fn add(bytes: &mut [u8], order: ByteOrder, more: u64) {
    let Some(number) = bytes.first_chunk_mut() else { return };
    *number = match order {
        ByteOrder::Little => u64::from_le_bytes(*number).wrapping_add(more).to_le_bytes(),
        ByteOrder::Big => u64::from_be_bytes(*number).wrapping_add(more).to_be_bytes(),
    };
}

/// The positions of the numbers of a packet that change.
fn positions(trace: &Trace<'_>, stream: &Stream<'_>, index: usize) -> Outcome<Vec<NumberPosition>> {
    let class = trace.stream_class(stream);
    let mut positions = Vec::new();
    let mut bit = stream.packets[index].packet.context;
    let mut order = None;
    for member in class.packet_context.iter().flat_map(|context| &context.members) {
        let FieldClass::Integer(integer) = &member.class else {
            return Err(format!("an integer expected: {}", member.name).into());
        };
        bit = bit.next_multiple_of(integer.alignment.into());
        let kind = integer.roles.iter().find_map(|role| match role {
            Role::Timestamp | Role::PacketEndTimestamp => Some(NumberKind::Time),
            Role::DiscardedEvents => Some(NumberKind::Discarded),
            Role::PacketSequenceNumber => Some(NumberKind::PacketNumber),
            _ => None,
        });
        if let Some(kind) = kind {
            if integer.meaning.size != 64 || !bit.is_multiple_of(8) {
                return Err(format!(
                    "a number of 64 bits that begins at a byte is expected: {}",
                    member.name
                )
                .into());
            }
            order = Some(integer.byte_order);
            positions.push(NumberPosition { byte: (bit / 8) as usize, order: integer.byte_order, kind });
        }
        bit += u64::from(integer.meaning.size);
    }
    let order = order.ok_or("packets with times expected")?;
    let mut cursor = Cursor::new(trace, stream, index..index + 1);
    while let Some((_, item)) = cursor.next_item() {
        let Item::Event(parts) = item else { continue };
        let header = parts.start..parts.common;
        positions.extend(full_time(stream.packets[index].bytes, header, parts.cycles, order));
    }
    Ok(positions)
}

/// The position of the full time at the end of an event's header, if there is one. The header's range is in
/// bits.
fn full_time(
    bytes: &[u8],
    header: Range<u64>,
    cycles: Option<u64>,
    order: ByteOrder,
) -> Option<NumberPosition> {
    let byte = (header.end / 8).checked_sub(8).filter(|byte| byte * 8 > header.start)? as usize;
    let number = *bytes.get(byte..)?.first_chunk()?;
    let number =
        if order == ByteOrder::Little { u64::from_le_bytes(number) } else { u64::from_be_bytes(number) };
    (Some(number) == cycles).then_some(NumberPosition { byte, order, kind: NumberKind::Time })
}

//! Converts the reserved names of CTF 1.8 (sections 5 and 6) to CTF 2 roles.

use crate::events::schema::{FieldClass, Integer, Length, Role, StreamClass, Structure, TraceClass};

/// Assigns roles to fields with reserved names and to fields mapped to a clock.
pub(super) fn settle(trace: &mut TraceClass) -> Result<(), String> {
    if let Some(header) = &mut trace.packet_header {
        packet_header(header);
    }
    let mut streams = std::mem::take(&mut trace.streams);
    let result = streams.values_mut().try_for_each(|stream| settle_stream(stream, trace));
    trace.streams = streams;
    result
}

fn packet_header(header: &mut Structure) {
    for member in &mut header.members {
        match (&mut member.class, member.raw_name.as_str()) {
            (FieldClass::Integer(integer), "magic") => integer.roles.push(Role::PacketMagic),
            (FieldClass::Integer(integer), "stream_id") => integer.roles.push(Role::StreamClassId),
            (FieldClass::Integer(integer), "stream_instance_id") => integer.roles.push(Role::StreamId),
            (class @ FieldClass::Array(_), "uuid") if is_uuid(class) => {
                *class = FieldClass::Blob(Length::Static(16), Some(Role::MetadataUuid));
            }
            _ => {}
        }
    }
}

/// Whether a class is an array of sixteen bytes.
fn is_uuid(class: &FieldClass) -> bool {
    let FieldClass::Array(array) = class else { return false };
    let byte = |integer: &Integer| integer.meaning.size == 8 && integer.alignment == 8;
    array.length == Length::Static(16)
        && matches!(&array.element, FieldClass::Integer(integer) if byte(integer))
}

fn settle_stream(stream: &mut StreamClass, trace: &mut TraceClass) -> Result<(), String> {
    let mut clock = StreamClock { trace, index: None, is_ambiguous: false };
    if let Some(context) = &mut stream.packet_context {
        for member in &mut context.members {
            let FieldClass::Integer(integer) = &mut member.class else { continue };
            match member.raw_name.as_str() {
                "packet_size" => integer.roles.push(Role::PacketTotalLength),
                "content_size" => integer.roles.push(Role::PacketContentLength),
                "events_discarded" => integer.roles.push(Role::DiscardedEvents),
                "packet_seq_num" => integer.roles.push(Role::PacketSequenceNumber),
                // This is the time of the packet's end and must not advance the clock at its beginning.
                "timestamp_end" => {
                    let has_time_name = true;
                    clock.assign(integer, has_time_name, Role::PacketEndTimestamp)?;
                }
                name => clock.assign(integer, name == "timestamp_begin", Role::Timestamp)?,
            }
        }
    }
    if let Some(header) = &mut stream.event_header {
        event_header(header, &mut clock)?;
    }
    stream.clock = clock.index;
    if clock.is_ambiguous {
        let (id, count) = (stream.id, trace.clocks.len());
        trace.notes.push(format!(
            "stream {id} has fields called as times are, and none of the {count} clocks is named as theirs (`map = \
             clock.NAME.value`), so that they are no times"
        ));
    }
    Ok(())
}

fn event_header(structure: &mut Structure, clock: &mut StreamClock<'_>) -> Result<(), String> {
    for member in &mut structure.members {
        match &mut member.class {
            FieldClass::Integer(integer) => {
                if member.raw_name == "id" {
                    integer.roles.push(Role::EventClassId);
                }
                clock.assign(integer, member.raw_name == "timestamp", Role::Timestamp)?;
            }
            FieldClass::Structure(inner) => event_header(inner, clock)?,
            FieldClass::Variant(choice) => {
                for option in &mut choice.options {
                    if let FieldClass::Structure(inner) = &mut option.class {
                        event_header(inner, clock)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The single clock of a stream.
struct StreamClock<'c> {
    trace: &'c mut TraceClass,
    /// Its index in the trace's clocks, once a field has it.
    index: Option<usize>,
    /// Whether a field has a timestamp's name but could belong to several clocks.
    is_ambiguous: bool,
}

impl StreamClock<'_> {
    /// Assigns a role to an integer that is mapped to a clock. An integer with only the name of a timestamp belongs
    /// to the trace's clock: an implied one if the trace has none, and no clock if it has several.
    fn assign(&mut self, integer: &mut Integer, has_time_name: bool, role: Role) -> Result<(), String> {
        let index = match &integer.clock {
            Some(name) => {
                let index = self.trace.clocks.iter().position(|clock| clock.name == *name);
                index.ok_or_else(|| {
                    format!("a field is a value of the clock `{name}`, which does not exist")
                })?
            }
            None if has_time_name && self.trace.clocks.len() <= 1 => self.trace.imply_clock(),
            None => {
                self.is_ambiguous |= has_time_name;
                return Ok(());
            }
        };
        if self.index.is_some_and(|other| other != index) {
            return Err("a stream has values of two clocks".to_owned());
        }
        self.index = Some(index);
        integer.roles.push(role);
        Ok(())
    }
}

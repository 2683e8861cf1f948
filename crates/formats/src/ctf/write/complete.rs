//! Adds the packet fields that readers of a subset of events need: stream class, sizes, begin and end times.

use hodo_model::event::Meaning;

use super::Unwritable;
use crate::events::schema::{
    ClockClass, FieldClass, Integer, Member, Role, StreamClass, Structure, TraceClass,
};

/// CTF 1.8 names for roles in a packet's context.
const NAMES: &[(Role, &str)] = &[
    (Role::Timestamp, "timestamp_begin"),
    (Role::PacketEndTimestamp, "timestamp_end"),
    (Role::PacketContentLength, "content_size"),
    (Role::PacketTotalLength, "packet_size"),
];

/// Adds the missing packet fields to each stream class.
pub(super) fn complete(trace: &mut TraceClass) -> Result<(), Unwritable> {
    complete_header(trace)?;
    let clocks = &trace.clocks;
    trace.streams.values_mut().try_for_each(|stream| complete_stream(stream, clocks))
}

/// babeltrace2 rejects stream class ids that no packet header contains.
fn complete_header(trace: &mut TraceClass) -> Result<(), Unwritable> {
    const NAME: &str = "stream_id";
    let header =
        trace.packet_header.get_or_insert_with(|| Structure { members: Vec::new(), minimum_alignment: 1 });
    if header.has_role(Role::StreamClassId) {
        return Ok(());
    }
    if header.members.iter().any(|member| member.name == NAME) {
        return Err(Unwritable::new(
            "packet header",
            format!("it has a field `{NAME}` with another meaning"),
        ));
    }
    header.members.push(Member {
        name: NAME.to_owned(),
        raw_name: NAME.to_owned(),
        class: FieldClass::Integer(integer(Role::StreamClassId, None)),
    });
    Ok(())
}

fn complete_stream(stream: &mut StreamClass, clocks: &[ClockClass]) -> Result<(), Unwritable> {
    // If headers cannot contain the class id, only class 0 has events.
    if stream.events.len() > 1 && !stream.has_event_classes() {
        stream.events.retain(|event| event.id == 0);
    }
    let clock = stream.clock.and_then(|index| clocks.get(index)).map(|clock| clock.name.clone());
    let context =
        stream.packet_context.get_or_insert_with(|| Structure { members: Vec::new(), minimum_alignment: 1 });
    for &(role, name) in NAMES {
        let is_time = matches!(role, Role::Timestamp | Role::PacketEndTimestamp);
        if is_time && clock.is_none() {
            continue;
        }
        let clock = clock.clone().filter(|_| is_time);
        let is_taken = context.members.iter().any(|member| member.name == name);
        match context.members.iter_mut().find(|member| has_role(&member.class, role)) {
            // A shorter timestamp would depend on omitted events.
            Some(member) if role == Role::Timestamp => match &mut member.class {
                FieldClass::Integer(integer) if integer.meaning.size == 64 => {}
                FieldClass::Integer(integer) => {
                    (integer.meaning.size, integer.alignment) = (64, integer.alignment.max(8));
                }
                class => *class = FieldClass::Integer(integer(role, clock)),
            },
            // A value that is only known at the end needs fixed space from the beginning.
            Some(member) if matches!(member.class, FieldClass::VariableInteger(_)) => {
                member.class = FieldClass::Integer(integer(role, clock));
            }
            Some(_) => {}
            None if is_taken => {
                return Err(Unwritable::new(
                    format!("packet context of stream {}", stream.id),
                    format!("it has a field `{name}` with another meaning"),
                ));
            }
            None => context.members.push(Member {
                name: name.to_owned(),
                raw_name: name.to_owned(),
                class: FieldClass::Integer(integer(role, clock)),
            }),
        }
    }
    Ok(())
}

fn has_role(class: &FieldClass, role: Role) -> bool {
    match class {
        FieldClass::Integer(integer) => integer.roles.contains(&role),
        FieldClass::VariableInteger(integer) => integer.roles.contains(&role),
        _ => false,
    }
}

/// A 64-bit integer.
fn integer(role: Role, clock: Option<String>) -> Integer {
    let meaning = Meaning { size: 64, ..Meaning::default() };
    Integer { roles: vec![role], clock, ..Integer::plain(meaning) }
}

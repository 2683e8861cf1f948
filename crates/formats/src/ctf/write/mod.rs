//! Writes CTF: metadata of a trace or a subset of it, and packets with selected events.
//!
//! ```text
//! TraceClass ──arrange, complete──► all that packets need ──convert──► what the version can express
//!                                                                            │ tsdl, json
//! Target: the classes as read back ◄──read──────── metadata ◄────────────────┘
//!     │
//! events of a stream ──fields──► Encoder ──StreamWriter──► packets
//! ```
//!
//! Packets are always encoded with the classes that a reader gets from the written metadata.

mod bits;
mod complete;
mod convert;
mod encoder;
mod foreign;
mod header;
mod json;
mod locate;
mod stream;
mod tsdl;

use std::{collections::BTreeMap, fmt};

pub use stream::{KeptTimes, NotWritten, StreamWriter};

use foreign::Lifted;

use super::metadata;
use crate::events::schema::{EventClass, FieldClass, StreamClass, Structure, TraceClass};

/// A CTF version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// CTF 1.8: metadata in TSDL.
    Ctf18,
    /// CTF 2: metadata in JSON.
    Ctf2,
}

/// Something that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritable {
    /// The field, stream or event.
    pub element: String,
    /// The reason.
    pub reason: String,
}

impl Unwritable {
    fn new(element: impl Into<String>, reason: impl Into<String>) -> Unwritable {
        Unwritable { element: element.into(), reason: reason.into() }
    }
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.element, self.reason)
    }
}

impl std::error::Error for Unwritable {}

/// The metadata to write, and its classes.
#[derive(Debug)]
pub struct Target {
    /// The metadata.
    pub metadata: String,
    /// Lossy conversions for this version: description and number of fields.
    pub conversions: BTreeMap<String, u64>,
    class: TraceClass,
    lifted: Lifted,
}

impl Target {
    /// Creates the metadata for the events that `keep` selects.
    ///
    /// # Errors
    /// A field that the version cannot express.
    pub fn new(
        source: &TraceClass,
        version: Version,
        keep: &dyn Fn(&StreamClass, &EventClass) -> bool,
    ) -> Result<Target, Unwritable> {
        let mut class = source.clone();
        for stream in class.streams.values_mut() {
            let whole = &source.streams[&stream.id];
            stream.events.retain(|event| keep(whole, event));
        }
        let lifted = if source.version == 0 { foreign::arrange(&mut class) } else { Lifted::new() };
        complete::complete(&mut class)?;
        let conversions = convert::convert(&mut class, version)?;
        let metadata = match version {
            Version::Ctf18 => tsdl::metadata(&class),
            Version::Ctf2 => json::metadata(&class),
        };
        let read = metadata::read(metadata.as_bytes()).map_err(|error| {
            Unwritable::new("metadata", format!("what was written can't be read: {error}"))
        })?;
        same(&class, &read).map_err(|element| Unwritable::new(element, "would be read back differently"))?;
        Ok(Target { metadata, conversions, class: read, lifted })
    }
}

/// Checks that the metadata reads back as written, because packets follow what is read. The error names what differs.
fn same(written: &TraceClass, read: &TraceClass) -> Result<(), String> {
    let root = |element: &str, one: &Option<Structure>, other: &Option<Structure>| {
        let (one, other) = (one.as_ref().filter(has_members), other.as_ref().filter(has_members));
        match (one, other) {
            (Some(one), Some(other)) => {
                same_structure(one, other).map_err(|inner| format!("{element}.{inner}"))
            }
            (None, None) => Ok(()),
            _ => Err(element.to_owned()),
        }
    };
    root("packet header", &written.packet_header, &read.packet_header)?;
    for stream in written.streams.values() {
        let element = format!("stream {}", stream.id);
        let other = read.streams.get(&stream.id).ok_or_else(|| element.clone())?;
        root("packet context", &stream.packet_context, &other.packet_context)?;
        root("event header", &stream.event_header, &other.event_header)?;
        root("event context", &stream.common_context, &other.common_context)?;
        if stream.clock.is_some() != other.clock.is_some() || stream.events.len() != other.events.len() {
            return Err(element);
        }
        for (event, other) in stream.events.iter().zip(&other.events) {
            let element = |scope: &str| format!("event `{}`, {scope}", event.name);
            if (event.id, &event.name) != (other.id, &other.name) {
                return Err(element("name"));
            }
            root(&element("context"), &event.specific_context, &other.specific_context)?;
            root(&element("fields"), &event.payload, &other.payload)?;
        }
    }
    Ok(())
}

fn has_members(structure: &&Structure) -> bool {
    !structure.members.is_empty()
}

fn same_structure(one: &Structure, other: &Structure) -> Result<(), String> {
    if one.members.len() != other.members.len() {
        return Err("members".to_owned());
    }
    for (one, other) in one.members.iter().zip(&other.members) {
        if one.name != other.name {
            return Err(one.name.clone());
        }
        same_class(&one.class, &other.class).map_err(|inner| format!("{}{inner}", one.name))?;
    }
    Ok(())
}

fn same_class(one: &FieldClass, other: &FieldClass) -> Result<(), String> {
    let check = |same: bool| if same { Ok(()) } else { Err(String::new()) };
    match (one, other) {
        (FieldClass::Integer(one), FieldClass::Integer(other)) => check(
            one.meaning.size == other.meaning.size && one.signed == other.signed && one.roles == other.roles,
        ),
        (FieldClass::VariableInteger(one), FieldClass::VariableInteger(other)) => {
            check(one.signed == other.signed && one.roles == other.roles)
        }
        (FieldClass::Real(one), FieldClass::Real(other)) => check(one.size == other.size),
        (FieldClass::String(one), FieldClass::String(other)) => check(one == other),
        (FieldClass::Text(one, _), FieldClass::Text(other, _)) => check(one == other),
        (FieldClass::Blob(_, one), FieldClass::Blob(_, other)) => check(one == other),
        (FieldClass::Structure(one), FieldClass::Structure(other)) => {
            same_structure(one, other).map_err(|inner| format!(".{inner}"))
        }
        (FieldClass::Array(one), FieldClass::Array(other)) => {
            same_class(&one.element, &other.element).map_err(|inner| format!("[]{inner}"))
        }
        (FieldClass::Variant(one), FieldClass::Variant(other))
        | (FieldClass::Optional(one), FieldClass::Optional(other)) => {
            check(one.options.len() == other.options.len())?;
            let mut options = one.options.iter().zip(&other.options);
            options.try_for_each(|(one, other)| {
                check(one.name == other.name && ranges(&one.ranges) == ranges(&other.ranges))?;
                same_class(&one.class, &other.class)
            })
        }
        _ => check(false),
    }
}

/// Sorts ranges, whose order has no meaning.
fn ranges(ranges: &[(i128, i128)]) -> Vec<(i128, i128)> {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

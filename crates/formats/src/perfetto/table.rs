//! The types of ftrace events that Perfetto has messages for, and their fields.
//!
//! `events.txt` lists them, one per line: the number of the event's field in `FtraceEvent`, the event's name, and its
//! fields, each with its number and its type: `i` signed, `u` unsigned, `b` a boolean, `s` text, `x` bytes, `m` a
//! message, `*` repeated. The messages of generic events are read in `schema`; types here leave them out.
//!
//! Source: `protos/perfetto/trace/ftrace` of Perfetto 59, whose names are those of the kernel's format files.
//! `fixtures/perfetto/events.py` writes the list anew.

use std::{collections::HashMap, sync::OnceLock};

use crate::events::message::Kind;

const EVENTS: &str = include_str!("events.txt");

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeField {
    pub(super) name: String,
    pub(super) number: u32,
    pub(super) kind: Kind,
}

/// A type of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) name: String,
    pub(super) fields: Vec<TypeField>,
}

/// The type of the events in a field of `FtraceEvent`.
pub(super) fn known(number: u32) -> Option<Type> {
    static LINES: OnceLock<HashMap<u32, &str>> = OnceLock::new();
    let lines = LINES.get_or_init(|| {
        let numbered = |line: &'static str| Some((line.split(' ').next()?.parse().ok()?, line));
        EVENTS.lines().filter_map(numbered).collect()
    });
    parse(lines.get(&number)?)
}

fn parse(line: &str) -> Option<Type> {
    let mut words = line.split(' ').skip(1);
    let name = words.next()?.to_owned();
    let field = |word: &str| {
        let (name, rest) = word.split_once(':')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let kind = match &rest[digits..] {
            "i" => Kind::Signed,
            "u" => Kind::Unsigned,
            "b" => Kind::Boolean,
            "s" => Kind::Text,
            "x" => Kind::Bytes,
            "u*" => Kind::Many,
            _ => return None,
        };
        Some(TypeField { name: name.to_owned(), number: rest[..digits].parse().ok()?, kind })
    };
    Some(Type { name, fields: words.filter_map(field).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_type() {
        let mut before = 0;
        for line in EVENTS.lines() {
            let number = line.split(' ').next().unwrap().parse::<u32>().unwrap();
            assert!(number > before, "{line}");
            before = number;
            let fields = line.split(' ').count() - 2;
            let class = known(number).unwrap();
            // The message of a generic event is left out: it names fields of its own.
            assert!(class.fields.len() == fields || class.name == "generic", "{line}");
        }
        let switch = known(4).unwrap();
        assert_eq!((switch.name.as_str(), switch.fields.len()), ("sched_switch", 7));
        assert_eq!(
            switch.fields[3],
            TypeField { name: "prev_state".to_owned(), number: 4, kind: Kind::Signed }
        );
        assert_eq!(known(1), None);
    }
}

//! Rules that identify events as the two ends of a message, and the fields that pair them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use hodo_formats::events::{
    Event, FieldPath, Stream, Trace,
    schema::{EventClass, Scope},
};
use hodo_model::{
    event::{Compound, FieldSink, Meaning, Name},
    vocabulary,
};
use hodo_sync::{Direction, TcpKey};

use crate::events::{find, is_like};

/// A rule that finds messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchRule {
    /// The exchanges of boards: `sync_send.seq = sync_recv.seq`.
    Exchanges,
    /// TCP segments, as LTTng's network events record their headers.
    Tcp,
    /// Events with equal fields.
    Fields(FieldMatch),
}

/// Two kinds of events, and the fields that are equal at both ends of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMatch {
    /// Pattern of the names of sending events.
    send: String,
    /// Pattern of the names of events that receive.
    receive: String,
    /// Pairs of fields to compare: sender's, receiver's.
    fields: Vec<(String, String)>,
}

impl MatchRule {
    /// The default rules.
    pub const DEFAULT: [MatchRule; 2] = [MatchRule::Exchanges, MatchRule::Tcp];

    /// Parses `exchanges`, `tcp`, or `SEND.FIELD = RECEIVE.FIELD`; several such pairs are joined by `and`.
    ///
    /// # Errors
    /// Returns a text with the expected syntax.
    pub fn parse(text: &str) -> Result<MatchRule, String> {
        match text.trim() {
            "exchanges" => return Ok(MatchRule::Exchanges),
            "tcp" => return Ok(MatchRule::Tcp),
            _ => {}
        }
        let mut found: Option<FieldMatch> = None;
        for part in text.split(" and ") {
            let wrong = || {
                format!(
                    "`{part}`: expected SEND.FIELD = RECEIVE.FIELD, such as `send.seq = recv.seq`, or exchanges, or tcp"
                )
            };
            let (sender, receiver) = part.split_once('=').ok_or_else(wrong)?;
            let end = |text: &str| {
                let (event, field) = text.trim().trim_end_matches('=').trim().split_once('.')?;
                let is_named = !event.is_empty() && !field.is_empty() && !text.contains('<');
                is_named.then(|| (event.to_owned(), field.to_owned()))
            };
            let receiver = receiver.trim_start_matches('=');
            let ((send, sent_field), (receive, received_field)) =
                end(sender).zip(end(receiver)).ok_or_else(wrong)?;
            let rule = found.get_or_insert_with(|| FieldMatch {
                send: send.clone(),
                receive: receive.clone(),
                fields: Vec::new(),
            });
            if (&rule.send, &rule.receive) != (&send, &receive) {
                return Err(format!("`{part}`: all parts must name the same two events"));
            }
            rule.fields.push((sent_field, received_field));
        }
        let rule = found.ok_or_else(|| "it names no fields".to_owned())?;
        match rule.send == rule.receive {
            true => Err(format!("`{}` can't be both the sending and the receiving event", rule.send)),
            false => Ok(MatchRule::Fields(rule)),
        }
    }
}

impl fmt::Display for MatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatchRule::Exchanges => f.write_str("exchanges"),
            MatchRule::Tcp => f.write_str("tcp"),
            MatchRule::Fields(rule) => {
                let part = |(sent, received): &(String, String)| {
                    format!("{}.{sent} = {}.{received}", rule.send, rule.receive)
                };
                f.write_str(&rule.fields.iter().map(part).collect::<Vec<_>>().join(" and "))
            }
        }
    }
}

/// The key that pairs the two ends of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Tcp(TcpKey),
    /// The encoded values of fields, concatenated.
    Fields(Vec<u8>),
}

/// An event that is an end of a message.
pub(super) struct End {
    pub(super) direction: Direction,
    key: KeySource,
}

/// The fields of an event from which its key is made.
enum KeySource {
    /// The headers of a TCP segment.
    Segment,
    /// The fields, all of which must be present, and the bytes that precede their values in the key.
    Fields(Vec<FieldPath>, Vec<u8>),
}

/// Distinguishes the boards of one master: the master's events name the slave, and a slave's number is in its input's
/// name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    /// Whether the number is part of the key.
    pub(super) is_in_key: bool,
    /// The number at the end of the input's name.
    pub(super) number: Option<u64>,
}

impl MatchRule {
    /// Returns the message end that events of a class represent, if any.
    pub(super) fn end(
        &self,
        trace: &Trace<'_>,
        stream: &Stream<'_>,
        class: &EventClass,
        peer: Peer,
    ) -> Option<End> {
        let is_like =
            |pattern: &str| vocabulary::names(&class.name).iter().any(|name| matches(name, pattern));
        let side = |send: &str, receive: &str| match (is_like(send), is_like(receive)) {
            (true, _) => Some(Direction::Send),
            (_, true) => Some(Direction::Receive),
            _ => None,
        };
        let path = |field: &str| find(trace, stream, class, &field.split('.').collect::<Vec<_>>());
        match self {
            MatchRule::Tcp => {
                let direction = side("net_dev_queue", "net_if_receive_skb")?;
                Some(End { direction, key: KeySource::Segment })
            }
            MatchRule::Exchanges => {
                let direction = side("sync_send", "sync_recv")?;
                let mut paths = vec![path("seq")?];
                let mut before = Vec::new();
                match path("slave").filter(|_| peer.is_in_key) {
                    Some(slave) => paths.insert(0, slave),
                    None if peer.is_in_key => integer(peer.number?.into(), &mut before),
                    None => {}
                }
                Some(End { direction, key: KeySource::Fields(paths, before) })
            }
            MatchRule::Fields(rule) => {
                let direction = side(&rule.send, &rule.receive)?;
                let path_in_direction = |(send, receive): &(String, String)| match direction {
                    Direction::Send => path(send),
                    Direction::Receive => path(receive),
                };
                let paths = rule.fields.iter().map(path_in_direction).collect::<Option<_>>()?;
                Some(End { direction, key: KeySource::Fields(paths, Vec::new()) })
            }
        }
    }
}

/// Returns whether a class has a `slave` field.
pub(super) fn names_slave(trace: &Trace<'_>, stream: &Stream<'_>, class: &EventClass) -> bool {
    find(trace, stream, class, &["slave"]).is_some()
}

fn matches(name: &str, pattern: &str) -> bool {
    is_like(name.as_bytes(), pattern.as_bytes())
}

impl End {
    /// Returns the key of an event; `None` if it has none, such as a packet that is not TCP.
    pub(super) fn key(&self, event: &Event<'_, '_, '_>) -> Option<Key> {
        match &self.key {
            KeySource::Segment => {
                let mut headers = Headers::default();
                event.emit(Scope::Payload, &mut headers).ok()?;
                headers.key().map(Key::Tcp)
            }
            KeySource::Fields(paths, before) => {
                let mut values = Values(before.clone());
                for path in paths {
                    event.emit_field(path, &mut values).ok()?;
                }
                Some(Key::Fields(values.0))
            }
        }
    }
}

/// Appends an integer, tagged so that it differs from other types.
fn integer(value: i128, values: &mut Vec<u8>) {
    values.push(b'i');
    values.extend(value.to_le_bytes());
}

/// Encodes field values so that equal values have equal bytes.
struct Values(Vec<u8>);

impl FieldSink for Values {
    fn unsigned(&mut self, _: Name<'_>, value: u64, _: &Meaning) {
        integer(value.into(), &mut self.0);
    }

    fn signed(&mut self, _: Name<'_>, value: i64, _: &Meaning) {
        integer(value.into(), &mut self.0);
    }

    fn real(&mut self, _: Name<'_>, value: f64) {
        self.0.push(b'r');
        self.0.extend(value.to_bits().to_le_bytes());
    }

    fn boolean(&mut self, _: Name<'_>, value: bool) {
        integer(value.into(), &mut self.0);
    }

    fn text(&mut self, _: Name<'_>, text: &[u8]) {
        self.0.push(b't');
        self.0.extend((text.len() as u64).to_le_bytes());
        self.0.extend_from_slice(text);
    }

    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {
        self.text(name, bytes);
    }

    fn absent(&mut self, _: Name<'_>) {
        self.0.push(b'n');
    }

    fn begin(&mut self, _: Name<'_>, _: Compound) {
        self.0.push(b'(');
    }

    fn end(&mut self, _: Compound) {
        self.0.push(b')');
    }
}

/// Collects the headers of a network packet at any depth of an event: LTTng-modules, `instrumentation/events/net.h`.
#[derive(Debug, Default)]
struct Headers {
    source: Vec<u8>,
    destination: Vec<u8>,
    ports: [Option<u16>; 2],
    seq: Option<u32>,
    ack: Option<u32>,
    flags: u16,
    /// The address array whose elements are being read.
    array: Option<Side>,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Source,
    Destination,
}

impl Headers {
    fn key(&self) -> Option<TcpKey> {
        let address = |bytes: &[u8]| match bytes.len() {
            4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?))),
            16 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))),
            _ => None,
        };
        let [source, destination] = self.ports;
        Some(TcpKey {
            source: SocketAddr::new(address(&self.source)?, source?),
            destination: SocketAddr::new(address(&self.destination)?, destination?),
            seq: self.seq?,
            ack: self.ack?,
            flags: self.flags,
        })
    }

    fn address(&mut self, side: Side) -> &mut Vec<u8> {
        match side {
            Side::Source => &mut self.source,
            Side::Destination => &mut self.destination,
        }
    }

    fn side(name: Name<'_>) -> Option<Side> {
        match name {
            Name::Member("saddr") => Some(Side::Source),
            Name::Member("daddr") => Some(Side::Destination),
            _ => None,
        }
    }
}

impl FieldSink for Headers {
    fn unsigned(&mut self, name: Name<'_>, value: u64, _: &Meaning) {
        match name {
            Name::Element(_) => {
                if let Some(side) = self.array
                    && self.address(side).len() < 16
                {
                    self.address(side).push(value as u8);
                }
            }
            Name::Member("source_port") => self.ports[0] = u16::try_from(value).ok(),
            Name::Member("dest_port") => self.ports[1] = u16::try_from(value).ok(),
            Name::Member("seq") => self.seq = u32::try_from(value).ok(),
            Name::Member("ack_seq") => self.ack = u32::try_from(value).ok(),
            Name::Member("flags") => self.flags = value as u16,
            Name::Member(_) => {}
        }
    }

    fn signed(&mut self, name: Name<'_>, value: i64, meaning: &Meaning) {
        self.unsigned(name, value as u64, meaning);
    }

    fn blob(&mut self, name: Name<'_>, bytes: &[u8]) {
        if let Some(side) = Headers::side(name) {
            *self.address(side) = bytes.to_vec();
        }
    }

    fn begin(&mut self, name: Name<'_>, compound: Compound) {
        if compound == Compound::Array {
            self.array = Headers::side(name);
        }
    }

    fn end(&mut self, compound: Compound) {
        if compound == Compound::Array {
            self.array = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_two_events_and_their_fields() {
        let rule = MatchRule::parse("send.seq = recv.seq and send.a.b = recv.c").unwrap();
        assert_eq!(rule.to_string(), "send.seq = recv.seq and send.a.b = recv.c");
        assert_eq!(MatchRule::parse("my:send.n == my:recv.n").unwrap().to_string(), "my:send.n = my:recv.n");
        assert_eq!(MatchRule::parse("tcp"), Ok(MatchRule::Tcp));
        for wrong in ["", "send", "send = recv", "send.a = recv", "a.x = b.x and a.y = c.y", "a.x = a.x"] {
            assert!(MatchRule::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_segment_has_addresses_ports_and_numbers() {
        let mut headers = Headers::default();
        let meaning = Meaning::default();
        let address = |headers: &mut Headers, name, last: u64| {
            headers.begin(Name::Member(name), Compound::Array);
            for (index, byte) in [10, 0, 0, last].into_iter().enumerate() {
                headers.unsigned(Name::Element(index as u64), byte, &meaning);
            }
            headers.end(Compound::Array);
        };
        address(&mut headers, "saddr", 1);
        address(&mut headers, "daddr", 2);
        assert_eq!(headers.key(), None);
        for (name, value) in
            [("source_port", 4000), ("dest_port", 80), ("seq", 7), ("ack_seq", 9), ("flags", 0x18)]
        {
            headers.unsigned(Name::Member(name), value, &meaning);
        }
        let key = headers.key().unwrap();
        assert_eq!((key.source.to_string().as_str(), key.seq, key.flags), ("10.0.0.1:4000", 7, 0x18));
    }
}

//! Parses top-level blocks (CTF 1.8 section 7.2).

use std::borrow::Cow;

use hodo_clock::CycleClock;

use super::{
    parser::Parser,
    token::Kind,
    types::{Value, shown},
};
use crate::error::Error;
use crate::events::schema::{
    ClockClass, DEFAULT_FREQUENCY, Environment, EventClass, FieldClass, StreamClass, Structure, TraceClass,
};

/// The right side of `=` or `:=`.
enum Entry<'t> {
    Value(Value<'t>),
    Class(FieldClass),
}

impl<'t> Parser<'t> {
    /// Parses all metadata.
    pub(super) fn metadata(&mut self) -> Result<TraceClass, Error> {
        let mut trace = TraceClass::default();
        let mut events = Vec::new();
        loop {
            let word = match *self.peek() {
                Kind::End => break,
                Kind::Sign(";") => {
                    self.take()?;
                    continue;
                }
                Kind::Word(word) => word,
                _ => return Err(self.error_here("a block or a type declaration expected".to_owned())),
            };
            match word {
                "trace" => self.trace(&mut trace)?,
                "env" => self.environment(&mut trace)?,
                "clock" => trace.clocks.push(self.clock_class()?),
                "stream" => self.stream(&mut trace)?,
                "event" => events.push(self.event()?),
                "callsite" => self.block(|_, _, _| Ok(()))?,
                _ if self.declaration()? => {}
                _ => {
                    let expected = "`trace`, `env`, `clock`, `stream`, `event`, `callsite` or a type declaration expected";
                    return Err(self.error_here(expected.to_owned()));
                }
            }
        }
        trace.notes.extend(self.ignored());
        if trace.streams.is_empty() {
            trace.streams.insert(0, StreamClass::default());
        }
        let only = trace.streams.keys().copied().next().filter(|_| trace.streams.len() == 1);
        for (stream, event) in events {
            let id = stream.or(only).unwrap_or(0);
            let stream = trace.streams.get_mut(&id);
            let stream = stream.ok_or_else(|| {
                self.metadata_error(format!("event `{}`: no stream has the id {id}", event.name))
            })?;
            stream.events.push(event);
        }
        Ok(trace)
    }

    /// Parses a named type, if one is next. Returns whether it was.
    pub(super) fn declaration(&mut self) -> Result<bool, Error> {
        let Kind::Word(word) = *self.peek() else { return Ok(false) };
        match word {
            "typealias" => {
                self.take()?;
                let class = self.class()?;
                self.expect(":=")?;
                let mut name = self.word()?.to_owned();
                while matches!(self.peek(), Kind::Word(_)) {
                    name += " ";
                    name += self.word()?;
                }
                while self.take_if("*")? {
                    name += " *";
                }
                self.name_class(name, class)?;
            }
            "typedef" => {
                self.take()?;
                let class = self.class_before_declarator()?;
                loop {
                    let name = self.word()?.to_owned();
                    let class = self.declarator(class.clone())?;
                    self.name_class(name, class)?;
                    if !self.take_if(",")? {
                        break;
                    }
                }
            }
            "struct" | "variant" | "enum" if self.scopes.len() == 1 || self.stands_alone()? => {
                self.class()?;
                return self.end_of_declaration().map(|()| true);
            }
            _ => return Ok(false),
        }
        self.expect(";")?;
        Ok(true)
    }

    /// Takes the `;` after a declaration that ends by itself. Some generators of metadata omit it; the result is the
    /// same, so it is noted and not refused.
    fn end_of_declaration(&mut self) -> Result<(), Error> {
        if !self.take_if(";")? {
            self.missing.get_or_insert(self.last);
        }
        Ok(())
    }

    /// Whether a named type declaration follows within a block, which is possible only outside structures.
    fn stands_alone(&mut self) -> Result<bool, Error> {
        Ok(self.depth == 0 && matches!(self.peek_second()?, Kind::Word(_)))
    }

    fn name_class(&mut self, name: String, class: FieldClass) -> Result<(), Error> {
        self.pay(&class)?;
        if let Some(names) = self.scopes.last_mut() {
            names.aliases.insert(name, class);
        }
        Ok(())
    }

    /// Parses a block and passes each entry to `set`.
    fn block(
        &mut self,
        mut set: impl FnMut(&mut Self, &str, Entry<'t>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.take()?;
        self.expect("{")?;
        self.scopes.push(Default::default());
        while !self.take_if("}")? {
            if self.declaration()? {
                continue;
            }
            let name = match self.peek() {
                Kind::Text(text) => {
                    let text = text.clone();
                    self.take()?;
                    Cow::Owned(text)
                }
                _ => self.path()?,
            };
            let entry = if self.take_if(":=")? {
                Entry::Class(self.class()?)
            } else {
                self.expect("=")?;
                Entry::Value(self.value()?)
            };
            let is_class = matches!(entry, Entry::Class(_));
            set(self, &name, entry)?;
            if is_class { self.end_of_declaration()? } else { self.expect(";")? }
        }
        self.scopes.pop();
        self.take_if(";")?;
        Ok(())
    }

    fn trace(&mut self, trace: &mut TraceClass) -> Result<(), Error> {
        self.block(|parser, name, entry| {
            match name {
                "uuid" => trace.uuid = Some(parser.uuid(&entry)?),
                "packet.header" => trace.packet_header = Some(parser.structure_of(entry)?),
                "major" if parser.integer_of(&entry)? != 1 => {
                    return Err(parser.error_at_last("TSDL describes CTF 1.8 only".to_owned()));
                }
                // The byte order was found before parsing.
                _ => {}
            }
            Ok(())
        })
    }

    fn environment(&mut self, trace: &mut TraceClass) -> Result<(), Error> {
        self.block(|parser, name, entry| {
            let value = match entry {
                Entry::Value(Value::Integer(integer)) => Environment::Integer(integer),
                Entry::Value(Value::Text(text)) => Environment::Text(text),
                Entry::Value(Value::Path(path)) => Environment::Text(path.into_owned()),
                Entry::Class(_) => return Err(parser.error_at_last("a number or a text expected".to_owned())),
            };
            if let Environment::Integer(integer) = value {
                parser.environment.insert(name.to_owned(), integer);
            }
            trace.environment.push((name.to_owned(), value));
            Ok(())
        })
    }

    fn clock_class(&mut self) -> Result<ClockClass, Error> {
        let mut name = String::new();
        let mut description = String::new();
        // CTF 1.8 section 8: the default frequency is 1 GHz.
        let (mut frequency, mut seconds, mut cycles, mut absolute) = (DEFAULT_FREQUENCY, 0, 0, None);
        let mut uid = None;
        self.block(|parser, key, entry| {
            match key {
                "name" => name = parser.text_of(entry)?,
                "description" => description = parser.text_of(entry)?,
                "freq" => {
                    let number = parser.integer_of(&entry)?;
                    frequency = u64::try_from(number)
                        .map_err(|_| parser.error_at_last("a frequency in Hz expected".to_owned()))?;
                }
                "offset_s" => {
                    let number = parser.integer_of(&entry)?;
                    seconds = i64::try_from(number)
                        .map_err(|_| parser.error_at_last("too many seconds".to_owned()))?;
                }
                "offset" => cycles = parser.integer_of(&entry)?,
                "absolute" => absolute = Some(parser.truth_of(&entry)?),
                "uuid" => uid = Some(parser.text_of(entry)?),
                _ => {}
            }
            Ok(())
        })?;
        let cycles = CycleClock::new(frequency, seconds, cycles).ok_or_else(|| {
            self.error_at_last(format!(
                "the clock `{name}` has a frequency of zero, or an offset beyond 64 bits"
            ))
        })?;
        // babeltrace2 treats LTTng's clock, which has the boot's UUID, as counting from 1970. The clock `perf` of a
        // recorded machine does so too.
        let unix = absolute.unwrap_or(uid.is_some() && ["monotonic", "perf"].contains(&name.as_str()));
        Ok(ClockClass { name, description, cycles, unix, uid })
    }

    fn stream(&mut self, trace: &mut TraceClass) -> Result<(), Error> {
        let mut stream = StreamClass::default();
        self.block(|parser, name, entry| {
            match name {
                "id" => stream.id = parser.id(&entry)?,
                "packet.context" => stream.packet_context = Some(parser.structure_of(entry)?),
                "event.header" => stream.event_header = Some(parser.structure_of(entry)?),
                "event.context" => stream.common_context = Some(parser.structure_of(entry)?),
                _ => {}
            }
            Ok(())
        })?;
        let id = stream.id;
        match trace.streams.insert(id, stream) {
            None => Ok(()),
            Some(_) => Err(self.error_at_last(format!("two streams have the id {id}"))),
        }
    }

    /// Parses an event class. Returns it with the id of its stream class, if it states one.
    fn event(&mut self) -> Result<(Option<u64>, EventClass), Error> {
        let mut event = EventClass::default();
        let mut stream = None;
        self.block(|parser, name, entry| {
            match name {
                "id" => event.id = parser.id(&entry)?,
                "stream_id" => stream = Some(parser.id(&entry)?),
                "name" => event.name = parser.text_of(entry)?,
                "loglevel" => event.log_level = i64::try_from(parser.integer_of(&entry)?).ok(),
                "context" => event.specific_context = Some(parser.structure_of(entry)?),
                "fields" => event.payload = Some(parser.structure_of(entry)?),
                _ => {}
            }
            Ok(())
        })?;
        if event.name.is_empty() {
            event.name = event.id.to_string();
        }
        Ok((stream, event))
    }
}

/// Conversions of block entries.
impl Parser<'_> {
    fn structure_of(&self, entry: Entry<'_>) -> Result<Structure, Error> {
        match entry {
            Entry::Class(FieldClass::Structure(structure)) => Ok(structure),
            _ => Err(self.error_at_last("`:= struct` expected".to_owned())),
        }
    }

    fn integer_of(&self, entry: &Entry<'_>) -> Result<i128, Error> {
        match entry {
            Entry::Value(Value::Integer(integer)) => Ok(*integer),
            _ => Err(self.error_at_last("a number expected".to_owned())),
        }
    }

    fn id(&self, entry: &Entry<'_>) -> Result<u64, Error> {
        let number = self.integer_of(entry)?;
        u64::try_from(number)
            .map_err(|_| self.error_at_last("an id that is not negative expected".to_owned()))
    }

    fn text_of(&self, entry: Entry<'_>) -> Result<String, Error> {
        match entry {
            Entry::Value(Value::Text(text)) => Ok(text),
            Entry::Value(Value::Path(path)) => Ok(path.into_owned()),
            _ => Err(self.error_at_last("a text expected".to_owned())),
        }
    }

    fn truth_of(&self, entry: &Entry<'_>) -> Result<bool, Error> {
        match entry {
            Entry::Value(Value::Integer(integer)) => Ok(*integer != 0),
            Entry::Value(Value::Path(path)) => Ok(matches!(shown(path), "true" | "TRUE")),
            _ => Err(self.error_at_last("`true` or `false` expected".to_owned())),
        }
    }

    fn uuid(&self, entry: &Entry<'_>) -> Result<[u8; 16], Error> {
        let wrong = || {
            self.error_at_last("expected a UUID, such as \"bf4863da-c8f8-7d41-af1b-10ffd20a7d42\"".to_owned())
        };
        let Entry::Value(Value::Text(text)) = entry else { return Err(wrong()) };
        crate::ctf::uuid::parse(text).ok_or_else(wrong)
    }
}

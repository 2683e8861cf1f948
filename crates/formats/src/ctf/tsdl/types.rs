//! Parses types: CTF 1.8 sections 4 and 7.3.

use std::{borrow::Cow, collections::HashMap};

use hodo_model::event::{Base, Label, Meaning};

use super::{
    parser::{DEEPEST, Parser},
    token::Kind,
};
use crate::error::Error;
use crate::events::schema::{
    Array, ByteOrder, Choice, ChoiceOption, Encoding, FieldClass, Integer, Length, Member, Real, Reference,
    Scope, Structure,
};

/// An assigned value.
pub(super) enum Value<'t> {
    Integer(i128),
    Text(String),
    Path(Cow<'t, str>),
}

/// Scopes by their names in references: CTF 1.8 section 7.3.2.
const SCOPES: &[(&[&str], Scope)] = &[
    (&["trace", "packet", "header"], Scope::PacketHeader),
    (&["stream", "packet", "context"], Scope::PacketContext),
    (&["stream", "event", "header"], Scope::EventHeader),
    (&["stream", "event", "context"], Scope::CommonContext),
    (&["event", "context"], Scope::SpecificContext),
    (&["event", "fields"], Scope::Payload),
];

/// The byte order with this name.
pub(super) fn byte_order(name: &str) -> Option<ByteOrder> {
    match name {
        "le" => Some(ByteOrder::Little),
        "be" | "network" => Some(ByteOrder::Big),
        _ => None,
    }
}

/// Removes one leading underscore, which is not part of the name: CTF 1.8 section 7.3.1.
pub(super) fn shown(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

/// The last name of a path.
fn last_name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Nested arrays of a type; the first length is the outermost.
fn array_of(class: FieldClass, lengths: Vec<Length>) -> FieldClass {
    lengths.into_iter().rev().fold(class, |element, length| match element {
        FieldClass::Integer(Integer { text: Some(encoding), alignment: 8, ref meaning, .. })
            if meaning.size == 8 && meaning.labels.is_empty() =>
        {
            FieldClass::Text(encoding, length)
        }
        element => FieldClass::Array(Box::new(Array { length, element, minimum_alignment: 1 })),
    })
}

impl<'t> Parser<'t> {
    /// Parses the value after `=`.
    pub(super) fn value(&mut self) -> Result<Value<'t>, Error> {
        let negative = self.take_if("-")?;
        if !negative {
            self.take_if("+")?;
        }
        match self.peek() {
            Kind::Integer(integer) => {
                let integer = i128::from(*integer);
                self.take()?;
                Ok(Value::Integer(if negative { -integer } else { integer }))
            }
            Kind::Text(text) if !negative => {
                let text = text.clone();
                self.take()?;
                Ok(Value::Text(text))
            }
            Kind::Word(_) if !negative => Ok(Value::Path(self.path()?)),
            _ => Err(self.error_here("expected a value: a number, a string or a name".to_owned())),
        }
    }

    /// Parses the attributes of a type in braces, and passes each to `set`.
    fn attributes(
        &mut self,
        mut set: impl FnMut(&mut Self, &'t str, Value<'t>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.expect("{")?;
        while !self.take_if("}")? {
            let name = self.word()?;
            self.expect("=")?;
            let value = self.value()?;
            set(self, name, value)?;
            self.expect(";")?;
        }
        Ok(())
    }

    /// Parses a type that no declarator follows.
    pub(super) fn class(&mut self) -> Result<FieldClass, Error> {
        let declarator = false;
        self.class_and(declarator)
    }

    /// Parses a type that a declarator follows: the last of several words is its name.
    pub(super) fn class_before_declarator(&mut self) -> Result<FieldClass, Error> {
        let declarator = true;
        self.class_and(declarator)
    }

    fn class_and(&mut self, declarator: bool) -> Result<FieldClass, Error> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error_here(format!("types are nested more than {DEEPEST} deep")));
        }
        while self.is_word("const") {
            self.take()?;
        }
        // Recursion takes stack, and structures nest deepest, so this function keeps other types' variables off the
        // stack.
        let class = match self.is_word("struct") {
            true => self.structure().map(FieldClass::Structure),
            false => self.other_class(declarator),
        };
        self.depth -= 1;
        class
    }

    #[inline(never)]
    fn other_class(&mut self, declarator: bool) -> Result<FieldClass, Error> {
        let Kind::Word(word) = *self.peek() else {
            return Err(self.error_here("a type expected".to_owned()));
        };
        Ok(match word {
            "integer" => FieldClass::Integer(self.integer()?),
            "floating_point" => FieldClass::Real(self.floating_point()?),
            "string" => FieldClass::String(self.string()?),
            "enum" => FieldClass::Integer(self.enumeration()?),
            "variant" => FieldClass::Variant(Box::new(self.variant()?)),
            _ => self.alias(declarator)?,
        })
    }

    /// Parses a type name of one or several words, such as `unsigned long`.
    fn alias(&mut self, declarator: bool) -> Result<FieldClass, Error> {
        let mut name = self.word()?.to_owned();
        while matches!(self.peek(), Kind::Word(_)) {
            if declarator && !matches!(self.peek_second()?, Kind::Word(_)) {
                break;
            }
            name += " ";
            name += self.word()?;
        }
        while self.take_if("*")? {
            name += " *";
        }
        let class = self.scopes.iter().rev().find_map(|names| names.aliases.get(&name)).cloned();
        let class = class.ok_or_else(|| self.error_at_last(format!("there is no type `{name}`")))?;
        self.pay(&class)?;
        Ok(class)
    }

    fn integer(&mut self) -> Result<Integer, Error> {
        let Some((text, brace)) = self.up_to_brace() else { return self.new_integer() };
        if let Some(known) = self.integers.get(text).cloned() {
            self.take_up_to(brace)?;
            return Ok(known);
        }
        let integer = self.new_integer()?;
        // The `}` may have been in a comment.
        if self.last == brace {
            self.integers.insert(text, integer.clone());
        }
        Ok(integer)
    }

    fn new_integer(&mut self) -> Result<Integer, Error> {
        self.take()?;
        let (mut size, mut alignment, mut order) = (None, None, None);
        let mut integer = Integer {
            alignment: 1,
            signed: false,
            byte_order: ByteOrder::Little,
            reversed: false,
            boolean: false,
            meaning: Meaning::default(),
            roles: Vec::new(),
            clock: None,
            text: None,
            slot: None,
        };
        self.attributes(|parser, name, value| {
            match name {
                "size" => size = Some(parser.size(&value)?),
                "align" => alignment = Some(parser.alignment(&value)?),
                "signed" => integer.signed = parser.boolean(&value)?,
                "byte_order" => order = parser.order(&value)?,
                "base" => integer.meaning.base = parser.base(&value)?,
                "encoding" => integer.text = parser.encoding(&value)?,
                "map" => integer.clock = Some(parser.clock(&value)?),
                _ => parser.ignore("integer", name),
            }
            Ok(())
        })?;
        let size = size.ok_or_else(|| self.error_at_last("the integer has no `size`".to_owned()))?;
        integer.meaning.size = size;
        integer.alignment = alignment.unwrap_or(if size % 8 == 0 { 8 } else { 1 });
        integer.byte_order = match order {
            Some(order) => order,
            None => self.native()?,
        };
        Ok(integer)
    }

    fn floating_point(&mut self) -> Result<Real, Error> {
        self.take()?;
        let (mut exponent, mut mantissa, mut alignment, mut order) = (None, None, 1, None);
        self.attributes(|parser, name, value| {
            match name {
                "exp_dig" => exponent = Some(parser.size(&value)?),
                "mant_dig" => mantissa = Some(parser.size(&value)?),
                "align" => alignment = parser.alignment(&value)?,
                "byte_order" => order = parser.order(&value)?,
                _ => parser.ignore("floating_point", name),
            }
            Ok(())
        })?;
        let size = match (exponent, mantissa) {
            (Some(8), Some(24)) => 32,
            (Some(11), Some(53)) => 64,
            _ => {
                return Err(self.error_at_last(
                    "floating_point: `exp_dig` and `mant_dig` are 8 and 24, or 11 and 53".to_owned(),
                ));
            }
        };
        let byte_order = match order {
            Some(order) => order,
            None => self.native()?,
        };
        Ok(Real { size, alignment, byte_order, reversed: false })
    }

    fn string(&mut self) -> Result<Encoding, Error> {
        self.take()?;
        if *self.peek() == Kind::Sign("{") {
            self.attributes(|parser, name, value| {
                match name {
                    "encoding" => drop(parser.encoding(&value)?),
                    _ => parser.ignore("string", name),
                }
                Ok(())
            })?;
        }
        // ASCII is a subset of UTF-8.
        Ok(Encoding::Utf8)
    }

    /// Parses an optional name before a body.
    fn name(&mut self) -> Result<Option<String>, Error> {
        match self.peek() {
            Kind::Word(word) => {
                let word = (*word).to_owned();
                self.take()?;
                Ok(Some(word))
            }
            _ => Ok(None),
        }
    }

    fn enumeration(&mut self) -> Result<Integer, Error> {
        self.take()?;
        let name = self.name()?;
        let container = if self.take_if(":")? { Some(self.class()?) } else { None };
        if *self.peek() != Kind::Sign("{") {
            let name = name.ok_or_else(|| self.error_here("`{` expected".to_owned()))?;
            let known = self.scopes.iter().rev().find_map(|names| names.enumerations.get(&name)).cloned();
            let known = known.ok_or_else(|| self.error_at_last(format!("there is no enum `{name}`")))?;
            self.pay(&FieldClass::Integer(known.clone()))?;
            return Ok(known);
        }
        let container = match container {
            Some(container) => Some(container),
            None => self.scopes.iter().rev().find_map(|names| names.aliases.get("int")).cloned(),
        };
        let Some(FieldClass::Integer(mut integer)) = container else {
            return Err(self.error_here(
                "an enum needs an integer type: `enum : TYPE {`, or a type called `int`".to_owned(),
            ));
        };
        integer.meaning.labels = self.labels()?;
        if let (Some(name), Some(names)) = (name, self.scopes.last_mut()) {
            names.enumerations.insert(name, integer.clone());
        }
        Ok(integer)
    }

    fn labels(&mut self) -> Result<Vec<Label>, Error> {
        self.expect("{")?;
        let mut labels: Vec<Label> = Vec::new();
        // Enumerations can have tens of thousands of labels.
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut next = 0;
        while !self.take_if("}")? {
            let name = match self.take()? {
                Kind::Word(word) => word.to_owned(),
                Kind::Text(text) => text,
                _ => return Err(self.error_at_last("a label expected".to_owned())),
            };
            let (mut first, mut last) = (next, next);
            if self.take_if("=")? {
                first = self.number()?;
                last = if self.take_if("...")? { self.number()? } else { first };
            }
            if last < first {
                return Err(self.error_at_last("the range ends before it begins".to_owned()));
            }
            next = last + 1;
            let range = first..=last;
            match known.get(&name) {
                Some(&index) => labels[index].ranges.push(range),
                None => {
                    known.insert(name.clone(), labels.len());
                    labels.push(Label { name, ranges: vec![range] });
                }
            }
            if !self.take_if(",")? && *self.peek() != Kind::Sign("}") {
                return Err(self.error_here("`,` or `}` expected".to_owned()));
            }
        }
        Ok(labels)
    }

    fn number(&mut self) -> Result<i128, Error> {
        match self.value()? {
            Value::Integer(integer) => Ok(integer),
            _ => Err(self.error_at_last("a number expected".to_owned())),
        }
    }

    pub(super) fn structure(&mut self) -> Result<Structure, Error> {
        self.take()?;
        let name = self.name()?;
        if *self.peek() != Kind::Sign("{") {
            return self.known_structure(name);
        }
        let members = self.members()?;
        self.new_structure(name, members)
    }

    #[inline(never)]
    fn known_structure(&mut self, name: Option<String>) -> Result<Structure, Error> {
        let name = name.as_ref().ok_or_else(|| self.error_here("`{` expected".to_owned()))?;
        let known = self.scopes.iter().rev().find_map(|names| names.structures.get(name)).cloned();
        let known = known.ok_or_else(|| self.error_at_last(format!("there is no struct `{name}`")))?;
        self.pay(&FieldClass::Structure(known.clone()))?;
        Ok(known)
    }

    /// Builds a structure of these members, after parsing its alignment.
    #[inline(never)]
    fn new_structure(&mut self, name: Option<String>, members: Vec<Member>) -> Result<Structure, Error> {
        let mut structure = Structure { members, minimum_alignment: 1 };
        if self.is_word("align") {
            self.take()?;
            self.expect("(")?;
            let value = self.value()?;
            structure.minimum_alignment = self.alignment(&value)?;
            self.expect(")")?;
        }
        if let (Some(name), Some(names)) = (name, self.scopes.last_mut()) {
            names.structures.insert(name, structure.clone());
        }
        Ok(structure)
    }

    fn variant(&mut self) -> Result<Choice, Error> {
        self.take()?;
        let name = self.name()?;
        let selector = if self.take_if("<")? {
            let reference = self.reference()?;
            self.expect(">")?;
            Some(reference)
        } else {
            None
        };
        let unset = Reference::new(None, Vec::new());
        let mut choice = if *self.peek() == Kind::Sign("{") {
            let options = self.members()?.into_iter().map(|member| ChoiceOption {
                name: member.name,
                raw_name: member.raw_name,
                ranges: Vec::new(),
                class: member.class,
            });
            Choice { selector: unset, options: options.collect() }
        } else {
            let name = name.as_ref().ok_or_else(|| self.error_here("`{` expected".to_owned()))?;
            let known = self.scopes.iter().rev().find_map(|names| names.variants.get(name)).cloned();
            let known = known.ok_or_else(|| self.error_at_last(format!("there is no variant `{name}`")))?;
            self.pay(&FieldClass::Variant(Box::new(known.clone())))?;
            known
        };
        if let (Some(name), Some(names)) = (name, self.scopes.last_mut()) {
            names.variants.entry(name).or_insert_with(|| choice.clone());
        }
        if let Some(selector) = selector {
            choice.selector = selector;
        }
        Ok(choice)
    }

    /// Parses members or options in braces.
    fn members(&mut self) -> Result<Vec<Member>, Error> {
        self.expect("{")?;
        self.scopes.push(Default::default());
        let mut members = Vec::new();
        while !self.take_if("}")? {
            if self.declaration()? {
                continue;
            }
            let class = self.class_before_declarator()?;
            self.declarators(class, &mut members)?;
        }
        self.scopes.pop();
        Ok(members)
    }

    /// Parses the declarators of a type, and adds a member for each.
    #[inline(never)]
    fn declarators(&mut self, class: FieldClass, members: &mut Vec<Member>) -> Result<(), Error> {
        let mut class = Some(class);
        while let Some(own) = class {
            let raw_name = self.word()?.to_owned();
            let lengths = self.lengths()?;
            // Usually there is only one declarator, so the last one takes the class without a copy.
            class = self.take_if(",")?.then(|| own.clone());
            let own = array_of(own, lengths);
            self.pay(&own)?;
            members.push(Member { name: shown(&raw_name).to_owned(), raw_name, class: own });
        }
        self.expect(";")
    }

    /// Applies the array dimensions after a name to a type.
    pub(super) fn declarator(&mut self, class: FieldClass) -> Result<FieldClass, Error> {
        Ok(array_of(class, self.lengths()?))
    }

    /// Parses the array dimensions after a name; the first is the outermost.
    fn lengths(&mut self) -> Result<Vec<Length>, Error> {
        let mut lengths = Vec::new();
        while self.take_if("[")? {
            lengths.push(match self.peek() {
                Kind::Integer(length) => {
                    let length = *length;
                    self.take()?;
                    Length::Static(length)
                }
                _ => self.named_length()?,
            });
            self.expect("]")?;
            if lengths.len() > DEEPEST as usize {
                return Err(self.error_at_last("too many dimensions".to_owned()));
            }
        }
        Ok(lengths)
    }

    /// Parses a length by name: a field's, or an integer of the environment.
    fn named_length(&mut self) -> Result<Length, Error> {
        let reference = self.reference()?;
        let [Some(scope), Some(entry)] = reference.path.as_slice() else {
            return Ok(Length::Dynamic(reference));
        };
        if scope != "env" || reference.origin.is_some() {
            return Ok(Length::Dynamic(reference));
        }
        let number = self.environment.get(entry).copied();
        let length = number.and_then(|number| u64::try_from(number).ok()).map(Length::Static);
        length.ok_or_else(|| {
            self.error_at_last(format!("no earlier `env` block has a number `{entry}` that can be a length"))
        })
    }

    /// Parses a reference to the field of a length or a selector.
    fn reference(&mut self) -> Result<Reference, Error> {
        let path = self.path()?;
        let path: Vec<&str> = path.split('.').collect();
        let scope = SCOPES.iter().find(|(names, _)| path.len() > names.len() && path.starts_with(names));
        let (names, origin) = scope.map_or((0, None), |(names, scope)| (names.len(), Some(*scope)));
        Ok(Reference::new(origin, path[names..].iter().map(|name| Some((*name).to_owned())).collect()))
    }
}

/// Conversions of attribute values.
impl Parser<'_> {
    fn size(&self, value: &Value<'_>) -> Result<u32, Error> {
        match value {
            Value::Integer(size @ 1..=64) => Ok(*size as u32),
            _ => Err(self.error_at_last("a size is 1 to 64 bits".to_owned())),
        }
    }

    fn alignment(&self, value: &Value<'_>) -> Result<u32, Error> {
        match value {
            Value::Integer(bits @ 1..=0x1000_0000) if bits.count_ones() == 1 => Ok(*bits as u32),
            _ => Err(self.error_at_last("an alignment is a power of two, in bits".to_owned())),
        }
    }

    fn boolean(&self, value: &Value<'_>) -> Result<bool, Error> {
        let name = match value {
            Value::Integer(number) => return Ok(*number != 0),
            Value::Text(text) => text.as_str(),
            Value::Path(path) => last_name(path),
        };
        match name {
            "true" | "TRUE" => Ok(true),
            "false" | "FALSE" => Ok(false),
            _ => Err(self.error_at_last("`true` or `false` expected".to_owned())),
        }
    }

    fn order(&self, value: &Value<'_>) -> Result<Option<ByteOrder>, Error> {
        let name = match value {
            Value::Path(path) => last_name(path),
            Value::Text(text) => text,
            Value::Integer(_) => "",
        };
        match (byte_order(name), name) {
            (Some(order), _) => Ok(Some(order)),
            (None, "native") => Ok(None),
            _ => Err(self.error_at_last("`le`, `be`, `network` or `native` expected".to_owned())),
        }
    }

    fn base(&self, value: &Value<'_>) -> Result<Base, Error> {
        let name = match value {
            Value::Integer(2) => "b",
            Value::Integer(8) => "o",
            Value::Integer(10) => "d",
            Value::Integer(16) => "x",
            Value::Integer(_) => "",
            Value::Text(text) => text,
            Value::Path(path) => last_name(path),
        };
        match name {
            "d" | "i" | "u" | "decimal" | "dec" => Ok(Base::Decimal),
            "x" | "X" | "p" | "hexadecimal" | "hex" => Ok(Base::Hexadecimal),
            "o" | "octal" | "oct" => Ok(Base::Octal),
            "b" | "binary" | "bin" => Ok(Base::Binary),
            _ => Err(self.error_at_last("a base is 2, 8, 10 or 16".to_owned())),
        }
    }

    fn encoding(&self, value: &Value<'_>) -> Result<Option<Encoding>, Error> {
        let name = match value {
            Value::Text(text) => text,
            Value::Path(path) => last_name(path),
            Value::Integer(_) => "",
        };
        match name {
            "UTF8" | "utf8" | "UTF-8" | "utf-8" | "ASCII" | "ascii" => Ok(Some(Encoding::Utf8)),
            "none" | "NONE" => Ok(None),
            _ => Err(self.error_at_last("an encoding is `UTF8`, `ASCII` or `none`".to_owned())),
        }
    }

    fn clock(&self, value: &Value<'_>) -> Result<String, Error> {
        let name = match value {
            Value::Path(path) => path.strip_prefix("clock.").and_then(|path| path.split('.').next()),
            _ => None,
        };
        name.map(str::to_owned).ok_or_else(|| self.error_at_last("`clock.NAME.value` expected".to_owned()))
    }
}

//! Writes CTF 1.8 metadata: TSDL (section 7), plain text.

use std::fmt::Write;

use hodo_model::event::{Base, Meaning};

use crate::ctf::uuid;
use crate::events::schema::{
    ByteOrder, Choice, ClockClass, Encoding, Environment, EventClass, FieldClass, Integer, Length, Real,
    Reference, Role, Scope, StreamClass, Structure, TraceClass,
};

/// Formats the metadata of a trace.
pub(super) fn metadata(trace: &TraceClass) -> String {
    let mut out = Text(String::from("/* CTF 1.8 */\n\n"));
    out.trace(trace);
    if !trace.environment.is_empty() {
        out.environment(&trace.environment);
    }
    trace.clocks.iter().for_each(|clock| out.clock(clock));
    for stream in trace.streams.values() {
        out.stream(stream);
        stream.events.iter().for_each(|event| out.event(stream.id, event));
    }
    out.0
}

/// Formats a string literal.
fn quoted(text: &str) -> String {
    let mut literal = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => literal.extend(['\\', c]),
            '\n' => literal += "\\n",
            '\r' => literal += "\\r",
            '\t' => literal += "\\t",
            c if c.is_ascii_control() => drop(write!(literal, "\\{:03o}", u32::from(c))),
            c => literal.push(c),
        }
    }
    literal + "\""
}

struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{line}");
    }

    fn trace(&mut self, trace: &TraceClass) {
        self.0 += "trace {\n\tmajor = 1;\n\tminor = 8;\n";
        if let Some(id) = &trace.uuid {
            self.line(format_args!("\tuuid = \"{}\";", uuid::show(id)));
        }
        self.0 += "\tbyte_order = le;\n";
        self.root("packet.header", trace.packet_header.as_ref());
        self.0 += "};\n\n";
    }

    fn environment(&mut self, environment: &[(String, Environment)]) {
        self.0 += "env {\n";
        for (name, value) in environment {
            match value {
                Environment::Integer(integer) => self.line(format_args!("\t{name} = {integer};")),
                Environment::Text(text) => self.line(format_args!("\t{name} = {};", quoted(text))),
            }
        }
        self.0 += "};\n\n";
    }

    fn clock(&mut self, clock: &ClockClass) {
        let (seconds, cycles) = (clock.cycles.offset_seconds(), clock.cycles.offset_cycles());
        self.line(format_args!("clock {{\n\tname = \"{}\";", clock.name));
        if !clock.description.is_empty() {
            self.line(format_args!("\tdescription = {};", quoted(&clock.description)));
        }
        if let Some(uid) = clock.uid.as_deref().filter(|uid| uuid::parse(uid).is_some()) {
            self.line(format_args!("\tuuid = {};", quoted(uid)));
        }
        self.line(format_args!("\tfreq = {};", clock.cycles.frequency()));
        self.line(format_args!("\toffset_s = {seconds};\n\toffset = {cycles};"));
        self.line(format_args!("\tabsolute = {};\n}};\n", if clock.unix { "TRUE" } else { "FALSE" }));
    }

    fn stream(&mut self, stream: &StreamClass) {
        self.line(format_args!("stream {{\n\tid = {};", stream.id));
        self.root("packet.context", stream.packet_context.as_ref());
        self.root("event.header", stream.event_header.as_ref());
        self.root("event.context", stream.common_context.as_ref());
        self.0 += "};\n\n";
    }

    fn event(&mut self, stream: u64, event: &EventClass) {
        self.line(format_args!("event {{\n\tname = {};\n\tid = {};", quoted(&event.name), event.id));
        self.line(format_args!("\tstream_id = {stream};"));
        if let Some(level) = event.log_level {
            self.line(format_args!("\tloglevel = {level};"));
        }
        self.root("context", event.specific_context.as_ref());
        self.root("fields", event.payload.as_ref());
        self.0 += "};\n\n";
    }

    fn root(&mut self, name: &str, root: Option<&Structure>) {
        if let Some(root) = root {
            let _ = write!(self.0, "\t{name} := ");
            self.structure(root, 1);
            self.0 += ";\n";
        }
    }

    fn indent(&mut self, depth: usize) {
        (0..depth).for_each(|_| self.0.push('\t'));
    }

    fn structure(&mut self, structure: &Structure, depth: usize) {
        self.0 += "struct {\n";
        for member in &structure.members {
            self.field(&member.raw_name, &member.class, depth + 1);
        }
        self.indent(depth);
        self.0 += "}";
        if structure.minimum_alignment > 1 {
            let _ = write!(self.0, " align({})", structure.minimum_alignment);
        }
    }

    /// Writes a class, a name, and the array dimensions after the name.
    fn field(&mut self, name: &str, class: &FieldClass, depth: usize) {
        self.indent(depth);
        let mut lengths = String::new();
        let mut inner = class;
        loop {
            let length = match inner {
                FieldClass::Array(array) => {
                    inner = &array.element;
                    &array.length
                }
                FieldClass::Text(_, length) | FieldClass::Blob(length, _) => {
                    lengths += &dimension(length);
                    break;
                }
                _ => break,
            };
            lengths += &dimension(length);
        }
        self.class(inner, depth);
        self.line(format_args!(" {name}{lengths};"));
    }

    fn class(&mut self, class: &FieldClass, depth: usize) {
        match class {
            FieldClass::Integer(integer) => self.integer(integer),
            FieldClass::Real(real) => self.real(real),
            FieldClass::String(_) => self.0 += "string",
            FieldClass::Text(..) => {
                self.0 += "integer { size = 8; align = 8; signed = false; encoding = UTF8; }"
            }
            FieldClass::Blob(..) => self.0 += "integer { size = 8; align = 8; signed = false; }",
            FieldClass::Structure(structure) => self.structure(structure, depth),
            FieldClass::Variant(choice) | FieldClass::Optional(choice) => self.variant(choice, depth),
            FieldClass::ForeignField(_) => unreachable!("only classes of CTF are written"),
            FieldClass::Array(_) | FieldClass::VariableInteger(_) => {
                unreachable!("an array is a field, and variable-length integers were converted")
            }
        }
    }

    fn integer(&mut self, integer: &Integer) {
        let labels = &integer.meaning.labels;
        if labels.is_empty() {
            return self.plain_integer(integer);
        }
        self.0 += "enum : ";
        self.plain_integer(integer);
        self.0 += " { ";
        let ranges = labels.iter().flat_map(|label| label.ranges.iter().map(|range| (&label.name, range)));
        let labels: Vec<String> = ranges
            .map(|(name, range)| match (range.start(), range.end()) {
                (from, to) if from == to => format!("{} = {from}", quoted(name)),
                (from, to) => format!("{} = {from} ... {to}", quoted(name)),
            })
            .collect();
        self.0 += &labels.join(", ");
        self.0 += " }";
    }

    fn plain_integer(&mut self, integer: &Integer) {
        let Meaning { size, base, .. } = &integer.meaning;
        let _ = write!(
            self.0,
            "integer {{ size = {size}; align = {}; signed = {}; byte_order = {};",
            integer.alignment,
            integer.signed,
            order(integer.byte_order)
        );
        let base = match base {
            Base::Decimal => "",
            Base::Hexadecimal => " base = 16;",
            Base::Octal => " base = 8;",
            Base::Binary => " base = 2;",
        };
        self.0 += base;
        if integer.text == Some(Encoding::Utf8) {
            self.0 += " encoding = UTF8;";
        }
        let is_time =
            integer.roles.iter().any(|role| matches!(role, Role::Timestamp | Role::PacketEndTimestamp));
        if let Some(clock) = integer.clock.as_ref().filter(|_| is_time) {
            let _ = write!(self.0, " map = clock.{clock}.value;");
        }
        self.0 += " }";
    }

    fn real(&mut self, real: &Real) {
        let (exponent, mantissa) = if real.size == 32 { (8, 24) } else { (11, 53) };
        let _ = write!(
            self.0,
            "floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = {}; byte_order = {}; }}",
            real.alignment,
            order(real.byte_order)
        );
    }

    fn variant(&mut self, choice: &Choice, depth: usize) {
        let _ = writeln!(self.0, "variant <{}> {{", path(&choice.selector));
        for option in &choice.options {
            self.field(&option.raw_name, &option.class, depth + 1);
        }
        self.indent(depth);
        self.0 += "}";
    }
}

fn order(order: ByteOrder) -> &'static str {
    match order {
        ByteOrder::Little => "le",
        ByteOrder::Big => "be",
    }
}

fn dimension(length: &Length) -> String {
    match length {
        Length::Static(count) => format!("[{count}]"),
        Length::Dynamic(reference) => format!("[{}]", path(reference)),
    }
}

fn path(reference: &Reference) -> String {
    let origin = reference.origin.map(|scope| match scope {
        Scope::PacketHeader => "trace.packet.header",
        Scope::PacketContext => "stream.packet.context",
        Scope::EventHeader => "stream.event.header",
        Scope::CommonContext => "stream.event.context",
        Scope::SpecificContext => "event.context",
        Scope::Payload => "event.fields",
    });
    let names = reference.path.iter().flatten().map(String::as_str);
    origin.into_iter().chain(names).collect::<Vec<_>>().join(".")
}

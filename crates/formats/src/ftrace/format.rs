//! Format files: `events/SYSTEM/EVENT/format` in tracefs, one per event class.
//!
//! ```text
//! name: sched_wakeup
//! ID: 370
//! format:
//!         field:unsigned short common_type;   offset:0;  size:2;  signed:0;
//!         …
//!         field:char comm[16];                offset:8;  size:16; signed:0;
//!
//! print fmt: "comm=%s …", REC->comm, …
//! ```
//!
//! Source: the kernel's Documentation/trace/events.rst, "Event formats".

use std::str;

/// A parsed format file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventFormat<'a> {
    /// The event's name, such as `sched_wakeup`.
    pub(crate) name: &'a str,
    /// The id at the beginning of its records.
    pub(crate) id: u64,
    /// The fields by offset, the common ones first.
    pub(crate) fields: Vec<Field<'a>>,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// The C type, without array brackets and modifiers.
    pub(crate) class: &'a str,
    /// Its name.
    pub(crate) name: &'a str,
    /// Whether it is a scalar or an array.
    pub(crate) shape: Shape,
    /// Offset in the record in bytes.
    pub(crate) offset: u32,
    /// Size in bytes; 0 if the field extends to the end of the record.
    pub(crate) size: u32,
    /// Whether its numbers are signed.
    pub(crate) signed: bool,
}

/// How many elements a field has, and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A scalar.
    One,
    /// A fixed-size array, or the rest of the record.
    Array,
    /// `__data_loc`: u16 offset from the beginning of the record and u16 size of the array, in bytes.
    Located,
    /// `__rel_loc`: as `__data_loc`, with the offset counted from the end of these four bytes.
    RelativelyLocated,
}

impl<'a> EventFormat<'a> {
    /// Parses a format file. Returns `None` if the name, the id or a valid field is missing.
    pub(crate) fn parse(text: &'a [u8]) -> Option<EventFormat<'a>> {
        let text = str::from_utf8(text).ok()?;
        let mut format = EventFormat { name: "", id: u64::MAX, fields: Vec::new() };
        for line in text.lines() {
            let line = line.trim_start();
            if let Some(name) = line.strip_prefix("name: ") {
                format.name = name.trim();
            } else if let Some(id) = line.strip_prefix("ID: ") {
                format.id = id.trim().parse().ok()?;
            } else if let Some(field) = line.strip_prefix("field:") {
                format.fields.push(Field::parse(field)?);
            } else if line.starts_with("print fmt:") {
                break;
            }
        }
        format.fields.sort_by_key(|field| field.offset);
        // Older kernels and Android kernels omit the brackets of a field that extends to the end of the record: `char
        // buf`.
        let last = format.fields.last_mut().filter(|field| field.shape == Shape::One && field.size == 0);
        last.into_iter().for_each(|field| field.shape = Shape::Array);
        (!format.name.is_empty() && format.id != u64::MAX).then_some(format)
    }
}

impl<'a> Field<'a> {
    /// Parses what follows `field:`, such as `char comm[16]; offset:8; size:16; signed:0;`.
    pub(crate) fn parse(text: &'a str) -> Option<Field<'a>> {
        let (declaration, rest) = text.split_once(';')?;
        let number = |name: &str| {
            let mut parts = rest.split(';').map(str::trim);
            parts.find_map(|part| part.strip_prefix(name)?.strip_prefix(':')?.parse::<u32>().ok())
        };
        // The brackets contain a number, an expression, or nothing.
        let declaration = declaration.trim();
        let open = declaration.find('[').filter(|_| declaration.ends_with(']'));
        let (scalar, is_array) = (&declaration[..open.unwrap_or(declaration.len())], open.is_some());
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let before = scalar.char_indices().rfind(|&(_, c)| !is_word(c));
        let start = before.map_or(0, |(position, c)| position + c.len_utf8());
        let (class, name) = (scalar[..start].trim(), &scalar[start..]);
        let located = [("__data_loc ", Shape::Located), ("__rel_loc ", Shape::RelativelyLocated)];
        let located = located.into_iter().find_map(|(word, shape)| Some((class.strip_prefix(word)?, shape)));
        let (class, shape) = match located {
            Some((class, shape)) => (class.strip_suffix("[]").unwrap_or(class), shape),
            None => (class, if is_array { Shape::Array } else { Shape::One }),
        };
        let (offset, size) = (number("offset")?, number("size")?);
        offset.checked_add(size)?;
        let signed = number("signed").unwrap_or(0) == 1;
        Some(Field { class: class.trim(), name, shape, offset, size, signed })
    }

    /// Offset of its end in the record.
    pub(crate) fn end(&self) -> u32 {
        self.offset + self.size
    }

    /// Whether its type is a pointer.
    pub(crate) fn is_pointer(&self) -> bool {
        self.class.ends_with('*')
    }

    /// Size of an element in bytes, from the type's name; `long` is the machine's size of a `long`.
    pub(crate) fn element_size(&self, long: u32) -> Option<u32> {
        let class = self.class.strip_prefix("const ").unwrap_or(self.class);
        let class = class.strip_prefix("unsigned ").or(class.strip_prefix("signed ")).unwrap_or(class);
        Some(match class {
            _ if self.is_pointer() => long,
            "char" | "u8" | "s8" | "__u8" | "__s8" | "uint8_t" | "int8_t" | "bool" => 1,
            "short" | "u16" | "s16" | "__u16" | "__s16" | "uint16_t" | "int16_t" | "__be16" | "__le16" => 2,
            "int" | "u32" | "s32" | "__u32" | "__s32" | "uint32_t" | "int32_t" | "unsigned" | "__be32"
            | "__le32" | "pid_t" | "uid_t" | "gid_t" | "dev_t" => 4,
            "long long" | "u64" | "s64" | "__u64" | "__s64" | "uint64_t" | "int64_t" | "__be64"
            | "__le64" => 8,
            "long" | "size_t" | "ssize_t" | "uintptr_t" => long,
            _ => return None,
        })
    }

    /// Whether its type is a pointer to text.
    pub(crate) fn is_text_pointer(&self) -> bool {
        let pointed = self.class.strip_suffix('*').map(str::trim_end);
        self.shape == Shape::One && matches!(pointed, Some("char" | "const char" | "char const"))
    }

    /// Whether its elements are characters.
    pub(crate) fn is_text(&self) -> bool {
        ["char", "const char"].contains(&self.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Field<'_> {
        Field::parse(text).unwrap()
    }

    #[test]
    fn declarations_are_read() {
        let comm = field("char comm[16];\toffset:8;\tsize:16;\tsigned:0;");
        assert_eq!((comm.class, comm.name, comm.shape), ("char", "comm", Shape::Array));
        assert_eq!((comm.offset, comm.size, comm.signed), (8, 16, false));
        let name = field("__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:1;");
        assert_eq!((name.class, name.name, name.shape, name.signed), ("char", "name", Shape::Located, true));
        let mask = field("__rel_loc unsigned long[] mask; offset:8; size:4; signed:0;");
        assert_eq!(
            (mask.class, mask.shape, mask.element_size(8)),
            ("unsigned long", Shape::RelativelyLocated, Some(8))
        );
        let cpus = field("__data_loc cpumask_t cpus; offset:8; size:4; signed:0;");
        assert_eq!((cpus.class, cpus.element_size(8)), ("cpumask_t", None));
        let pointer = field("const char * fmt;\toffset:16;\tsize:8;\tsigned:0;");
        assert_eq!((pointer.class, pointer.name, pointer.is_pointer()), ("const char *", "fmt", true));
        assert_eq!(field("void *ptr; offset:8; size:8;").name, "ptr");
        let rest = field("u32 buf[];\toffset:24;\tsize:0;\tsigned:0;");
        assert_eq!((rest.name, rest.shape, rest.size), ("buf", Shape::Array, 0));
        let sized = field("char comm[TASK_COMM_LEN];\toffset:8;\tsize:16;\tsigned:1;");
        assert_eq!((sized.name, sized.shape, sized.size), ("comm", Shape::Array, 16));
    }

    #[test]
    fn a_format_has_a_name_a_number_and_fields() {
        let text = "name: x\nID: 7\nformat:\n\tfield:int b;\toffset:8;\tsize:4;\tsigned:1;\n\n\
                    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                    print fmt: \"field:no\"\nfield:none;\n";
        let format = EventFormat::parse(text.as_bytes()).unwrap();
        assert_eq!((format.name, format.id), ("x", 7));
        assert_eq!(format.fields.iter().map(|field| field.name).collect::<Vec<_>>(), ["common_type", "b"]);
        assert_eq!(EventFormat::parse(b"name: x\n"), None);
        assert_eq!(EventFormat::parse(b"ID: 5\n"), None);
        assert_eq!(EventFormat::parse(b"name: x\nID: 7\nfield:int b; offset:4294967295; size:8;"), None);
    }
}

//! The description of events, which trace.dat and the tracing data section of perf.data share.
//!
//! Source: trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5), "HEADER INFO", "FTRACE EVENT FORMATS",
//! "EVENT FORMATS", "KALLSYMS INFORMATION", "TRACE_PRINTK INFORMATION".

use hodo_bytes::Eof;
use hodo_model::kernel::StateCodes;

use super::{cursor::Cursor, flags::state_codes};
use crate::{
    error::{Error, ErrorKind},
    events::schema::ByteOrder,
};

/// Magic number of trace.dat and of perf's tracing data.
pub(crate) const MARK: &[u8] = b"\x17\x08\x44tracing";

/// The header after the magic number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Initial<'a> {
    /// `6`, `7`; perf writes `0.5` or `0.6`.
    pub(crate) version: &'a [u8],
    /// Page size of the traced machine in bytes.
    pub(crate) page_size: u32,
}

impl<'a> Initial<'a> {
    /// Reads the header, moves the cursor past it, and sets its byte order to the machine's.
    ///
    /// # Errors
    /// A wrong magic number, or the end of the input.
    pub(crate) fn read(cursor: &mut Cursor<'a>) -> Result<Initial<'a>, Error> {
        let start = cursor.offset();
        let cut = |eof| Error::cut_short("trace.dat header", eof);
        if cursor.take(MARK.len()).map_err(cut)? != MARK {
            return Err(Error { at: start, kind: ErrorKind::NotRecognised });
        }
        let version = cursor.c_string();
        let (big_endian, _long_size_of_user_space) = (cursor.u8().map_err(cut)?, cursor.u8().map_err(cut)?);
        cursor.order = if big_endian == 0 { ByteOrder::Little } else { ByteOrder::Big };
        Ok(Initial { version, page_size: cursor.u32().map_err(cut)? })
    }
}

/// The format file of an event class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FormatFile<'a> {
    /// The event's system, such as `sched`.
    pub(crate) system: &'a [u8],
    pub(crate) text: &'a [u8],
}

/// The description of events, as unparsed text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description<'a> {
    /// `events/header_page`: the layout of a page's header.
    pub(crate) header_page: &'a [u8],
    /// The format files of the event classes, ftrace's own first.
    pub(crate) formats: Vec<FormatFile<'a>>,
    /// `/proc/kallsyms`.
    pub(crate) symbols: &'a [u8],
    /// `printk_formats`: kernel strings by address.
    pub(crate) texts: &'a [u8],
}

impl<'a> Description<'a> {
    /// Reads all sections in the order of version 6.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        self.read_headers(cursor)?;
        self.read_own_formats(cursor)?;
        self.read_formats(cursor)?;
        self.read_symbols(cursor)?;
        self.read_texts(cursor)
    }

    /// Reads header_page and header_event.
    pub(crate) fn read_headers(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        cursor.c_string();
        self.header_page = long_sized(cursor)?;
        cursor.c_string();
        long_sized(cursor).map(drop)
    }

    /// Reads u32 count, then the format files of ftrace's own events.
    pub(crate) fn read_own_formats(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        for _ in 0..cursor.u32()? {
            self.formats.push(FormatFile { system: b"ftrace", text: long_sized(cursor)? });
        }
        Ok(())
    }

    /// Reads u32 count, then for each system: name, u32 count, format files.
    pub(crate) fn read_formats(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        for _ in 0..cursor.u32()? {
            let system = cursor.c_string();
            for _ in 0..cursor.u32()? {
                self.formats.push(FormatFile { system, text: long_sized(cursor)? });
            }
        }
        Ok(())
    }

    /// Reads u32 size, then the text.
    pub(crate) fn read_symbols(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        self.symbols = sized(cursor)?;
        Ok(())
    }

    /// Reads u32 size, then the text.
    pub(crate) fn read_texts(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        self.texts = sized(cursor)?;
        Ok(())
    }
}

impl Description<'_> {
    /// The codes of `prev_state` that the format of `sched_switch` describes.
    pub(crate) fn state_codes(&self) -> Option<StateCodes> {
        let is_switch = |text: &&[u8]| text.starts_with(b"name: sched_switch\n");
        let texts = self.formats.iter().map(|format| format.text);
        texts.filter(is_switch).find_map(state_codes)
    }
}

/// Reads u32 size, then the bytes.
fn sized<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Eof> {
    let size = cursor.u32()?;
    cursor.take(usize::try_from(size).unwrap_or(usize::MAX))
}

/// Reads u64 size, then the bytes.
pub(crate) fn long_sized<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Eof> {
    let size = cursor.u64()?;
    cursor.take(usize::try_from(size).unwrap_or(usize::MAX))
}

//! What describes the events: the same in a trace.dat and in perf's section of tracing data.
//!
//! Source: trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5), "HEADER INFO", "FTRACE EVENT FORMATS",
//! "EVENT FORMATS", "KALLSYMS INFORMATION", "TRACE_PRINTK INFORMATION".

use hodo_bytes::{Cursor, Eof};

use crate::error::{Error, ErrorKind};

/// First bytes of a trace.dat and of perf's tracing data.
pub(crate) const MARK: &[u8] = b"\x17\x08\x44tracing";

/// What follows the mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Initial<'a> {
    /// `6`, `7`; perf writes `0.5` or `0.6`.
    pub(crate) version: &'a [u8],
    /// Bytes of a page of the traced machine.
    pub(crate) page_size: u32,
}

impl<'a> Initial<'a> {
    /// Reads it, and moves the cursor behind it.
    ///
    /// # Errors
    /// Another mark, a big-endian machine, an end of the input.
    pub(crate) fn read(cursor: &mut Cursor<'a>) -> Result<Initial<'a>, Error> {
        let at = cursor.offset();
        let cut = |eof| Error::cut_short("trace.dat header", eof);
        if cursor.take(MARK.len()).map_err(cut)? != MARK {
            return Err(Error { at, kind: ErrorKind::NotRecognised });
        }
        let version = cursor.c_string();
        let (big_endian, _long_size_of_user_space) = (cursor.u8().map_err(cut)?, cursor.u8().map_err(cut)?);
        if big_endian != 0 {
            let (what, help) = ("a trace of a big-endian machine", "hodo reads little-endian ones only");
            return Err(Error { at, kind: ErrorKind::Unsupported { what, help } });
        }
        Ok(Initial { version, page_size: cursor.u32().map_err(cut)? })
    }
}

/// The description of events, as texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description<'a> {
    /// `events/header_page`: where the parts of a page's header are.
    pub(crate) header_page: &'a [u8],
    /// System and format file of each class of events; ftrace's own come first.
    pub(crate) formats: Vec<(&'a [u8], &'a [u8])>,
    /// `/proc/kallsyms`.
    pub(crate) symbols: &'a [u8],
    /// `printk_formats`: texts of the kernel by their addresses.
    pub(crate) texts: &'a [u8],
}

impl<'a> Description<'a> {
    /// Reads all of it, one part after the other, as version 6 has it.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        self.read_headers(cursor)?;
        self.read_own_formats(cursor)?;
        self.read_formats(cursor)?;
        self.read_symbols(cursor)?;
        self.read_texts(cursor)
    }

    /// The texts header_page and header_event.
    pub(crate) fn read_headers(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        cursor.c_string();
        self.header_page = long_sized(cursor)?;
        cursor.c_string();
        long_sized(cursor).map(drop)
    }

    /// u32 count; as many formats of ftrace's own events.
    pub(crate) fn read_own_formats(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        for _ in 0..cursor.u32()? {
            self.formats.push((b"ftrace", long_sized(cursor)?));
        }
        Ok(())
    }

    /// u32 count; each: name of the system, u32 count, as many formats.
    pub(crate) fn read_formats(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        for _ in 0..cursor.u32()? {
            let system = cursor.c_string();
            for _ in 0..cursor.u32()? {
                self.formats.push((system, long_sized(cursor)?));
            }
        }
        Ok(())
    }

    /// u32 size; as many bytes of text.
    pub(crate) fn read_symbols(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        self.symbols = sized(cursor)?;
        Ok(())
    }

    /// u32 size; as many bytes of text.
    pub(crate) fn read_texts(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Eof> {
        self.texts = sized(cursor)?;
        Ok(())
    }
}

/// u32 size; as many bytes.
fn sized<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Eof> {
    let size = cursor.u32()?;
    cursor.take(usize::try_from(size).unwrap_or(usize::MAX))
}

/// u64 size; as many bytes.
pub(crate) fn long_sized<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Eof> {
    let size = cursor.u64()?;
    cursor.take(usize::try_from(size).unwrap_or(usize::MAX))
}

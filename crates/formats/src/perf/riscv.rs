//! Traces of RISC-V in Hodoscope's own recordings: their AUXTRACE_INFO record.

use std::sync::Arc;

use hodo_bytes::{Cursor, Eof};
use hodo_etrace::Settings;

use super::{layout::auxtrace_type, records::Record};
use crate::{
    error::{Error, ErrorKind},
    recording::{Stream, StreamKind},
};

/// The version that is written.
const VERSION: u64 = 1;

/// A parsed AUXTRACE_INFO record.
#[derive(Clone, Debug)]
pub(super) struct RiscV {
    pub(super) is_snapshot: bool,
    settings: Arc<Settings>,
}

impl RiscV {
    /// Whether an AUXTRACE_INFO record is of this kind.
    pub(super) fn is(record: &Record<'_>) -> bool {
        Cursor::new(record.body, record.body_offset()).u32() == Ok(auxtrace_type::RISCV)
    }

    /// Reads the record.
    ///
    /// # Errors
    /// It is cut short, of another version, or the settings are wrong.
    pub(super) fn read(record: &Record<'_>) -> Result<RiscV, Error> {
        let mut cursor = Cursor::new(record.body, record.body_offset());
        let cut = |eof: Eof| Error::cut_short("AUXTRACE_INFO record", eof);
        let mut word = || cursor.u64().map_err(cut);
        let (_kind, version, snapshot, length) = (word()?, word()?, word()?, word()?);
        let at = cursor.offset();
        if version != VERSION {
            return Err(Error::invalid(at, "version of RISC-V settings", version, "1"));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let text = String::from_utf8_lossy(cursor.take(length).map_err(cut)?);
        let wrong = |reason: String| Error { at, kind: ErrorKind::Text { what: "RISC-V settings", reason } };
        let settings = Settings::parse(&text).map_err(|error| wrong(error.to_string()))?;
        Ok(RiscV { is_snapshot: snapshot != 0, settings: Arc::new(settings) })
    }

    /// Makes streams those of harts with these settings.
    pub(super) fn mark(&self, streams: &mut [Stream<'_>]) {
        for stream in streams {
            stream.kind = StreamKind::RiscV(self.settings.clone());
        }
    }
}

//! The messages of N-Trace, and their bytes.
//!
//! A byte has six bits of data and, lowest, two bits that end fields. Fields of fixed size come first; the first one of
//! variable size follows them directly, and each further one begins a byte.

use crate::parameters::mask;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Ownership: privilege level and context, as the field `PROCESS` packs them.
    Ownership {
        /// The field.
        process: u64,
    },
    /// A conditional branch was taken.
    DirectBranch {
        /// Halfwords of the instructions since the last count.
        count: u64,
    },
    /// An indirect jump, or a trap.
    IndirectBranch(Branch),
    /// Messages were lost.
    Error {
        /// The reason: 0 for an overflow.
        kind: u8,
        /// Which messages.
        code: u64,
    },
    /// A synchronization message, which contains the full address.
    Synchronization(Synchronization),
    /// A counter or the history was full.
    ResourceFull(Resource),
    /// The last branch message repeats; the number of repetitions.
    RepeatBranch {
        /// The number of repetitions.
        count: u64,
    },
    /// Tracing ends.
    Correlation {
        /// Why: 0 for debug mode, 4 if tracing was disabled.
        event: u8,
        /// Halfwords of the instructions since the last count.
        count: u64,
        /// The branches, if the mode has a history.
        history: Option<u64>,
    },
}

/// `B-TYPE` of a jump.
pub(super) const JUMP: u8 = 0;

/// An indirect jump, or a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// `B-TYPE`: 0 for a jump, 1 for a trap, 2 for an exception, 3 for an interrupt.
    pub kind: u8,
    /// Halfwords of the instructions since the last count.
    pub count: u64,
    /// `U-ADDR`: the target's address without its lowest bit, XOR the one reported last.
    pub address: u64,
    /// The branches, if the message has a history.
    pub history: Option<u64>,
}

/// A synchronization message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synchronization {
    /// Which message it is.
    pub form: Form,
    /// The reason (`SYNC`).
    pub reason: u8,
    /// Halfwords of the instructions since the last count.
    pub count: u64,
    /// `F-ADDR`: the address without its lowest bit.
    pub address: u64,
}

/// The messages that synchronize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// ProgTraceSync.
    Program,
    /// DirectBranchSync.
    Direct,
    /// IndirectBranchSync or IndirectBranchHistSync.
    Indirect {
        /// `B-TYPE`.
        kind: u8,
        /// The branches, if the message has a history.
        history: Option<u64>,
    },
}

/// What was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The count of halfwords.
    Count(u64),
    /// The history.
    History(u64),
    /// The history, several times.
    Repeated {
        /// The history.
        history: u64,
        /// How often.
        times: u64,
    },
}

/// A message with the fields that every message may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Position of its first byte.
    pub at: usize,
    /// The encoder that sent it.
    pub source: u16,
    /// The message.
    pub message: Message,
    /// `TSTAMP`: of a synchronization message absolute, else the difference from the last one.
    pub time: Option<u64>,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The stream ends within a message.
    #[error("the stream ends within a message of {0} bytes")]
    CutShort(usize),
    /// A byte ends fields in a way that does not exist, or a field is too long.
    #[error("byte {0:#x} within a message")]
    Byte(u8),
    /// There is no such message, or it has other fields.
    #[error("message {0} with unknown fields")]
    Unknown(u8),
}

const OWNERSHIP: u8 = 2;
const DIRECT: u8 = 3;
const INDIRECT: u8 = 4;
const ERROR: u8 = 8;
const PROGRAM_SYNC: u8 = 9;
const DIRECT_SYNC: u8 = 11;
const INDIRECT_SYNC: u8 = 12;
const RESOURCE_FULL: u8 = 27;
const INDIRECT_HISTORY: u8 = 28;
const INDIRECT_HISTORY_SYNC: u8 = 29;
const REPEAT: u8 = 30;
const CORRELATION: u8 = 33;

/// The bits that end fields.
const MORE: u8 = 0;
const FIELD_ENDS: u8 = 1;
const MESSAGE_ENDS: u8 = 3;
/// A byte between messages.
const IDLE: u8 = 0xff;
/// Variable fields that a message may have, with its time.
const FIELDS: usize = 5;
/// The longest field, with the fixed ones before it.
const LONGEST_FIELD: u32 = 128;

/// Reads the messages of a stream.
#[derive(Clone, Debug)]
pub struct Messages<'t> {
    bytes: &'t [u8],
    at: usize,
    source_width: u8,
}

impl<'t> Messages<'t> {
    /// Begins at a position that must be the start of a message. `source_width` is the width of `SRC`.
    pub fn new(bytes: &'t [u8], at: usize, source_width: u8) -> Messages<'t> {
        Messages { bytes, at, source_width }
    }

    /// Position of the next message, or of idle bytes before it.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the next message. After an error the position is behind the message's last byte.
    ///
    /// # Errors
    /// Why it is none.
    pub fn next_message(&mut self) -> Result<Option<Unit>, Error> {
        while self.bytes.get(self.at) == Some(&IDLE) {
            self.at += 1;
        }
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let at = self.at;
        let ends = |byte: &u8| byte & 3 == MESSAGE_ENDS;
        let length = self.bytes[at..].iter().position(ends);
        self.at = length.map_or(self.bytes.len(), |length| at + length + 1);
        let bytes = &self.bytes[at..self.at];
        if length.is_none() {
            return Err(Error::CutShort(bytes.len()));
        }
        Fields::split(bytes)?.unit(at, self.source_width).map(Some)
    }
}

/// The variable fields of a message; the first one begins with those of fixed size.
struct Fields {
    values: [u128; FIELDS],
    count: usize,
    next: usize,
}

impl Fields {
    fn split(bytes: &[u8]) -> Result<Fields, Error> {
        let mut fields = Fields { values: [0; FIELDS], count: 0, next: 0 };
        let mut width = 0;
        for &byte in bytes {
            let value = fields.values.get_mut(fields.count).ok_or(Error::Byte(byte))?;
            let data = u128::from(byte >> 2);
            if width >= LONGEST_FIELD && data != 0 {
                return Err(Error::Byte(byte));
            }
            *value |= data.checked_shl(width).unwrap_or(0);
            width += 6;
            match byte & 3 {
                MORE => {}
                FIELD_ENDS | MESSAGE_ENDS => (fields.count, width) = (fields.count + 1, 0),
                _ => return Err(Error::Byte(byte)),
            }
        }
        Ok(fields)
    }

    /// Takes a field of fixed size from the first one.
    fn fixed(&mut self, width: u8) -> u64 {
        let value = self.values[0] as u64 & mask(width);
        self.values[0] >>= width;
        value
    }

    /// Takes a field of variable size; `None` if the message has no more.
    fn variable(&mut self) -> Option<u64> {
        let value = *self.values[..self.count].get(self.next)?;
        self.next += 1;
        u64::try_from(value).ok()
    }

    fn unit(mut self, at: usize, source_width: u8) -> Result<Unit, Error> {
        let code = self.fixed(6) as u8;
        let source = self.fixed(source_width) as u16;
        let message = self.message(code).ok_or(Error::Unknown(code))?;
        let time = self.variable();
        if self.next < self.count {
            return Err(Error::Unknown(code));
        }
        Ok(Unit { at, source, message, time })
    }

    fn message(&mut self, code: u8) -> Option<Message> {
        Some(match code {
            OWNERSHIP => Message::Ownership { process: self.variable()? },
            DIRECT => Message::DirectBranch { count: self.variable()? },
            INDIRECT | INDIRECT_HISTORY => {
                let kind = self.fixed(2) as u8;
                let (count, address) = (self.variable()?, self.variable()?);
                let history = if code == INDIRECT { None } else { Some(self.history()?) };
                Message::IndirectBranch(Branch { kind, count, address, history })
            }
            ERROR => Message::Error { kind: self.fixed(4) as u8, code: self.variable()? },
            PROGRAM_SYNC | DIRECT_SYNC | INDIRECT_SYNC | INDIRECT_HISTORY_SYNC => {
                let reason = self.fixed(4) as u8;
                let is_indirect = matches!(code, INDIRECT_SYNC | INDIRECT_HISTORY_SYNC);
                let kind = if is_indirect { self.fixed(2) as u8 } else { 0 };
                let (count, address) = (self.variable()?, self.variable()?);
                let history = if code == INDIRECT_HISTORY_SYNC { Some(self.history()?) } else { None };
                let form = match code {
                    PROGRAM_SYNC => Form::Program,
                    DIRECT_SYNC => Form::Direct,
                    _ => Form::Indirect { kind, history },
                };
                Message::Synchronization(Synchronization { form, reason, count, address })
            }
            RESOURCE_FULL => Message::ResourceFull(match self.fixed(4) {
                0 => Resource::Count(self.variable()?),
                1 => Resource::History(self.history()?),
                2 => Resource::Repeated { history: self.history()?, times: self.variable()? },
                _ => return None,
            }),
            REPEAT => Message::RepeatBranch { count: self.variable()? },
            CORRELATION => {
                let (event, fields) = (self.fixed(4) as u8, self.fixed(2));
                let count = self.variable()?;
                let history = match fields {
                    0 => None,
                    1 => Some(self.history()?),
                    _ => return None,
                };
                Message::Correlation { event, count, history }
            }
            _ => return None,
        })
    }

    /// A history, which has at least its stop bit.
    fn history(&mut self) -> Option<u64> {
        self.variable().filter(|&history| history != 0)
    }
}

impl Message {
    /// Appends the message to a stream.
    pub fn write(&self, source: u16, source_width: u8, time: Option<u64>, to: &mut Vec<u8>) {
        let mut bytes = Bytes::new(self.code(), source, source_width);
        match *self {
            Message::Ownership { process } => bytes.variable(process),
            Message::DirectBranch { count } | Message::RepeatBranch { count } => bytes.variable(count),
            Message::IndirectBranch(Branch { kind, count, address, history }) => {
                bytes.fixed(kind.into(), 2);
                bytes.variable(count);
                bytes.variable(address);
                history.into_iter().for_each(|history| bytes.variable(history));
            }
            Message::Error { kind, code } => {
                bytes.fixed(kind.into(), 4);
                bytes.variable(code);
            }
            Message::Synchronization(Synchronization { form, reason, count, address }) => {
                bytes.fixed(reason.into(), 4);
                if let Form::Indirect { kind, .. } = form {
                    bytes.fixed(kind.into(), 2);
                }
                bytes.variable(count);
                bytes.variable(address);
                if let Form::Indirect { history: Some(history), .. } = form {
                    bytes.variable(history);
                }
            }
            Message::ResourceFull(resource) => {
                let (code, data, times) = match resource {
                    Resource::Count(count) => (0, count, None),
                    Resource::History(history) => (1, history, None),
                    Resource::Repeated { history, times } => (2, history, Some(times)),
                };
                bytes.fixed(code, 4);
                bytes.variable(data);
                times.into_iter().for_each(|times| bytes.variable(times));
            }
            Message::Correlation { event, count, history } => {
                bytes.fixed(event.into(), 4);
                bytes.fixed(history.is_some().into(), 2);
                bytes.variable(count);
                history.into_iter().for_each(|history| bytes.variable(history));
            }
        }
        time.into_iter().for_each(|time| bytes.variable(time));
        bytes.finish(to);
    }

    fn code(&self) -> u8 {
        match self {
            Message::Ownership { .. } => OWNERSHIP,
            Message::DirectBranch { .. } => DIRECT,
            Message::IndirectBranch(Branch { history: None, .. }) => INDIRECT,
            Message::IndirectBranch(_) => INDIRECT_HISTORY,
            Message::Error { .. } => ERROR,
            Message::Synchronization(Synchronization { form, .. }) => match form {
                Form::Program => PROGRAM_SYNC,
                Form::Direct => DIRECT_SYNC,
                Form::Indirect { history: None, .. } => INDIRECT_SYNC,
                Form::Indirect { .. } => INDIRECT_HISTORY_SYNC,
            },
            Message::ResourceFull(_) => RESOURCE_FULL,
            Message::RepeatBranch { .. } => REPEAT,
            Message::Correlation { .. } => CORRELATION,
        }
    }
}

/// The bytes of a message that is being written.
struct Bytes {
    bytes: Vec<u8>,
    /// Bits of fixed fields that are not written yet.
    pending: u128,
    width: u32,
}

impl Bytes {
    fn new(code: u8, source: u16, source_width: u8) -> Bytes {
        let mut bytes = Bytes { bytes: Vec::new(), pending: 0, width: 0 };
        bytes.fixed(code.into(), 6);
        bytes.fixed(source.into(), source_width);
        bytes
    }

    fn fixed(&mut self, value: u64, width: u8) {
        self.pending |= u128::from(value & mask(width)) << self.width;
        self.width += u32::from(width);
    }

    fn variable(&mut self, value: u64) {
        let mut field = self.pending | u128::from(value) << self.width;
        // A field has at least one bit.
        let mut left = (128 - field.leading_zeros()).max(self.width + 1);
        loop {
            let is_last = left <= 6;
            let end = if is_last { FIELD_ENDS } else { MORE };
            self.bytes.push((field as u8 & 0x3f) << 2 | end);
            if is_last {
                break;
            }
            (field, left) = (field >> 6, left - 6);
        }
        (self.pending, self.width) = (0, 0);
    }

    fn finish(mut self, to: &mut Vec<u8>) {
        if let Some(last) = self.bytes.last_mut() {
            *last |= MESSAGE_ENDS;
        }
        to.extend(self.bytes);
    }
}

//! The tracepoint `sched:sched_switch`, which records context switches if perf cannot record SWITCH.
//!
//! The formats section is the beginning of a trace.dat, without the symbols and kernel strings.

use hodo_bytes::Eof;
use hodo_model::kernel::{PrevState, StateCodes};

use crate::ftrace::{
    Cursor,
    description::{Description, MARK},
    flags::state_codes,
    format::EventFormat,
};

/// The layout of a `sched_switch` record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchedSwitch {
    /// The tracepoint's id: `perf_event_attr.config` of its events.
    pub(super) id: u64,
    previous: Field,
    previous_state: Field,
    codes: StateCodes,
    next: Field,
}

/// An integer field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

/// A switch recorded by the tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switched {
    /// The thread that leaves the CPU.
    pub(super) previous: u32,
    /// Whether that thread was still runnable.
    pub(super) preempted: bool,
    /// The thread that starts to run.
    pub(super) next: u32,
}

impl SchedSwitch {
    /// Finds the format in a formats section.
    ///
    /// # Errors
    /// The section is cut short before the format.
    pub(super) fn find(mut tracing_data: Cursor<'_>) -> Result<Option<SchedSwitch>, Eof> {
        if tracing_data.take(MARK.len())? != MARK {
            return Ok(None);
        }
        tracing_data.c_string();
        let _endianness_and_word_size = tracing_data.take(2)?;
        let _page_size = tracing_data.u32()?;
        let mut description = Description::default();
        let read = description.read_headers(&mut tracing_data);
        let read = read.and_then(|()| description.read_own_formats(&mut tracing_data));
        let read = read.and_then(|()| description.read_formats(&mut tracing_data));
        let switch = description
            .formats
            .iter()
            .find(|format| format.system == b"sched" && format.text.starts_with(b"name: sched_switch\n"));
        match switch {
            // A cut after the format does not matter.
            Some(format) => Ok(SchedSwitch::parse(format.text)),
            None => read.map(|()| None),
        }
    }

    fn parse(text: &[u8]) -> Option<SchedSwitch> {
        let format = EventFormat::parse(text)?;
        let field = |name| {
            let field = format.fields.iter().find(|field| field.name == name)?;
            Some(Field { offset: field.offset as usize, size: field.size as usize })
        };
        Some(SchedSwitch {
            id: format.id,
            previous: field("prev_pid")?,
            previous_state: field("prev_state")?,
            codes: state_codes(text).unwrap_or_else(StateCodes::of_any_kernel),
            next: field("next_pid")?,
        })
    }

    /// Reads a record; `None` if it is too short.
    pub(super) fn read(&self, raw: &[u8]) -> Option<Switched> {
        Some(Switched {
            previous: self.previous.read(raw)? as u32,
            preempted: self.codes.state(self.previous_state.read(raw)? as i64) == PrevState::Runnable,
            next: self.next.read(raw)? as u32,
        })
    }
}

impl Field {
    fn read(self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(self.offset..self.offset.checked_add(self.size)?)?;
        let mut word = [0; 8];
        word.get_mut(..self.size)?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::schema::ByteOrder;

    const FORMAT: &str = "name: sched_switch\nID: 314\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n";

    fn tracing_data() -> Vec<u8> {
        let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
        let mut data = [MARK, b"0.6\0", &[0, 8], &4096u32.to_le_bytes()].concat();
        data.extend(
            [b"header_page\0".to_vec(), text("page"), b"header_event\0".to_vec(), text("event")].concat(),
        );
        data.extend([&1u32.to_le_bytes()[..], &text("name: function\nID: 1\n")].concat());
        data.extend(
            [&2u32.to_le_bytes()[..], b"irq\0", &1u32.to_le_bytes(), &text("name: softirq\nID: 2\n")]
                .concat(),
        );
        data.extend([&b"sched\0"[..], &1u32.to_le_bytes(), &text(FORMAT)].concat());
        data
    }

    #[test]
    fn the_threads_of_a_switch_are_at_the_offsets_of_the_format() {
        let data = tracing_data();
        let switch = SchedSwitch::find(Cursor::new(&data, 0, ByteOrder::Little)).unwrap().unwrap();
        assert_eq!(switch.id, 314);
        let mut raw = vec![0; 60];
        raw[24..28].copy_from_slice(&7u32.to_le_bytes());
        raw[32] = 1;
        raw[56..60].copy_from_slice(&9u32.to_le_bytes());
        assert_eq!(switch.read(&raw), Some(Switched { previous: 7, preempted: false, next: 9 }));
        assert_eq!(switch.read(&raw[..58]), None);
    }

    #[test]
    fn formats_that_are_cut_short_are_an_error() {
        let data = tracing_data();
        for end in 0..data.len() {
            assert!(SchedSwitch::find(Cursor::new(&data[..end], 0, ByteOrder::Little)).is_err(), "{end}");
        }
    }
}

//! Writes a trace.dat of version 6, up to the pages.
//!
//! Source: trace-cmd.dat.v6(5).

use super::description::MARK;

/// The content of a trace.dat before its pages.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Page size in bytes.
    pub page_size: u32,
    /// `events/header_page` in tracefs.
    pub header_page: Vec<u8>,
    /// `events/header_event` in tracefs.
    pub header_event: Vec<u8>,
    /// Format files of ftrace's own events.
    pub own_formats: Vec<Vec<u8>>,
    /// System names, with the format files of each.
    pub systems: Vec<(String, Vec<Vec<u8>>)>,
    /// `/proc/kallsyms`, or empty.
    pub symbols: Vec<u8>,
    /// `printk_formats` in tracefs.
    pub texts: Vec<u8>,
    /// `saved_cmdlines` in tracefs.
    pub threads: Vec<u8>,
    /// `trace_clock` in tracefs, with the selected clock in brackets.
    pub clock: Vec<u8>,
    /// The conversion of timestamps, for the clock `x86-tsc`.
    pub tsc: Option<TscToNanos>,
    /// The traced system, in `uname -a` format.
    pub system: String,
    /// The name of the recording program.
    pub recorder: String,
}

/// The option TSC2NSEC: nanoseconds are `(ticks × multiplier >> shift) + offset`; sums wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TscToNanos {
    /// Nanoseconds per tick, scaled by `2^shift`.
    pub multiplier: u32,
    /// Right shift after the multiplication, in bits.
    pub shift: u32,
    /// Nanoseconds at tick 0.
    pub offset: u64,
}

/// Option numbers.
const DONE: u16 = 0;
const TRACE_CLOCK: u16 = 4;
const UNAME: u16 = 5;
const CPU_COUNT: u16 = 8;
const VERSION: u16 = 9;
const TSC2NSEC: u16 = 14;

impl Head {
    /// Returns all bytes up to the first CPU's pages. The caller appends the pages of each CPU in order: `sizes` has
    /// their size in bytes, a multiple of the page size.
    pub fn bytes(&self, sizes: &[u64]) -> Vec<u8> {
        let (is_big_endian, long_size) = (0, 8);
        let mut out = [MARK, b"6\0", &[is_big_endian, long_size], &self.page_size.to_le_bytes()].concat();
        for (name, text) in [("header_page", &self.header_page), ("header_event", &self.header_event)] {
            c_string(name, &mut out);
            long_sized(text, &mut out);
        }
        formats(&self.own_formats, &mut out);
        out.extend((self.systems.len() as u32).to_le_bytes());
        for (system, texts) in &self.systems {
            c_string(system, &mut out);
            formats(texts, &mut out);
        }
        for text in [&self.symbols, &self.texts] {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend_from_slice(text);
        }
        long_sized(&self.threads, &mut out);
        let cpus = sizes.len() as u32;
        out.extend(cpus.to_le_bytes());
        c_string("options  ", &mut out);
        let text = |text: &[u8]| [text, b"\0"].concat();
        let tsc = self.tsc.map(|TscToNanos { multiplier, shift, offset }| {
            [&multiplier.to_le_bytes()[..], &shift.to_le_bytes(), &offset.to_le_bytes()].concat()
        });
        let options = [
            (TRACE_CLOCK, text(&self.clock)),
            (UNAME, text(self.system.as_bytes())),
            (VERSION, text(self.recorder.as_bytes())),
            (CPU_COUNT, cpus.to_le_bytes().to_vec()),
        ];
        for (number, value) in options.into_iter().chain(tsc.map(|value| (TSC2NSEC, value))) {
            out.extend(number.to_le_bytes());
            out.extend((value.len() as u32).to_le_bytes());
            out.extend(value);
        }
        out.extend(DONE.to_le_bytes());
        c_string("flyrecord", &mut out);
        let clock = text(&self.clock);
        // Offset and size of each CPU's pages, then the size of the clock's text and the text.
        let end = out.len() + 16 * sizes.len() + 8 + clock.len();
        let first = end.next_multiple_of(self.page_size as usize);
        let mut offset = first as u64;
        for size in sizes {
            out.extend([offset.to_le_bytes(), size.to_le_bytes()].concat());
            offset += size;
        }
        long_sized(&clock, &mut out);
        out.resize(first, 0);
        out
    }
}

fn c_string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn long_sized(text: &[u8], out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}

fn formats(texts: &[Vec<u8>], out: &mut Vec<u8>) {
    out.extend((texts.len() as u32).to_le_bytes());
    texts.iter().for_each(|text| long_sized(text, out));
}

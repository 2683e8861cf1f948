//! Writes what a thread did as Intel PT packets, as a processor would that traces the user's code: Intel SDM vol. 3, "Intel
//! Processor Trace".
//!
//! ```text
//! Items ──► conditional branches: TNT    indirect branches and returns: TIP    system calls, signals: FUP, TIP.PGD, TIP.PGE
//! ```
//!
//! Times are those that the recording has: at system calls, and as often as was wanted. The counter ticks as the recorded
//! machine's.

use hodo_intel_pt::encoder::{Encoder, Settings, Sink, Timing};
use hodo_native_runtime::wire::exit;

use crate::read::{Item, Items, Path, Span};

/// Bytes of packets between two points where decoding may start.
const DISTANCE: usize = 1 << 14;

/// How to write packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether a return to its call is one bit of TNT (return compression), the default of processors.
    pub return_compression: bool,
    /// Whether times are written.
    pub time: bool,
}

/// An indirect branch whose target the next item says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    None,
    Indirect,
    Return,
}

/// Counts the bytes that pass.
struct Counted<'s, S> {
    sink: &'s mut S,
    bytes: usize,
}

impl<S: Sink> Sink for Counted<'_, S> {
    fn put(&mut self, word: u64, length: usize) {
        self.bytes += length;
        self.sink.put(word, length);
    }
}

struct Writer<'s, S> {
    encoder: Encoder,
    sink: Counted<'s, S>,
    /// Whether tracing is on.
    on: bool,
    waiting: Waiting,
    /// Where the thread stands, if that is known; 0 otherwise.
    at: u64,
    now: u64,
    time: bool,
    synchronized: usize,
}

/// Writes the rest of a thread's items as packets, from a PSB on.
pub fn write<S: Sink>(items: Items<'_>, options: Options, sink: &mut S) {
    let timing = Timing { tsc: options.time, mtc_period: None, cyc_threshold: None };
    let settings = Settings { return_compression: options.return_compression, timing };
    let mut writer = Writer {
        encoder: Encoder::new(settings, 0),
        sink: Counted { sink, bytes: 0 },
        on: false,
        waiting: Waiting::None,
        at: 0,
        now: 0,
        time: options.time,
        synchronized: 0,
    };
    let mut begun = false;
    let mut items = items;
    while let Some(item) = items.next() {
        if !begun {
            writer.now = items.times().0;
            writer.encoder.synchronize(None, writer.now, &mut writer.sink);
            begun = true;
        }
        writer.item(item);
    }
    if begun {
        writer.off();
        writer.encoder.flush(writer.now, &mut writer.sink);
    }
}

impl<S: Sink> Writer<'_, S> {
    fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Path(path) => self.path(&path),
            Item::Signal(_, handler) => {
                if self.on && self.waiting == Waiting::None {
                    self.encoder.interrupt(self.at, self.now, &mut self.sink);
                    self.on = false;
                }
                self.off();
                self.at = handler;
            }
            Item::Continue(pc) => {
                self.arrive(pc);
                if self.on && self.at != pc {
                    self.off();
                }
                self.at = pc;
            }
            Item::Call(_, time) | Item::CallEnd(time) | Item::Time(time) => {
                self.now = self.now.max(time);
                if self.time && !self.on {
                    self.encoder.set_clock(self.now, &mut self.sink);
                }
            }
            Item::Loss(_) | Item::Contradiction => {
                self.off();
                self.encoder.overflow(None, self.now, &mut self.sink);
                self.at = 0;
            }
            Item::End => self.off(),
        }
    }

    /// The thread is at `pc`, where the last indirect branch led.
    fn arrive(&mut self, pc: u64) {
        match std::mem::replace(&mut self.waiting, Waiting::None) {
            Waiting::None => return,
            Waiting::Indirect => self.encoder.indirect(pc, self.now, &mut self.sink),
            Waiting::Return => self.encoder.ret(pc, self.now, &mut self.sink),
        }
        self.at = pc;
    }

    /// Ends tracing, if it is on.
    fn off(&mut self) {
        if self.on {
            match self.waiting {
                // Where it led is unknown.
                Waiting::Indirect | Waiting::Return => self.encoder.disable(None, self.now, &mut self.sink),
                Waiting::None => self.encoder.interrupt(self.at, self.now, &mut self.sink),
            }
        }
        (self.on, self.waiting) = (false, Waiting::None);
    }

    fn path(&mut self, path: &Path<'_>) {
        let start = path.spans.first().unwrap_or(&path.last).start;
        self.arrive(start);
        if self.on && self.at != start {
            self.off();
        }
        if self.on && self.sink.bytes - self.synchronized > DISTANCE {
            self.encoder.synchronize(Some(start), self.now, &mut self.sink);
            self.synchronized = self.sink.bytes;
        }
        if !self.on {
            self.encoder.enable(start, self.now, &mut self.sink);
            self.on = true;
        }
        let mut not_taken = path.not_taken.iter().peekable();
        let mut number = 0;
        for span in path.all() {
            number += span.count;
            while not_taken.next_if(|&&branch| u32::from(branch) <= number).is_some() {
                self.encoder.branch(false, self.now, &mut self.sink);
            }
            self.branch(&span);
        }
    }

    /// The branch at the end of a span.
    fn branch(&mut self, span: &Span) {
        self.at = if span.kind == exit::NONE { span.end } else { span.target };
        match span.kind {
            exit::TAKEN => self.encoder.branch(true, self.now, &mut self.sink),
            exit::NOT_TAKEN => {
                self.encoder.branch(false, self.now, &mut self.sink);
                self.at = span.end;
            }
            exit::CALL if span.target != span.end => self.encoder.call(span.end),
            exit::CALL_INDIRECT => {
                self.encoder.call(span.end);
                self.indirect(span.target, Waiting::Indirect);
            }
            exit::JUMP_INDIRECT | exit::FAR_RETURN => self.indirect(span.target, Waiting::Indirect),
            exit::RETURN => self.indirect(span.target, Waiting::Return),
            exit::SYSCALL | exit::FAR => {
                self.encoder.disable(None, self.now, &mut self.sink);
                self.on = false;
            }
            _ => {}
        }
    }

    fn indirect(&mut self, target: u64, how: Waiting) {
        self.waiting = how;
        if target != 0 {
            self.arrive(target);
        }
    }
}

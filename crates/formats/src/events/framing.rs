//! Framings other than CTF's: finds events in pages of ftrace and samples of perf.

use super::{
    cursor::Lost,
    event::{EventTrouble, Parts},
    trace::StreamPacket,
};
use crate::{
    ftrace::{PageReader, Pages},
    perf::samples::{SampleReader, Samples},
};

/// How events are located in packets.
#[derive(Debug, Default)]
pub(crate) enum Framing {
    /// By CTF event headers.
    #[default]
    Ctf,
    /// In pages of ftrace's ring buffer.
    Pages(Pages),
    /// Among records of perf.
    Samples(Samples),
}

/// An item of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    Event(Parts),
    Lost(Lost),
}

/// Finds events in packets.
#[derive(Debug)]
pub(super) enum Finder<'t, 'a> {
    Pages(PageReader<'t, 'a>),
    Samples(SampleReader<'t, 'a>),
}

impl<'t, 'a> Finder<'t, 'a> {
    /// Creates a finder; `None` for events with CTF headers.
    pub(super) fn new(framing: &'t Framing) -> Option<Finder<'t, 'a>> {
        match framing {
            Framing::Ctf => None,
            Framing::Pages(pages) => Some(Finder::Pages(PageReader::new(pages))),
            Framing::Samples(samples) => Some(Finder::Samples(SampleReader::new(samples))),
        }
    }

    /// Moves to the first event of a packet.
    pub(super) fn open(&mut self, packet: &'t StreamPacket<'a>) {
        match self {
            Finder::Pages(pages) => pages.open(packet.bytes),
            Finder::Samples(samples) => samples.open(packet),
        }
    }

    /// Returns the next item of the packet; `None` after the last.
    ///
    /// # Errors
    /// Unreadable data. The next call continues after it.
    #[inline]
    pub(super) fn find(&mut self) -> Result<Option<Found>, EventTrouble> {
        match self {
            Finder::Pages(pages) => pages.find(),
            Finder::Samples(samples) => samples.find(),
        }
    }
}

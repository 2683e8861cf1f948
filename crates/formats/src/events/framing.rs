//! How events are found in packets that are not CTF's own: pages of ftrace, samples of perf.

use super::{
    cursor::Lost,
    event::{EventTrouble, Parts},
    trace::StreamPacket,
};
use crate::{
    ftrace::{PageReader, Pages},
    perf::samples::{SampleReader, Samples},
};

/// How the events of a trace are found.
#[derive(Debug, Default)]
pub(crate) enum Framing {
    /// By their headers.
    #[default]
    Ctf,
    /// In pages of ftrace's ring buffer.
    Pages(Pages),
    /// Among records of perf.
    Samples(Samples),
}

/// Something found in a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    Event(Parts),
    Lost(Lost),
}

/// Finds events in one packet after the other.
#[derive(Debug)]
pub(super) enum Finder<'t, 'a> {
    Pages(PageReader<'t, 'a>),
    Samples(SampleReader<'t, 'a>),
}

impl<'t, 'a> Finder<'t, 'a> {
    /// `None` where events have headers.
    pub(super) fn new(framing: &'t Framing) -> Option<Finder<'t, 'a>> {
        match framing {
            Framing::Ctf => None,
            Framing::Pages(pages) => Some(Finder::Pages(PageReader::new(pages))),
            Framing::Samples(samples) => Some(Finder::Samples(SampleReader::new(samples))),
        }
    }

    /// Goes to the first event of a packet.
    pub(super) fn open(&mut self, packet: &'t StreamPacket<'a>) {
        match self {
            Finder::Pages(pages) => pages.open(packet.bytes),
            Finder::Samples(samples) => samples.open(packet),
        }
    }

    /// The next thing of the packet; `None` behind its last.
    ///
    /// # Errors
    /// What can't be read, after which it goes on.
    #[inline]
    pub(super) fn find(&mut self) -> Result<Option<Found>, EventTrouble> {
        match self {
            Finder::Pages(pages) => pages.find(),
            Finder::Samples(samples) => samples.find(),
        }
    }
}

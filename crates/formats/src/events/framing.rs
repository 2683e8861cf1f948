//! Framings other than CTF's: finds events in pages of ftrace, samples of perf and bundles of Perfetto.

use super::{
    cursor::Lost,
    event::{EventTrouble, Parts},
    steps::Slots,
    trace::StreamPacket,
};
use crate::{
    ftrace::{PageReader, Pages},
    perf::samples::{SampleReader, Samples},
    perfetto::{BundleReader, Bundles},
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
    /// In bundles of Perfetto.
    Bundles(Bundles),
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
    /// Boxed, because it is larger than all of a cursor otherwise.
    Bundles(Box<BundleReader<'t, 'a>>),
}

impl<'t, 'a> Finder<'t, 'a> {
    /// Creates a finder; `None` for events with CTF headers.
    pub(super) fn new(framing: &'t Framing) -> Option<Finder<'t, 'a>> {
        match framing {
            Framing::Ctf => None,
            Framing::Pages(pages) => Some(Finder::Pages(PageReader::new(pages))),
            Framing::Samples(samples) => Some(Finder::Samples(SampleReader::new(samples))),
            Framing::Bundles(bundles) => Some(Finder::Bundles(Box::new(BundleReader::new(bundles)))),
        }
    }

    /// Moves to the first event of a packet.
    pub(super) fn open(&mut self, packet: &'t StreamPacket<'a>) {
        match self {
            Finder::Pages(pages) => pages.open(packet.bytes),
            Finder::Samples(samples) => samples.open(packet),
            Finder::Bundles(bundles) => bundles.open(packet),
        }
    }

    /// Returns the next item of the packet; `None` after the last. Sets the slots of numbers that are not in the bytes
    /// of the event.
    ///
    /// # Errors
    /// Unreadable data. The next call continues after it.
    #[inline]
    pub(super) fn find(&mut self, slots: &Slots) -> Result<Option<Found>, EventTrouble> {
        match self {
            Finder::Pages(pages) => pages.find(),
            Finder::Samples(samples) => samples.find(),
            Finder::Bundles(bundles) => bundles.find(slots),
        }
    }
}

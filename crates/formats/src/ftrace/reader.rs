//! Reads the events in pages.

use hodo_clock::{CycleClock, OriginNanos};

use super::{
    page::{Layout, Missed, Page, PageRecord, Records},
    write::TscToNanos,
};
use crate::events::{
    EventTrouble, Lost, Parts,
    framing::Found,
    schema::{ByteOrder, StreamClass},
};

/// The context for reading the pages of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    pub(super) layout: Layout,
    /// Class indices by record id.
    classes: Vec<u32>,
    ticks: Ticks,
    clock: CycleClock,
}

/// The conversion of timestamps to nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticks {
    /// For the TSC.
    pub(super) tsc: Option<TscToNanos>,
}

impl Ticks {
    /// Converts a timestamp to nanoseconds.
    #[inline]
    pub(super) fn nanos(self, time: u64) -> u64 {
        match self.tsc {
            None => time,
            Some(TscToNanos { multiplier, shift, offset }) => {
                let scaled = (u128::from(time) * u128::from(multiplier)) >> shift.min(127);
                (scaled as u64).wrapping_add(offset)
            }
        }
    }
}

/// Marks an id without a class.
const NONE: u32 = u32::MAX;

impl Pages {
    pub(super) fn new(layout: Layout, class: &StreamClass, ticks: Ticks, clock: CycleClock) -> Pages {
        let mut pages = Pages { layout, classes: Vec::new(), ticks, clock };
        for (index, event) in (0..).zip(&class.events) {
            let Ok(id) = u16::try_from(event.id) else { continue };
            let id = usize::from(id);
            if pages.classes.len() <= id {
                pages.classes.resize(id + 1, NONE);
            }
            pages.classes[id] = index;
        }
        pages
    }

    /// Converts the timestamp of a page or record.
    pub(super) fn time(&self, time: u64) -> OriginNanos {
        self.clock.nanos(self.ticks.nanos(time))
    }

    #[inline]
    fn class(&self, id: u16) -> Option<u32> {
        self.classes.get(usize::from(id)).copied().filter(|&class| class != NONE)
    }
}

/// Iterates over the records of a sequence of pages.
#[derive(Debug)]
pub(crate) struct PageReader<'t, 'a> {
    pages: &'t Pages,
    bytes: &'a [u8],
    /// Offset of the current page.
    page: usize,
    records: Option<Records>,
}

impl<'t, 'a> PageReader<'t, 'a> {
    pub(crate) fn new(pages: &'t Pages) -> PageReader<'t, 'a> {
        PageReader { pages, bytes: &[], page: 0, records: None }
    }

    pub(crate) fn open(&mut self, bytes: &'a [u8]) {
        (self.bytes, self.page, self.records) = (bytes, 0, None);
    }

    /// The bytes of the current page.
    fn current_page(&self) -> &'a [u8] {
        let rest = self.bytes.get(self.page..).unwrap_or_default();
        &rest[..rest.len().min(self.pages.layout.page_size)]
    }

    /// The next event, or the loss before a page; `None` after the last page.
    pub(crate) fn find(&mut self) -> Result<Option<Found>, EventTrouble> {
        loop {
            let page = self.current_page();
            let Some(records) = &mut self.records else {
                if page.is_empty() {
                    return Ok(None);
                }
                if let Some(lost) = self.open_page(page)? {
                    return Ok(Some(Found::Lost(lost)));
                }
                continue;
            };
            match records.next(page) {
                Ok(Some(record)) => return self.event(page, record).map(Some),
                Ok(None) => self.next_page(),
                Err(position) => {
                    let trouble = self.trouble(position, "a record extends beyond the end of its page");
                    self.next_page();
                    return Err(trouble);
                }
            }
        }
    }

    fn next_page(&mut self) {
        (self.page, self.records) = (self.page.saturating_add(self.pages.layout.page_size), None);
    }

    /// Reads a page's header. Returns the loss before the page.
    fn open_page(&mut self, bytes: &[u8]) -> Result<Option<Lost>, EventTrouble> {
        let page = Page::read(bytes, &self.pages.layout).map_err(|eof| {
            let trouble = self.trouble(0, &format!("a page is cut short: {eof}"));
            self.next_page();
            trouble
        })?;
        self.records = Some(Records::new(&page));
        let before = Some(self.pages.time(page.time));
        let lost = |count| Lost { count, packets: false, after: None, before };
        Ok(page.lost.map(|missed| match missed {
            Missed::Some => lost(0),
            Missed::Count(count) => lost(count),
        }))
    }

    #[inline]
    fn event(&self, page: &[u8], record: PageRecord) -> Result<Found, EventTrouble> {
        let id = page.get(record.content..record.end).and_then(|content| content.first_chunk());
        let id = id.map(|id| match self.pages.layout.order {
            ByteOrder::Little => u16::from_le_bytes(*id),
            ByteOrder::Big => u16::from_be_bytes(*id),
        });
        let Some(class) = id.and_then(|id| self.pages.class(id)) else {
            let reason = id.map_or("an event without a number".to_owned(), |id| {
                format!("the description has no event {id}")
            });
            return Err(self.trouble(record.start, &reason));
        };
        let bit = |position: usize| 8 * (self.page + position) as u64;
        let content = bit(record.content);
        Ok(Found::Event(Parts {
            class,
            cycles: Some(self.pages.ticks.nanos(record.time)),
            start: bit(record.start),
            common: content,
            specific: content,
            payload: content,
            end: bit(record.end),
        }))
    }

    #[cold]
    fn trouble(&self, position: usize, reason: &str) -> EventTrouble {
        EventTrouble { position: 8 * (self.page + position) as u64, reason: reason.to_owned() }
    }
}

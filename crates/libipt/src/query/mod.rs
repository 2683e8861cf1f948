//! The query decoder: conditional branches, indirect branches and events, as the caller asks for them.
//!
//! ```text
//! packets ──read_ahead──► next: TNT ──► conditional_branch ◄─┐
//!    │                          TIP ──► indirect_branch ◄────┼── the caller, who follows the code
//!    └─ timing, status          an event's ──► event ◄───────┘
//! ```
//!
//! It reads up to the next packet that answers a query, so that the status tells whether an event is pending.

mod overflow;
mod packets;
mod scan;

pub(crate) use scan::Scan;

use crate::{
    Error, Settings, Status,
    event::{Binding, Event, Waiting},
    packet::{Kind, LastIp},
    synchronize,
    time::{Clock, Reading, Time},
};

/// A query decoder.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) settings: Settings,
    /// Where the next packet begins; `None` before the first synchronization.
    position: Option<usize>,
    /// The PSB of the last synchronization.
    synchronized: Option<usize>,
    /// The packet at the position; `None` at the end of the trace or after an error.
    next: Option<Kind>,
    last_ip: LastIp,
    outcomes: Outcomes,
    clock: Clock,
    /// The time at the last answer.
    last_time: Time,
    waiting: Waiting,
    /// The event that the last packet made.
    event: Option<Event>,
    /// Whether tracing is on.
    enabled: bool,
    /// Whether the present packet is done with once no event binds to it any more.
    consumes: bool,
}

/// The branches of a TNT packet that are not asked for yet.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    bits: u64,
    count: u8,
}

impl Outcomes {
    fn pop(&mut self) -> Option<bool> {
        self.count = self.count.checked_sub(1)?;
        Some(self.bits >> self.count & 1 == 1)
    }
}

/// The answer to a query for a branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) status: Status,
}

/// The begin of a trace segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The address; 0 if it is not known.
    pub(crate) ip: u64,
    /// The status, without [`Status::IP_SUPPRESSED`].
    status: Status,
    is_located: bool,
}

impl Start {
    /// Returns the status for a caller who asked for the address.
    pub(crate) fn status(&self) -> Status {
        if self.is_located { self.status } else { self.status | Status::IP_SUPPRESSED }
    }

    /// Returns the status for a caller who did not.
    pub(crate) fn status_without_ip(&self) -> Status {
        self.status
    }
}

impl Query {
    /// Creates a decoder that is not synchronized.
    pub(crate) fn new(settings: Settings) -> Query {
        Query {
            settings,
            position: None,
            synchronized: None,
            next: None,
            last_ip: LastIp::default(),
            outcomes: Outcomes::default(),
            clock: Clock::default(),
            last_time: Time::default(),
            waiting: Waiting::default(),
            event: None,
            enabled: false,
            consumes: false,
        }
    }

    fn trace(&self) -> &'static [u8] {
        self.settings.trace
    }

    /// Returns the offset of the next packet.
    pub(crate) fn offset(&self) -> Result<usize, Error> {
        self.position.ok_or(Error::NO_SYNC)
    }

    /// Returns the offset of the last synchronization point.
    pub(crate) fn synchronized_offset(&self) -> Result<usize, Error> {
        self.synchronized.ok_or(Error::NO_SYNC)
    }

    /// Synchronizes at the next PSB.
    pub(crate) fn synchronize_forward(&mut self) -> Result<Start, Error> {
        let psb = synchronize::forward(self.trace(), self.position.unwrap_or(0), self.synchronized)?;
        self.start(psb)
    }

    /// Synchronizes at the PSB before the position.
    pub(crate) fn synchronize_backward(&mut self) -> Result<u64, Error> {
        let begin = self.position.unwrap_or(self.trace().len());
        let mut from = begin;
        loop {
            let psb = synchronize::backward(self.trace(), from)?;
            match self.start(psb) {
                // A segment that is not whole, at the end of the trace.
                Err(Error::END) => {}
                Err(error) => return Err(error),
                // An empty segment leads back to where the search began.
                Ok(start) if self.position != Some(begin) => return Ok(start.ip),
                Ok(_) => {}
            }
            // A long run of a PSB's bytes; libipt would search for ever.
            if psb >= from {
                return Err(Error::END);
            }
            from = psb;
        }
    }

    /// Synchronizes at a given PSB.
    pub(crate) fn synchronize_at(&mut self, offset: u64) -> Result<Start, Error> {
        let psb = synchronize::at(self.trace(), offset)?;
        self.start(psb)
    }

    /// Forgets what is known of the trace before.
    fn reset(&mut self) {
        self.last_ip = LastIp::default();
        self.outcomes = Outcomes::default();
        self.clock = Clock::default();
        self.last_time = Time::default();
        self.waiting = Waiting::default();
        self.event = None;
        self.enabled = false;
        self.consumes = false;
    }

    fn start(&mut self, psb: usize) -> Result<Start, Error> {
        self.reset();
        self.synchronized = Some(psb);
        self.position = Some(psb);
        if self.fetch()? != Kind::Psb {
            return Err(Error::NO_SYNC);
        }
        self.apply(Kind::Psb)?;
        // Before reading on: another PSB+ may follow, with another address.
        let first = self.last_ip.get();
        self.read_ahead()?;
        let ip = first.or_else(|_| self.last_ip.get());
        Ok(Start { ip: ip.unwrap_or(0), status: self.status(), is_located: ip.is_ok() })
    }

    /// Finds out what the next packet is.
    fn fetch(&mut self) -> Result<Kind, Error> {
        self.next = None;
        let kind = Kind::at(self.trace(), self.offset()?)?;
        self.next = Some(kind);
        Ok(kind)
    }

    /// Returns the next packet, or why there is none.
    fn next(&self) -> Result<Kind, Error> {
        match self.next {
            Some(kind) => Ok(kind),
            None => Err(Kind::at(self.trace(), self.offset()?).err().unwrap_or(Error::INTERNAL)),
        }
    }

    /// Applies packets up to the next one that answers a query.
    fn read_ahead(&mut self) -> Result<(), Error> {
        loop {
            let kind = self.fetch()?;
            if matches!(kind, Kind::Tip | Kind::Tnt8 | Kind::Tnt64) || self.will_event() {
                return Ok(());
            }
            if let Err(error) = self.apply(kind) {
                // A status packet that is cut short ends the trace.
                if error == Error::END {
                    self.position = Some(self.trace().len());
                    self.next = None;
                }
                return Err(error);
            }
        }
    }

    /// Reads ahead after an answer, which the end of the trace does not take back.
    fn read_ahead_to_end(&mut self) -> Result<(), Error> {
        self.read_ahead().or_else(|error| if error == Error::END { Ok(()) } else { Err(error) })
    }

    /// Whether the next packet makes an event.
    fn will_event(&self) -> bool {
        match self.next {
            None => false,
            Some(Kind::PsbEnd) => self.waiting.any(Binding::PsbEnd),
            Some(Kind::Tip) => self.waiting.any(Binding::Tip),
            Some(Kind::Fup) => self.waiting.any(Binding::Fup),
            Some(kind) => kind.makes_event(),
        }
    }

    fn is_at_end(&self) -> bool {
        let at_end = |position| Kind::at(self.trace(), position) == Err(Error::END);
        self.next.is_none() && self.position.is_some_and(at_end)
    }

    /// Branches come first: events are announced when no outcome is left.
    fn status(&self) -> Status {
        let mut status = Status::NONE;
        if self.outcomes.count == 0 {
            if self.will_event() {
                status |= Status::EVENT_PENDING;
            }
            if self.is_at_end() {
                status |= Status::END;
            }
        }
        status
    }

    /// Returns the outcome of the next conditional branch.
    pub(crate) fn conditional_branch(&mut self) -> Result<Answer<bool>, Error> {
        if self.outcomes.count == 0 {
            self.refill()?;
        }
        let value = self.outcomes.pop().ok_or(Error::BAD_QUERY)?;
        Ok(Answer { value, status: self.status() })
    }

    /// Reads the next TNT packet.
    fn refill(&mut self) -> Result<(), Error> {
        loop {
            let kind = self.next()?;
            if self.will_event() || kind == Kind::Tip {
                return Err(Error::BAD_QUERY);
            }
            self.apply_without_event(kind)?;
            if matches!(kind, Kind::Tnt8 | Kind::Tnt64) {
                break;
            }
            self.read_ahead()?;
        }
        self.last_time = self.clock.time;
        self.read_ahead_to_end()
    }

    /// Stores the target of the next indirect branch, if it is not suppressed: also before an error behind it.
    pub(crate) fn indirect_branch(&mut self, target: &mut u64) -> Result<Status, Error> {
        loop {
            let kind = self.next()?;
            if self.will_event() {
                return Err(Error::BAD_QUERY);
            }
            if matches!(kind, Kind::Tnt8 | Kind::Tnt64) && self.outcomes.count != 0 {
                return Err(Error::BAD_QUERY);
            }
            self.apply_without_event(kind)?;
            if kind == Kind::Tip {
                break;
            }
            self.read_ahead()?;
        }
        let known = self.last_ip.get();
        *target = known.unwrap_or(*target);
        self.last_time = self.clock.time;
        self.read_ahead_to_end()?;
        let suppressed = if known.is_err() { Status::IP_SUPPRESSED } else { Status::NONE };
        Ok(suppressed | self.status())
    }

    /// Applies a packet that must not make an event.
    fn apply_without_event(&mut self, kind: Kind) -> Result<(), Error> {
        self.event = None;
        self.apply(kind)?;
        if self.event.is_some() { Err(Error::EVENT_IGNORED) } else { Ok(()) }
    }

    /// Stores the next event: also before an error behind it.
    pub(crate) fn event(&mut self, event: &mut Event) -> Result<Status, Error> {
        if self.outcomes.count != 0 {
            return Err(Error::BAD_QUERY);
        }
        *event = loop {
            let kind = self.next()?;
            if matches!(kind, Kind::Tip | Kind::Tnt8 | Kind::Tnt64) && !self.will_event() {
                return Err(Error::BAD_QUERY);
            }
            self.event = None;
            self.apply(kind)?;
            if let Some(event) = self.event {
                break event;
            }
            self.read_ahead()?;
        };
        self.last_time = self.clock.time;
        self.read_ahead_to_end()?;
        Ok(self.status())
    }

    /// Returns the time at the last answer.
    pub(crate) fn time(&self) -> Reading {
        self.last_time.read()
    }

    /// Returns the ratio of core to bus clock at the last answer.
    pub(crate) fn ratio(&self) -> Result<u32, Error> {
        self.last_time.ratio()
    }
}

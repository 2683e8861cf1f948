//! What the instruction decoder and the block decoder share: where execution is, and what events do to that.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    Error, Settings, Status,
    block::BlockCache,
    event::{Event, Mode, What},
    instruction::{Class, Instruction},
    memory::{Content, Image, Located, Space},
    query::{Answer, Query, Start},
};

/// The state of execution.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) query: Query,
    image: Arc<Image>,
    /// The image that exists without the caller's doing.
    default_image: Arc<Image>,
    /// The section that was used last, mapped.
    section: Option<MappedSection>,
    pub(crate) mode: Mode,
    pub(crate) ip: u64,
    /// The query decoder's last status.
    pub(crate) status: Status,
    /// Whether tracing is on.
    pub(crate) enabled: bool,
    pub(crate) speculative: bool,
    pub(crate) space: Space,
    /// The event in process, or the last one.
    pub(crate) event: Event,
    pub(crate) has_event: bool,
    pub(crate) returns: Returns,
    /// An instruction that is passed once no event binds to it any more.
    pub(crate) postponed: Option<Instruction>,
    /// What is bound to the postponed instruction.
    pub(crate) bound: Bound,
    /// Whether changes of time are events.
    pub(crate) ticks: bool,
}

/// A section at an address, with its bytes.
#[derive(Clone, Debug)]
pub(crate) struct MappedSection {
    pub(crate) located: Located,
    content: Arc<Content>,
}

impl MappedSection {
    /// Returns the cache of the section's blocks.
    pub(crate) fn blocks(&self) -> &BlockCache {
        self.content.blocks()
    }

    /// Reads an instruction that lies in this section.
    pub(crate) fn decode(&self, instruction: &mut Instruction) -> Result<(), Error> {
        let bytes = self.located.read(&self.content, instruction.ip, instruction.raw.len())?;
        instruction.raw[..bytes.len()].copy_from_slice(bytes);
        instruction.isid = self.located.isid;
        instruction.decode(bytes.len())
    }
}

/// The events that are bound to an instruction: at most one of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bound {
    pub(crate) paging: bool,
    pub(crate) vmcs: bool,
    pub(crate) ptwrite: bool,
}

/// The return addresses of calls, as the processor remembers them for return compression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Returns(VecDeque<u64>);

impl Returns {
    /// The processor's stack has this many entries.
    const DEPTH: usize = 64;

    pub(crate) fn push(&mut self, address: u64) {
        if self.0.len() == Returns::DEPTH {
            self.0.pop_front();
        }
        self.0.push_back(address);
    }

    pub(crate) fn pop(&mut self) -> Result<u64, Error> {
        self.0.pop_back().ok_or(Error::RETURN_STACK_EMPTY)
    }
}

/// Where libipt's two decoders check an event's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    Instructions,
    Blocks,
}

impl Walk {
    pub(crate) fn new(settings: Settings, ticks: bool) -> Walk {
        let default_image = Arc::new(Image::default());
        Walk {
            query: Query::new(settings),
            image: Arc::clone(&default_image),
            default_image,
            section: None,
            mode: Mode::Unknown,
            ip: 0,
            status: Status::NONE,
            enabled: false,
            speculative: false,
            space: Space::default(),
            event: Event::new(What::Stop),
            has_event: false,
            returns: Returns::default(),
            postponed: None,
            bound: Bound::default(),
            ticks,
        }
    }

    pub(crate) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Sets the image; without one, the default image.
    pub(crate) fn set_image(&mut self, image: Option<Arc<Image>>) {
        self.image = image.unwrap_or_else(|| Arc::clone(&self.default_image));
    }

    pub(crate) fn reset(&mut self) {
        self.mode = Mode::Unknown;
        self.ip = 0;
        self.status = Status::NONE;
        self.enabled = false;
        self.has_event = false;
        self.speculative = false;
        self.returns = Returns::default();
        self.space = Space::default();
        self.clear_postponed();
    }

    /// Begins at a synchronization point.
    pub(crate) fn start(&mut self, start: Start) {
        self.ip = start.ip;
        self.status = start.status();
        self.enabled = !self.status.has(Status::IP_SUPPRESSED);
    }

    /// As [`start`](Walk::start), for the search backwards, whose status libipt drops.
    pub(crate) fn start_backward(&mut self, ip: u64) {
        self.ip = ip;
        self.status = Status::NONE;
        self.enabled = true;
    }

    /// Returns the status for the caller.
    pub(crate) fn status(&self, flags: Status) -> Status {
        let mut status = flags;
        if !self.enabled {
            status |= Status::IP_SUPPRESSED;
        }
        // Events come before the end.
        if self.status.has(Status::END) && !self.has_event {
            status |= Status::END;
        }
        status
    }

    /// Returns the status with an event pending.
    pub(crate) fn pending(&self) -> Status {
        self.status(Status::EVENT_PENDING)
    }

    /// Fetches the next event if one is pending. Returns whether one is in process.
    pub(crate) fn fetch_event(&mut self) -> Result<bool, Error> {
        if self.has_event {
            return Ok(true);
        }
        if !self.status.has(Status::EVENT_PENDING) {
            return Ok(false);
        }
        self.status = self.query.event(&mut self.event)?;
        self.has_event = true;
        Ok(true)
    }

    /// Returns the outcome of a conditional branch. The status is the caller's to keep.
    pub(crate) fn conditional_branch(&mut self) -> Result<Answer<bool>, Error> {
        let answer = self.query.conditional_branch()?;
        self.tick(self.ip)?;
        Ok(answer)
    }

    /// Goes to the target of an indirect branch. A suppressed target leaves the address.
    pub(crate) fn indirect_branch(&mut self) -> Result<Status, Error> {
        let at = self.ip;
        let status = self.query.indirect_branch(&mut self.ip)?;
        self.tick(at)?;
        Ok(status)
    }

    /// Makes an event of a change of time, if the caller wants that and no other event is in process.
    fn tick(&mut self, ip: u64) -> Result<(), Error> {
        if !self.ticks {
            return Ok(());
        }
        if !self.enabled {
            return Err(Error::INTERNAL);
        }
        let reading = self.query.time();
        if !self.has_event && reading.tsc != self.event.tsc {
            self.event = Event {
                has_tsc: reading.is_absolute,
                tsc: reading.tsc,
                lost_mtc: reading.lost_mtc,
                lost_cyc: reading.lost_cyc,
                ..Event::new(What::Tick { ip })
            };
            self.has_event = true;
        }
        Ok(())
    }

    /// Returns the section at the address, mapped.
    pub(crate) fn section(&mut self) -> Result<MappedSection, Error> {
        if let Some(mapped) = &self.section
            && mapped.located.contains(self.ip)
            && self.image.is_first(&mapped.located)
        {
            return Ok(mapped.clone());
        }
        self.section = None;
        let located = self.image.find(&self.space, self.ip)?;
        let content = located.section.map()?;
        let mapped = MappedSection { located, content };
        self.section = Some(mapped.clone());
        Ok(mapped)
    }

    /// Reads the instruction at the address from the image.
    pub(crate) fn read_instruction(&self, ip: u64) -> Result<Instruction, Error> {
        let mut instruction = Instruction::at(ip, self.mode);
        instruction.read(&self.image, &self.space)?;
        Ok(instruction)
    }

    pub(crate) fn clear_postponed(&mut self) {
        self.postponed = None;
        self.bound = Bound::default();
    }

    /// Erratum SKD022: a VM entry that ends tracing looks as if an interrupt did. If this is so, the event becomes a
    /// synchronous one.
    pub(crate) fn apply_skd022(&mut self, at: u64) -> bool {
        let What::AsyncDisabled { ip, .. } = self.event.what else { return false };
        let applies = self.read_instruction(at).is_ok_and(|instruction| instruction.enters_guest());
        if applies {
            self.event.what = What::Disabled { ip };
        }
        applies
    }

    /// Sets the address at which tracing is expected to resume, after a branch of unknown target: behind a call.
    pub(crate) fn expect_resumption(&mut self, instruction: &Instruction) {
        self.ip = match instruction.class {
            Class::Call | Class::FarCall => instruction.end(),
            _ => 0,
        };
    }

    /// Applies the event in process to the state. It stays in process.
    pub(crate) fn apply_event(&mut self, checks: Checks) -> Result<(), Error> {
        if !self.has_event {
            return Err(Error::BAD_QUERY);
        }
        self.check_address(checks)?;
        let suppressed = self.event.ip_suppressed;
        match &mut self.event.what {
            What::Enabled { ip, resumed } => {
                let ip = *ip;
                *resumed |= ip == self.ip;
                self.refuse_status_update()?;
                if suppressed {
                    return Err(Error::NO_IP);
                }
                self.require_enabled(false)?;
                self.ip = ip;
                self.enabled = true;
            }
            What::Disabled { .. } | What::AsyncDisabled { .. } => {
                self.refuse_status_update()?;
                self.require_enabled(true)?;
                self.enabled = false;
            }
            What::AsyncBranch { to, .. } => {
                let to = *to;
                self.refuse_status_update()?;
                self.require_enabled(true)?;
                self.ip = to;
            }
            What::Paging { cr3, .. } | What::AsyncPaging { cr3, .. } => {
                let space = Space { cr3: Some(*cr3), ..self.space };
                self.set_space(space);
            }
            What::Vmcs { base } | What::AsyncVmcs { base, .. } => {
                let space = Space { vmcs: Some(*base), ..self.space };
                self.set_space(space);
            }
            What::Overflow { ip } => {
                let ip = *ip;
                self.refuse_status_update()?;
                self.enabled = !suppressed;
                self.ip = if suppressed { 0 } else { ip };
                self.speculative = false;
            }
            What::ExecMode { mode, .. } => {
                let mode = *mode;
                let contradicts = self.mode != Mode::Unknown && self.mode != mode;
                if self.event.status_update && self.enabled && contradicts {
                    return Err(Error::BAD_STATUS_UPDATE);
                }
                self.mode = mode;
            }
            What::Tsx { speculative, .. } => self.speculative = *speculative,
            What::Stop => {
                self.refuse_status_update()?;
                self.require_enabled(false)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// An event with an address must be taken there.
    fn check_address(&self, checks: Checks) -> Result<(), Error> {
        let blocks = checks == Checks::Blocks;
        let given = !self.event.ip_suppressed;
        let (applies, address) = match self.event.what {
            What::AsyncDisabled { at, .. } => (given || blocks, at),
            What::AsyncBranch { from, .. } => (true, from),
            What::AsyncPaging { ip, .. } | What::AsyncVmcs { ip, .. } => (given, ip),
            What::ExecMode { ip, .. } | What::Tsx { ip, .. } => (given && blocks, ip),
            What::ExStop { ip } | What::Mwait { ip, .. } => (given && self.enabled, ip),
            _ => return Ok(()),
        };
        if applies && address != self.ip { Err(Error::BAD_QUERY) } else { Ok(()) }
    }

    fn refuse_status_update(&self) -> Result<(), Error> {
        if self.event.status_update { Err(Error::BAD_CONTEXT) } else { Ok(()) }
    }

    fn require_enabled(&self, enabled: bool) -> Result<(), Error> {
        if self.enabled == enabled { Ok(()) } else { Err(Error::BAD_CONTEXT) }
    }

    fn set_space(&mut self, space: Space) {
        if self.space != space {
            self.section = None;
            self.space = space;
        }
    }
}

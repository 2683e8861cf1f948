//! The instruction flow decoder.

use hodo_intel_pt::Erratum;

use crate::{
    Error, Settings, Status,
    event::{Event, What},
    instruction::{Class, Instruction, leads_to},
    walk::{Checks, Walk},
};

/// An instruction flow decoder.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) walk: Walk,
}

/// Erratum BDM64: how far to look for the place of an abort.
pub(crate) const ABORT_STEPS: usize = 0x100;

impl Flow {
    /// Creates a decoder that is not synchronized.
    pub(crate) fn new(settings: Settings) -> Flow {
        let ticks = settings.raw.flags[0] & 1 == 1;
        Flow { walk: Walk::new(settings, ticks) }
    }

    pub(crate) fn synchronize_forward(&mut self) -> Result<Status, Error> {
        self.walk.reset();
        let start = self.walk.query.synchronize_forward()?;
        self.walk.start(start);
        self.check_address(None)
    }

    pub(crate) fn synchronize_backward(&mut self) -> Result<Status, Error> {
        self.walk.reset();
        let ip = self.walk.query.synchronize_backward()?;
        self.walk.start_backward(ip);
        self.check_address(None)
    }

    pub(crate) fn synchronize_at(&mut self, offset: u64) -> Result<Status, Error> {
        self.walk.reset();
        let start = self.walk.query.synchronize_at(offset)?;
        self.walk.start(start);
        self.check_address(None)
    }

    /// Decodes the next instruction into `instruction`, which is also set, as far as it is known, after an error.
    pub(crate) fn next(&mut self, instruction: &mut Instruction) -> Result<Status, Error> {
        let walk = &mut self.walk;
        *instruction = Instruction::at(walk.ip, walk.mode);
        let section = match walk.section() {
            Ok(section) => Some(section),
            Err(Error::NO_MAP) => None,
            Err(error) => return Err(error),
        };
        let in_section = section.is_some_and(|section| section.decode(instruction).is_ok());
        if !in_section {
            instruction.read(walk.image(), &walk.space)?;
        }
        if let Some(status) = self.check_instruction(instruction)? {
            return Ok(status);
        }
        self.proceed(instruction)?;
        self.check_address(Some(instruction))
    }

    /// Returns the error of `next` while tracing is off.
    pub(crate) fn check_enabled(&self) -> Result<(), Error> {
        match self.walk.enabled {
            true => Ok(()),
            false if self.walk.status.has(Status::END) => Err(Error::END),
            false => Err(Error::NO_ENABLE),
        }
    }

    /// Goes to the next instruction.
    fn proceed(&mut self, instruction: &Instruction) -> Result<(), Error> {
        let walk = &mut self.walk;
        walk.ip = walk.ip.wrapping_add(instruction.size.into());
        match instruction.class {
            Class::Other | Class::PtWrite => return Ok(()),
            Class::ConditionalJump => {
                let answer = walk.conditional_branch()?;
                walk.status = answer.status;
                if !answer.value {
                    return Ok(());
                }
            }
            Class::Call => {
                if instruction.return_address().is_some() {
                    walk.returns.push(walk.ip);
                }
            }
            // Whatever the error, a TIP may follow.
            Class::Return => {
                if let Ok(answer) = walk.conditional_branch() {
                    walk.status = answer.status;
                    if !answer.value {
                        return Err(Error::BAD_RETURN);
                    }
                    walk.ip = walk.returns.pop()?;
                    return Ok(());
                }
            }
            Class::Error => return Err(Error::BAD_INSTRUCTION),
            Class::Jump | Class::FarCall | Class::FarReturn | Class::FarJump => {}
        }
        match instruction.displacement {
            Some(displacement) => walk.ip = walk.ip.wrapping_add_signed(displacement),
            None => {
                let status = walk.indirect_branch()?;
                walk.status = status;
                if status.has(Status::IP_SUPPRESSED) {
                    return Err(Error::NO_IP);
                }
            }
        }
        Ok(())
    }

    /// Returns whether tracing ends with this instruction, given that an event says it does.
    fn ends_tracing(&self, target: u64, instruction: &Instruction) -> Result<bool, Error> {
        let settings = &self.walk.query.settings;
        if self.walk.event.ip_suppressed {
            if instruction.is_far() || instruction.changes_level() || instruction.writes_cr3() {
                return Ok(true);
            }
            // Erratum SKL014: a direct branch out of the filter may lack its target too.
            let leaves = matches!(instruction.class, Class::Call | Class::Jump)
                && instruction.next_ip().is_ok_and(|next| !settings.traces(next));
            return Ok(leaves && settings.has_filter() && settings.has(Erratum::Skl014));
        }
        match instruction.class {
            Class::Error => Err(Error::BAD_INSTRUCTION),
            Class::Other | Class::PtWrite => Ok(false),
            Class::Call | Class::Jump => Ok(instruction.next_ip().map_or(true, |next| next == target)),
            _ => Ok(true),
        }
    }

    /// Checks for events that bind to an instruction. Returns the status if one is pending.
    fn check_instruction(&mut self, instruction: &Instruction) -> Result<Option<Status>, Error> {
        if !self.walk.fetch_event()? {
            return Ok(None);
        }
        let ip = self.walk.ip;
        let Event { what, ip_suppressed, .. } = self.walk.event;
        let bound = &mut self.walk.bound;
        let binds = match what {
            What::Disabled { ip: target } => {
                if self.ends_tracing(target, instruction)? {
                    match instruction.next_ip() {
                        Ok(next) => self.walk.ip = next,
                        Err(Error::BAD_QUERY) => self.walk.expect_resumption(instruction),
                        Err(error) => {
                            self.walk.ip = 0;
                            return Err(error);
                        }
                    }
                    return Ok(Some(self.walk.pending()));
                }
                false
            }
            What::Paging { .. } => {
                let binds = !bound.paging && instruction.binds_to_pip();
                bound.paging |= binds;
                binds
            }
            What::Vmcs { .. } => {
                let binds = !bound.vmcs && instruction.binds_to_vmcs();
                bound.vmcs |= binds;
                binds
            }
            What::PtWrite { ip: at, size, payload } => {
                let here = if ip_suppressed { instruction.class == Class::PtWrite } else { ip == at };
                let binds = !bound.ptwrite && here;
                if binds {
                    // Callers need the address to make sense of the value.
                    self.walk.event.what = What::PtWrite { ip, size, payload };
                    self.walk.event.ip_suppressed = false;
                    self.walk.bound.ptwrite = true;
                }
                binds
            }
            _ => false,
        };
        if !binds {
            return Ok(None);
        }
        self.walk.postponed.get_or_insert(*instruction);
        Ok(Some(self.walk.pending()))
    }

    /// Erratum BDM64: the trace of a branch right before an abort may be wrong. If the abort is out of reach, goes to it.
    fn apply_bdm64(&mut self, abort: u64, instruction: &Instruction) {
        let walk = &mut self.walk;
        if !instruction.is_branch() {
            return;
        }
        let reaches = leads_to(walk.ip, abort, walk.mode, walk.image(), &walk.space, ABORT_STEPS);
        if !reaches.unwrap_or(false) {
            walk.ip = abort;
        }
    }

    /// Checks for events that bind to the address; the instruction before it, for errata.
    fn check_address(&mut self, before: Option<&Instruction>) -> Result<Status, Error> {
        if !self.walk.fetch_event()? {
            return Ok(self.walk.status(Status::NONE));
        }
        let Event { what, ip_suppressed, .. } = self.walk.event;
        if let (What::Tsx { ip, aborted: true, .. }, false, Some(before)) = (what, ip_suppressed, before)
            && self.walk.query.settings.has(Erratum::Bdm64)
        {
            self.apply_bdm64(ip, before);
        }
        let (here, enabled) = (self.walk.ip, self.walk.enabled);
        let is_due = match what {
            What::Disabled { .. } => false,
            What::AsyncDisabled { at, .. } => {
                at == here && !(self.walk.query.settings.has(Erratum::Skd022) && self.walk.apply_skd022(at))
            }
            What::AsyncBranch { from, .. } => from == here,
            What::Tsx { ip, .. }
            | What::ExecMode { ip, .. }
            | What::AsyncPaging { ip, .. }
            | What::AsyncVmcs { ip, .. } => ip_suppressed || ip == here,
            // While tracing is on, they bind to instructions.
            What::Paging { .. } | What::Vmcs { .. } | What::PtWrite { .. } => !enabled,
            What::ExStop { ip } | What::Mwait { ip, .. } => ip_suppressed || !enabled || ip == here,
            _ => true,
        };
        Ok(if is_due { self.walk.pending() } else { self.walk.status(Status::NONE) })
    }

    /// Applies the pending event and stores it in `event`; returns the status after it.
    pub(crate) fn event(&mut self, event: &mut Option<Event>) -> Result<Status, Error> {
        self.walk.apply_event(Checks::Instructions)?;
        *event = Some(self.walk.event);
        self.walk.has_event = false;
        if let Some(instruction) = self.walk.postponed {
            if let Some(status) = self.check_instruction(&instruction)? {
                return Ok(status);
            }
            if self.walk.enabled {
                self.proceed(&instruction)?;
            }
            self.walk.clear_postponed();
        }
        self.check_address(None)
    }
}

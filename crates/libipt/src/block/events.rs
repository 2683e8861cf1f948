//! Events of the block decoder.

use hodo_intel_pt::Erratum;

use super::{Block, Blocks, Goal};
use crate::{
    Error, Status,
    event::What,
    flow::ABORT_STEPS,
    instruction::{Class, Instruction, leads_to},
};

/// An instruction that may end tracing without an address: a direct branch out of the filter (erratum SKL014), or MOV to CR3.
fn may_end_tracing(instruction: &Instruction) -> bool {
    match instruction.class {
        Class::Call | Class::Jump => instruction.displacement.is_some(),
        Class::Other => instruction.writes_cr3(),
        _ => false,
    }
}

fn is_ptwrite(instruction: &Instruction) -> bool {
    instruction.class == Class::PtWrite
}

impl Blocks {
    /// Goes to the place of the event in process. Without reaching it, the block ends before.
    pub(super) fn proceed_to_event(&mut self, block: &mut Block) -> Result<Status, Error> {
        let mut last = Instruction::default();
        let suppressed = self.walk.event.ip_suppressed;
        let reached = match self.walk.event.what {
            What::Disabled { ip } => self.proceed_to_disabled(block, ip)?,
            What::AsyncDisabled { at, .. } => {
                let reached = self.proceed_to(block, &mut last, Goal::Address(at))?;
                let has_erratum = self.walk.query.settings.has(Erratum::Skd022);
                if reached && has_erratum && self.walk.apply_skd022(at) {
                    return self.proceed_to_event(block);
                }
                reached
            }
            What::AsyncBranch { from, .. } => self.proceed_to(block, &mut last, Goal::Address(from))?,
            What::Paging { .. } if self.walk.enabled => {
                let reached =
                    self.proceed_to(block, &mut last, Goal::Instruction(Instruction::binds_to_pip))?;
                self.walk.bound.paging |= reached;
                return self.postpone(reached, last);
            }
            What::Vmcs { .. } if self.walk.enabled => {
                let reached =
                    self.proceed_to(block, &mut last, Goal::Instruction(Instruction::binds_to_vmcs))?;
                self.walk.bound.vmcs |= reached;
                return self.postpone(reached, last);
            }
            What::PtWrite { ip, size, payload } if self.walk.enabled => {
                let reached = self.proceed_to_ptwrite(block, &mut last, ip)?;
                if reached && suppressed {
                    self.walk.event.what = What::PtWrite { ip: last.ip, size, payload };
                    self.walk.event.ip_suppressed = false;
                }
                self.walk.bound.ptwrite |= reached;
                return self.postpone(reached, last);
            }
            What::AsyncPaging { ip, .. } | What::AsyncVmcs { ip, .. } | What::ExecMode { ip, .. }
                if !suppressed =>
            {
                self.proceed_to_address_with_trace(block, ip)?
            }
            What::Tsx { ip, .. } if !suppressed => self.proceed_to(block, &mut last, Goal::Address(ip))?,
            What::ExStop { ip } | What::Mwait { ip, .. } if self.walk.enabled && !suppressed => {
                self.proceed_to(block, &mut last, Goal::Address(ip))?
            }
            _ => true,
        };
        Ok(if reached { self.walk.pending() } else { Status::NONE })
    }

    fn postpone(&mut self, reached: bool, instruction: Instruction) -> Result<Status, Error> {
        if !reached {
            return Ok(Status::NONE);
        }
        if self.walk.postponed.is_some() {
            return Err(Error::INTERNAL);
        }
        self.walk.postponed = Some(instruction);
        Ok(self.walk.pending())
    }

    /// A synchronous end of tracing binds to a branch that needs trace, to MOV to CR3, or leads to an address.
    fn proceed_to_disabled(&mut self, block: &mut Block, ip: u64) -> Result<bool, Error> {
        let mut last = Instruction::default();
        let settings = &self.walk.query.settings;
        let reached = if !self.walk.event.ip_suppressed {
            self.proceed_to(block, &mut last, Goal::Address(ip))
        } else if settings.has_filter() && settings.has(Erratum::Skl014) {
            self.proceed_to_filter(block, &mut last)
        } else {
            self.proceed_to(block, &mut last, Goal::Instruction(Instruction::writes_cr3))
        };
        match reached {
            Err(Error::BAD_QUERY) => {
                self.walk.expect_resumption(&last);
                Ok(true)
            }
            reached => reached,
        }
    }

    /// Erratum SKL014: goes to the direct branch that leaves the filter.
    fn proceed_to_filter(&mut self, block: &mut Block, last: &mut Instruction) -> Result<bool, Error> {
        loop {
            if !self.proceed_to(block, last, Goal::Instruction(may_end_tracing))? {
                return Ok(false);
            }
            if last.writes_cr3() {
                return Ok(true);
            }
            let next = last.next_ip()?;
            if !self.walk.query.settings.traces(next) {
                return Ok(true);
            }
            self.walk.ip = next;
            if self.ends_block(last) {
                // As libipt does, though the event is not there yet.
                return Ok(true);
            }
        }
    }

    fn proceed_to_address_with_trace(&mut self, block: &mut Block, address: u64) -> Result<bool, Error> {
        let mut last = Instruction::default();
        match self.proceed_to(block, &mut last, Goal::Address(address)) {
            Err(Error::BAD_QUERY) => self.proceed_with_trace(&last)?,
            reached => {
                reached?;
            }
        }
        Ok(self.walk.ip == address)
    }

    /// Goes over the PTWRITE of an event: the next one, or the one at an address.
    fn proceed_to_ptwrite(
        &mut self,
        block: &mut Block,
        last: &mut Instruction,
        ip: u64,
    ) -> Result<bool, Error> {
        if self.walk.event.ip_suppressed {
            return self.proceed_to(block, last, Goal::Instruction(is_ptwrite));
        }
        if !self.proceed_to(block, last, Goal::Address(ip))? {
            return Ok(false);
        }
        let instruction = self.proceed_one(block)?;
        if let Some(instruction) = instruction {
            *last = instruction;
        }
        Ok(instruction.is_some())
    }

    /// Goes over the postponed instruction, if there is one.
    fn proceed_postponed(&mut self) -> Result<(), Error> {
        let Some(instruction) = self.walk.postponed else { return Ok(()) };
        if self.walk.enabled {
            match instruction.next_ip() {
                Ok(next) => self.walk.ip = next,
                Err(Error::BAD_QUERY) => self.proceed_with_trace(&instruction)?,
                Err(error) => return Err(error),
            }
        }
        self.walk.clear_postponed();
        Ok(())
    }

    /// Whether an event that binds to an instruction binds to the postponed one.
    fn binds_to_postponed(&mut self) -> bool {
        let Some(instruction) = self.walk.postponed else { return false };
        let suppressed = self.walk.event.ip_suppressed;
        let bound = &mut self.walk.bound;
        let (is_bound, binds) = match self.walk.event.what {
            What::Paging { .. } => (&mut bound.paging, instruction.binds_to_pip()),
            What::Vmcs { .. } => (&mut bound.vmcs, instruction.binds_to_vmcs()),
            What::PtWrite { .. } => (&mut bound.ptwrite, suppressed && is_ptwrite(&instruction)),
            _ => return false,
        };
        let binds = binds && !*is_bound;
        *is_bound |= binds;
        binds
    }

    /// Checks for events at the address where the next block begins.
    pub(super) fn trailing_event(&mut self, block: Option<&Block>) -> Result<Status, Error> {
        if !self.walk.fetch_event()? {
            self.proceed_postponed()?;
            return Ok(self.walk.status(Status::NONE));
        }
        let suppressed = self.walk.event.ip_suppressed;
        match self.walk.event.what {
            What::Disabled { ip } => {
                if let Some(instruction) = self.walk.postponed
                    && self.disables_at(&instruction, ip)?
                {
                    return Ok(self.walk.pending());
                }
            }
            What::Paging { .. } | What::Vmcs { .. } | What::PtWrite { .. } => {
                if !self.walk.enabled || self.binds_to_postponed() {
                    return Ok(self.walk.pending());
                }
            }
            what => {
                self.proceed_postponed()?;
                if self.is_due(what, suppressed, block) {
                    return Ok(self.walk.pending());
                }
            }
        }
        self.proceed_postponed()?;
        Ok(self.walk.status(Status::NONE))
    }

    /// Whether tracing ends with the postponed instruction.
    fn disables_at(&mut self, instruction: &Instruction, ip: u64) -> Result<bool, Error> {
        let suppressed = self.walk.event.ip_suppressed;
        if suppressed && instruction.writes_cr3() {
            return Ok(true);
        }
        match instruction.next_ip() {
            Ok(next) => {
                self.walk.ip = next;
                self.walk.clear_postponed();
                Ok(!suppressed && next == ip)
            }
            Err(Error::BAD_QUERY) => {
                self.walk.expect_resumption(instruction);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether an event that binds to an address is due here.
    fn is_due(&mut self, what: What, suppressed: bool, block: Option<&Block>) -> bool {
        match what {
            What::AsyncDisabled { at, .. } => {
                let has_erratum = self.walk.query.settings.has(Erratum::Skd022);
                at == self.walk.ip && !(has_erratum && self.walk.apply_skd022(at))
            }
            What::AsyncBranch { from, .. } => from == self.walk.ip,
            What::Tsx { ip, aborted, .. } if !suppressed => {
                if let Some(block) = block
                    && aborted
                    && self.walk.query.settings.has(Erratum::Bdm64)
                {
                    self.apply_bdm64(block, ip);
                }
                ip == self.walk.ip
            }
            What::AsyncPaging { ip, .. } | What::AsyncVmcs { ip, .. } | What::ExecMode { ip, .. } => {
                suppressed || ip == self.walk.ip
            }
            What::ExStop { ip } | What::Mwait { ip, .. } => {
                suppressed || !self.walk.enabled || ip == self.walk.ip
            }
            _ => true,
        }
    }

    /// Erratum BDM64: the trace of a branch right before an abort may be wrong. If the abort is out of reach, goes to it.
    fn apply_bdm64(&mut self, block: &Block, abort: u64) {
        if block.instructions == 0 {
            return;
        }
        let walk = &mut self.walk;
        let mut instruction = Instruction::at(block.end_ip, block.mode);
        if instruction.read(walk.image(), &walk.space).is_err() || !instruction.is_branch() {
            return;
        }
        let reaches = leads_to(walk.ip, abort, walk.mode, walk.image(), &walk.space, ABORT_STEPS);
        if !reaches.unwrap_or(false) {
            walk.ip = abort;
        }
    }
}

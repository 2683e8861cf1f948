//! The block decoder: runs of instructions up to the next one that needs trace, or an event.
//!
//! ```text
//! event pending ──► up to its place (events) ──┐
//! none ──► up to the next decision ────────────┴──► the next block's address ──► events there (trailing)
//!            from the section's cache, or instruction by instruction
//! ```

mod cache;
mod cached;
mod events;

pub(crate) use cache::BlockCache;

use crate::{
    Error, Settings, Status, abi,
    event::{Event, Mode},
    instruction::{Class, Instruction},
    walk::{Checks, Walk},
};

/// A block decoder.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) walk: Walk,
    end_on_call: bool,
    end_on_jump: bool,
}

/// A block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    pub(crate) ip: u64,
    pub(crate) end_ip: u64,
    pub(crate) isid: i32,
    pub(crate) mode: Mode,
    pub(crate) class: Class,
    pub(crate) instructions: u16,
    /// The last instruction, if it reaches into another section.
    pub(crate) truncated: Option<Truncated>,
}

/// An instruction in several sections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truncated {
    pub(crate) raw: [u8; abi::MAX_INSTRUCTION],
    pub(crate) size: u8,
}

/// Where to go.
#[derive(Clone, Copy, Debug)]
enum Goal {
    /// To an address.
    Address(u64),
    /// To an instruction for which a predicate holds.
    Instruction(fn(&Instruction) -> bool),
    /// As far as no trace is needed.
    Decision,
}

impl Blocks {
    /// Creates a decoder that is not synchronized.
    pub(crate) fn new(settings: Settings) -> Blocks {
        let flags = settings.raw.flags[0];
        let [end_on_call, ticks, end_on_jump] = [0, 1, 2].map(|bit| flags >> bit & 1 == 1);
        Blocks { end_on_call, end_on_jump, walk: Walk::new(settings, ticks) }
    }

    fn reset(&mut self) {
        self.walk.reset();
        self.walk.event.tsc = 0;
    }

    pub(crate) fn synchronize_forward(&mut self) -> Result<Status, Error> {
        self.reset();
        let start = self.walk.query.synchronize_forward()?;
        self.walk.start(start);
        self.trailing_event(None)
    }

    pub(crate) fn synchronize_backward(&mut self) -> Result<Status, Error> {
        self.reset();
        let ip = self.walk.query.synchronize_backward()?;
        self.walk.start_backward(ip);
        self.trailing_event(None)
    }

    pub(crate) fn synchronize_at(&mut self, offset: u64) -> Result<Status, Error> {
        self.reset();
        let start = self.walk.query.synchronize_at(offset)?;
        self.walk.start(start);
        self.trailing_event(None)
    }

    /// Decodes the next block into `block`, which is also set, as far as it is known, after an error.
    pub(crate) fn next(&mut self, block: &mut Block) -> Result<Status, Error> {
        *block = Block { ip: self.walk.ip, mode: self.walk.mode, ..Block::default() };
        if self.walk.fetch_event()? {
            return self.proceed_to_event(block);
        }
        if !self.walk.enabled {
            let ended = self.walk.status.has(Status::END);
            return Err(if ended { Error::END } else { Error::NO_ENABLE });
        }
        self.proceed_without_event(block)?;
        self.trailing_event(Some(block))
    }

    /// Applies the pending event and stores it in `event`; returns the status after it.
    pub(crate) fn event(&mut self, event: &mut Option<Event>) -> Result<Status, Error> {
        self.walk.apply_event(Checks::Blocks)?;
        self.walk.has_event = false;
        *event = Some(self.walk.event);
        self.trailing_event(None)
    }

    /// Adds the instruction at the address to a block. Returns `None` if it does not fit: the block is full, or another
    /// section begins.
    fn proceed_one(&mut self, block: &mut Block) -> Result<Option<Instruction>, Error> {
        let (Some(instructions), None) = (block.instructions.checked_add(1), block.truncated) else {
            return Ok(None);
        };
        let instruction = self.walk.read_instruction(self.walk.ip)?;
        if instruction.isid != block.isid {
            if block.instructions != 0 {
                return Ok(None);
            }
            block.isid = instruction.isid;
        }
        if instruction.is_truncated {
            block.truncated = Some(Truncated::of(&instruction));
        }
        self.log_call(&instruction);
        block.class = instruction.class;
        block.end_ip = instruction.ip;
        block.instructions = instructions;
        Ok(Some(instruction))
    }

    fn log_call(&mut self, instruction: &Instruction) {
        if let Some(address) = instruction.return_address() {
            self.walk.returns.push(address);
        }
    }

    /// Whether the caller wants blocks to end with this instruction, though no trace is needed to go on.
    fn ends_block(&self, instruction: &Instruction) -> bool {
        match instruction.class {
            Class::Call => self.end_on_call,
            Class::Jump => self.end_on_jump,
            _ => false,
        }
    }

    /// Goes on without trace, up to a goal. Returns whether it was reached; if not, the block ends. The last instruction
    /// is in `last`, also if the error is that trace is needed (`BAD_QUERY`).
    fn proceed_to(&mut self, block: &mut Block, last: &mut Instruction, goal: Goal) -> Result<bool, Error> {
        loop {
            if let Goal::Address(address) = goal
                && self.walk.ip == address
            {
                return Ok(true);
            }
            match self.proceed_one(block)? {
                None => return Ok(false),
                Some(instruction) => *last = instruction,
            }
            if let Goal::Instruction(is_goal) = goal
                && is_goal(last)
            {
                return Ok(true);
            }
            self.walk.ip = last.next_ip()?;
            if self.ends_block(last) {
                return Ok(matches!(goal, Goal::Address(address) if self.walk.ip == address));
            }
        }
    }

    /// Goes over an instruction that needs trace.
    fn proceed_with_trace(&mut self, instruction: &Instruction) -> Result<(), Error> {
        let walk = &mut self.walk;
        walk.status = match instruction.class {
            Class::ConditionalJump => {
                let answer = walk.conditional_branch()?;
                let displacement = instruction.displacement.filter(|_| answer.value);
                walk.ip = instruction.end().wrapping_add_signed(displacement.unwrap_or(0));
                answer.status
            }
            Class::Return => match walk.conditional_branch() {
                Ok(answer) if answer.value => {
                    walk.ip = walk.returns.pop()?;
                    answer.status
                }
                Ok(_) => return Err(Error::BAD_RETURN),
                Err(Error::BAD_QUERY) => walk.indirect_branch()?,
                Err(error) => return Err(error),
            },
            Class::Jump | Class::Call if instruction.displacement.is_some() => return Err(Error::INTERNAL),
            Class::Other | Class::PtWrite => return Err(Error::INTERNAL),
            Class::Error => return Err(Error::BAD_INSTRUCTION),
            _ => walk.indirect_branch()?,
        };
        if walk.status.has(Status::IP_SUPPRESSED) { Err(Error::NO_IP) } else { Ok(()) }
    }

    /// Goes to the next decision.
    fn proceed_without_event(&mut self, block: &mut Block) -> Result<(), Error> {
        let section = match self.walk.section() {
            Err(Error::NO_MAP) => return self.proceed_uncached(block),
            section => section?,
        };
        // A new block is empty, so any section fits.
        block.isid = section.located.isid;
        self.proceed_cached(block, &section)
    }

    /// Goes to the next decision, instruction by instruction.
    fn proceed_uncached(&mut self, block: &mut Block) -> Result<(), Error> {
        let mut last = Instruction::default();
        match self.proceed_to(block, &mut last, Goal::Decision) {
            Err(Error::BAD_QUERY) => self.proceed_with_trace(&last),
            reached => reached.map(|_| ()),
        }
    }
}

impl Truncated {
    fn of(instruction: &Instruction) -> Truncated {
        let mut raw = [0; abi::MAX_INSTRUCTION];
        let size = instruction.size;
        raw[..size.into()].copy_from_slice(&instruction.raw[..size.into()]);
        Truncated { raw, size }
    }
}

//! Blocks from a section's cache.
//!
//! Where blocks end depends on what is cached: a first pass decodes instruction by instruction and ends where the cache
//! goes on. Callers see these ends, so the cache has libipt's limits.

use super::{
    Block, Blocks, Truncated,
    cache::{BlockCache, Decision, Entry},
};
use crate::{
    Error,
    instruction::{Class, Instruction},
    walk::MappedSection,
};

/// The most instructions that one pass adds to the cache.
const FILL_STEPS: usize = 0x400;

/// An instruction of a pass that fills the cache, with the offsets of it and of the next one.
#[derive(Clone, Copy, Debug)]
struct Step {
    instruction: Instruction,
    offset: u64,
    next: u64,
    next_offset: u64,
}

impl Blocks {
    /// Goes to the next decision by way of the cache.
    pub(super) fn proceed_cached(&mut self, block: &mut Block, section: &MappedSection) -> Result<(), Error> {
        let cache = section.blocks();
        loop {
            let Some(entry) = cache.get(section.located.offset_of(self.walk.ip)) else {
                return self.fill(block, section, cache);
            };
            let next = self.walk.ip.wrapping_add_signed(entry.displacement.into());
            // The section was split after it was cached.
            if !section.located.contains(next) {
                return self.proceed_uncached(block);
            }
            let Some(instructions) = block.instructions.checked_add(entry.instructions.into()) else {
                return Ok(());
            };
            self.walk.ip = next;
            block.end_ip = next;
            block.instructions = instructions;
            block.mode = entry.mode;
            if !self.decide(block, section, entry)? {
                return Ok(());
            }
        }
    }

    /// Decides at the end of an entry. Returns whether the block goes on.
    fn decide(&mut self, block: &mut Block, section: &MappedSection, entry: Entry) -> Result<bool, Error> {
        match entry.decision {
            Decision::Again => {
                block.class = Class::Error;
                return Ok(true);
            }
            Decision::Conditional if entry.size != 0 => {
                block.class = Class::ConditionalJump;
                let answer = self.walk.conditional_branch()?;
                self.walk.status = answer.status;
                let mut next = self.walk.ip;
                if answer.value {
                    let instruction = self.decode_at(section, entry)?;
                    next = next.wrapping_add_signed(instruction.displacement.unwrap_or(0));
                }
                self.walk.ip = next.wrapping_add(entry.size.into());
            }
            Decision::Conditional | Decision::Decode => {
                return self.decide_by_decoding(block, section, entry);
            }
            Decision::IndirectCall => {
                block.class = Class::Call;
                let size = match entry.size {
                    0 => self.decode_at(section, entry)?.size,
                    size => size,
                };
                self.walk.returns.push(self.walk.ip.wrapping_add(size.into()));
                self.walk.status = self.walk.indirect_branch()?;
            }
            Decision::Return => {
                block.class = Class::Return;
                match self.walk.conditional_branch() {
                    Ok(answer) => {
                        self.walk.status = answer.status;
                        if !answer.value {
                            return Err(Error::BAD_RETURN);
                        }
                        self.walk.ip = self.walk.returns.pop()?;
                    }
                    Err(Error::BAD_QUERY) => self.walk.status = self.walk.indirect_branch()?,
                    Err(error) => return Err(error),
                }
            }
            Decision::Indirect => {
                // The exact class is not cached.
                block.class = Class::Error;
                self.walk.status = self.walk.indirect_branch()?;
            }
        }
        Ok(false)
    }

    fn decode_at(&self, section: &MappedSection, entry: Entry) -> Result<Instruction, Error> {
        let mut instruction = Instruction::at(self.walk.ip, entry.mode);
        section.decode(&mut instruction)?;
        Ok(instruction)
    }

    fn decide_by_decoding(
        &mut self,
        block: &mut Block,
        section: &MappedSection,
        entry: Entry,
    ) -> Result<bool, Error> {
        let instruction = match self.decode_at(section, entry) {
            Err(Error::BAD_INSTRUCTION) => return self.proceed_truncated(block).map(|()| false),
            instruction => instruction?,
        };
        block.class = instruction.class;
        self.log_call(&instruction);
        match instruction.next_ip() {
            Ok(next) => self.walk.ip = next,
            Err(Error::BAD_QUERY) => return self.proceed_with_trace(&instruction).map(|()| false),
            Err(error) => return Err(error),
        }
        Ok(!self.ends_block(&instruction) && section.located.contains(self.walk.ip))
    }

    /// Goes over an instruction that reaches into another section, which ends the block.
    fn proceed_truncated(&mut self, block: &mut Block) -> Result<(), Error> {
        let instruction = self.walk.read_instruction(self.walk.ip)?;
        if !instruction.is_truncated {
            return Err(Error::INTERNAL);
        }
        block.truncated = Some(Truncated::of(&instruction));
        block.class = instruction.class;
        self.log_call(&instruction);
        match instruction.next_ip() {
            Ok(next) => self.walk.ip = next,
            Err(Error::BAD_QUERY) => return self.proceed_with_trace(&instruction),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Decodes instructions up to a decision or to code that is cached, and caches them.
    fn fill(&mut self, block: &mut Block, section: &MappedSection, cache: &BlockCache) -> Result<(), Error> {
        let mut steps = Vec::new();
        while let Some(step) = self.fill_one(block, section, cache)? {
            let is_cached = cache.get(step.next_offset).is_some();
            steps.push(step);
            if is_cached {
                break;
            }
            if steps.len() == FILL_STEPS {
                // The next pass goes on from there.
                steps.pop();
                let distance = step.next.wrapping_sub(step.instruction.ip) as i64;
                cache.set(step.offset, Entry::trampoline(step.instruction.mode, distance));
                break;
            }
        }
        // From the last one backwards: each entry builds on the next one's.
        for step in steps.iter().rev() {
            let Some(entry) = cache.get(step.next_offset) else { return Ok(()) };
            extend(step, entry, section, cache)?;
        }
        Ok(())
    }

    /// Adds an instruction to the block. Returns it if nothing is to be decided there; else caches the decision.
    fn fill_one(
        &mut self,
        block: &mut Block,
        section: &MappedSection,
        cache: &BlockCache,
    ) -> Result<Option<Step>, Error> {
        let Some(instruction) = self.proceed_one(block)? else { return Ok(None) };
        let offset = section.located.offset_of(instruction.ip);
        let mode = instruction.mode;
        let next = match instruction.next_ip() {
            Ok(next) => next,
            Err(Error::BAD_QUERY) => {
                let decision = match instruction.class {
                    _ if block.truncated.is_some() => Decision::Decode,
                    Class::ConditionalJump => Decision::Conditional,
                    Class::Return => Decision::Return,
                    Class::Call => Decision::IndirectCall,
                    _ => Decision::Indirect,
                };
                cache.set(offset, Entry::decision(mode, decision, instruction.size));
                self.proceed_with_trace(&instruction)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.walk.ip = next;
        let goes_back = instruction.displacement.is_some_and(|displacement| displacement < 0);
        let must_stop = match instruction.class {
            // For the return stack.
            Class::Call => true,
            // To notice that a section was split.
            Class::Jump => goes_back || self.end_on_jump,
            _ => false,
        };
        if must_stop || !section.located.contains(next) || block.truncated.is_some() {
            cache.set(offset, Entry::decision(mode, Decision::Decode, 0));
            return Ok(None);
        }
        let next_offset = section.located.offset_of(next);
        Ok(Some(Step { instruction, offset, next, next_offset }))
    }
}

/// Caches an instruction by the entry of the next one.
fn extend(step: &Step, entry: Entry, section: &MappedSection, cache: &BlockCache) -> Result<(), Error> {
    let mode = step.instruction.mode;
    if entry.mode != mode {
        return Err(Error::INTERNAL);
    }
    let decision = step.next.wrapping_add_signed(entry.displacement.into());
    // The section was split: the code behind may have changed.
    if !section.located.contains(decision) {
        return Ok(());
    }
    let distance = decision.wrapping_sub(step.instruction.ip) as i64;
    let extended = match (i16::try_from(distance), entry.instructions.checked_add(1)) {
        (Ok(displacement), Some(instructions)) => Entry { displacement, instructions, ..entry },
        _ => Entry::trampoline(mode, step.next.wrapping_sub(step.instruction.ip) as i64),
    };
    cache.set(step.offset, extended);
    Ok(())
}

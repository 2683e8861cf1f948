//! Translates a hot path: the directions of its branches are known, and calls that return within it are no calls.

use crate::{
    context::offset,
    decode::{Flow, Instruction, LONGEST, decode},
    emit::{LEAVE, RCX, RDX},
    link,
    state::{BLOCKS, Block, NEXT_STEP, STEPS, Step, block_flag, take},
    trace::planned,
    translate::{Builder, DEPTH, SIDES, Side, Way},
    wire::exit,
};

/// How an instruction of a path was translated.
enum Done {
    /// The path goes on; the kind of branch.
    On(u8),
    /// The instruction ended the path.
    Ended,
    /// The path ends before the instruction.
    Before,
}

impl Builder {
    /// Emits the first `steps` steps of the planned path, then the side exits.
    pub(crate) fn follow(&mut self, steps: u32) {
        for index in 0..steps {
            let step = planned(index);
            let mut code = [0; LONGEST];
            let there = self.window.from(step.pc);
            let length = there.len().min(LONGEST);
            code[..length].copy_from_slice(&there[..length]);
            let decoded = decode(&code[..length], step.pc);
            // An instruction adds one side exit at most.
            let Some(instruction) = decoded.filter(|_| self.side_count < SIDES) else {
                self.leave(exit::NONE, step.pc);
                break;
            };
            let begin = self.emitter.address;
            self.instructions += 1;
            let done = self.guided(&instruction, &code[..instruction.length as usize], index, steps);
            if let Done::Before = done {
                self.instructions -= 1;
                self.leave(exit::NONE, step.pc);
                break;
            }
            let kind = if let Done::On(kind) = done { kind } else { exit::NONE };
            let cached = (self.emitter.address - begin) as u16;
            let next =
                if let Done::On(_) = done { step.next } else { step.pc + u64::from(instruction.length) };
            STEPS.set(take(&NEXT_STEP), Step { next, length: instruction.length, kind, cached });
            if let Done::Ended = done {
                break;
            }
            if index + 1 == steps {
                self.leave(exit::NONE, step.next);
            }
        }
        self.emit_sides();
    }

    fn guided(&mut self, instruction: &Instruction, code: &[u8], index: u32, steps: u32) -> Done {
        let step = planned(index);
        let next = step.pc + u64::from(instruction.length);
        match instruction.flow {
            Flow::Next if step.next == next => {
                self.copy(instruction, code, step.pc);
                Done::On(exit::NONE)
            }
            Flow::Jump(target) if step.next == target => Done::On(exit::JUMP),
            Flow::Conditional(condition, target) if step.next == target && target != next => {
                self.side(condition ^ 1, exit::NOT_TAKEN, next);
                Done::On(exit::TAKEN)
            }
            Flow::Conditional(condition, target) if step.next == next => {
                self.side(condition, exit::TAKEN, target);
                Done::On(exit::NONE)
            }
            Flow::Call(target)
                if step.next == target && returns(index, steps, next) && self.depth < DEPTH =>
            {
                self.push(next);
                self.enter_call(next);
                Done::On(exit::CALL)
            }
            Flow::CallIndirect if returns(index, steps, next) && self.depth < DEPTH => {
                let is_call = true;
                self.compare_operand(instruction, code, step.pc, step.next, is_call);
                self.push(next);
                self.enter_call(next);
                Done::On(exit::CALL_INDIRECT)
            }
            Flow::JumpIndirect => {
                let is_call = false;
                self.compare_operand(instruction, code, step.pc, step.next, is_call);
                Done::On(exit::JUMP_INDIRECT)
            }
            Flow::Return(pops) if self.depth != 0 && self.calls[self.depth - 1] == step.next => {
                self.compare_return(step.next, pops);
                self.depth -= 1;
                Done::On(exit::RETURN)
            }
            // A real call, a real return, and what else ends a path.
            Flow::Call(_) | Flow::CallIndirect | Flow::Return(_) if self.depth == 0 => {
                match self.instruction(instruction, code, step.pc) {
                    Some((kind, _)) => Done::On(kind),
                    None => Done::Ended,
                }
            }
            _ => Done::Before,
        }
    }

    fn enter_call(&mut self, next: u64) {
        self.calls[self.depth] = next;
        self.depth += 1;
    }

    /// Compares `rcx` with an address, without flags; leads to a side exit if it is another one.
    fn compare(&mut self, address: u64, kind: u8, way: Way) {
        self.emitter.save(RDX, offset::SAVED_RDX);
        // mov rdx, -address
        self.emitter.bytes(&[0x48, 0xba]);
        self.emitter.long(address.wrapping_neg());
        // lea rcx, [rcx+rdx]; jrcxz over the jump; jmp side
        self.emitter.bytes(&[0x48, 0x8d, 0x0c, 0x11, 0xe3, 5, 0xe9]);
        let jump = self.emitter.address;
        self.emitter.word(0);
        self.emitter.load(RDX, offset::SAVED_RDX);
        self.emitter.load(RCX, offset::SAVED_RCX);
        let number = self.exit(kind, 0);
        self.sides[self.side_count] = Side { jump, target: 0, number, way };
        self.side_count += 1;
    }

    fn compare_operand(&mut self, instruction: &Instruction, code: &[u8], pc: u64, to: u64, is_call: bool) {
        self.emitter.save(RCX, offset::SAVED_RCX);
        self.operand(instruction, code, pc);
        self.emitter.save(RCX, offset::TARGET);
        let (kind, way) = if is_call {
            (exit::CALL_INDIRECT, Way::Call(pc, instruction.length))
        } else {
            (exit::JUMP_INDIRECT, Way::Jump)
        };
        self.compare(to, kind, way);
    }

    fn compare_return(&mut self, to: u64, pops: u16) {
        self.emitter.save(RCX, offset::SAVED_RCX);
        // mov rcx, [rsp]
        self.emitter.bytes(&[0x48, 0x8b, 0x0c, 0x24]);
        self.compare(to, exit::RETURN, Way::Return(pops));
        // lea rsp, [rsp+N]
        self.emitter.bytes(&[0x48, 0x8d, 0xa4, 0x24]);
        self.emitter.word(8 + u32::from(pops));
    }

    /// The side exit of a branch whose target was another one.
    pub(crate) fn repeat(&mut self, side: &Side) {
        self.emitter.load(RDX, offset::SAVED_RDX);
        self.emitter.load(RCX, offset::SAVED_RCX);
        self.log(side.number, None, LEAVE);
        match side.way {
            Way::Return(pops) => self.emitter.return_by_table(pops),
            Way::Call(pc, length) => {
                self.emitter.load(RCX, offset::TARGET);
                self.call(pc, pc + u64::from(length), None);
            }
            Way::Jump | Way::Direct => {
                self.emitter.load(RCX, offset::TARGET);
                self.emitter.jump_by_table();
            }
        }
    }
}

/// Whether the call at a step of the path returns to `next` within the path.
fn returns(index: u32, steps: u32, next: u64) -> bool {
    let mut depth = 0;
    for later in index + 1..steps {
        let step = planned(later);
        let mut window = crate::translate::Window::new();
        let Some(instruction) = decode(window.from(step.pc), step.pc) else { return false };
        match instruction.flow {
            Flow::Call(_) | Flow::CallIndirect => depth += 1,
            Flow::Return(_) if depth == 0 => return step.next == next,
            Flow::Return(_) => depth -= 1,
            _ => {}
        }
    }
    false
}

/// Replaces a block by the planned path. Returns whether there was room.
pub fn replace(head: u32, steps: u32) -> bool {
    let pc = BLOCKS.get(head).pc;
    let Some(number) = crate::translate::translate_path(pc, steps) else { return false };
    let (block, old) = (BLOCKS.get(number), BLOCKS.get(head));
    crate::state::BLOCK_AT.set(pc, u64::from(number));
    // What leads to the old block leads to the new one; a thread in the old one goes on there.
    BLOCKS.set(number, Block { flags: block.flags | block_flag::TRACE | block_flag::FOUND, ..block });
    BLOCKS.set(head, Block { flags: old.flags & !block_flag::FOUND, ..old });
    link::redirect(head, Some(number));
    link::move_landing(head, number);
    true
}

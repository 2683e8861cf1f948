//! Random programs and executions of them.

use hodo_etrace::encoder::{Encoder, Retired, Taken};
use hodo_isa::riscv::{self, Instruction, Kind, Set};

/// Address of the code.
pub(crate) const BASE: u64 = 0x1_0000;
/// Number of functions.
const FUNCTIONS: u64 = 6;
/// Bytes reserved for each.
pub(crate) const SIZE: u64 = 64;

/// Xorshift.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Where returns go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returns {
    /// Behind the last call that did not return yet.
    ToCallers,
    /// Mostly there.
    Anywhere,
}

/// What happened, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Retired(u64, Instruction, u8, bool),
    Trap(Taken),
    End(Option<u64>),
    Time(u64),
    Context(u64),
    Synchronize,
}

/// A program and what it did.
pub(crate) struct Execution {
    pub(crate) code: Vec<u8>,
    pub(crate) steps: Vec<Step>,
}

fn put(code: &mut Vec<u8>, word: u32) {
    let length = if word & 3 == 3 { 4 } else { 2 };
    code.extend(&word.to_le_bytes()[..length]);
}

/// `beq a0,a1` with an offset.
fn branch(offset: i64) -> u32 {
    let offset = offset as u32;
    0x00b5_0063
        | (offset >> 12 & 1) << 31
        | (offset >> 5 & 0x3f) << 25
        | (offset >> 1 & 0xf) << 8
        | (offset >> 11 & 1) << 7
}

/// `jal` with a register for the return address.
fn jal(link: u32, offset: i64) -> u32 {
    let offset = offset as u32;
    0x6f | link << 7
        | (offset >> 20 & 1) << 31
        | (offset >> 1 & 0x3ff) << 21
        | (offset >> 11 & 1) << 20
        | (offset >> 12 & 0xff) << 12
}

fn jalr(link: u32, base: u32, offset: i64) -> u32 {
    0x67 | link << 7 | base << 15 | (offset as u32) << 20
}

/// A function: straight code with branches within it, calls and jumps of all kinds, and a return. Direct calls and jumps
/// go to later functions only: of a loop without branches and indirect jumps a trace does not say how often it ran.
fn function(random: &mut Random, at: u64, code: &mut Vec<u8>) {
    let begin = code.len();
    let mut starts = Vec::new();
    while code.len() - begin < SIZE as usize - 12 {
        let offset = (code.len() - begin) as i64;
        starts.push(offset);
        let earlier = starts[random.below(starts.len() as u64) as usize] - offset;
        let index = (at - BASE) / SIZE;
        let other = (index + 1 + random.below(FUNCTIONS)).min(FUNCTIONS - 1) * SIZE;
        let is_last = index == FUNCTIONS - 1;
        let here = at + offset as u64;
        let to_other = (BASE + other).wrapping_sub(here) as i64;
        match random.below(13) {
            5 | 6 | 7 | 11 if is_last => put(code, 0x0505),
            0 | 1 => put(code, 0x0505),
            2 => put(code, 0x0015_0513),
            // Branches over the next instructions, or back.
            3 => put(code, branch(4)),
            4 => put(code, branch(earlier)),
            5 | 6 => put(code, jal(1, to_other)),
            7 => put(code, jal(5, to_other)),
            // Indirect calls and jumps.
            8 => put(code, 0x9502),
            9 if random.one_in(3) => put(code, 0x8502),
            10 if random.one_in(2) => put(code, 0x8082),
            // The target is loaded directly before.
            11 => {
                put(code, 0x0000_0317);
                put(code, jalr(if random.one_in(2) { 1 } else { 0 }, 6, to_other));
            }
            12 if random.one_in(4) => put(code, 0x0000_0073),
            12 if random.one_in(4) => put(code, 0x3020_0073),
            12 if random.one_in(3) => put(code, jalr(1, 5, 0)),
            _ => put(code, jalr(0, 5, 0)),
        }
    }
    put(code, 0x8082);
    while code.len() - begin < SIZE as usize {
        put(code, 0x0001);
    }
}

impl Execution {
    /// Makes a program and runs about `length` instructions of it.
    pub(crate) fn new(seed: u64, length: usize, returns: Returns) -> Execution {
        let mut random = Random(seed | 1);
        let mut code = Vec::new();
        for index in 0..FUNCTIONS {
            function(&mut random, BASE + index * SIZE, &mut code);
        }
        let mut run = Run { random, code, steps: Vec::new(), calls: Vec::new(), privilege: 0, returns };
        run.run(length);
        Execution { code: run.code, steps: run.steps }
    }

    /// Asks for a synchronization before each step whose number is a multiple of `every`.
    pub(crate) fn synchronize(&mut self, every: usize) {
        let steps = std::mem::take(&mut self.steps).into_iter().enumerate();
        self.steps = steps
            .flat_map(|(number, step)| {
                let asks = number.is_multiple_of(every).then_some(Step::Synchronize);
                asks.into_iter().chain([step])
            })
            .collect();
    }

    /// The addresses of the instructions that retired.
    pub(crate) fn retired(&self) -> Vec<u64> {
        let retired = |step: &Step| match step {
            Step::Retired(address, ..) => Some(*address),
            _ => None,
        };
        self.steps.iter().filter_map(retired).collect()
    }

    /// Passes what happened to an encoder.
    pub(crate) fn encode(&self, encoder: &mut Encoder) {
        for step in &self.steps {
            match step {
                Step::Retired(address, instruction, privilege, notify) => encoder.retire(&Retired {
                    address: *address,
                    instruction: *instruction,
                    privilege: *privilege,
                    notify: *notify,
                }),
                Step::Trap(taken) => encoder.trap(taken),
                Step::End(next) => encoder.end(*next),
                Step::Time(time) => encoder.set_time(*time),
                Step::Context(context) => encoder.set_context(*context),
                Step::Synchronize => encoder.synchronize_next(),
            }
        }
        encoder.end(None);
    }
}

struct Run {
    random: Random,
    code: Vec<u8>,
    steps: Vec<Step>,
    /// Return addresses of calls that did not return yet.
    calls: Vec<u64>,
    privilege: u8,
    returns: Returns,
}

impl Run {
    fn run(&mut self, length: usize) {
        let mut pc = self.anywhere();
        for count in 0..length {
            if self.random.one_in(40) {
                self.steps.push(Step::Time(count as u64 + 1));
            }
            if self.random.one_in(60) {
                let context = self.random.below(4);
                self.steps.push(Step::Context(context));
            }
            let offset = (pc - BASE) as usize;
            let instruction = riscv::decode(&self.code[offset..], pc, Set::RV64GC).expect("generated code");
            let traps = matches!(instruction.kind, Kind::EnvironmentCall | Kind::Breakpoint);
            if traps && self.random.one_in(2) {
                self.steps.push(Step::End(Some(pc)));
                pc += u64::from(instruction.length);
                pc = self.inside(pc);
                continue;
            }
            if traps || self.random.one_in(30) {
                pc = self.trap(pc, !traps && self.random.clone().one_in(2));
                continue;
            }
            let notify = self.random.one_in(50);
            self.steps.push(Step::Retired(pc, instruction, self.privilege, notify));
            pc = self.next(pc, instruction);
        }
    }

    /// A trap before the instruction at an address; returns the first address of the handler.
    fn trap(&mut self, address: u64, is_interrupt: bool) -> u64 {
        self.steps.push(Step::Trap(Taken { cause: 7, is_interrupt, value: address, address }));
        self.privilege = if self.random.one_in(2) { 3 } else { 0 };
        self.calls.clear();
        self.function()
    }

    /// The address of a function.
    fn function(&mut self) -> u64 {
        BASE + self.random.below(FUNCTIONS) * SIZE
    }

    /// The address of some instruction.
    fn anywhere(&mut self) -> u64 {
        let mut address = self.function();
        for _ in 0..self.random.below(8) {
            let offset = (address - BASE) as usize;
            address += if self.code[offset] & 3 == 3 { 4 } else { 2 };
        }
        self.inside(address)
    }

    fn inside(&mut self, address: u64) -> u64 {
        if address < BASE + self.code.len() as u64 { address } else { self.function() }
    }

    /// Where an instruction goes.
    fn next(&mut self, pc: u64, instruction: Instruction) -> u64 {
        let after = pc + u64::from(instruction.length);
        let linkage = instruction.kind.linkage();
        let to = match instruction.kind {
            Kind::Branch { target } if self.random.one_in(2) => target,
            Kind::Jump { target, .. } => target,
            Kind::Indirect { base: 6, offset, .. } => (pc - 4).wrapping_add_signed(offset.into()),
            Kind::Indirect { .. } if linkage == riscv::Linkage::Return => {
                let caller = self.calls.pop();
                let elsewhere = self.returns == Returns::Anywhere && self.random.one_in(5);
                match caller {
                    Some(caller) if !elsewhere => caller,
                    Some(caller) if self.returns == Returns::ToCallers => caller,
                    _ => self.anywhere(),
                }
            }
            Kind::Indirect { .. } => self.anywhere(),
            Kind::TrapReturn => {
                self.privilege = if self.random.one_in(2) { 0 } else { self.privilege };
                self.anywhere()
            }
            _ => after,
        };
        if linkage == riscv::Linkage::Call {
            self.calls.push(after);
        }
        self.inside(to)
    }
}

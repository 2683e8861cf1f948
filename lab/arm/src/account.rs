//! What a program really ran, as the emulator's plugin wrote it: each instruction of each thread, and the code. Of a machine:
//! what each processor ran, kernel and user space.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use hodo_code::{Isa, Step, Terminator};
use object::{Object, ObjectSymbol};
use workbench::{account, machine::foreign::Machine};

use crate::Outcome;

/// The bytes of instructions, by address.
pub(crate) type Code = BTreeMap<u64, Vec<u8>>;

/// Instructions of a machine's processor, at most.
const MOST: u64 = 100_000_000;

/// An instruction of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    pub(crate) isa: Isa,
    pub(crate) step: Step,
}

impl Instruction {
    /// Bit 0 of addresses of this instruction's set.
    pub(crate) fn mark(&self) -> u64 {
        u64::from(self.isa == Isa::T32)
    }

    /// The address of the instruction behind it.
    pub(crate) fn after(&self) -> u64 {
        self.address + u64::from(self.step.length)
    }

    fn jumps_to_itself(&self) -> bool {
        self.step.terminator == Terminator::Jump && self.step.target == self.address
    }
}

/// What ended tracing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The system was called by the instruction before.
    SystemCall,
    /// A signal, whose handler returns to this address.
    Signal(u64),
    /// An exception of this type, which returns to `from`; its handler, at `to`, is traced.
    Exception { kind: u16, from: u64, to: u64 },
}

/// Exception types of system calls, faults of instructions and data, and interrupts.
pub(crate) const CALL: u16 = 2;
const INSTRUCTION_FAULT: u16 = 0xb;
const DATA_FAULT: u16 = 0xc;
pub(crate) const INTERRUPT: u16 = 0xe;

/// What a thread ran.
#[derive(Default)]
pub(crate) struct Thread {
    /// Numbers of the instructions that ran, in order.
    ran: Vec<u32>,
    /// The stops, and how many instructions ran before each.
    pub(crate) stops: Vec<(usize, Stop)>,
}

/// The account of a program.
pub(crate) struct Account {
    /// The bytes of all instructions that were translated, by address.
    pub(crate) code: Code,
    instructions: Vec<Instruction>,
    pub(crate) threads: Vec<Thread>,
    /// Whether it is a program of AArch64, which perf decodes.
    pub(crate) perf_reads: bool,
}

/// The instructions that a thread ran.
#[derive(Clone, Copy)]
pub(crate) struct Ran<'a> {
    instructions: &'a [Instruction],
    ran: &'a [u32],
}

impl<'a> Ran<'a> {
    pub(crate) fn get(self, index: usize) -> Option<&'a Instruction> {
        self.ran.get(index).map(|&number| &self.instructions[number as usize])
    }

    pub(crate) fn len(self) -> usize {
        self.ran.len()
    }

    /// The address of an instruction, for people: 0 after the last one.
    pub(crate) fn address(self, index: usize) -> u64 {
        self.get(index).map_or(0, |instruction| instruction.address)
    }
}

impl Account {
    /// Runs a program under the emulator, whose plugin is compiled in `folder`.
    pub(crate) fn record(command: &[String], folder: &Path) -> Outcome<Account> {
        let program = PathBuf::from(command.first().ok_or("no program")?);
        let file = fs::read(&program)?;
        let file = object::File::parse(&*file)?;
        let mut emulator = Command::new(if file.is_64() { "qemu-aarch64" } else { "qemu-arm" });
        // Where Debian's cross compilers have the shared libraries.
        emulator.args(["-L", "/usr/aarch64-linux-gnu"]);
        let plugin = account::compile_plugin("account", folder)?;
        let command: Vec<&Path> = command.iter().map(Path::new).collect();
        let began = account::Account::record(emulator, &command, &plugin, &folder.join("account"))?;
        let sets = Sets::read(&file);
        let mut code = BTreeMap::new();
        let mut instructions = Vec::new();
        for translated in &began.translated {
            let (address, isa) = (translated.address, sets.at(translated.address));
            let bytes = &translated.bytes[..translated.length as usize];
            if code.insert(address, bytes.to_vec()).is_some_and(|before| before != bytes) {
                return Err(format!("the code at {address:x} changes").into());
            }
            let instruction = isa.instruction(bytes, address);
            let step = instruction.map_err(|_| format!("{address:x}: {bytes:x?} is no instruction"))?.step();
            if u32::from(step.length) != translated.length {
                return Err(format!("{address:x}: {} bytes, not {}", step.length, translated.length).into());
            }
            instructions.push(Instruction { address, isa, step });
        }
        let threads = (0..began.threads()).map(|thread| Thread::read(began.events(thread), &instructions));
        let threads = threads.collect();
        Ok(Account { code, instructions, threads, perf_reads: file.is_64() })
    }

    /// Runs a machine with a program as its first process, from the program's first instruction on. What a processor runs after
    /// code that differs from what ran there before is left out.
    pub(crate) fn record_machine(program: &Path, folder: &Path) -> Outcome<Account> {
        let machine = Machine::arm()?;
        let entry = object::File::parse(&*fs::read(program)?)?.entry();
        let plugin = account::compile_plugin("machine_account", folder)?;
        let (emulator, base) = (machine.boot(program, folder)?, folder.join("account"));
        let began = account::Account::record_machine(emulator, (entry, MOST), &plugin, &base)?;
        let isa = Isa::A64;
        let mut instructions = Vec::new();
        for &account::Translated { address, bytes, .. } in &began.translated {
            let instruction = isa.instruction(&bytes, address);
            let step = instruction.map_err(|_| format!("{address:x}: {bytes:x?} is no instruction"))?.step();
            instructions.push(Instruction { address, isa, step });
        }
        let mut code: Code = BTreeMap::new();
        let mut threads = Vec::new();
        for number in 0..began.threads() {
            let thread = Thread::read(began.events(number), &instructions);
            let mut known = vec![false; instructions.len()];
            let changed = thread.ran.iter().position(|&ran| {
                if std::mem::replace(&mut known[ran as usize], true) {
                    return false;
                }
                let bytes = &began.translated[ran as usize].bytes[..];
                let address = instructions[ran as usize].address;
                *code.entry(address).or_insert_with(|| bytes.to_vec()) != bytes
            });
            if let Some(at) = changed {
                let address = instructions[thread.ran[at] as usize].address;
                println!("  processor {number}: the code at {address:x} changes after {at} instructions");
            }
            threads.push(changed.map_or_else(|| thread.first(usize::MAX), |at| thread.first(at)));
        }
        Ok(Account { code, instructions, threads, perf_reads: false })
    }

    pub(crate) fn ran<'a>(&'a self, thread: &'a Thread) -> Ran<'a> {
        Ran { instructions: &self.instructions, ran: &thread.ran }
    }
}

impl Thread {
    /// The begin of the thread: its first instructions, at most `count`.
    pub(crate) fn first(&self, count: usize) -> Thread {
        let count = count.min(self.ran.len());
        let stops = self.stops.iter().copied().filter(|&(after, _)| after <= count);
        Thread { ran: self.ran[..count].to_vec(), stops: stops.collect() }
    }

    fn read(events: impl Iterator<Item = account::Event>, instructions: &[Instruction]) -> Thread {
        let mut thread = Thread::default();
        // The instruction that began last: whether it retired is known when the next one begins.
        let mut begun = None;
        for event in events {
            match event {
                account::Event::Began(number) => thread.ran.extend(begun.replace(number)),
                account::Event::SystemCall => {
                    thread.ran.extend(begun.take());
                    thread.stops.push((thread.ran.len(), Stop::SystemCall));
                }
                account::Event::Exception { from, to, is_interrupt } => {
                    let mut kind = if is_interrupt { INTERRUPT } else { INSTRUCTION_FAULT };
                    if let Some(number) = begun.take() {
                        let last = &instructions[number as usize];
                        if is_interrupt || last.address != from || last.jumps_to_itself() {
                            thread.ran.push(number);
                            if !is_interrupt && last.step.terminator == Terminator::Trap {
                                kind = CALL;
                            }
                        } else {
                            kind = DATA_FAULT;
                        }
                    }
                    thread.stops.push((thread.ran.len(), Stop::Exception { kind, from, to }));
                }
                account::Event::Signal(address) => {
                    // Without a begun instruction, it came during a system call.
                    let Some(number) = begun.take() else { continue };
                    let last = &instructions[number as usize];
                    if last.address != address || last.jumps_to_itself() {
                        thread.ran.push(number);
                    }
                    thread.stops.push((thread.ran.len(), Stop::Signal(address)));
                }
            }
        }
        thread.ran.extend(begun);
        thread
    }
}

/// The instruction sets of a program's code.
enum Sets {
    A64,
    /// From each address on, by the symbols `$a` and `$t` of the file ("ELF for the Arm Architecture", mapping symbols).
    AArch32(BTreeMap<u64, Isa>),
}

impl Sets {
    fn read(file: &object::File<'_>) -> Sets {
        if file.is_64() {
            return Sets::A64;
        }
        let sets = file.symbols().filter_map(|symbol| match symbol.name() {
            Ok("$a") => Some((symbol.address(), Isa::A32)),
            Ok("$t") => Some((symbol.address(), Isa::T32)),
            _ => None,
        });
        Sets::AArch32(sets.collect())
    }

    fn at(&self, address: u64) -> Isa {
        match self {
            Sets::A64 => Isa::A64,
            Sets::AArch32(sets) => sets.range(..=address).next_back().map_or(Isa::A32, |(_, &isa)| isa),
        }
    }
}

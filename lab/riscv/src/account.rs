//! What a program really ran, as the emulator's plugin wrote it.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    ops::Range,
    path::Path,
    process::Command,
};

use hodo_etrace::{
    encoder::{Encoder, Retired, Taken},
    ntrace,
};
use hodo_isa::riscv::{self, Instruction, Kind, Set};
use object::{Object, ObjectSegment};
use workbench::{Outcome, account, machine::foreign::Machine};

/// Causes of the traps that signals stand for: a load page fault, and the timer's interrupt.
const FAULT: u64 = 13;
const TIMER: u64 = 5;

/// An instruction that the emulator translated.
#[derive(Clone, Copy)]
struct Translated {
    address: u64,
    instruction: Instruction,
}

impl Translated {
    /// Whether it did not retire, if an exception that came after its begin returns to `address`.
    fn may_fail_at(&self, address: u64) -> bool {
        self.address == address && self.instruction.kind.direct_target() != Some(address)
    }
}

/// The code of a program, and the files with its threads.
pub(crate) struct Account {
    translated: Vec<Translated>,
    /// The code that ran, contiguous, by address.
    pub(crate) ran: BTreeMap<u64, Vec<u8>>,
    /// The code of the program's file, and what ran elsewhere. A decoder looks at code that did not run to see whether
    /// another path fits.
    pub(crate) code: BTreeMap<u64, Vec<u8>>,
    began: account::Account,
    is_machine: bool,
    /// Events of a thread that are followed, at most.
    pub(crate) longest: usize,
}

/// Instructions of a machine's processor, at most.
const MOST: u64 = 50_000_000;
/// Where the firmware of QEMU's machine is.
const FIRMWARE: Range<u64> = 0x8000_0000..0x8020_0000;

/// Returns the privilege at an address: firmware, kernel in the upper half, user space.
fn privilege(address: u64) -> u8 {
    match address {
        _ if FIRMWARE.contains(&address) => 3,
        _ => (address >> 63) as u8,
    }
}

/// What happened to a thread, or to a machine's processor.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    /// An instruction retired.
    Retired(u64, Instruction),
    /// A system call, by the `ecall` at this address.
    SystemCall(u64),
    /// A signal; its handler returns to this address. A machine's exception or interrupt.
    Signal { address: u64, is_fault: bool },
}

/// Which interrupts are encoded as traps. Others end tracing, and the handler begins it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupts {
    /// All.
    All,
    /// Those after other instructions than branches: after a branch, `riscv-etrace` 0.10 keeps its outcome for later,
    /// where the specification resets it.
    NotAfterBranches,
}

impl Account {
    /// Runs a program under the emulator, and reads the code of its file. The plugin writes to files with the name `base`.
    pub(crate) fn record(program: &Path, plugin: &Path, base: &Path) -> Outcome<Account> {
        let mut emulator = Command::new("qemu-riscv64");
        emulator.current_dir(base.parent().ok_or("no folder")?);
        let began = account::Account::record(emulator, &[program], plugin, base)?;
        Account::of(began, executable(program)?, false)
    }

    /// Runs a machine with a program as its first process, from the program's first instruction on: firmware, kernel and user
    /// space.
    pub(crate) fn record_machine(first: &Path, folder: &Path) -> Outcome<Account> {
        let machine = Machine::riscv()?;
        let entry = object::File::parse(&*fs::read(first)?)?.entry();
        let plugin = account::compile_plugin("machine_account", folder)?;
        let (emulator, base) = (machine.boot(first, folder)?, folder.join("account"));
        let began = account::Account::record_machine(emulator, (entry, MOST), &plugin, &base)?;
        Account::of(began, executable(first)?, true)
    }

    fn of(began: account::Account, mut code: BTreeMap<u64, Vec<u8>>, is_machine: bool) -> Outcome<Account> {
        let mut translated = Vec::new();
        let mut bytes: HashMap<u64, [u8; 4]> = HashMap::new();
        for &account::Translated { address, length, bytes: raw } in &began.translated {
            let instruction = riscv::decode(&raw, address, Set::RV64GC)
                .ok_or_else(|| format!("{address:x}: {raw:x?} is no instruction"))?;
            if u32::from(instruction.length) != length {
                return Err(format!("{address:x}: {} bytes, not {length}", instruction.length).into());
            }
            if bytes.insert(address, raw).is_some_and(|before| before != raw) {
                return Err(format!("the code at {address:x} changed").into());
            }
            translated.push(Translated { address, instruction });
        }
        let ran = contiguous(&bytes);
        let is_in_file = |address: u64, code: &BTreeMap<u64, Vec<u8>>| {
            let before = code.range(..=address).next_back();
            before.is_some_and(|(start, bytes)| address - start < bytes.len() as u64)
        };
        for (&address, bytes) in &ran {
            if !is_in_file(address, &code) {
                code.insert(address, bytes.clone());
            }
        }
        Ok(Account { translated, ran, code, began, is_machine, longest: usize::MAX })
    }

    pub(crate) fn threads(&self) -> usize {
        self.began.threads()
    }

    /// Passes on what happened to a thread, in order.
    pub(crate) fn follow(&self, thread: usize, mut take: impl FnMut(Event)) {
        // The instruction that began last: whether it retired is known when the next one begins.
        let mut begun: Option<Translated> = None;
        for event in self.began.events(thread).take(self.longest) {
            match event {
                account::Event::SystemCall => {
                    if let Some(ecall) = begun.take() {
                        take(Event::SystemCall(ecall.address));
                    }
                }
                account::Event::Signal(address) => {
                    // Without a begun instruction, it came during a system call, which ended tracing.
                    let Some(last) = begun.take() else { continue };
                    let is_fault = last.may_fail_at(address);
                    if !is_fault {
                        take(Event::Retired(last.address, last.instruction));
                    }
                    take(Event::Signal { address, is_fault });
                }
                account::Event::Exception { from, is_interrupt, .. } => {
                    if let Some(last) = begun.take().filter(|last| is_interrupt || !last.may_fail_at(from)) {
                        take(Event::Retired(last.address, last.instruction));
                    }
                    take(Event::Signal { address: from, is_fault: !is_interrupt });
                }
                account::Event::Began(number) => {
                    match begun.replace(self.translated[number as usize]) {
                        // QEMU answers riscv_flush_icache itself, without the plugin's callback.
                        Some(last) if last.instruction.kind == Kind::EnvironmentCall && !self.is_machine => {
                            take(Event::SystemCall(last.address));
                        }
                        Some(last) => take(Event::Retired(last.address, last.instruction)),
                        None => {}
                    }
                }
            }
        }
        // The last one is the `ecall` that ends the thread, whose callback does not return.
        if let Some(last) = begun.filter(|last| last.instruction.kind != Kind::EnvironmentCall) {
            take(Event::Retired(last.address, last.instruction));
        }
    }

    /// Encodes a thread's execution. A system call ends tracing, as with a trace of user mode only. Packets are lost from one
    /// instruction up to another, counted from 1 on.
    pub(crate) fn encode(
        &self,
        thread: usize,
        interrupts: Interrupts,
        lost: Range<usize>,
        encoder: &mut Encoder,
        mut take: impl FnMut(&mut Encoder),
    ) {
        let (mut after_branch, mut retired) = (false, 0);
        self.follow(thread, |event| {
            retired += usize::from(matches!(event, Event::Retired(..)));
            if lost.contains(&retired) {
                if retired == lost.start && matches!(event, Event::Retired(..)) {
                    encoder.lose();
                    take(encoder);
                }
                return;
            }
            match event {
                Event::Retired(address, instruction) => {
                    after_branch = matches!(instruction.kind, Kind::Branch { .. });
                    encoder.retire(&Retired {
                        address,
                        instruction,
                        privilege: privilege(address),
                        notify: false,
                    });
                }
                Event::SystemCall(ecall) => encoder.end(Some(ecall)),
                Event::Signal { address, is_fault: false }
                    if after_branch && interrupts == Interrupts::NotAfterBranches =>
                {
                    encoder.end(Some(address));
                }
                Event::Signal { address, is_fault } => {
                    let (cause, value) = if is_fault { (FAULT, 16) } else { (TIMER, 0) };
                    encoder.trap(&Taken { cause, is_interrupt: !is_fault, value, address });
                }
            }
            take(encoder);
        });
        encoder.end(None);
        take(encoder);
    }

    /// Encodes a thread's execution as N-Trace.
    pub(crate) fn encode_messages(&self, thread: usize, encoder: &mut ntrace::Encoder) {
        self.follow(thread, |event| match event {
            Event::Retired(address, instruction) => {
                encoder.retire(&Retired {
                    address,
                    instruction,
                    privilege: privilege(address),
                    notify: false,
                });
            }
            Event::SystemCall(ecall) => encoder.end(Some(ecall)),
            Event::Signal { address, is_fault } => {
                encoder.trap(&Taken { cause: 0, is_interrupt: !is_fault, value: 0, address });
            }
        });
        encoder.end(None);
    }

    /// The addresses of the instructions that retired.
    pub(crate) fn retired(&self, thread: usize) -> Vec<u64> {
        let mut addresses = Vec::new();
        self.follow(thread, |event| {
            if let Event::Retired(address, _) = event {
                addresses.push(address);
            }
        });
        addresses
    }
}

/// The executable segments of a program's file.
fn executable(program: &Path) -> Outcome<BTreeMap<u64, Vec<u8>>> {
    let bytes = fs::read(program)?;
    let file = object::File::parse(&*bytes)?;
    let mut code = BTreeMap::new();
    for segment in file.segments() {
        let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
        if p_flags & object::elf::PF_X != object::elf::ProgramFlags(0) {
            code.insert(segment.address(), segment.data()?.to_vec());
        }
    }
    Ok(code)
}

/// Joins instructions to contiguous code.
fn contiguous(instructions: &HashMap<u64, [u8; 4]>) -> BTreeMap<u64, Vec<u8>> {
    let mut sorted: Vec<_> = instructions.iter().collect();
    sorted.sort();
    let mut code: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for (&address, bytes) in sorted {
        let length = if bytes[0] & 3 == 3 { 4 } else { 2 };
        match code.last_entry() {
            Some(mut last) if last.key() + last.get().len() as u64 == address => {
                last.get_mut().extend(&bytes[..length]);
            }
            _ => _ = code.insert(address, bytes[..length].to_vec()),
        }
    }
    code
}

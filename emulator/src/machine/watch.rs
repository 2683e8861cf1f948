//! What a vCPU looks for before each block: functions of the guest's kernel that show what the guest does, and the
//! begins and ends of the latencies that triggers measure.

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    block::Block,
    code::CR3_PAGE,
    filter::{Refusal, Scope},
    places::{PAGE, PageBytes, Places},
    processes::{NAME, NAMES},
    processor::{Registers, processor},
    settings::Settings,
    symbols::Symbols,
    trigger::{Latency, LatencyKey, Moment, NO_ADDRESS, Triggers},
    vcpu::Vcpu,
};
use crate::block::Kind;

/// The kernel's functions that make a thread ready: `enqueue_task(queue, task, flags)`, of each class of threads.
const READIES: [&str; 3] = ["enqueue_task_fair", "enqueue_task_rt", "enqueue_task_dl"];
/// The flag of a thread that wakes up (Linux, `ENQUEUE_WAKEUP`).
const WAKES: u64 = 1;
/// This bit is set in addresses of the kernel half.
const KERNEL: u64 = 1 << 63;
/// More bytes than the kernel keeps of a thread.
const THREAD: u64 = 4 * PAGE;

/// Reads memory of the present address space; false if it is not mapped.
pub(crate) type ReadMemory = fn(u64, &mut [u8]) -> bool;

/// A block that is about to run.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) pc: u64,
    /// The block before it, unless an interrupt led here.
    pub(crate) previous: Option<&'static Block>,
}

/// The entry of a watched function, and its trigger.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    trigger: usize,
}

/// What is watched for, and the recording's scope.
pub(crate) struct Watch {
    pub(crate) scope: Option<Scope>,
    pub(crate) triggers: Option<Triggers>,
    /// Parts of files that are watched functions, and their triggers.
    pub(crate) files: Places,
    file_triggers: Vec<usize>,
    /// The kernel's functions, and its functions of system calls.
    functions: Vec<Entry>,
    syscalls: Vec<Entry>,
    syscall_entry: Vec<u64>,
    names_at: Vec<u64>,
    readies_at: Vec<u64>,
    switches_at: Vec<u64>,
    /// The triggers of wake-ups, and the name of their threads, padded.
    wakeups: Vec<(usize, Option<[u8; NAME]>)>,
    interrupts_off: Vec<usize>,
    names: Names,
}

/// Where the kernel keeps the name of a thread: found by the name of one.
#[derive(Default)]
struct Names {
    /// A thread, and its name.
    example: Mutex<Option<(u64, [u8; NAME])>>,
    /// The name's distance from the thread's address; 0 if it is unknown.
    offset: AtomicU64,
}

#[derive(Clone, Copy)]
struct Syscall {
    begin: Moment,
    stack: u64,
    returns_to: u64,
}

/// The watches of a vCPU and their states.
#[derive(Default)]
pub(crate) struct Watcher {
    /// Whether interrupts are on; `None` at the begin.
    interrupts: Option<bool>,
    /// When they went off.
    off_since: Option<Moment>,
    /// The last system call.
    call: Option<Syscall>,
    /// Functions in the present address space.
    entries: Vec<Entry>,
    /// The address space and the version for which they are known.
    known: Option<(u64, u64)>,
}

impl Watch {
    pub(crate) fn new(
        settings: &Settings,
        symbols: &Symbols,
        ticks_per_second: u64,
    ) -> Result<Watch, Refusal> {
        let scope = Scope::new(settings, symbols)?;
        let of_files =
            settings.triggers.iter().zip(0..).filter_map(|(trigger, index)| match &trigger.latency {
                Latency::File { path, range } => Some((Path::new(path), range.clone(), index)),
                _ => None,
            });
        let of_files: Vec<_> = of_files.collect();
        let parts = of_files.iter().map(|(path, range, _)| (*path, range.clone()));
        let files = Places::new(parts).map_err(|error| Refusal::Other(error.to_string()))?;
        let triggers = &settings.triggers;
        let mut watch = Watch {
            scope,
            triggers: (!triggers.is_empty()).then(|| Triggers::new(triggers, ticks_per_second)),
            files,
            file_triggers: of_files.iter().map(|&(.., index)| index).collect(),
            functions: Vec::new(),
            syscalls: Vec::new(),
            syscall_entry: Vec::new(),
            names_at: Vec::new(),
            readies_at: Vec::new(),
            switches_at: Vec::new(),
            wakeups: Vec::new(),
            interrupts_off: Vec::new(),
            names: Names::default(),
        };
        if settings.process.is_some() {
            watch.names_at = symbols.entries(NAMES)?;
        }
        for (trigger, index) in triggers.iter().zip(0..) {
            watch.add(&trigger.latency, index, symbols)?;
        }
        Ok(watch)
    }

    /// Adds what a trigger needs.
    fn add(&mut self, latency: &Latency, index: usize, symbols: &Symbols) -> Result<(), String> {
        let entries = |name: &str| -> Result<Vec<Entry>, String> {
            let addresses = symbols.entries(name)?.into_iter();
            Ok(addresses.map(|address| Entry { address, trigger: index }).collect())
        };
        match latency {
            Latency::Kernel(name) => self.functions.extend(entries(name)?),
            Latency::Syscall(name) => {
                self.syscalls.extend(entries(&format!("{}{name}", processor().syscall))?);
                if let Some(entry) = processor().syscall_entry {
                    self.syscall_entry = symbols.entries(entry)?;
                }
            }
            Latency::Wakeup(name) => {
                self.names_at = symbols.entries(NAMES)?;
                self.switches_at = symbols.entries(processor().switch_function)?;
                let [fair, others @ ..] = READIES;
                self.readies_at = symbols.entries(fair)?;
                self.readies_at
                    .extend(others.iter().flat_map(|name| symbols.entries(name).unwrap_or_default()));
                self.wakeups.push((index, name.as_ref().map(|name| padded(name.as_bytes()))));
            }
            Latency::InterruptsOff => self.interrupts_off.push(index),
            Latency::File { .. } => {}
        }
        Ok(())
    }

    /// A vCPU is about to run a block.
    #[inline(always)]
    pub(crate) fn before_block(
        &self,
        vcpu: &mut Vcpu,
        arrival: Arrival,
        registers: Registers,
        read: ReadMemory,
    ) {
        let pc = arrival.pc;
        if pc & KERNEL != 0 {
            if self.names_at.contains(&pc) {
                self.named(registers, read);
            }
            if let Some(processes) = self.scope.as_ref().and_then(|scope| scope.processes.as_ref())
                && processes.frees_at.contains(&pc)
            {
                processes.freed(registers.argument(1));
            }
        }
        if let Some(triggers) = &self.triggers {
            self.measure(triggers, vcpu, arrival, registers, read);
            vcpu.snapshot_if_requested(triggers.requested(), pc);
        }
    }

    /// The kernel names a thread: `__set_task_comm(task, name, exec)`.
    #[cold]
    fn named(&self, registers: Registers, read: ReadMemory) {
        let Some(name) = text(registers.argument(1), read) else { return };
        let thread = registers.argument(0);
        if registers.argument(2) & 0xff != 0
            && let Some(processes) = self.scope.as_ref().and_then(|scope| scope.processes.as_ref())
        {
            processes.executed(thread, &name, registers.space());
        }
        *self.names.example.lock().unwrap_or_else(PoisonError::into_inner) = Some((thread, padded(&name)));
    }

    /// Looks for begins and ends of latencies.
    #[inline(always)]
    fn measure(
        &self,
        triggers: &Triggers,
        vcpu: &mut Vcpu,
        Arrival { pc, previous }: Arrival,
        registers: Registers,
        read: ReadMemory,
    ) {
        if !self.interrupts_off.is_empty() {
            self.interrupts(triggers, vcpu, previous, registers);
        }
        let by = previous.map(|block| block.flow.kind);
        if triggers.are_pending() {
            match by {
                Some(Kind::Return) => self.returned(triggers, vcpu, pc, registers),
                Some(Kind::Far) if pc & KERNEL == 0 => self.back_in_user_space(triggers, vcpu, pc, registers),
                _ => {}
            }
        }
        if pc & KERNEL != 0 {
            self.in_kernel(triggers, vcpu, (pc, by), registers, read);
        } else if !self.files.is_empty() && !matches!(by, None | Some(Kind::Far)) {
            self.in_user_space(triggers, vcpu, pc, registers, read);
        }
    }

    /// Interrupts may have gone off or on.
    #[inline(always)]
    fn interrupts(
        &self,
        triggers: &Triggers,
        vcpu: &mut Vcpu,
        previous: Option<&'static Block>,
        registers: Registers,
    ) {
        let on = registers.interrupts_are_on();
        if vcpu.watcher.interrupts == Some(on) {
            return;
        }
        let now = vcpu.moment();
        // At the begin, the time at which they went off is unknown.
        let was_known = vcpu.watcher.interrupts.replace(on).is_some();
        if on {
            if let Some(begin) = vcpu.watcher.off_since.take() {
                self.interrupts_off.iter().for_each(|&trigger| triggers.check(trigger, begin, now));
            }
        } else {
            // What turns them off does not end a block.
            let since = previous.and_then(|block| block.since_interrupts_off).unwrap_or(0);
            let begin = Moment { instructions: now.instructions.saturating_sub(since), ..now };
            vcpu.watcher.off_since = was_known.then_some(begin);
        }
    }

    /// A near return led to `pc`: perhaps from a watched function.
    fn returned(&self, triggers: &Triggers, vcpu: &mut Vcpu, pc: u64, registers: Registers) {
        let owner = registers.stack_at_begin();
        let mut end =
            |trigger, space| triggers.end(LatencyKey { trigger, space, owner }, pc, || vcpu.moment());
        if pc & KERNEL != 0 {
            self.functions.iter().for_each(|entry| end(entry.trigger, 0));
        } else {
            let space = registers.space() & CR3_PAGE;
            self.file_triggers.iter().for_each(|&trigger| end(trigger, space));
        }
    }

    /// The kernel returned to user space: perhaps from a watched system call.
    fn back_in_user_space(&self, triggers: &Triggers, vcpu: &mut Vcpu, pc: u64, registers: Registers) {
        let space = registers.space() & CR3_PAGE;
        let owner = registers.stack();
        for &Entry { trigger, .. } in &self.syscalls {
            triggers.end(LatencyKey { trigger, space, owner }, pc, || vcpu.moment());
        }
    }

    #[inline(always)]
    fn in_kernel(
        &self,
        triggers: &Triggers,
        vcpu: &mut Vcpu,
        (pc, by): (u64, Option<Kind>),
        registers: Registers,
        read: ReadMemory,
    ) {
        // After a fault in its first instruction, a function does not begin again.
        if !matches!(by, None | Some(Kind::Far)) {
            for entry in self.functions.iter().filter(|entry| entry.address == pc) {
                let key = LatencyKey { trigger: entry.trigger, space: 0, owner: registers.stack() };
                self.function_begins(triggers, vcpu, key, registers, read);
            }
        }
        if self.syscall_entry.contains(&pc) {
            self.system_call(vcpu, registers.stack(), registers.after_call());
        }
        for &Entry { trigger, .. } in self.syscalls.iter().filter(|entry| entry.address == pc) {
            if let Some(Syscall { begin, stack: owner, returns_to }) = vcpu.watcher.call
                && self.is_recorded(registers)
            {
                let space = registers.space() & CR3_PAGE;
                triggers.begin(LatencyKey { trigger, space, owner }, begin, returns_to);
            }
        }
        if self.readies_at.contains(&pc) && registers.argument(2) & WAKES != 0 {
            self.woken(triggers, vcpu, registers.argument(1), read);
        }
        if self.switches_at.contains(&pc) {
            let owner = registers.argument(1);
            for &(trigger, _) in &self.wakeups {
                triggers.end(LatencyKey { trigger, space: 0, owner }, NO_ADDRESS, || vcpu.moment());
            }
        }
    }

    /// A system call begins; `stack` is its program's, which it returns to.
    pub(crate) fn system_call(&self, vcpu: &mut Vcpu, stack: u64, returns_to: u64) {
        vcpu.watcher.call = Some(Syscall { begin: vcpu.moment(), stack, returns_to });
    }

    fn in_user_space(
        &self,
        triggers: &Triggers,
        vcpu: &mut Vcpu,
        pc: u64,
        registers: Registers,
        read: ReadMemory,
    ) {
        let space = registers.space() & CR3_PAGE;
        let known = (space, self.files.version());
        if vcpu.watcher.known != Some(known) {
            let parts = self.files.of_space(space).into_iter();
            let entry = |part: usize, address| Entry { address, trigger: self.file_triggers[part] };
            vcpu.watcher.entries = parts.map(|(part, code)| entry(part, code.start)).collect();
            vcpu.watcher.known = Some(known);
        }
        for index in 0..vcpu.watcher.entries.len() {
            let Entry { address, trigger } = vcpu.watcher.entries[index];
            if address == pc {
                let key = LatencyKey { trigger, space, owner: registers.stack() };
                self.function_begins(triggers, vcpu, key, registers, read);
            }
        }
    }

    /// A watched function begins; the owner of `key` is its stack pointer.
    #[cold]
    fn function_begins(
        &self,
        triggers: &Triggers,
        vcpu: &mut Vcpu,
        key: LatencyKey,
        registers: Registers,
        read: ReadMemory,
    ) {
        if self.is_recorded(registers)
            && let Some(back) = registers.return_address(read)
        {
            triggers.begin(key, vcpu.moment(), back);
        }
    }

    /// Whether the process filter, if any, holds the present address space.
    fn is_recorded(&self, registers: Registers) -> bool {
        let processes = self.scope.as_ref().and_then(|scope| scope.processes.as_ref());
        processes.is_none_or(|processes| processes.records(registers.space() & CR3_PAGE))
    }

    /// A thread is ready to run.
    #[cold]
    fn woken(&self, triggers: &Triggers, vcpu: &mut Vcpu, thread: u64, read: ReadMemory) {
        let mut name = None;
        for (trigger, wanted) in &self.wakeups {
            if wanted.is_none() || *wanted == *name.get_or_insert_with(|| self.names.of(thread, read)) {
                triggers.begin(
                    LatencyKey { trigger: *trigger, space: 0, owner: thread },
                    vcpu.moment(),
                    NO_ADDRESS,
                );
            }
        }
    }
}

impl Names {
    /// The name of a thread, padded; `None` if it is not known where the kernel keeps it.
    fn of(&self, thread: u64, read: ReadMemory) -> Option<[u8; NAME]> {
        if self.offset.load(Ordering::Relaxed) == 0 {
            self.search(read);
        }
        let offset = self.offset.load(Ordering::Relaxed);
        let mut name = [0; NAME];
        (offset != 0 && read(thread.wrapping_add(offset), &mut name)).then_some(name)
    }

    /// Searches the last named thread for its name.
    fn search(&self, read: ReadMemory) {
        let Some((thread, name)) = *self.example.lock().unwrap_or_else(PoisonError::into_inner) else {
            return;
        };
        let mut bytes = vec![0; THREAD as usize];
        let mut length = 0;
        // What follows the thread may not be mapped.
        while let Some(piece) = bytes.get_mut(length..length + 64)
            && read(thread.wrapping_add(length as u64), piece)
        {
            length += 64;
        }
        if let Some(offset) = bytes[..length].windows(NAME).position(|found| found == name) {
            self.offset.store(offset as u64, Ordering::Relaxed);
        }
    }
}

/// The text at an address, up to its NUL or the longest name of a thread.
fn text(address: u64, read: ReadMemory) -> Option<Vec<u8>> {
    let mut bytes = [0; NAME - 1];
    read(address, &mut bytes).then(|| bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec())
}

/// A name as the kernel keeps it: cut, and padded with NULs.
fn padded(name: &[u8]) -> [u8; NAME] {
    let mut padded = [0; NAME];
    padded.iter_mut().take(NAME - 1).zip(name).for_each(|(to, from)| *to = *from);
    padded
}

/// Reads a page.
pub(crate) fn page(address: u64, read: ReadMemory) -> Option<PageBytes> {
    let mut bytes = [0; PAGE as usize];
    read(address, &mut bytes).then_some(bytes)
}

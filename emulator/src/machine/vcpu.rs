//! A vCPU: each block that it enters shows how the one before ended.
//!
//! ```text
//! previous block, how far it came ──where control is now──► taken? target? left early? ──► Encoder ──► Buffer
//! interrupt or exception ──────────from where to where────► FUP, TIP ───────────────────►
//! ```

mod guests;
mod modes;
mod snapshot;
mod start;

use std::{ops::Range, sync::atomic::Ordering};

use hodo_intel_pt::encoder::{Encoder, Target};

use super::{
    block::{Block, End},
    buffer::Buffer,
    code::{CR3_PAGE, Known, Memory, NextCode, Space},
    filter::Filter,
    guest::Mode,
    modules::Modules,
    places::Places,
    processor::Registers,
    settings::Privilege,
    spool::{Counters, Progress},
    trigger::Moment,
    truth::{Account, Witness},
    watch::{self, ReadMemory, Watcher},
};
use crate::block::Kind;

/// Blocks between two checks of the clock.
const CLOCK_CHECK_BLOCKS: u32 = 32;
/// The most MTC packets that are emitted at once; after a longer sleep a TSC packet replaces them.
const MOST_MTC: u64 = 64;
/// This bit is set in addresses of the kernel half.
const KERNEL: u64 = 1 << 63;

pub(crate) use start::Start;

/// A vCPU that is recorded. Only its own thread uses it.
pub(crate) struct Vcpu {
    pub(crate) index: u32,
    encoder: Encoder,
    buffer: Buffer,
    ticks: extern "C" fn() -> i64,
    privilege: Privilege,
    /// The processes and addresses to which the recording is restricted; `None` for all.
    filter: Option<Filter>,
    /// Parts of files that are searched for in the address spaces of processes.
    places: Vec<&'static Places>,
    read: ReadMemory,
    read_physical: ReadMemory,
    registers: Registers,
    memory: &'static Memory,
    modules: Option<&'static Modules>,
    progress: Progress,
    give_up: fn(),
    pub(crate) watcher: Watcher,
    /// Whether the last part of the trace is written on request only, and the number of requests that it was written
    /// for.
    on_request: bool,
    requests: u64,
    /// Whether packets are emitted.
    tracing: bool,
    /// Only some instructions of the last entered block are recorded.
    divided: bool,
    /// A TSC packet was omitted, as nothing is recorded; the next one is due where recording goes on.
    unstamped: bool,
    /// The last entered block, unless its end is already traced.
    previous: Option<&'static Block>,
    /// The offset to add to the addresses of that block.
    shift: u64,
    /// Address of the word in which QEMU's code stores the index of the instruction that it begins. The number of PAUSE
    /// instructions follows.
    begun: *const u64,
    /// The number of PAUSE instructions before the recording.
    pauses_before: u64,
    /// The mode of the last block.
    mode: Mode,
    /// The mode of `previous`, while it is retired.
    retiring: Mode,
    /// The VMCB of the guest that a VMRUN enters.
    entering: Option<u64>,
    /// The VMCB of the running guest.
    guest: Option<u64>,
    cr3: u64,
    kernel: &'static Space,
    user: &'static Space,
    /// Whether the clock is read at each block, for CYC packets.
    exact: bool,
    /// The ticks between two TSC packets, at least, if nothing else has the time.
    time_every: Option<u64>,
    /// Whether the recorder makes the trace of another unit of the packets.
    is_for_other_unit: bool,
    /// The instructions whose packets are lost on request.
    overflow: Range<u64>,
    /// The number of instructions at which such a loss begins or ends.
    boundary: u64,
    /// Whether packets are being lost.
    losing: bool,
    now: u64,
    /// The time of the last TSC packet.
    stamped: u64,
    blocks_to_check: u32,
    next_psb: u64,
    pub(crate) account: Account,
    traced: Account,
    pub(crate) witness: Witness,
    /// The address of the block whose instructions the witness sees.
    pub(crate) witness_base: u64,
    ended: bool,
    pub(crate) counters: Counters,
}

impl Vcpu {
    /// Whether its recording has ended.
    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The vCPU is about to run `block`, which is at `pc`.
    #[inline(always)]
    pub(crate) fn enter(&mut self, block: &'static Block, pc: u64, cr3: u64, memory: &Memory) {
        if self.account.instructions >= self.boundary {
            self.lose_or_resume(pc);
        }
        if block.mode != self.mode {
            self.change_mode(block.mode, pc, cr3, memory);
        }
        self.resolve(pc);
        self.counters.blocks += 1;
        self.counters.hidden += if block.mode.is_hidden { block.flow.count } else { 0 };
        if cr3 != self.cr3 {
            self.switch(cr3, pc, memory);
        }
        self.blocks_to_check -= 1;
        if self.blocks_to_check == 0 {
            self.look_at_clock();
        }
        let space = if pc & KERNEL != 0 { self.kernel } else { self.user };
        let known = &block.known[self.index as usize];
        if known.load(Ordering::Relaxed) != space.code_number(pc) && !block.mode.is_hidden {
            self.learn(block, pc, space, memory);
        }
        self.shift = pc.wrapping_sub(block.flow.pc);
        if let Some(filter) = &mut self.filter {
            filter.refresh(cr3);
            let last = block.flow.count.checked_sub(1).map(|last| block.flow.address(last));
            let divides = |last: u64| filter.divides(pc, last.wrapping_add(self.shift));
            self.divided = !block.mode.is_hidden && last.is_some_and(divides);
        }
        if self.tracing != self.holds(pc) {
            self.set_tracing(pc, block.mode);
        }
        if self.buffer.is_due() {
            self.make_room(pc);
        }
        self.retiring = block.mode;
        self.previous = Some(block);
    }

    /// Whether the instruction at `address` is recorded, in the present mode.
    #[inline(always)]
    fn holds(&self, address: u64) -> bool {
        !self.mode.is_hidden && self.holds_in_any_mode(address)
    }

    /// Whether the instruction at `address` is recorded, if its mode is one that is.
    #[inline(always)]
    fn holds_in_any_mode(&self, address: u64) -> bool {
        !self.losing
            && self.privilege.holds(address)
            && self.filter.as_ref().is_none_or(|filter| filter.holds(address))
    }

    /// Whether the privilege level of an address and the present address space are recorded (ContextEn).
    fn is_in_context(&self, address: u64) -> bool {
        self.privilege.holds(address) && self.filter.as_ref().is_none_or(Filter::is_in_context)
    }

    /// Control is at `pc`, and a requested loss of packets begins or ends. It begins after a packet, so that the trace
    /// shows exactly what ran before it.
    #[cold]
    fn lose_or_resume(&mut self, pc: u64) {
        let (previous, before) = (self.previous, self.account.instructions);
        self.resolve(pc);
        let reported = previous.is_some_and(|block| {
            let kind = block.flow.kind;
            let branches = matches!(
                kind,
                Kind::Conditional | Kind::Return | Kind::Jump | Kind::CallIndirect | Kind::Far
            );
            branches && self.account.instructions == before + block.flow.count
        });
        if self.losing {
            self.losing = false;
            self.boundary = u64::MAX;
            self.tracing = self.holds(pc);
            self.encoder.overflow(self.tracing.then_some(pc), self.now, &mut self.buffer);
        } else if self.tracing && reported {
            self.encoder.flush(self.now, &mut self.buffer);
            self.losing = true;
            self.tracing = false;
            self.boundary = self.overflow.end;
        }
    }

    /// The instruction at `address` ran.
    #[inline(always)]
    fn retire(&mut self, address: u64) {
        if self.divided {
            self.walk_to(address);
        }
        self.account.retire(address);
        if self.tracing {
            self.traced.retire(address);
        }
    }

    #[inline(always)]
    fn retire_all(&mut self, block: &Block) {
        if self.divided {
            return self.retire_first(block, block.flow.count);
        }
        let pc = block.flow.pc.wrapping_add(self.shift);
        self.account.retire_all(&block.digest, pc);
        if self.tracing {
            self.traced.retire_all(&block.digest, pc);
        }
    }

    /// Control runs on to the instruction at `address`, perhaps into the recorded addresses or out of them.
    #[cold]
    fn walk_to(&mut self, address: u64) {
        match (self.tracing, self.holds_in_any_mode(address)) {
            (true, false) => self.leave(address),
            (false, true) => self.set_tracing(address, self.retiring),
            _ => {}
        }
    }

    /// Control leaves the recorded addresses, other than by an interrupt. A TIP.PGD with the target replaces the packet
    /// of a branch.
    fn leave(&mut self, next: u64) {
        // The recorder needs the target of a return from the kernel for Arm's unit, which traces it.
        let target = (self.is_in_context(next) || self.is_for_other_unit).then_some(next);
        self.encoder.disable(target, self.now, &mut self.buffer);
        self.tracing = false;
    }

    /// The first `count` instructions of the block ran; no branch is among them.
    fn retire_first(&mut self, block: &Block, count: u64) {
        for address in block.flow.addresses().take(count as usize) {
            self.retire(address.wrapping_add(self.shift));
        }
    }

    /// Traces the end of the previous block; control is now at `next`.
    #[inline(always)]
    fn resolve(&mut self, next: u64) {
        let Some(block) = self.previous.take() else { return };
        // SAFETY: QEMU keeps the word for as long as it runs, and only this thread's code writes to it.
        let begun = unsafe { self.begun.read() };
        let flow = &block.flow;
        let taken = flow.taken.wrapping_add(self.shift);
        let fall = flow.fall.wrapping_add(self.shift);
        let possible = begun + 1 >= flow.count
            && match flow.kind {
                Kind::Direct | Kind::Call | Kind::CallNext => next == taken,
                Kind::Conditional => next == taken || next == fall,
                Kind::Return | Kind::Jump | Kind::CallIndirect | Kind::Far => true,
                Kind::Repeat => next == fall,
                Kind::Outside => false,
            };
        if !possible {
            return self.left_early(block, begun, next);
        }
        self.retire_all(block);
        // Without a far transfer the mode stays as it is; an interrupt that came then may have changed it already.
        let stays = flow.kind != Kind::Far;
        if self.filter.is_some() && self.tracing && stays && !self.holds_in_any_mode(next) {
            self.leave(next);
        }
        let (encoder, buffer, now) = (&mut self.encoder, &mut self.buffer, self.now);
        match flow.kind {
            Kind::Conditional if self.tracing => encoder.branch(next == taken, now, buffer),
            Kind::Call => {
                self.counters.calls += 1;
                // A decoder does not see untraced calls, so no return may be compressed against them.
                if self.tracing {
                    encoder.call(fall);
                }
            }
            Kind::Return if self.tracing => encoder.ret(next, now, buffer),
            Kind::Jump if self.tracing => encoder.indirect(next, now, buffer),
            Kind::CallIndirect => {
                self.counters.calls += 1;
                if self.tracing {
                    // Return compression ignores a call to the next instruction.
                    if next != fall {
                        encoder.call(fall);
                    }
                    encoder.indirect(next, now, buffer);
                }
            }
            Kind::CallNext => self.counters.calls += 1,
            Kind::Far => self.far(block, next),
            _ => {}
        }
    }

    /// A system call, or the return from the kernel. A TSC packet precedes the return, as user space sees what the
    /// kernel mapped meanwhile; and precedes every IRET, which makes processors see changed code.
    fn far(&mut self, block: &Block, next: u64) {
        let from = block.flow.pc.wrapping_add(self.shift);
        if from & KERNEL != 0 && (next & KERNEL == 0 || block.end == End::Return) {
            self.stamp();
        }
        if !self.tracing {
            return;
        }
        if self.holds(next) {
            let target = Target { ip: next, bits: self.mode.bits().into() };
            self.encoder.far(target, self.now, &mut self.buffer);
        } else {
            self.leave(next);
        }
    }

    /// The block was left before its end without an exception: by an access to a device, or because it wrote over its
    /// own code. The instruction ran, or it will begin again.
    #[cold]
    fn left_early(&mut self, block: &Block, begun: u64, next: u64) {
        let flow = &block.flow;
        let last = begun.min(flow.count.saturating_sub(1));
        let begun_at = flow.address(last).wrapping_add(self.shift);
        self.retire_first(block, last);
        let fall =
            if last + 1 < flow.count { flow.address(last + 1).wrapping_add(self.shift) } else { begun_at };
        if next == begun_at {
            self.counters.restarted += 1;
        } else if next == fall {
            self.counters.left_early += 1;
            self.retire(begun_at);
        } else {
            self.surprise(begun_at, next);
        }
    }

    /// Control came from the instruction at `begun_at` to `next` for an unknown reason.
    fn surprise(&mut self, begun_at: u64, next: u64) {
        self.counters.flow_losses += 1;
        if self.counters.flow_losses <= 10 {
            say!("hodo: vcpu {}: control went from {begun_at:#x} to {next:#x} without a reason", self.index);
        }
        self.transfer(begun_at, next);
    }

    /// An interrupt or exception leaves before the instruction at `from`, and goes to `to`. `cause` is what packets say about
    /// it.
    pub(crate) fn interrupt(&mut self, from: u64, to: u64, cause: Option<u8>) {
        self.counters.interrupts += 1;
        if let Some(block) = self.previous {
            // SAFETY: as in `resolve`.
            let begun = unsafe { self.begun.read() };
            let flow = &block.flow;
            let last = begun + 1 >= flow.count;
            let begun_at = flow.address(begun.min(flow.count - 1)).wrapping_add(self.shift);
            let fall = flow.fall.wrapping_add(self.shift);
            if last && block.end == End::SoftwareInterrupt && (from == begun_at || from == fall) {
                self.previous = None;
                self.retire_all(block);
                return self.far(block, to);
            }
            if last && block.end == End::Trap && from == fall {
                self.previous = None;
                self.retire_all(block);
            }
        }
        self.retire_before(from);
        self.stamp();
        if let Some(cause) = cause.filter(|_| self.tracing) {
            self.encoder.cause(cause, self.now, &mut self.buffer);
        }
        self.transfer(from, to);
    }

    /// Retires what ran before the instruction at `from`, at which an interrupt leaves.
    fn retire_before(&mut self, from: u64) {
        let Some(block) = self.previous else { return };
        // SAFETY: as in `resolve`.
        let begun = unsafe { self.begun.read() };
        let flow = &block.flow;
        let begun_at = flow.address(begun.min(flow.count - 1)).wrapping_add(self.shift);
        let to_itself = begun + 1 >= flow.count && block.goes_to_itself();
        if begun_at == from && !to_itself {
            self.previous = None;
            self.retire_first(block, begun);
        } else {
            self.resolve(from);
        }
    }

    /// Emits FUP and TIP, or TIP.PGD if the target is not recorded.
    fn transfer(&mut self, from: u64, to: u64) {
        if !self.tracing {
            return;
        }
        if self.holds(to) {
            let to = Target { ip: to, bits: self.mode.bits().into() };
            self.encoder.interrupt_to_code(from, to, self.now, &mut self.buffer);
        } else {
            let target = self.is_in_context(to).then_some(to);
            self.encoder.interrupt_out(from, target, self.now, &mut self.buffer);
            self.tracing = false;
        }
    }

    #[cold]
    fn switch(&mut self, cr3: u64, pc: u64, memory: &Memory) {
        self.cr3 = cr3;
        self.counters.switches += 1;
        if self.guest.is_none() {
            self.user = memory.space(cr3);
        }
        if let Some(filter) = &mut self.filter {
            filter.set_space(cr3);
            // MOV to CR3 ends the recorded part without an address.
            if self.tracing && !filter.is_in_context() {
                let target = self.is_for_other_unit.then_some(pc);
                self.encoder.disable(target, self.now, &mut self.buffer);
                self.tracing = false;
            }
        }
        // A processor of Arm that starts changes its tables within code at low addresses: what precedes is in the old ones.
        let stops = self.is_for_other_unit && self.tracing && pc & KERNEL == 0;
        if stops {
            self.encoder.interrupt(pc, self.now, &mut self.buffer);
        }
        self.stamp();
        self.encoder.set_cr3(cr3, self.now, &mut self.buffer);
        if stops {
            self.encoder.enable(pc, self.now, &mut self.buffer);
        }
        if self.guest.is_none() {
            memory.switched(self.index, self.now, cr3);
        }
    }

    /// Reads the clock. A clock that counts instructions goes back where a block is left before its end; the trace's
    /// does not.
    fn read_clock(&mut self) {
        self.now = self.now.max((self.ticks)() as u64);
    }

    /// Emits a TSC packet, unless a filter excludes what runs.
    fn stamp(&mut self) {
        self.read_clock();
        self.unstamped = self.filter.is_some() && !self.tracing;
        if self.unstamped {
            return;
        }
        self.stamped = self.now;
        self.encoder.count_cycles(self.now, &mut self.buffer);
        self.encoder.set_clock(self.now, &mut self.buffer);
    }

    /// Emits the MTC packets that are due, or a TSC packet if they are too many.
    #[cold]
    fn look_at_clock(&mut self) {
        self.blocks_to_check = if self.exact { 1 } else { CLOCK_CHECK_BLOCKS };
        let next = self.encoder.next_mtc();
        if next == u64::MAX && !self.exact && self.time_every.is_none() {
            return;
        }
        self.read_clock();
        if self.time_every.is_some_and(|every| self.now - self.stamped >= every) {
            return self.stamp();
        }
        if self.now < next {
            return;
        }
        let periods = self.now.saturating_sub(next) / self.encoder.mtc_ticks();
        if periods > MOST_MTC {
            self.stamp();
        } else {
            self.encoder.tick(self.now, &mut self.buffer);
        }
    }

    /// Makes sure that the recording contains the block's code at the time at which it runs.
    #[cold]
    fn learn(&mut self, block: &Block, pc: u64, space: &'static Space, memory: &Memory) {
        let number = space.code_number(pc);
        let since = (pc & KERNEL == 0 && self.guest.is_none()).then_some(self.stamped);
        let bytes = &block.bytes;
        let comparison = memory.compare_and_record(&NextCode {
            index: self.index,
            space,
            pc,
            bytes,
            since,
            clock: self.ticks,
        });
        self.counters.changes += u64::from(comparison.known == Known::OtherCode);
        if pc & KERNEL == 0 {
            let code = pc..pc + block.bytes.len() as u64;
            let page = |address| watch::page(address, self.read);
            self.places.iter().for_each(|places| places.look(self.cr3 & CR3_PAGE, code.clone(), page));
        }
        // The new code must not appear to run before it was there, nor the old code after that.
        if comparison.changed >= self.stamped || comparison.first_noted > self.stamped {
            if self.tracing {
                self.encoder.interrupt(pc, self.now, &mut self.buffer);
                self.tracing = false;
            }
            self.stamp();
        }
        if let Some(modules) = self.modules.filter(|modules| modules.loads_at == pc && self.guest.is_none()) {
            // The block's code stays unknown, so that it comes here each time.
            self.stamp();
            return modules.loaded(self.registers.argument(0), self.now, self.read);
        }
        if block.switches_stack && pc & KERNEL != 0 && self.guest.is_none() {
            // The kernel recorded the switch earlier. The recorder moves it to this time, from which on the other thread
            // runs. The block's code stays unknown, so that it comes here each time.
            self.stamp();
            return memory.changes_stack(self.index, self.now);
        }
        block.known[self.index as usize].store(number, Ordering::Relaxed);
    }
}

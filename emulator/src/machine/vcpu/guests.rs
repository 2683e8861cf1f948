//! VM entries and exits, and changes of the code's width.

use hodo_intel_pt::encoder::{Exit, Guest, Target};

use super::Vcpu;
use crate::machine::{
    code::Memory,
    guest::{Mode, Vmcb},
    spool::SVM,
};

impl Vcpu {
    /// VMRUN begins, with the control block at this physical address.
    pub(crate) fn begin_entry(&mut self, vmcb: u64) {
        self.entering = Some(vmcb);
        self.mode = Mode::UNKNOWN;
    }

    /// Control is at `pc`, in another mode than before.
    #[cold]
    pub(super) fn change_mode(&mut self, mode: Mode, pc: u64, cr3: u64, memory: &Memory) {
        match (self.entering.take(), self.guest) {
            (Some(vmcb), _) if mode.in_guest => self.enter_guest(vmcb, target(pc, mode.bits()), cr3, memory),
            (Some(address), _) => {
                // It has exited before its first instruction, or was not entered.
                if let Some(vmcb) = Vmcb::read(address, self.read_physical)
                    && !vmcb.is_invalid()
                {
                    self.enter_guest(address, target(vmcb.pc, vmcb.bits), vmcb.cr3, memory);
                    self.exit_guest(address, pc, cr3, memory);
                }
            }
            (None, Some(address)) if !mode.in_guest => self.exit_guest(address, pc, cr3, memory),
            (None, _) => self.change_width(mode, pc),
        }
        self.mode = mode;
    }

    /// An interrupt or exception before the instruction at `from` has been delivered; its handler runs in `mode`.
    pub(crate) fn deliver(&mut self, from: u64, mode: Mode, cr3: u64, memory: &Memory) {
        // VMRUN itself can deliver one in the guest; or it has failed.
        if let Some(address) = self.entering.take()
            && mode.in_guest
        {
            let bits = Vmcb::read(address, self.read_physical).map_or(mode.bits(), |vmcb| vmcb.bits);
            self.enter_guest(address, target(from, bits), cr3, memory);
        }
        self.mode = mode;
    }

    /// VMRUN, the last instruction of the last block, has entered a guest.
    fn enter_guest(&mut self, vmcb: u64, to: Target, cr3: u64, memory: &Memory) {
        let mut from = to.ip;
        if let Some(block) = self.previous.take() {
            self.retire_all(block);
            from = block.flow.address(block.flow.count - 1).wrapping_add(self.shift);
        }
        self.counters.entries += 1;
        self.guest = Some(vmcb);
        let space = memory.guest(vmcb);
        (self.kernel, self.user, self.cr3) = (space, space, cr3);
        self.stamp();
        self.encoder.enter_guest(from, Guest { vmcs: vmcb, cr3 }, to, self.now, &mut self.buffer);
    }

    /// The guest with this control block has exited, and the host continues at `to`.
    fn exit_guest(&mut self, address: u64, to: u64, cr3: u64, memory: &Memory) {
        let vmcb = Vmcb::read(address, self.read_physical).unwrap_or_else(|| {
            self.counters.flow_losses += 1;
            Vmcb { pc: to, ..Vmcb::default() }
        });
        self.witness.interrupt(vmcb.pc);
        self.retire_before(vmcb.pc);
        self.guest = None;
        (self.kernel, self.user, self.cr3) = (memory.kernel(), memory.space(cr3), cr3);
        self.stamp();
        let exit = Exit { ip: vmcb.pc, reason: SVM | u64::from(vmcb.exit_code) };
        self.encoder.exit_guest(exit, to, cr3, self.now, &mut self.buffer);
    }
}

fn target(ip: u64, bits: u32) -> Target {
    Target { ip, bits: bits.into() }
}

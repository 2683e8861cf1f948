//! Guests of virtual machines: entries and exits.

use super::{Encoder, HOST, Sink, Target, packet};
use crate::packet::{FUP, Packet, TIP};

/// The types of CFE and EVD packets (SDM, "CFE Packet Type and Vector Fields Details", "EVD Packet").
const VM_ENTRY: u8 = 7;
const VM_EXIT: u8 = 8;
const EXIT_REASON: u8 = 2;

/// A guest, when it is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Address of its VMCS.
    pub vmcs: u64,
    /// Its CR3.
    pub cr3: u64,
}

/// An exit from a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The guest's instruction that did not run.
    pub ip: u64,
    /// The exit reason (SDM, "VMX Basic Exit Reasons").
    pub reason: u64,
}

impl Encoder {
    /// The instruction at `ip` enters a guest at `target` (SDM, "Tracing of VMX"): emits CFE and FUP (event trace), VMCS,
    /// PIP with NR, MODE.Exec if the width changes, TIP.
    pub fn enter_guest(&mut self, ip: u64, guest: Guest, target: Target, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        packet(Packet::Cfe { ip: true, kind: VM_ENTRY, vector: 0 }, sink);
        self.ip_packet(FUP, ip, sink);
        (self.vmcs, self.cr3) = (guest.vmcs, guest.cr3);
        self.paging(sink);
        self.set_bits(target.bits, sink);
        self.ip_packet(TIP, target.ip, sink);
    }

    /// A guest exits, and the host, whose code has 64 bits, continues at `target` with its `cr3`: emits EVD with the reason,
    /// CFE (event trace), FUP, PIP, MODE.Exec if the width changes, TIP.
    pub fn exit_guest(&mut self, exit: Exit, target: u64, cr3: u64, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        packet(Packet::Evd { kind: EXIT_REASON, payload: exit.reason }, sink);
        packet(Packet::Cfe { ip: false, kind: VM_EXIT, vector: 0 }, sink);
        self.ip_packet(FUP, exit.ip, sink);
        (self.vmcs, self.cr3) = (HOST, cr3);
        self.paging(sink);
        self.set_bits(64, sink);
        self.ip_packet(TIP, target, sink);
    }
}

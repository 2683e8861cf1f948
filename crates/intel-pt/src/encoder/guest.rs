//! Guests of virtual machines: entries and exits.

use super::{Encoder, HOST, Sink, packet};
use crate::packet::Packet;

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

impl Encoder {
    /// The instruction at `ip` enters a guest at `target`, with code of 16, 32 or 64 bits (SDM, "Tracing of VMX"): emits
    /// CFE and FUP (event trace), VMCS, PIP with NR, MODE.Exec if the width changes, TIP.
    pub fn enter_guest(
        &mut self,
        ip: u64,
        guest: Guest,
        (target, bits): (u64, u64),
        now: u64,
        sink: &mut impl Sink,
    ) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        packet(Packet::Cfe { ip: true, kind: VM_ENTRY, vector: 0 }, sink);
        self.ip_packet(0x1d, ip, sink);
        (self.vmcs, self.cr3) = (guest.vmcs, guest.cr3);
        self.paging(sink);
        self.set_bits(bits, sink);
        self.ip_packet(0x0d, target, sink);
    }

    /// A guest exits before the instruction at `ip`, and the host, whose code has 64 bits, continues at `target`: emits
    /// EVD with the reason, CFE (event trace), FUP, PIP, MODE.Exec if the width changes, TIP.
    pub fn exit_guest(
        &mut self,
        ip: u64,
        reason: u64,
        (target, cr3): (u64, u64),
        now: u64,
        sink: &mut impl Sink,
    ) {
        self.flush(now, sink);
        self.time.cyc(now, sink);
        packet(Packet::Evd { kind: EXIT_REASON, payload: reason }, sink);
        packet(Packet::Cfe { ip: false, kind: VM_EXIT, vector: 0 }, sink);
        self.ip_packet(0x1d, ip, sink);
        (self.vmcs, self.cr3) = (HOST, cr3);
        self.paging(sink);
        self.set_bits(64, sink);
        self.ip_packet(0x0d, target, sink);
    }
}

//! The text form of packets, with the names of the SDM.

use std::fmt;

use super::{IpPayload, Packet, Tnt};

impl fmt::Display for Tnt {
    /// Writes the oldest branch first: `T` taken, `N` not taken.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.count)
            .rev()
            .try_for_each(|bit| f.write_str(if self.bits >> bit & 1 == 1 { "T" } else { "N" }))
    }
}

impl fmt::Debug for Tnt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tnt({self})")
    }
}

impl fmt::Display for IpPayload {
    /// Writes the number of payload bits, then the payload as in the packet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            IpPayload::Suppressed => f.write_str("suppressed"),
            IpPayload::Update16(low) => write!(f, "16:{low:04x}"),
            IpPayload::Update32(low) => write!(f, "32:{low:08x}"),
            IpPayload::Sext48(low) => write!(f, "48s:{low:012x}"),
            IpPayload::Update48(low) => write!(f, "48:{low:012x}"),
            IpPayload::Full(ip) => write!(f, "64:{ip:016x}"),
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |set: bool, name: &'static str| if set { name } else { "" };
        match *self {
            Packet::Pad => f.write_str("PAD"),
            Packet::Psb => f.write_str("PSB"),
            Packet::PsbEnd => f.write_str("PSBEND"),
            Packet::Tnt8(tnt) => write!(f, "TNT {tnt}"),
            Packet::Tnt64(tnt) => write!(f, "TNT-64 {tnt}"),
            Packet::Tip(ip) => write!(f, "TIP {ip}"),
            Packet::TipPge(ip) => write!(f, "TIP.PGE {ip}"),
            Packet::TipPgd(ip) => write!(f, "TIP.PGD {ip}"),
            Packet::Fup(ip) => write!(f, "FUP {ip}"),
            Packet::Pip { cr3, non_root } => write!(f, "PIP cr3={cr3:x}{}", flag(non_root, " NR")),
            Packet::ModeExec { cs_l, cs_d, interrupt_flag } => {
                let bits = if cs_l {
                    64
                } else if cs_d {
                    32
                } else {
                    16
                };
                write!(f, "MODE.Exec {bits}{}", flag(interrupt_flag, " IF"))
            }
            Packet::ModeTsx { in_transaction, aborted } => {
                write!(f, "MODE.TSX{}{}", flag(in_transaction, " INTX"), flag(aborted, " ABRT"))
            }
            Packet::TraceStop => f.write_str("TRACESTOP"),
            Packet::Cbr(ratio) => write!(f, "CBR {ratio}"),
            Packet::Tsc(tsc) => write!(f, "TSC {tsc:x}"),
            Packet::Tma { ctc, fast_counter } => write!(f, "TMA ctc={ctc:x} fc={fast_counter:x}"),
            Packet::Mtc(ctc) => write!(f, "MTC {ctc:x}"),
            Packet::Cyc(cycles) => write!(f, "CYC {cycles}"),
            Packet::Vmcs(base) => write!(f, "VMCS {base:x}"),
            Packet::Overflow => f.write_str("OVF"),
            Packet::Mnt(payload) => write!(f, "MNT {payload:x}"),
            Packet::PtWrite { payload, wide, ip } => {
                write!(f, "PTW {}:{payload:x}{}", if wide { 64 } else { 32 }, flag(ip, " IP"))
            }
            Packet::ExStop { ip } => write!(f, "EXSTOP{}", flag(ip, " IP")),
            Packet::Mwait { hints, extensions } => write!(f, "MWAIT hints={hints:x} ext={extensions:x}"),
            Packet::Pwre { hardware, state, sub_state } => {
                write!(f, "PWRE c{state}.{sub_state}{}", flag(hardware, " HW"))
            }
            Packet::Pwrx { last, deepest, reason } => {
                write!(f, "PWRX last=c{last} deepest=c{deepest} reason={reason:x}")
            }
            Packet::Bbp { short_items, kind } => {
                write!(f, "BBP type={kind:x} sz={}", if short_items { 4 } else { 8 })
            }
            Packet::Bip { id, payload } => write!(f, "BIP id={id:x} {payload:x}"),
            Packet::Bep { ip } => write!(f, "BEP{}", flag(ip, " IP")),
            Packet::Cfe { ip, kind, vector } => {
                write!(f, "CFE type={kind:x} vector={vector:x}{}", flag(ip, " IP"))
            }
            Packet::Evd { kind, payload } => write!(f, "EVD type={kind:x} {payload:x}"),
            Packet::Trig { ip, instructions, multiple, triggers } => {
                write!(f, "TRIG {triggers:x}{}{}", flag(multiple, " MULT"), flag(ip, " IP"))?;
                instructions.map_or(Ok(()), |count| write!(f, " icnt={count}"))
            }
        }
    }
}

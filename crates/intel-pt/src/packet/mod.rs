//! The packets of Intel PT (SDM, "Packet Definitions"), one variant each.

mod decode;
mod encode;
mod show;

pub use decode::{Decoder, Error, PSB, find_psb};
pub(crate) use decode::{LONG_TNT, frequent, leading_tnts, short_cyc, tnt};
pub use encode::Encoded;
pub(crate) use encode::IpFields;
pub use hodo_flow::PacketError as ErrorKind;

/// The low five bits of the first byte of IP packets; IPBytes are above them.
pub(crate) const TIP: u8 = 0x0d;
pub(crate) const TIP_PGE: u8 = 0x11;
pub(crate) const TIP_PGD: u8 = 0x01;
pub(crate) const FUP: u8 = 0x1d;

/// Branch outcomes of a TNT packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tnt {
    /// One bit a branch, 1 = taken; the oldest branch is bit `count - 1`, the newest bit 0.
    pub bits: u64,
    /// Number of branches: 1 to 6 in a TNT-8, 1 to 47 in a TNT-64.
    pub count: u8,
}

/// The IP payload of a packet, before IP decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpPayload {
    /// IPBytes 0: the IP is suppressed (out of context).
    Suppressed,
    /// IPBytes 1: the low 16 bits; the rest as in the last IP.
    Update16(u16),
    /// IPBytes 2: the low 32 bits; the rest as in the last IP.
    Update32(u32),
    /// IPBytes 3: 48 bits, sign-extended. Held in the low 48 bits.
    Sext48(u64),
    /// IPBytes 4: the low 48 bits; the rest as in the last IP.
    Update48(u64),
    /// IPBytes 6: all 64 bits.
    Full(u64),
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packet {
    /// Padding.
    Pad,
    /// Packet stream boundary: a decoder may start here.
    Psb,
    /// End of the status packets that follow a PSB.
    PsbEnd,
    /// Short TNT: up to 6 branches.
    Tnt8(Tnt),
    /// Long TNT: up to 47 branches.
    Tnt64(Tnt),
    /// Target of an indirect branch, a far transfer, an interrupt.
    Tip(IpPayload),
    /// Tracing begins at this IP.
    TipPge(IpPayload),
    /// Tracing ends; the IP, if present, is the branch's target.
    TipPgd(IpPayload),
    /// Source of an asynchronous event, or the IP of the packet bound to it.
    Fup(IpPayload),
    /// CR3 changed.
    Pip {
        /// CR3 bits 51:5, in place (the low five bits are zero).
        cr3: u64,
        /// In VMX non-root operation.
        non_root: bool,
    },
    /// MODE.Exec: the execution mode from the next IP on.
    ModeExec {
        /// CS.L and IA32_EFER.LMA: 64-bit mode.
        cs_l: bool,
        /// CS.D: if `cs_l` is clear, 32-bit mode if set, else 16-bit.
        cs_d: bool,
        /// RFLAGS.IF, with event trace.
        interrupt_flag: bool,
    },
    /// MODE.TSX: transactional state.
    ModeTsx {
        /// A transaction is in progress.
        in_transaction: bool,
        /// It was aborted.
        aborted: bool,
    },
    /// Tracing stopped on entering a TraceStop region.
    TraceStop,
    /// Core-to-bus ratio.
    Cbr(u8),
    /// The low 56 bits of the time-stamp counter.
    Tsc(u64),
    /// TSC/MTC alignment.
    Tma {
        /// Low 16 bits of the crystal-clock counter.
        ctc: u16,
        /// TSC ticks since that counter last changed; 9 bits.
        fast_counter: u16,
    },
    /// Mini time counter: 8 bits of the crystal-clock counter.
    Mtc(u8),
    /// Core cycles since the last CYC packet.
    Cyc(u64),
    /// VMCS base address, bits 51:12 in place.
    Vmcs(u64),
    /// The internal buffer overflowed: packets were lost.
    Overflow,
    /// Maintenance, model-specific.
    Mnt(u64),
    /// PTWRITE operand.
    PtWrite {
        /// The operand; 32 bits if `wide` is clear.
        payload: u64,
        /// Whether the operand has 8 bytes instead of 4.
        wide: bool,
        /// A FUP with the IP of the instruction follows.
        ip: bool,
    },
    /// Execution stopped.
    ExStop {
        /// A FUP follows.
        ip: bool,
    },
    /// MWAIT operands.
    Mwait {
        /// EAX\[7:0\].
        hints: u8,
        /// ECX\[1:0\].
        extensions: u8,
    },
    /// Power entry.
    Pwre {
        /// Whether hardware requested it.
        hardware: bool,
        /// Requested C-state (thread).
        state: u8,
        /// Requested sub C-state.
        sub_state: u8,
    },
    /// Power exit.
    Pwrx {
        /// Last core C-state.
        last: u8,
        /// Deepest core C-state.
        deepest: u8,
        /// Wake reason bits.
        reason: u8,
    },
    /// Block begin.
    Bbp {
        /// SZ: BIP payloads have 4 bytes if set, else 8.
        short_items: bool,
        /// Type of the block, 5 bits.
        kind: u8,
    },
    /// Block item; only between BBP and BEP.
    Bip {
        /// Item ID, 5 bits.
        id: u8,
        /// Payload: 8 bytes, or 4 if BBP.SZ is set.
        payload: u64,
    },
    /// Block end.
    Bep {
        /// A FUP follows.
        ip: bool,
    },
    /// Control-flow event (event trace).
    Cfe {
        /// A FUP follows.
        ip: bool,
        /// Type, 5 bits.
        kind: u8,
        /// Vector.
        vector: u8,
    },
    /// Event data (event trace).
    Evd {
        /// Type, 6 bits.
        kind: u8,
        /// Payload.
        payload: u64,
    },
    /// A breakpoint or performance counter requested a mark.
    Trig {
        /// A FUP with the IP of the instruction follows.
        ip: bool,
        /// ICNT, if ICNTV is set: the number of instructions from the last IP in the trace to the one that triggered.
        instructions: Option<u16>,
        /// MULT: whether other triggers were left out.
        multiple: bool,
        /// TRBV: the triggers, one bit each.
        triggers: u8,
    },
}

impl Packet {
    /// Returns whether the packet contains only timing.
    pub fn is_timing(&self) -> bool {
        matches!(self, Packet::Tsc(_) | Packet::Tma { .. } | Packet::Mtc(_) | Packet::Cyc(_) | Packet::Cbr(_))
    }
}

//! Events between the blocks, and their text form.

use std::fmt::{self, Display};

use hodo_clock::Tsc;
use hodo_code::Bits;

use crate::Gap;

/// An event between the blocks. All instructions before it are reported before it, and all after it later.
///
/// Serialised as an object with `name` and `fields`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "name", content = "fields", rename_all = "snake_case"))]
pub enum Event {
    /// Everything reported so far ran no later than this tick.
    ///
    /// It may even have run before the previous `Time`: a TNT packet follows the timing packets that were sent while
    /// its branches were pending in the processor.
    Time(Tsc),
    /// Core cycles of the segment up to here, if CYC packets count them. The difference of two such events is the
    /// number of cycles of the instructions reported between them.
    Cycles(u64),
    /// Another thread runs from here on: the context of its [`Switch`](crate::Switch). It is not reported at a
    /// segment's start if the first switch of the schedule applies there.
    Switch(u32),
    /// Tracing is on again, from this address on.
    Enabled(u64),
    /// Tracing went off, or is off where decoding begins.
    Disabled {
        /// The instruction that an interrupt or exception prevented.
        from: Option<u64>,
        /// Target of the transfer, if the trace gives it.
        to: Option<u64>,
        /// Whether an interrupt or exception ended tracing, not the previous instruction.
        asynchronous: bool,
        /// Cause of the interrupt, if event trace reports it.
        cause: Option<Cause>,
    },
    /// An interrupt, exception or abort.
    Asynchronous {
        /// The instruction that it prevented.
        from: u64,
        /// The first instruction of its handler.
        to: u64,
        /// Its cause, if event trace reports it.
        cause: Option<Cause>,
    },
    /// The flow is unknown here.
    Gap(Gap),
    /// PTWRITE ran: it is the last reported instruction.
    #[cfg_attr(feature = "serde", serde(rename = "ptwrite"))]
    PtWrite {
        /// Its address, if the trace gives it or the code shows it.
        ip: Option<u64>,
        /// Its operand.
        payload: u64,
    },
    /// MWAIT ran and the processor stopped.
    Mwait {
        /// Its address, if the trace gives it.
        ip: Option<u64>,
        /// EAX\[7:0\].
        hints: u8,
        /// ECX\[1:0\].
        extensions: u8,
    },
    /// Execution stopped because of a power event.
    ExStop {
        /// The last instruction before it, if the trace gives it.
        ip: Option<u64>,
    },
    /// The thread entered a power state (PWRE).
    PowerEntry {
        /// Whether hardware requested it, not an instruction.
        hardware: bool,
        /// C-state.
        state: u8,
        /// Sub C-state.
        sub_state: u8,
    },
    /// The core left a power state (PWRX).
    PowerExit {
        /// Last core C-state.
        last: u8,
        /// Deepest core C-state.
        deepest: u8,
        /// Wake reason: bit 0 an interrupt, bit 2 a store to the monitored address, bit 3 the hardware.
        reason: u8,
    },
    /// The core-to-bus ratio changed (CBR): the core's frequency in units of 100 MHz.
    CoreBusRatio(u8),
    /// An interrupt, return, SMI, VM entry or similar, reported by event trace (CFE, EVD).
    ControlFlow(ControlFlow),
    /// A block of values (BBP, BIP, BEP), such as a PEBS record.
    Block(ValueBlock),
    /// A transaction began, was committed or was aborted (MODE.TSX).
    Transaction {
        /// The change of its state.
        state: Transaction,
        /// The instruction before which it begins or ends, or that was aborted, if the trace gives it.
        ip: Option<u64>,
    },
    /// The address space changed (PIP).
    Paging {
        /// CR3 with its low five bits zero.
        cr3: u64,
        /// Whether the processor is in VMX non-root operation: a guest runs.
        non_root: bool,
    },
    /// The current VMCS changed: its address.
    Vmcs(u64),
    /// Tracing stopped in a TraceStop region, until software enables it again.
    TraceStop,
    /// Width of the code from here on.
    Mode(#[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialized::width"))] Bits),
    /// Whether interrupts are enabled from here on (RFLAGS.IF, with event trace).
    InterruptFlag(bool),
    /// A breakpoint or performance counter requested a mark (TRIG).
    Trigger {
        /// The instruction, if the trace gives it.
        ip: Option<u64>,
        /// TRBV: the triggers, one bit each.
        triggers: u8,
        /// MULT: whether other triggers were left out.
        multiple: bool,
    },
}

/// Type of a control-flow event, and its vector, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The type.
    pub kind: ControlFlowKind,
    /// The vector; valid only if [`ControlFlowKind::has_vector`].
    pub vector: u8,
}

/// A control-flow event of event trace (SDM, "CFE Packet", "EVD Packet").
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ControlFlow {
    /// Type and vector.
    pub cause: Cause,
    /// The instruction at which it happened, if the trace gives it.
    pub ip: Option<u64>,
    /// Further data.
    pub data: Vec<EventData>,
}

/// Type of a control-flow event (SDM, "CFE Packet Type and Vector Fields Details").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlFlowKind {
    /// An interrupt or exception.
    Interrupt,
    /// Return from an interrupt or exception.
    Iret,
    /// A system management interrupt.
    Smi,
    /// Return from a system management interrupt.
    Rsm,
    /// A startup message from another processor.
    Sipi,
    /// A reset message from another processor.
    Init,
    /// VM entry.
    VmEntry,
    /// VM exit.
    VmExit,
    /// VM exit because of an interrupt or exception.
    VmExitInterrupt,
    /// Shutdown.
    Shutdown,
    /// A user interrupt.
    UserInterrupt,
    /// Return from a user interrupt.
    UserInterruptReturn,
    /// An exception of Arm or RISC-V, by its name.
    Named(&'static str),
    /// An unknown type.
    Other(u8),
}

/// Data of an EVD packet for the next control-flow event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum EventData {
    /// CR2 at a page fault.
    PageFaultAddress(u64),
    /// Exit qualification of a VM exit.
    ExitQualification(u64),
    /// Exit reason of a VM exit.
    ExitReason(u64),
    /// Data of an unknown type.
    Other {
        /// Its type.
        kind: u8,
        /// The data.
        payload: u64,
    },
}

/// The values between BBP and BEP.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ValueBlock {
    /// Type of the block: 1 general-purpose registers, 4 PEBS basic information, 5 memory access,
    /// 8 last branch records, 16 SSE registers (SDM, "BBP Packet Type").
    pub kind: u8,
    /// Item ID and value, in order.
    pub items: Vec<(u8, u64)>,
    /// The instruction that it belongs to, if the trace gives it.
    pub ip: Option<u64>,
}

/// State change of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Transaction {
    /// It began, or is in progress at the start of decoding.
    Begin,
    /// It was committed.
    Commit,
    /// It was aborted.
    Abort,
}

impl Event {
    /// Returns the address of the event's instruction, if the trace gives it.
    pub fn ip(&self) -> Option<u64> {
        match self {
            Event::PtWrite { ip, .. }
            | Event::Mwait { ip, .. }
            | Event::ExStop { ip }
            | Event::Transaction { ip, .. }
            | Event::Trigger { ip, .. } => *ip,
            Event::ControlFlow(event) => event.ip,
            Event::Block(block) => block.ip,
            Event::Asynchronous { from, .. } => Some(*from),
            _ => None,
        }
    }
}

impl ControlFlowKind {
    /// Returns the kind for the type in a CFE packet.
    pub fn new(kind: u8) -> ControlFlowKind {
        match kind {
            1 => ControlFlowKind::Interrupt,
            2 => ControlFlowKind::Iret,
            3 => ControlFlowKind::Smi,
            4 => ControlFlowKind::Rsm,
            5 => ControlFlowKind::Sipi,
            6 => ControlFlowKind::Init,
            7 => ControlFlowKind::VmEntry,
            8 => ControlFlowKind::VmExit,
            9 => ControlFlowKind::VmExitInterrupt,
            10 => ControlFlowKind::Shutdown,
            12 => ControlFlowKind::UserInterrupt,
            13 => ControlFlowKind::UserInterruptReturn,
            other => ControlFlowKind::Other(other),
        }
    }

    /// Returns whether the event prevents the instruction at which it happens.
    pub fn is_asynchronous(self) -> bool {
        matches!(
            self,
            ControlFlowKind::Interrupt
                | ControlFlowKind::Smi
                | ControlFlowKind::Sipi
                | ControlFlowKind::Init
                | ControlFlowKind::VmExit
                | ControlFlowKind::VmExitInterrupt
                | ControlFlowKind::Shutdown
                | ControlFlowKind::UserInterrupt
        )
    }

    /// Returns whether the event has a vector.
    pub fn has_vector(self) -> bool {
        matches!(
            self,
            ControlFlowKind::Interrupt
                | ControlFlowKind::Sipi
                | ControlFlowKind::VmExitInterrupt
                | ControlFlowKind::UserInterrupt
        )
    }
}

impl EventData {
    /// Decodes the data of an EVD packet by its type.
    pub fn new(kind: u8, payload: u64) -> EventData {
        match kind {
            0 => EventData::PageFaultAddress(payload),
            1 => EventData::ExitQualification(payload),
            2 => EventData::ExitReason(payload),
            _ => EventData::Other { kind, payload },
        }
    }
}

impl fmt::Display for ControlFlowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ControlFlowKind::Interrupt => "interrupt",
            ControlFlowKind::Iret => "return from interrupt",
            ControlFlowKind::Smi => "system management interrupt",
            ControlFlowKind::Rsm => "return from system management",
            ControlFlowKind::Sipi => "startup",
            ControlFlowKind::Init => "init",
            ControlFlowKind::VmEntry => "VM entry",
            ControlFlowKind::VmExit => "VM exit",
            ControlFlowKind::VmExitInterrupt => "VM exit by interrupt",
            ControlFlowKind::Shutdown => "shutdown",
            ControlFlowKind::UserInterrupt => "user interrupt",
            ControlFlowKind::UserInterruptReturn => "return from user interrupt",
            ControlFlowKind::Named(name) => name,
            ControlFlowKind::Other(kind) => return write!(f, "control-flow event {kind}"),
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        if self.kind.has_vector() { write!(f, " {}", self.vector) } else { Ok(()) }
    }
}

impl fmt::Display for EventData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventData::PageFaultAddress(address) => write!(f, "page fault address {address:x}"),
            EventData::ExitQualification(qualification) => write!(f, "exit qualification {qualification:x}"),
            EventData::ExitReason(reason) => write!(f, "exit reason {reason:x}"),
            EventData::Other { kind, payload } => write!(f, "data {kind} {payload:x}"),
        }
    }
}

/// Writes ` at 401000`, if the address is known.
struct At(Option<u64>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |ip| write!(f, " at {ip:x}"))
    }
}

/// Writes ` (interrupt 14)`, if the cause is known.
struct By(Option<Cause>);

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |cause| write!(f, " ({cause})"))
    }
}

impl fmt::Display for ControlFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.cause, At(self.ip))?;
        self.data.iter().try_for_each(|data| write!(f, ", {data}"))
    }
}

impl fmt::Display for ValueBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}{}:", self.kind, At(self.ip))?;
        self.items.iter().try_for_each(|(id, value)| write!(f, " {id}={value:x}"))
    }
}

impl fmt::Display for Event {
    /// Writes one line, with addresses and payloads in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Time(now) => write!(f, "time {}", now.0),
            Event::Cycles(count) => write!(f, "cycles {count}"),
            Event::Switch(context) => write!(f, "switch {context}"),
            Event::Enabled(ip) => write!(f, "tracing on at {ip:x}"),
            Event::Disabled { to, asynchronous, cause, .. } => {
                f.write_str(if *asynchronous { "tracing off by interrupt" } else { "tracing off" })?;
                to.map_or(Ok(()), |to| write!(f, ", to {to:x}"))?;
                By(*cause).fmt(f)
            }
            Event::Asynchronous { from, to, cause } => {
                write!(f, "interrupt at {from:x}, to {to:x}{}", By(*cause))
            }
            Event::Gap(gap) => {
                write!(f, "gap: {}", gap.trouble)?;
                gap.doubtful_since.map_or(Ok(()), |byte| write!(f, ", doubtful since byte {byte}"))
            }
            Event::TraceStop => f.write_str("tracing stopped"),
            _ => self.fmt_optional(f),
        }
    }
}

impl Event {
    /// Writes events beside the flow.
    fn fmt_optional(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::PtWrite { ip, payload } => write!(f, "ptwrite {payload:x}{}", At(*ip)),
            Event::Mwait { ip, hints, extensions } => {
                write!(f, "mwait hints {hints:x} extensions {extensions:x}{}", At(*ip))
            }
            Event::ExStop { ip } => write!(f, "execution stopped{}", At(*ip)),
            Event::PowerEntry { hardware, state, sub_state } => {
                write!(f, "power entry C{state}.{sub_state}{}", if *hardware { " by hardware" } else { "" })
            }
            Event::PowerExit { last, deepest, reason } => {
                write!(f, "power exit last C{last} deepest C{deepest}")?;
                let reasons = [(1, " by interrupt"), (4, " by store"), (8, " by hardware")];
                let given = reasons.into_iter().filter(|(bit, _)| reason & bit != 0);
                given.into_iter().try_for_each(|(_, text)| f.write_str(text))
            }
            Event::CoreBusRatio(ratio) => write!(f, "core-to-bus ratio {ratio}"),
            Event::ControlFlow(event) => event.fmt(f),
            Event::Block(block) => block.fmt(f),
            Event::Transaction { state, ip } => {
                let what = match state {
                    Transaction::Begin => "begins",
                    Transaction::Commit => "is committed",
                    Transaction::Abort => "is aborted",
                };
                write!(f, "transaction {what}{}", At(*ip))
            }
            Event::Paging { cr3, non_root } => {
                write!(f, "page tables {cr3:x}{}", if *non_root { " of a guest" } else { "" })
            }
            Event::Vmcs(base) => write!(f, "VMCS {base:x}"),
            Event::Mode(bits) => write!(f, "{}-bit code", *bits as u32),
            Event::InterruptFlag(enabled) => {
                write!(f, "interrupts {}", if *enabled { "enabled" } else { "disabled" })
            }
            Event::Trigger { ip, triggers, multiple } => {
                write!(f, "trigger {triggers:x}{}{}", if *multiple { " and others" } else { "" }, At(*ip))
            }
            _ => unreachable!("shown by `Display::fmt`"),
        }
    }
}

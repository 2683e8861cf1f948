//! Decodes packets and code to the exact flow of execution.
//!
//! ```text
//! packets ──decoder (what happened?)──► walk (which blocks is that?) ──► Sink
//! ```
//!
//! The decoder reports nothing without evidence: it walks over code only as far as a packet proves that it ran. At
//! each PSB it walks up to the IP in the PSB+, so a span between two PSBs decodes to the same flow whether or not the
//! span before it was decoded.
//!
//! # Example
//!
//! A loop around a `nop`, which runs twice:
//!
//! ```
//! use hodo_clock::Tsc;
//! use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
//! use hodo_intel_pt::{Config, flow::{Decoder, Event, Executed, Sink, Switch}, packet::{IpPayload, Packet, Tnt}};
//!
//! struct Addresses(Vec<u64>);
//!
//! impl Sink for Addresses {
//!     fn executed(&mut self, executed: Executed<'_>) {
//!         self.0.extend(executed.addresses());
//!     }
//!     fn event(&mut self, _: Event) {}
//! }
//!
//! // nop; jne back to it; ret
//! let code = Content { bytes: &[0x90, 0x75, 0xfd, 0xc3], origin: Origin::default() };
//! let mut space = AddressSpace::new();
//! space.map(0x1000..0x1004, code, 0);
//! let branches = Packet::Tnt8(Tnt { bits: 0b10, count: 2 });
//! let [on, off] = [Packet::TipPge(IpPayload::Full(0x1000)), Packet::TipPgd(IpPayload::Suppressed)];
//! let packets = [Packet::Psb, Packet::PsbEnd, on, branches, off];
//! let trace: Vec<u8> = packets.iter().flat_map(|packet| packet.encode().to_vec()).collect();
//! let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
//! let mut ran = Addresses(Vec::new());
//! let decoder = Decoder::new(&trace, 0..trace.len(), &Config::default(), &schedule);
//! decoder.decode(&mut [Program::new(&space, &NoLabels)], &mut ran);
//! assert_eq!(ran.0, [0x1000, 0x1001, 0x1000, 0x1001, 0x1003]);
//! ```

mod bind;
mod decoder;
mod fast;
mod machine;
mod psb;
mod recovery;
mod resync_probe;
mod walk;

pub use hodo_code::{FunctionRun, Transfer};
pub use hodo_flow::{
    Cause, ControlFlow, ControlFlowKind, Event, EventData, Executed, Expected, Gap, Hidden, PacketKind, Sink,
    Step, Switch, Transaction, Trouble, ValueBlock,
};

pub use decoder::{Decoder, Guest, GuestCode};
pub use fast::Memos;

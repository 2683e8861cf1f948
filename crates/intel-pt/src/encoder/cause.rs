//! Causes of interrupts and exceptions, as event trace reports them.

use super::{Encoder, Sink, packet};
use crate::packet::Packet;

/// Type of a CFE packet: an interrupt or exception.
const INTERRUPT: u8 = 1;

impl Encoder {
    /// Emits the cause of the interrupt or exception that follows: CFE without an address.
    pub fn cause(&mut self, vector: u8, now: u64, sink: &mut impl Sink) {
        self.flush(now, sink);
        packet(Packet::Cfe { ip: false, kind: INTERRUPT, vector }, sink);
    }
}
